"""Checkpointed session states: storage cost, conflicts, kills, damaged rows, erasure and following."""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from programs.child_processes import ChildProcesses
from programs.session_writers import damage_bookmark, damage_last_chunk, state_of
from programs.side_effects import Open

import duramen
from duramen import Checkpoint, Draft, Duramen
from duramen.errors import CheckpointConflict, CheckpointDamaged, LeaseLost
from duramen.ports import BookmarkChanges
from duramen.testing.clock import FakeClock

KEY = bytes(range(32))


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of each persistent store."""
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


def values_of(checkpoint: Checkpoint | None) -> Any:
    assert checkpoint is not None
    return checkpoint.values


def ids(checkpoints: Any) -> list[str]:
    return [one.id for one in checkpoints]


# -- storage cost


class AppendSizes:
    """Measures the bytes that each append writes."""

    def __init__(self, dm: Duramen) -> None:
        self._store = dm._core._journal.store
        self._append = self._store.append
        self._store.append = self._measured_append  # type: ignore[method-assign]
        self.sizes: list[int] = []

    async def _measured_append(self, request: Any) -> Any:
        done = await self._append(request)
        size = sum(len(record.payload or b"") for record in done.records)
        for change in request.changes:
            if isinstance(change, BookmarkChanges):
                size += sum(len(chunk.body) for chunk in change.chunks)
                size += sum(len(one.manifest or b"") for one in change.bookmarks)
        self.sizes.append(size)
        return done

    def growth(self) -> float:
        """The size of the last quarter of the appends divided by the size of the second quarter."""
        quarter = len(self.sizes) // 4
        return sum(self.sizes[-quarter:]) / sum(self.sizes[quarter : 2 * quarter])


def noise(number: int, size: int = 250) -> str:
    """Text that compresses badly, the same for each number."""
    return random.Random(number).randbytes(size).hex()


@pytest.mark.promise("C4")
@pytest.mark.parametrize("shape", ["grows", "is trimmed", "grows in two places", "moves", "grows among many"])
def test_the_cost_of_a_turn_does_not_depend_on_the_length_of_the_list(dm: Duramen, shape: str) -> None:
    appended, session = AppendSizes(dm), dm.session("s")
    messages: list[Any] = []
    for turn in range(120):
        messages.append({"role": "user", "content": noise(turn)})
        state: dict[str, Any] = {"messages": messages, "config": {"prompt": noise(-1, 2_000)}}
        if shape == "is trimmed":
            del messages[:-20]
        elif shape == "grows in two places":
            state["copy"] = {"deep": list(messages)}
        elif shape == "moves":
            state = {f"messages {turn}": messages, "config": {f"prompt {turn}": noise(-1, 2_000)}}
        elif shape == "grows among many":
            state |= {f"name {number}": number for number in range(60)}
        session.checkpoint(state, step=turn)
    assert appended.growth() < 1.3
    assert max(appended.sizes[1:]) < 1_500, "one new message of 500 characters each time"
    assert values_of(session.state()) == state


@pytest.mark.promise("C4")
def test_an_unchanged_state_costs_a_reference(dm: Duramen) -> None:
    appended, session = AppendSizes(dm), dm.session("s")
    state = {
        "messages": [noise(turn) for turn in range(200)],
        "prompt": noise(-1, 5_000),
        "deep": {"er": [noise(-2)] * 9},
    }
    for _ in range(5):
        session.checkpoint(state, config={"prompt": noise(-1, 5_000)})
    assert appended.sizes[0] > 50_000
    assert max(appended.sizes[1:]) < 500


@pytest.mark.promise("C4")
def test_changing_one_of_thousands_of_keys_costs_little(dm: Duramen) -> None:
    appended, session = AppendSizes(dm), dm.session("s")
    state: dict[str, Any] = {f"key {number}": noise(number, 10) for number in range(5_000)}
    for turn in range(12):
        state[f"key {turn * 400}"] = noise(-turn, 10)
        session.checkpoint(state)
    assert appended.sizes[0] > 70_000
    assert max(appended.sizes[1:]) < appended.sizes[0] / 50
    assert values_of(session.state()) == state


@pytest.mark.promise("C4")
def test_the_cost_of_a_growing_mapping_is_its_new_entries(dm: Duramen) -> None:
    appended, session = AppendSizes(dm), dm.session("s")
    state: dict[str, Any] = {"messages": {}}
    for turn in range(150):
        state["messages"][f"message {noise(turn, 6)}"] = {"role": "user", "content": noise(turn)}
        session.checkpoint(state)
    assert appended.growth() < 1.3
    assert values_of(session.state()) == state


@pytest.mark.promise("C5")
def test_opening_a_long_session_is_as_fast_as_a_short_one(address: str, everything: bool) -> None:
    sizes = {"short": 200, "long": 20_000 if everything else 5_000}
    with duramen.open(address) as dm:
        for name, size in sizes.items():
            session = dm.session(name)
            session.progress.begin("Get there", next_action="walk")
            for turn in range(size // 100):
                session.append_all([Draft("note", {"n": turn, "text": "x" * 50})] * 99)
                session.checkpoint({"turns": list(range(max(0, turn - 10), turn + 1))})
            session.say("user", "Are we there yet?")
    took: dict[str, list[float]] = {name: [] for name in sizes}
    for _ in range(9):
        for name, known in took.items():
            started = time.perf_counter()
            with duramen.open(address) as dm:
                session = dm.session(name)
                assert values_of(session.state())["turns"]
                assert session.progress.next_action == "walk"
                assert session.context().messages
                session.checkpoint({"turns": ["again"]})
            known.append(time.perf_counter() - started)
    assert median(took["long"]) < 2 * median(took["short"])


# -- conflicts, kills and damage


def test_a_checkpoint_after_a_stale_one_conflicts(open_one: Open) -> None:
    here, there = open_one().session("s"), open_one().session("s")
    first = here.checkpoint({"n": 1}, after=None)
    second = there.checkpoint({"n": 2}, after=first.id)
    for stale in (None, first.id, "unknown"):
        with pytest.raises(CheckpointConflict) as caught:
            here.checkpoint({"n": 3}, after=stale)
        assert (caught.value.expected, caught.value.found) == (stale, second.id)
    assert ids(here.checkpoints()) == [second.id, first.id]
    fork = open_one().fork("s", "fork")
    fork.checkpoint({"n": 4}, after=second.id)
    with pytest.raises(CheckpointConflict):
        fork.checkpoint({"n": 5}, after=second.id)
    here.checkpoint({"n": 6}, after=second.id)
    assert values_of(here.state()) == {"n": 6}


def test_conditional_checkpoints_of_several_threads_lose_no_item(open_one: Open) -> None:
    handles = [open_one() for _ in range(3)]
    handles[0].session("s").checkpoint([])

    def count(dm: Duramen, who: int) -> None:
        for number in range(6):
            while True:
                newest = dm.session("s").state()
                assert newest is not None
                try:
                    dm.session("s").checkpoint([*newest.values, (who, number)], after=newest.id)
                    break
                except CheckpointConflict:
                    continue

    workers = [threading.Thread(target=count, args=(dm, who)) for who, dm in enumerate(handles)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    counted = values_of(open_one().session("s").state())
    assert sorted(counted) == [(who, number) for who in range(3) for number in range(6)]


def test_a_checkpoint_with_a_lost_lease_is_rejected(open_one: Open, clock: FakeClock) -> None:
    session = open_one().session("s")
    lease = session.lease("one", seconds=10)
    assert lease is not None
    session.checkpoint({"n": 1}, fence=lease.fence)
    clock.advance(60)
    assert open_one().session("s").lease("two") is not None
    with pytest.raises(LeaseLost):
        session.checkpoint({"n": 2}, fence=lease.fence)
    assert values_of(session.state()) == {"n": 1}


POINTS = ["checkpoint.encoded", "append.encoded", "append.begun", "append.inserted", "append.committed"]


@pytest.mark.promise("C8", "J2")
def test_a_kill_leaves_the_old_or_the_new_state(address: str, processes: ChildProcesses) -> None:
    first = 0
    for point in POINTS:
        for visit in (1, 4):
            child = processes.start(
                "session_writers:checkpoint_states", address=address, first=first, count=9, crash=(point, visit)
            )
            assert child.wait() == -signal.SIGKILL, child.errors()
            printed = len(child.lines())
            assert printed == visit - 1
            first += printed + (point == "append.committed")
            with duramen.open(address) as dm:
                loaded = dm.session("s").state()
                if first == 0:
                    assert loaded is None
                    continue
                assert loaded is not None
                assert (loaded.step, loaded.values, loaded.skipped) == (first - 1, state_of(first - 1), ())
                assert (loaded.next, loaded.config) == ([first], {"n": first - 1})
                assert [one.step for one in dm.session("s").checkpoints()] == list(reversed(range(first)))
                assert dm.verify().ok


@pytest.mark.promise("J8")
@pytest.mark.parametrize("what", ["row", "chunk"])
def test_a_damaged_state_is_skipped_and_reported(open_one: Open, any_address: str, what: str) -> None:
    dm = open_one()
    saved = [dm.session("s").checkpoint({"n": [number], "text": noise(number)}) for number in range(4)]
    if what == "row":
        damage_bookmark(dm, any_address, "state")
    else:
        damage_last_chunk(dm, any_address)
    session = open_one().session("s")
    loaded = session.state()
    assert loaded is not None
    assert (loaded.values["n"], [damage.id for damage in loaded.skipped]) == ([2], [saved[3].id])
    assert isinstance(loaded.skipped[0], CheckpointDamaged)
    with pytest.raises(CheckpointDamaged):
        session.state(id=saved[3].id)
    assert values_of(session.state(at=saved[1].position))["n"] == [1]
    assert values_of(open_one().fork("s", "fork", at=saved[2].position).state())["n"] == [2]
    assert any_address == "memory:" or not open_one().verify().ok
    session.checkpoint({"n": [4]}, after=loaded.id)
    assert values_of(open_one().session("s").state()) == {"n": [4]}, "saving continues from the readable state"


def test_erasing_a_subject_removes_its_states_from_an_encrypted_store(any_address: str) -> None:
    with duramen.open(any_address, key=KEY) as dm:
        session = dm.session("s")
        session.checkpoint({"about": "nobody"})
        session.checkpoint({"about": "Ada Lovelace " * 50, "list": ["Ada"]}, subject="ada", config={"who": "Ada"})
        assert values_of(session.state())["list"] == ["Ada"]
        report = dm.erase("ada")
        assert report.checkpoints == 1
        loaded = session.state()
        assert (values_of(loaded), ids(session.checkpoints())) == ({"about": "nobody"}, [loaded and loaded.id])
        session.checkpoint({"about": "nobody", "n": 2})
        assert values_of(session.state())["n"] == 2
        assert dm.verify().ok


@pytest.mark.promise("J15")
def test_a_reconnected_follower_receives_all_missed_events(open_one: Open) -> None:
    talk, client = open_one().session("old"), open_one().session("old")
    for number in range(3):
        talk.say("user", f"turn {number}")
    received = []
    for event in client.follow(timeout=0.2):
        received.append(event)
        if len(received) == 2:
            break  # the connection is cut
    for number in range(3, 40):
        talk.say("assistant", f"turn {number}")
        if number % 10 == 0:
            talk.checkpoint({"turn": number})
            talk.progress.begin("g", next_action="n")
    reconnected = open_one().session("old")
    received += list(reconnected.follow(after=received[-1].position, timeout=0.2))
    assert [event.position for event in received] == list(range(1, talk.head().position + 1)), (
        "every event once, in order"
    )
    turns = [event.data["content"] for event in received if event.type == "talk.message"]
    assert turns == [f"turn {number}" for number in range(40)]
    assert reconnected.context().json() == talk.context().json()
