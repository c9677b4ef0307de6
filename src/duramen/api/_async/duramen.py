"""The asynchronous face, and the one implementation behind both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from ...context.episode_policy import EpisodePolicy
from ...context.services import Services
from ...context.window.settings import Window
from ...errors import InvalidInput
from ...execution.engine.run_outline import outline_run
from ...journal.events import Draft, Event, SessionStatus, check_name, check_types
from ...journal.journal import ErasureReport, Journal
from ...journal.sealing import KeySource
from ...journal.verification import Verification
from ...memory.knowledge.policies import KindPolicy
from ...ports import Embedder, Head, LeaseRow, Model, Outlet, SessionRow
from ...runtime import Lock, Looping, Runtime, run_blocking
from ..settings import Address, Settings, check_settings, embedder_loader, open_journal, open_store
from .conversation import AppendOptions, AsyncTalk, Leftovers, WindowChanges
from .files import AsyncFiles
from .memories import AsyncMemories
from .recall import AsyncRecall
from .runs import OPEN, AsyncRuns
from .turn import AsyncTurns

if TYPE_CHECKING:
    from ...checkpoints.state import Checkpoint
    from ...context.window.context import Context


class ReadOptions(TypedDict, total=False):
    """Which events to read.

    start, stop     the first and the last position, both included
    types           an event type, or several
    backwards       newest first
    limit           at most so many
    """

    start: int
    stop: int | None
    types: str | Iterable[str] | None
    backwards: bool
    limit: int | None


_READING = sorted(ReadOptions.__annotations__)


async def aopen(address: Address, **settings: Unpack[Settings]) -> AsyncDuramen:
    """Open a store for use from an event loop. See `Settings` for what can be set."""
    return await open_face(address, settings, Looping())


async def open_face(address: Address, settings: Settings, runtime: Runtime) -> AsyncDuramen:
    """Open a store on a runtime: an event loop's, or one that never suspends."""
    check_settings(settings)
    store = await runtime.run(lambda: open_store(address, settings, runtime))
    try:
        journal = open_journal(store, settings)
        await journal.check_key()
    except BaseException:
        await store.close()
        raise
    return AsyncDuramen(
        journal,
        runtime,
        settings.get("window"),
        embedder_loader(settings),
        settings.get("suspicious", "flag"),
        settings.get("episodes"),
        settings.get("policies"),
        settings.get("write_back", True),
        (settings.get("model"), settings.get("model_every", 5)),
    )


class AsyncDuramen(AsyncRuns):
    """A handle on a workspace in a store. Share it between tasks and threads; close it at the end."""

    def __init__(
        self,
        journal: Journal,
        runtime: Runtime,
        window: Window | None = None,
        load: Callable[[bool], Embedder | None] = lambda fetch: None,
        suspicious: str = "flag",
        episodes: EpisodePolicy | None = None,
        policies: Mapping[str, KindPolicy] | None = None,
        write_back: bool = True,
        reads: tuple[Model | str | None, int] = (None, 5),
    ) -> None:
        self.memory = AsyncMemories(
            journal, load, suspicious, lambda run: outline_run(self._engine, run), policies, write_back, reads
        )
        """What the workspace remembers beyond its sessions."""
        self._services = Services(journal, window or Window(), episodes or EpisodePolicy())
        super().__init__(journal, runtime, self._services.states)

    @property
    def workspace(self) -> str:
        """The tenant that this handle sees."""
        return self._journal.workspace

    def session(self, session: str, *, continues: str | None = None) -> AsyncSession:
        """A session by id. Nothing is stored until something is appended. One that `continues` another begins with what
        that one left: its progress, open questions, recent decisions and what is in doubt."""
        check_name("session", session)
        if continues is not None and check_name("session", continues) == session:
            raise InvalidInput(f"session {session!r} cannot go on from itself", hint="name an older session")
        self._services.load()
        return AsyncSession(self._journal, session, self._services, self._leftovers, self.memory, continues)

    async def _leftovers(self, session: str) -> tuple[list[str], list[str]]:
        """What waits and what is in doubt in the runs of a session and of those that it goes on from."""
        questions: list[str] = []
        doubt: list[str] = []
        for origin in await self._services.progress.chain(session):
            for row in await self.runs(session=origin, status=[status.value for status in OPEN]):
                info = await self.run_info(row.id)
                doubt += [f"{step} of {info.task} ({info.id})" for step in info.in_doubt]
                if info.waiting is not None and not info.in_doubt:
                    about = "somebody" if await self._engine.subject_of(info.id) else info.waiting
                    questions.append(f"{info.task} ({info.id}) waits for {about}")
        return questions, doubt

    async def fork(self, session: str, new: str, *, at: int | None = None) -> AsyncSession:
        """A new session that shares another's events up to `at`: journal, state, context and progress as of then."""
        return await self.session(session).fork(new, at=at)

    def files(self, root: str | PathLike[str], *, git: bool = False) -> AsyncFiles:
        """The memories of this workspace as files in a folder, for people to read and edit. With `git` each change
        gets a commit there."""
        return AsyncFiles(self._journal, lambda: self.memory.service, root, git)

    def sessions(self) -> AsyncGenerator[SessionRow, None]:
        """All sessions of the workspace, by id."""
        return self._journal.sessions()

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
        self.memory.forgets()
        return report

    async def rotate_key(self, key: KeySource) -> int:
        """Wrap all data keys under a new master key; payloads are not touched. Returns how many moved."""
        return await self._journal.rotate(key)

    async def deliver(self, outlet: Outlet) -> int:
        """Bring an outlet up to date from its durable cursor; returns how many events it was given."""
        return await self._journal.deliver(outlet)

    async def close(self) -> None:
        """Give everything back. Closing twice does nothing."""
        self._close_runs()
        await run_blocking(self.memory.close)
        await self._journal.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncSession(AsyncTalk, AsyncRecall, AsyncTurns):
    """One stream of events."""

    def __init__(
        self,
        journal: Journal,
        session: str,
        services: Services,
        leftovers: Leftovers,
        memory: AsyncMemories,
        continues: str | None = None,
    ) -> None:
        self._journal = journal
        self.id = session
        self._services = services
        self._leftovers = leftovers
        self._memory = memory
        self._continues = continues
        self._beginning = Lock()

    def append(
        self,
        type: str,
        data: Any = None,
        *,
        actor: str | None = None,
        cause: int | str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Coroutine[Any, Any, Event]:
        """Store an event at the end of the session; durable on return."""
        draft = Draft(type, data, actor, cause)
        if self._continues is not None:
            return self._append(draft, options)
        return self._journal.append_one(self.id, draft, dict(options))

    async def append_all(self, drafts: Sequence[Draft], **options: Unpack[AppendOptions]) -> list[Event]:
        """Store several events in a row, all of them or none."""
        await self._begin()
        return await self._journal.append(self.id, drafts, **options)

    async def pages(self, **options: Unpack[ReadOptions]) -> AsyncGenerator[list[Event], None]:
        """Events in pages, verified and decoded; the end is where the session ends now."""
        unknown = options.keys() - ReadOptions.__annotations__.keys()
        if unknown:
            raise InvalidInput(f"{min(unknown)!r} is no option of reading", hint=f"known are: {', '.join(_READING)}")
        reading, types = self._journal.reader, check_types(options.get("types"))
        limit, stop = options.get("limit"), options.get("stop")
        if stop is not None:
            _whole("stop", stop, 0)
        left = _whole("limit", limit, 0) if limit is not None else None
        size = min(500, left) if left and types is None else 500
        read = reading.pages_backwards if options.get("backwards") else reading.pages
        start = _whole("start", options.get("start", 1), 1)
        async with aclosing(read(self.id, start, stop, types, size)) as pages:
            async for page in pages:
                if left is not None and len(page) >= left:
                    if left:
                        yield page[:left]
                    return
                if page:
                    yield page
                left = None if left is None else left - len(page)

    async def events(self, **options: Unpack[ReadOptions]) -> AsyncGenerator[Event, None]:
        """Events one by one, verified and decoded; `JournalDamaged` at the first bad one."""
        async with aclosing(self.pages(**options)) as pages:
            async for page in pages:
                for event in page:
                    yield event

    async def follow(
        self, after: int = 0, *, types: str | Iterable[str] | None = None, timeout: float | None = None
    ) -> AsyncGenerator[Event, None]:
        """Events after a position as they come, from any process: no gap, no repeat. Ends after
        `timeout` seconds without one, if given."""
        wanted, after = check_types(types), _whole("after", after, 0)
        async with aclosing(self._journal.follow(self.id, after, wanted, timeout)) as pages:
            async for page in pages:
                for event in page:
                    yield event

    async def head(self) -> Head:
        """The last position (0: nothing yet) and its hash."""
        return await self._journal.reader.head(self.id)

    async def status(self) -> SessionStatus:
        """Whether to start, attach, wait, recover or leave this session alone."""
        return await self._journal.standing(self.id)

    def at(self, position: int) -> AsyncSessionView:
        """The session as it stood at a position, to be read."""
        return AsyncSessionView(self, _whole("position", position, 0))

    async def fork(self, session: str, *, at: int | None = None) -> AsyncSession:
        """A new session that shares this one's events up to `at`; this one is untouched."""
        await self._journal.fork(self.id, session, at)
        return AsyncSession(self._journal, session, self._services, self._leftovers, self._memory)

    async def verify(self) -> Verification:
        """Walk this session's chain. Damage is reported, not raised."""
        return await self._journal.verify(self.id)

    async def lease(self, owner: str, *, seconds: float = 30.0) -> AsyncLease | None:
        """Own this session for a while; None if somebody else does. Write with the lease's fence."""
        taken = await self._journal.acquire(self.id, owner, seconds)
        return None if taken is None else AsyncLease(self._journal, self.id, taken)


class AsyncSessionView:
    """A session up to a position: what was known then."""

    def __init__(self, session: AsyncSession, position: int) -> None:
        self._session = session
        self.position = position

    def events(self, **options: Unpack[ReadOptions]) -> AsyncGenerator[Event, None]:
        """The events that there were."""
        options["stop"] = _earlier(self.position, options.get("stop"))
        return self._session.events(**options)

    async def context(self, *, system: str = "", **changes: Unpack[WindowChanges]) -> Context:
        """What the model saw then."""
        return await self._session.context(at=self.position, system=system, **changes)

    async def state(self) -> Checkpoint | None:
        """The newest checkpoint that there was."""
        return await self._session.state(at=self.position)

    async def fork(self, session: str) -> AsyncSession:
        """A new session that goes on from here."""
        return await self._session.fork(session, at=self.position)


def _earlier(position: int, stop: int | None) -> int:
    return position if stop is None else min(position, _whole("stop", stop, 0))


class AsyncLease:
    """Ownership of a session until it expires, is released or taken over."""

    def __init__(self, journal: Journal, session: str, row: LeaseRow) -> None:
        self._journal = journal
        self.session = session
        self.owner = row.owner
        self.fence = row.fence
        self.expires = row.expires

    async def renew(self, *, seconds: float = 30.0) -> None:
        """Own it for longer; raises `LeaseLost`."""
        self.expires = (await self._journal.renew(self.session, self.fence, seconds)).expires

    async def release(self) -> None:
        """Give it back."""
        await self._journal.store.release(self._journal.workspace, self.session, self.fence)


def _whole(what: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"{value!r} cannot be `{what}`", hint=f"give a whole number from {least}")
    return value
