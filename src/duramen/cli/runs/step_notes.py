"""Notes on the steps of a run: failed attempts, doubt, and how it was settled. `History` does not store them."""

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
class StepNote:
    """What happened to a step between its intent and its outcome."""

    time: int
    position: int
    what: str
    text: str
    actor: str | None = None


@dataclass(slots=True)
class AnnotatedHistory:
    """The history of a run, built from its events, with notes on its steps."""

    history: History = field(default_factory=History)
    notes: dict[str, list[StepNote]] = field(default_factory=lambda: defaultdict(list))
    intents: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    changed: bool = False
    cancelled_by: str | None = None
    senders: dict[int, Event] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Add the next event."""
        data = event.data if isinstance(event.data, dict) else {}
        handler = _HANDLERS.get(event.type)
        if handler is not None:
            handler(self, event, data)
        self.history.add(event)

    def questions(self) -> list[StepRecord]:
        """The questions of an open run that are not answered."""
        if self.history.ended is not None or self.history.cancelling is not None:
            return []
        return [one for one in self.history.steps.values() if one.step.startswith("@ask") and not one.finished]

    def answer_to(self, question: StepRecord) -> Event | None:
        """The answer that was sent to a question and that the run has not received yet."""
        answers = [one for one in self.senders.values() if one.data.get("name") == question.step]
        return answers[-1] if answers else None

    def add_note(self, event: Event, step: str, what: str, text: str) -> None:
        self.notes[step].append(StepNote(event.time, event.position, what, text, event.actor))

    # -- one handler for each type of event

    def _resumed(self, event: Event, data: dict[str, Any]) -> None:
        for record in self.history.in_doubt():
            if record.state is State.STARTED:
                self.add_note(event, record.step, "in doubt", "the process ended while it executed this step")

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
            self.intents[step].clear()  # a fork starts this step again
        elif self.intents[step]:
            self.add_note(event, step, "again", f"attempt {data.get('attempt', 1)}")
        self.intents[step].append(event)

    def _failed(self, event: Event, data: dict[str, Any]) -> None:
        if data.get("due") is not None:
            attempt = data.get("attempt", 1)
            self.add_note(event, data["step"], "failed", f"attempt {attempt}: {error_text(data.get('error'))}")

    def _settled(self, event: Event, data: dict[str, Any]) -> None:
        step, by, verdict = data.get("step", ""), str(data.get("by")), str(data.get("verdict"))
        text = _VERDICTS.get((by, verdict), verdict)
        if data.get("why"):
            text += f" ({data['why']})"
        who = {"check": "its check", "declaration": "its declaration", "person": event.actor or "a person"}
        self.add_note(event, step, "parked" if verdict == "cannot tell" else "settled", f"by {who.get(by, by)}: {text}")


_VERDICTS = {
    ("check", "happened"): "it happened",
    ("check", "did not happen"): "it did not happen",
    ("check", "cannot tell"): "it cannot tell, so a person has to decide",
    ("declaration", "rerun"): "run again under the same key",
    ("declaration", "cannot tell"): "a person has to decide",
    ("person", "happened"): "it is done",
    ("person", "retry"): "try again",
    ("person", "abort"): "abort",
}
_HANDLERS = {
    "run.resumed": AnnotatedHistory._resumed,
    "run.changed": AnnotatedHistory._changed,
    "run.cancelling": AnnotatedHistory._cancelling,
    "signal.sent": AnnotatedHistory._signalled,
    "step.started": AnnotatedHistory._started,
    "step.failed": AnnotatedHistory._failed,
    "step.settled": AnnotatedHistory._settled,
}


def error_text(error: Any) -> str:
    """Type and message of a journaled error."""
    return f"{error.get('type')}: {error.get('message')}" if isinstance(error, dict) else "an error"


def load_history(dm: Duramen, run: str, session: str) -> AnnotatedHistory:
    """Read a run from its session. The session may hold other runs before and after it, never at the same time."""
    return fold_events(dm.session(session).events(), run)


def fold_events(events: Iterable[Event], run: str) -> AnnotatedHistory:
    """Build the history of one run from the events of its session. A fork begins where the original does."""
    annotated, begun = AnnotatedHistory(), False
    for event in events:
        if event.type == "run.started":
            if begun:
                break
            annotated = AnnotatedHistory()
        begun = begun or event.key == f"run.started:{run}"
        annotated.add(event)
        if begun and event.type in ENDINGS:
            break
    return annotated
