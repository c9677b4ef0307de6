"""Runs as rows: read, changed with an append, listed, claimed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from ...errors import RunActive
from ...ports import LeaseRow, Limits, RunChange, RunQuery, RunRow
from ..rowcheck import checksum, expect_intact
from .leases import read_lease, write_lease
from .sql import Q


def read_run(connection: apsw.Connection, workspace: str, run: str) -> RunRow | None:
    """A run's row, checked."""
    row: Any = connection.execute(Q.read_run, (workspace, run)).fetchone()
    return None if row is None else _checked(workspace, row)


def _checked(workspace: str, row: Sequence[Any]) -> RunRow:
    *fields, check = row
    expect_intact(f"run {fields[0]!r}", check, workspace, *fields)
    return RunRow(*fields)


def write_run(connection: apsw.Connection, workspace: str, row: RunRow) -> None:
    """Store a run's row."""
    connection.execute(Q.write_run, (workspace, *row, checksum(workspace, *row)))


def changed_runs(connection: apsw.Connection, workspace: str, changes: Sequence[RunChange]) -> list[RunRow]:
    """The rows that an append's changes lead to. Raises before anything is written."""
    rows = []
    for run, change in changes:
        before = read_run(connection, workspace, run)
        after = change(before)
        if after is None:
            continue
        if before is None:
            other: Any = connection.execute(Q.open_run_in, (workspace, after.session)).fetchone()
            if other is not None:
                raise RunActive(other[0], after.session, "")
        rows.append(after)
    return rows


def list_runs(connection: apsw.Connection, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
    """Runs by filters, newest first, with the leases on their sessions."""
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
        "limit": query.limit,
    }
    found = []
    rows: Any = connection.execute(Q.list_runs, values)
    for *fields, owner, fence, expires, lease_check in rows:
        row = _checked(workspace, fields)
        lease = None
        if owner is not None:
            expect_intact(f"the lease on {row.session!r}", lease_check, workspace, row.session, owner, fence, expires)
            lease = LeaseRow(owner, fence, expires)
        found.append((row, lease))
    return found


def due_runs(connection: apsw.Connection, workspace: str, now: int, limit: int, skip: int) -> list[RunRow]:
    """Runs that may be taken up."""
    rows: Any = connection.execute(Q.due_runs, {"workspace": workspace, "now": now, "limit": limit, "skip": skip})
    return [_checked(workspace, row) for row in rows]


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
    """Take an open run's lease, if its queue has room."""
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
    if limits.concurrency is not None or limits.key_concurrency is not None:
        load: Any = connection.execute(Q.queue_load, asked | {"now": now, "run": row.run}).fetchone()
        if reached(load[0], limits.concurrency) or reached(load[1], limits.key_concurrency):
            return False
    if row.started is not None:
        return True  # a rate counts starts, and this one was counted
    for which, rate in enumerate((limits.rate, limits.key_rate)):
        if rate is not None:
            starts: Any = connection.execute(Q.queue_starts, asked | {"since": now - rate[1]}).fetchone()
            if reached(starts[which], rate[0]):
                return False
    return True


def reached(count: int, limit: int | None) -> bool:
    """Whether a limit leaves no room."""
    return limit is not None and count >= limit
