"""The records that pass between the core and a store: rows, queries and requested changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .memories import MemoryRow

GENESIS = bytes(32)
"""The hash before the first event of a session."""

TALK = "talk."
"""The prefix of the event types of a conversation. Stores find these events without reading the others."""


class Record(NamedTuple):
    """One event as it is stored. Exactly one of `payload` and `payload_hash` is set: the hash replaces a payload that
    was erased."""

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
    """The end of a session: the position and hash of its last event. Position 0 means that it has no event."""

    position: int
    hash: bytes


class Blob(NamedTuple):
    """Content-addressed bytes. The erasure of `owner`, a subject, removes them."""

    address: bytes
    owner: bytes | None
    body: bytes


class RunRow(NamedTuple):
    """The row of a run. Lists, workers and waiters read it instead of the run's events.

    - `status`: "open", "done", "failed" or "cancelled".
    - `wake`: the time from which a worker may execute an open run. None while it waits for something without a time
      limit. `wake` does not change while a worker executes the run: the lease keeps other workers away. A run whose
      worker died is therefore due again when the lease expires.
    - `waiting`: what the run waits for.
    - `nudges`: how many signals and other events reached the run from outside. A worker that parks the run compares the
      count with the one it saw, so that it does not park over an event that it has not read.
    - `origin`: the position of the event that started the run, or 0 if it must be found by its key.
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
    """A change of a run's row in the transaction of an append. `change` receives the present row, or None if there is
    none, and returns the row to store, or None for no change. The store calls it inside the transaction, possibly more
    than once. If it raises, the append is refused."""

    run: str
    change: Callable[[RunRow | None], RunRow | None]


class RunQuery(NamedTuple):
    """Which runs to list. None matches every run. `before` is the (created, run) of the last run on the previous
    page. A damaged row is logged and left out. With `strict`, it raises `StoreDamaged`."""

    status: tuple[str, ...] | None = None
    task: str | None = None
    queue: str | None = None
    parent: str | None = None
    session: str | None = None
    before: tuple[int, str] | None = None
    limit: int = 100
    strict: bool = False


class Limits(NamedTuple):
    """The limits of a queue: `concurrency` is the number of runs at the same time, `rate` is (starts, microseconds).
    The `key_` limits apply to each key of the queue. None means no limit."""

    concurrency: int | None = None
    key_concurrency: int | None = None
    rate: tuple[int, int] | None = None
    key_rate: tuple[int, int] | None = None


class Bookmark(NamedTuple):
    """A named position in a session: a checkpoint, a summary, the writes of a graph, a key-value item.

    - `position`, `time`: its event.
    - `name`, `id`: unique in a session. Setting the same name and id again replaces the bookmark.
    - `manifest`: how to build its state from chunks.
    - `owner`: the subject whose erasure removes it.
    - `intact`: False if the stored row does not match its checksum. Only `name` and `id` can be trusted then.
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
    """Which bookmarks of a session to return: those with this name and, if given, this id, at or before the position
    `upto` and the time `until`."""

    name: str
    id: str | None = None
    upto: int | None = None
    until: int | None = None
    limit: int = 1


class Chunk(NamedTuple):
    """A part of a chunk log. A chunk log is a list that only grows at its end. The chunk contains `count` items from
    index `start`."""

    chunk_log: int
    start: int
    count: int  # type: ignore[assignment]  # hides the method of tuples
    owner: bytes | None
    body: bytes


class BookmarkChanges(NamedTuple):
    """Bookmarks, chunks and payloads that a batch changes in its own session. The store first checks `after` and
    `chunk_log`, then writes in the order chunks, removed, bookmarks, rewritten, only_chunk_logs, stripped.

    Attributes:
        bookmarks: bookmarks to set. A position is an index into the events of the batch.
        rewritten: existing bookmarks to replace. One that is no longer at its position is skipped.
        removed: (name, id) of bookmarks to remove. One that does not exist is skipped.
        after: (name, id): the newest bookmark with this name must have this id. None: there must be none.
        chunk_log: (chunk log, end): this chunk log must end here. 0 if it has no chunk.
        chunks: chunks to add at that end.
        only_chunk_logs: remove all chunk logs of the session except these. None: remove none.
        stripped: (position, digest) of payloads to replace by their digests.
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
    """Memories that a batch changes in its workspace, in this order. Numbers that do not exist are skipped.

    Attributes:
        memories: new memories. A position is an index into the events of the batch. `expires` is relative to the time
            of the event. `begins` 0 means the time of the event.
        renewing: positions of new memories that replace a memory with the same id, because their events contain more.
        ended: (number, time): memories to close at a time, if they are current.
        weighed: (number, importance): new importance for memories that are still current.
        forgotten: numbers of memories to forget. The row stays, empty, so that its number is not used again.
    """

    memories: Sequence[MemoryRow] = ()
    renewing: Sequence[int] = ()
    ended: Sequence[tuple[int, int]] = ()
    weighed: Sequence[tuple[int, float]] = ()
    forgotten: Sequence[int] = ()


class ReleaseLease(NamedTuple):
    """Release the lease whose `fence` the batch carries."""


BatchChange = Blob | RunChange | ReleaseLease | BookmarkChanges | MemoryChanges
"""What a batch writes besides its events, in the same transaction."""


class Batch(NamedTuple):
    """Events for one session, with the conditions under which the store accepts them. None means no condition.

    Attributes:
        size: how many events.
        place: function from the head of the session to the records to insert. The store calls it inside its
            transaction. For the same head it returns the same records.
        key: idempotency key of the first event.
        expected: the position that the head must have.
        fence: the fence of the lease that must be valid.
        now: the time of the append, in microseconds.
        owner: the subject that must not have been erased.
        changes: what else to write in the same transaction.
        synced: True: the batch is safe from a power cut when the append returns. False: it survives the death of the
            process, but a power cut may remove it until the next synced batch or `Store.sync`.
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
    """What `MemoryChanges` did.

    - `met`: ids of the new memories for which the store found a current memory with the same id or key, and the ids of
      those. After a lost connection the store may list all new memories, because it does not know.
    - `words`, `vectors`: how many index entries and vectors were removed with forgotten memories.
    """

    met: frozenset[str] = frozenset()
    words: int = 0
    vectors: int = 0


class Stored(NamedTuple):
    """A stored batch. `repeated` is True if an earlier batch with the same key had stored the records. `touched` says
    what happened to memories."""

    records: list[Record]
    repeated: bool = False
    touched: Touched = Touched()


class SessionRow(NamedTuple):
    """The row of a session. A fork shares its parent's events up to `fork_at`. `head` is the last position, `updated`
    the time of the last event."""

    session: str
    created: int
    parent: str | None
    fork_at: int
    head: int
    updated: int


class SubjectRow(NamedTuple):
    """The owner of a data key: a person, or the workspace itself, which has an empty name.

    `salt` keys the hashes of the subject's payloads. The hashes stay after an erasure. Without the salt nobody can
    guess a payload from them. `wrapped` is the data key, encrypted with the master key whose id is `master`.
    """

    ref: bytes
    name: str
    salt: bytes
    wrapped: bytes | None
    master: bytes | None


class Rewrap(NamedTuple):
    """Replaces the wrapped data key of a subject. `before` is the present one, or None if there is no key yet."""

    ref: bytes
    before: bytes | None
    after: SubjectRow


class Erase(NamedTuple):
    """A request to erase the subject `ref`. `digest` hashes a payload. `tombstone` receives a session, its head and the
    number of its erased payloads, and returns the record to append."""

    workspace: str
    ref: bytes
    digest: Callable[[bytes], bytes]
    tombstone: Callable[[str, Head, int], Record]


class Erasure(NamedTuple):
    """What an erasure removed: how many payloads, blobs, bookmarks, memories and vectors, and the `bytes` of all of
    them, chunks and index entries included. `tombstones`: the appended record of each session."""

    payloads: int
    blobs: int
    bookmarks: int
    bytes: int
    tombstones: dict[str, Record]
    memories: int = 0
    vectors: int = 0


class LeaseRow(NamedTuple):
    """The lease on a session: its owner, its fence, and when it expires (microseconds). A released lease has `expires`
    0."""

    owner: str
    fence: int
    expires: int


class FeedItem(NamedTuple):
    """An event in the feed of all sessions. `cursor` is its place in the feed, `prev_hash` the hash before it in its
    session."""

    cursor: int
    session: str
    prev_hash: bytes
    record: Record
