"""The blocking face: the same code, stepped by hand. See `duramen.aio` for what each call promises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from ...journal.events import Draft, Event, SessionStatus
from ...journal.journal import ErasureReport
from ...journal.sealing import KeySource
from ...journal.verification import Verification
from ...ports import Head, Outlet, SessionRow
from ...runtime import Blocking, drive, drive_iterator
from .._async.conversation import AppendOptions, WindowChanges
from .._async.duramen import AsyncDuramen, AsyncLease, AsyncSession, AsyncSessionView, ReadOptions, open_face
from ..settings import Address, Settings
from .conversation import Talk
from .files import Files
from .memories import Memories
from .recall import Recall
from .runs import Runs

if TYPE_CHECKING:
    from ...checkpoints.state import Checkpoint
    from ...context.window.context import Context


def open(address: Address, **settings: Unpack[Settings]) -> Duramen:
    """Open a store: a path, a postgresql:// URL, or "memory:" in tests. See `Settings`."""
    return Duramen(drive(open_face(address, settings, Blocking())))


class Duramen(Runs):
    """A handle on a workspace in a store. Share it between threads; close it at the end."""

    def __init__(self, core: AsyncDuramen) -> None:
        self._core: AsyncDuramen = core
        self.memory = Memories(core.memory)
        """What the workspace remembers beyond its sessions."""

    @property
    def workspace(self) -> str:
        """The tenant that this handle sees."""
        return self._core.workspace

    def session(self, session: str, *, continues: str | None = None) -> Session:
        """A session by id. Nothing is stored until something is appended. One that `continues` another begins with what
        that one left."""
        return Session(self._core.session(session, continues=continues))

    def fork(self, session: str, new: str, *, at: int | None = None) -> Session:
        """A new session that shares another's events up to `at`: journal, state, context and progress as of then."""
        return Session(drive(self._core.fork(session, new, at=at)))

    def files(self, root: str | PathLike[str], *, git: bool = False) -> Files:
        """The memories of this workspace as files in a folder, for people to read and edit. With `git` each change
        gets a commit there."""
        return Files(self._core.files(root, git=git))

    def sessions(self) -> Iterator[SessionRow]:
        """All sessions of the workspace, by id."""
        return drive_iterator(self._core.sessions())

    def workspaces(self) -> list[str]:
        """Every workspace in the store that this handle may see: on PostgreSQL its own, unless its role sees all."""
        return drive(self._core.workspaces())

    def verify(self) -> Verification:
        """Walk every chain, check every blob and the database itself. Damage is reported, not raised."""
        return drive(self._core.verify())

    def erase(self, subject: str) -> ErasureReport:
        """Destroy a person's key and remove all payloads and blobs about them; leaves tombstones."""
        return drive(self._core.erase(subject))

    def rotate_key(self, key: KeySource) -> int:
        """Wrap all data keys under a new master key; payloads are not touched. Returns how many moved."""
        return drive(self._core.rotate_key(key))

    def deliver(self, outlet: Outlet) -> int:
        """Bring an outlet up to date from its durable cursor; returns how many events it was given."""
        return drive(self._core.deliver(outlet))

    def close(self) -> None:
        """Give everything back. Closing twice does nothing."""
        drive(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Session(Talk, Recall):
    """One stream of events."""

    def __init__(self, core: AsyncSession) -> None:
        self._core: AsyncSession = core
        self.id = core.id

    def append(
        self,
        type: str,
        data: Any = None,
        *,
        actor: str | None = None,
        cause: int | str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Event:
        """Store an event at the end of the session; durable on return."""
        return drive(self._core.append(type, data, actor=actor, cause=cause, **options))

    def append_all(self, drafts: Sequence[Draft], **options: Unpack[AppendOptions]) -> list[Event]:
        """Store several events in a row, all of them or none."""
        return drive(self._core.append_all(drafts, **options))

    def pages(self, **options: Unpack[ReadOptions]) -> Iterator[list[Event]]:
        """Events in pages, verified and decoded; the end is where the session ends now."""
        return drive_iterator(self._core.pages(**options))

    def events(self, **options: Unpack[ReadOptions]) -> Iterator[Event]:
        """Events one by one, verified and decoded; `JournalDamaged` at the first bad one."""
        for page in self.pages(**options):
            yield from page

    def follow(
        self, after: int = 0, *, types: str | Iterable[str] | None = None, timeout: float | None = None
    ) -> Iterator[Event]:
        """Events after a position as they come, from any process: no gap, no repeat."""
        return drive_iterator(self._core.follow(after, types=types, timeout=timeout))

    def head(self) -> Head:
        """The last position (0: nothing yet) and its hash."""
        return drive(self._core.head())

    def status(self) -> SessionStatus:
        """Whether to start, attach, wait, recover or leave this session alone."""
        return drive(self._core.status())

    def at(self, position: int) -> SessionView:
        """The session as it stood at a position, to be read."""
        return SessionView(self._core.at(position))

    def fork(self, session: str, *, at: int | None = None) -> Session:
        """A new session that shares this one's events up to `at`; this one is untouched."""
        return Session(drive(self._core.fork(session, at=at)))

    def verify(self) -> Verification:
        """Walk this session's chain. Damage is reported, not raised."""
        return drive(self._core.verify())

    def lease(self, owner: str, *, seconds: float = 30.0) -> Lease | None:
        """Own this session for a while; None if somebody else does. Write with the lease's fence."""
        taken = drive(self._core.lease(owner, seconds=seconds))
        return None if taken is None else Lease(taken)


class SessionView:
    """A session up to a position: what was known then."""

    def __init__(self, core: AsyncSessionView) -> None:
        self._core = core
        self.position = core.position

    def events(self, **options: Unpack[ReadOptions]) -> Iterator[Event]:
        """The events that there were."""
        return drive_iterator(self._core.events(**options))

    def context(self, *, system: str = "", **changes: Unpack[WindowChanges]) -> Context:
        """What the model saw then."""
        return drive(self._core.context(system=system, **changes))

    def state(self) -> Checkpoint | None:
        """The newest checkpoint that there was."""
        return drive(self._core.state())

    def fork(self, session: str) -> Session:
        """A new session that goes on from here."""
        return Session(drive(self._core.fork(session)))


class Lease:
    """Ownership of a session until it expires, is released or taken over."""

    def __init__(self, core: AsyncLease) -> None:
        self._core = core

    @property
    def fence(self) -> int:
        """The number that every write of the owner carries."""
        return self._core.fence

    @property
    def expires(self) -> int:
        """When it ends, in microseconds since 1970."""
        return self._core.expires

    def renew(self, *, seconds: float = 30.0) -> None:
        """Own it for longer; raises `LeaseLost`."""
        drive(self._core.renew(seconds=seconds))

    def release(self) -> None:
        """Give it back."""
        drive(self._core.release())
