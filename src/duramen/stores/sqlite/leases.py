"""Rows of leases."""

from __future__ import annotations

from typing import Any

import apsw

from ...errors import LeaseLost
from ...ports import LeaseRow
from ..common.row_checksum import checksum, expect_intact
from .sql import Q


def read_lease(connection: apsw.Connection, workspace: str, session: str) -> LeaseRow | None:
    """The lease on a session, or None. Raises `StoreDamaged` if it does not match its checksum."""
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
    """The lease with this `fence`. Raises `LeaseLost` if the fence is another one, or the lease expired."""
    lease = read_lease(connection, workspace, session)
    if lease is None or lease.fence != fence or lease.expires <= now:
        raise LeaseLost(session, fence, lease.fence if lease else None)
    return lease


def release_lease(connection: apsw.Connection, workspace: str, session: str) -> None:
    """Release a lease."""
    lease = read_lease(connection, workspace, session)
    if lease is not None:
        write_lease(connection, workspace, session, lease._replace(expires=0))
