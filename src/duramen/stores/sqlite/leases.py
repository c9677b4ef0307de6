"""Leases as rows: who owns a session, under which fence, until when."""

from __future__ import annotations

from typing import Any

import apsw

from ...errors import LeaseLost
from ...ports import LeaseRow
from ..common.row_checksum import checksum, expect_intact
from .sql import Q


def read_lease(connection: apsw.Connection, workspace: str, session: str) -> LeaseRow | None:
    """The lease as it stands, checked."""
    row: Any = connection.execute(Q.read_lease, (workspace, session)).fetchone()
    if row is None:
        return None
    owner, fence, expires, check = row
    expect_intact(f"the lease on {session!r}", check, workspace, session, owner, fence, expires)
    return LeaseRow(owner, fence, expires)


def write_lease(connection: apsw.Connection, workspace: str, session: str, lease: LeaseRow) -> None:
    """Store a lease."""
    check = checksum(workspace, session, *lease)
    connection.execute(Q.write_lease, (workspace, session, *lease, check))


def check_fence(connection: apsw.Connection, workspace: str, session: str, fence: int, now: int) -> LeaseRow:
    """The lease held under `fence`; raises `LeaseLost` if it is another's or has run out."""
    lease = read_lease(connection, workspace, session)
    if lease is None or lease.fence != fence or lease.expires <= now:
        raise LeaseLost(session, fence, lease.fence if lease else None)
    return lease


def release_lease(connection: apsw.Connection, workspace: str, session: str) -> None:
    """End a lease now."""
    lease = read_lease(connection, workspace, session)
    if lease is not None:
        write_lease(connection, workspace, session, lease._replace(expires=0))
