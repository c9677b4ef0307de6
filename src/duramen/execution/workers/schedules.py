"""Recurring runs. Each tick starts a run with the tick's time in its id, so no tick starts two runs. The journal holds
the last tick, so no tick is missed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from ...errors import InvalidInput, shown
from ...journal.events import Draft, check_name, check_seconds, check_text
from ..engine.engine import Engine
from ..steps.definitions import Task, check_task

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WINDOWS = (3600, 24 * 3600, 31 * 24 * 3600, 366 * 24 * 3600)
_MOST = 1000
"""The largest number of missed ticks handled in one pass."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Runs a task at the times of a `cron` expression in the time zone `tz`, or every `every` seconds.

    `missed` decides about ticks that passed while no worker ran: "one" runs the last of them, "all" runs each, "skip"
    runs the last one if it is at most `grace` seconds old.
    """

    name: str
    task: Task[..., Any]
    cron: str | None = None
    every: float | None = None
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    missed: Literal["one", "all", "skip"] = "one"
    grace: float = 60.0
    tz: str = "UTC"
    queue: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_name("schedule", self.name))
        check_task(self.task)
        if (self.cron is None) == (self.every is None):
            raise InvalidInput(
                f"schedule {shown(self.name)} needs either cron= or every=", hint='give one, such as cron="0 3 * * *"'
            )
        if self.every is not None and not check_seconds("every", self.every) >= 0.001:
            raise InvalidInput(
                f"`every` cannot be {shown(self.every)}", hint="give a number of seconds of at least 0.001"
            )
        if self.cron is not None:
            check_text("cron", self.cron)
        if not isinstance(self.args, (list, tuple)):
            raise InvalidInput(f"`args` cannot be {shown(self.args)}", hint="give a list of the task's arguments")
        if not isinstance(self.kwargs, dict) or not all(isinstance(name, str) for name in self.kwargs):
            hint = "give a dict of the task's arguments by name"
            raise InvalidInput(f"`kwargs` cannot be {shown(self.kwargs)}", hint=hint)
        check_seconds("grace", self.grace)
        check_name("tz", self.tz)
        if self.queue is not None:
            object.__setattr__(self, "queue", check_name("queue", self.queue))
        if self.missed not in ("one", "all", "skip"):
            raise InvalidInput(f"`missed` cannot be {shown(self.missed)}", hint='use "one", "all" or "skip"')
        try:
            ZoneInfo(self.tz)
            if self.cron is not None:
                CronSim(self.cron, _EPOCH)
        except CronSimError as error:
            raise InvalidInput(
                f"{shown(self.cron)} is not a cron expression: {error}", hint='use five fields, such as "*/5 * * * *"'
            ) from error
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidInput(
                f"{shown(self.tz)} is not a time zone", hint="use a name such as Europe/Berlin"
            ) from error

    def nearly(self, tick: int, now: int) -> int:
        """A time at or after `tick` that skips most ticks in between. If there are ticks up to `now`, at least one of
        them follows the returned time."""
        if self.every is not None:
            period = int(self.every * 1e6)
            return max(tick, tick + ((now - tick) // period - 1) * period)
        for window in _WINDOWS:
            start = now - window * 1_000_000
            if start <= tick:
                return tick
            if next(self.after(start)) <= now:
                return start
        return tick

    def after(self, tick: int) -> Iterator[int]:
        """The ticks after `tick`, in microseconds."""
        if self.every is not None:
            period = int(self.every * 1e6)
            while True:
                tick += period
                yield tick
        assert self.cron is not None
        start = (_EPOCH + dt.timedelta(microseconds=tick)).astimezone(ZoneInfo(self.tz))
        for when in CronSim(self.cron, start):
            yield int(when.timestamp() * 1e6)


async def tick(engine: Engine, schedule: Schedule) -> int:
    """Start the runs that are due. Returns the time of the next tick in microseconds."""
    session, now = f"schedule:{schedule.name}", engine.now()
    last = await _last_tick(engine, session)
    if last is None:
        await _note(engine, session, "schedule.declared", now, "declared")
        last = await _last_tick(engine, session) or now
    due: list[int] = []
    following = last
    for following in schedule.after(last if schedule.missed == "all" else schedule.nearly(last, now)):
        if following > now or len(due) >= _MOST:
            break
        due.append(following)
    for chosen in _chosen(schedule, due, now):
        run = f"{schedule.name}@{_text(chosen)}"
        await engine.start(schedule.task, schedule.args, schedule.kwargs, run=run, queue=schedule.queue)
    if due:
        await _note(engine, session, "schedule.ticked", due[-1], f"tick:{due[-1]}")
    return following


def _chosen(schedule: Schedule, due: list[int], now: int) -> list[int]:
    if schedule.missed == "all":
        return due
    if schedule.missed == "one":
        return due[-1:]
    return [one for one in due[-1:] if now - one <= schedule.grace * 1e6]


async def _last_tick(engine: Engine, session: str) -> int | None:
    head = await engine.journal.reader.head(session)
    if not head.position:
        return None
    event = (await engine.journal.reader.events(session, head.position, head.position, None))[0]
    return int(event.data["tick"])


async def _note(engine: Engine, session: str, kind: str, when: int, key: str) -> None:
    await engine.journal.append(session, [Draft(kind, {"tick": when})], key=key)


def _text(micros: int) -> str:
    when = _EPOCH + dt.timedelta(microseconds=micros)
    return when.strftime("%Y-%m-%dT%H:%M:%S") + (f".{when.microsecond:06d}" if when.microsecond else "") + "Z"
