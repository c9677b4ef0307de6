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

    `status` is "open", "done", "failed" or "cancelled". `wake` is when somebody may take an open run up: None while
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
    """A stretch of a chunk_log, which is a list that grows at its end: its items from `start`, `count` of them."""

    chunk_log: int
    start: int
    count: int  # type: ignore[assignment]  # of items, not the method of tuples
    owner: bytes | None
    body: bytes


class Beside(NamedTuple):
    """What an append changes beside its events, in the same transaction.

    `bookmarks` are set; their positions count the events of the batch from 0. `rewritten` are bookmarks of earlier
    events, if they still are where they were. `after` names what must be the newest bookmark under a name of this very
    session, or that there is none. `chunk_log` is one that must end at an item (0: that has no chunk yet), `chunks` go on
    there. Then come the things that go: bookmarks by name and id; all chunk_logs but some; payloads, replaced by their
    digests. `memories` enter the catalog, their positions counted as those of bookmarks, their `expires` from the time
    of the event; if they are known already, those `renewing` (by the same count) take the place of what said it before,
    as their events tell more. Those `ended`, by number, are closed at a time; those `weighed` get another importance
    while they are current; those `forgotten` leave nothing behind but that they were.
    """

    bookmarks: Sequence[Bookmark] = ()
    rewritten: Sequence[Bookmark] = ()
    chunk_log: tuple[int, int] | None = None
    chunks: Sequence[Chunk] = ()
    after: tuple[str, str | None] | None = None
    removed: Sequence[tuple[str, str]] = ()
    only_chunk_logs: Sequence[int] | None = None
    stripped: Sequence[tuple[int, bytes]] = ()
    memories: Sequence[MemoryRow] = ()
    forgotten: Sequence[int] = ()
    ended: Sequence[tuple[int, int]] = ()
    weighed: Sequence[tuple[int, float]] = ()
    renewing: Sequence[int] = ()


class Append(NamedTuple):
    """A batch of events for one session, with everything that must hold for it to land.

    `place` is called inside the store's transaction with the current head and gives the records
    to insert; called again with the same head it gives the same records. `release` gives the lease of `fence` back
    in the same transaction.
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
    changes: Sequence[RunChange] = ()
    release: bool = False
    beside: Beside | None = None


Plain = tuple[str, bytes]
"""An event with nothing but a type and a payload: about nobody, without actor, cause and key."""

Link = Callable[[bytes, int, int, str, bytes], bytes]
"""The hash of a plain event, from the hash before it, its position, time, type and payload."""


class Touched(NamedTuple):
    """What an append did to memories: the ids of the new ones that `met` another (they were known, or their key was, or
    nobody can tell) and of those that they met, and how many `words` and `vectors` to be searched went with those that
    were forgotten."""

    met: frozenset[str] = frozenset()
    words: int = 0
    vectors: int = 0


class Appended(NamedTuple):
    """What an append left: its records, whether an earlier append with the same key had
    stored them already, and what became of memories that were there."""

    records: list[Record]
    repeated: bool
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
