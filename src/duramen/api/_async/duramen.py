"""A handle on a workspace: its sessions, runs, memory and files. Start reading here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from os import PathLike
from types import TracebackType
from typing import Any, Self, Unpack

from ...context.episode_policy import EpisodePolicy
from ...context.services import Services
from ...context.window.settings import Window
from ...errors import InvalidInput
from ...execution.engine.engine import Engine
from ...execution.engine.run_control import Verdict
from ...execution.engine.run_info import RunInfo
from ...execution.engine.run_listing import list_runs, open_work
from ...execution.engine.run_outline import outline_run
from ...execution.steps.definitions import Task
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
    """A handle on a workspace in a store. Share it between tasks and threads; close it at the end."""

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
        self._services = Services(journal, window or Window(), episodes or EpisodePolicy())
        self._engine = Engine(journal, runtime, self._services.states)
        self._control = self._engine.control
        self._workers: list[Worker] = []
        self._memory = MemoryLoader(journal, memory or MemorySettings())
        self.memory = AsyncMemories(journal, self._memory, lambda run: outline_run(self._engine, run))
        """What the workspace remembers beyond its sessions."""

    @property
    def workspace(self) -> str:
        """The tenant that this handle sees."""
        return self._journal.workspace

    # -- sessions

    def session(self, session: str, *, continues: str | None = None) -> AsyncSession:
        """A session by id. Nothing is stored until something is appended. One that `continues` another begins with what
        that one left: its progress, open questions, recent decisions and what is in doubt."""
        check_name("session", session)
        if continues is not None and check_name("session", continues) == session:
            raise InvalidInput(f"session {session!r} cannot continue itself", hint="name an older session")
        self._services.load()
        return AsyncSession(self._journal, session, self._services, self._memory, self._open_work, continues)

    async def _open_work(self, session: str) -> tuple[list[str], list[str]]:
        """What waits and what is in doubt in the runs of a session and of those that it continues."""
        sessions = await self._services.progress.chain(session)
        return await open_work(self._engine, self._control, sessions)

    async def fork(self, session: str, new: str, *, at: int | None = None) -> AsyncSession:
        """A new session that shares another's events up to `at`: journal, state, context and progress as of then."""
        return await self.session(session).fork(new, at=at)

    def sessions(self) -> AsyncGenerator[SessionRow, None]:
        """All sessions of the workspace, by id."""
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
        """Start a run, or resume it, or return its result: whatever its id needs. Without `id` it is a new one.

        Raises what the task raised, `RunParked` if it waits, `RunCancelled` if it was cancelled.
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
        check_options("start", options, StartOptions)
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
        return self.handle(run)

    async def resume(self, id: str, task: Task[..., Any] | None = None) -> Any:
        """Continue a run and return its result. Its task is found by name if it is declared in this process."""
        return await self._engine.result(id, task)

    def handle(self, id: str) -> AsyncRunHandle:
        """A handle on a run by id."""
        return AsyncRunHandle(self._engine, self._control, id)

    async def runs(self, **wanted: Unpack[RunFilter]) -> list[RunInfo]:
        """Runs, newest first. See `RunFilter`."""
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
        """A run with its steps and what is in doubt; as it was at a position of its session, if one is given."""
        return await self._control.info(id, at)

    async def signal(
        self, id: str, name: str, payload: Any = None, *, actor: str | None = None, key: str | None = None
    ) -> None:
        """Send a signal to an open run; it is kept until the run receives it. With a `key` it can be sent again."""
        await self._control.signal(id, name, payload, actor, key)

    async def answer(self, id: str, value: Any, *, question: str | None = None, actor: str | None = None) -> None:
        """Answer what a run has asked with `duramen.ask`: its first open question, or the one of that text."""
        await self._control.answer(id, value, question, actor)

    async def settle(
        self, id: str, verdict: Verdict, value: Any = None, *, step: str | None = None, actor: str | None = None
    ) -> None:
        """Say what became of a step in doubt: "done" (with its result), "retry" or "abort"."""
        await self._control.settle(id, verdict, value, step, actor)

    async def cancel(self, id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Stop a run at its next step; what it declared is undone. One that has ended stays as it is."""
        await self._control.cancel(id, reason, actor)

    async def fork_run(self, id: str, new: str, *, at: int | None = None) -> AsyncRunHandle:
        """A new run that shares another's journal up to the position `at` (the end, if not given) and continues from
        there by itself. `resume` it, or let a worker take it up."""
        await self._control.fork(id, new, at)
        return self.handle(new)

    async def replay(self, id: str, task: Task[..., Any] | None = None, *, at: int | None = None) -> Any:
        """Call a run's task again with all outcomes from the journal: nothing acts, nothing is written."""
        return await self._control.replay(id, task, at)

    async def work(self, tasks: Iterable[Task[..., Any]], **options: Unpack[WorkOptions]) -> int:
        """Take up runs of these tasks until `stop_working` is called; see `WorkOptions`. Returns how many executions
        there were."""
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
        """Let every `work` of this handle return once the runs that it executes have ended. Call it from anywhere."""
        for worker in self._workers:
            worker.stop()

    def state(self, key: str) -> AsyncSharedState:
        """State that several agents share."""
        return AsyncSharedState(self._journal, key)

    # -- the store

    def files(self, root: str | PathLike[str], *, git: bool = False) -> AsyncFiles:
        """The memories of this workspace as files in a folder, for people to read and edit. With `git` each change
        gets a commit there."""
        return AsyncFiles(self._journal, self._memory.load(), root, git)

    async def workspaces(self) -> list[str]:
        """Every workspace in the store that this handle may see: on PostgreSQL its own, unless its role sees all."""
        return await self._journal.store.workspaces()

    async def verify(self) -> Verification:
        """Walk every chain, check every blob and the database itself. Damage is reported, not raised."""
        return await self._journal.verify()

    async def erase(self, subject: str) -> ErasureReport:
        """Destroy a person's key and remove all payloads and blobs about them; leaves tombstones."""
        report = await self._journal.erase(subject)
        self._services.forget()
        self._memory.forget()
        return report

    async def rotate_key(self, key: KeySource) -> int:
        """Wrap all data keys under a new master key; payloads are not touched. Returns how many moved."""
        return await self._journal.rotate(key)

    async def deliver(self, outlet: Outlet) -> int:
        """Bring an outlet up to date from its durable cursor; returns how many events it was given."""
        return await self._journal.deliver(outlet)

    async def close(self) -> None:
        """Stop working and close the store. Closing twice does nothing."""
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
