"""Conversations that are killed at every point of a turn and of a compaction: what goes on is what would have been."""

from __future__ import annotations

import json
import signal
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from programs.child_processes import ChildProcesses, Gate
from programs.conversations import SMALL_WINDOW, RecordingModel, digest_of, take_turn

import duramen
from duramen import Context, Draft, Session, Window
from duramen import crash_points as crashpoints

TURNS = 9
APPEND_POINTS = ["append.encoded", "append.begun", "append.inserted", "append.committed"]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "agent.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))


def journaled(session: Session) -> list[tuple[str, Any]]:
    return [(event.type, event.data) for event in session.events()]


class Whole(NamedTuple):
    """What a run without a kill leaves: its journal, its last context, what the model was asked; and the turns after
    which something was compacted."""

    events: list[tuple[str, Any]]
    context: Context
    prompts: list[str]
    compacting: list[int]


@cache
def uninterrupted() -> Whole:
    model = RecordingModel()
    compacting = []
    with duramen.open("memory:", window=Window(**SMALL_WINDOW, model=model)) as dm:
        session = dm.session("s")
        for number in range(TURNS):
            take_turn(session, number)
            before = session.head()
            context = session.context()
            if session.head() != before:
                compacting.append(number)
        return Whole(journaled(session), context, model.prompts, compacting)


def test_the_run_that_is_killed_has_all_that_can_be_killed() -> None:
    whole = uninterrupted()
    types = Counter(kind for kind, _ in whole.events)
    assert types["context.compacted"] == len(whole.compacting) >= 4
    assert max(data["level"] for kind, data in whole.events if kind == "context.summary") >= 1
    assert len(whole.prompts) == types["context.summary"] >= 5
    assert whole.context.memory


class Story:
    """A conversation that is killed and taken up again."""

    def __init__(self, processes: ChildProcesses, address: str, calls: Path) -> None:
        self._processes = processes
        self._address = address
        self._calls = calls
        self.seen: list[tuple[int, str]] = []
        self.kills = 0

    def go_on(self, upto: int, *die: Any) -> bool:
        """Another process takes the turns that nobody finished; whether it was killed."""
        given: dict[str, Any] = {
            "address": self._address,
            "calls": str(self._calls),
            "first": len(self.seen),
            "turns": upto,
        }
        child = self._processes.start("conversations:converse", **given, die=die or None)
        status = child.wait()
        assert status in (0, -signal.SIGKILL if die else 0), child.errors()
        self.seen += [(position, digest) for position, digest in map(json.loads, child.lines())]
        self.kills += status != 0
        return status != 0

    def check(self, newest: int = 2) -> None:
        """The contexts that processes saw are built again by this one."""
        with duramen.open(self._address, window=Window(**SMALL_WINDOW)) as dm:
            session = dm.session("s")
            for position, digest in self.seen[-newest:]:
                assert digest_of(session.context(at=position)) == digest
            head = session.head().position
            assert session.context(at=head) == session.context(at=head)
            assert session.head().position == head
            assert session.verify().ok

    def end(self) -> Counter[str]:
        """It ends as the one that nobody killed; returns how often the model was asked what."""
        whole = uninterrupted()
        with duramen.open(self._address, window=Window(**SMALL_WINDOW)) as dm:
            assert journaled(dm.session("s")) == whole.events
            assert dm.session("s").context() == whole.context
        asked = Counter(self._calls.read_text().splitlines())
        assert len(asked) == len(set(whole.prompts))
        return asked


@pytest.mark.promise("W1", "W8", "J2")
@pytest.mark.parametrize("point", [*APPEND_POINTS, "context.summarised"])
def test_a_kill_at_every_point_of_every_compaction(
    address: str, processes: ChildProcesses, tmp_path: Path, point: str
) -> None:
    story = Story(processes, address, tmp_path / "calls")
    for turn in uninterrupted().compacting[::3]:  # the first, and one that merges what the others wrote
        # Nothing is stored before the first visit but in the first process; from then on each stores one event more.
        visit = 1
        while story.go_on(turn + 1, turn, "context", point, visit):
            story.check()
            visit = 1 if point == "append.committed" else 2
    assert not story.go_on(TURNS)
    story.check(TURNS)
    asked = story.end()
    # What was answered but not stored has to be asked again; what is in the journal, never. ("inserted" is for notes.)
    assert max(asked.values()) == (1 if point in ("append.committed", "append.inserted") else 2)
    assert story.kills >= 2


@pytest.mark.promise("W1", "J2")
@pytest.mark.parametrize("point", APPEND_POINTS)
def test_a_kill_in_the_middle_of_a_turn(address: str, processes: ChildProcesses, tmp_path: Path, point: str) -> None:
    story = Story(processes, address, tmp_path / "calls")
    for turn, visit in ((0, 1), (0, 2), (0, 5), (2, 3), (4, 4)):
        story.go_on(turn + 1, turn, "turn", point, visit)
        story.check()
    assert not story.go_on(TURNS)
    story.check(TURNS)
    assert max(story.end().values()) == 1
    assert story.kills >= (1 if point == "append.inserted" else 4)  # which is passed by some appends only


@pytest.mark.promise("W8")
def test_a_restart_asks_no_model(address: str, processes: ChildProcesses, tmp_path: Path) -> None:
    story = Story(processes, address, tmp_path / "calls")
    assert not story.go_on(TURNS)
    asked = story.end()
    model = RecordingModel()
    for _ in range(2):
        with duramen.open(address, window=Window(**SMALL_WINDOW, model=model)) as dm:
            assert dm.session("s").context() == uninterrupted().context
    assert model.prompts == []
    assert set(asked.values()) == {1}


@pytest.mark.promise("W1", "W8", "J5")
def test_processes_that_compact_at_the_same_moment_agree(
    address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    with duramen.open(address) as dm:
        for name in ("one", "two", "three"):
            drafts = [Draft("talk.message", {"role": "user", "content": f"Message {n} of {name}."}) for n in range(60)]
            dm.session(name).append_all(drafts)
    for name in ("one", "two", "three"):
        gate = Gate(tmp_path / name)
        given: dict[str, Any] = {"address": address, "gate": gate.path, "calls": str(tmp_path / "calls")}
        children = [processes.start("conversations:compact_concurrently", **given, session=name) for _ in range(4)]
        for child in children:
            child.wait_for_lines(1)
        gate.open()
        found = {child.finish()[1] for child in children}
        with duramen.open(address, window=Window(**SMALL_WINDOW)) as dm:
            session = dm.session(name)
            assert found == {digest_of(session.context())} == {digest_of(session.context(at=session.head().position))}
            keys = [event.key for event in session.events(types="context.summary")]
            assert len(keys) == len(set(keys)) > 0
            assert len(list(session.events(types="context.compacted"))) == 1
            assert session.verify().ok


@pytest.mark.promise("W8", "J5")
@pytest.mark.parametrize("visit", range(3))
def test_a_neighbour_that_compacts_in_between_is_noticed(tmp_path: Path, visit: int) -> None:
    path, window = tmp_path / "agent.db", Window(**SMALL_WINDOW)
    with duramen.open(path, window=window) as dm, duramen.open(path, window=window) as neighbour:
        session = dm.session("s")
        for number in range(8):
            take_turn(session, number)
        found: list[Context] = []
        passed = 0

        def interfere(point: str) -> None:
            nonlocal passed
            if point in ("context.summarised", "append.encoded"):  # places at which no lock is held
                passed += 1
                if passed == visit + 1:
                    found.append(neighbour.session("s").context())

        crashpoints.listen(interfere)
        try:
            context = session.context()
        finally:
            crashpoints.listen(None)
        found = found or [neighbour.session("s").context()]
        assert found == [context] == [session.context(at=context.position)]
        types = Counter(event.type for event in session.events() if event.type.startswith("context."))
        assert types["context.compacted"] == 1
        assert passed > visit
