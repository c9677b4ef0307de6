"""The append path: how a batch becomes rows.

A single event without changes is one INSERT, which is its own transaction. The unique indexes refuse a position or key
that exists, and the statement checks the lease and the owner.

All other batches, and those that the INSERT did not store, run inside a transaction. It checks key, fence, expected
position and owner, in this order. Then the same INSERT stores the events, and the projections write the changes.

The heads of sessions are cached between transactions. The cache is valid while SQLite's data version does not change,
that is, while no other connection writes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw

from ...errors import PositionConflict
from ...ports import (
    GENESIS,
    Batch,
    Blob,
    BookmarkChanges,
    Head,
    LeaseRow,
    MemoryChanges,
    Record,
    ReleaseLease,
    RunChange,
    Stored,
    SubjectGone,
    Touched,
)
from ..common.projection import Projection
from ..common.row_checksum import checksum
from .checkpoints import BookmarkProjection
from .leases import check_fence, release_lease
from .memories import MemoryProjection
from .rows import find_session, head_of, read_records
from .runs import RunProjection
from .sql import Q

_REMEMBERED = 100_000
_UNSYNCED = 1


class Target(NamedTuple):
    """The session of a batch (`sid` is -1 until it exists) and the records to store."""

    workspace: str
    session: str
    sid: int
    records: list[Record]


class Appender:
    """Stores batches on the writing connection. Call `refresh` at the start of each transaction, and `forget` after a
    transaction that failed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute
        """For statements that return no rows."""
        self._version: Any = None
        self.sids: dict[tuple[str, str], int] = {}
        self.heads: dict[int, Head] = {}
        self._owners: set[tuple[str, bytes]] = set()
        self.leases: dict[tuple[str, str], LeaseRow] = {}
        """A cache of leases. Code that changes a lease on this connection clears it."""
        self.projections: dict[type, Projection[Target]] = {
            Blob: _BlobProjection(connection),
            RunChange: RunProjection(connection),
            ReleaseLease: _ReleaseProjection(connection, self.leases),
            BookmarkChanges: BookmarkProjection(connection),
            MemoryChanges: MemoryProjection(connection),
        }

    def refresh(self) -> None:
        """Clear the caches if another connection wrote."""
        version = self._one("PRAGMA data_version", ())
        if version != self._version or len(self.heads) > _REMEMBERED:
            self.forget()
            self._version = version

    def forget(self) -> None:
        """Clear all caches."""
        self.sids.clear()
        self.heads.clear()
        self._owners.clear()
        self.leases.clear()
        self.forget_projections()

    def forget_projections(self) -> None:
        """Clear the caches of the projections."""
        for projection in self.projections.values():
            projection.forget()

    def insert(self, batch: Batch) -> Stored | None:
        """Store a single event without changes, in one statement that is its own transaction. None if nothing was
        stored. Call `append` then, which stores the batch or raises the reason."""
        workspace, session, size, place, _, expected, fence, now, owner, changes, synced = batch
        sid = self.sids.get((workspace, session))
        if sid is None or size != 1 or changes:
            return None
        head = self.heads[sid]
        if expected is not None and expected != head.position:
            return None
        records = place(head)
        unsynced = None if synced else _UNSYNCED
        try:
            self._execute(Q.add_event, (sid, *records[0], unsynced, workspace, session, fence, now, owner))
        except (apsw.ConstraintError, OverflowError):
            self.forget()  # another process appended, the key exists, or the fence does not fit into 64 bits
            return None
        if not self._connection.changes():
            return None  # the lease is not valid, or the owner was erased
        self.heads[sid] = Head(records[0].position, records[0].hash)
        return Stored(records)

    def append(self, batch: Batch, synced: bool) -> Stored:
        """Store a batch inside a transaction. If it raises a `DuramenError`, it has written nothing. `synced` says
        whether the commit of the transaction syncs."""
        workspace, session, size, place, key, expected, fence, now, owner, changes, _ = batch
        sid = self.sids.get((workspace, session))
        if sid is None:
            sid = self._find(workspace, session)
        if key is not None and sid is not None:
            found = self._one(Q.find_key, (sid, key))
            if found is not None:
                if synced:
                    self._execute(Q.mark_synced)  # the first append may not have waited for the disk
                return Stored(read_records(self._connection, sid, found[0], found[0] + size - 1), True)
        if fence is not None:
            self._check_fence(workspace, session, fence, now)
        head = self.heads[sid] if sid is not None else Head(0, GENESIS)
        if expected is not None and expected != head.position:
            raise PositionConflict(session, expected, head.position)
        if owner is not None:
            self._check_owner(workspace, owner)
        records = place(head)
        target = Target(workspace, session, -1 if sid is None else sid, records)
        projections = [self.projections[type(change)] for change in changes]
        answers = [one.read(target, change) for one, change in zip(projections, changes, strict=True)]
        if sid is None:
            sid = self.create(workspace, session, now, None, head)
            target = target._replace(sid=sid)
        unsynced = None if synced else _UNSYNCED
        for record in records:
            self._execute(Q.add_event, (sid, *record, unsynced, workspace, session, None, now, owner))
        touched = Touched()
        for one, change, answer in zip(projections, changes, answers, strict=True):
            touched = one.write(target, change, answer) or touched
        self.heads[sid] = Head(records[-1].position, records[-1].hash)
        return Stored(records, False, touched)

    def add_record(self, workspace: str, session: str, sid: int, record: Record) -> None:
        """Insert a record that was placed on the session's head."""
        self.sids[workspace, session] = sid
        self._execute(Q.add_event, (sid, *record, None, workspace, session, None, 0, None))
        self.heads[sid] = Head(record.position, record.hash)

    def create(self, workspace: str, session: str, now: int, parent: str | None, head: Head) -> int:
        """Create a session and return its `sid`. `head` is the fork point of a fork, else `Head(0, GENESIS)`."""
        fields = (workspace, session, now, parent, head.position, head.hash)
        sid = int(self._one(Q.add_session, fields)[0])
        self._execute(Q.check_session, (checksum(sid, *fields), sid))
        self.sids[workspace, session] = sid
        self.heads[sid] = head
        return sid

    def _find(self, workspace: str, session: str) -> int | None:
        row = find_session(self._connection, workspace, session)
        if row is None:
            return None
        sid = int(row[0])
        self.sids[workspace, session] = sid
        self.heads[sid] = head_of(self._connection, row)
        return sid

    def _check_fence(self, workspace: str, session: str, fence: int, now: int) -> None:
        lease = self.leases.get((workspace, session))
        if lease is None or lease.fence != fence or lease.expires <= now:
            self.leases[workspace, session] = check_fence(self._connection, workspace, session, fence, now)

    def _check_owner(self, workspace: str, ref: bytes) -> None:
        if (workspace, ref) in self._owners:
            return
        if self._one(Q.find_subject_by_ref, (workspace, ref)) is None:
            raise SubjectGone("the subject was erased")
        self._owners.add((workspace, ref))

    def _one(self, query: str, values: tuple[Any, ...]) -> Any:
        return self._connection.execute(query, values).fetchone()  # a new cursor, so that none stays open


class _BlobProjection:
    """Writes `Blob`, unless the blob exists."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def read(self, target: Target, change: Blob) -> None:
        """Nothing to read."""

    def write(self, target: Target, change: Blob, answer: None) -> None:
        self._connection.execute(Q.add_blob, (target.workspace, *change))

    def forget(self) -> None:
        """Nothing is cached."""


class _ReleaseProjection:
    """Writes `ReleaseLease`."""

    def __init__(self, connection: apsw.Connection, leases: dict[tuple[str, str], LeaseRow]) -> None:
        self._connection = connection
        self._leases = leases

    def read(self, target: Target, change: ReleaseLease) -> None:
        """Nothing to read: the appender has checked the fence."""

    def write(self, target: Target, change: ReleaseLease, answer: None) -> None:
        release_lease(self._connection, target.workspace, target.session)
        self._leases.pop((target.workspace, target.session), None)

    def forget(self) -> None:
        """The appender clears the cache of leases."""
