"""The part of the store for runs: read, list, claim, and change them with an append."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw

from ...ports import LeaseRow, Limits, RunChange, RunQuery, RunRow
from ..common.row_checksum import checksum
from ..common.run_rows import changed_run, checked_run, has_room, intact_rows, run_and_lease
from .leases import read_lease, write_lease
from .rows import column
from .sql import Q

if TYPE_CHECKING:
    from .access import Access
    from .append import Target


def read_run(connection: apsw.Connection, workspace: str, run: str) -> RunRow | None:
    """A run's row, or None. Raises `StoreDamaged` if it does not match its checksum."""
    row: Any = connection.execute(Q.read_run, (workspace, run)).fetchone()
    return None if row is None else checked_run(workspace, row)


def write_run(connection: apsw.Connection, workspace: str, row: RunRow) -> None:
    """Store a run's row."""
    connection.execute(Q.write_run, (workspace, *row, checksum(workspace, *row)))


class RunProjection:
    """Writes `RunChange`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def read(self, target: Target, change: RunChange) -> RunRow | None:
        """The row to write, or None."""

        def open_in(session: str) -> str | None:
            found: Any = self._connection.execute(Q.open_run_in, (target.workspace, session)).fetchone()
            return found[0] if found else None

        return changed_run(change, lambda run: read_run(self._connection, target.workspace, run), open_in)

    def write(self, target: Target, change: RunChange, answer: RunRow | None) -> None:
        if answer is not None:
            write_run(self._connection, target.workspace, answer)

    def forget(self) -> None:
        """Nothing is cached."""


def list_runs(connection: apsw.Connection, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
    """See `Store.runs`."""
    created, run = query.before or (None, None)
    values = {
        "workspace": workspace,
        "status": None if query.status is None else f",{','.join(query.status)},",
        "task": query.task,
        "queue": query.queue,
        "parent": query.parent,
        "session": query.session,
        "created": created,
        "run": run,
    }

    def read(limit: int, skip: int) -> Any:
        return connection.execute(Q.list_runs, values | {"limit": limit, "skip": skip})

    return intact_rows(read, lambda row: run_and_lease(workspace, row), query.limit, strict=query.strict)


def due_runs(connection: apsw.Connection, workspace: str, now: int, limit: int, skip: int) -> list[RunRow]:
    """See `Store.due`."""

    def read(limit: int, skip: int) -> Any:
        return connection.execute(Q.due_runs, {"workspace": workspace, "now": now, "limit": limit, "skip": skip})

    return intact_rows(read, lambda row: checked_run(workspace, row), limit, skip=skip)


def claim(
    connection: apsw.Connection,
    workspace: str,
    run: str,
    owner: str,
    now: int,
    expires: int,
    limits: Limits | None,
    only_due: bool,
) -> LeaseRow | None:
    """See `Store.claim`."""
    row = read_run(connection, workspace, run)
    if row is None or row.status != "open" or (only_due and (row.wake is None or row.wake > now)):
        return None
    lease = read_lease(connection, workspace, row.session)
    if lease is not None and lease.expires > now and lease.owner != owner:
        return None
    if limits is not None and not _has_room(connection, workspace, row, now, limits):
        return None
    taken = LeaseRow(owner, lease.fence + 1 if lease else 1, expires)
    write_lease(connection, workspace, row.session, taken)
    if row.started is None:
        write_run(connection, workspace, row._replace(started=now))
    return taken


def _has_room(connection: apsw.Connection, workspace: str, row: RunRow, now: int, limits: Limits) -> bool:
    asked = {"workspace": workspace, "queue": row.queue, "queue_key": row.queue_key}

    def count(query: str, **more: Any) -> Any:
        return connection.execute(query, asked | more).fetchone()

    return has_room(
        row,
        now,
        limits,
        lambda: count(Q.queue_load, now=now, run=row.run),
        lambda since: count(Q.queue_starts, since=since),
    )


class Runs:
    """Implements the methods of `Store` for runs."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def run(self, workspace: str, run: str) -> RunRow | None:
        return await self._access.read(lambda connection: read_run(connection, workspace, run))

    async def runs(self, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
        return await self._access.read(lambda connection: list_runs(connection, workspace, query))

    async def due(self, workspace: str, now: int, limit: int, skip: int = 0) -> list[RunRow]:
        return await self._access.read(lambda connection: due_runs(connection, workspace, now, limit, skip))

    async def next_wake(self, workspace: str, now: int) -> int | None:
        found: list[int | None] = await self._access.read(
            lambda connection: column(connection, Q.next_wake, (workspace, now))
        )
        return found[0] if found else None

    async def claim(
        self, workspace: str, run: str, owner: str, now: int, expires: int, limits: Limits | None, only_due: bool
    ) -> LeaseRow | None:
        return await self._access.write(
            lambda connection: claim(connection, workspace, run, owner, now, expires, limits, only_due)
        )
