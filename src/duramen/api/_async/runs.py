"""Runs, asynchronously: what a handle can do with tasks. The implementation behind both faces."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict, Unpack

from ...checkpoints.state import StateCheckpoints
from ...errors import InvalidInput
from ...execution.engine.engine import Engine
from ...execution.engine.run_control import Verdict
from ...execution.engine.run_info import RunInfo, RunStatus
from ...execution.steps.definitions import Task
from ...execution.waits.shared_state import AsyncSharedState
from ...execution.workers.schedules import Schedule
from ...execution.workers.worker import Queue, Worker
from ...journal.journal import Journal
from ...ports import RunQuery
from ...runtime import Runtime

OPEN = {RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.CRASHED, RunStatus.SLEEPING, RunStatus.WAITING}


class StartOptions(TypedDict, total=False):
    """What `start` takes beside the task and its positional arguments.

    id          the run's name: a second start under it changes nothing (random)
    kwargs      keyword arguments of the task
    session     the session whose journal the run is written to (one of its own)
    subject     the person whom the run is about, whose erasure removes its data
    queue       the queue whose limits hold for it; only workers that serve the queue take it up
    queue_key   the key in the queue, such as a customer
    priority    higher ones are taken up first (0)
    delay       seconds before it may be taken up (0)
    """

    id: str
    kwargs: dict[str, Any]
    session: str
    subject: str
    queue: str
    queue_key: str
    priority: int
    delay: float


class RunFilter(TypedDict, total=False):
    """Which runs to list: by `status` (one or several), `task`, `queue`, `parent` and `session`; at most `limit`."""

    status: str | Iterable[str]
    task: str
    queue: str
    parent: str
    session: str
    limit: int


class WorkOptions(TypedDict, total=False):
    """What a worker takes beside its tasks.

    concurrency     runs at the same time (8 threads; 64 on an event loop)
    queues          the queues that it serves, with their limits
    schedules       recurring work
    until_idle      return when nothing is due any more (False: serve until stopped)
    """

    concurrency: int
    queues: Sequence[Queue]
    schedules: Sequence[Schedule]
    until_idle: bool


class AsyncRuns:
    """The part of a handle that executes tasks."""

    def __init__(self, journal: Journal, runtime: Runtime, states: StateCheckpoints) -> None:
        self._journal = journal
        self._looping = runtime.looping
        self._engine = Engine(journal, runtime, states)
        self._outside = self._engine.control
        self._workers: list[Worker] = []

    async def run(
        self,
        task: Task[..., Any],
        /,
        *args: Any,
        id: str | None = None,
        session: str | None = None,
        subject: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Start a run, or resume it, or return its result: whatever its id needs. Without `id` it is a new one.

        Raises what the task raised, `RunParked` if it waits for somebody, `RunCancelled` if it was cancelled.
        """
        run = id if id is not None else self._new_id(task)
        started = await self._engine.start(
            task, args, kwargs, run=run, session=session, subject=subject, fresh=id is None
        )
        return await self._engine.result(run, task, started)

    def _new_id(self, task: Task[..., Any]) -> str:
        return f"{getattr(task, 'name', 'run')[:200]}-{self._journal.ids.random(8).hex()}"

    async def start(self, task: Task[..., Any], /, *args: Any, **options: Unpack[StartOptions]) -> AsyncRunHandle:
        """Journal that a run shall begin and return at once; a worker (`work`) takes it up. See `StartOptions`."""
        _expect(options, StartOptions, "start")
        run = options.get("id") or self._new_id(task)
        if options.get("queue_key") is not None and options.get("queue") is None:
            raise InvalidInput("a queue_key needs a queue", hint="say queue= as well")
        await self._engine.start(
            task,
            args,
            options.get("kwargs", {}),
            run=run,
            session=options.get("session"),
            subject=options.get("subject"),
            queue=options.get("queue"),
            queue_key=options.get("queue_key"),
            priority=options.get("priority", 0),
            delay=options.get("delay", 0.0),
        )
        return AsyncRunHandle(self, run)

    async def resume(self, id: str, task: Task[..., Any] | None = None) -> Any:
        """Go on with a run and return its result. Its task is found by name if it is declared in this process."""
        return await self._engine.result(id, task)

    def handle(self, id: str) -> AsyncRunHandle:
        """A handle on a run by id."""
        return AsyncRunHandle(self, id)

    async def runs(self, **wanted: Unpack[RunFilter]) -> list[RunInfo]:
        """Runs, newest first. See `RunFilter`."""
        _expect(wanted, RunFilter, "runs")
        statuses, limit = _statuses(wanted.get("status")), wanted.get("limit", 100)
        stored = None if statuses is None else tuple({"open" if one in OPEN else one.value for one in statuses})
        found: list[RunInfo] = []
        before: tuple[int, str] | None = None
        while len(found) < limit:
            page = await self._outside.runs(
                RunQuery(before=before, limit=max(limit, 100), status=stored, **_plain(wanted))
            )
            found += [one for one in page if statuses is None or one.status in statuses]
            if len(page) < max(limit, 100):
                break
            last = (_micros(page[-1].created), page[-1].id)
            if before is not None and last >= before:
                break
            before = last
        return found[:limit]

    async def run_info(self, id: str, *, at: int | None = None) -> RunInfo:
        """A run with its steps and what is in doubt; as it stood at a position of its session, if one is given."""
        return await self._outside.info(id, at)

    async def signal(
        self, id: str, name: str, payload: Any = None, *, actor: str | None = None, key: str | None = None
    ) -> None:
        """Send a signal to an open run; it is kept until the run receives it. With a `key` it can be sent again."""
        await self._outside.signal(id, name, payload, actor, key)

    async def answer(self, id: str, value: Any, *, question: str | None = None, actor: str | None = None) -> None:
        """Answer what a run has asked with `duramen.ask`: its first open question, or the one of that text."""
        await self._outside.answer(id, value, question, actor)

    async def settle(
        self, id: str, verdict: Verdict, value: Any = None, *, step: str | None = None, actor: str | None = None
    ) -> None:
        """Say what became of a step in doubt: "done" (with its result), "retry" or "abort"."""
        await self._outside.settle(id, verdict, value, step, actor)

    async def cancel(self, id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Stop a run at its next step; what it declared is undone. One that has ended stays as it is."""
        await self._outside.cancel(id, reason, actor)

    async def fork_run(self, id: str, new: str, *, at: int | None = None) -> AsyncRunHandle:
        """A new run that shares another's journal up to the position `at` (the end, if not given) and goes on from
        there by itself. `resume` it, or let a worker take it up."""
        await self._outside.fork(id, new, at)
        return AsyncRunHandle(self, new)

    async def replay(self, id: str, task: Task[..., Any] | None = None, *, at: int | None = None) -> Any:
        """Call a run's task again with all outcomes from the journal: nothing acts, nothing is written."""
        return await self._outside.replay(id, task, at)

    async def work(self, tasks: Iterable[Task[..., Any]], **options: Unpack[WorkOptions]) -> int:
        """Take up runs of these tasks until `stop_working` is called; see `WorkOptions`. Says how many executions
        there were."""
        _expect(options, WorkOptions, "serve")
        concurrency = options.get("concurrency", 64 if self._looping else 8)
        if not isinstance(concurrency, int) or concurrency < 1:
            raise InvalidInput(f"{concurrency!r} cannot be `concurrency`", hint="give a whole number from 1")
        worker = Worker(
            self._engine,
            tasks,
            concurrency=concurrency,
            queues=options.get("queues", ()),
            schedules=options.get("schedules", ()),
            until_idle=options.get("until_idle", False),
        )
        self._workers.append(worker)
        try:
            return await worker.work()
        finally:
            self._workers.remove(worker)

    def stop_working(self) -> None:
        """Let every `work` of this handle return once what it executes has ended. Call it from anywhere."""
        for worker in self._workers:
            worker.stop()

    def state(self, key: str) -> AsyncSharedState:
        """State that several agents share."""
        return AsyncSharedState(self._journal, key)

    def _close_runs(self) -> None:
        self.stop_working()
        self._engine.close()


class AsyncRunHandle:
    """A run that was started."""

    def __init__(self, runs: AsyncRuns, id: str) -> None:
        self._runs = runs
        self.id = id

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for its end, which somebody else brings about; TimeoutError after so many seconds."""
        return await self._runs._engine.waited(self.id, timeout)

    async def info(self) -> RunInfo:
        """How it stands."""
        return await self._runs.run_info(self.id)

    async def signal(self, name: str, payload: Any = None, *, key: str | None = None) -> None:
        """Send it a signal."""
        await self._runs.signal(self.id, name, payload, key=key)

    async def answer(self, value: Any) -> None:
        """Answer its question."""
        await self._runs.answer(self.id, value)

    async def cancel(self, reason: str | None = None) -> None:
        """Stop it."""
        await self._runs.cancel(self.id, reason)


def _expect(options: Any, known: Any, what: str) -> None:
    unknown = sorted(set(options) - known.__annotations__.keys())
    if unknown:
        raise InvalidInput(
            f"{unknown[0]!r} is no option of {what}", hint=f"known are: {', '.join(sorted(known.__annotations__))}"
        )


def _plain(wanted: RunFilter) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if name in ("task", "queue", "parent", "session")}


def _statuses(wanted: str | Iterable[str] | None) -> set[RunStatus] | None:
    if wanted is None:
        return None
    try:
        return {RunStatus(one) for one in ([wanted] if isinstance(wanted, str) else wanted)}
    except ValueError as error:
        raise InvalidInput(f"{error}", hint=f"one of {', '.join(RunStatus)}") from error


def _micros(when: dt.datetime) -> int:
    return (when - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
