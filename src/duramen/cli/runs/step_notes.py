"""What a run's events say beyond where each step stands: attempts that failed, doubt, and how it was settled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...api._sync.duramen import Duramen
from ...execution.engine.engine import ENDINGS
from ...execution.engine.history import History, State, StepRecord
from ...journal.events import Event


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened to a step between its intent and its outcome."""

    time: int
    position: int
    what: str
    text: str
    actor: str | None = None


@dataclass(slots=True)
class Trail:
    """A run, folded from its events: the library's own reading of them, and what it does not keep."""

    history: History = field(default_factory=History)
    notes: dict[str, list[Note]] = field(default_factory=lambda: defaultdict(list))
    intents: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    changed: bool = False
    cancelled_by: str | None = None
    senders: dict[int, Event] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take the next event in."""
        data = event.data if isinstance(event.data, dict) else {}
        fold = _FOLDS.get(event.type)
        if fold is not None:
            fold(self, event, data)
        self.history.add(event)

    def questions(self) -> list[StepRecord]:
        """What the run has asked and nobody has answered, unless it is over."""
        if self.history.ended is not None or self.history.cancelling is not None:
            return []
        return [one for one in self.history.steps.values() if one.step.startswith("@ask") and not one.finished]

    def answer_to(self, question: StepRecord) -> Event | None:
        """The answer that is on its way to a run's question."""
        given = [one for one in self.senders.values() if one.data.get("name") == question.step]
        return given[-1] if given else None

    def note(self, event: Event, step: str, what: str, text: str) -> None:
        self.notes[step].append(Note(event.time, event.position, what, text, event.actor))

    # -- one function for each event

    def _resumed(self, event: Event, data: dict[str, Any]) -> None:
        for record in self.history.in_doubt():
            if record.state is State.STARTED:
                self.note(event, record.step, "in doubt", "whoever executed it ended inside it")

    def _changed(self, event: Event, data: dict[str, Any]) -> None:
        self.changed = True

    def _cancelling(self, event: Event, data: dict[str, Any]) -> None:
        self.cancelled_by = event.actor

    def _signalled(self, event: Event, data: dict[str, Any]) -> None:
        if data:
            self.senders[event.position] = event

    def _started(self, event: Event, data: dict[str, Any]) -> None:
        step = data.get("step", "")
        if step not in self.history.steps:
            self.intents[step].clear()  # a fork begins anew what the original had begun
        elif self.intents[step]:
            self.note(event, step, "again", f"attempt {data.get('attempt', 1)}")
        self.intents[step].append(event)

    def _failed(self, event: Event, data: dict[str, Any]) -> None:
        if data.get("due") is not None:
            attempt = data.get("attempt", 1)
            self.note(event, data["step"], "failed", f"attempt {attempt}: {error_text(data.get('error'))}")

    def _settled(self, event: Event, data: dict[str, Any]) -> None:
        step, by, verdict = data.get("step", ""), str(data.get("by")), str(data.get("verdict"))
        told = _VERDICTS.get((by, verdict), verdict)
        if data.get("why"):
            told += f" ({data['why']})"
        who = {"check": "its check", "declaration": "its declaration", "person": event.actor or "a person"}
        self.note(event, step, "parked" if verdict == "cannot tell" else "settled", f"by {who.get(by, by)}: {told}")


_VERDICTS = {
    ("check", "happened"): "it happened",
    ("check", "did not happen"): "it did not happen",
    ("check", "cannot tell"): "it cannot tell, so a person has to",
    ("declaration", "rerun"): "run again under the same key",
    ("declaration", "cannot tell"): "a person has to tell",
    ("person", "happened"): "it is done",
    ("person", "retry"): "try again",
    ("person", "abort"): "abort",
}
_FOLDS = {
    "run.resumed": Trail._resumed,
    "run.changed": Trail._changed,
    "run.cancelling": Trail._cancelling,
    "signal.sent": Trail._signalled,
    "step.started": Trail._started,
    "step.failed": Trail._failed,
    "step.settled": Trail._settled,
}


def error_text(error: Any) -> str:
    """A journaled error in a few words."""
    return f"{error.get('type')}: {error.get('message')}" if isinstance(error, dict) else "an error"


def trail_of(dm: Duramen, run: str, session: str) -> Trail:
    """The trail of a run. Its session may hold others before and after it, never at the same time."""
    return fold(dm.session(session).events(), run)


def fold(events: Iterable[Event], run: str) -> Trail:
    """The trail of one run among the events of its session. A fork's begins where the original's does."""
    trail, begun = Trail(), False
    for event in events:
        if event.type == "run.started":
            if begun:
                break
            trail = Trail()
        begun = begun or event.key == f"run.started:{run}"
        trail.add(event)
        if begun and event.type in ENDINGS:
            break
    return trail
