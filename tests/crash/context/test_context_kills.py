"""Conversations are killed at every point of a turn and of a compaction. They end like an undisturbed one."""

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


def events_of(session: Session) -> list[tuple[str, Any]]:
    return [(event.type, event.data) for event in session.events()]


class Undisturbed(NamedTuple):
    """A conversation without a kill: its journal, last context, prompts, and the turns that compacted something."""

    events: list[tuple[str, Any]]
    context: Context
    prompts: list[str]
    compacting: list[int]


@cache
def undisturbed_conversation() -> Undisturbed:
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
        return Undisturbed(events_of(session), context, model.prompts, compacting)


def test_the_killed_conversation_covers_every_kind_of_compaction() -> None:
    undisturbed = undisturbed_conversation()
    types = Counter(kind for kind, _ in undisturbed.events)
    assert types["context.compacted"] == len(undisturbed.compacting) >= 4
    assert max(data["level"] for kind, data in undisturbed.events if kind == "context.summary") >= 1
    assert len(undisturbed.prompts) == types["context.summary"] >= 5
    assert undisturbed.context.memory


class KilledConversation:
    """A conversation that is killed and continued by other processes."""

    def __init__(self, processes: ChildProcesses, address: str, calls: Path) -> None:
        self._processes = processes
        self._address = address
        self._calls = calls
        self.seen: list[tuple[int, str]] = []
        self.kills = 0

    def resume(self, upto: int, *die: Any) -> bool:
        """Continue in another process with the first unfinished turn. Returns whether the process was killed."""
        options: dict[str, Any] = {
            "address": self._address,
            "calls": str(self._calls),
            "first": len(self.seen),
            "turns": upto,
        }
        child = self._processes.start("conversations:converse", **options, die=die or None)
        status = child.wait()
        assert status in (0, -signal.SIGKILL if die else 0), child.errors()
        self.seen += [(position, digest) for position, digest in map(json.loads, child.lines())]
        self.kills += status != 0
        return status != 0

    def check(self, newest: int = 2) -> None:
        """Check that this process builds the same contexts as the others."""
        with duramen.open(self._address, window=Window(**SMALL_WINDOW)) as dm:
            session = dm.session("s")
            for position, digest in self.seen[-newest:]:
                assert digest_of(session.context(at=position)) == digest
            head = session.head().position
            assert session.context(at=head) == session.context(at=head)
            assert session.head().position == head
            assert session.verify().ok

    def check_end(self) -> Counter[str]:
        """Check that the conversation ends like the undisturbed one. Returns the number of calls for each prompt."""
        undisturbed = undisturbed_conversation()
        with duramen.open(self._address, window=Window(**SMALL_WINDOW)) as dm:
            assert events_of(dm.session("s")) == undisturbed.events
            assert dm.session("s").context() == undisturbed.context
        asked = Counter(self._calls.read_text().splitlines())
        assert len(asked) == len(set(undisturbed.prompts))
        return asked


@pytest.mark.promise("W1", "W8", "J2")
@pytest.mark.parametrize("point", [*APPEND_POINTS, "context.summarised"])
def test_a_kill_at_every_point_of_a_compaction_changes_nothing(
    address: str, processes: ChildProcesses, tmp_path: Path, point: str
) -> None:
    conversation = KilledConversation(processes, address, tmp_path / "calls")
    for turn in undisturbed_conversation().compacting[::3]:  # the first, and one that merges earlier summaries
        # The first process stores nothing. Each later process stores one more event.
        visit = 1
        while conversation.resume(turn + 1, turn, "context", point, visit):
            conversation.check()
            visit = 1 if point == "append.committed" else 2
    assert not conversation.resume(TURNS)
    conversation.check(TURNS)
    asked = conversation.check_end()
    # An answer that was not stored has to be requested again. ("append.inserted" is visited by notes only.)
    assert max(asked.values()) == (1 if point in ("append.committed", "append.inserted") else 2)
    assert conversation.kills >= 2


@pytest.mark.promise("W1", "J2")
@pytest.mark.parametrize("point", APPEND_POINTS)
def test_a_kill_during_a_turn_changes_nothing(
    address: str, processes: ChildProcesses, tmp_path: Path, point: str
) -> None:
    conversation = KilledConversation(processes, address, tmp_path / "calls")
    for turn, visit in ((0, 1), (0, 2), (0, 5), (2, 3), (4, 4)):
        conversation.resume(turn + 1, turn, "turn", point, visit)
        conversation.check()
    assert not conversation.resume(TURNS)
    conversation.check(TURNS)
    assert max(conversation.check_end().values()) == 1
    assert conversation.kills >= (1 if point == "append.inserted" else 4)  # only some appends visit it


@pytest.mark.promise("W8")
def test_a_restart_does_not_call_the_model(address: str, processes: ChildProcesses, tmp_path: Path) -> None:
    conversation = KilledConversation(processes, address, tmp_path / "calls")
    assert not conversation.resume(TURNS)
    asked = conversation.check_end()
    model = RecordingModel()
    for _ in range(2):
        with duramen.open(address, window=Window(**SMALL_WINDOW, model=model)) as dm:
            assert dm.session("s").context() == undisturbed_conversation().context
    assert model.prompts == []
    assert set(asked.values()) == {1}


@pytest.mark.promise("W1", "W8", "J5")
def test_processes_that_compact_concurrently_agree(address: str, processes: ChildProcesses, tmp_path: Path) -> None:
    with duramen.open(address) as dm:
        for name in ("one", "two", "three"):
            drafts = [Draft("talk.message", {"role": "user", "content": f"Message {n} of {name}."}) for n in range(60)]
            dm.session(name).append_all(drafts)
    for name in ("one", "two", "three"):
        gate = Gate(tmp_path / name)
        options: dict[str, Any] = {"address": address, "gate": gate.path, "calls": str(tmp_path / "calls")}
        children = [processes.start("conversations:compact_concurrently", **options, session=name) for _ in range(4)]
        for child in children:
            child.wait_for_lines(1)
        gate.open()
        digests = {child.finish()[1] for child in children}
        with duramen.open(address, window=Window(**SMALL_WINDOW)) as dm:
            session = dm.session(name)
            assert digests == {digest_of(session.context())} == {digest_of(session.context(at=session.head().position))}
            keys = [event.key for event in session.events(types="context.summary")]
            assert len(keys) == len(set(keys)) > 0
            assert len(list(session.events(types="context.compacted"))) == 1
            assert session.verify().ok


@pytest.mark.promise("W8", "J5")
@pytest.mark.parametrize("visit", range(3))
def test_a_concurrent_compaction_by_another_handle_is_detected(tmp_path: Path, visit: int) -> None:
    path, window = tmp_path / "agent.db", Window(**SMALL_WINDOW)
    with duramen.open(path, window=window) as dm, duramen.open(path, window=window) as other:
        session = dm.session("s")
        for number in range(8):
            take_turn(session, number)
        contexts: list[Context] = []
        visits = 0

        def interfere(point: str) -> None:
            nonlocal visits
            if point in ("context.summarised", "append.encoded"):  # points at which no lock is held
                visits += 1
                if visits == visit + 1:
                    contexts.append(other.session("s").context())

        crashpoints.listen(interfere)
        try:
            context = session.context()
        finally:
            crashpoints.listen(None)
        contexts = contexts or [other.session("s").context()]
        assert contexts == [context] == [session.context(at=context.position)]
        types = Counter(event.type for event in session.events() if event.type.startswith("context."))
        assert types["context.compacted"] == 1
        assert visits > visit
