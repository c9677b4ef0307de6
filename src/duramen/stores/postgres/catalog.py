"""Sessions, subjects and cursors as rows, each checked when it is read; and the check of all of them."""

from __future__ import annotations

from typing import Any

from ...ports import Head, SessionRow, SubjectRow
from ..common.row_checksum import expect_intact, mismatches
from .connection import Connection
from .memories import M
from .searchable import S
from .sql import Q


def find_session(connection: Connection, workspace: str, session: str) -> tuple[SessionRow, Head] | None:
    """A session and where it stands. If its row and its events disagree, the later end counts: reading up to it
    finds what is missing."""
    row = connection.execute(Q.find_session, {"workspace": workspace, "session": session}, binary=True).fetchone()
    if row is None:
        return None
    created, parent, fork_at, fork_hash, head, stored, check, last, last_hash, time = row
    expect_intact(f"session {session!r}", check, workspace, session, created, parent, fork_at, fork_hash)
    found = Head(head, stored) if last is None or head > last else Head(last, last_hash)
    return SessionRow(session, created, parent, fork_at, found.position, time or created), found


def session_rows(connection: Connection, workspace: str, after: str, limit: int) -> list[SessionRow]:
    """Sessions by id, after one."""
    found = []
    values = {"workspace": workspace, "after": after, "limit": limit}
    rows = connection.execute(Q.list_sessions, values, binary=True)
    for session, created, parent, fork_at, fork_hash, check, head, time in rows:
        expect_intact(f"session {session!r}", check, workspace, session, created, parent, fork_at, fork_hash)
        position = fork_at if head is None else head
        found.append(SessionRow(session, created, parent, fork_at, position, time or created))
    return found


def subject_of(connection: Connection, query: str, workspace: str, which: Any) -> SubjectRow | None:
    """A living subject, by name or reference."""
    row = connection.execute(query.encode(), (workspace, which), binary=True).fetchone()
    return None if row is None else _checked_subject(workspace, row)


def subjects_of(connection: Connection, workspace: str) -> list[SubjectRow]:
    """All living subjects."""
    rows = connection.execute(Q.list_subjects, (workspace,), binary=True)
    return [_checked_subject(workspace, row) for row in rows]


def _checked_subject(workspace: str, row: tuple[Any, ...]) -> SubjectRow:
    *fields, check = row
    subject = SubjectRow(*fields)
    expect_intact(f"subject {subject.ref.hex()}", check, workspace, *subject)
    return subject


def cursor_of(connection: Connection, query: str, workspace: str, outlet: str) -> int:
    """How far an outlet got."""
    row = connection.execute(query.encode(), (workspace, outlet)).fetchone()
    if row is None:
        return 0
    expect_intact(f"the cursor of {outlet!r}", row[1], workspace, outlet, row[0])
    return int(row[0])


def damage(connection: Connection) -> list[str]:
    """What is wrong outside the chains: orphans, disorder, rows that do not match their checksums."""
    found = []
    for what, query in (
        ("an event belongs to no session", Q.orphan_events),
        ("a blob belongs to no subject", Q.orphan_blobs),
        ("a bookmark points to nothing, or a chunk belongs to no session", Q.orphan_bookmarks),
        ("a memory points to nothing, or what is searched belongs to no memory", M.orphan_memories),
        ("a change of a memory is missing, or two stand for one", M.miscounted_audiences),
        ("what PostgreSQL searches belongs to no current memory, or contradicts it", S.misplaced_searchable),
        ("a memory is missing in what PostgreSQL searches", S.missing_searchable),
        ("the feed contradicts the order of a session", Q.disorder),
        ("a session's row does not match its last event", Q.misplaced_heads),
        ("an event is not at its place in the feed", Q.displaced),
    ):
        if connection.execute(query).fetchone() is not None:
            found.append(what)
    for kind, query in (
        ("session", Q.all_sessions),
        ("subject", Q.all_subjects),
        ("lease", Q.all_leases),
        ("cursor", Q.all_cursors),
        ("run", Q.all_runs),
        ("bookmark", Q.all_bookmarks),
        ("chunk", Q.all_chunks),
        ("audience", M.all_audiences),
        ("memory", M.all_memories),
        ("index entry", M.all_index_entries),
        ("segment", M.all_segments),
        ("count of recalls", M.all_recalls),
        ("generation", M.all_generations),
        ("searchable form of memory", S.all_searchable),
        ("secret of workspace", S.all_secrets),
    ):
        rows = connection.execute(query, binary=True)
        found += [f"the {kind} {name!r} does not match its checksum" for name in mismatches(rows)]
    return found


def remarks(connection: Connection) -> list[str]:
    """Whether PostgreSQL keeps workspaces apart for this connection, and if not, why."""
    rows = connection.execute(Q.unbound).fetchall()
    if not rows:
        return []
    _, role, is_super, bypasses = rows[0]
    if is_super or bypasses:
        why = "is a superuser" if is_super else "has BYPASSRLS"
        return [f"the role {role!r} {why}: only duramen, not PostgreSQL, keeps workspaces apart for this handle"]
    tables = ", ".join(row[0] for row in rows)
    return [f"row level security is off for {tables}: PostgreSQL does not keep workspaces apart there"]
