"""The connection that writes. A handle has one.

Order of locks: `mutex` (between threads of this handle), the lock file (between processes), SQLite's own write lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import apsw

from ...crash_points import reach
from ...errors import DuramenError, InvalidInput, StoreBusy, StoreReadOnly
from ...ports import Batch, RunChange, Stored
from ...runtime import Notifier
from ..common.group_commit import Ticket
from .append import Appender
from .connection import SqliteSettings, connect, explain, migrate, translated
from .write_lock import NoLock, WriteLock

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]
Waiting = Ticket[Batch, Stored]
BROKEN = (apsw.Error, UnicodeDecodeError)
_SYNC, _NO_SYNC = "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"


class Writer:
    """Writes for all threads of a handle. Calls the notifiers after each commit."""

    def __init__(self, settings: SqliteSettings, notifier: Notifier, runs_notifier: Notifier) -> None:
        self.path = settings.path
        self._timeout = settings.timeout
        self.notifier = notifier
        self._runs_notifier = runs_notifier
        self.mutex = threading.RLock()
        self.lock: WriteLock | NoLock = NoLock()
        self.held_by: int | None = None
        """The thread that has an open transaction from `begin`."""
        self._synced: bool | None = True
        """Whether commits wait for the disk. None if that is unknown after an interrupt."""
        self.connection = connect(settings)
        try:
            self._prepare(settings)
        except BaseException:
            self.close()
            raise
        self.appender = Appender(self.connection)

    def _prepare(self, settings: SqliteSettings) -> None:
        """Open the lock file and migrate the schema."""
        if settings.readonly:
            return
        if settings.vfs is None:
            try:
                self.lock = WriteLock(settings.file + "-lock", settings.timeout)
            except OSError as error:
                raise StoreReadOnly(
                    f"{settings.path} cannot be written: {error}", hint="pass readonly=True to open()"
                ) from error
        with self.lock:
            migrate(self.connection, settings.path)

    def transaction(self, work: Work[T]) -> T:
        """Run a function in its own transaction. On return it is safe from a power cut."""
        try:
            with self.mutex, self.lock:
                self._sync_commits(True)
                self.appender.leases.clear()  # the function may change cached rows
                result = self._committed(work)
                self.appender.leases.clear()
                self.appender.forget_projections()
        except BROKEN as error:
            raise explain(error, self.path) from error
        self.notifier.notify()
        return result

    def _sync_commits(self, synced: bool) -> None:
        """Set whether the next commits wait for the disk. SQLite does not allow this inside a transaction. A commit
        that waits also makes the earlier ones durable, because they are in the same log."""
        if self.connection.in_transaction:
            self._roll_back()  # an interrupt stopped the last rollback
        if synced != self._synced:
            self._synced = None
            self.connection.execute(_SYNC if synced else _NO_SYNC)
            self._synced = synced

    def _committed(self, work: Work[T]) -> T:
        connection = self.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            self.appender.refresh()
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        return result

    def _roll_back(self) -> None:
        self.appender.forget()
        if self.connection.in_transaction:
            with suppress(apsw.Error):
                self.connection.execute("ROLLBACK")

    def flush(self, tickets: list[Waiting]) -> None:
        """Store a group of batches, each with its own outcome."""
        batches = [ticket.request for ticket in tickets]
        outcomes: Sequence[Stored | Exception]
        try:
            outcomes = self.write(batches)
        except StoreBusy as error:
            outcomes = [error] * len(batches)  # every batch has waited for the whole timeout
        except Exception:  # one bad batch must not fail the others
            if len(batches) == 1:
                raise
            outcomes = [self._alone(batch) for batch in batches]
        for ticket, outcome in zip(tickets, outcomes, strict=True):
            if isinstance(outcome, Stored):
                ticket.answer = outcome
            else:
                ticket.error = outcome

    def _alone(self, batch: Batch) -> Stored | Exception:
        try:
            (outcome,) = self.write([batch])
        except Exception as refusal:  # noqa: BLE001 - each batch has its own outcome
            return refusal
        return outcome

    def write(self, batches: Sequence[Batch]) -> list[Stored | DuramenError]:
        """Store batches in one commit, which waits for the disk if one of them is `synced`. Returns the outcome of
        each. Raises if the commit fails: then nothing was stored."""
        reach("append.begun")
        synced = any(batch.synced for batch in batches)
        try:
            with self.mutex, self.lock:
                try:
                    self._sync_commits(synced)
                    stored = self.appender.insert(batches[0]) if len(batches) == 1 else None
                    if stored is not None:
                        outcomes: list[Stored | DuramenError] = [stored]
                    else:
                        outcomes = self._committed(lambda _: self._append(batches, synced))
                except BaseException:
                    self.appender.forget()  # an interrupt may have come after the commit, so the caches may be stale
                    raise
        except BROKEN as error:
            raise explain(error, self.path) from error
        reach("append.committed")
        self.notifier.notify()
        if any(isinstance(change, RunChange) for batch in batches for change in batch.changes):
            self._runs_notifier.notify()
        return outcomes

    def _append(self, batches: Sequence[Batch], synced: bool) -> list[Stored | DuramenError]:
        outcomes: list[Stored | DuramenError] = []
        for batch in batches:
            try:
                outcomes.append(self.appender.append(batch, synced))
            except DuramenError as refusal:
                outcomes.append(refusal)
        reach("append.inserted")
        return outcomes

    def begin(self) -> None:
        """Begin a transaction. The same thread must call `commit` or `roll_back`. Other writers wait until then."""
        self.mutex.acquire()
        try:
            with translated(self.path):
                self.lock.__enter__()
                try:
                    self._sync_commits(True)
                    self.connection.execute("BEGIN IMMEDIATE")
                    self.appender.refresh()
                except BaseException:
                    self._roll_back()  # an interrupt must not leave the transaction open
                    self._leave()
                    raise
        except BaseException:
            self.mutex.release()
            raise
        self.held_by = threading.get_ident()

    def commit(self) -> None:
        """Commit the transaction. On return it is safe from a power cut."""
        try:
            with translated(self.path):
                self.connection.execute("COMMIT")
        except BaseException:
            self.appender.forget()  # the transaction was rolled back, so the caches are wrong
            raise
        finally:
            self._end()
        self.notifier.notify()
        self._runs_notifier.notify()

    def roll_back(self) -> None:
        """Discard the transaction."""
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

    def append(self, batch: Batch) -> Stored:
        """Store a batch inside the open transaction."""
        with translated(self.path):
            stored = self.appender.append(batch, True)
        reach("append.inserted")
        return stored

    def purge_log(self) -> None:
        """Empty the write-ahead log, which still contains erased pages. Raises `StoreBusy` if a reader prevents it."""
        with self.mutex, translated(self.path), self.lock:
            until = time.monotonic() + self._timeout
            while True:
                busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
                if not busy:
                    return
                if time.monotonic() > until:
                    break
        raise StoreBusy(
            "the subject is erased, but a reader in another process keeps its bytes in the log",
            hint="close that reader and call erase again",
        )

    def close_lock(self) -> None:
        """Close the lock file. A forked child does this so that the lock is free when its parent dies."""
        if isinstance(self.lock, WriteLock):
            self.lock.close()

    def close(self) -> None:
        """Close the connection after the current write has ended. Errors are ignored: what was committed is safe."""
        with self.mutex:
            with suppress(apsw.Error):
                self.connection.close()
            self.close_lock()


class SqliteTransaction:
    """A transaction for a step's own rows and its outcome. All other writers wait until it ends."""

    def __init__(self, writing: Writer) -> None:
        self._writing = writing
        self._open = True
        writing.begin()
        self.connection = writing.connection
        self.lost = False

    def append(self, batch: Batch) -> Stored:
        return self._writing.append(batch)

    def commit(self) -> None:
        if not self.connection.in_transaction:
            self.roll_back()
            raise InvalidInput("the step ended the transaction itself", hint="leave COMMIT and ROLLBACK to duramen")
        self._open = False
        self._writing.commit()

    def roll_back(self) -> None:
        if self._open:
            self._open = False
            self._writing.roll_back()
