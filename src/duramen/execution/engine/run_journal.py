"""The events of a run while it is executed: noted, and written in order.

A step's intent is durable before the step begins. Its outcome may wait for the next intent, so that a row of steps
costs one flush each; the keeper writes what has waited for a moment. Nothing is written out of order.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...errors import DuramenError, LeaseLost, RunError, StepsChanged
from ...journal.encoder import Prepared
from ...journal.events import Draft
from ...journal.journal import Journal
from ...journal.lanes import Plain, prepared
from ...journal.owners import Owner
from ...ports import RunChange, RunRow, SubjectGone, Transaction
from ...runtime import drive, is_driven
from ..steps.definitions import Kind, Task
from .history import History

if TYPE_CHECKING:
    from .engine import Engine


class RunJournal:
    """What an owner writes of a run, under its fence. Without one, nothing can be written."""

    def __init__(
        self, engine: Engine, row: RunRow, history: History, task: Task[Any, Any], fence: int | None, owner: Owner
    ) -> None:
        self.engine = engine
        self.journal: Journal = engine.journal
        self.now = self.journal.clock.now
        """The time, in microseconds."""
        self.row = row
        self.history = history
        self.task = task
        self.plain = task.kind is Kind.PLAIN
        """Whether the task is a plain function."""
        self.fence = fence
        self.readonly = fence is None
        self.owner = owner
        self._lane = self.journal.lane(row.session, fence, owner) if self.plain and fence is not None else None
        self.position = history.position
        self.nudges = row.nudges
        self.broken: BaseException | None = None
        self.pending: list[Prepared | Plain] = []
        self.pending_since: float | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._mutex = threading.Lock()
        # In a plain task, the keeper's thread writes too: one after the other. Coroutines take turns.
        self._writing: Any = threading.RLock() if self.plain else nullcontext()
        self._turn: asyncio.Lock | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._quiet = False

    def prepare(self, draft: Draft) -> Prepared:
        """Encode an event of this run."""
        return self.journal.prepare(draft, self.owner)

    def note(self, kind: str, data: dict[str, Any]) -> Prepared:
        """Add an event to what is written next."""
        prepared = self.prepare(Draft(kind, data))
        self.add(prepared)
        return prepared

    def add(self, *events: Prepared | Plain) -> None:
        """Add encoded events to what is written next."""
        with self._mutex:
            self.pending += events
            if self.pending_since is None:
                self.pending_since = monotonic()

    def flush(
        self,
        *,
        key: str | None = None,
        changes: Sequence[RunChange] = (),
        release: bool = False,
        within: Transaction | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Make what was noted durable, in order."""
        writing = self._write(key, changes, release, within)
        turn = self._turn
        # A plain step inside an async task blocks the loop, so nobody else of this run can be about to write.
        return writing if turn is None or is_driven() else self._in_turn(turn, writing)

    async def _in_turn(self, turn: asyncio.Lock, writing: Coroutine[Any, Any, None]) -> None:
        try:
            async with turn:
                await writing
        finally:
            writing.close()

    async def _write(
        self, key: str | None, changes: Sequence[RunChange], release: bool, within: Transaction | None
    ) -> None:
        if self.broken is not None:
            raise self.broken
        with self._writing:
            with self._mutex:
                batch, self.pending, self.pending_since = self.pending, [], None
            if batch:
                await self._append(batch, key, changes, release, within)

    async def _append(
        self,
        batch: Sequence[Prepared | Plain],
        key: str | None = None,
        changes: Sequence[RunChange] = (),
        release: bool = False,
        within: Transaction | None = None,
    ) -> None:
        if self.readonly:
            raise StepsChanged(self.row.run, "something new", ["its end"])
        try:
            done = await self.journal.append_prepared(
                self.row.session,
                [prepared(event) for event in batch],
                self.owner,
                key=key,
                fence=self.fence,
                changes=changes,
                release=release,
                within=within,
            )
        except SubjectGone as error:
            self.broken = RunError(f"the subject of run {self.row.run!r} was erased", hint="start a new run")
            raise self.broken from error
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.broken = error  # whether it landed is open: the journal knows, this execution does not
            raise
        if done.repeated:  # somebody else wrote this run's end
            self.broken = LeaseLost(self.row.session, self.fence, None)
            raise self.broken
        await self._follow(done.records[0].position, done.records[-1].position)

    def write_now(self, last: Plain) -> None:
        """Make what was noted and one event more durable, in a plain task: by the lane, if there is nothing special
        about it."""
        if self.broken is not None:
            raise self.broken
        with self._writing:
            with self._mutex:
                batch, self.pending, self.pending_since = [*self.pending, last], [], None
            if self._lane is None:
                head = None
            else:
                try:
                    head = self._lane.append(self.now(), batch)
                except BaseException as error:
                    self.broken = error  # as above
                    raise
            if head is None:
                drive(self._append(batch))
            elif head[0] - len(batch) == self.position:
                self.position = head[0]
            else:
                drive(self._follow(head[0] - len(batch) + 1, head[0]))

    async def _follow(self, first: int, last: int) -> None:
        """Events of this run have taken these positions."""
        before, self.position = self.position, max(last, self.position)
        if first > before + 1:
            await self._catch_up(before + 1, first - 1)

    async def _catch_up(self, start: int, stop: int) -> None:
        """Take in what others wrote meanwhile: signals, a cancellation."""
        for event in await self.journal.reader.events(self.row.session, start, stop, None):
            if event.type in OUTSIDE:
                position = self.history.position
                self.history.add(event)
                self.history.position = max(position, event.position)
                self.nudges += 1
        for news in self._waiters:
            settle(news)

    def keep_quiet(self, quiet: bool) -> None:
        """While a step has a transaction, the keeper does not write: each would wait for the other."""
        with self._writing:
            self._quiet = quiet

    def flush_from(self) -> None:
        """For the keeper, in its own thread: write what has waited."""
        if self.plain:
            with suppress(Exception), self._writing:  # what went wrong is kept in `broken`, for the run's own thread
                if not self._quiet:
                    drive(self.flush())
        elif self.loop is not None:
            with suppress(RuntimeError):
                asyncio.run_coroutine_threadsafe(self._flush_quietly(), self.loop)

    async def _flush_quietly(self) -> None:
        with suppress(DuramenError):
            await self.flush()


def settle(future: asyncio.Future[None]) -> None:
    """Wake whoever waits for it."""
    if not future.done():
        future.set_result(None)


OUTSIDE = frozenset({"signal.sent", "run.cancelling", "step.settled"})
"""Events that others than the owner write into a run."""
