"""Reads that several parts of the store need."""

from __future__ import annotations

from typing import Any

import apsw

from ...ports import Head, Record
from ..common.row_checksum import expect_intact
from .sql import Q


def column(connection: apsw.Connection, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """The first column of a query's rows."""
    rows: Any = connection.execute(query, values)
    return [row[0] for row in rows]


def find_session(connection: apsw.Connection, workspace: str, session: str) -> Any:
    """The row of a session, or None. Raises `StoreDamaged` if it does not match its checksum."""
    row: Any = connection.execute(Q.find_session, (workspace, session)).fetchone()
    if row is not None:
        sid, created, parent, fork_at, fork_hash, check = row
        fields = (sid, workspace, session, created, parent, fork_at, fork_hash)
        expect_intact(f"session {session!r}", check, *fields)
    return row


def head_of(connection: apsw.Connection, row: Any) -> Head:
    """The head of the session with this row."""
    last: Any = connection.execute(Q.last_event, (row[0],)).fetchone()
    return Head(row[3], row[4]) if last is None else Head(last[0], last[1])


def read_records(connection: apsw.Connection, sid: int, start: int, stop: int) -> list[Record]:
    """The session's own records from `start` to `stop`, by position."""
    rows: Any = connection.execute(Q.read_events, (sid, start, stop))
    return list(map(Record._make, rows))
