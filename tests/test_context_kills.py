"""Conversations that are killed at every point of a turn and of a compaction: what goes on is what would have been."""

from __future__ import annotations

import json
import signal
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from programs.children import Child, Gate, Nursery
from programs.talking import SMALL, Recorder, digest_of, take_turn

import holdfast
from holdfast import Context, Draft, Session, Window, crashpoints

TURNS = 7
APPEND_POINTS = ["append.encoded", "append.begun", "append.inserted", "append.committed"]
SUMMARISED = "context.summarised"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "agent.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))


def journaled(session: Session) -> list[tuple[str, Any]]:
    return [(event.type, event.data) for event in session.events()]


@cache
def uninterrupted() -> tuple[list[tuple[str, Any]], Context, list[str], dict[str, list[str]]]:
    """What a run without a kill leaves: its journal, its last context, what the model was asked; and for each crash
    point, what the process was doing each time that it passed."""
    model = Recorder()
    passed: dict[str, list[str]] = {point: [] for point in [*APPEND_POINTS, SUMMARISED]}
    doing = "turn"
    with holdfast.open("memory:", window=Window(**SMALL, model=model)) as hf:
        session = hf.session("s")
        crashpoints.listen(lambda point: passed[point].append(doing) if point in passed else None)
        try:
            for number in range(TURNS):
                doing = "turn"
                take_turn(session, number)
                doing = "compaction"
                context = session.context()
        finally:
            crashpoints.listen(None)
        return journaled(session), context, model.prompts, passed


def visits(point: str, doing: str) -> list[int]:
    """When a point is passed while the process does this, counted from one."""
    return [number for number, what in enumerate(uninterrupted()[3][point], start=1) if what == doing]


def test_the_run_that_is_killed_has_all_that_can_be_killed() -> None:
    events, context, prompts, _ = uninterrupted()
    types = Counter(kind for kind, _ in events)
    assert types["context.compacted"] >= 3
    assert max(data["level"] for kind, data in events if kind == "context.summary") >= 1
    assert len(visits(SUMMARISED, "compaction")) == len(prompts) == types["context.summary"] >= 5
    assert context.memory


class Story:
    """A conversation that is killed and taken up again."""

    def __init__(self, nursery: Nursery, address: str, calls: Path) -> None:
        self._nursery = nursery
        self._address = address
        self._calls = calls
        self.seen: list[tuple[int, str]] = []

    def go_on(self, crash: tuple[str, int] | None = None) -> Child:
        """Another process takes the turns that nobody finished; it says each context that it saw."""
        given = {"address": self._address, "calls": str(self._calls), "first": len(self.seen), "turns": TURNS}
        child = self._nursery.start("talking:converse", crash=crash, **given)
        status = child.wait()
        assert status == (0 if crash is None else -signal.SIGKILL), child.complaint()
        self.seen += [(position, digest) for position, digest in map(json.loads, child.lines())]
        return child

    def check(self) -> None:
        """Every context that a process saw is built again by this one, twice."""
        for _ in range(2):
            with holdfast.open(self._address, window=Window(**SMALL)) as hf:
                session = hf.session("s")
                for position, digest in self.seen:
                    assert digest_of(session.context(at=position)) == digest
                head = session.head().position
                assert session.context(at=head) == session.context(at=head)
                assert session.head().position == head
                assert session.verify().ok

    def end(self) -> list[str]:
        """It ends as the one that nobody killed; returns what the model was asked in all."""
        events, context, _, _ = uninterrupted()
        with holdfast.open(self._address, window=Window(**SMALL)) as hf:
            assert journaled(hf.session("s")) == events
            assert hf.session("s").context() == context
        return self._calls.read_text().splitlines()


@pytest.mark.promise("W1", "W8", "J2")
@pytest.mark.parametrize("point", APPEND_POINTS)
def test_a_kill_in_any_append_of_a_turn_or_a_compaction(
    address: str, nursery: Nursery, tmp_path: Path, point: str
) -> None:
    story = Story(nursery, address, tmp_path / "calls")
    compactions = visits(point, "compaction")
    wanted = [visits(point, "turn")[1], compactions[0], compactions[1], compactions[-1]]
    passed = 0
    for visit in wanted:  # each in a process of its own, whose count begins anew
        if visit > passed:
            story.go_on(crash=(point, visit - passed))
            story.check()
        with holdfast.open(address) as hf:
            passed = _appends(hf.session("s"), point)
    story.go_on()
    story.check()
    asked = story.end()
    repeated = [times for times in Counter(asked).values() if times > 1]
    # What was answered but not committed has to be asked again; nothing that is in the journal is.
    before_commit = point != "append.committed"
    assert len(repeated) <= (2 if before_commit else 0)
    assert max(Counter(asked).values()) <= 2


def _appends(session: Session, point: str) -> int:
    return session.head().position


@pytest.mark.promise("W1", "W8")
def test_a_kill_after_each_answer_of_the_model(address: str, nursery: Nursery, tmp_path: Path) -> None:
    story = Story(nursery, address, tmp_path / "calls")
    asked = len(uninterrupted()[2])
    for _ in range(asked):  # the first answer that a process gets is its last: one more summary each time
        story.go_on(crash=(SUMMARISED, 2))
        story.check()
        if _summaries(address) >= asked - 1:
            break
    story.go_on()
    story.check()
    told = Counter(story.end())
    assert len(told) == asked
    assert max(told.values()) == 2


def _summaries(address: str) -> int:
    with holdfast.open(address) as hf:
        return sum(1 for _ in hf.session("s").events(types="context.summary"))


@pytest.mark.promise("W8")
def test_a_restart_asks_no_model(address: str, nursery: Nursery, tmp_path: Path) -> None:
    story = Story(nursery, address, tmp_path / "calls")
    story.go_on()
    asked = story.end()
    model = Recorder()
    for _ in range(2):
        with holdfast.open(address, window=Window(**SMALL, model=model)) as hf:
            assert hf.session("s").context() == uninterrupted()[1]
    assert model.prompts == []
    assert len(asked) == len(set(asked)) == len(uninterrupted()[2])


@pytest.mark.promise("W1", "W8", "J5")
def test_processes_that_compact_at_the_same_moment_agree(address: str, nursery: Nursery, tmp_path: Path) -> None:
    with holdfast.open(address) as hf:
        for name in ("one", "two", "three"):
            drafts = [Draft("talk.message", {"role": "user", "content": f"Message {n} of {name}."}) for n in range(60)]
            hf.session(name).append_all(drafts)
    for name in ("one", "two", "three"):
        gate = Gate(tmp_path / name)
        given = {"address": address, "gate": gate.path, "session": name, "calls": str(tmp_path / "calls")}
        children = [nursery.start("talking:compact_together", **given) for _ in range(4)]
        for child in children:
            child.hear(1)
        gate.open()
        found = {child.finish()[1] for child in children}
        with holdfast.open(address, window=Window(**SMALL)) as hf:
            session = hf.session(name)
            assert found == {digest_of(session.context())} == {digest_of(session.context(at=session.head().position))}
            keys = [event.key for event in session.events(types="context.summary")]
            assert len(keys) == len(set(keys)) > 0
            assert len(list(session.events(types="context.compacted"))) == 1
            assert session.verify().ok
