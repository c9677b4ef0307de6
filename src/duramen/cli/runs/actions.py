"""Commands that change a run. Each appends an event whose actor is the user of the command."""

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
from ..terminal_text import visible

ENDED = (RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED)


def show_run_hint(run: str) -> str:
    """A hint that names the command that shows a run."""
    return f"see duramen run show {quote(run)}"


def parse_json(text: str | None, what: str) -> Any:
    """The value of an option `what` that is given as JSON; None if it is not given."""
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


def send_signal(dm: Duramen, run: str, name: str, data: Any, key: str | None) -> None:
    """Send a signal to a run."""
    dm.signal(run, name, data, actor=cli_actor(), key=key)
    _print_message(f"Signal {visible(name)} is sent to", run, ".")


def answer_run(dm: Duramen, run: str, value: Any, question: str | None) -> None:
    """Answer a run's question."""
    with _with_cli_hint(run):
        dm.answer(run, value, question=question, actor=cli_actor())
    _print_message("The answer is given to", run, "; it goes on when a worker, or run resume, takes it up.")


def settle_step(dm: Duramen, run: str, verdict: str, value: Any, step: str | None) -> None:
    """Decide what became of a step in doubt. The library refuses an unknown verdict."""
    checked: Verdict = verdict  # type: ignore[assignment]
    with _with_cli_hint(run):
        dm.settle(run, checked, value, step=step, actor=cli_actor())
    _print_message("The step is settled in", run, "; it goes on when a worker, or run resume, takes it up.")


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
        return " stops at its next step; what it did is undone."
    return " stops when a worker, or run resume, takes it up: what it did is undone then."


def fork_run(dm: Duramen, run: str, new: str, at: int | None) -> None:
    """Create a run that shares the events of another up to a position."""
    dm.fork_run(run, new, at=at)
    _print_message(
        "", new, f" goes on from {visible(run)}", f" at {at}" if at is not None else "", ": a worker takes it up."
    )


@contextmanager
def _with_cli_hint(run: str) -> Iterator[None]:
    """Add the command that shows the run to the hint of a `RunError`."""
    try:
        yield
    except RunError as error:
        if type(error) is RunError:
            error.hint += f" (here: {show_run_hint(run)})"
        raise


def _print_message(before: str, run: str, *after: str) -> None:
    PlainConsole().print_line(f"{before} " if before else "", (visible(run), "cyan"), *after)
