"""The data of one workspace, and the operations that change it: append, claim and erase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import LeaseLost, PositionConflict
from ...ports import (
    GENESIS,
    Batch,
    BatchChange,
    Blob,
    Bookmark,
    BookmarkChanges,
    Chunk,
    Erase,
    Erasure,
    FeedItem,
    Head,
    LeaseRow,
    Limits,
    MemoryChanges,
    Record,
    ReleaseLease,
    RunChange,
    RunQuery,
    RunRow,
    SessionRow,
    Stored,
    SubjectGone,
    SubjectRow,
    Touched,
)
from ..common.bookmark_rows import placed, refuse_conflict
from ..common.run_rows import changed_run
from .memories import Memories


@dataclass(slots=True)
class Session:
    """A session and its own records."""

    created: int
    parent: str | None
    fork: Head
    records: list[Record] = field(default_factory=list)

    @property
    def head(self) -> Head:
        return Head(self.records[-1].position, self.records[-1].hash) if self.records else self.fork

    def row(self, name: str) -> SessionRow:
        updated = self.records[-1].time if self.records else self.created
        return SessionRow(name, self.created, self.parent, self.fork.position, self.head.position, updated)


@dataclass(slots=True)
class Workspace:
    """The data of one workspace."""

    sessions: dict[str, Session] = field(default_factory=dict)
    feed: list[tuple[str, int]] = field(default_factory=list)
    blobs: dict[bytes, Blob] = field(default_factory=dict)
    subjects: dict[bytes, SubjectRow] = field(default_factory=dict)
    leases: dict[str, LeaseRow] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    runs: dict[str, RunRow] = field(default_factory=dict)
    bookmarks: dict[tuple[str, str, str], Bookmark] = field(default_factory=dict)
    """By session, name and id."""
    chunks: dict[tuple[str, int, int], Chunk] = field(default_factory=dict)
    """By session, chunk log and start."""
    memories: Memories = field(default_factory=Memories)

    def end(self, session: str, chunk_log: int) -> int:
        """The end of a chunk log."""
        ends = [chunk.start + chunk.count for key, chunk in self.chunks.items() if key[:2] == (session, chunk_log)]
        return max(ends, default=0)

    def newest(self, session: str, name: str) -> str | None:
        """The id of the newest bookmark with this name."""
        found = [one for key, one in self.bookmarks.items() if key[:2] == (session, name)]
        return max(found, key=lambda one: one.position).id if found else None

    def subject(self, name: str) -> SubjectRow | None:
        return next((row for row in self.subjects.values() if row.name == name), None)

    def add(self, name: str, record: Record) -> None:
        self.sessions[name].records.append(record)
        self.feed.append((name, record.position))

    def pick(self, name: str, positions: Sequence[int]) -> list[FeedItem]:
        """See `Store.pick`."""
        session, found = self.sessions.get(name), []
        first = session.fork.position + 1 if session else 1
        for position in sorted(set(positions)):
            if session is not None and first <= position <= session.head.position:
                before = session.fork.hash if position == first else self.record(name, position - 1).hash
                found.append(FeedItem(0, name, before, self.record(name, position)))
        return found

    def record(self, name: str, position: int) -> Record:
        session = self.sessions[name]
        return session.records[position - session.fork.position - 1]


def append(space: Workspace, batch: Batch) -> Stored:
    position = find(space, batch.session, batch.key) if batch.key is not None else None
    if position is not None:
        skip = space.sessions[batch.session].fork.position + 1
        records = space.sessions[batch.session].records[position - skip : position - skip + batch.size]
        return Stored(records, True)
    if batch.fence is not None:
        held(space, batch.session, batch.fence, batch.now)
    session = space.sessions.get(batch.session)
    head = session.head if session is not None else Head(0, GENESIS)
    if batch.expected is not None and batch.expected != head.position:
        raise PositionConflict(batch.session, batch.expected, head.position)
    if batch.owner is not None and batch.owner not in space.subjects:
        raise SubjectGone("the subject was erased")
    records = batch.place(head)
    rows = [_checked(space, batch.session, change) for change in batch.changes]
    if session is None:
        space.sessions[batch.session] = Session(batch.now, None, head)
    for record in records:
        space.add(batch.session, record)
    touched = Touched()
    for change, row in zip(batch.changes, rows, strict=True):
        if isinstance(change, RunChange) and row is not None:
            space.runs[row.run] = row
        elif isinstance(change, ReleaseLease):
            space.leases[batch.session] = space.leases[batch.session]._replace(expires=0)
        elif isinstance(change, Blob):
            space.blobs.setdefault(change.address, change)
        elif isinstance(change, BookmarkChanges):
            _write_bookmarks(space, batch.session, change, records)
        elif isinstance(change, MemoryChanges):
            touched = space.memories.write(batch.session, change, records)
    return Stored(records, False, touched)


def _checked(space: Workspace, session: str, change: BatchChange) -> RunRow | None:
    """Raise if a change must be refused. Returns the row to store for a `RunChange`."""
    if isinstance(change, RunChange):
        return changed_run(change, space.runs.get, lambda name: _open_run(space, name))
    if isinstance(change, BookmarkChanges):
        refuse_conflict(
            session, change, lambda name: space.newest(session, name), lambda chunk_log: space.end(session, chunk_log)
        )
    return None


def _open_run(space: Workspace, session: str) -> str | None:
    return next((row.run for row in space.runs.values() if row.session == session and row.status == "open"), None)


def _write_bookmarks(space: Workspace, session: str, change: BookmarkChanges, records: list[Record]) -> None:
    space.chunks.update(((session, chunk.chunk_log, chunk.start), chunk) for chunk in change.chunks)
    for name, id_ in change.removed:
        space.bookmarks.pop((session, name, id_), None)
    space.bookmarks.update(((session, one.name, one.id), one) for one in placed(change, records))
    for one in change.rewritten:
        there = space.bookmarks.get((session, one.name, one.id))
        if there is not None and there.position == one.position:
            space.bookmarks[session, one.name, one.id] = one
    if change.only_chunk_logs is not None:
        for key in [key for key in space.chunks if key[0] == session and key[1] not in change.only_chunk_logs]:
            del space.chunks[key]
    kept = space.sessions[session]
    for position, digest in change.stripped:
        index = position - kept.fork.position - 1
        if 0 <= index < len(kept.records) and kept.records[index].payload is not None:
            kept.records[index] = kept.records[index]._replace(payload=None, payload_hash=digest)


def wanted(row: RunRow, query: RunQuery) -> bool:
    asked = ((query.task, row.task), (query.queue, row.queue), (query.parent, row.parent), (query.session, row.session))
    return (
        (query.status is None or row.status in query.status)
        and all(wanted is None or wanted == found for wanted, found in asked)
        and (query.before is None or (row.created, row.run) < query.before)
    )


def is_held(space: Workspace, session: str, now: int) -> bool:
    lease = space.leases.get(session)
    return lease is not None and lease.expires > now


def has_room(space: Workspace, row: RunRow, now: int, limits: Limits) -> bool:
    queue = [other for other in space.runs.values() if other.queue == row.queue and other.run != row.run]
    active = [other for other in queue if other.status == "open" and is_held(space, other.session, now)]
    for limit, others in ((limits.concurrency, active), (limits.key_concurrency, _of_key(active, row))):
        if limit is not None and len(others) >= limit:
            return False
    if row.started is not None:
        return True
    for rate, others in ((limits.rate, queue), (limits.key_rate, _of_key(queue, row))):
        if rate is not None and sum(1 for one in others if one.started and one.started > now - rate[1]) >= rate[0]:
            return False
    return True


def _of_key(rows: list[RunRow], row: RunRow) -> list[RunRow]:
    return [other for other in rows if other.queue_key == row.queue_key]


def find(space: Workspace, session: str, key: str) -> int | None:
    found = space.sessions.get(session)
    records = found.records if found else []
    return next((record.position for record in records if record.key == key), None)


def held(space: Workspace, session: str, fence: int, now: int) -> LeaseRow:
    lease = space.leases.get(session)
    if lease is None or lease.fence != fence or lease.expires <= now:
        raise LeaseLost(session, fence, lease.fence if lease else None)
    return lease


def erase(space: Workspace, request: Erase) -> Erasure:
    payloads = size = 0
    tombstones = {}
    for name, session in space.sessions.items():
        count = 0
        for index, record in enumerate(session.records):
            if record.subject == request.ref and record.payload is not None:
                digest = request.digest(record.payload)
                session.records[index] = record._replace(payload=None, payload_hash=digest)
                count, size = count + 1, size + len(record.payload)
        if count:
            payloads += count
            tombstones[name] = request.tombstone(name, session.head, count)
            space.add(name, tombstones[name])
    gone = [space.blobs.pop(blob.address) for blob in list(space.blobs.values()) if blob.owner == request.ref]
    marks = [key for key, one in space.bookmarks.items() if one.owner == request.ref]
    chunks = [key for key, chunk in space.chunks.items() if chunk.owner == request.ref]
    size += sum(len(space.bookmarks.pop(key).manifest or b"") for key in marks)
    size += sum(len(space.chunks.pop(key).body) for key in chunks)
    memories, vectors, indexed = space.memories.forget_owned(request.ref)
    space.subjects.pop(request.ref, None)
    size += indexed + sum(len(blob.body) for blob in gone)
    return Erasure(payloads, len(gone), len(marks), size, tombstones, memories, vectors)
