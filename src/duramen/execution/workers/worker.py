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
from typing import Any

from ...errors import DuramenError, InvalidInput
from ...journal.events import check_name
from ...ports import LeaseRow, Limits, RunQuery, RunRow
from ...runtime import drive, is_driven
from ..engine.engine import Engine
from ..engine.execution import Execution
from ..engine.owner import is_dead
from ..steps.definitions import Task
from .schedules import Schedule, tick

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
        check_name("queue", self.name)
        if self.concurrency is not None and self.concurrency < 1:
            raise InvalidInput(
                f"`concurrency` cannot be {self.concurrency!r}", hint="give a whole number of at least 1"
            )
        if self.rate is not None and (len(self.rate) != 2 or self.rate[0] < 1 or not self.rate[1] > 0):
            raise InvalidInput(
                f"`rate` cannot be {self.rate!r}", hint="give (count, seconds), such as (10, 60) for 10 starts a minute"
            )

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
        self._schedules = list(schedules)
        served = [*tasks, *(one.task for one in self._schedules)]
        for task in served:
            if not isinstance(task, Task):
                raise InvalidInput(f"{task!r} is not a task", hint="decorate the function with @duramen.task")
        self._tasks = {(task.name, task.version): task for task in served}
        self._queues = {queue.name: queue for queue in queues}
        self._concurrency = concurrency
        self._until_idle = until_idle
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
            wakes = [await tick(self._engine, schedule) for schedule in self._schedules]
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
                lease = await self._engine.claim(row.run, limits, only_due=True)
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


_running: set[asyncio.Task[None]] = set()


def _run_concurrently(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start work in the background: on a thread in the sync API, as a task on the event loop otherwise."""
    if is_driven():
        threading.Thread(target=lambda: drive(work()), name="duramen-run", daemon=True).start()
        return
    begun = asyncio.create_task(work())
    _running.add(begun)
    begun.add_done_callback(_running.discard)
