"""Runs inside runs: executed in place, or started for workers. Each resumes on its own; its result comes once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import RunFailed, StepsChanged
from .context import RunContext, Suspend
from .definitions import Task
from .faults import from_data, to_data


async def call_child(
    run: RunContext, task: Task[..., Any], identity: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """The result of a child run that is executed in place."""
    record = run.visit(identity)
    if record is not None and record.finished:
        return run.replayed(record)
    child = _child_id(run, identity)
    if record is None:
        _expect_writable(run, identity)
        run.boundary()
        run.note("step.started", {"step": identity, "child": child})
        await run.flush()
    run.begin_work()
    try:
        await run.engine.start(task, args, kwargs, run=child, parent=run.row.run, subject=run.owner.name)
        suspension = await run.engine.attempt(child, task)
        return await _deliver(run, identity, child, suspension)
    finally:
        run.end_work()


async def start_child(
    run: RunContext, task: Task[..., Any], identity: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> ChildHandle:
    """Start a child run for workers to take up."""
    child = _child_id(run, identity)
    record = run.visit(identity)
    if record is None:
        _expect_writable(run, identity)
        run.boundary()
        await run.engine.start(task, args, kwargs, run=child, parent=run.row.run, subject=run.owner.name)
        run.note("step.done", {"step": identity, "value": child})
    return ChildHandle(run, child)


class ChildHandle:
    """A child run that was started beside its parent."""

    def __init__(self, run: RunContext, child: str) -> None:
        self._run = run
        self.id = child

    def result(self) -> Any:
        """Its result, once it has ended. Await it in an async task."""
        return self._run.deliver(self._result(self._run.identify(f"@result {self.id}")))

    async def _result(self, identity: str) -> Any:
        run = self._run
        record = run.visit(identity)
        if record is not None and record.finished:
            return run.replayed(record)
        if record is None:
            _expect_writable(run, identity)
            run.boundary()
            run.note("step.started", {"step": identity, "child": self.id})
            await run.flush()
        return await _deliver(run, identity, self.id, None)


async def _deliver(run: RunContext, identity: str, child: str, suspension: Suspend | None) -> Any:
    """The child's outcome as the parent's own: what failed there fails here."""
    outcome = await run.engine.outcome(child)
    if outcome is None:
        if suspension is not None and suspension.outside:
            raise run.suspend(None, f"the run {child!r}, which waits for {suspension.waiting}", outside=True)
        raise run.suspend(None, f"the run {child!r}", outside=False)
    if outcome.type == "run.finished":
        return run.note("step.done", {"step": identity, "value": outcome.data.get("value")}).data.get("value")
    if outcome.type == "run.failed":
        error: Exception = from_data(outcome.data["error"])
    else:
        error = RunFailed(child, "RunCancelled", outcome.data.get("reason") or "it was cancelled")
    run.note("step.failed", {"step": identity, "error": to_data(error)})
    raise error


def _child_id(run: RunContext, identity: str) -> str:
    """A name that is the same after a restart, and another in a fork."""
    verb, _, what = identity.partition(" ")
    return f"{run.row.run}/{what.replace('#', '-')}{'s' if verb == '@start' else ''}-{run.history.root[:6]}"


def _expect_writable(run: RunContext, identity: str) -> None:
    if run.readonly:
        raise StepsChanged(run.row.run, identity, ["its end"])
