"""One execution of a run, from its claim to its end, its next pause or its failure to go on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from ..crashpoints import reach
from ..errors import HoldfastError, InvalidInput, RunError, StepsChanged, UnknownTask
from ..ports import LeaseRow, RunChange, RunRow
from ..runtime import Runtime, is_driven, on_a_loop
from .ambient import RUN, STEP
from .context import RunContext, Stop, Suspend
from .definitions import Kind, Task, same_code
from .faults import to_data
from .history import History
from .runs import ended, nudged, parked
from .stepping import compensate

if TYPE_CHECKING:
    from .engine import Engine

log = logging.getLogger("holdfast")


class Execution:
    """The owner of a lease, at work."""

    def __init__(self, engine: Engine, row: RunRow, lease: LeaseRow, task: Task[..., Any] | None) -> None:
        self._engine = engine
        self._row = row
        self._lease = lease
        self._task = task
        self._released = False

    async def go(self) -> Suspend | None:
        """Execute the task as far as it goes. Says why it stopped, unless the run has ended."""
        try:
            history = await self._engine.history(self._row)
            if history.ended is not None:
                return None
            run = await self._context(history)
            with self._engine.keep(run):
                return await self._execute(run)
        finally:
            if not self._released:
                await self._give_back()

    async def _give_back(self) -> None:
        journal = self._engine.journal
        try:
            await journal.store.release(journal.workspace, self._row.session, self._lease.fence)
        except HoldfastError:
            log.debug("the lease on %s was not given back; it runs out by itself", self._row.session)

    async def _context(self, history: History) -> RunContext:
        row, task, journal = self._row, self._task, self._engine.journal
        if not history.input:
            raise RunError(f"the input of run {row.run!r} was erased with its subject", hint="start a new run")
        if task is None or task.name != row.task or task.version != row.version:
            raise UnknownTask(row.run, row.task, row.version)
        owner = await journal.owner(history.subject)
        fresh = await journal.store.run(journal.workspace, row.run) or row
        run = RunContext(self._engine, fresh, history, task, self._lease.fence, owner)
        if row.started is not None:
            run.note("run.resumed", {"owner": self._lease.owner, "fence": self._lease.fence})
        if not same_code(history.input.get("code"), task.code):
            log.warning("the code of task %s has changed since run %s was started", task.name, row.run)
            run.note("run.changed", {"was": history.input.get("code"), "is": task.code})
        return run

    async def _execute(self, run: RunContext) -> Suspend | None:
        given = run.history.input
        try:
            value = await self._engine.invoking(run, given.get("args", ()), given.get("kwargs", {}))
            await run.drain()
            if run.suspended:
                return await self._park(run)
            if run.forgotten() and run.broken is None:
                raise StepsChanged(run.row.run, "its end", run.forgotten())
            await self._finish(run, value)
        except Suspend:
            await run.drain()
            return await self._park(run)
        except Stop:
            await run.drain()
            await self._cancel(run)
        except Exception as error:
            await run.drain()
            if run.broken is not None:
                raise run.broken from (None if error is run.broken else error)
            if isinstance(error, StepsChanged):
                raise
            await self._fail(run, error)
            raise
        return None

    async def _finish(self, run: RunContext, value: Any) -> None:
        run.note("run.finished", {} if value is None else {"value": value})
        await self._end(run, "done")

    async def _fail(self, run: RunContext, error: Exception) -> None:
        stuck = await compensate(run)
        data: dict[str, Any] = {"error": to_data(error)}
        run.note("run.failed", data | ({"not_undone": stuck} if stuck else {}))
        await self._end(run, "failed")

    async def _cancel(self, run: RunContext) -> None:
        from .outside import Outside

        for record in list(run.history.steps.values()):
            child = record.details.get("child") or (record.value if record.step.startswith("@start") else None)
            if child is not None:
                await Outside(self._engine).cancel(child, run.history.cancelling or None, f"run {run.row.run}")
        stuck = await compensate(run)
        data: dict[str, Any] = {"reason": run.history.cancelling} if run.history.cancelling else {}
        run.note("run.cancelled", data | ({"not_undone": stuck} if stuck else {}))
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
            run.enter()
            return task.function(*args, **kwargs)

        if is_driven() or not runtime.looping:
            return copy_context().run(plain)
        return await _on_thread(lambda: copy_context().run(plain))

    async def on_loop() -> Any:
        RUN.set(run)
        STEP.set(None)
        run.enter()
        return await task.function(*args, **kwargs)

    if is_driven():
        _refuse_running_loop(task)
        with on_a_loop():
            return asyncio.run(_unwrapped(on_loop))
    return await asyncio.create_task(on_loop())


async def _unwrapped(work: Callable[[], Any]) -> Any:
    return await work()


def _refuse_running_loop(task: Task[..., Any]) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidInput(
        f"the async task {task.name!r} cannot be run blocking inside an event loop",
        hint="open the store with `await holdfast.aopen(…)` and await hf.run(…)",
    )


async def _on_thread(work: Callable[[], Any]) -> Any:
    """Plain work on a thread of its own, beside the loop."""
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

    threading.Thread(target=body, name="holdfast-run", daemon=True).start()
    worked, value = await future
    if worked:
        return value
    raise value
