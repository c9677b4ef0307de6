"""Group commit: appends that arrive together share one transaction, each with its own outcome.

Whoever arrives while nobody commits becomes the leader and commits all that is waiting; those who arrive
meanwhile wait and are the next group. A lone writer therefore pays for no hand-over, and many writers share
one sync. Threads of a group wake one another in a chain: woken all at once they would only fight for the interpreter.
The next leader sits in the middle of the chain, so that its sync overlaps with what the others do next. Under an
event loop the leader is a thread, and one wake-up tells a whole group its outcomes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Generic, TypeVar

from ..errors import StoreClosed, StoreError

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


class GroupCommit(Generic[Q, A]):
    """Collects requests and commits them in groups, in order of arrival, one group at a time.

    `flush` must settle every ticket that it is given, each with an answer or an error; `alone` answers a
    single request, or raises: what a lone writer needs, without the ceremony of a group.
    """

    def __init__(
        self, flush: Callable[[list[Ticket[Q, A]]], None], alone: Callable[[Q], A], largest: int = 256
    ) -> None:
        self._flush = flush
        self._alone = alone
        self._largest = largest
        self._mutex = threading.Lock()
        self._waiting: list[Ticket[Q, A]] = []
        self._leading = False
        self._kicked_by: Loop | None = None
        self._worker: threading.Thread | None = None
        self._wake = threading.Semaphore(0)
        self._closed = False

    def commit(self, request: Q) -> A:
        """Block until the request is settled. Interrupted, it leaves the group in order: whether the request
        lands is then open."""
        ticket: Ticket[Q, A] | None = None
        leads = False
        try:
            with self._mutex:
                self._refuse_if_closed()
                if self._leading:
                    ticket = self._join(request)
                else:
                    self._leading = leads = True
            if ticket is None:
                return self._alone(request)
            if ticket.turn is not None:
                ticket.turn.acquire()  # woken when settled, or when it is this thread's turn to lead
        except BaseException:
            if ticket is not None:
                self._abandon(ticket)
            raise
        finally:
            if leads and not self._stood_down():
                self._hand_over([])
        if ticket.following is not None:
            ticket.following.release()
        if not ticket.settled:
            self._lead(self._take())
        return ticket.outcome()

    def _stood_down(self) -> bool:
        """Lead no longer, if nobody waits: the way of a lone writer."""
        with self._mutex:
            if self._waiting:
                return False
            self._leading = False
            return True

    def _join(self, request: Q) -> Ticket[Q, A]:
        ticket: Ticket[Q, A] = Ticket(request)
        ticket.turn = threading.Lock()
        ticket.turn.acquire()
        self._waiting.append(ticket)
        return ticket

    def _abandon(self, ticket: Ticket[Q, A]) -> None:
        """A waiting thread was interrupted: nobody may wait for it."""
        with self._mutex:
            ticket.abandoned = True
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            following = ticket.following
            heirless = ticket.linked and not ticket.settled
        if following is not None:
            following.release()
        if heirless:
            self._hand_over([])

    def _lead(self, group: list[Ticket[Q, A]]) -> None:
        try:
            self._settle(group)
        finally:
            self._hand_over(group[1:])  # the leader itself, the first of its group, is awake

    def _hand_over(self, settled: list[Ticket[Q, A]]) -> None:
        """Wake the settled, one by the other, with the next leader in their midst."""
        with self._mutex:
            chain = [ticket for ticket in settled if not ticket.abandoned]
            if not self._waiting:
                self._leading = False
            else:
                chain.insert(len(chain) // 2, self._waiting[0])
            for ticket, after in pairwise(chain):
                ticket.following = after.turn
            for ticket in chain:
                ticket.linked = True
        if chain and chain[0].turn is not None:
            chain[0].turn.release()

    def _take(self) -> list[Ticket[Q, A]]:
        with self._mutex:
            group = self._waiting[: self._largest]
            del self._waiting[: self._largest]
        return group

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
            kick = not self._leading and self._kicked_by is not loop
            if kick:
                self._kicked_by = loop
        if kick:
            loop.call_soon(self._kick)  # after all coroutines that are ready now have joined the group
        assert ticket.future is not None
        return await ticket.future

    def _kick(self) -> None:
        with self._mutex:
            self._kicked_by = None
            if self._leading or not self._waiting or self._closed:
                return
            self._leading = True
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="holdfast-commit", daemon=True)
                self._worker.start()
        self._wake.release()

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            while group := self._take():
                self._settle(group)
                _tell(group)
            with self._mutex:
                self._leading = bool(self._waiting)
                if self._leading:
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
        left = [] if self._leading else self._take()
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
    for loop, tickets in loops.items():
        if not loop.is_closed():
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
