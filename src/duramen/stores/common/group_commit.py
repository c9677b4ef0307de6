"""Group commit: appends that arrive together share one transaction, each with its own outcome.

A writer that arrives while no commit runs becomes the leader and commits all that is waiting; those who arrive
meanwhile wait and are the next group. A lone writer therefore pays for no hand-over, and many writers share
one sync. Threads of a group wake one another in a chain: woken all at once they would only fight for the interpreter.
The next leader sits in the middle of the chain, so that its sync overlaps with what the others do next. Under an
event loop the leader is a thread, and one wake-up tells a whole group its outcomes; plain code beside the loop waits
for the same thread.
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
    """A request on its way through a group, and what came of it."""

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
        """The answer, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Duty(Generic[Q, A]):
    """What a thread in `commit` owes to the others."""

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
        """Whether a thread commits for the group."""
        self._kicked_by: Loop | None = None
        self._worker: threading.Thread | None = None
        self._wake = threading.Semaphore(0)
        self._closed = False

    def commit(self, request: Q) -> A:
        """Block until the request is settled. Interrupted, it leaves the group in order: whether the request
        lands is then open."""
        duty: Duty[Q, A] = Duty()
        interrupt: BaseException | None = None
        try:
            return self._commit(request, duty)
        finally:
            while not duty.discharged:
                try:
                    self._discharge(duty)
                except BaseException as error:  # noqa: BLE001 - an interrupt; the rest is still to be done
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
                following.release()  # first: the others go on while this thread commits
            self._take(duty)
            self._settle(duty.group)
        return ticket.outcome()

    def _take(self, duty: Duty[Q, A]) -> None:
        """Make the waiting, oldest first, this thread's group."""
        with self._mutex:
            duty.leads = True
            duty.group = self._waiting[: self._largest]
            del self._waiting[: self._largest]

    def _discharge(self, duty: Duty[Q, A]) -> None:
        """Wake the threads that wait for this one. Can be repeated after an interrupt: a turn that was taken from the
        iterator is released before an interrupt can come between."""
        with self._mutex:
            if duty.ticket is None and not self._waiting and duty.wakes is None:  # a lone writer owes nothing
                self.leading = self.leading and not duty.leads
                duty.discharged = True
                return
            if duty.wakes is None:
                duty.wakes = iter(self._wakes(duty))
        for turn in duty.wakes:
            turn.release()
        duty.discharged = True

    def _wakes(self, duty: Duty[Q, A]) -> list[threading.Lock]:
        """The turns to release: who follows in the chain, and, if this thread led, the next chain, in which those
        settled wake one another with the next leader in their midst."""
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
        except Exception as error:  # noqa: BLE001 - each of them raises it where it waits
            _fail(group, error)
        except BaseException:
            _fail(group, _interrupted())
            raise

    async def commit_looping(self, request: Q) -> A:
        """Suspend until the request is settled."""
        loop = asyncio.get_running_loop()
        ticket: Ticket[Q, A] = Ticket(request, loop.create_future())
        with self._mutex:
            self._refuse_if_closed()
            self._waiting.append(ticket)
            kick = not self.leading and self._kicked_by is not loop
            if kick:
                self._kicked_by = loop
        if kick:
            loop.call_soon(self._kick)  # after all coroutines that are ready now have joined the group
        assert ticket.future is not None
        return await ticket.future

    def commit_blocking(self, request: Q) -> A:
        """Block until the request is settled, among those of event loops: the same thread writes for all."""
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
                _tell(group)
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
        """Take no more requests; what was taken is settled, what was not is refused."""
        with self._mutex:
            self._closed = True
        self._wake.release()
        if self._worker is not None:
            self._worker.join(timeout=30)
        left = [] if self.leading else self._taken()
        _fail(left, _was_closed())
        _tell(left)


def _was_closed() -> StoreClosed:
    return StoreClosed("the store was closed", hint="open it again")


def _interrupted() -> StoreError:
    return StoreError(
        "the thread that wrote for this one was interrupted",
        hint="whether the append landed is open: repeat it with the same key",
    )


def _fail(group: list[Ticket[Q, A]], error: BaseException) -> None:
    for ticket in group:
        if not ticket.settled:
            ticket.error = error


def _tell(group: list[Ticket[Q, A]]) -> None:
    """Resolve the futures of a group with one wake-up for each loop."""
    loops: dict[Loop, list[Ticket[Q, A]]] = {}
    for ticket in group:
        if ticket.future is not None:
            loops.setdefault(ticket.future.get_loop(), []).append(ticket)
        elif ticket.turn is not None:
            ticket.turn.release()
    for loop, tickets in loops.items():
        with suppress(RuntimeError):  # the loop was closed: nobody there will ever ask
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
