"""Memories: said, said again, replaced, read as of any time, listed; on every store, from both APIs."""

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
    """So long after the clock's start."""
    return START + dt.timedelta(seconds=seconds)


@pytest.fixture
def handle(any_address: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    """A handle on each store in turn, with a clock that stands."""
    with open_memory(any_address, clock=clock) as dm:
        yield dm
        assert dm.verify().ok


@pytest.fixture
def quick(clock: FakeClock) -> Iterator[duramen.Duramen]:
    with open_memory("memory:", clock=clock) as dm:
        yield dm


@pytest.mark.promise("S8", "S10")
def test_a_memory_keeps_all_that_was_said_of_it(handle: duramen.Duramen, clock: FakeClock) -> None:
    session = handle.session("talk")
    cause = session.append("note", "a reason")
    told: Any = {
        "kind": "preference", "subject": "ada", "key": "seat", "title": "Seats", "speaker": "Ada", "importance": 0.9,
        "confidence": 0.7, "metadata": {"trip": 8, "tags": ["a"]}, "valid_from": after(-60), "valid_to": after(60),
        "ttl": 30, "actor": "planner", "cause": cause.position,
    }  # fmt: skip
    made = session.remember("Ada likes aisle seats", **told)
    for found in (
        made,
        handle.memory.get(made.id),
        *handle.memory.list(subject="ada"),
        *handle.memory.history(made.id),
    ):
        assert found == made
    assert (made.content, made.kind, made.key, made.title, made.speaker) == (
        "Ada likes aisle seats", "preference", "seat", "Seats", "Ada",
    )  # fmt: skip
    assert (made.subject, made.scope, made.importance, made.confidence) == ("ada", "subject", 0.9, 0.7)
    assert (made.valid_from, made.valid_to, made.expires) == (after(-60), after(60), after(30))
    assert (made.recorded, made.confirmed, made.times, made.current) == (START, START, 1, True)
    assert made.metadata == {"trip": 8, "tags": ["a"]}
    where, _, position = made.source.rpartition("#")
    event = next(handle.session(where).events(start=int(position)))
    assert (event.type, event.actor, event.cause, event.subject) == ("memory.added", "planner", cause.position, "ada")
    assert event.data["content"] == made.content
    bare = handle.memory.remember("Nothing else is known")
    assert (bare.expires, bare.valid_to, bare.scope, bare.subject, bare.source) == (
        None, None, "workspace", None, "@memory#1",
    )  # fmt: skip
    clock.advance(10**9)
    assert contents(handle.memory.recall("else known")) == ["Nothing else is known"]


@pytest.mark.promise("S4", "E6")
def test_the_same_thing_said_twice_is_one(handle: duramen.Duramen, clock: FakeClock) -> None:
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
def test_what_is_told_of_something_said_again_is_what_is_stored(
    handle: duramen.Duramen, clock: FakeClock, key: str | None
) -> None:
    first = handle.memory.remember("The port is 80", key=key)
    clock.advance(5)
    again = handle.session("s").remember("The port is 80", key=key, importance=0.9)
    assert again == handle.memory.get(first.id)
    assert (again.times, again.source, again.confirmed) == (2, first.source, after(5))


@pytest.mark.promise("S4")
def test_what_is_forgotten_while_it_is_said_again_is_no_error(
    handle: duramen.Duramen, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = handle.memory.remember("Ada likes tea", kind="fact")
    stored = Catalog._stored

    async def too_late(self: Catalog, session: str, position: int) -> Memory | None:
        handle.memory.forget(said.id)  # as another process might in this moment
        return await stored(self, session, position)

    monkeypatch.setattr(Catalog, "_stored", too_late)
    again = handle.memory.remember("Ada likes tea", kind="fact")
    assert (again.id, again.content) == (said.id, said.content)
    assert list(handle.memory.list()) == []


def test_title_and_metadata_of_a_later_saying_count(handle: duramen.Duramen, clock: FakeClock) -> None:
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
    assert (same.times, same.source) == (4, third.source), "nothing new: it is confirmed"
    handle.memory.forget(first.id)
    assert list(handle.memory.list()) == []


@pytest.mark.promise("S4", "X11")
def test_a_step_that_tells_more_of_what_is_known_is_heard(handle: duramen.Duramen) -> None:
    @duramen.step
    def tell() -> None:
        duramen.remember("The port is 80", metadata={"v": 2})

    @duramen.task
    def told() -> None:
        tell()

    handle.memory.remember("The port is 80", metadata={"v": 1})
    handle.run(told, id="run")
    (known,) = handle.memory.list()
    assert (known.times, known.metadata) == (2, {"v": 2})


@pytest.mark.promise("S4")
@pytest.mark.parametrize(
    "other",
    [{"kind": "preference"}, {"key": "k"}, {"subject": "ada"}, {"scope": "session"}, {"speaker": "Bob"}],
    ids=str,
)
def test_what_differs_in_kind_key_scope_or_speaker_is_another(quick: duramen.Duramen, other: Any) -> None:
    one = quick.session("s").remember("yes")
    two = quick.session("s").remember("yes", **other)
    assert one.id != two.id
    assert len(list(quick.memory.list(everyone=True))) == 2


@pytest.mark.promise("S4")
def test_case_and_punctuation_make_another_memory_and_so_does_one_letter_at_the_end(quick: duramen.Duramen) -> None:
    texts = ["Tea", "tea", "tea.", "te a", "x" * 300_000 + "a", "x" * 300_000 + "b"]
    assert len({quick.memory.remember(text).id for text in texts}) == len(texts)


# -- one in place of another


@pytest.mark.promise("S5")
def test_a_newer_one_takes_the_place_of_an_older_one(handle: duramen.Duramen, clock: FakeClock) -> None:
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
def test_a_chain_is_read_as_of_every_instant(handle: duramen.Duramen, clock: FakeClock) -> None:
    said = ["A", "B", "A", "C", "C", "A"]
    for letter in said:
        handle.memory.remember(f"the value is {letter}", key="value")
        clock.advance(10)
    for index, letter in enumerate(said):
        for instant in (after(10 * index), after(10 * index + 9.999999)):
            then = handle.memory.as_of(instant)
            assert contents(then.list()) == contents(then.recall("value")) == [f"the value is {letter}"]
    assert list(handle.memory.as_of(after(-0.000001)).list()) == []
    (now,) = handle.memory.list()
    history = handle.memory.history(now.id)
    assert [one.content[-1] for one in history] == said
    assert [one.current for one in history] == [False] * 5 + [True]
    session = handle.session("s")
    event = session.append("note", "now")
    clock.advance(5)
    handle.memory.remember("the value is D", key="value")
    assert contents(handle.memory.as_of(event).list()) == ["the value is A"]


@pytest.mark.promise("S5")
def test_news_of_the_past_is_history_at_once(handle: duramen.Duramen, clock: FakeClock) -> None:
    handle.memory.remember("Ada lives in Oslo", key="home", valid_from=after(-100))
    clock.advance(10)
    past = handle.memory.remember("Ada lived in Rome", key="home", valid_from=after(-500))
    assert (past.current, past.valid_from, past.valid_to) == (False, after(-500), after(-100))
    assert contents(handle.memory.recall("Ada")) == contents(handle.memory.list()) == ["Ada lives in Oslo"]
    assert sorted(contents(handle.memory.history(past.id))) == ["Ada lived in Rome", "Ada lives in Oslo"]


@pytest.mark.promise("S5")
def test_what_ended_a_memory_was_not_known_before_it_was_said(handle: duramen.Duramen, clock: FakeClock) -> None:
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
def test_what_begins_later_hides_nothing_until_then(handle: duramen.Duramen, clock: FakeClock) -> None:
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
def test_a_clock_that_goes_back_hides_nothing(handle: duramen.Duramen, clock: FakeClock) -> None:
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
def test_times_far_away_are_kept(handle: duramen.Duramen, year: int) -> None:
    on = dt.datetime(year, 1, 1, tzinfo=dt.UTC)
    made = handle.memory.remember("The week before today it rained", valid_from=on, fresh=True)
    assert abs(made.valid_from - on) < dt.timedelta(milliseconds=1)
    assert len(handle.memory.recall("rain")) == (year < 2023)
    assert contents(handle.memory.as_of(dt.datetime.max.replace(tzinfo=dt.UTC)).recall("rain")) == [made.content]


# -- ends


@pytest.mark.promise("S8")
def test_a_ttl_ends_recall_and_begins_anew_when_said_again(handle: duramen.Duramen, clock: FakeClock) -> None:
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


def test_what_was_over_holds_again_when_it_is_said_again(handle: duramen.Duramen, clock: FakeClock) -> None:
    handle.memory.remember("The sale runs", valid_to=after(10))
    clock.advance(5)
    handle.memory.remember("The sale runs")
    assert [one.valid_to for one in handle.memory.list()] == [after(10)]
    clock.advance(20)
    assert contents(handle.memory.recall("sale")) == []
    handle.memory.remember("The sale runs")
    assert contents(handle.memory.recall("sale")) == ["The sale runs"]


# -- lists and scopes


def test_lists_are_in_order_and_take_a_limit_and_kinds(handle: duramen.Duramen) -> None:
    for number in range(7):
        handle.memory.remember(f"fact {number}", kind="reference" if number % 3 == 0 else "fact")
    assert contents(handle.memory.list()) == [f"fact {number}" for number in range(7)]
    assert contents(handle.memory.list(limit=3)) == ["fact 0", "fact 1", "fact 2"]
    assert contents(handle.memory.list(kinds="reference", limit=2)) == ["fact 0", "fact 3"]
    assert contents(handle.memory.list(kinds=["reference", "fact"])) == contents(handle.memory.list())
    assert list(handle.memory.list(kinds=[])) == []
    assert list(handle.memory.list(kinds="preference")) == []


def test_a_list_goes_over_many_pages(quick: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duramen.memory.catalog.catalog._PAGE", 3)
    for number in range(10):
        quick.memory.remember(f"fact {number}")
    assert len(list(quick.memory.list())) == 10
    assert len(list(quick.memory.list(limit=7))) == 7
    assert len(list(quick.memory.list(limit=6))) == 6


@pytest.mark.promise("G4", "S3")
def test_who_may_recall_it_is_its_scope(handle: duramen.Duramen) -> None:
    talk = handle.session("talk")
    talk.remember("sun: for all")
    talk.remember("sun: about ada", subject="ada")
    talk.remember("sun: about ada for all", subject="ada", scope="workspace")
    talk.remember("sun: about bob", subject="bob")
    talk.remember("sun: in this session", scope="session")
    talk.remember("sun: ada in this session", subject="ada", scope="session")

    def seen(**whose: Any) -> set[str]:
        found = contents(handle.memory.recall("sun", **whose))
        assert sorted(found) == sorted(contents(handle.memory.list(**whose)))
        return {text.removeprefix("sun: ") for text in found}

    everybody = {"for all", "about ada for all"}
    assert seen() == everybody
    assert seen(subject="ada") == everybody | {"about ada"}
    assert seen(subject="nobody") == everybody
    assert seen(session="talk") == everybody | {"in this session", "ada in this session"}
    assert seen(session="talk", subject="bob") == everybody | {"in this session", "ada in this session", "about bob"}
    assert seen(session="other") == everybody
    assert len(seen(everyone=True)) == 6
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


# -- whatever is said

SAYINGS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([None, "k", "l"]),
        st.sampled_from([None, "ada"]),
        st.sampled_from([None, -30, -5, 0, 4, 25]),
        st.sampled_from([0, 1, 10, -3]),
    ),
    max_size=10,
)


def holds(one: Memory, now: dt.datetime) -> bool:
    """Whether a memory holds at a time. What was not said ahead holds at once, whatever the clocks."""
    begun = one.valid_from <= max(now, one.recorded)
    return begun and (one.valid_to is None or one.valid_to > now)


@pytest.mark.promise("S4", "S5")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(SAYINGS)
def test_one_of_a_key_and_one_of_an_id_is_current(sayings: list[Any]) -> None:
    clock = FakeClock()
    with open_memory("memory:", clock=clock, embedder="none") as dm:
        for text, key, subject, begins, wait in sayings:
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
                assert second.valid_from > second.recorded, "only what was said ahead of its time stands beside another"
        assert {(key, subject) for _, key, subject, *_ in sayings} == {(one.key, one.subject) for one in current}
        said: dict[str, Memory] = {}
        for one in current:
            said |= {found.source: found for found in dm.memory.history(one.id)}
        assert len(said) == len(sayings), "every event is in somebody's history"
        recalled = {hit.memory.source for hit in dm.memory.recall("a b c", everyone=True, limit=50)}
        now = dt.datetime.fromtimestamp(clock.now() / 1e6, dt.UTC)
        assert recalled == {one.source for one in current if holds(one, now)}
