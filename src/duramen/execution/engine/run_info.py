"""The public view of a run, and the changes to its row."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...journal.events import moment
from ...ports import LeaseRow, RunChange, RunRow
from .history import History, StepRecord
from .owner import has_live_owner


class RunStatus(enum.StrEnum):
    """The status of a run."""

    QUEUED = "queued"
    """No process has executed it yet."""
    RUNNING = "running"
    """A process executes it now."""
    CRASHED = "crashed"
    """The process that executed it has ended. It continues when it is resumed or a worker claims it."""
    SLEEPING = "sleeping"
    """It waits for a time."""
    WAITING = "waiting"
    """It waits for a signal, an answer, a person's verdict or another run."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run and its status.

    `waiting` says what the run waits for, `wake` when it continues by itself. `steps`, `in_doubt` and `input` are
    filled by `dm.run_info` only.
    """

    id: str
    session: str
    task: str
    version: str | None
    status: RunStatus
    waiting: str | None
    created: dt.datetime
    started: dt.datetime | None
    updated: dt.datetime
    ended: dt.datetime | None
    wake: dt.datetime | None
    parent: str | None
    queue: str | None
    queue_key: str | None
    priority: int
    owner: str | None
    steps: list[StepRecord] = field(default_factory=list)
    in_doubt: list[str] = field(default_factory=list)
    input: dict[str, Any] = field(default_factory=dict)


def info_of(row: RunRow, lease: LeaseRow | None, now: int, history: History | None = None) -> RunInfo:
    """The public view of a run's row. With a history, `steps`, `in_doubt` and `input` are filled."""
    held = has_live_owner(lease, now)
    status = status_of(row, held, now)
    steps = [] if history is None else list(history.steps.values())
    doubt = [] if history is None or held or row.status != "open" else [one.step for one in history.in_doubt()]
    return RunInfo(
        row.run,
        row.session,
        row.task,
        row.version,
        status,
        row.waiting if status in (RunStatus.WAITING, RunStatus.SLEEPING) else None,
        moment(row.created),
        _time_or_none(row.started),
        moment(row.updated),
        _time_or_none(row.ended),
        _time_or_none(row.wake),
        row.parent,
        row.queue,
        row.queue_key,
        row.priority,
        lease.owner if held and lease is not None else None,
        steps,
        doubt,
        {} if history is None else history.input,
    )


def status_of(row: RunRow, held: bool, now: int) -> RunStatus:
    """The status of a run, given whether its lease is held."""
    if row.status != "open":
        return RunStatus(row.status)
    if held:
        return RunStatus.RUNNING
    if row.wake is None:
        return RunStatus.WAITING
    if row.wake > now:
        return RunStatus.SLEEPING if row.started is not None else RunStatus.QUEUED
    return RunStatus.QUEUED if row.started is None or row.waiting is not None else RunStatus.CRASHED


def _time_or_none(micros: int | None) -> dt.datetime | None:
    return None if micros is None else moment(micros)


# -- changes to the row, each in the transaction that appends the event


def created(row: RunRow) -> RunChange:
    """Insert a run, unless it exists."""
    return RunChange(row.run, lambda before: row if before is None else None)


def nudged(run: str, now: int) -> RunChange:
    """Make an open run due, because there is an event that it has not seen."""

    def change(row: RunRow | None) -> RunRow | None:
        if row is None or row.status != "open":
            return None
        wake = now if row.wake is None else min(row.wake, now)
        return row._replace(wake=wake, nudges=row.nudges + 1, updated=now)

    return RunChange(run, change)


def parked(run: str, due: int | None, waiting: str, seen: int, now: int) -> RunChange:
    """Let the run wait until `due`. It stays due now if there are events that its owner has not seen."""

    def change(row: RunRow | None) -> RunRow | None:
        if row is None:
            return None
        wake = due if row.nudges == seen else now
        return row._replace(wake=wake, waiting=waiting, updated=now)

    return RunChange(run, change)


def ended(run: str, status: str, now: int) -> RunChange:
    """Set the final status of the run."""
    return _always(run, lambda row: row._replace(status=status, wake=None, waiting=None, ended=now, updated=now))


def _always(run: str, change: Callable[[RunRow], RunRow]) -> RunChange:
    return RunChange(run, lambda row: None if row is None else change(row))
