"""Batches the state writes of one session, so that writes that wait at the same time are stored together.

The writer that holds the lock of the session stores all queued writes in one append with one sync. An attachment,
such as the writes of a graph, is usually followed by the next checkpoint within milliseconds. The attachment waits
for that checkpoint, so that one append stores both and the checkpoint does not wait for the attachment. If no
checkpoint follows, later attachments do not wait.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, NamedTuple

from ..journal.encoder import Prepared
from ..journal.owners import Owner
from ..ports import Bookmark
from ..runtime import Lock, is_driven
from .manifest import Fields

_MOST = 32
"""The maximum number of states in one append."""
_SHORTEST_WAIT, _LONGEST_WAIT = 0.002, 0.02
"""Limits, in seconds, for how long an attachment waits for the next checkpoint. Within them it waits three times as
long as the last checkpoint took to follow."""
_POLL = 0.0002


class StateWrite(NamedTuple):
    """A state to write.

    `name` is the name of its previous version (None: it has none). A writer with an empty cache searches previous
    versions under the names in `like`.
    """

    session: str
    name: str | None
    bookmark: Bookmark
    fields: Fields
    kind: str
    note: dict[str, Any]
    subject: str | None
    fence: int | None
    after: tuple[str, str | None] | None
    like: tuple[str, ...]
    actor: str | None = None
    also: tuple[Bookmark, ...] = ()
    """Further bookmarks of the same event."""
    can_wait: bool = False
    """Whether it may wait a moment for another write that stores both."""


class WriteResult(NamedTuple):
    """Where and when a state was stored, its digest, and its note as it will be read."""

    position: int
    time: int
    digest: bytes
    note: dict[str, Any]


class EncodedEvent(NamedTuple):
    """The event of a write, encoded while the write waited, and the owner and digest that it was encoded for."""

    owner: Owner
    digest: bytes
    event: Prepared


class QueuedWrite:
    """A write in the queue, and its result."""

    __slots__ = ("_finished", "driven", "encoded", "error", "result", "taken", "write")

    def __init__(self, write: StateWrite) -> None:
        self.write = write
        self.encoded: EncodedEvent | None = None
        self.driven = is_driven()
        self.taken = False
        """Whether it is part of a batch."""
        self.result: WriteResult | None = None
        self.error: BaseException | None = None
        self._finished = threading.Lock()
        self._finished.acquire()

    @property
    def done(self) -> bool:
        """Whether it has a result or an error."""
        return self.result is not None or self.error is not None

    def get(self) -> WriteResult:
        """Return its result, or raise its error."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    def finish(self, outcome: WriteResult | BaseException) -> None:
        """Set its result or error. The writer that took it calls this once."""
        if isinstance(outcome, BaseException):
            self.error = outcome
        else:
            self.result = outcome
        self._finished.release()

    async def wait(self, seconds: float) -> None:
        """Wait until it is done, for at most this many seconds."""
        if self.driven:
            if self._finished.acquire(timeout=seconds):
                self._finished.release()
            return
        until = time.monotonic() + seconds
        while not self.done and time.monotonic() < until:
            await asyncio.sleep(_POLL)

    def can_join(self, leader: QueuedWrite) -> bool:
        """Whether one append can store both. A blocking call on the thread of an event loop would deadlock with a
        coroutine of that loop, so it only joins blocking calls."""
        mine, other = self.write, leader.write
        return (self.driven <= leader.driven) and (mine.subject, mine.fence) == (other.subject, other.fence)


class WriteBatcher:
    """The queued writes of one session, from all threads and coroutines of a handle."""

    def __init__(self) -> None:
        self.lock = Lock()
        """Held by the writer that stores a batch."""
        self._guard = threading.Lock()
        self._queue: list[QueuedWrite] = []
        self._attaching = 0
        self._attached_at = 0.0
        self._wait = _SHORTEST_WAIT
        self._followed = True
        """Whether a checkpoint followed the last attachments in time."""

    def add(self, write: StateWrite) -> QueuedWrite:
        """Queue a write."""
        queued = QueuedWrite(write)
        with self._guard:
            self._queue.append(queued)
            if write.can_wait:
                self._attaching += 1
                self._attached_at = time.monotonic()
            elif self._attaching:
                self._followed = True
                self._wait = min(max(_SHORTEST_WAIT, 3 * (time.monotonic() - self._attached_at)), _LONGEST_WAIT)
        return queued

    async def wait_to_be_taken(self, queued: QueuedWrite) -> None:
        """Wait a moment so that another writer can store this write, if that is likely."""
        if not self._followed:
            return
        await queued.wait(self._wait)
        if not queued.taken:
            self._followed = False

    def take_batch(self, leader: QueuedWrite) -> list[QueuedWrite]:
        """A write and all writes that can join it, in order of arrival; empty if another writer has taken it.

        At most one of them has an `after`, because the store checks it before it applies the append.
        """
        with self._guard:
            if leader.taken:
                return []
            bound = leader.write.after is not None
            batch: list[QueuedWrite] = []
            for one in self._queue:
                if one is not leader:
                    if len(batch) >= _MOST or not one.can_join(leader) or (bound and one.write.after is not None):
                        continue
                    bound = bound or one.write.after is not None
                one.taken = True
                batch.append(one)
            self._queue = [one for one in self._queue if not one.taken]
            return batch

    def remove(self, queued: QueuedWrite) -> None:
        """Remove a write that is done or whose caller was cancelled."""
        with self._guard:
            if not queued.taken:
                self._queue.remove(queued)
            if queued.write.can_wait:
                self._attaching -= 1
