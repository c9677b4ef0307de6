"""`duramen run show`: one run, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any

from ...api._sync.duramen import Duramen
from ...execution.engine.history import State, StepRecord
from ...execution.engine.run_info import RunInfo, RunStatus
from ..durations import between, span, to_second
from ..json_format import iso_time, json_text, plain
from ..screen import Cell, Column, Screen, Sheet, cell, expect_json, print_json
from ..terminal_text import visible
from .list_runs import STYLES, run_fields, waits_for
from .step_notes import Note, Trail, error_text, trail_of

_COLUMNS = (
    Column("#", least=4, most=12, right=True),
    Column("step", least=12, most=32, style="cyan"),
    Column("state", least=8, most=10),
    Column("tries", least=5, right=True),
    Column("intent", least=12, most=12),
    Column("took", least=8, right=True),
    Column("outcome", least=16, rest=True),
)
_NOTE = "      "
_STEP_STYLES = {"done": "green", "failed": "red", "in doubt": "bold red", "waiting": "yellow", "retrying": "yellow"}
_NOTE_STYLES = {"in doubt": "bold red", "parked": "yellow", "settled": "green", "failed": "red"}


def show_run(dm: Duramen, run: str, as_json: bool) -> None:
    """Print a run: how it stands, then each of its steps."""
    info = dm.run_info(run)
    trail = trail_of(dm, run, info.session)
    if as_json:
        expect_json()
        print_json(_fields(info, trail))
        return
    screen = Screen()
    screen.say((visible(info.id), "bold cyan"), "  ", (info.status.value, STYLES.get(info.status, "")))
    for name, told in _facts(info, trail):
        screen.say(f"  {name:<12}", visible(told))
    if trail.history.steps:
        screen.print()
        _print_steps(screen, info, trail)


def _facts(info: RunInfo, trail: Trail) -> Iterator[tuple[str, str]]:
    yield "task", info.task if info.version is None else f"{info.task}, version {info.version}"
    yield from _input(info)
    if info.session != info.id:
        yield "session", info.session
    for name, value in (("parent", info.parent), ("queue", info.queue), ("queue key", info.queue_key)):
        if value is not None:
            yield name, value
    yield from _times(info, trail)
    if info.owner is not None:
        yield "executed by", info.owner
    if info.waiting is not None:
        yield "waits for", waits_for(info) or ""
    yield from _questions(info, trail)
    for one in info.in_doubt:
        yield "in doubt", f"{one}: it may have happened"
    if info.in_doubt and info.status is RunStatus.WAITING:
        yield "settle it", f"duramen run settle {quote(info.id)} done|retry|abort"
    for signal in trail.history.signals.values():
        if not signal.taken and not signal.name.startswith("@"):
            yield "signal", f"{signal.name} has come and was not received yet: {_json(signal.payload)}"
    if trail.history.cancelling is not None:
        reason = f": {trail.history.cancelling}" if trail.history.cancelling else ""
        yield "cancelled" if info.ended is not None else "cancelling", f"by {trail.cancelled_by or 'somebody'}{reason}"
    if trail.changed:
        yield "note", "the task's code was changed since the run began"
    yield from _outcome(trail)


def _input(info: RunInfo) -> Iterator[tuple[str, str]]:
    if not info.input:
        yield "input", "(erased)"
        return
    given = [_json(value) for value in info.input.get("args", ())]
    given += [f"{name}={_json(value)}" for name, value in info.input.get("kwargs", {}).items()]
    if given:
        yield "input", ", ".join(given)


def _times(info: RunInfo, trail: Trail) -> Iterator[tuple[str, str]]:
    yield "created", f"{to_second(info.created)} UTC"
    if info.started is not None:
        times = 1 + trail.history.executions
        again = f", taken up {times} times" if times > 1 else ""
        yield "started", f"{to_second(info.started)} UTC{again}"
    if info.ended is not None:
        took = f", after {between(info.started, info.ended)}" if info.started is not None else ""
        yield "ended", f"{to_second(info.ended)} UTC{took}"


def _questions(info: RunInfo, trail: Trail) -> Iterator[tuple[str, str]]:
    asked = trail.questions()
    for question in asked:
        yield "question", str(question.details.get("question"))
        if question.details.get("payload") is not None:
            yield "about", _json(question.details["payload"])
        given = trail.answer_to(question)
        if given is not None:
            yield "answer", f"{_json(given.data.get('payload'))} by {given.actor or 'somebody'}, to be received"
        else:
            which = f" --question {quote(str(question.details.get('question')))}" if len(asked) > 1 else ""
            yield "answer it", f"duramen run answer {quote(info.id)} JSON{which}"


def _outcome(trail: Trail) -> Iterator[tuple[str, str]]:
    ended = trail.history.ended
    if ended is None:
        return
    data = ended.data if isinstance(ended.data, dict) else {}
    if ended.type == "run.finished":
        yield "result", "(erased)" if ended.erased else _json(data.get("value"))
    if ended.type == "run.failed":
        yield "failed with", "(erased)" if ended.erased else error_text(data.get("error"))
    if data.get("not_undone"):
        yield "not undone", ", ".join(data["not_undone"])


def _json(value: Any) -> str:
    return json_text(plain(value))


# -- steps


def _print_steps(screen: Screen, info: RunInfo, trail: Trail) -> None:
    sheet = Sheet(screen, _COLUMNS)
    rows = [(record, _row(info, trail, record)) for record in trail.history.steps.values()]
    sheet.begin(row for _, row in rows)
    day = ""
    for record, row in rows:
        if iso_time(record.began)[:10] != day:
            day = iso_time(record.began)[:10]
            screen.say((f"{day} UTC", "bold blue"))
        sheet.add([row])
        for note in trail.notes.get(record.step, ()):
            what = (f"{note.what:<9}", _NOTE_STYLES.get(note.what, ""))
            screen.say(_NOTE, what, f" {visible(note.text)}", (f"  {_clock(note.time, day)}", "dim"))
        for name, told in _progress(record):
            screen.say(f"{_NOTE}{name:<9} {told}")


def _row(info: RunInfo, trail: Trail, record: StepRecord) -> list[Cell]:
    intents = trail.intents.get(record.step, [])
    state = step_state(info, record)
    return [
        cell(intents[0].position if intents else record.position),
        cell(record.step),
        Cell(state, _STEP_STYLES.get(state, "")),
        cell(None if record.step.startswith("@") else len(intents)),
        cell(iso_time(record.began)[11:23]),
        cell(None if record.ended is None or not intents else span(record.ended - record.began)),
        cell(_told(record)),
    ]


def step_state(info: RunInfo, record: StepRecord) -> str:
    """Where a step stands, given how its run stands."""
    if record.state is State.CLEARED:
        return "to be run"
    if record.state not in (State.STARTED, State.PARKED):
        return record.state.value
    if record.step.startswith("@"):
        return "waiting" if info.ended is None else "given up"
    if info.status is RunStatus.RUNNING and record.state is State.STARTED:
        return "running"
    return "in doubt"


def _told(record: StepRecord) -> str | None:
    """The end of a step in a few words: its result, its error, or what it waits for."""
    if record.state is State.DONE:
        if record.value is None and record.details.get("question") is None:
            return None
        return _cut(_json(record.value))
    if record.error is not None:
        return _cut(error_text(record.error))
    if record.details.get("question") is not None:
        return _cut(str(record.details["question"]))
    if record.details.get("child") is not None:
        return f"the run {record.details['child']}"
    return None if record.due is None else f"until {iso_time(record.due)[:19].replace('T', ' ')}"


def _cut(text: str) -> str:
    """The beginning: the whole may be many megabytes, and the sheet cuts it anyway."""
    return text[:2000]


def _progress(record: StepRecord) -> Iterator[tuple[str, str]]:
    if record.progress is not None:
        yield "reported", _cut(_json(record.progress))
    if record.outputs:
        yield "streamed", f"{record.outputs:,} piece{'' if record.outputs == 1 else 's'}"
    if record.state is State.RETRYING and record.due is not None:
        yield "again", f"at {iso_time(record.due)[:19].replace('T', ' ')} UTC"


def _clock(micros: int, day: str) -> str:
    told = iso_time(micros)
    return told[11:23] if told[:10] == day else told[:23].replace("T", " ")


# -- the same as JSON


def _fields(info: RunInfo, trail: Trail) -> dict[str, Any]:
    history = trail.history
    ended = history.ended
    data = ended.data if ended is not None and isinstance(ended.data, dict) else {}
    return {
        **run_fields(info),
        "args": plain(list(info.input.get("args", ()))) if info.input else None,
        "kwargs": plain(info.input.get("kwargs", {})) if info.input else None,
        "executions": history.executions + (info.started is not None),
        "in_doubt": info.in_doubt,
        "questions": [_question(trail, one) for one in trail.questions()],
        "cancelling": None
        if history.cancelling is None
        else {"reason": history.cancelling or None, "actor": trail.cancelled_by},
        "result": plain(data.get("value")),
        "error": plain(data.get("error")),
        "not_undone": data.get("not_undone", []),
        "steps": [_step_fields(info, trail, record) for record in history.steps.values()],
        "signals": [
            _signal_fields(trail, one.position, one.name, one.payload, one.taken) for one in history.signals.values()
        ],
    }


def _question(trail: Trail, record: StepRecord) -> dict[str, Any]:
    details = record.details
    return {
        "step": record.step,
        "question": details.get("question"),
        "payload": plain(details.get("payload")),
        "answered": trail.answer_to(record) is not None,
    }


def _step_fields(info: RunInfo, trail: Trail, record: StepRecord) -> dict[str, Any]:
    intents = trail.intents.get(record.step, [])
    return {
        "step": record.step,
        "state": step_state(info, record),
        "position": intents[0].position if intents else record.position,
        "intent": iso_time(record.began),
        "ended": None if record.ended is None else iso_time(record.ended),
        "seconds": None if record.ended is None or not intents else (record.ended - record.began) / 1e6,
        "attempts": len(intents),
        "due": None if record.due is None else iso_time(record.due),
        "value": plain(record.value),
        "error": plain(record.error),
        "child": record.details.get("child"),
        "progress": plain(record.progress),
        "outputs": record.outputs,
        "notes": [_note_fields(note) for note in trail.notes.get(record.step, ())],
    }


def _note_fields(note: Note) -> dict[str, Any]:
    return {
        "time": iso_time(note.time),
        "position": note.position,
        "what": note.what,
        "text": note.text,
        "actor": note.actor,
    }


def _signal_fields(trail: Trail, position: int, name: str, payload: Any, taken: bool) -> dict[str, Any]:
    sent = trail.senders.get(position)
    return {
        "name": name,
        "position": position,
        "time": None if sent is None else iso_time(sent.time),
        "actor": None if sent is None else sent.actor,
        "payload": plain(payload),
        "received": taken,
    }
