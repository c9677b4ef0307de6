"""The part of the store for subjects: the owners of data keys, and their erasure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw

from ...crash_points import reach
from ...ports import Erase, Erasure, Rewrap, SubjectRow
from ..common.row_checksum import checksum, expect_intact
from .access import Access
from .append import Appender
from .memories import forget_owned
from .rows import find_session, head_of
from .sql import Q


class Subjects:
    """Implements the methods of `Store` for subjects."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def subject(self, workspace: str, name: str) -> SubjectRow | None:
        return await self._access.read(lambda connection: _subject_of(connection, Q.find_subject, workspace, name))

    async def subject_by_ref(self, workspace: str, ref: bytes) -> SubjectRow | None:
        return await self._access.read(
            lambda connection: _subject_of(connection, Q.find_subject_by_ref, workspace, ref)
        )

    async def add_subject(self, workspace: str, subject: SubjectRow) -> SubjectRow:
        def work(connection: apsw.Connection) -> SubjectRow:
            check = checksum(workspace, *subject)
            connection.execute(Q.add_subject, (workspace, *subject, check))
            return _subject_of(connection, Q.find_subject, workspace, subject.name) or subject

        return await self._access.write(work)

    async def subjects(self, workspace: str) -> list[SubjectRow]:
        return await self._access.read(lambda connection: _subjects_of(connection, workspace))

    async def rewrap(self, workspace: str, rows: Iterable[Rewrap]) -> int:
        def work(connection: apsw.Connection) -> int:
            moved = 0
            for ref, before, after in rows:
                values = (after.wrapped, after.master, checksum(workspace, *after), workspace, ref, before)
                connection.execute(Q.rewrap_subject, values)
                moved += connection.changes()
            return moved

        return await self._access.write(work)

    async def erase(self, request: Erase) -> Erasure:
        def work(connection: apsw.Connection) -> Erasure:
            reach("erase.begun")
            erased = _erase(connection, self._access.writer.appender, request)
            reach("erase.removed")
            return erased

        erased = await self._access.write(work)
        reach("erase.committed")
        await self._access.runtime.run(self._access.writer.purge_log)
        return erased


def _subject_of(connection: apsw.Connection, query: str, workspace: str, which: Any) -> SubjectRow | None:
    """A subject by name or reference, as the query says."""
    row: Any = connection.execute(query, (workspace, which)).fetchone()
    return None if row is None else _checked_subject(workspace, row)


def _subjects_of(connection: apsw.Connection, workspace: str) -> list[SubjectRow]:
    """All subjects of a workspace."""
    rows: Any = connection.execute(Q.list_subjects, (workspace,))
    return [_checked_subject(workspace, row) for row in rows]


def _checked_subject(workspace: str, row: Any) -> SubjectRow:
    *fields, check = row
    subject = SubjectRow(*fields)
    expect_intact(f"subject {subject.ref.hex()}", check, workspace, *subject)
    return subject


def _erase(connection: apsw.Connection, appender: Appender, request: Erase) -> Erasure:
    """Remove all data of a subject and append the tombstones, inside the open transaction."""
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
