"""Commands that tell a run something. Each leaves an event that says who gave the command."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shlex import quote
from typing import Any, NoReturn

from ...api._sync.duramen import Duramen
from ...api.open import open as open_store
from ...api.settings import Settings
from ...errors import InvalidInput, RunError, StoreReadOnly
from ...execution.engine.run_control import Verdict
from ...execution.engine.run_info import RunInfo, RunStatus
from ..open_store import opened
from ..screen import Screen
from ..terminal_text import visible

ENDED = (RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED)


@contextmanager
def writable(
    store: str, workspace: str, *, keep_unknown: bool = True, embedder: str | None = None
) -> Iterator[Duramen]:
    """The workspace with the right to write. A store that is not there is not made: it is looked at first."""
    with suppress(StoreReadOnly), opened(store, workspace):  # an outdated one is there, and is brought up to date
        pass
    settings = Settings(workspace=workspace, keep_unknown=keep_unknown)
    if embedder is not None:
        settings["embedder"] = embedder
    with open_store(store, **settings) as dm:
        yield dm


def actor() -> str:
    """Who gives the command."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError, ImportError):  # a user without a name, as in many containers
        return f"cli:{os.getuid()}" if hasattr(os, "getuid") else "cli"


def look_at(run: str) -> str:
    """The command that shows a run."""
    return f"see duramen run show {quote(run)}"


def json_given(text: str | None, what: str) -> Any:
    """A value given as JSON; None if there is none."""
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{what} is no JSON: {error}", hint='such as true, 12, \'"text"\' or \'{"seat": "4A"}\': a text has quotes'
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def signal(dm: Duramen, run: str, name: str, data: Any, key: str | None) -> None:
    """Send a signal."""
    dm.signal(run, name, data, actor=actor(), key=key)
    _say(f"Signal {visible(name)} is sent to", run, ".")


def answer(dm: Duramen, run: str, value: Any, question: str | None) -> None:
    """Answer a run's question."""
    with _hinting(run):
        dm.answer(run, value, question=question, actor=actor())
    _say("The answer is given to", run, "; it goes on when a worker, or run resume, takes it up.")


def settle(dm: Duramen, run: str, verdict: str, value: Any, step: str | None) -> None:
    """A person's word on a step in doubt. The library refuses a verdict that it does not know."""
    said: Verdict = verdict  # type: ignore[assignment]
    with _hinting(run):
        dm.settle(run, said, value, step=step, actor=actor())
    _say("The step is settled in", run, "; it goes on when a worker, or run resume, takes it up.")


def cancel(dm: Duramen, run: str, reason: str | None) -> None:
    """Stop a run. One that has ended is refused: nothing would happen."""
    status = dm.run_info(run).status
    if status in ENDED:
        raise RunError(f"run {run!r} has ended ({status})", hint="only an open run can be cancelled")
    dm.cancel(run, reason, actor=actor())
    _say("", run, _after_cancelling(dm.run_info(run)))


def _after_cancelling(info: RunInfo) -> str:
    if info.status is RunStatus.CANCELLED:
        return " is cancelled."
    if info.status is RunStatus.RUNNING:
        return " stops at its next step; what it did is undone."
    return " stops when a worker, or run resume, takes it up: what it did is undone then."


def fork(dm: Duramen, run: str, new: str, at: int | None) -> None:
    """A new run from another's past."""
    dm.fork_run(run, new, at=at)
    _say("", new, f" goes on from {visible(run)}", f" at {at}" if at is not None else "", ": a worker takes it up.")


@contextmanager
def _hinting(run: str) -> Iterator[None]:
    """The library's hints speak to a program; these to somebody at a terminal."""
    try:
        yield
    except RunError as error:
        if type(error) is RunError:
            error.hint += f" (here: {look_at(run)})"
        raise


def _say(before: str, run: str, *after: str) -> None:
    Screen().say(f"{before} " if before else "", (visible(run), "cyan"), *after)
