"""One execution of a run, from its claim to its end, its next wait or an error that stops it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

from ...crash_points import reach
from ...errors import DuramenError, InvalidInput, RunError, StepsChanged, UnknownTask, shown
from ...journal.encoder import Prepared
from ...ports import LeaseRow, RunChange, RunRow
from ...runtime import is_driven, suspension_allowed
from ..steps.definitions import Kind, Task, same_code
from ..steps.error_data import error_from_data, error_to_data
from ..steps.step_runner import compensate
from ..waits.current_run import BRANCH, RUN, STEP
from .control_flow import RunStopped, RunSuspended
from .history import History
from .run_context import RunContext
from .run_info import ended, nudged, parked

if TYPE_CHECKING:
    from .engine import Engine

log = logging.getLogger("duramen")


class Finished(NamedTuple):
    """The result of a run that succeeded."""

    value: Any


class Execution:
    """One execution of a run by the owner of its lease. `row` was read before the claim, so it may be out of date."""

    def __init__(
        self,
        engine: Engine,
        row: RunRow,
        lease: LeaseRow,
        task: Task[..., Any] | None,
        history: History | None = None,
    ) -> None:
        self._history = history
        self._engine = engine
        self._row = row
        self._lease = lease
        self._task = task
        self._released = False

    async def execute(self) -> RunSuspended | Finished | None:
        """Execute the task until it ends or has to wait. Releases the lease in every case.

        Returns its result, or why it waits. Returns None if it was cancelled or had already ended. Raises the error
        that the run failed with, or the error that prevented its execution.
        """
        try:
            history = self._history or await self._engine.history(self._row)
            if history.ended is not None:
                return None
            run = await self._context(history)
            with self._engine.heartbeat.watching(run):
                try:
                    return await self._call_task(run)
                finally:
                    await self._sync(run)
        finally:
            if not self._released:
                await self._release()

    async def _sync(self, run: RunContext) -> None:
        """Sync the last outcomes if no synced write followed them."""
        if run.journal.unsynced_since is not None:
            try:
                await self._engine.journal.store.sync()
            except DuramenError:
                log.debug("the last outcomes of run %s were not synced", run.row.run)

    async def _release(self) -> None:
        journal = self._engine.journal
        try:
            await journal.store.release(journal.workspace, self._row.session, self._lease.fence)
        except DuramenError:
            log.debug("the lease on %s could not be released; it will expire", self._row.session)

    async def _context(self, history: History) -> RunContext:
        row, task, journal = self._row, self._task, self._engine.journal
        if not history.input:
            raise RunError(f"the input of run {shown(row.run)} was erased with its subject", hint="start a new run")
        if task is None or task.name != row.task or task.version != row.version:
            raise UnknownTask(row.run, row.task, row.version)
        if task.kind is Kind.ASYNC and is_driven():
            _refuse_running_loop(task)
        owner = await journal.owner(history.subject)
        run = RunContext(self._engine, row, history, task, self._lease.fence, owner)
        first = []
        if row.started is not None:
            resumed = {"owner": self._lease.owner, "fence": self._lease.fence}
            first.append(run.journal.encode("run.resumed", resumed))
        if not same_code(history.input.get("code"), task.code):
            log.warning("the code of task %s has changed since run %s was started", task.name, row.run)
            changed = {"was": history.input.get("code"), "is": task.code}
            first.append(run.journal.encode("run.changed", changed))
        if first:
            await run.journal.write(first, synced=False)
        return run

    async def _call_task(self, run: RunContext) -> RunSuspended | Finished | None:
        given = run.history.input
        error: BaseException | None = None
        value: Any = None
        try:
            value = await invoke(run, given.get("args", ()), given.get("kwargs", {}))
        except (RunSuspended, RunStopped):
            pass
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - raised again below, unless the run waits
            error = raised
        broken = run.journal.broken
        if broken is not None:
            raise broken from (None if error is broken else error)
        if run.stopping or run.is_suspended:
            if error is not None:
                log.warning("run %s raised %r while it was being suspended or stopped", run.row.run, error)
            return await self._stopped(run)
        if run.unmatched_steps():
            raise StepsChanged(run.row.run, "its end", run.unmatched_steps()) from error
        if error is not None:
            await self._fail(run, error)
            raise error
        return await self._finish(run, value)

    async def _stopped(self, run: RunContext) -> RunSuspended | None:
        if not run.stopping:
            return await self._park(run)
        if run.unmatched_steps():
            raise StepsChanged(run.row.run, "its cancellation", run.unmatched_steps())
        if run.history.failing is not None:  # the run had failed, and was cancelled while it undid its steps
            error = error_from_data(run.history.failing)
            await self._fail(run, error)
            raise error
        await self._cancel(run)
        return None

    async def _finish(self, run: RunContext, value: Any) -> Finished:
        finished = run.journal.encode("run.finished", {} if value is None else {"value": value})
        await self._end(run, finished, "done")
        return Finished(finished.data.get("value"))

    async def _fail(self, run: RunContext, error: BaseException) -> None:
        data: dict[str, Any] = {"error": run.history.failing or error_to_data(error)}
        if run.undoable and run.history.failing is None:
            await run.record("run.failing", data)
        stuck = await compensate(run)
        await self._end(run, run.journal.encode("run.failed", data | _if_any("not_undone", stuck)), "failed")

    async def _cancel(self, run: RunContext) -> None:
        for child in dict.fromkeys(run.children):
            if await self._engine.journal.store.run(self._engine.journal.workspace, child) is not None:
                await self._engine.control.cancel(child, run.history.cancelling or None, f"run {run.row.run}")
        stuck = await compensate(run)
        data: dict[str, Any] = {"reason": run.history.cancelling} if run.history.cancelling else {}
        doubt = [one.step for one in run.history.in_doubt()]
        data |= _if_any("not_undone", stuck) | _if_any("in_doubt", doubt)
        await self._end(run, run.journal.encode("run.cancelled", data), "cancelled")

    async def _end(self, run: RunContext, event: Prepared, status: str) -> None:
        now = run.now()
        changes: list[RunChange] = [ended(run.row.run, status, now)]
        if run.row.parent is not None:
            changes.append(nudged(run.row.parent, now))
        await run.journal.write_last(event, changes=changes, key=f"run.ended:{run.row.run}")
        self._released = True
        reach("run.ended")

    async def _park(self, run: RunContext) -> RunSuspended:
        reasons = run.suspensions
        times = [one.due for one in reasons if one.due is not None]
        if run.deadline is not None:
            times.append(run.deadline)
        due = min(times, default=None)
        waiting = "; ".join(dict.fromkeys(one.waiting for one in reasons))
        event = run.journal.encode("run.parked", {"waiting": waiting} | ({"due": due} if due is not None else {}))
        await run.journal.write_last(event, changes=[parked(run.row.run, due, waiting, run.journal.nudges, run.now())])
        self._released = True
        reach("run.parked")
        return RunSuspended(due, waiting, any(one.external for one in reasons))


async def invoke(run: RunContext, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a run's task: on this thread, on a new thread, or on an event loop. Returns or raises what the task does."""
    task = run.task
    if task.kind is Kind.PLAIN:

        def plain() -> Any:
            RUN.set(run)
            STEP.set(None)
            BRANCH.set(run.trunk)
            run.enter()
            return task.function(*args, **kwargs)

        if is_driven() or not run.engine.runtime.looping:
            return copy_context().run(plain)
        return await _on_thread(run, lambda: copy_context().run(plain))

    async def on_loop() -> Any:
        return await task.function(*args, **kwargs)

    if is_driven():
        with suspension_allowed():
            return asyncio.run(supervise(run, on_loop))
    return await supervise(run, on_loop)


_STILL = 0.01
_IDLE = 0.5
"""Seconds after which the supervisor stops waiting for a branch that is neither in a step nor in a wait."""


async def supervise(run: RunContext, work: Callable[[], Any]) -> Any:
    """Run an async task and its branches until the task ends or all branches wait. Then cancel the remaining ones.

    Returns the task's result. Raises `RunSuspended` if all branches wait and `RunStopped` if the run was cancelled.
    """
    run.enter()
    root = _root(run, work)
    try:
        while not root.done():
            # This must not be a task: a task would be counted as a branch of the run that called this one.
            run.state_changed = asyncio.get_running_loop().create_future()
            waiting = bool(run.stopping or run.suspensions)
            await asyncio.wait({root, run.state_changed}, timeout=_STILL if waiting else None, return_when=_FIRST)
            seen = run.activity
            await asyncio.wait({root}, timeout=_STILL if run.all_waiting else _IDLE)
            if not root.done() and run.idle and seen == run.activity and (run.stopping or run.suspensions):
                break
        await _let_others_finish(run)
        if run.stopping:
            raise RunStopped
        if run.suspended_in_plain_step or not root.done():
            run.unwound = True
            raise RunSuspended(None, "", False)
        if root.cancelled() and not _is_cancelled():
            raise RunError(
                "the task's own code cancelled the task",
                hint="catch asyncio.CancelledError where the task awaits cancelled work",
            )
        return root.result()
    finally:
        await _unwind(run, root)


_FIRST = asyncio.FIRST_COMPLETED
_PATIENCE = 30.0


def _is_cancelled() -> bool:
    """Whether the caller cancels this execution."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


async def _let_others_finish(run: RunContext) -> None:
    """Wait for branches inside a step, and for branches that have not yet reached their journaled steps. Their
    outcomes must be recorded, and may have to be undone."""
    until = time.monotonic() + _PATIENCE
    while not run.idle or (run.unmatched_steps() and run.tasks and time.monotonic() < until):
        if run.idle and run.waiting >= len(run.tasks):
            return  # all remaining branches wait
        await asyncio.sleep(_STILL)


def _root(run: RunContext, work: Callable[[], Any]) -> asyncio.Task[Any]:
    """Start the task's own coroutine. `RUN` is unset meanwhile, so that a parent run does not count it as a branch."""

    async def body() -> Any:
        RUN.set(run)
        STEP.set(None)
        BRANCH.set(run.trunk)
        return await work()

    token = RUN.set(None)
    try:
        return asyncio.get_running_loop().create_task(body())
    finally:
        RUN.reset(token)


async def _unwind(run: RunContext, root: asyncio.Task[Any]) -> None:
    """Cancel all branches that still run, and wait for them."""
    left = {task for task in (root, *run.tasks) if not task.done()}
    if not left:
        return
    run.unwinding = True
    for task in left:
        task.cancel()
    await asyncio.wait(left, timeout=10)


def _if_any(name: str, values: list[str]) -> dict[str, Any]:
    return {name: values} if values else {}


def _refuse_running_loop(task: Task[..., Any]) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidInput(
        f"the async task {shown(task.name)} was run with the sync API inside an event loop",
        hint="open the store with `await duramen.aopen(…)` and use `await dm.run(…)`",
    )


async def _on_thread(run: RunContext, work: Callable[[], Any]) -> Any:
    """Run a plain function on a new thread and await it. A cancellation takes effect at the next step: the lease
    must be held while the function still runs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(worked: bool, value: Any) -> None:
        if not future.done():
            future.set_result((worked, value))

    def body() -> None:
        try:
            outcome = (True, work())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            outcome = (False, error)
        loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=body, name="duramen-run", daemon=True).start()
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled, run.unwinding = error, True
    if cancelled is not None:
        raise cancelled
    worked, value = future.result()
    if worked:
        return value
    raise value
