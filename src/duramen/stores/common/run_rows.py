"""Rows of runs as the SQL stores read them: checked, with their leases; and whether a queue has room for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import RunActive
from ...ports import LeaseRow, Limits, RunChange, RunRow
from .row_checksum import expect_intact

Counts = Sequence[int]
"""How many there are in a queue, and how many of them under one key."""


def checked_run(workspace: str, row: Sequence[Any]) -> RunRow:
    """A run's row from its columns and its checksum."""
    *fields, check = row
    expect_intact(f"run {fields[0]!r}", check, workspace, *fields)
    return RunRow(*fields)


def run_and_lease(workspace: str, row: Sequence[Any]) -> tuple[RunRow, LeaseRow | None]:
    """A run's row and the lease on its session, if there is one, from the columns of both."""
    *fields, owner, fence, expires, check = row
    run = checked_run(workspace, fields)
    if owner is None:
        return run, None
    expect_intact(f"the lease on {run.session!r}", check, workspace, run.session, owner, fence, expires)
    return run, LeaseRow(owner, fence, expires)


def changed_run(
    change: RunChange, read: Callable[[str], RunRow | None], open_in: Callable[[str], str | None]
) -> RunRow | None:
    """The row that a change leads to; None if nothing changes. Raises `RunActive` for a second open run in a session.
    `read` gives a row, locked; `open_in` the open run of a session."""
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
    """Whether a queue's limits let a run be executed now. `load` counts those that are, `starts` those begun since."""
    if limits.concurrency is not None or limits.key_concurrency is not None:
        active = load()
        if _reached(active[0], limits.concurrency) or _reached(active[1], limits.key_concurrency):
            return False
    if row.started is not None:
        return True  # a rate counts starts, and this one was counted
    for which, rate in enumerate((limits.rate, limits.key_rate)):
        if rate is not None and _reached(starts(now - rate[1])[which], rate[0]):
            return False
    return True


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit
