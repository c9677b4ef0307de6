"""Writes the events of a run for the owner of its lease.

An intent is synced before the step is called. An outcome is committed before the task's code gets the value, but not
synced by itself: the next intent's sync, or the heartbeat within 50 ms, protects it from a power cut. No recorded
event waits in memory while the task's code runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextvars import Context
from time import monotonic
from typing import Any

from ...errors import LeaseLost, RunError, StepsChanged, shown
from ...journal.encoder import Prepared
from ...journal.events import Draft
from ...journal.journal import Journal
from ...journal.owners import Owner
from ...ports import RunChange, RunRow, SubjectGone, Transaction
from ...runtime import drive, is_driven
from .history import History

EXTERNAL_EVENTS = frozenset({"signal.sent", "run.cancelling", "step.settled"})
"""Events in a run's session that are not written by the owner of its lease."""


class RunJournal:
    """Writes the events of one run under its fence, and reads the external events that arrive in between. Without a
    fence, every write raises `StepsChanged`."""

    def __init__(self, journal: Journal, row: RunRow, history: History, fence: int | None, owner: Owner) -> None:
        self._journal = journal
        self._row = row
        self._history = history
        self.fence = fence
        self.owner = owner
        self.position = history.position
        """The last known position of the session."""
        self.nudges = row.nudges
        """How many external events were read. A run must not be suspended before it has seen all of them."""
        self.broken: BaseException | None = None
        """Why nothing more can be written in this execution."""
        self.waiters: list[asyncio.Future[None]] = []
        """Branches that wait for an external event."""
        self.unsynced_since: float | None = None
        """When the oldest outcome that is not synced yet was committed; None if all are synced."""
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: list[_QueuedWrite] = []
        self._writer: asyncio.Task[None] | None = None

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write through one queue on this event loop from now on. Branches of an async task share it."""
        self._loop = loop

    def break_off(self, error: BaseException) -> None:
        """Make every later write of this execution raise `error`. The first call wins."""
        self.broken = self.broken or error

    def stored_name(self, name: str) -> str:
        """The name under which something is stored: as `Journal.stored_name`."""
        return self._journal.stored_name(name)

    def redacted(self, text: str) -> str:
        """The text with credentials replaced: as `Journal.redacted`."""
        return self._journal.redacted(text)

    def encode(self, kind: str, data: dict[str, Any], cause: int | None = None) -> Prepared:
        """Encode an event of this run. Its `data` is what a later read returns."""
        return self._journal.prepare(Draft(kind, data, cause=cause), self.owner)

    async def write(self, events: Sequence[Prepared], *, synced: bool, within: Transaction | None = None) -> None:
        """Commit events in one append. With `synced`, they survive a power cut once this returns. With `within`, they
        become part of that transaction.

        Branches of an async task that write at the same time share an append. A cancellation that arrives during the
        write is raised after the events are stored, so they are neither lost nor stored twice.
        """
        if self._loop is None or is_driven():
            # A plain function in an async task blocks the loop, so the queue would never be served.
            await self._append(events, synced=synced, within=within)
            return
        queued = self._enqueue(events, synced)
        cancelled: asyncio.CancelledError | None = None
        while not queued.finished:
            queued.waiter = self._loop.create_future()
            try:
                await queued.waiter
            except asyncio.CancelledError as error:
                cancelled = error
        if queued.error is not None:
            raise queued.error
        if cancelled is not None:
            raise cancelled

    def write_soon(self, event: Prepared) -> None:
        """Commit an event at once, or on the event loop as soon as it is free. It is stored before any later write.
        Can be called from any thread."""
        if self._loop is not None and not is_driven() and _running_loop() is self._loop:
            self._enqueue([event], False)
        else:
            drive(self._append([event], synced=False))

    async def write_last(self, event: Prepared, *, changes: Sequence[RunChange], key: str | None = None) -> None:
        """Commit and sync the last event of this execution, change the run's row and release the lease, in one
        transaction."""
        await self._append([event], synced=True, key=key, changes=changes, release=True)

    def _enqueue(self, events: Sequence[Prepared], synced: bool) -> _QueuedWrite:
        queued = _QueuedWrite(events, synced)
        self._queue.append(queued)
        if self._writer is None:
            # The empty context keeps this task from being counted as a branch of the run.
            self._writer = asyncio.Task(self._write_queued(), loop=self._loop, context=Context())
        return queued

    async def _write_queued(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                events = [event for queued in batch for event in queued.events]
                error: BaseException | None = None
                try:
                    await self._append(events, synced=any(queued.synced for queued in batch))
                except BaseException as raised:  # noqa: BLE001 - raised in each waiting branch
                    error = raised
                for queued in batch:
                    queued.finish(error)
        finally:
            self._writer = None

    async def _append(
        self,
        events: Sequence[Prepared],
        *,
        synced: bool,
        key: str | None = None,
        changes: Sequence[RunChange] = (),
        release: bool = False,
        within: Transaction | None = None,
    ) -> None:
        if self.broken is not None:
            raise self.broken
        if self.fence is None:
            raise StepsChanged(self._row.run, "something new", ["its end"])
        since = self.unsynced_since
        if synced and within is None:
            self.unsynced_since = None  # reset before the append, whose sync does not cover later commits
        try:
            done = await self._journal.append_prepared(
                self._row.session,
                list(events),
                self.owner,
                key=key,
                fence=self.fence,
                changes=changes,
                release=release,
                within=within,
                synced=synced,
            )
        except SubjectGone as error:
            self.broken = RunError(f"the subject of run {shown(self._row.run)} has been erased", hint="start a new run")
            raise self.broken from error
        except BaseException as error:
            self.unsynced_since = since
            self.broken = error  # the event may be stored or not, so this execution cannot continue
            raise
        if not synced and self.unsynced_since is None:
            self.unsynced_since = monotonic()
        if done.repeated:  # another owner has ended this run
            self.broken = LeaseLost(self._row.session, self.fence, None)
            raise self.broken
        first, last = done.records[0].position, done.records[-1].position
        with self._mutex:  # a step that timed out may still write from its own thread
            before, self.position = self.position, max(self.position, last)
        if first > before + 1:
            await self._read_external(before + 1, first - 1)

    async def _read_external(self, start: int, stop: int) -> None:
        """Read external events, such as signals or a cancellation, and wake the branches that wait for them."""
        for event in await self._journal.reader.events(self._row.session, start, stop, None):
            if event.type in EXTERNAL_EVENTS:
                position = self._history.position
                self._history.add(event)
                self._history.position = max(position, event.position)
                self.nudges += 1
        for waiter in self.waiters:
            resolve(waiter)


class _QueuedWrite:
    """Events of one branch in the write queue."""

    __slots__ = ("error", "events", "finished", "synced", "waiter")

    def __init__(self, events: Sequence[Prepared], synced: bool) -> None:
        self.events = events
        self.synced = synced
        self.waiter: asyncio.Future[None] | None = None
        self.finished = False
        self.error: BaseException | None = None

    def finish(self, error: BaseException | None) -> None:
        self.finished, self.error = True, error
        if self.waiter is not None:
            resolve(self.waiter)


def resolve(future: asyncio.Future[None]) -> None:
    """Resolve a future, unless it is done."""
    if not future.done():
        future.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
