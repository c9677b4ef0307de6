"""Leases as rows: who owns a session, under which fence, until when."""

from __future__ import annotations

from ...errors import LeaseLost
from ...ports import LeaseRow
from ..common.row_checksum import checksum, expect_intact
from .connection import Connection
from .sql import Q

Place = tuple[str, str]


def read_lease(connection: Connection, place: Place, *, lock: bool) -> LeaseRow | None:
    """The lease as it stands, checked."""
    row = connection.execute(Q.lock_lease if lock else Q.read_lease, place, binary=True).fetchone()
    if row is None:
        return None
    owner, fence, expires, check = row
    expect_intact(f"the lease on {place[1]!r}", check, *place, owner, fence, expires)
    return LeaseRow(owner, fence, expires)


def check_fence(lease: LeaseRow | None, session: str, fence: int, now: int) -> LeaseRow:
    """The lease, if it is held under `fence`; raises `LeaseLost` if it is another's or has run out."""
    if lease is None or lease.fence != fence or lease.expires <= now:
        raise LeaseLost(session, fence, lease.fence if lease else None)
    return lease


def write_lease(connection: Connection, place: Place, lease: LeaseRow) -> LeaseRow:
    """Store the lease of a row that is locked."""
    connection.execute(Q.write_lease, (*lease, checksum(*place, *lease), *place))
    return lease
