"""Appends: one statement when the session stands where we last saw it, a locking transaction otherwise.

The fast way carries the head that this process remembers; the database moves the session only if it still
is that head, and inserts in the same statement: one round trip. Whatever the fast way does not do is done
again the slow way, which locks the session's row and finds out why.

When the connection is lost the outcome is open. The records of the attempt tell: if the session holds an event
with that position and hash, it happened. The slow way looks for them after it has the row's lock, so an attempt
that is still running on the server is waited for, and one that arrives later no longer finds its head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...crash_points import reach
from ...errors import JournalDamaged, PositionConflict
from ...ports import (
    GENESIS,
    Batch,
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
from .bookmarks import check_bookmarks, write_bookmarks
from .connection import Connection
from .leases import Place, check_fence, read_lease, write_lease
from .memories import write_memories
from .runs import changed_by, write_run
from .sql import Q

Waiting = Ticket[Batch, Stored]
_REMEMBERED = 100_000


class Attempt(NamedTuple):
    """What a ticket tried to store, and on which head."""

    ticket: Waiting
    head: Head
    records: list[Record]


class Appender:
    """The appends of some sessions, one group at a time."""

    def __init__(self) -> None:
        self.heads: dict[Place, Head] = {}

    def attempt(self, tickets: list[Waiting]) -> tuple[list[Attempt], list[Waiting]]:
        """Those that can go the fast way, placed on the remembered heads, and the others."""
        fast: list[Attempt] = []
        slow: list[Waiting] = []
        taken: set[Place] = set()
        for ticket in tickets:
            request = ticket.request
            place = (request.workspace, request.session)
            head = self.heads.get(place)
            known = head is not None and request.expected in (None, head.position)
            if head is None or not known or place in taken or request.changes:
                slow.append(ticket)
            else:
                fast.append(Attempt(ticket, head, request.place(head)))
            taken.add(place)  # a second append to the same session waits for the first
        return fast, slow

    def go_fast(self, connection: Connection, attempts: list[Attempt]) -> list[Attempt]:
        """Store what can be stored at once and settle it; returns what could not."""
        reach("append.begun")
        few = len(attempts) == 1 and len(attempts[0].records) <= _FEW
        moved = _few(connection, attempts[0]) if few else _many(connection, attempts)
        reach("append.committed")
        left = []
        for attempt in attempts:
            request = attempt.ticket.request
            place = (request.workspace, request.session)
            if place in moved:
                self.remember(place, attempt.records[-1])
                attempt.ticket.answer = Stored(attempt.records, False)
            else:
                self.heads.pop(place, None)
                left.append(attempt)
        return left

    def go_slow(self, connection: Connection, request: Batch, tried: list[Record]) -> Stored:
        """Store one append under the session's lock, or say why not. `tried` are the records of an
        attempt whose outcome is open."""
        place = (request.workspace, request.session)
        self.heads.pop(place, None)
        with connection.transaction():
            reach("append.begun")
            done = self.locked(connection, request, tried)
            reach("append.inserted")
        reach("append.committed")
        if not done.repeated:
            self.remember(place, done.records[-1])
        return done

    def locked(self, connection: Connection, request: Batch, tried: list[Record]) -> Stored:
        """The append inside a transaction that is open."""
        workspace, session = place = (request.workspace, request.session)
        # Locks first, in the store's order: lease, subject, session. What they say is asked in the port's order.
        lease = read_lease(connection, place, lock=True) if request.fence is not None else None
        alive = request.owner is None or _is_alive(connection, workspace, request.owner)
        head = lock_head(connection, workspace, session)
        if head is not None and tried:
            stored = read_records(connection, place, tried[0].position, tried[-1].position)
            if [record.hash for record in stored] == [record.hash for record in tried]:
                # What it did then was not told.
                said = [row for one in request.changes if isinstance(one, MemoryChanges) for row in one.memories]
                return Stored(tried, False, Touched(frozenset(row.id for row in said)))
        if request.key is not None and head is not None:
            found = connection.execute(Q.find_key, (*place, request.key)).fetchone()
            if found is not None:
                records = read_records(connection, place, found[0], found[0] + request.size - 1)
                return Stored(records, True)
        if request.fence is not None:
            check_fence(lease, session, request.fence, request.now)
        position = head.position if head is not None else 0
        if request.expected is not None and request.expected != position:
            raise PositionConflict(session, request.expected, position)
        if not alive:
            raise SubjectGone("the subject was erased")
        if head is None:
            head = Head(0, GENESIS)
            if not add_session(connection, place, request.now, None, head):
                return self.locked(connection, request, tried)  # another process was first: on top of it
        rows = changed_by(connection, workspace, [one for one in request.changes if isinstance(one, RunChange)])
        for change in request.changes:
            if isinstance(change, BookmarkChanges):
                check_bookmarks(connection, place, change)
        records = request.place(head)
        if lease is not None and ReleaseLease() in request.changes:
            write_lease(connection, place, lease._replace(expires=0))
        for row in rows:
            write_run(connection, workspace, row)
        if rows:
            connection.execute(Q.tell_runs)
        done = Touched()
        for change in request.changes:
            if isinstance(change, Blob):
                connection.execute(Q.add_blob, (workspace, *change))
            elif isinstance(change, BookmarkChanges):
                write_bookmarks(connection, place, change, records)
            elif isinstance(change, MemoryChanges):
                done = write_memories(connection, place, change, records)
        add_records(connection, place, records)
        return Stored(records, False, done)

    def remember(self, place: Place, last: Record) -> None:
        """Where a session stands now."""
        if len(self.heads) > _REMEMBERED:
            self.heads.clear()
        self.heads[place] = Head(last.position, last.hash)


def _few(connection: Connection, attempt: Attempt) -> set[Place]:
    """A few events of one session: scalars cost the driver a fraction of what arrays do."""
    request, head, records = attempt.ticket.request, attempt.head, attempt.records
    values: dict[str, Any] = {
        "workspace": request.workspace,
        "session": request.session,
        "from_position": head.position,
        "from_hash": head.hash,
        "fence": request.fence,
        "now": request.now,
        "key": records[0].key,
        "subject": records[0].subject,
        "to_position": records[-1].position,
        "to_hash": records[-1].hash,
    }
    for number, record in enumerate(records):
        position, kind, time, actor, cause, key, _, payload, _, stored = record
        fields = (position, kind, time, actor, _cause_text(cause), key, payload, stored)
        values.update(zip(_NAMES[number], fields, strict=True))
    query = _APPEND_FEW[len(records)]
    found = connection.execute(query, values, prepare=True).fetchone()
    return set() if found is None else {(request.workspace, request.session)}


_FEW = 4
_TYPES = ("bigint", "text", "bigint", "text", "text", "text", "bytea", "bytea")
_NAMES = [[f"{number}_{column}" for column in range(len(_TYPES))] for number in range(_FEW)]
_ROWS = [
    "(" + ", ".join(f"%({name})s::{kind}" for name, kind in zip(names, _TYPES, strict=True)) + ")" for names in _NAMES
]
_APPEND_FEW = {size: Q.append_few.replace("ROWS", ", ".join(_ROWS[:size])).encode() for size in range(1, _FEW + 1)}


def _many(connection: Connection, attempts: list[Attempt]) -> set[Place]:
    ordered = sorted(attempts, key=lambda one: (one.ticket.request.workspace, one.ticket.request.session))
    wanted = [
        (
            one.ticket.request.workspace,
            one.ticket.request.session,
            one.head.position,
            one.head.hash,
            one.records[-1].position,
            one.records[-1].hash,
            one.ticket.request.key,
            one.ticket.request.fence,
            one.ticket.request.now,
            one.ticket.request.owner,
        )
        for one in ordered
    ]
    rows = [
        (one.ticket.request.workspace, one.ticket.request.session, *_columns(record))
        for one in ordered
        for record in one.records
    ]
    values = dict(zip(_WANTED, map(list, zip(*wanted, strict=True)), strict=True))
    values |= dict(zip(_ROW, map(list, zip(*rows, strict=True)), strict=True))
    found = connection.execute(Q.append_many, values, prepare=True).fetchall()
    return {(row[0], row[1]) for row in found}


_WANTED = ["w_workspace", "w_session", "w_from", "w_prev", "w_to", "w_hash", "w_key", "w_fence", "w_now", "w_subject"]
_ROW = ["workspace", "session", "position", "type", "time", "actor", "cause", "key", "subject", "payload", "hash"]


def _columns(record: Record) -> tuple[Any, ...]:
    position, kind, time, actor, cause, key, subject, payload, _, stored = record
    return (position, kind, time, actor, _cause_text(cause), key, subject, payload, stored)


def _cause_text(cause: int | str | None) -> str | None:
    return None if cause is None else str(cause)


def to_record(row: tuple[Any, ...]) -> Record:
    """A record from its columns."""
    cause = row[4]
    if cause is not None and cause.isdecimal():
        row = (*row[:4], int(cause), *row[5:])
    return Record._make(row)


def read_records(connection: Connection, place: Place, start: int, stop: int) -> list[Record]:
    """A range of a session's own events."""
    cursor = connection.execute(Q.read_events, (*place, start, stop), binary=True)
    return [to_record(row) for row in cursor]


def add_records(connection: Connection, place: Place, records: list[Record]) -> None:
    """Records placed on a locked session's head."""
    last = records[-1]
    row: Any = connection.execute(Q.move_session, (last.position, last.hash, *place)).fetchone()
    rows = [
        (*place, *record[:4], _cause_text(record.cause), *record[5:], row[0])  # the columns are in Record's order
        for record in records
    ]
    connection.cursor().executemany(Q.add_event, rows)
    connection.execute(Q.tell)


def _is_alive(connection: Connection, workspace: str, subject: bytes) -> bool:
    """Whether the subject lives, kept from erasure until the transaction ends."""
    return connection.execute(Q.keep_subject, (workspace, subject)).fetchone() is not None


def lock_head(connection: Connection, workspace: str, session: str) -> Head | None:
    """Lock a session's row and say where it stands; None if there is none."""
    row = connection.execute(Q.lock_session, (workspace, session), binary=True).fetchone()
    if row is None:
        return None
    created, parent, fork_at, fork_hash, head, stored, check = row
    expect_intact(f"session {session!r}", check, workspace, session, created, parent, fork_at, fork_hash)
    if head != fork_at:
        last = connection.execute(Q.read_events, (workspace, session, head, head), binary=True).fetchone()
        if last is None or last[9] != stored:
            raise JournalDamaged(session, head, "the session's row does not match its last event")
    return Head(head, stored)


def add_session(connection: Connection, place: Place, now: int, parent: str | None, head: Head) -> bool:
    """A new session on a head; False if another transaction made it first."""
    check = checksum(*place, now, parent, head.position, head.hash)
    values = (*place, now, parent, head.position, head.hash, head.position, head.hash, check)
    return connection.execute(Q.add_session, values).fetchone() is not None
