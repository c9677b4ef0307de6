"""Rows of leases."""

from __future__ import annotations

from typing import Any

from ...errors import LeaseLost
from ...ports import LeaseRow, ReleaseLease
from ..common.row_checksum import checksum, expect_intact
from .connection import Connection
from .projection import Target
from .sql import Q

Place = tuple[str, str]


def checked_lease(place: Place, row: tuple[Any, ...] | None) -> LeaseRow | None:
    """A lease from its columns. Raises `StoreDamaged` if it does not match its checksum."""
    if row is None:
        return None
    owner, fence, expires, check = row
    expect_intact(f"the lease on {place[1]!r}", check, *place, owner, fence, expires)
    return LeaseRow(owner, fence, expires)


def read_lease(connection: Connection, place: Place, *, lock: bool) -> LeaseRow | None:
    """The lease on a session, or None. Raises `StoreDamaged` if it does not match its checksum."""
    return checked_lease(
        place, connection.execute(Q.lock_lease if lock else Q.read_lease, place, binary=True).fetchone()
    )


def check_fence(lease: LeaseRow | None, session: str, fence: int, now: int) -> LeaseRow:
    """Return the lease. Raises `LeaseLost` if its fence is another one, or if it expired."""
    if lease is None or lease.fence != fence or lease.expires <= now:
        raise LeaseLost(session, fence, lease.fence if lease else None)
    return lease


def write_lease(connection: Connection, place: Place, lease: LeaseRow) -> LeaseRow:
    """Replace a lease. The caller has locked its row."""
    connection.execute(Q.write_lease, (*lease, checksum(*place, *lease), *place))
    return lease


class ReleaseProjection:
    """Writes `ReleaseLease`. The appender has locked the lease."""

    def ask(self, target: Target, change: ReleaseLease) -> Any:
        return target.connection.execute(Q.read_lease, (target.workspace, target.session), binary=True)

    def read(self, target: Target, change: ReleaseLease, asked: Any) -> LeaseRow | None:
        """The present lease. The appender has checked its fence."""
        return checked_lease((target.workspace, target.session), asked.fetchone())

    def write(self, target: Target, change: ReleaseLease, answer: LeaseRow | None) -> None:
        if answer is not None:
            write_lease(target.connection, (target.workspace, target.session), answer._replace(expires=0))
