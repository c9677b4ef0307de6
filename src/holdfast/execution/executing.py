"""One execution of a run, from its claim to its end, its next pause or its failure to go on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

from ..crashpoints import reach
from ..errors import HoldfastError, InvalidInput, RunError, StepsChanged, UnknownTask
from ..ports import LeaseRow, RunChange, RunRow
from ..runtime import Runtime, is_driven, on_a_loop
from .ambient import BRANCH, RUN, STEP
from .context import RunContext, Stop, Suspend
from .definitions import Kind, Task, same_code
from .faults import to_data
from .history import History
from .runs import ended, nudged, parked
from .stepping import compensate

if TYPE_CHECKING:
    from .engine import Engine

log = logging.getLogger("holdfast")


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
        try:
            value = await self._engine.invoking(run, given.get("args", ()), given.get("kwargs", {}))
            if run.broken is not None:
                raise run.broken
            if run.suspended and run.plain:
                return await self._park(run)
            if run.forgotten():
                raise StepsChanged(run.row.run, "its end", run.forgotten())
            return await self._finish(run, value)
        except Suspend:
            return await self._park(run)
        except Stop:
            await self._cancel(run)
        except (Exception, SystemExit) as error:  # a task that leaves the process by itself has failed
            if run.broken is not None:
                raise run.broken from (None if error is run.broken else error)
            if isinstance(error, StepsChanged):
                raise
            await self._fail(run, error)
            raise
        return None

    async def _finish(self, run: RunContext, value: Any) -> Finished:
        noted = run.note("run.finished", {} if value is None else {"value": value})
        await self._end(run, "done")
        return Finished(noted.data.get("value"))

    async def _fail(self, run: RunContext, error: Exception | SystemExit) -> None:
        stuck = await compensate(run)
        data: dict[str, Any] = {"error": to_data(error)}
        run.note("run.failed", data | _if_any("not_undone", stuck))
        await self._end(run, "failed")

    async def _cancel(self, run: RunContext) -> None:
        from .outside import Outside

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
        return await _on_thread(lambda: copy_context().run(plain))

    async def on_loop() -> Any:
        return await task.function(*args, **kwargs)

    if is_driven():
        with on_a_loop():
            return asyncio.run(supervise(run, on_loop))
    return await supervise(run, on_loop)


_STILL = 0.01


async def supervise(run: RunContext, work: Callable[[], Any]) -> Any:
    """Run an async task with all its branches, until it ends or every branch waits: then all are unwound."""
    run.enter()
    root = _root(run, work)
    assert run.stirred is not None
    try:
        while not root.done():
            stirred = asyncio.ensure_future(run.stirred.wait())
            await asyncio.wait({root, stirred}, return_when=asyncio.FIRST_COMPLETED)
            stirred.cancel()
            seen = run.activity
            await asyncio.wait({root}, timeout=_STILL)
            if root.done() or not run.quiet or seen != run.activity:
                continue
            if run.stopping or run.suspended:
                await _unwind(run, root)
                raise Stop if run.stopping else Suspend(None, "", False)
            run.stirred.clear()
        while not run.quiet:
            await asyncio.sleep(_STILL)  # other branches are inside steps: what they do is to be recorded
        return root.result()
    finally:
        await _unwind(run, root)


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
