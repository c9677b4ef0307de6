"""`duramen run resume` and `duramen replay`: call the task of a run in this process and print its result as JSON."""

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
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..error_output import print_error
from ..json_format import json_value
from ..open_store import open_writable
from ..terminal_text import visible
from .actions import show_run_hint
from .task_lookup import load_declarations

RUN_FAILED = 1
"""The exit code when the run failed or was cancelled."""
NO_RESULT = 3
"""The exit code when the run has no result yet."""
_NO_BLOBS = 2**62


def resume_run(store: str, workspace: str, run: str, places: Sequence[str]) -> None:
    """Execute a run until it ends or waits, and print its result. Output of its code goes to standard error."""
    with redirect_stdout(sys.stderr):
        declarations = load_declarations(places)
    with open_writable(store, workspace, keep_unknown=False) as dm:
        info = dm.run_info(run)
        task = declarations.task(info.task, info.version)  # if None, the library searches the declared tasks
        _print_wait_reason(info)
        with _report_outcome(dm, run), redirect_stdout(sys.stderr):
            result = dm.resume(run, task)
    _print_result(result)


def replay_run(store: str, workspace: str, run: str, places: Sequence[str], at: int | None) -> None:
    """Call the task of a run with all outcomes from the journal and print its result. The store is readonly."""
    with redirect_stdout(sys.stderr):
        declarations = load_declarations(places)
    with open_store(store, workspace=workspace, readonly=True) as dm:
        info = dm.run_info(run)
        _check_position(dm, run, at)
        with _report_journal_end(run, at), _report_outcome(dm, run), redirect_stdout(sys.stderr):
            result = dm.replay(run, declarations.task(info.task, info.version), at=at)
    _print_result(result)


def _print_wait_reason(info: RunInfo) -> None:
    if info.owner is not None and not is_dead(info.owner):
        PlainConsole(stderr=True).print_line(
            "Another process executes the run. Waiting for its result; Ctrl-C stops waiting."
        )
    elif info.status is RunStatus.SLEEPING and info.wake is not None:
        PlainConsole(stderr=True).print_line(
            f"The run sleeps until {info.wake:%Y-%m-%d %H:%M:%S} UTC. Ctrl-C stops waiting."
        )


def _check_position(dm: Duramen, run: str, at: int | None) -> None:
    if at is not None and not dm.run_info(run, at=at).input and dm.run_info(run).input:
        raise InvalidInput(f"run {run!r} begins after position {at}", hint=show_run_hint(run))


@contextmanager
def _report_outcome(dm: Duramen, run: str) -> Iterator[None]:
    """Turn an outcome other than a result into a message and an exit code."""
    try:
        yield
    except RunParked as error:
        _exit_with_error(NO_RESULT, error.message, _next_command(dm, run))
    except (Exception, SystemExit) as error:  # includes errors of the task: they are the outcome of the run
        if isinstance(error, _NOT_EXECUTED) or type(error) is RunError:
            raise
        if isinstance(error, DuramenError) and dm.run_info(run).status not in _FAILED_STATUSES:
            raise
        _exit_with_error(RUN_FAILED, _outcome_message(run, error), show_run_hint(run))


def _outcome_message(run: str, error: BaseException) -> str:
    if isinstance(error, (RunCancelled, RunFailed)):
        return error.message
    cause = error.message if isinstance(error, DuramenError) else f"{type(error).__name__}: {error}"
    return f"run {run!r} failed with {cause}"


@contextmanager
def _report_journal_end(run: str, at: int | None) -> Iterator[None]:
    """Report a replay that reaches the end of the journal."""
    try:
        yield
    except StepsChanged as error:
        if error.recorded != ["its end"]:
            raise
        upto = "" if at is None else f" up to position {at}"
        _exit_with_error(NO_RESULT, f"the journal of run {run!r}{upto} ends before its task does", show_run_hint(run))
    except RunError as error:
        if type(error) is not RunError:
            raise
        _exit_with_error(NO_RESULT, error.message, error.hint)


_NOT_EXECUTED = (UnknownTask, StepsChanged, StoreError, JournalError, SealError)
"""Errors that prevent the execution of a run."""
_FAILED_STATUSES = (RunStatus.FAILED, RunStatus.CANCELLED)


def _exit_with_error(code: int, message: str, hint: str = "") -> NoReturn:
    print_error(message, hint)
    raise typer.Exit(code) from None


def _next_command(dm: Duramen, run: str) -> str:
    info = dm.run_info(run)
    if info.in_doubt:
        return f"check whether the step happened, then run `duramen run settle {quote(run)} done|retry|abort`"
    if any(one.step.startswith("@ask") and not one.finished for one in info.steps):
        return f"run `duramen run answer {quote(run)} JSON`"
    names = [one.step[len("@signal ") :].rpartition("#")[0] for one in info.steps if one.step.startswith("@signal")]
    return f"run `duramen signal {quote(run)} {quote(names[-1])}`" if names else show_run_hint(run)


def _print_result(result: Any) -> None:
    use_utf8_stdout()
    print_json(result_as_json(result))


def result_as_json(value: Any) -> Any:
    """A result as data that JSON can represent. Instances of registered classes are shown by their fields, as in the
    journal. A replayed task may return a value that cannot be stored; its `repr` is shown."""
    try:
        payload = Codec(blob_above=_NO_BLOBS).encode(value, lambda body: body).payload
        by_fields = Codec(registry=Registry(), keep_unknown=True, blob_above=_NO_BLOBS)
        return json_value(by_fields.decode_whole(payload))
    except UnknownType:
        return {"$type": visible(type(value).__qualname__), "value": repr(value)}
