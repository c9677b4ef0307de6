"""Rows of runs: reading them with their leases, changing them, and the limits of queues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ...errors import RunActive, StoreDamaged
from ...ports import LeaseRow, Limits, RunChange, RunRow
from .row_checksum import expect_intact

T = TypeVar("T")
log = logging.getLogger("duramen")
_reported: set[str] = set()
"""The damage that was logged. Workers read the same rows again and again."""

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


def intact_rows(
    read: Callable[[int, int], Iterable[Sequence[Any]]],
    build: Callable[[Sequence[Any]], T],
    limit: int,
    *,
    skip: int = 0,
    strict: bool = False,
) -> list[T]:
    """Up to `limit` rows that match their checksums. `read` returns rows in order, given a limit and how many to skip.

    A damaged row is logged once and left out, so that it does not hide the others. With `strict`, it raises
    `StoreDamaged`.
    """
    found: list[T] = []
    while len(found) < limit:
        wanted, count = limit - len(found), 0
        rows = iter(read(wanted, skip))
        while True:
            try:
                found.append(build(next(rows)))
            except StopIteration:
                break
            except (StoreDamaged, UnicodeDecodeError) as error:
                if strict:
                    raise
                _report(error)
            count += 1
        if count < wanted:
            break
        skip += count
    return found


def _report(error: Exception) -> None:
    what = error.message if isinstance(error, StoreDamaged) else "the row of a run is not valid text"
    if what not in _reported:
        _reported.add(what)
        log.warning("%s; it is left out: run `duramen verify`", what)


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
