"""Rows of sessions, subjects and cursors, and the integrity check of the store."""

from __future__ import annotations

from typing import Any

from ...ports import Head, SessionRow, SubjectRow
from ..common.integrity import find_damage
from ..common.row_checksum import expect_intact
from .connection import Connection
from .memories import M
from .searchable import S
from .sql import Q

_RULES = {
    "miscounted_audiences": "a change count is wrong, or two current memories have the same id, "
    "or hold at the same time under one key",
    "misplaced_searchable": "a search row belongs to no current memory, or contradicts it",
    "missing_searchable": "a current memory has no search row",
    "misplaced_heads": "a session's row does not match its last event",
    "displaced": "the place of an event in the feed was changed",
}
_ROWS = {"all_searchable": "search row of memory", "all_secrets": "secret of workspace"}


def find_session(connection: Connection, workspace: str, session: str) -> tuple[SessionRow, Head] | None:
    """The row and the head of a session, or None. If the row and the events disagree, the later head is returned, so
    that reading up to it detects the missing events."""
    row = connection.execute(Q.find_session, {"workspace": workspace, "session": session}, binary=True).fetchone()
    if row is None:
        return None
    created, parent, fork_at, fork_hash, head, stored, check, last, last_hash, time = row
    expect_intact(f"session {session!r}", check, workspace, session, created, parent, fork_at, fork_hash)
    found = Head(head, stored) if last is None or head > last else Head(last, last_hash)
    return SessionRow(session, created, parent, fork_at, found.position, time or created), found


def session_rows(connection: Connection, workspace: str, after: str, limit: int) -> list[SessionRow]:
    """See `Store.sessions`."""
    found = []
    values = {"workspace": workspace, "after": after, "limit": limit}
    rows = connection.execute(Q.list_sessions, values, binary=True)
    for session, created, parent, fork_at, fork_hash, check, head, time in rows:
        expect_intact(f"session {session!r}", check, workspace, session, created, parent, fork_at, fork_hash)
        position = fork_at if head is None else head
        found.append(SessionRow(session, created, parent, fork_at, position, time or created))
    return found


def subject_of(connection: Connection, query: str, workspace: str, which: Any) -> SubjectRow | None:
    """A subject by name or reference, as the query says."""
    row = connection.execute(query.encode(), (workspace, which), binary=True).fetchone()
    return None if row is None else _checked_subject(workspace, row)


def subjects_of(connection: Connection, workspace: str) -> list[SubjectRow]:
    """All subjects of a workspace."""
    rows = connection.execute(Q.list_subjects, (workspace,), binary=True)
    return [_checked_subject(workspace, row) for row in rows]


def _checked_subject(workspace: str, row: tuple[Any, ...]) -> SubjectRow:
    *fields, check = row
    subject = SubjectRow(*fields)
    expect_intact(f"subject {subject.ref.hex()}", check, workspace, *subject)
    return subject


def cursor_of(connection: Connection, query: str, workspace: str, outlet: str) -> int:
    """The cursor of an outlet."""
    row = connection.execute(query.encode(), (workspace, outlet)).fetchone()
    if row is None:
        return 0
    expect_intact(f"the cursor of {outlet!r}", row[1], workspace, outlet, row[0])
    return int(row[0])


def damage(connection: Connection) -> list[str]:
    """See `Store.damage`."""
    return find_damage(lambda query: connection.execute(query.encode(), binary=True), (Q, M, S), _RULES, _ROWS)


def remarks(connection: Connection) -> list[str]:
    """See `Store.remarks`: why row level security does not apply to this connection, if it does not."""
    rows = connection.execute(Q.unbound).fetchall()
    if not rows:
        return []
    _, role, is_super, bypasses = rows[0]
    if is_super or bypasses:
        why = "is a superuser" if is_super else "has BYPASSRLS"
        return [f"the role {role!r} {why}: only duramen, not PostgreSQL, separates workspaces for this handle"]
    tables = ", ".join(row[0] for row in rows)
    return [f"row level security is off for {tables}: PostgreSQL does not separate workspaces there"]
