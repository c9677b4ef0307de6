"""The store: where journals live.

Stores keep records and know nothing of codecs, hashes or keys: a `Batch` brings a function that
turns the session's head into finished records, which the store calls inside its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ..errors import DuramenError
from .memories import MemoryStore
from .records import (
    Batch,
    Blob,
    Bookmark,
    BookmarkQuery,
    Chunk,
    Erase,
    Erasure,
    FeedItem,
    Head,
    LeaseRow,
    Limits,
    Record,
    Rewrap,
    RunQuery,
    RunRow,
    SessionRow,
    Stored,
    SubjectRow,
)
from .retrieval import Retriever


class Transaction(Protocol):
    """The store's own connection inside a transaction. All methods block and belong to one thread."""

    @property
    def connection(self) -> Any:
        """What the driver gives: an apsw or a psycopg connection."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the connection broke: nothing of the transaction happened."""
        ...

    def append(self, batch: Batch) -> Stored:
        """As `Store.append`, inside this transaction."""
        ...

    def commit(self) -> None:
        """Make all of it durable."""
        ...

    def roll_back(self) -> None:
        """Nothing of it happened. Does nothing after `commit`."""
        ...


class SubjectGone(DuramenError):
    """Between sealing and storing, the subject was erased: seal again under a new one."""


class ChunkLogMoved(DuramenError):
    """Another writer extended or removed the chunk log: read its end again."""


class Store(MemoryStore, Protocol):
    """The place where journals live.

    Every method is a coroutine. Opened for blocking use, a store never suspends; opened for an
    event loop, it never blocks the loop. All of them raise `StoreError` where the database fails,
    `StoreClosed` after `close` and `ForkedHandle` in a child process.
    """

    name: str

    @property
    def retriever(self) -> Retriever | None:
        """The chunk of it that searches memories by itself; None if it has none."""
        ...

    async def append(self, batch: Batch) -> Stored:
        """Store a batch whole or not at all. On return it is committed, and safe from a power cut if it is `synced`.

        In one transaction and in this order: a known `key` returns the records stored first (`batch.size` of them); a
        `fence` that is not the session's current, unexpired one raises `LeaseLost`; an `expected` position that is not
        the head raises `PositionConflict` with both; an erased `owner` raises `SubjectGone`; a new run in a session with
        an open one raises `RunActive`. A newest bookmark other than the one in `BookmarkChanges.after` raises
        `CheckpointConflict`, a chunk log that ends elsewhere `ChunkLogMoved`. Then blobs that are not there yet, the
        placed records and the other changes are stored. The session is created by its first event. Concurrent appends
        to one session are serial: no gap, no repeat. Batches that arrive together share one commit, which syncs if one
        of them asks for it; each has its own outcome.
        """
        ...

    async def head(self, workspace: str, session: str) -> Head | None:
        """Where the session stands; None if it was never created."""
        ...

    async def read(self, workspace: str, session: str, start: int, stop: int) -> list[Record]:
        """The session's own records with start <= position <= stop, ascending. Events shared with
        a parent are read from the parent. Callers keep the range small: it is read whole."""
        ...

    async def find(self, workspace: str, session: str, key: str) -> int | None:
        """The position of the session's own event with this idempotency key."""
        ...

    async def pick(self, workspace: str, session: str, positions: Sequence[int]) -> list[FeedItem]:
        """The session's own events at these positions, ascending, each with the hash before it. Their cursors are 0."""
        ...

    async def talk(self, workspace: str, session: str, first: int, last: int, limit: int) -> list[int]:
        """The positions of the session's own events whose type begins with `TALK`, from `last` down to `first`."""
        ...

    async def bookmarks(self, workspace: str, session: str, query: BookmarkQuery) -> list[Bookmark]:
        """The session's own bookmarks, newest first."""
        ...

    async def bookmark_names(self, workspace: str, session: str, prefix: str) -> list[str]:
        """The names of the session's own bookmarks that begin with `prefix`, sorted by code point."""
        ...

    async def expired(self, workspace: str, prefix: str, now: int, limit: int) -> list[tuple[str, Bookmark]]:
        """Bookmarks with names that begin with `prefix` and whose time has come, with their sessions."""
        ...

    async def chunk_log_end(self, workspace: str, session: str, chunk_log: int) -> int:
        """Where a chunk log ends; 0 if it has no chunk."""
        ...

    async def chunks(self, workspace: str, session: str, chunk_log: int, first: int, last: int) -> list[Chunk]:
        """The chunks of a chunk log that hold its items from `first` to before `last`, in order."""
        ...

    async def session(self, workspace: str, session: str) -> SessionRow | None:
        """The catalog row of one session."""
        ...

    async def sessions(self, workspace: str, after: str, limit: int) -> list[SessionRow]:
        """Sessions whose id sorts after `after`, by id (code point order)."""
        ...

    async def session_names(self, workspace: str, after: str, limit: int) -> list[str]:
        """The ids alone, without looking at the rest of the rows: one that is damaged hides no other."""
        ...

    async def workspaces(self) -> list[str]:
        """Every workspace that has a session and that this store may see, sorted."""
        ...

    async def fork(self, workspace: str, parent: str, at: Head, session: str, now: int) -> None:
        """Create `session` sharing `parent` up to `at`. Raises `SessionExists`."""
        ...

    async def feed(self, workspace: str, after: int, limit: int) -> list[FeedItem]:
        """Events of all sessions after a cursor, in an order in which nothing committed later
        ever appears before something returned earlier."""
        ...

    async def cursor(self, workspace: str, outlet: str) -> int:
        """How far the outlet got; 0 at first."""
        ...

    async def advance(self, workspace: str, outlet: str, before: int, after: int) -> bool:
        """Move the outlet's cursor if it still is at `before`; False if another process moved it elsewhere."""
        ...

    async def blob(self, workspace: str, address: bytes) -> bytes | None:
        """The stored body of a blob."""
        ...

    async def blobs(self, workspace: str, after: bytes, limit: int) -> list[Blob]:
        """Blobs by address, for verification."""
        ...

    async def missing_blobs(self, workspace: str, addresses: Sequence[bytes]) -> set[bytes]:
        """Those of `addresses` that are not stored."""
        ...

    async def subject(self, workspace: str, name: str) -> SubjectRow | None:
        """The living subject of that name."""
        ...

    async def subject_by_ref(self, workspace: str, ref: bytes) -> SubjectRow | None:
        """The living subject with that reference; None once it was erased."""
        ...

    async def add_subject(self, workspace: str, subject: SubjectRow) -> SubjectRow:
        """Store a subject unless one of that name lives; return the one that holds."""
        ...

    async def subjects(self, workspace: str) -> list[SubjectRow]:
        """All living subjects of the workspace."""
        ...

    async def rewrap(self, workspace: str, rows: Iterable[Rewrap]) -> int:
        """Replace data keys that are still wrapped as given. Returns how many were."""
        ...

    async def erase(self, request: Erase) -> Erasure:
        """In one transaction: replace the subject's payloads by their digest, delete its blobs, bookmarks and chunks,
        leave of its memories only that they were, forget its name, salt and key, and append a tombstone to each session
        that held a payload. An embedded store leaves no byte of it in its files; a server's own files and logs follow
        as it cleans up. For a subject that is gone, only what a killed erasure may have left in the logs is removed."""
        ...

    async def acquire(self, workspace: str, session: str, owner: str, now: int, expires: int) -> LeaseRow | None:
        """Take the session's lease if it is free, expired or the owner's own; the fence grows each
        time it is taken. None if another owner holds it."""
        ...

    async def renew(self, workspace: str, session: str, fence: int, now: int, expires: int) -> LeaseRow:
        """Extend the lease held under `fence`; raises `LeaseLost` if it is held no longer."""
        ...

    async def release(self, workspace: str, session: str, fence: int) -> None:
        """Give the lease back; does nothing if it was lost."""
        ...

    async def lease(self, workspace: str, session: str) -> LeaseRow | None:
        """The lease as it stands, expired or not."""
        ...

    async def run(self, workspace: str, run: str) -> RunRow | None:
        """A run's row."""
        ...

    async def runs(self, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
        """Runs with the leases on their sessions, newest first; ended ones without."""
        ...

    async def due(self, workspace: str, now: int, limit: int, skip: int = 0) -> list[RunRow]:
        """Open runs that may be taken up now: `wake` has come and no lease holds. By priority, then by time; without
        the first `skip` of them."""
        ...

    async def next_wake(self, workspace: str, now: int) -> int | None:
        """The first time after `now` at which an open run wants to wake."""
        ...

    async def claim(
        self, workspace: str, run: str, owner: str, now: int, expires: int, limits: Limits | None, only_due: bool
    ) -> LeaseRow | None:
        """`acquire` the lease of an open run's session, if its queue's limits leave room; the first claim notes when
        the run was started. With `only_due`, only if its time to wake has come. None if it cannot be had."""
        ...

    def begin(self) -> Transaction:
        """Begin a transaction for the caller's own rows and an append. Blocks; other writers may wait until it ends."""
        ...

    async def mark(self, *, runs: bool = False) -> Any:
        """A mark to give to `changed`. Taken before a read, nothing after that read is missed. With `runs`, only
        changes of runs count."""
        ...

    async def changed(self, mark: Any, timeout: float) -> float:
        """Return as soon as something may have been stored since `mark`, at the latest after
        `timeout` seconds; says how many seconds it waited."""
        ...

    async def damage(self) -> list[str]:
        """What the database's own integrity check finds; empty if all is well."""
        ...

    async def remarks(self) -> list[str]:
        """What is no damage and should be known: which promise the database does not keep as it is set up."""
        ...

    async def sync(self) -> None:
        """Make every event that was appended so far, by any process, safe from a power cut. Cheap if they are."""
        ...

    async def close(self) -> None:
        """Give everything back. Closing twice does nothing."""
        ...
