"""Commands that change a run. The actor of their events is the user of the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Any, NoReturn

from ...api._sync.duramen import Duramen
from ...errors import InvalidInput, RunError
from ...execution.engine.run_control import Verdict
from ...execution.engine.run_info import RunInfo, RunStatus
from ..actor import cli_actor
from ..console import PlainConsole
from ..error_output import with_cli_hint
from ..terminal_text import visible

ENDED = (RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED)
_CONTINUES = ". A worker or `duramen run resume` continues it."


def show_run_hint(run: str) -> str:
    """A hint with the command that shows a run."""
    return f"run `duramen run show {quote(run)}`"


def parse_json(text: str | None, what: str) -> Any:
    """The value of the option `what`, which is JSON; None if it is not given. Raises `InvalidInput`."""
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{what} is not valid JSON: {error}",
            hint='give JSON such as true, 12, \'"text"\' or \'{"seat": "4A"}\'; text needs quotes',
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def send_signal(dm: Duramen, run: str, name: str, data: Any, key: str | None) -> None:
    """Send a signal to a run."""
    dm.signal(run, name, data, actor=cli_actor(), key=key)
    _print_message(f"Sent signal {visible(name)} to", run, ".")


def answer_run(dm: Duramen, run: str, value: Any, question: str | None) -> None:
    """Answer a run's question."""
    with _with_cli_hint(run):
        dm.answer(run, value, question=question, actor=cli_actor())
    _print_message("Answered", run, _CONTINUES)


def settle_step(dm: Duramen, run: str, verdict: str, value: Any, step: str | None) -> None:
    """Settle a step in doubt. The library refuses an unknown verdict."""
    checked: Verdict = verdict  # type: ignore[assignment]
    with _with_cli_hint(run):
        dm.settle(run, checked, value, step=step, actor=cli_actor())
    _print_message("Settled the step of", run, _CONTINUES)


def cancel_run(dm: Duramen, run: str, reason: str | None) -> None:
    """Cancel a run. Refuses one that has ended."""
    status = dm.run_info(run).status
    if status in ENDED:
        raise RunError(f"run {run!r} has ended ({status})", hint="only an open run can be cancelled")
    dm.cancel(run, reason, actor=cli_actor())
    _print_message("", run, _cancel_message(dm.run_info(run)))


def _cancel_message(info: RunInfo) -> str:
    if info.status is RunStatus.CANCELLED:
        return " is cancelled."
    if info.status is RunStatus.RUNNING:
        return " stops at its next step and undoes what it did."
    return " is being cancelled: a worker or `duramen run resume` stops it and undoes what it did."


def fork_run(dm: Duramen, run: str, new: str, at: int | None) -> None:
    """Create a run that shares the events of another up to a position."""
    dm.fork_run(run, new, at=at)
    where = "" if at is None else f" at position {at}"
    _print_message("Forked", new, f" from {visible(run)}{where}", _CONTINUES)


@contextmanager
def _with_cli_hint(run: str) -> Iterator[None]:
    """Add the command that shows the run to the hint of a `RunError`."""
    try:
        yield
    except RunError as error:
        if type(error) is RunError:
            error.hint = with_cli_hint(error.hint, show_run_hint(run))
        raise


def _print_message(before: str, run: str, *after: str) -> None:
    PlainConsole().print_line(f"{before} " if before else "", (visible(run), "cyan"), *after)
