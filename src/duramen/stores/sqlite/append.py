"""Appends inside a write transaction: check, place, insert.

The heads of sessions are remembered between transactions as long as no other connection wrote, which SQLite's data
version tells. An append that is a single statement relies on the unique indexes instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from ...errors import PositionConflict
from ...ports import GENESIS, Append, Appended, Head, LeaseRow, Record, SubjectGone, Touched
from ..common.row_checksum import checksum, expect_intact
from .bookmarks import Marks, check_beside, write_beside
from .leases import check_fence, release_lease
from .memories import Counts, settle_memories
from .runs import changed_by, write_run
from .sql import Q

_REMEMBERED = 100_000
_COLUMNS = 11
_MOST_ROWS = 64
_ROW = Q.add_event[Q.add_event.rindex("(") :]
_INSERTS = [Q.add_event + f", {_ROW}" * more for more in range(_MOST_ROWS)]
"""The insert of one event, of two, three, …: one call to SQLite for many events."""
_FENCED_ROWS = 8
_INTO = Q.add_event[: Q.add_event.upper().rindex("VALUES")]
_FENCED_INSERTS = [
    _INTO.replace("INSERT", "INSERT OR ROLLBACK", 1)
    + " UNION ALL ".join(
        f"SELECT {', '.join(f'?{5 + _COLUMNS * row + column}' for column in range(_COLUMNS))} "
        f"WHERE EXISTS ({Q.good_fence})"
        for row in range(rows)
    )
    for rows in range(1, _FENCED_ROWS + 1)
]
"""The same for an owner's events, if its lease still holds. One SELECT a row: a list of VALUES would be written to a
table of its own first, which takes three times as long."""


class Appender:
    """Applies appends on the writing connection. Call `refresh` first in each transaction, and
    `forget` after one that failed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._version: Any = None
        self.sids: dict[tuple[str, str], int] = {}
        self.heads: dict[int, Head] = {}
        self._subjects: set[tuple[str, bytes]] = set()
        self.leases: dict[tuple[str, str], LeaseRow] = {}
        """Leases as they were last seen. Whoever changes one through this connection forgets them."""
        self.counts = Counts()
        """Of audiences of memories, likewise."""
        self.marks = Marks()
        """Of bookmarks and chunk_logs, likewise."""
        self._staged: list[Any] = []
        self._staged_keys: dict[tuple[int, str], list[Record]] = {}

    def refresh(self) -> None:
        """Drop what is remembered if somebody else wrote."""
        version = self._one("PRAGMA data_version", ())
        if version != self._version or max(len(self.heads), len(self.counts.audiences), len(self.marks)) > _REMEMBERED:
            self.forget()
            self._version = version

    def forget(self) -> None:
        """Drop what is remembered."""
        self.sids.clear()
        self.heads.clear()
        self._subjects.clear()
        self.leases.clear()
        self.counts.clear()
        self.marks.clear()
        self._staged.clear()
        self._staged_keys.clear()

    def append(self, request: Append) -> Appended:
        """See `Store.append`. Raises before it writes anything, or not at all. The events are staged;
        `insert_staged` writes those of a whole group in a few statements."""
        workspace, session = request.workspace, request.session
        sid = self.sids.get((workspace, session))
        if sid is None:
            sid = self._find(workspace, session)
        if request.key is not None and sid is not None:
            repeated = self._by_key(sid, request.key, request.size)
            if repeated is not None:
                return Appended(repeated, True)
        if request.fence is not None:
            self._check_fence(workspace, session, request.fence, request.now)
        head = self.heads[sid] if sid is not None else Head(0, GENESIS)
        if request.expected is not None and request.expected != head.position:
            raise PositionConflict(session, request.expected, head.position)
        if request.subject is not None:
            self._check_subject(workspace, request.subject)
        rows = changed_by(self._connection, workspace, request.changes) if request.changes else ()
        if request.beside is not None:
            check_beside(self._connection, session, -1 if sid is None else sid, request.beside, self.marks)
        records = request.place(head)
        beside = request.beside
        memories = None
        if beside is not None:
            memories = settle_memories(self._connection, workspace, beside, records, self.counts)
        if sid is None:
            sid = self.create(workspace, session, request.now, None, head)
        if request.release:
            release_lease(self._connection, workspace, session)
            self.leases.pop((workspace, session), None)
        for row in rows:
            write_run(self._connection, workspace, row)
        for blob in request.blobs:
            self._connection.execute(Q.add_blob, (workspace, *blob))
        if beside is not None:
            write_beside(self._connection, sid, beside, records, self.marks)
        done = Touched() if memories is None else memories.written(sid)
        for record in records:
            self._staged += (sid, *record)
        if request.key is not None:
            self._staged_keys[sid, request.key] = records
        last = records[-1]
        self.heads[sid] = Head(last.position, last.hash)
        return Appended(records, False, done)

    def quickly(self, requests: list[Append]) -> list[Appended] | None:
        """Append plain requests in a single statement, which is its own transaction; None if that cannot be.

        The records are placed on the remembered heads. If another process moved a session or used a key since,
        the unique indexes refuse the statement whole, and the caller takes the long way.
        """
        outcomes: list[Appended] = []
        moved: dict[int, Head] = {}
        rows: list[Any] = []
        for request in requests:
            sid = self.sids.get((request.workspace, request.session))
            head = None if sid is None else moved.get(sid) or self.heads[sid]
            if sid is None or head is None or not _is_plain(request, head):
                return None
            records = request.place(head)
            for record in records:
                rows += (sid, *record)
            moved[sid] = Head(records[-1].position, records[-1].hash)
            outcomes.append(Appended(records, False))
        count = len(rows) // _COLUMNS
        return outcomes if count <= _MOST_ROWS and self._inserted(count, rows, moved) else None

    def one_quickly(self, request: Append) -> Appended | None:
        """`quickly` for a lone writer's single event, where every microsecond counts."""
        workspace, session, size, place, _, expected, fence, _, subject, blobs, changes, _, beside = request
        sid = self.sids.get((workspace, session))
        if sid is None or subject is not None or blobs or changes or beside is not None:
            return None
        head = self.heads[sid]
        if expected is not None and expected != head.position:
            return None
        if fence is not None:
            return self._fenced(request, sid, head) if size <= _FENCED_ROWS else None
        if size != 1:
            return None
        records = place(head)
        record = records[0]
        try:
            self._connection.execute(_INSERTS[0], (sid, *record))
        except apsw.ConstraintError:
            self.forget()
            return None
        self.heads[sid] = Head(record[0], record[9])
        return Appended(records, False)

    def _fenced(self, request: Append, sid: int, head: Head) -> Appended | None:
        """An owner's events, if the statement finds the lease as it must be."""
        records = request.place(head)
        values: list[Any] = [request.workspace, request.session, request.fence, request.now]
        for record in records:
            values.append(sid)
            values += record
        try:
            self._connection.execute(_FENCED_INSERTS[len(records) - 1], values)
        except apsw.ConstraintError:
            self.forget()
            return None
        if not self._connection.changes():
            return None  # the lease is lost: the long way says how
        last = records[-1]
        self.heads[sid] = Head(last[0], last[9])
        return Appended(records, False)

    def _inserted(self, count: int, rows: Sequence[Any], moved: dict[int, Head]) -> bool:
        try:
            self._connection.execute(_INSERTS[count - 1], rows)
        except apsw.ConstraintError:
            self.forget()
            return False
        self.heads.update(moved)
        return True

    def insert_staged(self) -> None:
        """Write what was staged."""
        staged, most = self._staged, _MOST_ROWS * _COLUMNS
        for start in range(0, len(staged), most):
            values = staged[start : start + most]
            self._connection.execute(_INSERTS[len(values) // _COLUMNS - 1], values)
        staged.clear()
        self._staged_keys.clear()

    def _by_key(self, sid: int, key: str, size: int) -> list[Record] | None:
        """The records stored or staged under an idempotency key."""
        staged = self._staged_keys.get((sid, key))
        if staged is not None:
            return staged
        found = self._one(Q.find_key, (sid, key))
        return read_records(self._connection, sid, found[0], found[0] + size - 1) if found else None

    def place_one(self, workspace: str, session: str, sid: int, record: Record) -> None:
        """Insert a record that was placed on the session's head."""
        self.sids[(workspace, session)] = sid
        self._connection.execute(Q.add_event, (sid, *record))
        self.heads[sid] = Head(record.position, record.hash)

    def _find(self, workspace: str, session: str) -> int | None:
        row = find_session(self._connection, workspace, session)
        if row is None:
            return None
        sid = int(row[0])
        self.sids[(workspace, session)] = sid
        self.heads[sid] = head_of(self._connection, row)
        return sid

    def _check_fence(self, workspace: str, session: str, fence: int, now: int) -> None:
        lease = self.leases.get((workspace, session))
        if lease is None or lease.fence != fence or lease.expires <= now:
            self.leases[workspace, session] = check_fence(self._connection, workspace, session, fence, now)

    def _check_subject(self, workspace: str, ref: bytes) -> None:
        if (workspace, ref) in self._subjects:
            return
        if self._one(Q.find_subject_by_ref, (workspace, ref)) is None:
            raise SubjectGone("the subject was erased")
        self._subjects.add((workspace, ref))

    def create(self, workspace: str, session: str, now: int, parent: str | None, head: Head) -> int:
        """A new session on a head: nothing, or the point where it forks from its parent."""
        fields = (workspace, session, now, parent, head.position, head.hash)
        sid = int(self._one(Q.add_session, fields)[0])
        self._connection.execute(Q.check_session, (checksum(sid, *fields), sid))
        self.sids[(workspace, session)] = sid
        self.heads[sid] = head
        return sid

    def _one(self, query: str, values: tuple[Any, ...]) -> Any:
        return self._connection.execute(query, values).fetchone()


def _is_plain(request: Append, head: Head) -> bool:
    """Whether nothing but the unique indexes has to agree."""
    return (
        request.fence is None
        and request.subject is None
        and not request.blobs
        and not request.changes
        and request.beside is None
        and (request.expected is None or request.expected == head.position)
    )


def find_session(connection: apsw.Connection, workspace: str, session: str) -> Any:
    """The session's row, checked, or None."""
    row: Any = connection.execute(Q.find_session, (workspace, session)).fetchone()
    if row is not None:
        sid, created, parent, fork_at, fork_hash, check = row
        fields = (sid, workspace, session, created, parent, fork_at, fork_hash)
        expect_intact(f"session {session!r}", check, *fields)
    return row


def head_of(connection: apsw.Connection, row: Any) -> Head:
    """Where the session of a row stands."""
    last: Any = connection.execute(Q.last_event, (row[0],)).fetchone()
    return Head(row[3], row[4]) if last is None else Head(last[0], last[1])


def read_records(connection: apsw.Connection, sid: int, start: int, stop: int) -> list[Record]:
    """A range of a session's own events."""
    rows: Any = connection.execute(Q.read_events, (sid, start, stop))
    return list(map(Record._make, rows))
