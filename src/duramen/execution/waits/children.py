"""Child runs: executed by the parent's process, or started for workers. Each child can be resumed by itself, and the
parent journals its result once."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ...errors import RunFailed, StepsChanged
from ...journal.events import Event
from ..engine.control_flow import RunSuspended
from ..engine.run_context import RunContext
from ..steps.definitions import Task
from ..steps.error_data import error_from_data, error_to_data

if TYPE_CHECKING:
    from ..engine.engine import Started


_LONG = 200
"""The largest number of characters in a child's id. A longer id is cut and gets a hash."""


async def call_child(
    run: RunContext, task: Task[..., Any], identity: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Execute a child run in this process and return its result, or raise its error."""
    record = await run.match_or_stop(identity)
    if record is not None and record.finished:
        return run.replayed(record)
    _expect_writable(run, identity)
    child = _child_id(run, identity)
    run.children.append(child)
    with run.working():
        if record is None:
            await run.check_interrupts()
            intent = run.journal.encode("step.started", {"step": identity, "child": child})
            await run.journal.write([intent], synced=True)
        started: Started | None = await _start(run, child, task, args, kwargs)
        while (outcome := await run.engine.outcome(child)) is None:
            await run.check_interrupts()
            suspension = await _attempt(run, child, task, started)
            started = None
            if await run.engine.outcome(child) is None:
                await _wait(run, child, suspension)
        return await _record_result(run, identity, child, outcome)


async def _start(
    run: RunContext, child: str, task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Started:
    """Start a child run with its parent's subject. Its cause is the last event of the parent."""
    cause = f"{run.row.session}#{run.journal.position}" if run.journal.position else None
    return await run.engine.start(
        task, args, kwargs, run=child, parent=run.row.run, subject=run.journal.owner.name or None, cause=cause
    )


async def _attempt(run: RunContext, child: str, task: Task[..., Any], started: Started | None) -> RunSuspended | None:
    """Execute the child. Returns why it waits, if it does. The error of a failed child is in its outcome. An error that
    prevents the child from continuing is raised, and also stops the parent."""
    try:
        found = await run.engine.attempt(child, task, started)
        return found if isinstance(found, RunSuspended) else None
    except Exception as error:
        if await run.engine.outcome(child) is None:
            run.journal.break_off(error)
            raise
    return None


async def _wait(run: RunContext, child: str, suspension: RunSuspended | None) -> None:
    if suspension is not None and suspension.external:
        waiting = f"the run {child!r}, which waits for {suspension.waiting}"
        await run.wait_for(suspension.due, waiting, external=True)
        return
    await run.wait_for(suspension.due if suspension is not None else None, f"the run {child!r}", external=False)


async def start_child(
    run: RunContext, task: Task[..., Any], identity: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> ChildHandle:
    """Start a child run that a worker executes."""
    child = _child_id(run, identity)
    if await run.match_or_stop(identity) is None:
        _expect_writable(run, identity)
        with run.working():
            await run.check_interrupts()
            await _start(run, child, task, args, kwargs)
            await run.record("step.done", {"step": identity, "value": child})
    run.children.append(child)
    return ChildHandle(run, child)


class ChildHandle:
    """A child run that was started for workers."""

    def __init__(self, run: RunContext, child: str) -> None:
        self._run = run
        self.id = child

    def result(self) -> Any:
        """Wait for the child run to end. Returns its result or raises its error. Await it in an async task."""
        return self._run.deliver(self._result(self._run.identify(f"@result {self.id}")))

    async def _result(self, identity: str) -> Any:
        run = self._run
        record = await run.match_or_stop(identity)
        if record is not None and record.finished:
            return run.replayed(record)
        _expect_writable(run, identity)
        with run.working():
            if record is None:
                await run.check_interrupts()
                intent = run.journal.encode("step.started", {"step": identity, "child": self.id})
                await run.journal.write([intent], synced=True)
            while True:
                outcome = await run.engine.outcome(self.id)
                if outcome is not None:
                    return await _record_result(run, identity, self.id, outcome)
                await _wait(run, self.id, None)


async def _record_result(run: RunContext, identity: str, child: str, outcome: Event) -> Any:
    value = await _record_outcome(run, identity, child, outcome)
    if run.state is not None:
        await run.state.after_child(run)
    return value


async def _record_outcome(run: RunContext, identity: str, child: str, outcome: Event) -> Any:
    """Journal the child's outcome in the parent. Returns its result, or raises its error."""
    if outcome.type == "run.finished":
        data = await run.record("step.done", {"step": identity, "value": outcome.data.get("value")})
        return data.get("value")
    if outcome.type == "run.failed":
        error: Exception = error_from_data(outcome.data["error"])
    else:
        error = RunFailed(child, "RunCancelled", outcome.data.get("reason") or "it was cancelled")
    await run.record("step.failed", {"step": identity, "error": error_to_data(error)})
    raise error


def _child_id(run: RunContext, identity: str) -> str:
    """An id that is the same after a restart and different in a fork."""
    verb, _, what = identity.partition(" ")
    child = f"{run.row.run}/{what.replace('#', '-')}{'s' if verb == '@start' else ''}-{run.history.root[:6]}"
    if len(child) <= _LONG:
        return child
    return f"{child[:_LONG]}-{blake2b(child.encode(), digest_size=8).hexdigest()}"


def _expect_writable(run: RunContext, identity: str) -> None:
    if run.readonly:
        raise StepsChanged(run.row.run, identity, ["its end"])
