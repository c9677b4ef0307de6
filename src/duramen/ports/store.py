"""The store port: everything that the core asks of a database.

A store does not know about codecs, hashes or keys. A `Batch` carries a function, `place`, that turns the head of a
session into finished records. The store calls it inside its transaction.
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
    """An open transaction on the store's own connection, for rows of the caller. All methods block. Call all of them
    from the thread that called `Store.begin`."""

    @property
    def connection(self) -> Any:
        """The driver's connection: apsw or psycopg."""
        ...

    @property
    def lost(self) -> bool:
        """True if the connection broke before `commit`. Nothing was stored then."""
        ...

    def append(self, batch: Batch) -> Stored:
        """The same as `Store.append`, inside this transaction. The batch is stored when `commit` returns."""
        ...

    def commit(self) -> None:
        """Commit. On return everything is safe from a power cut. If it raises, nothing was stored, except after
        `StoreUnavailable`, when the outcome is unknown."""
        ...

    def roll_back(self) -> None:
        """Discard everything. Does nothing after `commit`, and nothing the second time."""
        ...


class SubjectGone(DuramenError):
    """The subject was erased after the batch was sealed for it. Seal the batch again for a new subject."""


class ChunkLogMoved(DuramenError):
    """Another writer extended or removed the chunk log. Read its end again."""


class Store(MemoryStore, Protocol):
    """A database that stores journals.

    Every asynchronous method is a coroutine. A store that was opened for blocking use never suspends. A store that was
    opened for an event loop never blocks the loop. A store is safe to use from several threads.

    Failure. Every method raises `StoreError` (or a subclass) if the database fails, `StoreDamaged` for a row that does
    not match its checksum, `StoreClosed` after `close` and `ForkedHandle` in a forked child process. A method that
    writes does so in one transaction: if it raises, it stored nothing. There is one exception: after
    `StoreUnavailable`, or if the writing thread was interrupted, the outcome is unknown. Repeat the call then. An
    append with the same key is stored once, and repeating any other write changes nothing more. Only `note_recalls`
    would count twice.

    Durability. On return a write is committed and safe from a power cut, except for a batch that is not `synced`.

    Times are microseconds since 1970 in UTC. Text sorts by code point. A session, run, subject or blob that does not
    exist gives None, 0 or an empty list, as the return type says.
    """

    name: str

    @property
    def retriever(self) -> Retriever | None:
        """The part of the store that searches memories inside the database. None if the store has none."""
        ...

    async def append(self, batch: Batch) -> Stored:
        """Store a batch: all of it, or nothing. On return it is committed. It is also safe from a power cut if it is
        `synced`.

        In one transaction the store does this, in this order:

        1. `key` is already used in the session: return the `batch.size` records from that position, with `repeated`.
           Nothing is stored. For a `synced` batch those records are safe from a power cut on return.
        2. `fence` is not the fence of the session's lease, or the lease expired before `now`: raise `LeaseLost`.
        3. `expected` is not the position of the head: raise `PositionConflict`.
        4. `owner` was erased: raise `SubjectGone`.
        5. Call `place` with the head. The head of a new session is `Head(0, GENESIS)`.
        6. Check the changes. A new run in a session with an open run raises `RunActive`. A newest bookmark that is not
           the one in `BookmarkChanges.after` raises `CheckpointConflict`. A chunk log that ends elsewhere raises
           `ChunkLogMoved`. What a `RunChange` raises is raised.
        7. Create the session if it is new. Insert the records. Write the changes. A blob that exists is not replaced.

        Concurrent appends to one session are serial: positions have no gap and no duplicate. Batches that arrive
        together may share a commit. The commit syncs if one of them is `synced`. Each batch has its own outcome: a
        refused batch does not affect the others.
        """
        ...

    async def head(self, workspace: str, session: str) -> Head | None:
        """The head of a session: its last event, or the fork point of a fork without own events. None if the session
        does not exist."""
        ...

    async def read(self, workspace: str, session: str, start: int, stop: int) -> list[Record]:
        """The session's own records with start <= position <= stop, by position. The events that a fork shares with
        its parent are read from the parent. The whole range is returned at once, so callers keep it small."""
        ...

    async def find(self, workspace: str, session: str, key: str) -> int | None:
        """The position of the session's own event with this idempotency key, or None."""
        ...

    async def pick(self, workspace: str, session: str, positions: Sequence[int]) -> list[FeedItem]:
        """The session's own events at these positions, by position, each with the hash before it. Positions that do
        not exist are left out. The `cursor` of each item is 0."""
        ...

    async def talk(self, workspace: str, session: str, first: int, last: int, limit: int) -> list[int]:
        """The positions of the session's own events whose type begins with `TALK`, from `last` down to `first`, at
        most `limit` of them."""
        ...

    async def bookmarks(self, workspace: str, session: str, query: BookmarkQuery) -> list[Bookmark]:
        """The session's own bookmarks that match the query, by position, newest first. A damaged one is not
        `intact`."""
        ...

    async def bookmark_names(self, workspace: str, session: str, prefix: str) -> list[str]:
        """The names of the session's own bookmarks that begin with `prefix`, sorted."""
        ...

    async def expired(self, workspace: str, prefix: str, now: int, limit: int) -> list[tuple[str, Bookmark]]:
        """Bookmarks of all sessions with `expires` <= `now` and a name that begins with `prefix`, each with its
        session, ordered by `expires`."""
        ...

    async def chunk_log_end(self, workspace: str, session: str, chunk_log: int) -> int:
        """The end of a chunk log: the index after its last item. 0 if it has no chunk."""
        ...

    async def chunks(self, workspace: str, session: str, chunk_log: int, first: int, last: int) -> list[Chunk]:
        """The chunks of a chunk log that contain its items from `first` to before `last`, by `start`. A damaged chunk
        has an empty body."""
        ...

    async def session(self, workspace: str, session: str) -> SessionRow | None:
        """The row of one session, or None."""
        ...

    async def sessions(self, workspace: str, after: str, limit: int) -> list[SessionRow]:
        """Sessions with an id after `after`, sorted by id."""
        ...

    async def session_names(self, workspace: str, after: str, limit: int) -> list[str]:
        """Only the ids of `sessions`. It does not check the rows: a damaged row does not hide the sessions after it."""
        ...

    async def workspaces(self) -> list[str]:
        """Every workspace that has a session and that this store may see, sorted."""
        ...

    async def fork(self, workspace: str, parent: str, at: Head, session: str, now: int) -> None:
        """Create `session`. It shares the events of `parent` up to `at`, and its own first event follows `at`. Raises
        `SessionExists` if there is a session with this id."""
        ...

    async def feed(self, workspace: str, after: int, limit: int) -> list[FeedItem]:
        """The events of all sessions after a cursor, ordered by cursor. Within a session that is the order of
        positions. An event that commits later never sorts before an event that was already returned, so a reader that
        continues from its last cursor misses nothing. The feed may contain events that a power cut could still remove:
        see `sync`."""
        ...

    async def cursor(self, workspace: str, outlet: str) -> int:
        """The cursor that an outlet has reached. 0 at first."""
        ...

    async def advance(self, workspace: str, outlet: str, before: int, after: int) -> bool:
        """Move the outlet's cursor from `before` to `after`. True if it is at `after` on return, so a repeated call
        succeeds. False if another process moved it elsewhere."""
        ...

    async def blob(self, workspace: str, address: bytes) -> bytes | None:
        """The body of a blob, or None."""
        ...

    async def blobs(self, workspace: str, after: bytes, limit: int) -> list[Blob]:
        """Blobs with an address after `after`, ordered by address. Used by `verify`."""
        ...

    async def missing_blobs(self, workspace: str, addresses: Sequence[bytes]) -> set[bytes]:
        """Those of `addresses` that are not stored."""
        ...

    async def subject(self, workspace: str, name: str) -> SubjectRow | None:
        """The subject with this name, or None. An erased subject is not found."""
        ...

    async def subject_by_ref(self, workspace: str, ref: bytes) -> SubjectRow | None:
        """The subject with this reference, or None. An erased subject is not found."""
        ...

    async def add_subject(self, workspace: str, subject: SubjectRow) -> SubjectRow:
        """Store a subject unless there is one with this name. Returns the stored one, which may be another writer's."""
        ...

    async def subjects(self, workspace: str) -> list[SubjectRow]:
        """All subjects of the workspace, ordered by reference."""
        ...

    async def rewrap(self, workspace: str, rows: Iterable[Rewrap]) -> int:
        """Replace each data key that is still wrapped as in `before`. Returns how many were replaced."""
        ...

    async def erase(self, request: Erase) -> Erasure:
        """Erase a subject, in one transaction. Replace its payloads by their digests. Delete its blobs, bookmarks,
        chunks, name, salt and key. Forget its memories: only their numbers remain. Append a tombstone to each session
        that held a payload.

        An embedded store also removes every deleted byte from its files before it returns. It raises `StoreBusy` if a
        reader in another process prevents that: the subject is erased, and a repeated call finishes the removal. A
        database server removes the bytes when it cleans up. Erasing a subject that does not exist changes no row, and
        removes from the files what an interrupted erasure left.
        """
        ...

    async def acquire(self, workspace: str, session: str, owner: str, now: int, expires: int) -> LeaseRow | None:
        """Take the session's lease if it is free, expired, or held by this owner. None if another owner holds it. Each
        acquisition increments the fence, so the fence of an earlier holder is no longer valid."""
        ...

    async def renew(self, workspace: str, session: str, fence: int, now: int, expires: int) -> LeaseRow:
        """Extend the lease that is held under `fence`. Raises `LeaseLost` if it expired or was taken."""
        ...

    async def release(self, workspace: str, session: str, fence: int) -> None:
        """Release the lease that is held under `fence`. Does nothing if it was lost."""
        ...

    async def lease(self, workspace: str, session: str) -> LeaseRow | None:
        """The session's last lease, expired or not. None if there never was one."""
        ...

    async def run(self, workspace: str, run: str) -> RunRow | None:
        """The row of a run, or None."""
        ...

    async def runs(self, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
        """Runs that match the query, by (`created`, `run`), newest first. An open run comes with the lease on its
        session. Other runs come with None."""
        ...

    async def due(self, workspace: str, now: int, limit: int, skip: int = 0) -> list[RunRow]:
        """Open runs that a worker may claim now: `wake` <= `now`, and no lease on the session that is still valid.
        Ordered by priority (highest first), `wake` and run. The first `skip` of them are left out. So is a damaged
        row, which is logged."""
        ...

    async def next_wake(self, workspace: str, now: int) -> int | None:
        """The earliest `wake` of an open run that is after `now`, or None."""
        ...

    async def claim(
        self, workspace: str, run: str, owner: str, now: int, expires: int, limits: Limits | None, only_due: bool
    ) -> LeaseRow | None:
        """Do `acquire` on the session of an open run, if the limits of its queue allow it. Claims in one queue are
        serial, so the limits hold. The first claim sets `started`.

        None if the run does not exist or is not open, if another owner holds the lease, if a limit is reached, or, with
        `only_due`, if `wake` is None or after `now`.
        """
        ...

    def begin(self) -> Transaction:
        """Begin a transaction for rows of the caller and an append. Blocks. Other writers may wait until it ends.
        Raises `InvalidInput` if the store has no transactions."""
        ...

    async def mark(self, *, runs: bool = False) -> Any:
        """A mark for `changed`. Take it before a read: `changed` then reports everything that the read missed. With
        `runs`, only changes of runs and leases have to be reported."""
        ...

    async def changed(self, mark: Any, timeout: float) -> float:
        """Wait until something may have been stored since `mark`, by any process, at most `timeout` seconds. It may
        return early. Returns how many seconds it waited."""
        ...

    async def damage(self) -> list[str]:
        """The problems that an integrity check of the whole database finds, one sentence each. Empty if there are
        none."""
        ...

    async def remarks(self) -> list[str]:
        """Guarantees that the database does not give with its present configuration, one sentence each. They are not
        damage."""
        ...

    async def sync(self) -> None:
        """Make every event that any process committed before this call safe from a power cut. Cheap if they are
        already."""
        ...

    async def close(self) -> None:
        """Finish the appends that have begun and release all resources. The second call does nothing."""
        ...
