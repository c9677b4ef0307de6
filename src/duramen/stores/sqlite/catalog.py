"""Sessions, subjects, leases and cursors as rows, each checked when it is read; and the check of all of them."""

from __future__ import annotations

from typing import Any

import apsw

from ...ports import Erase, Erasure, SessionRow, SubjectRow
from ..common.row_checksum import expect_intact, mismatches
from .append import Appender, find_session, head_of
from .memories import M, forget_owned
from .sql import Q


def column(connection: apsw.Connection, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """The first column of a query's rows."""
    rows: Any = connection.execute(query, values)
    return [row[0] for row in rows]


def session_row(connection: apsw.Connection, workspace: str, session: str) -> SessionRow | None:
    """A session and where it stands."""
    row = find_session(connection, workspace, session)
    if row is None:
        return None
    sid, created, parent, fork_at, _, _ = row
    last: Any = connection.execute(Q.last_event, (sid,)).fetchone()
    position, updated = (last[0], last[2]) if last else (fork_at, created)
    return SessionRow(session, created, parent, fork_at, position, updated)


def session_rows(connection: apsw.Connection, workspace: str, after: str, limit: int) -> list[SessionRow]:
    """Sessions by id, after one."""
    found = []
    rows: Any = connection.execute(Q.list_sessions, (workspace, after, limit))
    for sid, session, created, parent, fork_at, fork_hash, check, head, updated in rows:
        fields = (sid, workspace, session, created, parent, fork_at, fork_hash)
        expect_intact(f"session {session!r}", check, *fields)
        stands = fork_at if head is None else head
        found.append(SessionRow(session, created, parent, fork_at, stands, updated or created))
    return found


def cursor_of(connection: apsw.Connection, workspace: str, outlet: str) -> int:
    """How far an outlet got."""
    row: Any = connection.execute(Q.read_cursor, (workspace, outlet)).fetchone()
    if row is None:
        return 0
    expect_intact(f"the cursor of {outlet!r}", row[1], workspace, outlet, row[0])
    return int(row[0])


def subject_of(connection: apsw.Connection, query: str, workspace: str, which: Any) -> SubjectRow | None:
    """A living subject, by name or reference."""
    row: Any = connection.execute(query, (workspace, which)).fetchone()
    return None if row is None else _checked_subject(workspace, row)


def subjects_of(connection: apsw.Connection, workspace: str) -> list[SubjectRow]:
    """All living subjects."""
    rows: Any = connection.execute(Q.list_subjects, (workspace,))
    return [_checked_subject(workspace, row) for row in rows]


def _checked_subject(workspace: str, row: Any) -> SubjectRow:
    *fields, check = row
    subject = SubjectRow(*fields)
    expect_intact(f"subject {subject.ref.hex()}", check, workspace, *subject)
    return subject


def erase(connection: apsw.Connection, appender: Appender, request: Erase) -> Erasure:
    """Remove a subject's payloads, blobs and keys, and place the tombstones."""
    payloads = size = 0
    held: dict[str, tuple[int, int]] = {}
    rows: Any = connection.execute(Q.payloads_of_subject, (request.ref, request.workspace)).fetchall()
    for seq, sid, session, payload in rows:
        connection.execute(Q.erase_payload, (request.digest(payload), seq))
        payloads, size = payloads + 1, size + len(payload)
        held[session] = (sid, held.get(session, (sid, 0))[1] + 1)
    gone: Any = connection.execute(Q.delete_blobs_of, (request.ref, request.workspace)).fetchall()
    marks: Any = connection.execute(Q.delete_bookmarks_of, (request.ref, request.workspace)).fetchall()
    chunks: Any = connection.execute(Q.delete_chunks_of, (request.ref, request.workspace)).fetchall()
    memories, vectors, indexed = forget_owned(connection, request.workspace, request.ref)
    connection.execute(Q.delete_subject, (request.workspace, request.ref))
    appender.forget()
    tombstones = {}
    for session, (sid, count) in held.items():
        head = head_of(connection, find_session(connection, request.workspace, session))
        tombstones[session] = request.tombstone(session, head, count)
        appender.add_record(request.workspace, session, sid, tombstones[session])
    size += indexed + sum(row[0] for row in (*gone, *marks, *chunks))
    return Erasure(payloads, len(gone), len(marks), size, tombstones, memories, vectors)


def damage(connection: apsw.Connection) -> list[str]:
    """What is wrong beside the chains: the file itself, orphans, gaps, rows that do not match their checksums."""
    found = [text for text in column(connection, "PRAGMA integrity_check(10)") if text != "ok"]
    for what, query in (
        ("an event belongs to no session", Q.orphan_events),
        ("a blob belongs to no subject", Q.orphan_blobs),
        ("a bookmark points to nothing, or a chunk belongs to no session", Q.orphan_bookmarks),
        ("a memory points to nothing, or what is searched belongs to no memory", M.orphan_memories),
        ("two memories stand for one", M.doubled_memories),
        ("the feed contradicts the order of a session", Q.disorder),
        ("events are missing: the numbers of the feed have a gap", Q.gap),
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
        ("index_entry", M.all_index_entries),
        ("segment", M.all_segments),
        ("count of recalls", M.all_recalls),
        ("generation", M.all_generations),
    ):
        rows: Any = connection.execute(query)
        found += [f"the {kind} {name!r} does not match its checksum" for name in mismatches(rows)]
    return found
