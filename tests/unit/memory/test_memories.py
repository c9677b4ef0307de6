"""Memories: stored, confirmed, replaced, read as of any time and listed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.memory_handles import contents, open_memory

import duramen
from duramen.errors import UnknownMemory
from duramen.memory.catalog.catalog import Catalog
from duramen.memory.catalog.records import Memory
from duramen.testing.clock import FakeClock

START = dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)


def after(seconds: float) -> dt.datetime:
    """So many seconds after the start of the clock."""
    return START + dt.timedelta(seconds=seconds)


@pytest.fixture
def handle(any_address: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    """A handle on each store in turn. Its clock moves only when a test advances it."""
    with open_memory(any_address, clock=clock) as dm:
        yield dm
        assert dm.verify().ok


@pytest.fixture
def in_memory(clock: FakeClock) -> Iterator[duramen.Duramen]:
    with open_memory("memory:", clock=clock) as dm:
        yield dm


@pytest.mark.promise("S8", "S10")
def test_a_memory_stores_all_its_details(handle: duramen.Duramen, clock: FakeClock) -> None:
    session = handle.session("talk")
    cause = session.append("note", "a reason")
    details: Any = {
        "kind": "preference", "subject": "ada", "key": "seat", "title": "Seats", "speaker": "Ada", "importance": 0.9,
        "confidence": 0.7, "metadata": {"trip": 8, "tags": ["a"]}, "valid_from": after(-60), "valid_to": after(60),
        "ttl": 30, "actor": "planner", "cause": cause.position,
    }  # fmt: skip
    made = session.remember("Ada likes aisle seats", **details)
    for memory in (
        made,
        handle.memory.get(made.id),
        *handle.memory.list(subject="ada"),
        *handle.memory.history(made.id),
    ):
        assert memory == made
    assert (made.content, made.kind, made.key, made.title, made.speaker) == (
        "Ada likes aisle seats", "preference", "seat", "Seats", "Ada",
    )  # fmt: skip
    assert (made.subject, made.scope, made.importance, made.confidence) == ("ada", "subject", 0.9, 0.7)
    assert (made.valid_from, made.valid_to, made.expires) == (after(-60), after(60), after(30))
    assert (made.recorded, made.confirmed, made.times, made.current) == (START, START, 1, True)
    assert made.metadata == {"trip": 8, "tags": ["a"]}
    session_name, _, position = made.source.rpartition("#")
    event = next(handle.session(session_name).events(start=int(position)))
    assert (event.type, event.actor, event.cause, event.subject) == ("memory.added", "planner", cause.position, "ada")
    assert event.data["content"] == made.content
    bare = handle.memory.remember("Nothing else is known")
    assert (bare.expires, bare.valid_to, bare.scope, bare.subject, bare.source) == (
        None, None, "workspace", None, "@memory#1",
    )  # fmt: skip
    clock.advance(10**9)
    assert contents(handle.memory.recall("else known")) == ["Nothing else is known"]


@pytest.mark.promise("S4", "E6")
def test_the_same_text_twice_is_one_memory(handle: duramen.Duramen, clock: FakeClock) -> None:
    first = handle.memory.remember("Caf\u00e9 opens  at nine", importance=0.3, confidence=0.4)
    clock.advance(5)
    again = handle.session("s").remember(" Cafe\u0301 opens at nine\n", importance=0.8)
    assert again.id == first.id
    (known,) = handle.memory.list()
    assert (known.content, known.source, known.times) == (first.content, first.source, 2)
    assert (known.recorded, known.confirmed) == (START, after(5))
    assert (known.importance, known.confidence) == (0.8, 1.0)
    assert contents(handle.memory.recall("cafe")) == [first.content]
    assert [one.source for one in handle.memory.history(first.id)] == ["@memory#1", "s#1"]


@pytest.mark.promise("S4")
@pytest.mark.parametrize("key", [None, "cfg"])
def test_remembering_again_returns_the_stored_memory(
    handle: duramen.Duramen, clock: FakeClock, key: str | None
) -> None:
    first = handle.memory.remember("The port is 80", key=key)
    clock.advance(5)
    again = handle.session("s").remember("The port is 80", key=key, importance=0.9)
    assert again == handle.memory.get(first.id)
    assert (again.times, again.source, again.confirmed) == (2, first.source, after(5))


@pytest.mark.promise("S4")
def test_forgetting_during_a_repeat_is_not_an_error(handle: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
    first = handle.memory.remember("Ada likes tea", kind="fact")
    load = Catalog._stored

    async def forget_first(self: Catalog, session: str, position: int) -> Memory | None:
        handle.memory.forget(first.id)  # as another process could
        return await load(self, session, position)

    monkeypatch.setattr(Catalog, "_stored", forget_first)
    again = handle.memory.remember("Ada likes tea", kind="fact")
    assert (again.id, again.content) == (first.id, first.content)
    assert list(handle.memory.list()) == []


def test_a_repeat_updates_title_and_metadata(handle: duramen.Duramen, clock: FakeClock) -> None:
    first = handle.memory.remember("The port is 80", metadata={"v": 1}, importance=0.8)
    clock.advance(5)
    second = handle.memory.remember("The port is 80", metadata={"v": 2})
    clock.advance(5)
    third = handle.session("s").remember("The port is 80", title="Harbour", importance=0.3)
    assert third == handle.memory.get(first.id)
    assert (second.times, second.metadata, second.title, second.source) == (2, {"v": 2}, None, "@memory#2")
    assert (third.times, third.metadata, third.title, third.source) == (3, {"v": 2}, "Harbour", "s#1")
    assert (third.valid_from, third.recorded, third.importance) == (START, after(10), 0.8)
    assert (
        len(handle.memory.recall("port", metadata={"v": 2})) == len(handle.memory.recall("harbour", threshold=0.5)) == 1
    )
    assert len(handle.memory.recall("port", metadata={"v": 1})) == 0
    assert [one.metadata for one in handle.memory.as_of(after(4)).list()] == [{"v": 1}]
    assert [(one.metadata["v"], one.current) for one in handle.memory.history(first.id)] == [
        (1, False), (2, False), (2, True),
    ]  # fmt: skip
    same = handle.memory.remember("The port is 80", metadata={"v": 2}, title="Harbour")
    assert (same.times, same.source) == (4, third.source), "nothing new: the stored version is confirmed"
    handle.memory.forget(first.id)
    assert list(handle.memory.list()) == []


@pytest.mark.promise("S4", "X11")
def test_a_step_updates_the_metadata_of_a_known_memory(handle: duramen.Duramen) -> None:
    @duramen.step
    def remember_port() -> None:
        duramen.remember("The port is 80", metadata={"v": 2})

    @duramen.task
    def configure() -> None:
        remember_port()

    handle.memory.remember("The port is 80", metadata={"v": 1})
    handle.run(configure, id="run")
    (known,) = handle.memory.list()
    assert (known.times, known.metadata) == (2, {"v": 2})


@pytest.mark.promise("S4")
@pytest.mark.parametrize(
    "other",
    [{"kind": "preference"}, {"key": "k"}, {"subject": "ada"}, {"scope": "session"}, {"speaker": "Bob"}],
    ids=str,
)
def test_another_kind_key_scope_or_speaker_is_another_memory(in_memory: duramen.Duramen, other: Any) -> None:
    one = in_memory.session("s").remember("yes")
    two = in_memory.session("s").remember("yes", **other)
    assert one.id != two.id
    assert len(list(in_memory.memory.list(everyone=True))) == 2


@pytest.mark.promise("S4")
def test_texts_that_differ_in_one_character_are_different_memories(in_memory: duramen.Duramen) -> None:
    texts = ["Tea", "tea", "tea.", "te a", "x" * 300_000 + "a", "x" * 300_000 + "b"]
    assert len({in_memory.memory.remember(text).id for text in texts}) == len(texts)


# -- replacement by key


@pytest.mark.promise("S5")
def test_a_newer_memory_with_the_same_key_replaces_the_older(handle: duramen.Duramen, clock: FakeClock) -> None:
    old = handle.memory.remember("Ada lives in Rome", key="home", subject="ada")
    clock.advance(10)
    new = handle.memory.remember("Ada lives in Oslo", key="home", subject="ada")
    clock.advance(10)
    assert contents(handle.memory.recall("Where does Ada live?", subject="ada")) == ["Ada lives in Oslo"]
    assert contents(handle.memory.list(subject="ada")) == ["Ada lives in Oslo"]
    for id in (old.id, new.id):
        then, now = handle.memory.history(id)
        assert (then.content, then.valid_to, then.ended, then.successor) == (old.content, after(10), after(10), new.id)
        assert (now.content, now.valid_from, now.valid_to, now.current) == (new.content, after(10), None, True)
    assert handle.memory.get(old.id).content == "Ada lives in Rome"
    assert contents(handle.memory.as_of(after(9)).recall("live", subject="ada")) == ["Ada lives in Rome"]


@pytest.mark.promise("S5")
def test_the_value_of_a_key_is_read_as_of_any_instant(handle: duramen.Duramen, clock: FakeClock) -> None:
    letters = ["A", "B", "A", "C", "C", "A"]
    for letter in letters:
        handle.memory.remember(f"the value is {letter}", key="value")
        clock.advance(10)
    for index, letter in enumerate(letters):
        for instant in (after(10 * index), after(10 * index + 9.999999)):
            then = handle.memory.as_of(instant)
            assert contents(then.list()) == contents(then.recall("value")) == [f"the value is {letter}"]
    assert list(handle.memory.as_of(after(-0.000001)).list()) == []
    (now,) = handle.memory.list()
    history = handle.memory.history(now.id)
    assert [one.content[-1] for one in history] == letters
    assert [one.current for one in history] == [False] * 5 + [True]
    session = handle.session("s")
    event = session.append("note", "now")
    clock.advance(5)
    handle.memory.remember("the value is D", key="value")
    assert contents(handle.memory.as_of(event).list()) == ["the value is A"]


@pytest.mark.promise("S5")
def test_a_memory_that_was_valid_earlier_is_history_at_once(handle: duramen.Duramen, clock: FakeClock) -> None:
    handle.memory.remember("Ada lives in Oslo", key="home", valid_from=after(-100))
    clock.advance(10)
    past = handle.memory.remember("Ada lived in Rome", key="home", valid_from=after(-500))
    assert (past.current, past.valid_from, past.valid_to) == (False, after(-500), after(-100))
    assert contents(handle.memory.recall("Ada")) == contents(handle.memory.list()) == ["Ada lives in Oslo"]
    assert sorted(contents(handle.memory.history(past.id))) == ["Ada lived in Rome", "Ada lives in Oslo"]


@pytest.mark.promise("S5")
def test_as_of_ignores_a_replacement_recorded_later(handle: duramen.Duramen, clock: FakeClock) -> None:
    handle.memory.remember("Ada lives in Rome", key="home")
    handle.memory.remember("The sale runs", key="sale", valid_to=after(50))
    clock.advance(100)
    handle.memory.remember("Ada lives in Oslo", key="home", valid_from=after(20))
    handle.memory.remember("The sale is over", key="sale", valid_from=after(20))
    clock.advance(100)
    for seconds, expected in ((10, "Rome"), (30, "Rome"), (99, "Rome"), (100, "Oslo"), (150, "Oslo")):
        then = handle.memory.as_of(after(seconds))
        assert contents(then.recall("Where does Ada live?", threshold=0.5)) == [f"Ada lives in {expected}"]
    assert contents(handle.memory.as_of(after(49)).recall("sale", threshold=0.5)) == ["The sale runs"]
    assert contents(handle.memory.as_of(after(51)).recall("sale", threshold=0.5)) == []


@pytest.mark.promise("S5")
def test_a_future_memory_hides_nothing_until_it_is_valid(handle: duramen.Duramen, clock: FakeClock) -> None:
    handle.memory.remember("Ada lives in Rome", key="home")
    plan = handle.memory.remember("Ada lives in Oslo", key="home", valid_from=after(100))
    assert plan.valid_from == after(100)
    assert contents(handle.memory.list()) == ["Ada lives in Rome", "Ada lives in Oslo"], "both are known"
    clock.advance(99)
    assert contents(handle.memory.recall("Where does Ada live?")) == ["Ada lives in Rome"]
    clock.advance(1)
    assert contents(handle.memory.recall("Where does Ada live?")) == ["Ada lives in Oslo"]
    clock.advance(100)
    handle.memory.remember("Ada lives in Bonn", key="home")
    clock.advance(100)
    for seconds, city in ((50, "Rome"), (99, "Rome"), (100, "Oslo"), (199, "Oslo"), (200, "Bonn"), (300, "Bonn")):
        then = handle.memory.as_of(after(seconds))
        assert contents(then.recall("Where does Ada live?")) == [f"Ada lives in {city}"], seconds
    assert contents(handle.memory.list()) == ["Ada lives in Bonn"]


@pytest.mark.promise("S5")
def test_a_clock_that_moves_backwards_hides_nothing(handle: duramen.Duramen, clock: FakeClock) -> None:
    handle.session("a").remember("Ada lives in Rome", key="home")
    handle.session("a").remember("The cat is grey")
    clock.advance(-50)
    assert len(handle.memory.recall("Ada cat")) == 2
    newer = handle.session("b").remember("Ada lives in Oslo", key="home")
    handle.session("b").remember("The cat is grey")
    assert newer.current
    assert contents(handle.memory.recall("Ada lives")) == ["Ada lives in Oslo", "The cat is grey"]
    assert [one.times for one in handle.memory.list()] == [2, 1]


@pytest.mark.promise("S5")
@pytest.mark.parametrize("year", [1, 1969, 1970, 9999])
def test_distant_times_are_stored(handle: duramen.Duramen, year: int) -> None:
    on = dt.datetime(year, 1, 1, tzinfo=dt.UTC)
    made = handle.memory.remember("The week before today it rained", valid_from=on, fresh=True)
    assert abs(made.valid_from - on) < dt.timedelta(milliseconds=1)
    assert len(handle.memory.recall("rain")) == (year < 2023)
    assert contents(handle.memory.as_of(dt.datetime.max.replace(tzinfo=dt.UTC)).recall("rain")) == [made.content]


# -- expiry


@pytest.mark.promise("S8")
def test_a_ttl_ends_recall_and_restarts_with_a_repeat(handle: duramen.Duramen, clock: FakeClock) -> None:
    handle.memory.remember("The gate is B12", ttl=10)
    handle.memory.remember("The gate code is 4711", ttl=dt.timedelta(seconds=20))
    clock.advance(9.999999)
    assert len(handle.memory.recall("gate")) == 2
    clock.advance(0.000001)
    assert contents(handle.memory.recall("gate")) == ["The gate code is 4711"]
    assert len(handle.memory.as_of(after(5)).recall("gate")) == 2
    handle.memory.remember("The gate is B12", ttl=10)
    clock.advance(9)
    assert len(handle.memory.recall("gate")) == 2
    handle.memory.remember("The gate is B12")
    clock.advance(10**6)
    assert contents(handle.memory.recall("gate")) == ["The gate is B12"]


def test_a_repeat_makes_an_ended_memory_valid_again(handle: duramen.Duramen, clock: FakeClock) -> None:
    handle.memory.remember("The sale runs", valid_to=after(10))
    clock.advance(5)
    handle.memory.remember("The sale runs")
    assert [one.valid_to for one in handle.memory.list()] == [after(10)]
    clock.advance(20)
    assert contents(handle.memory.recall("sale")) == []
    handle.memory.remember("The sale runs")
    assert contents(handle.memory.recall("sale")) == ["The sale runs"]


# -- lists and scopes


def test_lists_are_ordered_and_filter_by_kind_and_limit(handle: duramen.Duramen) -> None:
    for number in range(7):
        handle.memory.remember(f"fact {number}", kind="reference" if number % 3 == 0 else "fact")
    assert contents(handle.memory.list()) == [f"fact {number}" for number in range(7)]
    assert contents(handle.memory.list(limit=3)) == ["fact 0", "fact 1", "fact 2"]
    assert contents(handle.memory.list(kinds="reference", limit=2)) == ["fact 0", "fact 3"]
    assert contents(handle.memory.list(kinds=["reference", "fact"])) == contents(handle.memory.list())
    assert list(handle.memory.list(kinds=[])) == []
    assert list(handle.memory.list(kinds="preference")) == []


def test_a_list_reads_many_pages(in_memory: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duramen.memory.catalog.catalog._PAGE", 3)
    for number in range(10):
        in_memory.memory.remember(f"fact {number}")
    assert len(list(in_memory.memory.list())) == 10
    assert len(list(in_memory.memory.list(limit=7))) == 7
    assert len(list(in_memory.memory.list(limit=6))) == 6


@pytest.mark.promise("G4", "S3")
def test_the_scope_decides_who_recalls_a_memory(handle: duramen.Duramen) -> None:
    talk = handle.session("talk")
    talk.remember("sun: for all")
    talk.remember("sun: about ada", subject="ada")
    talk.remember("sun: about ada for all", subject="ada", scope="workspace")
    talk.remember("sun: about bob", subject="bob")
    talk.remember("sun: in this session", scope="session")
    talk.remember("sun: ada in this session", subject="ada", scope="session")

    def visible(**audience: Any) -> set[str]:
        texts = contents(handle.memory.recall("sun", **audience))
        assert sorted(texts) == sorted(contents(handle.memory.list(**audience)))
        return {text.removeprefix("sun: ") for text in texts}

    for_all = {"for all", "about ada for all"}
    assert visible() == for_all
    assert visible(subject="ada") == for_all | {"about ada"}
    assert visible(subject="nobody") == for_all
    assert visible(session="talk") == for_all | {"in this session", "ada in this session"}
    assert visible(session="talk", subject="bob") == for_all | {"in this session", "ada in this session", "about bob"}
    assert visible(session="other") == for_all
    assert len(visible(everyone=True)) == 6
    assert "about bob" not in talk.recall("sun", subject="ada").text
    assert "in this session" not in handle.session("other").recall("sun", subject="ada").text


def test_the_same_text_in_two_scopes_is_two_memories(handle: duramen.Duramen) -> None:
    mine = handle.memory.remember("likes tea", subject="ada")
    handle.memory.remember("likes tea", subject="bob")
    handle.memory.remember("likes tea")
    assert handle.memory.forget(mine.id).payloads == 1
    assert contents(handle.memory.recall("tea", subject="ada")) == ["likes tea"]
    assert len(handle.memory.recall("tea", subject="bob")) == 2
    with pytest.raises(UnknownMemory):
        handle.memory.get(mine.id)


# -- random sequences

STATEMENTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([None, "k", "l"]),
        st.sampled_from([None, "ada"]),
        st.sampled_from([None, -30, -5, 0, 4, 25]),
        st.sampled_from([0, 1, 10, -3]),
    ),
    max_size=10,
)


def is_valid(memory: Memory, now: dt.datetime) -> bool:
    """Whether a memory is valid at a time. Unless dated ahead it is valid at once, even if the clock moved back."""
    begun = memory.valid_from <= max(now, memory.recorded)
    return begun and (memory.valid_to is None or memory.valid_to > now)


@pytest.mark.promise("S4", "S5")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(STATEMENTS)
def test_one_memory_per_key_and_per_id_is_current(statements: list[Any]) -> None:
    clock = FakeClock()
    with open_memory("memory:", clock=clock, embedder="none") as dm:
        for text, key, subject, begins, wait in statements:
            time = None if begins is None else dt.datetime.fromtimestamp(clock.now() / 1e6 + begins, dt.UTC)
            dm.memory.remember(text, key=key, subject=subject, valid_from=time)
            clock.advance(wait)
        current = list(dm.memory.list(everyone=True))
        assert len({one.id for one in current}) == len(current)
        for one, other in combinations([one for one in current if one.key is not None], 2):
            if (one.subject, one.key) == (other.subject, other.key):
                first, second = sorted((one, other), key=lambda memory: memory.valid_from)
                assert first.valid_to is not None
                assert first.valid_to <= second.valid_from
                assert second.valid_from > second.recorded, "only a memory dated ahead may coexist with another"
        assert {(key, subject) for _, key, subject, *_ in statements} == {(one.key, one.subject) for one in current}
        versions: dict[str, Memory] = {}
        for one in current:
            versions |= {version.source: version for version in dm.memory.history(one.id)}
        assert len(versions) == len(statements), "every event is in a history"
        recalled = {hit.memory.source for hit in dm.memory.recall("a b c", everyone=True, limit=50)}
        now = dt.datetime.fromtimestamp(clock.now() / 1e6, dt.UTC)
        assert recalled == {one.source for one in current if is_valid(one, now)}
