"""One execution of a run, from its claim to its end, its next pause or its failure to go on."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

from ...crash_points import reach
from ...errors import DuramenError, InvalidInput, RunError, StepsChanged, UnknownTask
from ...ports import LeaseRow, RunChange, RunRow
from ...runtime import Runtime, is_driven, suspension_allowed
from ..steps.definitions import Kind, Task, same_code
from ..steps.faults import from_data, to_data
from ..steps.step_runner import compensate
from ..waits.current_run import BRANCH, RUN, STEP
from .control_flow import Stop, Suspend
from .history import History
from .run_context import RunContext
from .run_info import ended, nudged, parked

if TYPE_CHECKING:
    from .engine import Engine

log = logging.getLogger("duramen")


class Finished(NamedTuple):
    """A run that has ended well, and its result."""

    value: Any


class Execution:
    """The owner of a lease, at work. `row` was read before the claim: what happened since is looked at again."""

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

    async def go(self) -> Suspend | Finished | None:
        """Execute the task as far as it goes. Says what it gave or why it stopped, unless it ended otherwise."""
        try:
            history = self._history or await self._engine.history(self._row)
            if history.ended is not None:
                return None
            run = await self._context(history)
            with self._engine.keep(run):
                try:
                    return await self._execute(run)
                finally:
                    await self._save(run)
        finally:
            if not self._released:
                await self._give_back()

    async def _save(self, run: RunContext) -> None:
        """Write what waits, if the task left in a way of its own: what is done should not be in doubt."""
        if run.pending and run.broken is None and not self._released:
            try:
                await run.flush()
            except DuramenError:
                log.debug("the last outcomes of run %s were not written", run.row.run)

    async def _give_back(self) -> None:
        journal = self._engine.journal
        try:
            await journal.store.release(journal.workspace, self._row.session, self._lease.fence)
        except DuramenError:
            log.debug("the lease on %s was not given back; it runs out by itself", self._row.session)

    async def _context(self, history: History) -> RunContext:
        row, task, journal = self._row, self._task, self._engine.journal
        if not history.input:
            raise RunError(f"the input of run {row.run!r} was erased with its subject", hint="start a new run")
        if task is None or task.name != row.task or task.version != row.version:
            raise UnknownTask(row.run, row.task, row.version)
        if task.kind is Kind.ASYNC and is_driven():
            _refuse_running_loop(task)
        owner = await journal.owner(history.subject)
        run = RunContext(self._engine, row, history, task, self._lease.fence, owner)
        if row.started is not None:
            run.note("run.resumed", {"owner": self._lease.owner, "fence": self._lease.fence})
        if not same_code(history.input.get("code"), task.code):
            log.warning("the code of task %s has changed since run %s was started", task.name, row.run)
            run.note("run.changed", {"was": history.input.get("code"), "is": task.code})
        return run

    async def _execute(self, run: RunContext) -> Suspend | Finished | None:
        given = run.history.input
        error: BaseException | None = None
        value: Any = None
        try:
            value = await self._engine.invoking(run, given.get("args", ()), given.get("kwargs", {}))
        except (Suspend, Stop):
            pass
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - raised again below, unless the run only waits
            error = raised
        if run.broken is not None:
            raise run.broken from (None if error is run.broken else error)
        if run.stopping or run.suspended_for_good:
            if error is not None:
                log.warning("run %s raised %r while it was unwound", run.row.run, error)
            return await self._stopped(run)
        if run.forgotten():
            raise StepsChanged(run.row.run, "its end", run.forgotten()) from error
        if error is not None:
            await self._fail(run, error)
            raise error
        return await self._finish(run, value)

    async def _stopped(self, run: RunContext) -> Suspend | None:
        if not run.stopping:
            return await self._park(run)
        if run.forgotten():
            raise StepsChanged(run.row.run, "its cancellation", run.forgotten())
        if run.history.failing is not None:  # it had failed, and was stopped while it undid what it had done
            error = from_data(run.history.failing)
            await self._fail(run, error)
            raise error
        await self._cancel(run)
        return None

    async def _finish(self, run: RunContext, value: Any) -> Finished:
        noted = run.note("run.finished", {} if value is None else {"value": value})
        await self._end(run, "done")
        return Finished(noted.data.get("value"))

    async def _fail(self, run: RunContext, error: BaseException) -> None:
        data: dict[str, Any] = {"error": run.history.failing or to_data(error)}
        if run.undoable and run.history.failing is None:
            run.note("run.failing", data)
        stuck = await compensate(run)
        run.note("run.failed", data | _if_any("not_undone", stuck))
        await self._end(run, "failed")

    async def _cancel(self, run: RunContext) -> None:
        from .run_control import Outside

        for child in dict.fromkeys(run.children):
            if await self._engine.journal.store.run(self._engine.journal.workspace, child) is not None:
                await Outside(self._engine).cancel(child, run.history.cancelling or None, f"run {run.row.run}")
        stuck = await compensate(run)
        data: dict[str, Any] = {"reason": run.history.cancelling} if run.history.cancelling else {}
        doubt = [one.step for one in run.history.in_doubt()]
        run.note("run.cancelled", data | _if_any("not_undone", stuck) | _if_any("in_doubt", doubt))
        await self._end(run, "cancelled")

    async def _end(self, run: RunContext, status: str) -> None:
        now = run.now()
        changes: list[RunChange] = [ended(run.row.run, status, now)]
        if run.row.parent is not None:
            changes.append(nudged(run.row.parent, now))
        await run.flush(key=f"run.ended:{run.row.run}", changes=changes, release=True)
        self._released = True
        reach("run.ended")

    async def _park(self, run: RunContext) -> Suspend:
        if run.broken is not None:
            raise run.broken
        reasons = run.suspended
        times = [one.due for one in reasons if one.due is not None]
        if run.deadline is not None:
            times.append(run.deadline)
        due = min(times, default=None)
        waiting = "; ".join(dict.fromkeys(one.waiting for one in reasons))
        run.note("run.parked", {"waiting": waiting} | ({"due": due} if due is not None else {}))
        change = parked(run.row.run, due, waiting, run.nudges, run.now())
        await run.flush(changes=[change], release=True)
        self._released = True
        reach("run.parked")
        return Suspend(due, waiting, any(one.outside for one in reasons))


async def invoke(runtime: Runtime, run: RunContext, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a run's task: in place, on a thread beside the loop, or on a loop of its own."""
    task = run.task
    if task.kind is Kind.PLAIN:

        def plain() -> Any:
            RUN.set(run)
            STEP.set(None)
            BRANCH.set(run.trunk)
            run.enter()
            return task.function(*args, **kwargs)

        if is_driven() or not runtime.looping:
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
"""Seconds without a step after which a line that is neither in a step nor in a wait is not waited for any longer."""


async def supervise(run: RunContext, work: Callable[[], Any]) -> Any:
    """Run an async task with all its branches, until it ends or every branch waits: then all are unwound."""
    run.enter()
    root = _root(run, work)
    try:
        while not root.done():
            # A future, not a task: a task would be counted as a branch of the run that called this one.
            run.stirred = asyncio.get_running_loop().create_future()
            waiting = bool(run.stopping or run.suspended)
            await asyncio.wait({root, run.stirred}, timeout=_STILL if waiting else None, return_when=_FIRST)
            seen = run.activity
            await asyncio.wait({root}, timeout=_STILL if run.all_wait else _IDLE)
            if not root.done() and run.quiet and seen == run.activity and (run.stopping or run.suspended):
                break
        await _let_others_finish(run)
        if run.stopping:
            raise Stop
        if run.driven_wait or not root.done():
            run.unwound = True
            raise Suspend(None, "", False)
        if root.cancelled() and not _is_cancelled():
            raise RunError(
                "the task was cancelled by its own code", hint="catch asyncio.CancelledError where it awaits"
            )
        return root.result()
    finally:
        await _unwind(run, root)


_FIRST = asyncio.FIRST_COMPLETED
_PATIENCE = 30.0


def _is_cancelled() -> bool:
    """Whether somebody cancels what is being executed here."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


async def _let_others_finish(run: RunContext) -> None:
    """Let branches that are inside steps come to their end, and those that have not come to what the journal knows of
    them come there: what they did is to be recorded, and perhaps to be undone."""
    until = time.monotonic() + _PATIENCE
    while not run.quiet or (run.forgotten() and run.tasks and time.monotonic() < until):
        if run.quiet and run.waiting >= len(run.tasks):
            return  # all that are left wait
        await asyncio.sleep(_STILL)


def _root(run: RunContext, work: Callable[[], Any]) -> asyncio.Task[Any]:
    """The task's own coroutine: no branch of the run that may have called it."""

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
    """End all branches, and wait for it."""
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
        f"the async task {task.name!r} cannot be run blocking inside an event loop",
        hint="open the store with `await duramen.aopen(…)` and await dm.run(…)",
    )


async def _on_thread(run: RunContext, work: Callable[[], Any]) -> Any:
    """Plain work on a thread of its own, beside the loop. Whoever cancels it waits until it has come to its next step:
    a run that is still being executed must stay owned."""
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
