"""Rows of runs: read, list, claim, and change them with an append."""

from __future__ import annotations

from typing import Any

from ...ports import LeaseRow, Limits, RunChange, RunQuery, RunRow
from ..common.row_checksum import checksum
from ..common.run_rows import changed_run, checked_run, has_room, intact_rows, run_and_lease
from .connection import Connection
from .leases import read_lease, write_lease
from .projection import Target
from .sql import Q


def read_run(connection: Connection, workspace: str, run: str, *, lock: bool) -> RunRow | None:
    """A run's row, or None. Raises `StoreDamaged` if it does not match its checksum."""
    row = connection.execute(Q.lock_run if lock else Q.read_run, (workspace, run), binary=True).fetchone()
    return None if row is None else checked_run(workspace, row)


def write_run(connection: Connection, workspace: str, row: RunRow) -> None:
    """Store a run's row."""
    connection.execute(Q.write_run, (workspace, *row, checksum(workspace, *row)))


class RunProjection:
    """Writes `RunChange`. The appender has locked the session's row, so no other process can start a run in the
    session."""

    def ask(self, target: Target, change: RunChange) -> tuple[Any, Any]:
        """Lock and read the run's row, and read the open run of the session."""
        execute, workspace = target.connection.execute, target.workspace
        row = execute(Q.lock_run, (workspace, change.run), binary=True)
        return row, execute(Q.open_run_in, (workspace, target.session))

    def read(self, target: Target, change: RunChange, asked: tuple[Any, Any]) -> RunRow | None:
        """The row to write, or None."""
        row, opened = asked[0].fetchone(), asked[1]

        def open_in(session: str) -> str | None:
            known = session == target.session
            asked = opened if known else target.connection.execute(Q.open_run_in, (target.workspace, session))
            found = asked.fetchone()
            return found[0] if found else None

        before = None if row is None else checked_run(target.workspace, row)
        return changed_run(change, lambda run: before, open_in)

    def write(self, target: Target, change: RunChange, answer: RunRow | None) -> None:
        if answer is not None:
            write_run(target.connection, target.workspace, answer)


def list_runs(connection: Connection, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
    """See `Store.runs`."""
    created, run = query.before or (None, None)
    values = {
        "workspace": workspace,
        "status": None if query.status is None else list(query.status),
        "task": query.task,
        "queue": query.queue,
        "parent": query.parent,
        "session": query.session,
        "created": created,
        "run": run,
    }

    def read(limit: int, skip: int) -> Any:
        return connection.execute(Q.list_runs, values | {"limit": limit, "skip": skip}, binary=True)

    return intact_rows(read, lambda row: run_and_lease(workspace, row), query.limit, strict=query.strict)


def due_runs(connection: Connection, workspace: str, now: int, limit: int, skip: int) -> list[RunRow]:
    """See `Store.due`."""

    def read(limit: int, skip: int) -> Any:
        values = {"workspace": workspace, "now": now, "limit": limit, "skip": skip}
        return connection.execute(Q.due_runs, values, binary=True)

    return intact_rows(read, lambda row: checked_run(workspace, row), limit, skip=skip)


def claim(
    connection: Connection,
    workspace: str,
    run: str,
    owner: str,
    now: int,
    expires: int,
    limits: Limits | None,
    only_due: bool,
    again: bool,
) -> LeaseRow | None:
    """See `Store.claim`. Order of locks: queue, lease, run. `again`: an earlier try may have been committed although
    its answer was lost."""
    seen = read_run(connection, workspace, run, lock=False)
    if seen is None:
        return None
    if limits is not None:
        connection.execute(Q.lock_queue, (f"{workspace}\n{seen.queue}",))
    place, free = (workspace, seen.session), LeaseRow(owner, 0, 0)
    connection.execute(Q.add_lease, (*place, *free, checksum(*place, *free)))
    lease = read_lease(connection, place, lock=True) or free
    row = read_run(connection, workspace, run, lock=True)
    if row is None or row.status != "open" or (only_due and (row.wake is None or row.wake > now)):
        return None
    if again and lease.owner == owner and lease.expires == expires:
        return lease
    if lease.expires > now and lease.owner != owner:
        return None
    if limits is not None and not _has_room(connection, workspace, row, now, limits):
        return None
    if row.started is None:
        write_run(connection, workspace, row._replace(started=now))
    return write_lease(connection, place, LeaseRow(owner, lease.fence + 1, expires))


def _has_room(connection: Connection, workspace: str, row: RunRow, now: int, limits: Limits) -> bool:
    asked = {"workspace": workspace, "queue": row.queue, "queue_key": row.queue_key}

    def count(query: str, **more: Any) -> Any:
        return connection.execute(query.encode(), asked | more).fetchone()

    return has_room(
        row,
        now,
        limits,
        lambda: count(Q.queue_load, now=now, run=row.run),
        lambda since: count(Q.queue_starts, since=since),
    )
