"""Several memories in one go: as one by one, but all or none, on every store and from both APIs."""

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
    """A handle on each store in turn, with a clock that stands."""
    with open_memory(any_address, clock=clock) as dm:
        yield dm
        assert dm.verify().ok


@pytest.mark.promise("S10", "J5")
def test_each_is_a_memory_of_its_own_with_what_was_said_of_it(dm: duramen.Duramen) -> None:
    every = dm.memory.remember_all(
        ["Ada likes tea", {"content": "Ada lives in Porto", "key": "home", "importance": 0.9}],
        kind="observation",
        subject="ada",
        importance=0.2,
        fresh=True,
    )
    assert [(one.content, one.kind, one.subject, one.key, one.importance) for one in every] == [
        ("Ada likes tea", "observation", "ada", None, 0.2),
        ("Ada lives in Porto", "observation", "ada", "home", 0.9),
    ]
    assert [dm.memory.get(one.id) for one in every] == every
    assert [one.source for one in every] == ["@memory#1", "@memory#2"]
    assert dm.memory.waiting() == 0
    assert contents(dm.memory.recall("Where is her residence? Porto", subject="ada", limit=1)) == ["Ada lives in Porto"]
    assert dm.memory.remember_all([]) == []


@pytest.mark.promise("S4")
def test_what_is_said_twice_in_one_go_is_one_memory_with_all_that_was_said_of_it(dm: duramen.Duramen) -> None:
    dm.memory.remember("The sky is blue", relations=[("sky", "is", "blue")])
    sky: list[Any] = [
        "The sky is blue",
        {"content": "The sky is blue", "title": "Sky"},
        {"content": "The sky is blue", "metadata": {"seen": 1}},
        "The sky is blue",
        {"content": "The sky is grey", "key": "sky"},
        {"content": "The sky is red", "key": "sky"},
    ]
    first, *_, grey, red = dm.memory.remember_all(sky)
    assert (first.title, first.metadata, first.times, first.relations) == (
        "Sky", {"seen": 1}, 5, (("sky", "is", "blue"),),
    )  # fmt: skip
    assert (grey.successor, red.successor) == (red.id, None)
    assert sorted(contents(dm.memory.list())) == ["The sky is blue", "The sky is red"]


def test_of_many_that_are_said_only_those_that_were_known_are_read_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = Catalog._stored

    async def noted(self: Catalog, session: str, position: int) -> Any:
        read.append(position)
        return await original(self, session, position)

    monkeypatch.setattr(Catalog, "_stored", noted)
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm:
        dm.memory.remember("fact 5", importance=0.9)
        every = dm.memory.remember_all(
            [
                *(f"fact {number}" for number in range(20)),
                "fact 7",
                {"content": "a", "key": "k"},
                {"content": "b", "key": "k"},
            ]
        )
        assert len(read) == 5  # "fact 5", both times "fact 7", and both that have the key
        assert [every[5].importance, every[5].times, every[7].times, every[20].times] == [0.9, 2, 2, 2]
        assert [every[21].successor, every[22].successor] == [every[22].id, None]


def test_a_session_remembers_several_as_its_own_events(dm: duramen.Duramen) -> None:
    session = dm.session("talk")
    every = session.remember_all(["one", "two"], scope="session")
    assert [one.source for one in every] == ["talk#1", "talk#2"]
    assert [event.data["content"] for event in session.events()] == ["one", "two"]


def test_the_async_face_does_the_same() -> None:
    async def whole() -> None:
        async with await duramen.aopen("memory:", embedder=EMBEDDER) as dm:
            every = await dm.memory.remember_all(["one", {"content": "two", "kind": "reference"}])
            assert [one.kind for one in every] == ["fact", "reference"]
            (said,) = await dm.session("talk").remember_all(["three"])
            assert said.source == "talk#1"

    asyncio.run(whole())


SAYINGS = st.lists(
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
# What was said of one whose place another one has taken is not what is known of it.
@example([{"content": "b", "key": "k", "metadata": {"x": 1}}, {"content": "a", "key": "k"},
          {"content": "b", "key": "k", "title": "T"}], 1)  # fmt: skip
@example([{"content": "a", "key": "k"}, {"content": "b", "key": "k", "valid_from": _PAST, "metadata": {"x": 1}},
          {"content": "b", "key": "k", "title": "T"}], 0)  # fmt: skip
@example([{"content": "a", "key": "k"}, {"content": "b", "key": "k", "valid_from": _PAST, "metadata": {"x": 1}},
          {"content": "b", "key": "k", "title": "T"}], 1)  # fmt: skip
@given(SAYINGS, st.integers(0, 8))
def test_in_one_go_leaves_what_one_by_one_leaves(sayings: list[Any], before: int) -> None:
    left = []
    for together in (True, False):
        with open_memory("memory:", clock=FakeClock(), embedder="none") as dm:
            for said in sayings[:before] if together else sayings:
                dm.memory.remember(**said)
            if together:
                dm.memory.remember_all(sayings[before:])
            current = list(dm.memory.list(everyone=True))
            left.append([current, [dm.memory.history(one.id) for one in current]])
    assert left[0] == left[1]


BAD: dict[str, tuple[Any, str]] = {
    "a text": ("one", "needs a list of memories, not str"),
    "a dict": ({"content": "one"}, "needs a list of memories, not dict"),
    "a number": (7, "needs a list of memories, not int"),
    "no content": (["one", {"kind": "fact"}], r"contents\[1\]: there is no content"),
    "neither text nor dict": (["one", 7], r"contents\[1\]: there is no content"),
    "nothing to remember": (["one", "two", " "], r"contents\[2\]: there is nothing to remember"),
    "what no memory has": (["one", {"content": "two", "colour": "red"}], r"contents\[1\]: unknown detail 'colour'"),
    "too many": (["one"] * 1001, "1,001 memories are too many"),
}


@pytest.mark.promise("J5")
@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_remembered_is_said_with_its_place_and_nothing_is_stored(what: str) -> None:
    contents, complaint = BAD[what]
    with open_memory("memory:", embedder="none") as dm:
        with pytest.raises(InvalidInput, match=complaint) as refused:
            dm.memory.remember_all(contents)
        assert refused.value.hint
        assert list(dm.memory.list(everyone=True)) == []


@pytest.mark.promise("J5", "J2")
@pytest.mark.parametrize("point", ["append.encoded", "append.begun", "append.inserted", "append.committed"])
def test_a_kill_leaves_all_of_them_or_none(tmp_path: Any, processes: ChildProcesses, point: str) -> None:
    address = str(tmp_path / "agent.db")
    for visit in (1, 2):
        child = processes.start("memory_handles:remember_many", crash=(point, visit), address=address, count=3)
        assert child.wait() == -signal.SIGKILL, child.errors()
        with open_memory(address, embedder="none") as dm:
            assert dm.verify().ok
            known = contents(dm.memory.list(subject="ada"))
            assert len(known) % 3 == 0
            assert len(known) // 3 >= visit - 1
            assert len(known) == 3 * len({text.rpartition(" ")[2] for text in known})
