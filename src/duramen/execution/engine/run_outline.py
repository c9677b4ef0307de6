"""The outline of a successful run: its steps in order, as input for a procedure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from ...errors import RunError, shown
from ..steps.definitions import known_task
from .engine import Engine
from .history import State, StepRecord

_SHOWN = 80
"""The largest number of characters shown of an argument or a question."""


class RunOutline(NamedTuple):
    """The outline of a run. `ended` is the address of its last event, as ``"session#position"``."""

    run: str
    task: str
    title: str
    call: str
    subject: str | None
    steps: tuple[str, ...]
    ended: str


async def outline_run(engine: Engine, run: str) -> RunOutline:
    """The outline of a run. Raises `RunError` if it did not succeed, has no steps or was erased."""
    row = await engine.row(run)
    if row.status != "done":
        raise RunError(
            f"run {shown(run)} has not succeeded: it is {row.status}", hint="choose a run whose status is done"
        )
    history = await engine.history(row)
    if history.erased or history.ended is None:
        raise RunError(f"the events of run {shown(run)} have been erased", hint="choose another run of the task")
    steps = step_descriptions(history.steps.values())
    if not steps:
        raise RunError(f"run {shown(run)} has no steps", hint="decorate the functions that it calls with @duramen.step")
    task = known_task(row.task, row.version)
    doc = (inspect.getdoc(task.function) or "") if task is not None else ""
    title = doc.splitlines()[0].strip().rstrip(".")[:200] if doc.strip() else _words(row.task)
    ended = f"{history.ended.session}#{history.ended.position}"
    return RunOutline(run, row.task, title, _call(row.task, history.input), history.subject, steps, ended)


def step_descriptions(steps: Iterable[StepRecord]) -> tuple[str, ...]:
    """The steps that are done, in the order in which they began. Equal neighbours become one line with a count."""
    described = [text for one in steps if one.state is State.DONE and (text := _described(one)) is not None]
    counted = [(text, len(list(same))) for text, same in groupby(described)]
    return tuple(text if count == 1 else f"{text} \u00d7{count}" for text, count in counted)


def _described(step: StepRecord) -> str | None:
    """A step in words; None for a step that has no place in a procedure."""
    if not step.step.startswith("@"):
        return _words(re.split("[#:]", step.step, maxsplit=1)[0])
    kind, _, what = step.step[1:].rpartition("#")[0].partition(" ")
    if kind == "ask":
        return f"ask: {_clipped(str(step.details.get('question', '')))}"
    if kind in ("run", "start"):
        return f"{kind} {_words(what)}"
    return {"sleep": "wait", "signal": f"wait for {what}"}.get(kind)


def _words(name: str) -> str:
    return " ".join(name.replace("_", " ").split()) or name


def _call(task: str, given: Mapping[str, Any]) -> str:
    """The call of a task with its plain arguments. Other arguments are shown as "…"."""
    args = [_argument(value) for value in given.get("args") or ()]
    named = [f"{name}={_argument(value)}" for name, value in (given.get("kwargs") or {}).items()]
    return f"{task}({_clipped(', '.join([*args, *named]), 4 * _SHOWN)})"


def _argument(value: Any) -> str:
    return _clipped(repr(value)) if value is None or isinstance(value, (str, int, float, bool)) else "…"


def _clipped(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
