"""Starts, claims and executes runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from ...checkpoints.state import StateCheckpoints
from ...crash_points import reach
from ...errors import InvalidInput, RunCancelled, RunError, RunFailed, RunParked, StepFailed, UnknownRun, shown
from ...journal.events import LARGEST, Draft, Event, check_name, check_seconds, check_whole
from ...journal.journal import Journal
from ...journal.reader import PAGE
from ...ports import LeaseRow, Limits, Record, RunRow
from ...runtime import Runtime
from ..steps.definitions import Task, check_task, known_task
from ..steps.error_data import error_from_data
from .control_flow import RunSuspended
from .execution import Execution, Finished
from .heartbeat import Heartbeat
from .history import History
from .owner import is_dead, new_owner
from .run_control import RunControl
from .run_info import created


class Engine:
    """Executes the runs of one workspace, for one handle."""

    def __init__(self, journal: Journal, runtime: Runtime, states: StateCheckpoints) -> None:
        self.journal = journal
        self.states = states
        self.lease_seconds = 30.0
        self.patience = 5.0
        """The longest wait, in seconds, during which a run keeps its thread. A longer wait suspends the run."""
        self.runtime = runtime
        self._owner = new_owner()
        self._claims = itertools.count(1)
        self.heartbeat = Heartbeat(self)
        self.control = RunControl(self)

    def now(self) -> int:
        return self.journal.clock.now()

    def close(self) -> None:
        """Stop the heartbeat thread."""
        self.heartbeat.close()

    # -- starting

    async def start(
        self,
        task: Task[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        run: str,
        session: str | None = None,
        parent: str | None = None,
        subject: str | None = None,
        queue: str | None = None,
        queue_key: str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        cause: str | None = None,
        fresh: bool = False,
    ) -> Started:
        """Create a run and journal its first event. If a run with this id exists, return it unchanged.

        `fresh` skips the lookup: the caller has just generated the id.
        Raises `InvalidInput` if the existing run belongs to another task.
        """
        check_task(task)
        run = check_name("run", run)
        known = None if fresh else await self.journal.store.run(self.journal.workspace, run)
        if known is None:
            row, draft = self._opening(task, args, kwargs, run, session, parent, queue, queue_key, priority, delay)
            draft = Draft(draft.type, draft.data, cause=cause)
            owner = await self.journal.owner(subject)
            prepared = self.journal.prepare(draft, owner)
            done = await self.journal.append_prepared(
                row.session, [prepared], owner, key=f"run.started:{run}", changes=[created(row)]
            )
            reach("run.started")
            if not done.repeated:
                return Started(row, _beginning(row.session, done.records[0], owner.name, prepared.data))
            known = await self.journal.store.run(self.journal.workspace, run)
        if known is None:
            raise UnknownRun(run)
        if known.task != task.name:
            raise InvalidInput(
                f"run {shown(run)} exists and belongs to task {shown(known.task)}, not {shown(task.name)}",
                hint="choose another id for the new run",
            )
        return Started(known, None)

    def _opening(
        self,
        task: Task[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        run: str,
        session: str | None,
        parent: str | None,
        queue: str | None,
        queue_key: str | None,
        priority: int,
        delay: float,
    ) -> tuple[RunRow, Draft]:
        now = self.now()
        wake = now + int(check_seconds("delay", delay) * 1e6)
        session = run if session is None else check_name("session", session)
        queue = None if queue is None else check_name("queue", queue)
        queue_key = None if queue_key is None else check_name("queue_key", queue_key)
        if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
            raise InvalidInput(
                f"`kwargs` cannot be {shown(kwargs)}", hint="give a dict of the task's arguments by name"
            )
        data: dict[str, Any] = {"run": run, "task": task.name, "code": task.code, "args": list(args), "kwargs": kwargs}
        extra = {"version": task.version, "parent": parent, "queue": queue, "queue_key": queue_key}
        data |= {name: value for name, value in extra.items() if value is not None}
        if task.deadline is not None:
            data["deadline"] = wake + int(task.deadline * 1e6)
        row = RunRow(
            run, session, task.name, task.version, "open", None, wake, now, None, now, None, parent, queue,
            queue_key, check_whole("priority", priority, -LARGEST, LARGEST), 0, 0,
        )  # fmt: skip
        if session.startswith(("state:", "schedule:")):
            raise InvalidInput(
                f"the session of a run cannot be {shown(session)}",
                hint="choose an id without the reserved prefixes state: and schedule:",
            )
        return row, Draft("run.started", data)

    # -- claiming and executing

    async def claim(self, run: str, limits: Limits | None = None, only_due: bool = False) -> LeaseRow | None:
        """Take the lease of a run. Returns None if another live process holds it, or if the store refuses the claim.

        If the current owner is known to be dead, its lease is released first.
        """
        store, workspace = self.journal.store, self.journal.workspace
        for _ in range(2):
            now, owner = self.now(), f"{self._owner}.{next(self._claims)}"
            expires = now + int(self.lease_seconds * 1e6)
            lease = await store.claim(workspace, run, owner, now, expires, limits, only_due)
            if lease is not None:
                reach("run.claimed")
                return lease
            row = await store.run(workspace, run)
            held = await store.lease(workspace, row.session) if row is not None and row.status == "open" else None
            if row is None or held is None or held.expires <= now or not is_dead(held.owner):
                return None
            await store.release(workspace, row.session, held.fence)
        return None

    async def attempt(
        self, run: str, task: Task[..., Any] | None, started: Started | None = None
    ) -> RunSuspended | Finished | None:
        """Execute a run until it ends or has to wait, unless another process executes it.

        Returns its result, or why it waits. Returns None if it was cancelled or had already ended. Raises the error
        that the run failed with, or the error that prevented its execution.
        """
        row, history = started or (await self.row(run), None)
        lease = await self.claim(run)
        if lease is None:
            row = await self.row(run)
            return (
                RunSuspended(None, row.waiting or "another process to execute it", False)
                if row.status == "open"
                else None
            )
        if lease.fence > 1 and history is not None:
            row, history = await self.row(run), None  # another process may have executed it since
        return await Execution(self, row, lease, task or known_task(row.task, row.version), history).execute()

    async def row(self, run: str) -> RunRow:
        """The run's row. Raises `UnknownRun` if there is none."""
        row = await self.journal.store.run(self.journal.workspace, check_name("run", run))
        if row is None:
            raise UnknownRun(run)
        return row

    async def history(self, row: RunRow, at: int | None = None) -> History:
        """The history of a run, up to the position `at`."""
        at = None if at is None else check_whole("at", at, 0)
        history, start = History(), await self.origin(row)
        async with aclosing(self.journal.reader.pages(row.session, start, at, None, PAGE)) as pages:
            async for page in pages:
                for event in page:
                    history.add(event)
                    if history.ended is event and row.ended is not None and event.session == row.session:
                        return history
        return history

    async def origin(self, row: RunRow) -> int:
        """The position of the run's first event."""
        find = self.journal.store.find
        start = row.origin or await find(self.journal.workspace, row.session, f"run.started:{row.run}")
        if start is None:
            raise RunError(
                f"the first event of run {shown(row.run)} is missing in session {shown(row.session)}",
                hint="run `duramen verify`",
            )
        return start

    async def subject_of(self, run: str) -> str | None:
        """The subject of a run; None if the run has none or does not exist."""
        row = await self.journal.store.run(self.journal.workspace, run)
        return None if row is None else (await self.opening(row)).subject

    async def opening(self, row: RunRow) -> Event:
        """The first event of a run."""
        start = await self.origin(row)
        return (await self.journal.reader.events(row.session, start, start, None))[0]

    # -- outcomes

    async def outcome(self, run: str) -> Event | None:
        """The event that ended a run; None while it is open."""
        row = await self.row(run)
        if row.status == "open":
            return None
        position = await self.journal.store.find(self.journal.workspace, row.session, f"run.ended:{run}")
        async with aclosing(self.journal.reader.pages(row.session, position or 1, None, ENDINGS, PAGE)) as pages:
            async for page in pages:
                if page:
                    return page[0]
        raise RunError(
            f"the last event of run {shown(run)} is missing in session {shown(row.session)}",
            hint="run `duramen verify`",
        )

    async def result(self, run: str, task: Task[..., Any] | None, started: Started | None = None) -> Any:
        """The result of a run. Executes the run, or waits while it sleeps or another process executes it.

        Raises the error that the run failed with, or `RunParked` if it waits for a person or a signal.
        """
        if task is not None:
            check_task(task)
        while True:
            mark = await self.journal.store.mark(runs=True)
            if started is None or started.history is None:
                ended = await self.outcome(run)
                if ended is not None:
                    return result_of(run, ended)
            found = await self.attempt(run, task, started)
            started = None
            if isinstance(found, Finished):
                return found.value
            if found is not None:
                if found.external:
                    raise RunParked(run, found.waiting)
                await self._until_due(run, mark)

    async def _until_due(self, run: str, mark: Any) -> None:
        """Wait until a run is due or has ended. Always waits for one change, or for up to a second."""
        while True:
            row = await self.row(run)
            await self._wait(mark, row.wake, None, run)
            mark = await self.journal.store.mark(runs=True)
            row = await self.row(run)
            if row.status != "open" or (row.wake is not None and row.wake <= self.now()):
                return

    async def waited(self, run: str, timeout: float | None) -> Any:
        """The result of a run that another process executes. Raises `TimeoutError` after `timeout` seconds."""
        until = None if timeout is None else self.now() + int(check_seconds("timeout", timeout) * 1e6)
        while True:
            mark = await self.journal.store.mark(runs=True)
            ended = await self.outcome(run)
            if ended is not None:
                return result_of(run, ended)
            await self._wait(mark, None, until, run)

    async def _wait(self, mark: Any, due: int | None, until: int | None, run: str) -> None:
        now = self.now()
        if until is not None and now >= until:
            raise TimeoutError(f"run {shown(run)} did not end before the timeout")
        ends = [end - now for end in (due, until) if end is not None]
        await self.journal.store.changed(mark, max(0.0, min(1.0, *(end / 1e6 for end in ends), 1.0)))


class Started(NamedTuple):
    """A run that was started. `history` is set if this call created the run."""

    row: RunRow
    history: History | None


def _beginning(session: str, record: Record, subject: str | None, data: Any) -> History:
    position, kind, time, actor, cause, key, _, _, _, stored = record
    return History.of([Event(session, position, kind, time, actor, cause, key, subject, data, stored)])


ENDINGS = frozenset({"run.finished", "run.failed", "run.cancelled"})


def result_of(run: str, ended: Event) -> Any:
    """The result that a run's last event holds. Raises the error if the run failed or was cancelled."""
    if ended.erased:
        raise RunError(f"the result of run {shown(run)} was erased with its subject")
    if ended.type == "run.finished":
        return ended.data.get("value")
    if ended.type == "run.cancelled":
        raise RunCancelled(run, ended.data.get("reason"))
    error = error_from_data(ended.data["error"])
    raise RunFailed(run, error.kind, ended.data["error"]["message"]) if isinstance(error, StepFailed) else error
