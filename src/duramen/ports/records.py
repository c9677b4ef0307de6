"""What passes between the core and a store: rows, and orders to change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .memories import MemoryRow

GENESIS = bytes(32)
"""The hash before the first event of a session."""

TALK = "talk."
"""How the types of events begin that a conversation is made of. Stores find them without reading what lies between."""


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


class RunRow(NamedTuple):
    """A run in the catalog: what `runs`, workers and waiters ask for, without reading its journal.

    `status` is "open", "done", "failed" or "cancelled". `wake` is when a worker may execute an open run: None while
    it waits for something that has no time. It stays while the run is executed: then the lease keeps others away,
    and a run whose owner died is due again by itself. `waiting` says what for. `nudges` counts what happened to the
    run from outside, so that its owner does not put it to sleep over something it has not seen.
    """

    run: str
    session: str
    task: str
    version: str | None
    status: str
    waiting: str | None
    wake: int | None
    created: int
    started: int | None
    updated: int
    ended: int | None
    parent: str | None
    queue: str | None
    queue_key: str | None
    priority: int
    nudges: int
    origin: int


class RunChange(NamedTuple):
    """A change to a run's row in the transaction of an append: from the row as it stands (None: there is none) to
    the row to store (None: as it was). Called inside the transaction, perhaps twice; raising refuses the append."""

    run: str
    change: Callable[[RunRow | None], RunRow | None]


class RunQuery(NamedTuple):
    """Which runs to list; `before` is the (created, run) of the last one seen."""

    status: tuple[str, ...] | None = None
    task: str | None = None
    queue: str | None = None
    parent: str | None = None
    session: str | None = None
    before: tuple[int, str] | None = None
    limit: int = 100


class Limits(NamedTuple):
    """What a queue allows: runs at the same time, and starts in a period of microseconds; each over all of the queue
    and for each key in it."""

    concurrency: int | None = None
    key_concurrency: int | None = None
    rate: tuple[int, int] | None = None
    key_rate: tuple[int, int] | None = None


class Bookmark(NamedTuple):
    """A place in a session that is found by name: a checkpoint, a summary, the writes of a graph, a key-value item.

    Its event lies at `position`. Under one name of a session an id stands for one place: the last that was set. `manifest`
    says how its state is put together from chunks; `owner` is the subject whose erasure removes it. One that is read
    and not `intact` does not match its checksum: nothing of it can be relied on but its name and id.
    """

    name: str
    id: str
    position: int
    time: int
    expires: int | None = None
    pinned: bool = False
    owner: bytes | None = None
    manifest: bytes | None = None
    intact: bool = True


class BookmarkQuery(NamedTuple):
    """Which bookmarks of a session to give, newest first: of a name, of an id under it, at or before a position or a
    time."""

    name: str
    id: str | None = None
    upto: int | None = None
    until: int | None = None
    limit: int = 1


class Chunk(NamedTuple):
    """A stretch of a chunk log, which is a list that grows at its end: its items from `start`, `count` of them."""

    chunk_log: int
    start: int
    count: int  # type: ignore[assignment]  # of items, not the method of tuples
    owner: bytes | None
    body: bytes


class BookmarkChanges(NamedTuple):
    """Bookmarks, chunks and payloads that a batch changes in its own session.

    bookmarks           to set; their positions count the events of the batch from 0
    rewritten           bookmarks of earlier events to replace, if they still are at their position
    removed             bookmarks to remove, by name and id
    after               (name, id): the id that must be the newest under this name; None: there must be none
    chunk log           (chunk log, end): where this chunk log must end now; 0 if it has no chunk yet
    chunks              to add at that end
    only_chunk_logs     remove every other chunk log
    stripped            (position, digest): payloads to replace by their digest
    """

    bookmarks: Sequence[Bookmark] = ()
    rewritten: Sequence[Bookmark] = ()
    removed: Sequence[tuple[str, str]] = ()
    after: tuple[str, str | None] | None = None
    chunk_log: tuple[int, int] | None = None
    chunks: Sequence[Chunk] = ()
    only_chunk_logs: Sequence[int] | None = None
    stripped: Sequence[tuple[int, bytes]] = ()


class MemoryChanges(NamedTuple):
    """Memories that a batch changes in its workspace.

    memories    to enter into the catalog: their positions count the events of the batch from 0, their `expires` counts
                from the time of the event
    renewing    which of them, by the same count, replace a memory that says the same, because their events hold more
    ended       (number, time): memories to close at a time
    weighed     (number, importance): new importance for memories that are still current
    forgotten   numbers of memories of which only the fact that they existed stays
    """

    memories: Sequence[MemoryRow] = ()
    renewing: Sequence[int] = ()
    ended: Sequence[tuple[int, int]] = ()
    weighed: Sequence[tuple[int, float]] = ()
    forgotten: Sequence[int] = ()


class ReleaseLease(NamedTuple):
    """Release the lease that the batch is written under."""


BatchChange = Blob | RunChange | ReleaseLease | BookmarkChanges | MemoryChanges
"""What a batch writes besides its events, in the same transaction."""


class Batch(NamedTuple):
    """Events for one session, with everything that must hold for them to be stored.

    size        how many events
    place       called inside the store's transaction with the session's head; gives the records to insert. Called again
                with the same head, it gives the same records
    key         idempotency key of the first event
    expected    the position that the session must have
    fence       the fence of the lease that must hold
    now         the time of the append, in microseconds
    owner       the subject whose erasure must not have happened
    changes     what else to write in the same transaction
    synced      whether the batch must survive a power cut when the append returns. Otherwise it survives a kill of the
                process, and a power cut only after the next synced batch or `Store.sync`
    """

    workspace: str
    session: str
    size: int
    place: Callable[[Head], list[Record]]
    key: str | None = None
    expected: int | None = None
    fence: int | None = None
    now: int = 0
    owner: bytes | None = None
    changes: Sequence[BatchChange] = ()
    synced: bool = True


class Touched(NamedTuple):
    """What `MemoryChanges` did: ids of the new memories that `met` a known one (the same, or one with the same key, or
    it is not known) and of those that they met; how many index entries (`words`) and `vectors` were removed with what
    was forgotten."""

    met: frozenset[str] = frozenset()
    words: int = 0
    vectors: int = 0


class Stored(NamedTuple):
    """A stored batch: its records, whether an earlier batch with the same key had stored them already, and what
    happened to memories."""

    records: list[Record]
    repeated: bool = False
    touched: Touched = Touched()


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
    """What an erasure removed: payloads, blobs, bookmarks and chunks, memories, vectors, and the bytes of all; and the
    tombstone of each session."""

    payloads: int
    blobs: int
    bookmarks: int
    bytes: int
    tombstones: dict[str, Record]
    memories: int = 0
    vectors: int = 0


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
