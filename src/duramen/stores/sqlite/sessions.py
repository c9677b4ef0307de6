"""The part of the store for sessions and leases."""

from __future__ import annotations

from typing import Any

import apsw

from ...errors import SessionExists
from ...ports import Head, LeaseRow, SessionRow
from ..common.row_checksum import expect_intact
from .access import Access
from .leases import check_fence, read_lease, write_lease
from .rows import column, find_session
from .sql import Q


class Sessions:
    """Implements the methods of `Store` for sessions and leases."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def session(self, workspace: str, session: str) -> SessionRow | None:
        return await self._access.read(lambda connection: _session_row(connection, workspace, session))

    async def sessions(self, workspace: str, after: str, limit: int) -> list[SessionRow]:
        return await self._access.read(lambda connection: _session_rows(connection, workspace, after, limit))

    async def session_names(self, workspace: str, after: str, limit: int) -> list[str]:
        return await self._access.read(
            lambda connection: column(connection, Q.list_session_names, (workspace, after, limit))
        )

    async def workspaces(self) -> list[str]:
        return await self._access.read(lambda connection: column(connection, Q.list_workspaces))

    async def fork(self, workspace: str, parent: str, at: Head, session: str, now: int) -> None:
        def work(connection: apsw.Connection) -> None:
            if find_session(connection, workspace, session) is not None:
                raise SessionExists(session)
            self._access.writer.appender.create(workspace, session, now, parent, at)

        await self._access.write(work)

    async def acquire(self, workspace: str, session: str, owner: str, now: int, expires: int) -> LeaseRow | None:
        def work(connection: apsw.Connection) -> LeaseRow | None:
            lease = read_lease(connection, workspace, session)
            if lease is not None and lease.expires > now and lease.owner != owner:
                return None
            taken = LeaseRow(owner, lease.fence + 1 if lease else 1, expires)
            write_lease(connection, workspace, session, taken)
            return taken

        return await self._access.write(work)

    async def renew(self, workspace: str, session: str, fence: int, now: int, expires: int) -> LeaseRow:
        def work(connection: apsw.Connection) -> LeaseRow:
            lease = check_fence(connection, workspace, session, fence, now)
            kept = lease._replace(expires=expires)
            write_lease(connection, workspace, session, kept)
            return kept

        return await self._access.write(work)

    async def release(self, workspace: str, session: str, fence: int) -> None:
        def work(connection: apsw.Connection) -> None:
            lease = read_lease(connection, workspace, session)
            if lease is not None and lease.fence == fence:
                write_lease(connection, workspace, session, lease._replace(expires=0))

        await self._access.write(work)
        self._access.runs_notifier.notify()

    async def lease(self, workspace: str, session: str) -> LeaseRow | None:
        return await self._access.read(lambda connection: read_lease(connection, workspace, session))


def _session_row(connection: apsw.Connection, workspace: str, session: str) -> SessionRow | None:
    """See `Store.session`."""
    row = find_session(connection, workspace, session)
    if row is None:
        return None
    sid, created, parent, fork_at, _, _ = row
    last: Any = connection.execute(Q.last_event, (sid,)).fetchone()
    position, updated = (last[0], last[2]) if last else (fork_at, created)
    return SessionRow(session, created, parent, fork_at, position, updated)


def _session_rows(connection: apsw.Connection, workspace: str, after: str, limit: int) -> list[SessionRow]:
    """See `Store.sessions`."""
    found = []
    rows: Any = connection.execute(Q.list_sessions, (workspace, after, limit))
    for sid, session, created, parent, fork_at, fork_hash, check, head, updated in rows:
        fields = (sid, workspace, session, created, parent, fork_at, fork_hash)
        expect_intact(f"session {session!r}", check, *fields)
        position = fork_at if head is None else head
        found.append(SessionRow(session, created, parent, fork_at, position, updated or created))
    return found
