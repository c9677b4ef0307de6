"""`remember_all` stores several memories: the same as one after the other, but all or none."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from programs.child_processes import ChildProcesses
from programs.memory_handles import EMBEDDER, contents, open_memory

import duramen
from duramen.errors import InvalidInput
from duramen.memory.catalog.catalog import Catalog
from duramen.testing.clock import FakeClock


@pytest.fixture
def dm(any_address: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    """A handle on each store in turn. Its clock moves only when a test advances it."""
    with open_memory(any_address, clock=clock) as dm:
        yield dm
        assert dm.verify().ok


@pytest.mark.promise("S10", "J5")
def test_each_memory_has_its_own_details(dm: duramen.Duramen) -> None:
    memories = dm.memory.remember_all(
        ["Ada likes tea", {"content": "Ada lives in Porto", "key": "home", "importance": 0.9}],
        kind="observation",
        subject="ada",
        importance=0.2,
        fresh=True,
    )
    assert [(one.content, one.kind, one.subject, one.key, one.importance) for one in memories] == [
        ("Ada likes tea", "observation", "ada", None, 0.2),
        ("Ada lives in Porto", "observation", "ada", "home", 0.9),
    ]
    assert [dm.memory.get(one.id) for one in memories] == memories
    assert [one.source for one in memories] == ["@memory#1", "@memory#2"]
    assert dm.memory.waiting() == 0
    assert contents(dm.memory.recall("Where is her residence? Porto", subject="ada", limit=1)) == ["Ada lives in Porto"]
    assert dm.memory.remember_all([]) == []


@pytest.mark.promise("S4")
def test_repeats_in_one_call_are_one_memory_with_all_details(dm: duramen.Duramen) -> None:
    dm.memory.remember("The sky is blue", relations=[("sky", "is", "blue")])
    statements: list[Any] = [
        "The sky is blue",
        {"content": "The sky is blue", "title": "Sky"},
        {"content": "The sky is blue", "metadata": {"seen": 1}},
        "The sky is blue",
        {"content": "The sky is grey", "key": "sky"},
        {"content": "The sky is red", "key": "sky"},
    ]
    first, *_, grey, red = dm.memory.remember_all(statements)
    assert (first.title, first.metadata, first.times, first.relations) == (
        "Sky", {"seen": 1}, 5, (("sky", "is", "blue"),),
    )  # fmt: skip
    assert (grey.successor, red.successor) == (red.id, None)
    assert sorted(contents(dm.memory.list())) == ["The sky is blue", "The sky is red"]


def test_only_known_memories_are_read_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    load = Catalog._stored

    async def recorded_load(self: Catalog, session: str, position: int) -> Any:
        read.append(position)
        return await load(self, session, position)

    monkeypatch.setattr(Catalog, "_stored", recorded_load)
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm:
        dm.memory.remember("fact 5", importance=0.9)
        memories = dm.memory.remember_all(
            [
                *(f"fact {number}" for number in range(20)),
                "fact 7",
                {"content": "a", "key": "k"},
                {"content": "b", "key": "k"},
            ]
        )
        assert len(read) == 5  # "fact 5", "fact 7" twice, and both with the key
        assert [memories[5].importance, memories[5].times, memories[7].times, memories[20].times] == [0.9, 2, 2, 2]
        assert [memories[21].successor, memories[22].successor] == [memories[22].id, None]


def test_a_session_stores_them_as_its_own_events(dm: duramen.Duramen) -> None:
    session = dm.session("talk")
    memories = session.remember_all(["one", "two"], scope="session")
    assert [one.source for one in memories] == ["talk#1", "talk#2"]
    assert [event.data["content"] for event in session.events()] == ["one", "two"]


def test_remember_all_works_in_the_async_api() -> None:
    async def script() -> None:
        async with await duramen.aopen("memory:", embedder=EMBEDDER) as dm:
            memories = await dm.memory.remember_all(["one", {"content": "two", "kind": "reference"}])
            assert [one.kind for one in memories] == ["fact", "reference"]
            (three,) = await dm.session("talk").remember_all(["three"])
            assert three.source == "talk#1"

    asyncio.run(script())


STATEMENTS = st.lists(
    st.fixed_dictionaries(
        {"content": st.sampled_from(["a", "b", "c"])},
        optional={
            "key": st.sampled_from(["k", "l"]),
            "title": st.sampled_from(["T", "U"]),
            "metadata": st.sampled_from([{"x": 1}, {"y": 2}]),
            "valid_from": st.sampled_from([dt.datetime.fromtimestamp(1_700_000_000 + n, dt.UTC) for n in (-30, 0, 25)]),
        },
    ),
    max_size=8,
)


_PAST = dt.datetime.fromtimestamp(1_700_000_000 - 30, dt.UTC)


@pytest.mark.promise("S4", "S5")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=80)
# Details of a replaced memory are not details of its current version.
@example([{"content": "b", "key": "k", "metadata": {"x": 1}}, {"content": "a", "key": "k"},
          {"content": "b", "key": "k", "title": "T"}], 1)  # fmt: skip
@example([{"content": "a", "key": "k"}, {"content": "b", "key": "k", "valid_from": _PAST, "metadata": {"x": 1}},
          {"content": "b", "key": "k", "title": "T"}], 0)  # fmt: skip
@example([{"content": "a", "key": "k"}, {"content": "b", "key": "k", "valid_from": _PAST, "metadata": {"x": 1}},
          {"content": "b", "key": "k", "title": "T"}], 1)  # fmt: skip
@given(STATEMENTS, st.integers(0, 8))
def test_remember_all_equals_remembering_one_after_the_other(statements: list[Any], before: int) -> None:
    results = []
    for together in (True, False):
        with open_memory("memory:", clock=FakeClock(), embedder="none") as dm:
            for statement in statements[:before] if together else statements:
                dm.memory.remember(**statement)
            if together:
                dm.memory.remember_all(statements[before:])
            current = list(dm.memory.list(everyone=True))
            results.append([current, [dm.memory.history(one.id) for one in current]])
    assert results[0] == results[1]


BAD_CONTENTS: dict[str, tuple[Any, str]] = {
    "a text": ("one", "needs a list of memories, not str"),
    "a dict": ({"content": "one"}, "needs a list of memories, not dict"),
    "a number": (7, "needs a list of memories, not int"),
    "no content": (["one", {"kind": "fact"}], r"contents\[1\]: there is no content"),
    "neither text nor dict": (["one", 7], r"contents\[1\]: there is no content"),
    "nothing to remember": (["one", "two", " "], r"contents\[2\]: there is nothing to remember"),
    "an unknown detail": (["one", {"content": "two", "colour": "red"}], r"contents\[1\]: unknown detail 'colour'"),
    "too many": (["one"] * 1001, "1,001 memories are too many"),
}


@pytest.mark.promise("J5")
@pytest.mark.parametrize("what", BAD_CONTENTS)
def test_bad_content_is_reported_with_its_index_and_nothing_is_stored(what: str) -> None:
    contents, message = BAD_CONTENTS[what]
    with open_memory("memory:", embedder="none") as dm:
        with pytest.raises(InvalidInput, match=message) as refused:
            dm.memory.remember_all(contents)
        assert refused.value.hint
        assert list(dm.memory.list(everyone=True)) == []


@pytest.mark.promise("J5", "J2")
@pytest.mark.parametrize("point", ["append.encoded", "append.begun", "append.inserted", "append.committed"])
def test_a_kill_leaves_all_memories_of_a_call_or_none(tmp_path: Any, processes: ChildProcesses, point: str) -> None:
    address = str(tmp_path / "agent.db")
    for visit in (1, 2):
        child = processes.start("memory_handles:remember_batches", crash=(point, visit), address=address, count=3)
        assert child.wait() == -signal.SIGKILL, child.errors()
        with open_memory(address, embedder="none") as dm:
            assert dm.verify().ok
            stored = contents(dm.memory.list(subject="ada"))
            assert len(stored) % 3 == 0
            assert len(stored) // 3 >= visit - 1
            assert len(stored) == 3 * len({text.rpartition(" ")[2] for text in stored})
