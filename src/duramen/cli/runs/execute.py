"""`duramen run resume` and `duramen replay`: a run's task, called here; its result as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from shlex import quote
from typing import Any, NoReturn

import typer

from ...api._sync.duramen import Duramen
from ...api.open import open as open_store
from ...errors import (
    DuramenError,
    InvalidInput,
    JournalError,
    RunCancelled,
    RunError,
    RunFailed,
    RunParked,
    SealError,
    StepsChanged,
    StoreError,
    UnknownTask,
    UnknownType,
)
from ...execution.engine.owner import is_dead
from ...execution.engine.run_info import RunInfo, RunStatus
from ...journal.codec import Codec
from ...journal.registry import Registry
from ..error_output import complain
from ..json_format import plain
from ..screen import Screen, expect_json, print_json
from ..terminal_text import visible
from .actions import look_at, writable
from .task_lookup import find

RUN_FAILED = 1
"""The exit code when the run has ended, but not with a result."""
NO_RESULT = 3
"""The exit code when there is no result yet."""
_WHOLE = 2**62


def resume(store: str, workspace: str, run: str, places: Sequence[str]) -> None:
    """Execute a run as far as it goes and print its result. What its code prints goes to standard error."""
    with redirect_stdout(sys.stderr):
        found = find(places)
    with writable(store, workspace, keep_unknown=False) as dm:
        info = dm.run_info(run)
        task = found.task(info.task, info.version)  # else the library looks for one declared beside them
        _say_why_it_takes_time(info)
        with _ending(dm, run), redirect_stdout(sys.stderr):
            result = dm.resume(run, task)
    _print_result(result)


def replay(store: str, workspace: str, run: str, places: Sequence[str], at: int | None) -> None:
    """Call a run's task with all outcomes from the journal and print its result. The store cannot be written."""
    with redirect_stdout(sys.stderr):
        found = find(places)
    with open_store(store, workspace=workspace, readonly=True) as dm:
        info = dm.run_info(run)
        _refuse_before_its_beginning(dm, run, at)
        with _replaying(run, at), _ending(dm, run), redirect_stdout(sys.stderr):
            result = dm.replay(run, found.task(info.task, info.version), at=at)
    _print_result(result)


def _say_why_it_takes_time(info: RunInfo) -> None:
    if info.owner is not None and not is_dead(info.owner):
        Screen(stderr=True).say("Somebody else executes it: waiting for its result. Ctrl-C leaves it alone.")
    elif info.status is RunStatus.SLEEPING and info.wake is not None:
        Screen(stderr=True).say(f"It sleeps until {info.wake:%Y-%m-%d %H:%M:%S} UTC. Ctrl-C leaves it alone.")


def _refuse_before_its_beginning(dm: Duramen, run: str, at: int | None) -> None:
    if at is not None and not dm.run_info(run, at=at).input and dm.run_info(run).input:
        raise InvalidInput(f"run {run!r} begins after position {at}", hint=look_at(run))


@contextmanager
def _ending(dm: Duramen, run: str) -> Iterator[None]:
    """What a run ended with, if not with a result, as a message and an exit code."""
    try:
        yield
    except RunParked as error:
        _leave(NO_RESULT, error.message, _what_it_needs(dm, run))
    except (Exception, SystemExit) as error:  # the task's own errors too: they are the run's outcome
        if isinstance(error, _NO_OUTCOME) or type(error) is RunError:
            raise
        if isinstance(error, DuramenError) and dm.run_info(run).status not in _UNHAPPY:
            raise
        _leave(RUN_FAILED, _told(run, error), look_at(run))


def _told(run: str, error: BaseException) -> str:
    if isinstance(error, (RunCancelled, RunFailed)):
        return error.message
    told = error.message if isinstance(error, DuramenError) else f"{type(error).__name__}: {error}"
    return f"run {run!r} ended with {told}"


@contextmanager
def _replaying(run: str, at: int | None) -> Iterator[None]:
    """Where a replay comes to the end of what is journaled."""
    try:
        yield
    except StepsChanged as error:
        if error.recorded != ["its end"]:
            raise
        upto = "" if at is None else f" up to position {at}"
        _leave(NO_RESULT, f"the journal of run {run!r}{upto} ends before its task does", look_at(run))
    except RunError as error:
        if type(error) is not RunError:
            raise
        _leave(NO_RESULT, error.message, error.hint)


_NO_OUTCOME = (UnknownTask, StepsChanged, StoreError, JournalError, SealError)
"""Errors that keep a run from being executed."""
_UNHAPPY = (RunStatus.FAILED, RunStatus.CANCELLED)


def _leave(code: int, message: str, hint: str = "") -> NoReturn:
    complain(message, hint)
    raise typer.Exit(code) from None


def _what_it_needs(dm: Duramen, run: str) -> str:
    info = dm.run_info(run)
    if info.in_doubt:
        return f"find out, then: duramen run settle {quote(run)} done|retry|abort"
    if any(one.step.startswith("@ask") and not one.finished for one in info.steps):
        return f"duramen run answer {quote(run)} JSON"
    names = [one.step[len("@signal ") :].rpartition("#")[0] for one in info.steps if one.step.startswith("@signal")]
    return f"duramen signal {quote(run)} {quote(names[-1])}" if names else look_at(run)


def _print_result(result: Any) -> None:
    expect_json()
    print_json(result_form(result))


def result_form(value: Any) -> Any:
    """A result as data that JSON can say: instances of registered classes by their fields, as in the journal. What a
    replayed task returns need not be storable: then it is shown as Python shows it."""
    try:
        payload = Codec(blob_above=_WHOLE).encode(value, lambda body: body).payload
        by_fields = Codec(registry=Registry(), keep_unknown=True, blob_above=_WHOLE)
        return plain(by_fields.decode_whole(payload))
    except UnknownType:
        return {"$type": visible(type(value).__qualname__), "value": repr(value)}
