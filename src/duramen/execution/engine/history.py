"""Computes the state of a run from its events: which steps are done, failed, waiting or in doubt. No I/O.

Everything that a task can wait for is a step. The task's own steps are identified as `name#1`, `name#2`, …
(`name#3.1` on the third branch of the task) or `name:key`. Sleeps, questions, signals, children and patches have
names that begin with @. All of them use the same events:

    step.started    the intent; `due` if it waits for a time, `attempt` from the second attempt on
    step.done       the outcome
    step.failed     the outcome; `due` if it will be retried, `limited` if this does not count as an attempt
    step.settled    the verdict on a step in doubt, from its check, a person or its declaration
    step.skipped    the run was stopped between the intent and the call
    step.progress   progress that a long step reported
    step.output     output that a step streamed
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...journal.events import Event
from ..steps.branches import branch_of


class State(enum.StrEnum):
    """The state of a step."""

    STARTED = "started"
    """It may have happened."""
    RETRYING = "retrying"
    """The last attempt failed and there will be another."""
    CLEARED = "cleared"
    """It was in doubt and may now be run again."""
    PARKED = "parked"
    """It is in doubt and a person has to decide."""
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class StepRecord:
    """One journaled step of a run."""

    step: str
    state: State
    position: int
    """The position of its newest intent."""
    began: int
    ended: int | None = None
    finished_at: int | None = None
    attempt: int = 1
    """The number of the last attempt; while it waits for a retry, of the next one."""
    due: int | None = None
    value: Any = None
    error: dict[str, Any] | None = None
    details: dict[str, Any] = field(default_factory=dict)
    progress: Any = None
    outputs: int = 0
    verdict: str | None = None

    @property
    def finished(self) -> bool:
        return self.state in (State.DONE, State.FAILED)


@dataclass(slots=True)
class Signal:
    """A signal that was sent to the run from outside."""

    position: int
    name: str
    payload: Any
    taken: bool = False


class History:
    """The state of a run, computed from its events. `overlapped` are the branches whose steps ran at the same time:
    the order of their steps has no meaning."""

    def __init__(self) -> None:
        self.steps: dict[str, StepRecord] = {}
        self.signals: dict[int, Signal] = {}
        self._waiting: dict[str, deque[Signal]] = {}
        self.root = ""
        self.subject: str | None = None
        self.input: dict[str, Any] = {}
        self.began = 0
        self.ended: Event | None = None
        self.cancelling: str | None = None
        self.failing: dict[str, Any] | None = None
        self.aborted: str | None = None
        self.executions = 0
        self.overlapped: set[str | None] = set()
        self.position = 0
        self.erased = False
        self._open: Counter[str | None] = Counter()

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """The history of these events."""
        history = cls()
        for event in events:
            history.add(event)
        return history

    def add(self, event: Event) -> None:
        """Apply the next event."""
        self.position = event.position
        if event.erased:
            self.erased = self.erased or event.type.startswith(("run.", "step."))
            return
        fold = _FOLDS.get(event.type)
        if fold is not None and isinstance(event.data, dict):
            with suppress(KeyError, TypeError, AttributeError):  # an application may use these type names too
                fold(self, event, event.data)

    def in_doubt(self) -> list[StepRecord]:
        """Steps with an intent and no outcome. Only meaningful while no process executes the run."""
        doubtful = (State.STARTED, State.PARKED)
        return [one for one in self.steps.values() if one.state in doubtful and not one.step.startswith("@")]

    def next_signal(self, name: str) -> Signal | None:
        """The oldest signal with that name that no step has received yet."""
        waiting = self._waiting.get(name, deque())
        while waiting and waiting[0].taken:
            waiting.popleft()
        return waiting[0] if waiting else None

    def open_asks(self) -> list[StepRecord]:
        """The questions that wait for an answer and for which none was sent."""
        answered = {one.name for one in self.signals.values()}
        return [
            one
            for one in self.steps.values()
            if one.step.startswith("@ask") and not one.finished and one.step not in answered
        ]

    # -- one function per event type

    def _run_started(self, event: Event, data: dict[str, Any]) -> None:
        self.input, self.began, self.root, self.subject = data, event.time, event.hash.hex(), event.subject

    def _run_forked(self, event: Event, data: dict[str, Any]) -> None:
        # Unfinished steps belong to the original run. The fork starts them again with its own idempotency keys.
        self.steps = {name: one for name, one in self.steps.items() if one.finished}
        self.root, self.ended, self.cancelling, self.failing = event.hash.hex(), None, None, None
        self.executions = 0

    def _run_resumed(self, event: Event, data: dict[str, Any]) -> None:
        self.executions += 1
        self._open.clear()

    def _run_cancelling(self, event: Event, data: dict[str, Any]) -> None:
        self.cancelling = data.get("reason") or ""

    def _run_failing(self, event: Event, data: dict[str, Any]) -> None:
        self.failing = data["error"]

    def _run_ended(self, event: Event, data: dict[str, Any]) -> None:
        self.ended = event

    def _signal_sent(self, event: Event, data: dict[str, Any]) -> None:
        signal = self.signals[event.position] = Signal(event.position, data["name"], data.get("payload"))
        self._waiting.setdefault(signal.name, deque()).append(signal)

    def _step_started(self, event: Event, data: dict[str, Any]) -> None:
        name = data["step"]
        known = self.steps.get(name)
        if known is None:
            known = self.steps[name] = StepRecord(name, State.STARTED, event.position, event.time)
            known.details = {key: value for key, value in data.items() if key not in ("step", "due", "attempt")}
            branch = branch_of(name)
            self._open[branch] += 1
            if self._open[branch] > 1:
                self.overlapped.add(branch)
        known.state, known.position = State.STARTED, event.position
        known.attempt, known.due = data.get("attempt", known.attempt), data.get("due")

    def _finish(self, event: Event, name: str, state: State) -> StepRecord:
        known = self.steps.get(name)
        if known is None:
            known = self.steps[name] = StepRecord(name, state, event.position, event.time)
        else:
            self._open[branch_of(name)] -= not known.finished
        known.state, known.ended, known.finished_at = state, event.time, event.position
        return known

    def _step_done(self, event: Event, data: dict[str, Any]) -> None:
        self._finish(event, data["step"], State.DONE).value = data.get("value")
        taken = self.signals.get(data.get("signal", 0))
        if taken is not None:
            taken.taken = True

    def _step_failed(self, event: Event, data: dict[str, Any]) -> None:
        if data.get("due") is None:
            self._finish(event, data["step"], State.FAILED).error = data["error"]
            return
        known = self.steps.get(data["step"])
        if known is not None:
            known.state, known.due, known.error = State.RETRYING, data["due"], data["error"]
            known.attempt = data.get("attempt", 1) + (not data.get("limited"))

    def _step_settled(self, event: Event, data: dict[str, Any]) -> None:
        known = self.steps.get(data["step"])
        if known is None or known.finished:
            return
        known.verdict = data["verdict"]
        if data["verdict"] == "happened":
            self._finish(event, data["step"], State.DONE).value = data.get("value")
        elif data["verdict"] == "abort":
            self.aborted = data["step"]
        elif data["verdict"] == "cannot tell":
            known.state = State.PARKED
        else:
            known.state = State.CLEARED

    def _step_skipped(self, event: Event, data: dict[str, Any]) -> None:
        if self.steps.pop(data["step"], None) is not None:
            self._open[branch_of(data["step"])] -= 1

    def _step_progress(self, event: Event, data: dict[str, Any]) -> None:
        if data["step"] in self.steps:
            self.steps[data["step"]].progress = data.get("value")

    def _step_output(self, event: Event, data: dict[str, Any]) -> None:
        if data["step"] in self.steps:
            self.steps[data["step"]].outputs = data["index"] + 1


_FOLDS = {
    "run.started": History._run_started,
    "run.forked": History._run_forked,
    "run.resumed": History._run_resumed,
    "run.cancelling": History._run_cancelling,
    "run.failing": History._run_failing,
    "run.finished": History._run_ended,
    "run.failed": History._run_ended,
    "run.cancelled": History._run_ended,
    "signal.sent": History._signal_sent,
    "step.started": History._step_started,
    "step.done": History._step_done,
    "step.failed": History._step_failed,
    "step.settled": History._step_settled,
    "step.skipped": History._step_skipped,
    "step.progress": History._step_progress,
    "step.output": History._step_output,
}
