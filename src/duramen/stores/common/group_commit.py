"""Group commit: appends that arrive together share one transaction, and each has its own outcome.

A thread that arrives while no commit runs becomes the leader and commits. Threads that arrive during that commit wait
and form the next group. A single writer therefore commits without a thread switch, and many writers share one sync.

The threads of a group wake each other in a chain, because threads that wake at the same time would compete for the
interpreter lock. The next leader is placed halfway in the chain, so that its sync overlaps with the work of the others.

With an event loop, a worker thread is always the leader, and resolves all futures of a group in one callback per loop.
Blocking code in the same process waits for the same worker thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Generic, TypeVar

from ...errors import StoreClosed, StoreError

Q = TypeVar("Q")
A = TypeVar("A")
Loop = asyncio.AbstractEventLoop


class Ticket(Generic[Q, A]):
    """A request and its outcome. `turn` wakes its thread, `following` is the next thread of the chain."""

    __slots__ = ("abandoned", "answer", "error", "following", "future", "linked", "request", "turn")

    def __init__(self, request: Q, future: asyncio.Future[A] | None = None) -> None:
        self.request = request
        self.answer: A | None = None
        self.error: BaseException | None = None
        self.future = future
        self.turn: threading.Lock | None = None
        self.following: threading.Lock | None = None
        self.linked = False
        self.abandoned = False

    @property
    def settled(self) -> bool:
        return self.answer is not None or self.error is not None

    def outcome(self) -> A:
        """Return the answer, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Duty(Generic[Q, A]):
    """What a thread in `commit` must still do for the other threads: wake them, and name the next leader."""

    __slots__ = ("discharged", "group", "leads", "ticket", "wakes")

    def __init__(self) -> None:
        self.ticket: Ticket[Q, A] | None = None
        self.leads = False
        self.group: list[Ticket[Q, A]] = []
        self.wakes: Iterator[threading.Lock] | None = None
        self.discharged = False


class GroupCommit(Generic[Q, A]):
    """Collects requests and commits them in groups, in order of arrival, one group at a time.

    `flush` must settle every ticket that it is given, each with an answer or an error.
    """

    def __init__(self, flush: Callable[[list[Ticket[Q, A]]], None], largest: int = 256) -> None:
        self._flush = flush
        self._largest = largest
        self._mutex = threading.Lock()
        self._waiting: list[Ticket[Q, A]] = []
        self.leading = False
        """Whether a thread is the leader now."""
        self._kicked_by: Loop | None = None
        self._worker: threading.Thread | None = None
        self._wake = threading.Semaphore(0)
        self._closed = False

    def commit(self, request: Q) -> A:
        """Block until the request has an outcome, and return or raise it. If the thread is interrupted, the other
        threads are not affected, and it is unknown whether the request was stored."""
        duty: Duty[Q, A] = Duty()
        interrupt: BaseException | None = None
        try:
            return self._commit(request, duty)
        finally:
            while not duty.discharged:
                try:
                    self._discharge(duty)
                except BaseException as error:  # noqa: BLE001 - an interrupt must not stop the hand-over
                    interrupt = error
            if interrupt is not None:
                raise interrupt

    def _commit(self, request: Q, duty: Duty[Q, A]) -> A:
        with self._mutex:
            self._refuse_if_closed()
            if self.leading:
                ticket = duty.ticket = Ticket(request)
                ticket.turn = turn = threading.Lock()
                turn.acquire()
                self._waiting.append(ticket)
            else:
                self.leading = duty.leads = True
        if duty.ticket is None:
            own: Ticket[Q, A] = Ticket(request)
            self._flush([own])
            return own.outcome()
        turn.acquire()  # woken when settled, or when it is this thread's turn to lead
        if not ticket.settled:
            following, ticket.following = ticket.following, None
            if following is not None:
                following.release()  # first, so that the others continue while this thread commits
            self._take(duty)
            self._settle(duty.group)
        return ticket.outcome()

    def _take(self, duty: Duty[Q, A]) -> None:
        """Make the oldest waiting requests the group of this thread."""
        with self._mutex:
            duty.leads = True
            duty.group = self._waiting[: self._largest]
            del self._waiting[: self._largest]

    def _discharge(self, duty: Duty[Q, A]) -> None:
        """Wake the threads that wait for this one. It can be repeated after an interrupt, because an interrupt cannot
        occur between taking a turn from the iterator and releasing it."""
        with self._mutex:
            if duty.ticket is None and not self._waiting and duty.wakes is None:  # a single writer wakes nobody
                self.leading = self.leading and not duty.leads
                duty.discharged = True
                return
            if duty.wakes is None:
                duty.wakes = iter(self._wakes(duty))
        for turn in duty.wakes:
            turn.release()
        duty.discharged = True

    def _wakes(self, duty: Duty[Q, A]) -> list[threading.Lock]:
        """The turns to release: the next thread of the chain and, if this thread was the leader, the first thread of
        the next chain. That chain contains the threads of the finished group, with the next leader halfway."""
        wakes = []
        ticket = duty.ticket
        if ticket is not None:
            ticket.abandoned = True
            if ticket in self._waiting:  # interrupted before its turn, or before it could lead
                self._waiting.remove(ticket)
                duty.leads = ticket.linked
            if ticket.following is not None:
                wakes.append(ticket.following)
        if duty.leads:
            _fail(duty.group, _interrupted())
            chain = [settled for settled in duty.group if not settled.abandoned]
            self.leading = bool(self._waiting)
            if self.leading:
                chain.insert(len(chain) // 2, self._waiting[0])
            for one, after in pairwise(chain):
                one.following = after.turn
            for one in chain:
                one.linked = True
            if chain and chain[0].turn is not None:
                wakes.append(chain[0].turn)
        return wakes

    def _settle(self, group: list[Ticket[Q, A]]) -> None:
        try:
            self._flush(group)
        except Exception as error:  # noqa: BLE001 - each waiting thread raises it
            _fail(group, error)
        except BaseException:
            _fail(group, _interrupted())
            raise

    async def commit_looping(self, request: Q) -> A:
        """Suspend until the request has an outcome, and return or raise it."""
        loop = asyncio.get_running_loop()
        ticket: Ticket[Q, A] = Ticket(request, loop.create_future())
        with self._mutex:
            self._refuse_if_closed()
            self._waiting.append(ticket)
            kick = not self.leading and self._kicked_by is not loop
            if kick:
                self._kicked_by = loop
        if kick:
            loop.call_soon(self._kick)  # later, so that all coroutines that are ready join the group
        assert ticket.future is not None
        return await ticket.future

    def commit_blocking(self, request: Q) -> A:
        """Block until the worker thread, which also serves the event loops, has settled the request."""
        ticket: Ticket[Q, A] = Ticket(request)
        ticket.turn = turn = threading.Lock()
        turn.acquire()
        with self._mutex:
            self._refuse_if_closed()
            self._waiting.append(ticket)
        self._kick()
        turn.acquire()
        return ticket.outcome()

    def _kick(self) -> None:
        with self._mutex:
            self._kicked_by = None
            if self.leading or not self._waiting or self._closed:
                return
            self.leading = True
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="duramen-commit", daemon=True)
                self._worker.start()
        self._wake.release()

    def _taken(self) -> list[Ticket[Q, A]]:
        duty: Duty[Q, A] = Duty()
        self._take(duty)
        return duty.group

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            while group := self._taken():
                self._settle(group)
                _publish(group)
            with self._mutex:
                self.leading = bool(self._waiting)
                if self.leading:
                    self._wake.release()
                elif self._closed:
                    return

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise _was_closed()

    def close(self) -> None:
        """Accept no more requests. A commit that is running is finished. Waiting requests raise `StoreClosed`."""
        with self._mutex:
            self._closed = True
        self._wake.release()
        if self._worker is not None:
            self._worker.join(timeout=30)
        left = [] if self.leading else self._taken()
        _fail(left, _was_closed())
        _publish(left)


def _was_closed() -> StoreClosed:
    return StoreClosed("the store was closed", hint="open it again")


def _interrupted() -> StoreError:
    return StoreError(
        "the thread that committed this append was interrupted, so the outcome is unknown",
        hint="repeat the append with the same key",
    )


def _fail(group: list[Ticket[Q, A]], error: BaseException) -> None:
    for ticket in group:
        if not ticket.settled:
            ticket.error = error


def _publish(group: list[Ticket[Q, A]]) -> None:
    """Wake the threads of a group, and resolve its futures with one callback per loop."""
    loops: dict[Loop, list[Ticket[Q, A]]] = {}
    for ticket in group:
        if ticket.future is not None:
            loops.setdefault(ticket.future.get_loop(), []).append(ticket)
        elif ticket.turn is not None:
            ticket.turn.release()
    for loop, tickets in loops.items():
        with suppress(RuntimeError):  # the loop was closed, so nothing waits for the futures
            loop.call_soon_threadsafe(_resolve, tickets)


def _resolve(tickets: list[Ticket[Q, A]]) -> None:
    for ticket in tickets:
        future = ticket.future
        if future is None or future.done():
            continue
        if ticket.error is not None:
            future.set_exception(ticket.error)
        else:
            future.set_result(ticket.outcome())
