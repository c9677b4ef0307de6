"""A handle on a workspace: its sessions, runs, memory and files. Start reading here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from ...context.episode_policy import EpisodePolicy
from ...context.services import Services
from ...context.window.settings import Window
from ...errors import InvalidInput, shown
from ...execution.engine.engine import Engine
from ...execution.engine.run_control import Verdict
from ...execution.engine.run_info import RunInfo
from ...execution.engine.run_listing import list_runs, open_work
from ...execution.engine.run_outline import outline_run
from ...execution.steps.definitions import Task, check_task
from ...execution.workers.worker import Worker
from ...journal.events import check_name, check_whole
from ...journal.journal import ErasureReport, Journal
from ...journal.sealing import KeySource
from ...journal.verification import Verification
from ...memory.loader import MemoryLoader, MemorySettings
from ...ports import Outlet, SessionRow
from ...runtime import Runtime, run_blocking
from ..options import RunFilter, StartOptions, WorkOptions, check_options
from .files import AsyncFiles
from .memories import AsyncMemories
from .run_handle import AsyncRunHandle
from .session import AsyncSession
from .shared_state import AsyncSharedState


class AsyncDuramen:
    """A handle on one workspace of a store, from `duramen.open` or `duramen.aopen`.

    It can be shared between threads and tasks. Close it at the end, or use it with `async with`.
    """

    def __init__(
        self,
        journal: Journal,
        runtime: Runtime,
        window: Window | None = None,
        episodes: EpisodePolicy | None = None,
        memory: MemorySettings | None = None,
    ) -> None:
        self._journal = journal
        self._looping = runtime.looping
        memory = memory or MemorySettings()
        self._services = Services(journal, window or Window(), episodes or EpisodePolicy(), memory.suspicious)
        self._engine = Engine(journal, runtime, self._services.states)
        self._control = self._engine.control
        self._workers: list[Worker] = []
        self._memory = MemoryLoader(journal, memory)
        self.memory = AsyncMemories(journal, self._memory, lambda run: outline_run(self._engine, run))
        """The long-term memory of the workspace."""

    @property
    def workspace(self) -> str:
        """The workspace (tenant) of this handle."""
        return self._journal.workspace

    # -- sessions

    def session(self, session: str, *, continues: str | None = None) -> AsyncSession:
        """Return a session by id. Nothing is stored until the first append.

        Args:
            session: the id, 1 to 512 characters.
            continues: the id of an older session. The new session begins with the hand-off of that one: its progress,
                open questions, recent decisions and steps in doubt.
        """
        session = check_name("session", session)
        if continues is not None and check_name("session", continues) == session:
            raise InvalidInput(
                f"session {shown(session)} cannot continue itself", hint="give the id of an older session"
            )
        self._services.load()
        return AsyncSession(self._journal, session, self._services, self._memory, self._open_work, continues)

    async def _open_work(self, session: str) -> tuple[list[str], list[str]]:
        """The open questions and the steps in doubt of the runs of a session and of the sessions that it continues."""
        sessions = await self._services.progress.chain(session)
        return await open_work(self._engine, self._control, sessions)

    async def fork(self, session: str, new: str, *, at: int | None = None) -> AsyncSession:
        """Create a session that shares the events of another one up to a position, and return it.

        Its journal, state, context and progress are those of the other session at that position. The other session
        does not change.

        Args:
            session: the session to fork.
            new: the id of the new session.
            at: the last shared position. Default: the end.

        Raises:
            SessionExists: a session with the id `new` exists.
        """
        return await self.session(session).fork(new, at=at)

    def sessions(self) -> AsyncGenerator[SessionRow, None]:
        """Iterate over all sessions of the workspace, ordered by id."""
        return self._journal.sessions()

    # -- runs

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
        """Execute a task as a run and return its result.

        If a run with this id exists, it is resumed; if it has ended, its result is returned. While another process
        executes the run, or the run sleeps, the call waits.

        Args:
            task: a function decorated with `@duramen.task`.
            *args: positional arguments of the task.
            id: the id of the run. Default: a new random id.
            session: the session that the run is journaled in. Default: a session with the id of the run.
            subject: the person that the run is about. `erase` removes the data of the run.
            **kwargs: keyword arguments of the task.

        Raises:
            RunParked: the run waits for an answer, a signal or a decision about a step in doubt.
            RunCancelled: the run was cancelled.
            RunFailed: the task failed in an earlier process, and its error class is not importable here.
            Exception: the error that the task raised.
        """
        run = id if id is not None else self._new_id(task)
        started = await self._engine.start(
            task, args, kwargs, run=run, session=session, subject=subject, fresh=id is None
        )
        return await self._engine.result(run, task, started)

    def _new_id(self, task: Task[..., Any]) -> str:
        return f"{check_task(task).name[:200]}-{self._journal.ids.random(8).hex()}"

    async def start(self, task: Task[..., Any], /, *args: Any, **options: Unpack[StartOptions]) -> AsyncRunHandle:
        """Start a run and return a handle at once. A worker executes the run: see `work`.

        Args:
            task: a function decorated with `@duramen.task`.
            *args: positional arguments of the task.
            **options: see `StartOptions`. Keyword arguments of the task go into `kwargs`.
        """
        check_options("start", options, StartOptions)
        id = options.get("id")
        run = self._new_id(task) if id is None else check_name("run", id)
        if options.get("queue_key") is not None and options.get("queue") is None:
            raise InvalidInput("start() got a queue_key without a queue", hint="give queue= as well")
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
        return self.handle(run)

    async def resume(self, id: str, task: Task[..., Any] | None = None) -> Any:
        """Continue a run and return its result, as `run` does.

        Args:
            id: the id of the run.
            task: its task. Default: the task of the same name and version that this process has declared.

        Raises:
            UnknownRun: there is no run with this id.
            UnknownTask: this process does not have the task.
        """
        return await self._engine.result(id, task)

    def handle(self, id: str) -> AsyncRunHandle:
        """Return a handle on a run. This does not check that the run exists."""
        return AsyncRunHandle(self._engine, self._control, id)

    async def runs(self, **wanted: Unpack[RunFilter]) -> list[RunInfo]:
        """List runs, newest first. See `RunFilter`."""
        check_options("runs", wanted, RunFilter)
        return await list_runs(
            self._control,
            wanted.get("status"),
            wanted.get("limit", 100),
            task=wanted.get("task"),
            queue=wanted.get("queue"),
            parent=wanted.get("parent"),
            session=wanted.get("session"),
        )

    async def run_info(self, id: str, *, at: int | None = None) -> RunInfo:
        """Return a run with its status, its steps and the steps in doubt. Raises `UnknownRun`.

        Args:
            id: the id of the run.
            at: a position of its session. The steps are returned as they were there.
        """
        return await self._control.info(id, at)

    async def signal(
        self, id: str, name: str, payload: Any = None, *, actor: str | None = None, key: str | None = None
    ) -> None:
        """Send a signal to an open run. It is stored until the run receives it with `duramen.receive`.

        Args:
            id: the id of the run.
            name: the name that the run receives.
            payload: data for the run.
            actor: who sends it.
            key: idempotency key. A second signal with the same key is ignored.

        Raises:
            UnknownRun: there is no run with this id.
            RunError: the run has ended.
        """
        await self._control.signal(id, name, payload, actor, key)

    async def answer(self, id: str, value: Any, *, question: str | None = None, actor: str | None = None) -> None:
        """Answer a question that a run asked with `duramen.ask`. Raises `RunError` if there is no such open question.

        Args:
            id: the id of the run.
            value: the answer.
            question: the text of the question. Default: the first open question.
            actor: who answers.
        """
        await self._control.answer(id, value, question, actor)

    async def settle(
        self, id: str, verdict: Verdict, value: Any = None, *, step: str | None = None, actor: str | None = None
    ) -> None:
        """Decide about a step in doubt. Raises `RunError` if the run has no such step or is being executed.

        Args:
            id: the id of the run.
            verdict: "done" if the step happened, "retry" to execute it again, "abort" to let the run fail.
            value: the result of the step, with "done".
            step: the name of the step. Required if several steps are in doubt.
            actor: who decides.
        """
        await self._control.settle(id, verdict, value, step, actor)

    async def cancel(self, id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Cancel a run. It stops at its next step and undoes the steps that declare how to undo them.

        A run that has ended does not change. Raises `UnknownRun`.
        """
        await self._control.cancel(id, reason, actor)

    async def fork_run(self, id: str, new: str, *, at: int | None = None) -> AsyncRunHandle:
        """Create a run that shares the journal of another run up to a position, and return its handle.

        The new run continues from there: call `resume`, or let a worker execute it. The other run does not change.

        Args:
            id: the run to fork.
            new: the id of the new run and of its session.
            at: the last shared position. Default: the last one before the end of the run, so that the fork of a
                failed run tries its last step again.
        """
        await self._control.fork(id, new, at)
        return self.handle(new)

    async def replay(self, id: str, task: Task[..., Any] | None = None, *, at: int | None = None) -> Any:
        """Call the task of a run again with all outcomes from the journal, and return its result.

        No step is executed and nothing is stored. Raises the error of a failed run, `RunError` if the run has no
        result, and `StepsChanged` if the code asks for a step that the journal does not have.

        Args:
            id: the id of the run.
            task: its task. Default: the task of the same name and version that this process has declared.
            at: use only the events up to this position.
        """
        return await self._control.replay(id, task, at)

    async def work(self, tasks: Iterable[Task[..., Any]], **options: Unpack[WorkOptions]) -> int:
        """Execute runs of these tasks as they come due, until `stop_working` is called. See `WorkOptions`.

        Returns the number of executions. A run that waited and continued counts once for each time.
        """
        check_options("work", options, WorkOptions)
        worker = Worker(
            self._engine,
            tasks,
            concurrency=check_whole("concurrency", options.get("concurrency", 64 if self._looping else 8), 1),
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
        """Ask every `work` of this handle to return. Each one returns after its current runs have ended or wait.

        It can be called from any thread.
        """
        for worker in self._workers:
            worker.stop()

    def state(self, key: str) -> AsyncSharedState:
        """Return a shared value that several agents can read and change."""
        return AsyncSharedState(self._journal, key)

    # -- the store

    def files(self, root: str | PathLike[str], *, git: bool | Literal["trusted"] = False) -> AsyncFiles:
        """Return the memories of this workspace as markdown files in a folder, for people to read and edit.

        Args:
            root: the folder. It is created.
            git: commit each change in the folder to git. No hook, filter or signing program of the repository runs,
                unless you give "trusted".
        """
        return AsyncFiles(self._journal, self._memory.load(), root, git)

    async def workspaces(self) -> list[str]:
        """List the workspaces of the store that this handle may see. On PostgreSQL that is its own, unless its role
        sees all."""
        return await self._journal.store.workspaces()

    async def verify(self) -> Verification:
        """Check every event against the hash chain, every blob, and the database itself.

        Damage is returned in `problems`, not raised.
        """
        return await self._journal.verify()

    async def erase(self, subject: str) -> ErasureReport:
        """Erase a person: destroy their key and remove all payloads, blobs, checkpoints and memories about them.

        The events stay without their data, so that the hash chain still verifies. Each session that held data gets an
        event that records the erasure. Returns how much was removed. Erasing a person again does nothing.
        """
        report = await self._journal.erase(subject)
        self._services.forget()
        self._memory.forget()
        return report

    async def rotate_key(self, key: KeySource) -> int:
        """Wrap all data keys under a new master key. Payloads are not rewritten. Returns the number of keys."""
        return await self._journal.rotate(key)

    async def deliver(self, outlet: Outlet) -> int:
        """Pass all new events to an outlet, from its stored cursor on. Returns the number of events."""
        return await self._journal.deliver(outlet)

    async def close(self) -> None:
        """Stop all workers and close the store. Closing twice does nothing."""
        self.stop_working()
        self._engine.close()
        await run_blocking(self._memory.close)
        await self._journal.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
