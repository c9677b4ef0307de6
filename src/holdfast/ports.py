"""What the core asks of the world: a store, a clock, ids, outlets.

Stores keep records and know nothing of codecs, hashes or keys: an `Append` brings a function that
turns the session's head into finished records, which the store calls inside its transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from .errors import HoldfastError

GENESIS = bytes(32)
"""The hash before the first event of a session."""


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> int:
        """Microseconds since 1970 in UTC."""
        ...


class Ids(Protocol):
    """Where unguessable bytes come from."""

    def random(self, size: int) -> bytes:
        """`size` bytes that nobody can predict."""
        ...


class Record(NamedTuple):
    """One event as it is stored. `payload` and `payload_hash`: exactly one of them is there,
    the hash alone once the payload was erased."""

    position: int
    type: str
    time: int
    actor: str | None
    cause: int | str | None
    key: str | None
    subject: bytes | None
    payload: bytes | None
    payload_hash: bytes | None
    hash: bytes


class Head(NamedTuple):
    """Where a session stands: its last position (0: nothing yet) and that event's hash."""

    position: int
    hash: bytes


class Blob(NamedTuple):
    """Content-addressed bytes; `owner` is the subject whose erasure removes them."""

    address: bytes
    owner: bytes | None
    body: bytes


class Append(NamedTuple):
    """A batch of events for one session, with everything that must hold for it to land.

    `place` is called inside the store's transaction with the current head and gives the records
    to insert; called again with the same head it gives the same records.
    """

    workspace: str
    session: str
    size: int
    place: Callable[[Head], list[Record]]
    key: str | None = None
    expected: int | None = None
    fence: int | None = None
    now: int = 0
    subject: bytes | None = None
    blobs: Sequence[Blob] = ()


class Appended(NamedTuple):
    """What an append left: its records, and whether an earlier append with the same key had
    stored them already."""

    records: list[Record]
    repeated: bool


class SessionRow(NamedTuple):
    """A session in the catalog. A fork shares its parent's events up to `fork_at`."""

    session: str
    created: int
    parent: str | None
    fork_at: int
    head: int
    updated: int


class SubjectRow(NamedTuple):
    """A person, or (with the empty name) the workspace itself, as owner of a data key.

    `salt` keys the hashes of the subject's payloads, so that what an erasure leaves behind cannot
    be guessed back; `wrapped` is the data key under the master key named by `master`.
    """

    ref: bytes
    name: str
    salt: bytes
    wrapped: bytes | None
    master: bytes | None


class Rewrap(NamedTuple):
    """A data key's move from one master key to another; `before` is None if there was no key yet."""

    ref: bytes
    before: bytes | None
    after: SubjectRow


class Erase(NamedTuple):
    """An order to erase: `digest` hashes a payload, `tombstone` places the event that says so on a
    session's head, given how many payloads the session held."""

    workspace: str
    ref: bytes
    digest: Callable[[bytes], bytes]
    tombstone: Callable[[str, Head, int], Record]


class Erasure(NamedTuple):
    """What an erasure removed: payloads, blobs and their bytes; and the tombstone of each session."""

    payloads: int
    blobs: int
    bytes: int
    tombstones: dict[str, Record]


class LeaseRow(NamedTuple):
    """Who owns a session, under which fence, until when (microseconds)."""

    owner: str
    fence: int
    expires: int


class FeedItem(NamedTuple):
    """An event in the order of all sessions together; `cursor` sorts after those before it."""

    cursor: int
    session: str
    prev_hash: bytes
    record: Record


class SubjectGone(HoldfastError):
    """Between sealing and storing, the subject was erased: seal again under a new one."""


class Store(Protocol):
    """The place where journals live.

    Every method is a coroutine. Opened for blocking use, a store never suspends; opened for an
    event loop, it never blocks the loop. All of them raise `StoreError` where the database fails,
    `StoreClosed` after `close` and `ForkedHandle` in a child process.
    """

    name: str

    async def append(self, request: Append) -> Appended:
        """Store a batch whole or not at all; return only after it is durable.

        In one transaction and in this order: a known `key` returns the records stored first
        (`request.size` of them); a `fence` that is not the session's current, unexpired one
        raises `LeaseLost`; an `expected` position that is not the head raises `PositionConflict`
        with both; an erased `subject` raises `SubjectGone`. Then blobs that are not there yet and
        the placed records are stored. The session is created by its first event. Concurrent appends
        to one session are serial: no gap, no repeat.
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
        """Every workspace that has a session, sorted."""
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
        """Move the outlet's cursor if it still is at `before`; False if somebody moved it elsewhere."""
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
        """In one transaction: replace the subject's payloads by their digest, delete its blobs, forget
        its name, salt and key, and append a tombstone to each session that held a payload. An embedded
        store leaves no byte of it in its files; a server's own files and logs follow as it cleans up. For a
        subject that is gone, only what a killed erasure may have left in the logs is removed."""
        ...

    async def acquire(self, workspace: str, session: str, owner: str, now: int, expires: int) -> LeaseRow | None:
        """Take the session's lease if it is free, expired or the owner's own; the fence grows each
        time it is taken. None if somebody else holds it."""
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

    async def mark(self) -> Any:
        """A mark to give to `changed`. Taken before a read, nothing after that read is missed."""
        ...

    async def changed(self, mark: Any, timeout: float) -> float:
        """Return as soon as something may have been stored since `mark`, at the latest after
        `timeout` seconds; says how many seconds it waited."""
        ...

    async def damage(self) -> list[str]:
        """What the database's own integrity check finds; empty if all is well."""
        ...

    async def close(self) -> None:
        """Give everything back. Closing twice does nothing."""
        ...


class Outlet(Protocol):
    """Something outside the store that is derived from the journal.

    `apply` gets events in feed order and may get the last batch again after a crash: it must be
    idempotent. What it returns from is counted as delivered.
    """

    name: str

    def apply(self, events: Sequence[Any]) -> None:
        """Take these events in."""
        ...
