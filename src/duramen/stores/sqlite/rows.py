"""Reads of a session's row and events that several parts need."""

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
    """The session's row, checked, or None."""
    row: Any = connection.execute(Q.find_session, (workspace, session)).fetchone()
    if row is not None:
        sid, created, parent, fork_at, fork_hash, check = row
        fields = (sid, workspace, session, created, parent, fork_at, fork_hash)
        expect_intact(f"session {session!r}", check, *fields)
    return row


def head_of(connection: apsw.Connection, row: Any) -> Head:
    """The head of the session of a row."""
    last: Any = connection.execute(Q.last_event, (row[0],)).fetchone()
    return Head(row[3], row[4]) if last is None else Head(last[0], last[1])


def read_records(connection: apsw.Connection, sid: int, start: int, stop: int) -> list[Record]:
    """A range of a session's own events."""
    rows: Any = connection.execute(Q.read_events, (sid, start, stop))
    return list(map(Record._make, rows))
