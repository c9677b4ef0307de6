"""Rows of runs: reading them with their leases, changing them, and the limits of queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import RunActive
from ...ports import LeaseRow, Limits, RunChange, RunRow
from .row_checksum import expect_intact

Counts = Sequence[int]
"""The number of runs in a queue, and the number of those with one key."""


def checked_run(workspace: str, row: Sequence[Any]) -> RunRow:
    """A run's row from its columns. Raises `StoreDamaged` if it does not match its checksum."""
    *fields, check = row
    expect_intact(f"run {fields[0]!r}", check, workspace, *fields)
    return RunRow(*fields)


def run_and_lease(workspace: str, row: Sequence[Any]) -> tuple[RunRow, LeaseRow | None]:
    """A run's row and the lease on its session, if there is one, from the columns of both. Raises `StoreDamaged` if one
    of them does not match its checksum."""
    *fields, owner, fence, expires, check = row
    run = checked_run(workspace, fields)
    if owner is None:
        return run, None
    expect_intact(f"the lease on {run.session!r}", check, workspace, run.session, owner, fence, expires)
    return run, LeaseRow(owner, fence, expires)


def changed_run(
    change: RunChange, read: Callable[[str], RunRow | None], open_in: Callable[[str], str | None]
) -> RunRow | None:
    """The row to store for a change, or None if nothing changes. Raises `RunActive` for a new run in a session with an
    open run. `read` locks and returns a row. `open_in` returns the open run of a session."""
    before = read(change.run)
    after = change.change(before)
    if after is not None and before is None:
        other = open_in(after.session)
        if other is not None:
            raise RunActive(other, after.session, "")
    return after


def has_room(
    row: RunRow, now: int, limits: Limits, load: Callable[[], Counts], starts: Callable[[int], Counts]
) -> bool:
    """Whether the limits of a queue allow a run to execute now. `load` counts the other executing runs, `starts` the
    runs that were started after a time."""
    if limits.concurrency is not None or limits.key_concurrency is not None:
        active = load()
        if _reached(active[0], limits.concurrency) or _reached(active[1], limits.key_concurrency):
            return False
    if row.started is not None:
        return True  # a rate counts starts, and this run was counted when it started
    for which, rate in enumerate((limits.rate, limits.key_rate)):
        if rate is not None and _reached(starts(now - rate[1])[which], rate[0]):
            return False
    return True


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit
