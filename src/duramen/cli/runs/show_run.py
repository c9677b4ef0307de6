"""`duramen run show`: one run, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any

from ...api._sync.duramen import Duramen
from ...execution.engine.history import State, StepRecord
from ...execution.engine.run_info import RunInfo, RunStatus
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..durations import format_duration, format_elapsed, utc_second
from ..json_format import iso_time, json_text, json_value
from ..table import Cell, Column, Table, cell
from ..terminal_text import visible
from .list_runs import STATUS_STYLES, run_fields, waits_for
from .step_notes import AnnotatedHistory, StepNote, error_text, load_history

_COLUMNS = (
    Column("#", min_width=4, max_width=12, align_right=True),
    Column("step", min_width=12, max_width=32, style="cyan"),
    Column("state", min_width=8, max_width=10),
    Column("tries", min_width=5, align_right=True),
    Column("intent", min_width=12, max_width=12),
    Column("took", min_width=8, align_right=True),
    Column("outcome", min_width=16, fill=True),
)
_NOTE_INDENT = "      "
_STEP_STYLES = {"done": "green", "failed": "red", "in doubt": "bold red", "waiting": "yellow", "retrying": "yellow"}
_NOTE_STYLES = {"in doubt": "bold red", "parked": "yellow", "settled": "green", "failed": "red"}


def show_run(dm: Duramen, run: str, as_json: bool) -> None:
    """Print the status of a run and each of its steps."""
    info = dm.run_info(run)
    annotated = load_history(dm, run, info.session)
    if as_json:
        use_utf8_stdout()
        print_json(_fields(info, annotated))
        return
    console = PlainConsole()
    console.print_line((visible(info.id), "bold cyan"), "  ", (info.status.value, STATUS_STYLES.get(info.status, "")))
    for name, text in _details(info, annotated):
        console.print_line(f"  {name:<12}", visible(text))
    if annotated.history.steps:
        console.print()
        _print_steps(console, info, annotated)


def _details(info: RunInfo, annotated: AnnotatedHistory) -> Iterator[tuple[str, str]]:
    yield "task", info.task if info.version is None else f"{info.task}, version {info.version}"
    yield from _input(info)
    if info.session != info.id:
        yield "session", info.session
    for name, value in (("parent", info.parent), ("queue", info.queue), ("queue key", info.queue_key)):
        if value is not None:
            yield name, value
    yield from _times(info, annotated)
    if info.owner is not None:
        yield "executed by", info.owner
    if info.waiting is not None:
        yield "waits for", waits_for(info) or ""
    yield from _questions(info, annotated)
    for one in info.in_doubt:
        yield "in doubt", f"{one}: it may have happened"
    if info.in_doubt and info.status is RunStatus.WAITING:
        yield "settle it", f"duramen run settle {quote(info.id)} done|retry|abort"
    for signal in annotated.history.signals.values():
        if not signal.taken and not signal.name.startswith("@"):
            yield "signal", f"{signal.name} was sent and is not received yet: {_json(signal.payload)}"
    if annotated.history.cancelling is not None:
        reason = f": {annotated.history.cancelling}" if annotated.history.cancelling else ""
        yield (
            "cancelled" if info.ended is not None else "cancelling",
            f"by {annotated.cancelled_by or 'an unknown actor'}{reason}",
        )
    if annotated.changed:
        yield "note", "the code of the task has changed since the run began"
    yield from _run_outcome(annotated)


def _input(info: RunInfo) -> Iterator[tuple[str, str]]:
    if not info.input:
        yield "input", "(erased)"
        return
    given = [_json(value) for value in info.input.get("args", ())]
    given += [f"{name}={_json(value)}" for name, value in info.input.get("kwargs", {}).items()]
    if given:
        yield "input", ", ".join(given)


def _times(info: RunInfo, annotated: AnnotatedHistory) -> Iterator[tuple[str, str]]:
    yield "created", f"{utc_second(info.created)} UTC"
    if info.started is not None:
        times = 1 + annotated.history.executions
        again = f", executed {times} times" if times > 1 else ""
        yield "started", f"{utc_second(info.started)} UTC{again}"
    if info.ended is not None:
        took = f", after {format_elapsed(info.started, info.ended)}" if info.started is not None else ""
        yield "ended", f"{utc_second(info.ended)} UTC{took}"


def _questions(info: RunInfo, annotated: AnnotatedHistory) -> Iterator[tuple[str, str]]:
    asked = annotated.questions()
    for question in asked:
        yield "question", str(question.details.get("question"))
        if question.details.get("payload") is not None:
            yield "about", _json(question.details["payload"])
        given = annotated.answer_to(question)
        if given is not None:
            yield (
                "answer",
                f"{_json(given.data.get('payload'))} by {given.actor or 'an unknown actor'}, not received yet",
            )
        else:
            which = f" --question {quote(str(question.details.get('question')))}" if len(asked) > 1 else ""
            yield "answer it", f"duramen run answer {quote(info.id)} JSON{which}"


def _run_outcome(annotated: AnnotatedHistory) -> Iterator[tuple[str, str]]:
    ended = annotated.history.ended
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
    return json_text(json_value(value))


# -- steps


def _print_steps(console: PlainConsole, info: RunInfo, annotated: AnnotatedHistory) -> None:
    table = Table(console, _COLUMNS)
    rows = [(record, _row(info, annotated, record)) for record in annotated.history.steps.values()]
    table.begin(row for _, row in rows)
    day = ""
    for record, row in rows:
        if iso_time(record.began)[:10] != day:
            day = iso_time(record.began)[:10]
            console.print_line((f"{day} UTC", "bold blue"))
        table.add([row])
        for note in annotated.notes.get(record.step, ()):
            what = (f"{note.what:<9}", _NOTE_STYLES.get(note.what, ""))
            console.print_line(
                _NOTE_INDENT, what, f" {visible(note.text)}", (f"  {_time_of_day(note.time, day)}", "dim")
            )
        for name, text in _progress(record):
            console.print_line(f"{_NOTE_INDENT}{name:<9} {text}")


def _row(info: RunInfo, annotated: AnnotatedHistory, record: StepRecord) -> list[Cell]:
    intents = annotated.intents.get(record.step, [])
    state = step_state(info, record)
    return [
        cell(intents[0].position if intents else record.position),
        cell(record.step),
        Cell(state, _STEP_STYLES.get(state, "")),
        cell(None if record.step.startswith("@") else len(intents)),
        cell(iso_time(record.began)[11:23]),
        cell(None if record.ended is None or not intents else format_duration(record.ended - record.began)),
        cell(_outcome_text(record)),
    ]


def step_state(info: RunInfo, record: StepRecord) -> str:
    """The state of a step, given the status of its run."""
    if record.state is State.CLEARED:
        return "to be run"
    if record.state not in (State.STARTED, State.PARKED):
        return record.state.value
    if record.step.startswith("@"):
        return "waiting" if info.ended is None else "given up"
    if info.status is RunStatus.RUNNING and record.state is State.STARTED:
        return "running"
    return "in doubt"


def _outcome_text(record: StepRecord) -> str | None:
    """The result of a step, its error, or what it waits for."""
    if record.state is State.DONE:
        if record.value is None and record.details.get("question") is None:
            return None
        return _shortened(_json(record.value))
    if record.error is not None:
        return _shortened(error_text(record.error))
    if record.details.get("question") is not None:
        return _shortened(str(record.details["question"]))
    if record.details.get("child") is not None:
        return f"run {record.details['child']}"
    return None if record.due is None else f"until {iso_time(record.due)[:19].replace('T', ' ')}"


def _shortened(text: str) -> str:
    """The beginning of a text, which may be many megabytes long. The table cuts it further."""
    return text[:2000]


def _progress(record: StepRecord) -> Iterator[tuple[str, str]]:
    if record.progress is not None:
        yield "reported", _shortened(_json(record.progress))
    if record.outputs:
        yield "streamed", f"{record.outputs:,} piece{'' if record.outputs == 1 else 's'}"
    if record.state is State.RETRYING and record.due is not None:
        yield "again", f"at {iso_time(record.due)[:19].replace('T', ' ')} UTC"


def _time_of_day(micros: int, day: str) -> str:
    text = iso_time(micros)
    return text[11:23] if text[:10] == day else text[:23].replace("T", " ")


# -- JSON


def _fields(info: RunInfo, annotated: AnnotatedHistory) -> dict[str, Any]:
    history = annotated.history
    ended = history.ended
    data = ended.data if ended is not None and isinstance(ended.data, dict) else {}
    return {
        **run_fields(info),
        "args": json_value(list(info.input.get("args", ()))) if info.input else None,
        "kwargs": json_value(info.input.get("kwargs", {})) if info.input else None,
        "executions": history.executions + (info.started is not None),
        "in_doubt": info.in_doubt,
        "questions": [_question_fields(annotated, one) for one in annotated.questions()],
        "cancelling": None
        if history.cancelling is None
        else {"reason": history.cancelling or None, "actor": annotated.cancelled_by},
        "result": json_value(data.get("value")),
        "error": json_value(data.get("error")),
        "not_undone": data.get("not_undone", []),
        "steps": [_step_fields(info, annotated, record) for record in history.steps.values()],
        "signals": [
            _signal_fields(annotated, one.position, one.name, one.payload, one.taken)
            for one in history.signals.values()
        ],
    }


def _question_fields(annotated: AnnotatedHistory, record: StepRecord) -> dict[str, Any]:
    details = record.details
    return {
        "step": record.step,
        "question": details.get("question"),
        "payload": json_value(details.get("payload")),
        "answered": annotated.answer_to(record) is not None,
    }


def _step_fields(info: RunInfo, annotated: AnnotatedHistory, record: StepRecord) -> dict[str, Any]:
    intents = annotated.intents.get(record.step, [])
    return {
        "step": record.step,
        "state": step_state(info, record),
        "position": intents[0].position if intents else record.position,
        "intent": iso_time(record.began),
        "ended": None if record.ended is None else iso_time(record.ended),
        "seconds": None if record.ended is None or not intents else (record.ended - record.began) / 1e6,
        "attempts": len(intents),
        "due": None if record.due is None else iso_time(record.due),
        "value": json_value(record.value),
        "error": json_value(record.error),
        "child": record.details.get("child"),
        "progress": json_value(record.progress),
        "outputs": record.outputs,
        "notes": [_note_fields(note) for note in annotated.notes.get(record.step, ())],
    }


def _note_fields(note: StepNote) -> dict[str, Any]:
    return {
        "time": iso_time(note.time),
        "position": note.position,
        "what": note.what,
        "text": note.text,
        "actor": note.actor,
    }


def _signal_fields(annotated: AnnotatedHistory, position: int, name: str, payload: Any, taken: bool) -> dict[str, Any]:
    sent = annotated.senders.get(position)
    return {
        "name": name,
        "position": position,
        "time": None if sent is None else iso_time(sent.time),
        "actor": None if sent is None else sent.actor,
        "payload": json_value(payload),
        "received": taken,
    }
