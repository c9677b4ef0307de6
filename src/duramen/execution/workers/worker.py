"""A worker claims and executes runs that are due, several at a time, until it is stopped.

It waits for the store to report a change of runs, or for the next run to be due. It also polls once a second, because
some changes are not reported: the lease of an owner on another machine may have expired.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...errors import DuramenError, InvalidInput, JournalError, RunError, StoreDamaged, shown
from ...journal.events import LARGEST, check_flag, check_name, check_seconds, check_whole
from ...ports import LeaseRow, Limits, RunQuery, RunRow
from ...runtime import drive, is_driven
from ..engine.engine import Engine
from ..engine.execution import Execution
from ..engine.owner import is_dead
from ..steps.definitions import Task
from .schedules import Schedule, tick

T = TypeVar("T")
log = logging.getLogger("duramen")
_PAGE = 100
_POLL_SECONDS = 1.0
_BUSY_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Queue:
    """The limits of a queue, over all processes that serve it.

    Attributes:
        concurrency: how many of its runs may be executed at the same time.
        rate: how many runs may start in a period, as (count, seconds).
        per_key: apply the limits to each queue key (such as a customer) separately.
    """

    name: str
    concurrency: int | None = None
    rate: tuple[int, float] | None = None
    per_key: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_name("queue", self.name))
        if self.concurrency is not None:
            check_whole("concurrency", self.concurrency, 1, LARGEST)
        if self.rate is not None:
            if not isinstance(self.rate, (tuple, list)) or len(self.rate) != 2:
                raise InvalidInput(
                    f"`rate` cannot be {shown(self.rate)}",
                    hint="give (count, seconds), such as (10, 60) for 10 starts a minute",
                )
            check_whole("rate[0]", self.rate[0], 1, LARGEST)
            check_seconds("rate[1]", self.rate[1], above=True)
        check_flag("per_key", self.per_key)

    @property
    def limits(self) -> Limits:
        """The limits in the form that the store takes."""
        rate = None if self.rate is None else (self.rate[0], int(self.rate[1] * 1e6))
        return (
            Limits(None, self.concurrency, None, rate) if self.per_key else Limits(self.concurrency, None, rate, None)
        )


class Worker:
    """Claims and executes the due runs of some tasks. `stop` ends it after its current runs have ended or wait."""

    def __init__(
        self,
        engine: Engine,
        tasks: Iterable[Task[..., Any]],
        *,
        concurrency: int,
        queues: Iterable[Queue],
        schedules: Iterable[Schedule],
        until_idle: bool,
    ) -> None:
        self._engine = engine
        self._schedules = _checked("schedules", schedules, Schedule)
        served = [*_checked("tasks", tasks, Task), *(one.task for one in self._schedules)]
        self._tasks = {(task.name, task.version): task for task in served}
        self._queues = {queue.name: queue for queue in _checked("queues", queues, Queue)}
        self._concurrency = concurrency
        self._until_idle = check_flag("until_idle", until_idle)
        self._busy = 0
        self._mutex = threading.Lock()
        self._stopping = threading.Event()
        self._last_release = 0.0
        self._delayed: dict[str, tuple[int, float]] = {}
        self._executed = 0

    def stop(self) -> None:
        """Claim no more runs. `work` returns when the current runs have ended or wait."""
        self._stopping.set()

    async def work(self) -> int:
        """Claim and execute runs until stopped; with `until_idle`, until no run is due. Returns the number of
        executions."""
        store, workspace = self._engine.journal.store, self._engine.journal.workspace
        while not self._stopping.is_set():
            mark = await store.mark(runs=True)
            await self._release_dead_owners()
            wakes = [wake for one in self._schedules if (wake := await self._tick(one)) is not None]
            taken, refused = await self._claim_due()
            if taken and self._busy < self._concurrency:
                continue
            if self._until_idle and not taken and not self._busy:
                break
            now = self._engine.now()
            following = await store.next_wake(workspace, now)
            wakes += [] if following is None else [following]
            pause = min([_POLL_SECONDS, *(max(0.0, (wake - now) / 1e6) for wake in wakes)])
            if self._busy >= self._concurrency or (self._until_idle and self._busy):
                pause = min(pause, _BUSY_SECONDS)
            elif refused:
                pause = min(pause, 0.1)
            await store.changed(mark, pause)
        while self._busy:
            await self._pause()
        return self._executed

    async def _tick(self, schedule: Schedule) -> int | None:
        """Start the runs of a schedule that are due. Returns the time of its next tick, or None if it cannot continue:
        the other schedules and runs do."""
        name = f"schedule:{schedule.name}"
        if time.monotonic() < self._delayed.get(name, (0, 0.0))[1]:
            return None
        try:
            return await tick(self._engine, schedule)
        except (InvalidInput, JournalError, RunError, StoreDamaged) as error:
            log.warning("schedule %s cannot continue: %s", schedule.name, error)
            self._delay(name)
            return None

    async def _pause(self) -> None:
        if is_driven():
            time.sleep(0.01)
        else:
            await asyncio.sleep(0.01)

    async def _release_dead_owners(self) -> None:
        """Release the leases of dead owners on this machine. Does so at most once a second."""
        if time.monotonic() - self._last_release < _POLL_SECONDS:
            return
        self._last_release = time.monotonic()
        journal, now = self._engine.journal, self._engine.now()
        before: tuple[int, str] | None = None
        while True:
            found = await journal.store.runs(
                journal.workspace, RunQuery(status=("open",), before=before, limit=_PAGE * 5)
            )
            for row, lease in found:
                if lease is not None and lease.expires > now and is_dead(lease.owner):
                    await journal.store.release(journal.workspace, row.session, lease.fence)
            last = (found[-1][0].created, found[-1][0].run) if found else (0, "")
            if len(found) < _PAGE * 5 or (before is not None and last >= before):
                return
            before = last

    async def _claim_due(self) -> tuple[int, bool]:
        """Claim due runs and begin to execute them. Returns how many, and whether a queue's limits held a run back."""
        journal, taken, skip = self._engine.journal, 0, 0
        refused: set[tuple[str | None, str | None, bool]] = set()
        while self._busy < self._concurrency and not self._stopping.is_set():
            rows = await journal.store.due(journal.workspace, self._engine.now(), _PAGE, skip)
            for row in rows:
                task = self._tasks.get((row.task, row.version))
                if time.monotonic() < self._delayed.get(row.run, (0, 0.0))[1]:
                    continue
                if task is None or (row.queue is not None and row.queue not in self._queues):
                    continue
                which = (row.queue, row.queue_key, row.started is None)  # a rate limits only the first start
                if which in refused or self._busy >= self._concurrency:
                    continue
                limits = self._queues[row.queue].limits if row.queue is not None else None
                try:
                    lease = await self._engine.claim(row.run, limits, only_due=True)
                except StoreDamaged as error:
                    log.warning("run %s cannot continue: %s", row.run, error)
                    self._delay(row.run)
                    continue
                if lease is not None:
                    taken += 1
                    self._begin(row, lease, task)
                elif limits is not None:
                    refused.add(which)
            if len(rows) < _PAGE or taken:
                break
            skip += len(rows)
        return taken, bool(refused)

    def _begin(self, row: RunRow, lease: LeaseRow, task: Task[..., Any]) -> None:
        with self._mutex:
            self._busy += 1
            self._executed += 1
        execution = Execution(self._engine, row, lease, task)
        _run_concurrently(lambda: self._execute(row, execution))

    async def _execute(self, row: RunRow, execution: Execution) -> None:
        try:
            await execution.execute()
            self._delayed.pop(row.run, None)
        except (DuramenError, KeyboardInterrupt) as error:
            log.warning("run %s cannot continue: %s", row.run, error)
            self._delay(row.run)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the failure is journaled; the worker continues
            log.info("run %s failed: %s", row.run, error)
        except asyncio.CancelledError:
            self._delay(row.run)
            raise
        except BaseException:  # not an error of the task: the run stays open, as after a crash
            log.exception("run %s was interrupted", row.run)
            self._delay(row.run)
        finally:
            with self._mutex:
                self._busy -= 1

    def _delay(self, run: str) -> None:
        """Delay the next attempt of this run, twice as long each time, up to a minute. It may need a person to fix
        it."""
        count = self._delayed.get(run, (0, 0.0))[0]
        self._delayed[run] = (count + 1, time.monotonic() + min(60.0, 2.0**count))


def _checked(what: str, given: object, kind: type[T]) -> list[T]:
    """The items of an argument of `work`. Raises `InvalidInput` unless all of them are of this kind."""
    items: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    for item in items:
        if not isinstance(item, kind):
            hint = "decorate the function with @duramen.task" if kind is Task else f"give duramen.{kind.__name__}(…)"
            raise InvalidInput(f"{shown(item)} in `{what}` is not a {kind.__name__.lower()}", hint=hint)
    return items


_running: set[asyncio.Task[None]] = set()


def _run_concurrently(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start work in the background: on a thread in the sync API, as a task on the event loop otherwise."""
    if is_driven():
        threading.Thread(target=lambda: drive(work()), name="duramen-run", daemon=True).start()
        return
    begun = asyncio.create_task(work())
    _running.add(begun)
    begun.add_done_callback(_running.discard)
