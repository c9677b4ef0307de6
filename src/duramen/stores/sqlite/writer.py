"""The one connection that writes: transactions, lone appends, and groups of them.

Locks, always in this order: `_mutex` (threads of this handle), the lock file (processes), SQLite's own write lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import apsw

from ...crash_points import reach
from ...errors import DuramenError, InvalidInput, StoreBusy, StoreReadOnly
from ...ports import Append, Appended
from ...runtime import Notifier
from ..common.group_commit import Ticket
from .append import Appender
from .connection import SqliteSettings, connect, explain, migrate, translated
from .logroom import LogRoom
from .write_lock import NoLock, WriteLock

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]
Waiting = Ticket[Append, Appended]
BROKEN = (apsw.Error, UnicodeDecodeError)


class Writing:
    """Writes for all threads of a handle. Rings the notifier after each commit."""

    def __init__(self, settings: SqliteSettings, notifier: Notifier, runs_notifier: Notifier) -> None:
        self.path = settings.path
        self._timeout = settings.timeout
        self.notifier = notifier
        self._runs_notifier = runs_notifier
        self.mutex = threading.RLock()
        self.lock: WriteLock | NoLock = NoLock()
        self.held_by: int | None = None
        """The thread that has a transaction of its own now."""
        self.room = LogRoom()
        self.connection = connect(settings)
        try:
            self._prepare(settings)
        except BaseException:
            self.close()
            raise
        self.appender = Appender(self.connection)

    def _prepare(self, settings: SqliteSettings) -> None:
        """Take the lock file and bring the schema up to date."""
        if settings.readonly:
            return
        if settings.vfs is None:
            try:
                self.lock = WriteLock(settings.file + "-lock", settings.timeout)
            except OSError as error:
                raise StoreReadOnly(f"{settings.path} cannot be written: {error}", hint="open it readonly") from error
        with self.lock:
            migrate(self.connection, settings.path)
        if settings.vfs is None:
            self.room.open(self.connection.filename_wal)

    def transaction(self, work: Work[T]) -> T:
        """Do work in a transaction of its own; durable on return."""
        try:
            with self.mutex, self.lock:
                self.appender.leases.clear()  # the work may change some
                result = self._committed(work)
                self.appender.leases.clear()
                self.appender.counts.clear()
                self.appender.marks.clear()
        except BROKEN as error:
            raise explain(error, self.path) from error
        self.notifier.notify()
        return result

    def _committed(self, work: Work[T]) -> T:
        connection = self.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            self.appender.refresh()
            result = work(connection)
            if self.room.is_due:
                self.room.see_to()
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self.room.committed()
        return result

    def _roll_back(self) -> None:
        self.appender.forget()
        if self.connection.in_transaction:
            with suppress(apsw.Error):
                self.connection.execute("ROLLBACK")

    def append(self, request: Append) -> Appended:
        """A lone append: in a single statement if nothing but the unique indexes has to agree."""
        reach("append.begun")
        try:
            with self.mutex, self.lock:
                try:
                    done = None if self.room.is_due else self.appender.one_quickly(request)
                    if done is None:
                        done = self._committed(lambda _: self._apply_one(request))
                    else:
                        self.room.committed()
                except BaseException:
                    self.appender.forget()  # interrupted, perhaps after the commit: what is remembered may be old
                    raise
        except BROKEN as error:
            raise explain(error, self.path) from error
        reach("append.committed")
        self._ring((request,))
        return done

    def _ring(self, requests: Iterable[Append]) -> None:
        self.notifier.notify()
        for request in requests:
            if request.changes:
                self._runs_notifier.notify()
                return

    def _apply_one(self, request: Append) -> Appended:
        done = self.appender.append(request)
        self.appender.insert_staged()
        reach("append.inserted")
        return done

    def settle(self, tickets: list[Waiting]) -> None:
        """Settle a group: in one transaction, or, if one of them brings it down, each on its own."""
        outcomes: Sequence[Appended | DuramenError]
        reach("append.begun")
        try:
            with self.mutex, self.lock:
                try:
                    quick = None if self.room.is_due else self.appender.quickly([one.request for one in tickets])
                    outcomes = quick or self._committed(lambda _: self._apply(tickets))
                    if quick:
                        self.room.committed()
                except BaseException:
                    self.appender.forget()  # as above
                    raise
        except (StoreBusy, apsw.BusyError) as error:
            busy = explain(error, self.path)
            outcomes = [busy] * len(tickets) if isinstance(busy, StoreBusy) else []  # all of them have waited
        except Exception:  # noqa: BLE001 - each append has its own outcome, found below
            outcomes = [self._outcome(ticket.request) for ticket in tickets]
        reach("append.committed")
        self._ring(ticket.request for ticket in tickets)
        for ticket, outcome in zip(tickets, outcomes, strict=True):
            if isinstance(outcome, Appended):
                ticket.answer = outcome
            else:
                ticket.error = outcome

    def _outcome(self, request: Append) -> Appended | DuramenError:
        try:
            return self.append(request)
        except DuramenError as refusal:
            return refusal

    def _apply(self, tickets: list[Waiting]) -> list[Appended | DuramenError]:
        outcomes: list[Appended | DuramenError] = []
        for ticket in tickets:
            try:
                outcomes.append(self.appender.append(ticket.request))
            except DuramenError as refusal:
                outcomes.append(refusal)
        self.appender.insert_staged()
        reach("append.inserted")
        return outcomes

    def begin(self) -> None:
        """Begin a transaction that `commit` or `roll_back` ends, in the same thread."""
        self.mutex.acquire()
        try:
            with translated(self.path):
                self.lock.__enter__()
                try:
                    self.connection.execute("BEGIN IMMEDIATE")
                    self.appender.refresh()
                except BaseException:
                    self._roll_back()  # interrupted: what is written next must not become chunk of this
                    self._leave()
                    raise
        except BaseException:
            self.mutex.release()
            raise
        self.held_by = threading.get_ident()

    def commit(self) -> None:
        """End the transaction; durable on return."""
        try:
            with translated(self.path):
                self.connection.execute("COMMIT")
        except BaseException:
            self.appender.forget()  # it is rolled back, perhaps by SQLite itself: what is remembered never happened
            raise
        finally:
            self._end()
        self.notifier.notify()
        self._runs_notifier.notify()

    def roll_back(self) -> None:
        """End the transaction: nothing of it happened."""
        self._end()

    def _end(self) -> None:
        self.held_by = None
        try:
            if self.connection.in_transaction:
                self._roll_back()
            self._leave()
        finally:
            self.mutex.release()

    def _leave(self) -> None:
        self.lock.__exit__(None, None, None)

    def apply(self, request: Append) -> Appended:
        """An append inside the transaction that was begun."""
        with translated(self.path):
            return self._apply_one(request)

    def purge_log(self) -> None:
        """Empty the write-ahead log, which still holds erased pages."""
        with self.mutex, translated(self.path), self.lock:
            until = time.monotonic() + self._timeout
            while True:
                busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
                if not busy:
                    return
                if time.monotonic() > until:
                    break
        raise StoreBusy(
            "erased, but a reader in another process keeps the old log alive",
            hint="close that reader and call erase again",
        )

    def let_go(self) -> None:
        """In a forked child: give up the share in the lock. If the parent dies with it, it must be free."""
        self.room.close()
        if isinstance(self.lock, WriteLock):
            self.lock.close()

    def close(self) -> None:
        """Close the connection, after whoever writes now. An error changes nothing: what was acknowledged is safe."""
        with self.mutex:
            with suppress(apsw.Error):
                self.connection.close()
            self.let_go()


class SqliteTransaction:
    """A transaction for a step's own rows and its outcome. Everybody else who writes waits until it ends."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._open = True
        writing.begin()
        self.connection = writing.connection
        self.lost = False

    def append(self, request: Append) -> Appended:
        return self._writing.apply(request)

    def commit(self) -> None:
        if not self.connection.in_transaction:
            self.roll_back()
            raise InvalidInput(
                "the step ended the transaction that it was given", hint="leave COMMIT and ROLLBACK to duramen"
            )
        self._open = False
        self._writing.commit()

    def roll_back(self) -> None:
        if self._open:
            self._open = False
            self._writing.roll_back()
