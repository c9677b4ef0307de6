"""The way of states into one session: one after the other, and those that wait together are stored together.

Whoever has the turn takes along what else is waiting, in one append and one sync. What is attached to a checkpoint, as
the writes of a graph are, is followed by the next checkpoint within a moment: it waits for that one to take it along,
so that the checkpoint need not wait for it. Where nothing follows, it soon stops waiting.
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
"""States in one append."""
_PATIENCE, _LONGEST = 0.002, 0.02
"""Seconds for which something attached waits for the next checkpoint: three times of what it took the last time, but no
less and no more than this."""
_LOOK = 0.0002


class Order(NamedTuple):
    """A state to store: under which name it has predecessors (None: under none), and all that goes with it. Who
    remembers nothing looks for predecessors under the names in `like`."""

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
    patient: bool = False
    """Whether it may wait a moment for another one to take it along."""


class Stored(NamedTuple):
    """Where and when a state was stored, its digest, and its note as reading will give it back."""

    position: int
    time: int
    digest: bytes
    note: dict[str, Any]


class Ahead(NamedTuple):
    """An order's event, encoded before its turn came: for whom, and for which digest of the state."""

    owner: Owner
    digest: bytes
    event: Prepared


class Passenger:
    """An order on its way, and what came of it."""

    __slots__ = ("_settled", "ahead", "driven", "error", "order", "stored", "taken")

    def __init__(self, order: Order) -> None:
        self.order = order
        self.ahead: Ahead | None = None
        self.driven = is_driven()
        self.taken = False
        self.stored: Stored | None = None
        self.error: BaseException | None = None
        self._settled = threading.Lock()
        self._settled.acquire()

    @property
    def arrived(self) -> bool:
        """Whether it has an outcome."""
        return self.stored is not None or self.error is not None

    def outcome(self) -> Stored:
        """Where it is stored, or raise why it is not."""
        if self.error is not None:
            raise self.error
        assert self.stored is not None
        return self.stored

    def settle(self, outcome: Stored | BaseException) -> None:
        """Give it its outcome. Whoever took it does that, once."""
        if isinstance(outcome, BaseException):
            self.error = outcome
        else:
            self.stored = outcome
        self._settled.release()

    async def wait(self, longest: float) -> None:
        """Until it has an outcome, or for so long."""
        if self.driven:
            if self._settled.acquire(timeout=longest):
                self._settled.release()
            return
        until = time.monotonic() + longest
        while not self.arrived and time.monotonic() < until:
            await asyncio.sleep(_LOOK)

    def goes_with(self, leader: Passenger) -> bool:
        """Whether one append can hold both. Plain code that runs on an event loop's thread would never get there with a
        coroutine of that loop: it goes with plain code only."""
        mine, other = self.order, leader.order
        return (self.driven <= leader.driven) and (mine.subject, mine.fence) == (other.subject, other.fence)


class Lane:
    """The states of one session that are on their way, for all threads and coroutines of a handle."""

    def __init__(self) -> None:
        self.turn = Lock()
        self._lock = threading.Lock()
        self._waiting: list[Passenger] = []
        self._attaching = 0
        self._attached_at = 0.0
        self._patience = _PATIENCE
        self._followed = True
        """Whether what is attached is likely to be followed by a checkpoint at once."""

    def enter(self, order: Order) -> Passenger:
        """A new one, which waits."""
        passenger = Passenger(order)
        with self._lock:
            self._waiting.append(passenger)
            if order.patient:
                self._attaching += 1
                self._attached_at = time.monotonic()
            elif self._attaching:
                self._followed = True
                self._patience = min(max(_PATIENCE, 3 * (time.monotonic() - self._attached_at)), _LONGEST)
        return passenger

    async def linger(self, passenger: Passenger) -> None:
        """Let a patient one wait for somebody who takes it along."""
        if not self._followed:
            return
        await passenger.wait(self._patience)
        if not passenger.taken:
            self._followed = False

    def take(self, passenger: Passenger) -> list[Passenger]:
        """It and all who can go with it, in order of arrival; nobody if it was taken. One of them at most says what it
        must follow: that is looked at before anything of the append is there."""
        with self._lock:
            if passenger.taken:
                return []
            bound = passenger.order.after is not None
            taken: list[Passenger] = []
            for one in self._waiting:
                if one is not passenger:
                    if len(taken) >= _MOST or not one.goes_with(passenger) or (bound and one.order.after is not None):
                        continue
                    bound = bound or one.order.after is not None
                one.taken = True
                taken.append(one)
            self._waiting = [one for one in self._waiting if not one.taken]
            return taken

    def leave(self, passenger: Passenger) -> None:
        """It is there, or gave up."""
        with self._lock:
            if not passenger.taken:
                self._waiting.remove(passenger)
            if passenger.order.patient:
                self._attaching -= 1
