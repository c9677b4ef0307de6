"""The append path: how a batch becomes rows.

The statement `append` checks lease, owner, key and head, moves the session's row to the end of the batch, and inserts
the first event. `add_event` inserts each further event. A batch without changes, for a session with a cached head,
needs nothing else. Several such batches are sent as one transaction in a pipeline, which is one round trip.

All other batches, and those that the fast path did not store, are settled alone. The first round trip locks and reads
lease, owner and session, then what the projections of the changes need. Key, fence, expected position and owner are
checked in this order. The second round trip appends, writes the changes and commits.

After a lost connection the outcome is unknown. `settle` locks the session's row and searches for the events of the lost
attempt by position and hash. If they are there, the attempt was committed. The lock waits for an attempt that is still
running on the server. An attempt that arrives later fails, because the head has moved.

A server that crashes may lose a commit that did not wait for the disk, while this process continues. So the process
keeps these batches in memory (see `unsynced`). `settle` stores lost ones again before it appends after them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...crash_points import reach
from ...errors import DuramenError, JournalDamaged, PositionConflict
from ...ports import (
    GENESIS,
    Batch,
    BatchChange,
    Blob,
    BookmarkChanges,
    Head,
    MemoryChanges,
    Record,
    ReleaseLease,
    RunChange,
    Stored,
    SubjectGone,
    Touched,
)
from ..common.group_commit import Ticket
from ..common.row_checksum import checksum, expect_intact
from .bookmarks import BookmarkProjection
from .connection import Connection
from .leases import Place, ReleaseProjection, check_fence, checked_lease
from .listener import RUNS
from .memories import MemoryProjection
from .projection import Projection, Target
from .runs import RunProjection
from .sql import Q
from .unsynced import UnsyncedBatch, UnsyncedBatches

log = logging.getLogger(__name__)
Waiting = Ticket[Batch, Stored]
_REMEMBERED = 100_000


class _BlobProjection:
    """Writes `Blob`, unless the blob exists."""

    def ask(self, target: Target, change: Blob) -> None:
        """Nothing to read."""

    def read(self, target: Target, change: Blob, asked: None) -> None:
        """Nothing to check."""

    def write(self, target: Target, change: Blob, answer: None) -> None:
        target.connection.execute(Q.add_blob, (target.workspace, *change))


PROJECTIONS: dict[type, Projection] = {
    ReleaseLease: ReleaseProjection(),
    RunChange: RunProjection(),
    BookmarkChanges: BookmarkProjection(),
    Blob: _BlobProjection(),
    MemoryChanges: MemoryProjection(),
}
"""The projection of each type of change, in the order in which they lock rows."""
_ORDER = {kind: number for number, kind in enumerate(PROJECTIONS)}


class Attempt(NamedTuple):
    """A ticket, the records that it tried to store, and the head that they follow."""

    ticket: Waiting
    head: Head
    records: list[Record]

    @property
    def place(self) -> Place:
        return self.ticket.request.workspace, self.ticket.request.session


class Appender:
    """Stores the batches of some sessions, one group at a time. The caller holds `mutex`."""

    def __init__(self, unsynced: UnsyncedBatches) -> None:
        self.mutex = threading.Lock()
        self._heads: dict[Place, Head] = {}
        self._unsynced = unsynced

    def attempt(self, tickets: list[Waiting]) -> tuple[list[Attempt], list[Waiting]]:
        """The batches that can be placed on cached heads, ordered by session, and the tickets that must be settled."""
        placed: list[Attempt] = []
        others: list[Waiting] = []
        heads: dict[Place, Head | None] = {}
        for ticket in tickets:
            batch = ticket.request
            place = (batch.workspace, batch.session)
            head = heads[place] if place in heads else self._heads.get(place)
            if head is None or batch.changes or batch.expected not in (None, head.position):
                others.append(ticket)
                heads[place] = None  # later batches of this session must be stored after this one
                continue
            attempt = Attempt(ticket, head, batch.place(head))
            placed.append(attempt)
            heads[place] = _head_after(attempt.records)
        placed.sort(key=lambda one: one.place)
        return placed, others

    def store_group(self, connection: Connection, attempts: list[Attempt]) -> list[Attempt]:
        """Store batches of one workspace in one transaction. Returns those that were not stored, because a condition
        did not hold."""
        reach("append.begun")
        relaxed = not any(one.ticket.request.synced for one in attempts)
        if len(attempts) == 1 and len(attempts[0].records) == 1:
            (one,) = attempts
            cursors = [_send(connection, one.ticket.request, one.head, one.records, relaxed)]
        else:
            with connection.pipeline():
                connection.execute(Q.begin)
                if len(attempts) > 1:
                    _lock_in_order(connection, [one.ticket.request for one in attempts])
                cursors = [_send(connection, one.ticket.request, one.head, one.records, relaxed) for one in attempts]
                reach("append.inserted")
                connection.execute(Q.commit)
        moved = [cursor.fetchone() is not None for cursor in cursors]
        reach("append.committed")
        left = []
        for one, has_moved in zip(attempts, moved, strict=True):
            if has_moved:
                self._committed(one.ticket.request, one.records, relaxed)
                one.ticket.answer = Stored(one.records)
            else:
                self._heads.pop(one.place, None)
                left.append(one)
        return left

    def store(self, connection: Connection, batch: Batch, tried: list[Record]) -> Stored:
        """Store one batch in its own transaction, or raise. `tried` are the records of an earlier attempt with an
        unknown outcome."""
        self._heads.pop((batch.workspace, batch.session), None)
        refusal: DuramenError | None = None
        reach("append.begun")
        with connection.pipeline():
            connection.execute(Q.begin)
            try:
                stored = self.settle(connection, batch, tried, relaxed=not batch.synced)
            except DuramenError as error:
                refusal = error  # nothing of the batch was written
            reach("append.inserted")
            connection.execute(Q.commit)
        reach("append.committed")
        if refusal is not None:
            raise refusal
        if not stored.repeated:
            self._committed(batch, stored.records, not batch.synced)
        return stored

    def _committed(self, batch: Batch, records: list[Record], relaxed: bool) -> None:
        """Cache the head of a session after a commit. A synced commit also makes the unsynced batches before it safe.
        They were stored, because it found their head."""
        place = (batch.workspace, batch.session)
        if len(self._heads) > _REMEMBERED:
            self._heads.clear()
        self._heads[place] = _head_after(records)
        if relaxed:
            self._unsynced.keep(place, batch, records)
        else:
            self._unsynced.release(place, self._unsynced.of(place))

    def restore(self, connection: Connection, place: Place) -> None:
        """Store the lost batches of a session again, in their own transaction."""
        with connection.pipeline():
            connection.execute(Q.begin)
            lock_head(connection, *place)
            self._restore(connection, place)
            connection.execute(Q.flush)  # an unsynced batch of the session may have stored them again
            connection.execute(Q.commit)

    def _restore(self, connection: Connection, place: Place) -> None:
        """Store the lost batches of a session again: at their old positions, or after what others have written since. A
        batch whose lease was taken by another owner is not stored again, and a warning is logged."""
        kept = []
        known = self._unsynced.of(place)
        for one in known:
            batch, records = one
            if not is_stored(connection, place, records):
                try:
                    again = batch._replace(expected=None)
                    records = self.settle(connection, again, [], relaxed=False, restoring=False).records
                except DuramenError as refusal:
                    log.warning(
                        "PostgreSQL lost events %s-%s of session %r in a crash, and they cannot be stored again: %s",
                        records[0].position,
                        records[-1].position,
                        place[1],
                        refusal,
                    )
                    continue
            kept.append(UnsyncedBatch(batch, records))
        # Do this even if the transaction fails later: the next check then finds the new positions empty.
        self._unsynced.replace(place, known, kept)

    def settle(
        self, connection: Connection, batch: Batch, tried: list[Record], *, relaxed: bool, restoring: bool = True
    ) -> Stored:
        """Store a batch inside an open transaction and pipeline. If it raises a `DuramenError`, it has written nothing
        of the batch."""
        workspace, session = place = (batch.workspace, batch.session)
        execute = connection.execute
        changes = sorted(batch.changes, key=_lock_order)
        # The first round trip: send everything before the first fetch. See `store` for the order of locks.
        asked_lease = None
        if batch.fence is not None:
            releases = any(isinstance(change, ReleaseLease) for change in changes)
            asked_lease = execute(Q.lock_lease if releases else Q.share_lease, place, binary=True)
        asked_owner = None if batch.owner is None else execute(Q.keep_subject, (workspace, batch.owner))
        asked_session = execute(Q.lock_session, place, binary=True)
        asked_last = execute(Q.last_event, place, binary=True)
        asked_key = None if batch.key is None else execute(Q.find_key, (*place, batch.key))
        target = Target(connection, workspace, session, [])
        asked = [PROJECTIONS[type(change)].ask(target, change) for change in changes]
        if tried and is_stored(connection, place, tried):
            said = [row for one in changes if isinstance(one, MemoryChanges) for row in one.memories]
            return Stored(tried, False, Touched(frozenset(row.id for row in said)))  # which ones met others is unknown
        kept = self._unsynced.of(place) if restoring else ()
        if kept and not is_stored(connection, place, kept[-1].records):
            self._restore(connection, place)
            return self.settle(connection, batch, tried, relaxed=relaxed, restoring=False)

        head = _checked_head(place, asked_session.fetchone(), asked_last.fetchone())
        found = None if asked_key is None else asked_key.fetchone()
        if found is not None:
            if batch.synced:
                execute(Q.flush)  # the first append may not have waited for the disk
            return Stored(read_records(connection, place, found[0], found[0] + batch.size - 1), True)
        if asked_lease is not None and batch.fence is not None:
            check_fence(checked_lease(place, asked_lease.fetchone()), session, batch.fence, batch.now)
        position = head.position if head is not None else 0
        if batch.expected is not None and batch.expected != position:
            raise PositionConflict(session, batch.expected, position)
        if asked_owner is not None and asked_owner.fetchone() is None:
            raise SubjectGone("the subject was erased")
        start = head or Head(0, GENESIS)
        records = batch.place(start)
        target = target._replace(records=records)
        try:
            answers = [
                PROJECTIONS[type(change)].read(target, change, answer)
                for change, answer in zip(changes, asked, strict=True)
            ]
        except DuramenError:
            # A session that did not exist could not be locked. If another process created it between two of the reads,
            # read again under its lock.
            if head is None and lock_head(connection, workspace, session) is not None:
                return self.settle(connection, batch, tried, relaxed=relaxed, restoring=restoring)
            raise
        if head is None and not add_session(connection, place, batch.now, None, start):
            # Another process created the session first: append after its events.
            return self.settle(connection, batch, tried, relaxed=relaxed, restoring=restoring)

        # The second round trip.
        _send(connection, batch, start, records, relaxed)
        touched = Touched()
        for change, answer in zip(changes, answers, strict=True):
            touched = PROJECTIONS[type(change)].write(target, change, answer) or touched
        return Stored(records, False, touched)


def _lock_order(change: BatchChange) -> tuple[int, str]:
    return _ORDER[type(change)], change.run if isinstance(change, RunChange) else ""


def _head_after(records: Sequence[Record]) -> Head:
    return Head(records[-1].position, records[-1].hash)


def _lock_in_order(connection: Connection, batches: Sequence[Batch]) -> None:
    """Lock leases and owners before sessions, as all writers do."""
    workspace = batches[0].workspace
    leased = sorted({batch.session for batch in batches if batch.fence is not None})
    if leased:
        connection.execute(Q.share_leases, (workspace, leased))
    owners = sorted({batch.owner for batch in batches if batch.owner is not None})
    if owners:
        connection.execute(Q.keep_subjects, (workspace, owners))


def _send(connection: Connection, batch: Batch, head: Head, records: Sequence[Record], relaxed: bool) -> Any:
    """Send the statements that store the records of a batch. The cursor has a row if they were stored."""
    news = RUNS if any(isinstance(change, RunChange) for change in batch.changes) else ""
    place = (batch.workspace, batch.session)
    return add_records(connection, place, head, records, batch.fence, batch.now, batch.owner, news, relaxed)


def add_records(
    connection: Connection,
    place: Place,
    head: Head,
    records: Sequence[Record],
    fence: int | None = None,
    now: int = 0,
    owner: bytes | None = None,
    news: str = "",
    relaxed: bool = False,
) -> Any:
    """Send the statements that store records after the head of a session. The cursor has a row if the session exists
    and all conditions held."""
    last = records[-1]
    position, kind, time, actor, cause, key, subject, payload, payload_hash, stored = records[0]
    values: dict[str, Any] = {
        "workspace": place[0],
        "session": place[1],
        "from_position": head.position,
        "from_hash": head.hash,
        "to_position": last.position,
        "to_hash": last.hash,
        "fence": fence,
        "now": now,
        "owner": owner,
        "news": news,
        "relaxed": relaxed,
        "position": position,
        "type": kind,
        "time": time,
        "actor": actor,
        "cause": None if cause is None else str(cause),
        "key": key,
        "subject": subject,
        "payload": payload,
        "payload_hash": payload_hash,
        "hash": stored,
    }
    moved = connection.execute(Q.append, values, prepare=True)
    if len(records) > 1:
        common = {name: values[name] for name in ("workspace", "session", "to_position", "to_hash")}
        rows = [common | record._asdict() for record in records[1:]]
        for row in rows:
            row["cause"] = None if row["cause"] is None else str(row["cause"])
        connection.cursor().executemany(Q.add_event, rows)
    return moved


def to_record(row: tuple[Any, ...]) -> Record:
    """A record from its columns."""
    cause = row[4]
    if cause is not None and cause.isdecimal():
        row = (*row[:4], int(cause), *row[5:])
    return Record._make(row)


def read_records(connection: Connection, place: Place, start: int, stop: int) -> list[Record]:
    """The session's own records from `start` to `stop`, by position."""
    cursor = connection.execute(Q.read_events, (*place, start, stop), binary=True)
    return [to_record(row) for row in cursor.fetchall()]


def is_stored(connection: Connection, place: Place, records: Sequence[Record]) -> bool:
    """Whether these events are stored, with the same hashes."""
    stored = read_records(connection, place, records[0].position, records[-1].position)
    return [record.hash for record in stored] == [record.hash for record in records]


def lost_batches(connection: Connection, kept: Mapping[Place, Sequence[UnsyncedBatch]]) -> set[Place]:
    """The sessions whose last unsynced batch is not in the database."""
    lost = set(kept)
    for workspace in {workspace for workspace, _ in kept}:
        last = {session: batches[-1].last for (where, session), batches in kept.items() if where == workspace}
        values = {
            "workspace": workspace,
            "sessions": list(last),
            "positions": [record.position for record in last.values()],
        }
        for session, _, stored in connection.execute(Q.present_hashes, values, binary=True):
            if stored == last[session].hash:
                lost.discard((workspace, session))
    return lost


def lock_head(connection: Connection, workspace: str, session: str) -> Head | None:
    """Lock a session's row. Returns its head, or None if the session does not exist."""
    locked = connection.execute(Q.lock_session, (workspace, session), binary=True)
    last = connection.execute(Q.last_event, (workspace, session), binary=True)
    return _checked_head((workspace, session), locked.fetchone(), last.fetchone())


def _checked_head(place: Place, row: tuple[Any, ...] | None, last: tuple[Any, ...] | None) -> Head | None:
    """The head of a session from its row and its last event. Raises `JournalDamaged` if they disagree."""
    if row is None:
        return None
    created, parent, fork_at, fork_hash, head, stored, check = row
    expect_intact(f"session {place[1]!r}", check, *place, created, parent, fork_at, fork_hash)
    if (head, stored) != (last or (fork_at, fork_hash)):
        raise JournalDamaged(place[1], head, "the session's row does not match its last event")
    return Head(head, stored)


def add_session(connection: Connection, place: Place, now: int, parent: str | None, head: Head) -> bool:
    """Create a session. `head` is the fork point of a fork, else `Head(0, GENESIS)`. False if the session exists."""
    check = checksum(*place, now, parent, head.position, head.hash)
    values = (*place, now, parent, head.position, head.hash, head.position, head.hash, check)
    return connection.execute(Q.add_session, values).fetchone() is not None
