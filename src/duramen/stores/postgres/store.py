"""The PostgreSQL store: many processes on many machines.

Order of locks: lease row, subject row, session rows by id, run rows by id, blob rows, audiences (see `memories`).

Isolation: READ COMMITTED. A row that must not change is locked, or compared in the statement that writes.

Retry rule: after a lost connection the store reconnects until the timeout. It repeats reads. Before it repeats an
append, it checks whether the append was committed (see `append`). Other writes compare before they change anything, so
repeating them changes nothing more. After a deadlock the transaction is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, groupby
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolTimeout

from ...crash_points import reach
from ...errors import SessionExists, StoreBusy, StoreClosed, StoreError, StoreUnavailable
from ...ports import (
    Batch,
    Blob,
    Erase,
    Erasure,
    FeedItem,
    Head,
    LeaseRow,
    Limits,
    Record,
    Rewrap,
    RunChange,
    RunQuery,
    RunRow,
    SessionRow,
    Stored,
    SubjectRow,
)
from ...runtime import Notifier, Runtime, is_driven
from ..common.fork_guard import forked, unwatch, watch
from ..common.group_commit import GroupCommit, Ticket
from ..common.row_checksum import checksum
from .append import Appender, Attempt, add_session, lost_batches, read_records, to_record
from .catalog import cursor_of, damage, find_session, remarks, session_rows, subject_of, subjects_of
from .connection import LOST, Connection, PostgresSettings, connect, explain, hang_up, migrate, translated
from .erasure import erase, is_committed
from .leases import Place, check_fence, read_lease, write_lease
from .listener import Listener
from .lookup import Lookup
from .memory_catalog import MemoryCatalog
from .pool import Pool
from .retrieval import PostgresRetriever
from .runs import claim, due_runs, list_runs, read_run
from .segments import Segments
from .sql import Q
from .transaction import PostgresTransaction
from .unsynced import UnsyncedBatches
from .vector_index import VectorIndex

T = TypeVar("T")
_GROUPS = 4
_MOST_UNSYNCED = 1000
"""With unsynced batches of more sessions than this in memory, the store flushes the log."""
_AGAIN = (pg.DeadlockDetected, pg.SerializationFailure, pg.InvalidSqlStatementName)


class PostgresStore:
    """A journal store in a PostgreSQL database. Safe to share between threads."""

    name = "postgres"

    def __init__(self, settings: PostgresSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self.refusal: StoreError | None = None
        self._notifier, self._runs_notifier = Notifier(), Notifier()
        self._listener = Listener(settings, self._notifier, self._runs_notifier)
        with translated(settings.shown), connect(settings) as connection:
            migrate(connection, settings)
        self.pool = Pool(settings)
        self._vector_index = VectorIndex(settings)
        self.retriever = PostgresRetriever(self._do, self._write, self._vector_index)
        lookup = Lookup(self._do)
        self.pick, self.talk = lookup.pick, lookup.talk
        self.bookmarks, self.bookmark_names, self.expired = lookup.bookmarks, lookup.bookmark_names, lookup.expired
        self.chunks, self.chunk_log_end = lookup.chunks, lookup.chunk_log_end
        catalog = MemoryCatalog(self._do, self._write)
        self.memories, self.changes, self.audience_changes = catalog.memories, catalog.changes, catalog.audience_changes
        self.unindexed, self.count_unindexed = catalog.unindexed, catalog.count_unindexed
        self.index_entries, self.put_index_entries = catalog.index_entries, catalog.put_index_entries
        self.generations, self.add_generation = catalog.generations, catalog.add_generation
        self.activate, self.note_recalls = catalog.activate, catalog.note_recalls
        segments = Segments(self._do, self._write)
        self.segments, self.segment_spans = segments.segments, segments.segment_spans
        self.put_segment, self.recalls = segments.put_segment, segments.recalls
        self._unsynced = UnsyncedBatches()
        groups = max(1, min(_GROUPS, settings.pool_size - 1))
        self._groups = [self._new_group() for _ in range(groups)]
        watch(self)

    def disown(self) -> None:
        """Refuse all further calls: this process is a forked child, and the handle belongs to its parent. Close the
        sockets without a message to the server. Otherwise the server would not notice when the parent dies."""
        self.refusal = forked()
        hang_up()

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)

    # -- running work on connections

    async def _do(self, work: Callable[[Connection], T]) -> T:
        self._check()
        return await self._runtime.run(lambda: self._patiently(work))

    async def _write(self, work: Callable[[Connection], T]) -> T:
        def in_transaction(connection: Connection) -> T:
            with connection.transaction():
                return work(connection)

        return await self._do(in_transaction)

    def _patiently(self, work: Callable[[Connection], T]) -> T:
        """Run a function that can be repeated. After a lost connection or a deadlock it runs again, until the
        timeout."""
        until = time.monotonic() + self._settings.timeout
        pause = 0.02
        while True:
            try:
                with self.pool.connection() as connection:
                    return work(connection)
            except (*LOST, *_AGAIN, PoolTimeout) as error:
                if self.refusal is not None or time.monotonic() + pause > until or not _passing(error):
                    raise explain(error, self._settings.shown) from error
                time.sleep(pause)
                pause = min(pause * 2, 1.0)
            except psycopg.Error as error:
                raise explain(error, self._settings.shown) from error

    # -- appending

    def _new_group(self) -> tuple[GroupCommit[Batch, Stored], Appender]:
        appender = Appender(self._unsynced)
        group: GroupCommit[Batch, Stored] = GroupCommit(lambda tickets: self._flush(appender, tickets))
        return group, appender

    def _group_of(self, workspace: str, session: str) -> tuple[GroupCommit[Batch, Stored], Appender]:
        return self._groups[hash((workspace, session)) % len(self._groups)]

    async def append(self, request: Batch) -> Stored:
        self._check()
        group, _ = self._group_of(request.workspace, request.session)
        if not self._runtime.looping:
            return group.commit(request)
        if is_driven():
            return group.commit_blocking(request)
        return await group.commit_looping(request)

    def _flush(self, appender: Appender, tickets: list[Ticket[Batch, Stored]]) -> None:
        """Store a group of batches, each with its own outcome."""
        with appender.mutex:
            placed, others = appender.attempt(tickets)
            tried: dict[int, list[Record]] = {}
            left: list[Attempt] = []
            for _, group in groupby(placed, lambda one: one.ticket.request.workspace):
                attempts = list(group)
                try:
                    with self.pool.connection() as connection:
                        left += appender.store_group(connection, attempts)
                except (psycopg.Error, PoolTimeout) as error:
                    left += attempts  # one bad batch must not fail the others
                    if isinstance(error, LOST):
                        tried |= {id(one.ticket): one.records for one in attempts}
            self._settle(appender, [*(one.ticket for one in left), *others], tried)
        self._notifier.notify()
        if any(isinstance(change, RunChange) for ticket in tickets for change in ticket.request.changes):
            self._runs_notifier.notify()
        if len(self._unsynced) > _MOST_UNSYNCED:
            with suppress(StoreError):  # the batches have their outcomes, and a later sync tries again
                self._sync()

    def _settle(self, appender: Appender, tickets: list[Ticket[Batch, Stored]], tried: dict[int, list[Record]]) -> None:
        """Store each batch in its own transaction. Those in `tried` may be stored, because a connection was lost."""
        refused: dict[str | None, BaseException] = {}
        for ticket in tickets:
            batch = ticket.request
            known = refused.get(None) or refused.get(batch.session)
            if known is not None:
                ticket.error = known  # one batch has waited for the whole timeout, so the others need not
                continue
            try:
                ticket.answer = self._settle_one(appender, batch, tried.get(id(ticket), []))
            except Exception as error:  # noqa: BLE001 - each append has its own outcome
                ticket.error = explain(error, self._settings.shown)
                if isinstance(ticket.error, StoreUnavailable):
                    refused[None] = ticket.error
                elif isinstance(ticket.error, StoreBusy):
                    refused[batch.session] = ticket.error

    def _settle_one(self, appender: Appender, batch: Batch, tried: list[Record]) -> Stored:
        placed: list[list[Record]] = [tried]

        def place(head: Head) -> list[Record]:
            placed.append(batch.place(head))
            return placed[-1]

        watched = batch._replace(place=place)
        return self._patiently(lambda connection: appender.store(connection, watched, placed[-1]))

    async def sync(self) -> None:
        self._check()
        await self._runtime.run(self._sync)

    def _sync(self) -> None:
        """Flush the server's log. Then check that the unsynced batches of this process are still stored, because a
        server that crashed in between may have lost them. Store lost batches again."""
        kept = self._unsynced.all()

        def flush(connection: Connection) -> set[Place]:
            found: Any = connection.execute(Q.is_flushed).fetchone()
            if not found[0]:
                connection.execute(Q.flush)
            return lost_batches(connection, kept)

        lost = self._patiently(flush)
        for place, batches in kept.items():
            if place not in lost:
                self._unsynced.release(place, batches)
        for place in lost:
            _, appender = self._group_of(*place)
            with appender.mutex:
                self._patiently(partial(appender.restore, place=place))

    # -- reading

    async def head(self, workspace: str, session: str) -> Head | None:
        found = await self._do(lambda connection: find_session(connection, workspace, session))
        return None if found is None else found[1]

    async def read(self, workspace: str, session: str, start: int, stop: int) -> list[Record]:
        return await self._do(lambda connection: read_records(connection, (workspace, session), start, stop))

    async def find(self, workspace: str, session: str, key: str) -> int | None:
        def work(connection: Connection) -> int | None:
            row = connection.execute(Q.find_key, (workspace, session, key)).fetchone()
            return row[0] if row else None

        return await self._do(work)

    async def session(self, workspace: str, session: str) -> SessionRow | None:
        found = await self._do(lambda connection: find_session(connection, workspace, session))
        return None if found is None else found[0]

    async def sessions(self, workspace: str, after: str, limit: int) -> list[SessionRow]:
        return await self._do(lambda connection: session_rows(connection, workspace, after, limit))

    async def session_names(self, workspace: str, after: str, limit: int) -> list[str]:
        def work(connection: Connection) -> list[str]:
            return [row[0] for row in connection.execute(Q.list_session_names, (workspace, after, limit))]

        return await self._do(work)

    async def workspaces(self) -> list[str]:
        return await self._do(lambda connection: [row[0] for row in connection.execute(Q.list_workspaces)])

    async def fork(self, workspace: str, parent: str, at: Head, session: str, now: int) -> None:
        tries = count(1)

        def work(connection: Connection) -> None:
            again = next(tries) > 1
            if add_session(connection, (workspace, session), now, parent, at):
                return
            found = find_session(connection, workspace, session)
            ours = found is not None and found[0][1:5] == (now, parent, at.position, at.position)
            if not (again and ours):  # a first try may have been committed although its answer was lost
                raise SessionExists(session)

        await self._write(work)

    async def feed(self, workspace: str, after: int, limit: int) -> list[FeedItem]:
        tx, seq = after >> 64, after & (2**64 - 1)

        def work(connection: Connection) -> list[FeedItem]:
            values = {"workspace": workspace, "tx": str(tx), "seq": seq, "limit": limit}
            rows = connection.execute(Q.read_feed, values, binary=True)
            return [
                FeedItem(int(tx) << 64 | seq, session, previous, to_record(tuple(rest)))
                for tx, seq, session, previous, *rest in rows
            ]

        return await self._do(work)

    async def cursor(self, workspace: str, outlet: str) -> int:
        return await self._do(lambda connection: cursor_of(connection, Q.read_cursor, workspace, outlet))

    async def advance(self, workspace: str, outlet: str, before: int, after: int) -> bool:
        def work(connection: Connection) -> bool:
            found = cursor_of(connection, Q.lock_cursor, workspace, outlet)
            if found != before:
                return found == after
            check = checksum(workspace, outlet, str(after))
            connection.execute(Q.write_cursor, (workspace, outlet, str(after), check))
            return True

        return await self._write(work)

    # -- blobs and subjects

    async def blob(self, workspace: str, address: bytes) -> bytes | None:
        def work(connection: Connection) -> bytes | None:
            row = connection.execute(Q.read_blob, (workspace, address), binary=True).fetchone()
            return row[0] if row else None

        return await self._do(work)

    async def blobs(self, workspace: str, after: bytes, limit: int) -> list[Blob]:
        def work(connection: Connection) -> list[Blob]:
            rows = connection.execute(Q.list_blobs, (workspace, after, limit), binary=True)
            return [Blob(*row) for row in rows]

        return await self._do(work)

    async def missing_blobs(self, workspace: str, addresses: Sequence[bytes]) -> set[bytes]:
        def work(connection: Connection) -> set[bytes]:
            rows = connection.execute(Q.present_blobs, (workspace, list(addresses)), binary=True)
            return set(addresses) - {row[0] for row in rows}

        return await self._do(work)

    async def subject(self, workspace: str, name: str) -> SubjectRow | None:
        return await self._do(lambda connection: subject_of(connection, Q.find_subject, workspace, name))

    async def subject_by_ref(self, workspace: str, ref: bytes) -> SubjectRow | None:
        return await self._do(lambda connection: subject_of(connection, Q.find_subject_by_ref, workspace, ref))

    async def add_subject(self, workspace: str, subject: SubjectRow) -> SubjectRow:
        def work(connection: Connection) -> SubjectRow:
            connection.execute(Q.add_subject, (workspace, *subject, checksum(workspace, *subject)))
            return subject_of(connection, Q.find_subject, workspace, subject.name) or subject

        return await self._write(work)

    async def subjects(self, workspace: str) -> list[SubjectRow]:
        return await self._do(lambda connection: subjects_of(connection, workspace))

    async def rewrap(self, workspace: str, rows: Iterable[Rewrap]) -> int:
        def work(connection: Connection) -> int:
            moved = 0
            for ref, before, after in rows:
                values = (after.wrapped, after.master, checksum(workspace, *after), workspace, ref, before)
                moved += connection.execute(Q.rewrap_subject, values).rowcount
            return moved

        return await self._write(work)

    async def erase(self, request: Erase) -> Erasure:
        tried: list[Erasure] = []

        def work(connection: Connection) -> Erasure:
            if tried and is_committed(connection, request.workspace, tried[-1]):
                return tried[-1]  # it was committed, and only the answer was lost
            tried.append(erase(connection, request))
            return tried[-1]

        erased = await self._write(work)
        reach("erase.committed")
        return erased

    # -- leases

    async def acquire(self, workspace: str, session: str, owner: str, now: int, expires: int) -> LeaseRow | None:
        place = (workspace, session)

        tries = count(1)

        def work(connection: Connection) -> LeaseRow | None:
            again = next(tries) > 1
            free = LeaseRow(owner, 0, 0)
            connection.execute(Q.add_lease, (*place, *free, checksum(*place, *free)))
            lease = read_lease(connection, place, lock=True) or free
            if lease.expires > now and lease.owner != owner:
                return None
            if again and lease.owner == owner and lease.expires == expires:
                return lease  # the first try was committed, and only the answer was lost
            return write_lease(connection, place, LeaseRow(owner, lease.fence + 1, expires))

        return await self._write(work)

    async def renew(self, workspace: str, session: str, fence: int, now: int, expires: int) -> LeaseRow:
        place = (workspace, session)

        def work(connection: Connection) -> LeaseRow:
            lease = check_fence(read_lease(connection, place, lock=True), session, fence, now)
            return write_lease(connection, place, lease._replace(expires=expires))

        return await self._write(work)

    async def release(self, workspace: str, session: str, fence: int) -> None:
        place = (workspace, session)

        def work(connection: Connection) -> None:
            lease = read_lease(connection, place, lock=True)
            if lease is not None and lease.fence == fence:
                write_lease(connection, place, lease._replace(expires=0))
                connection.execute(Q.tell_runs)

        await self._write(work)

    async def lease(self, workspace: str, session: str) -> LeaseRow | None:
        return await self._do(lambda connection: read_lease(connection, (workspace, session), lock=False))

    # -- runs

    async def run(self, workspace: str, run: str) -> RunRow | None:
        return await self._do(lambda connection: read_run(connection, workspace, run, lock=False))

    async def runs(self, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
        return await self._do(lambda connection: list_runs(connection, workspace, query))

    async def due(self, workspace: str, now: int, limit: int, skip: int = 0) -> list[RunRow]:
        return await self._do(lambda connection: due_runs(connection, workspace, now, limit, skip))

    async def next_wake(self, workspace: str, now: int) -> int | None:
        def work(connection: Connection) -> int | None:
            row = connection.execute(Q.next_wake, (workspace, now)).fetchone()
            return row[0] if row else None

        return await self._do(work)

    async def claim(
        self, workspace: str, run: str, owner: str, now: int, expires: int, limits: Limits | None, only_due: bool
    ) -> LeaseRow | None:
        tries = count(1)

        def work(connection: Connection) -> LeaseRow | None:
            again = next(tries) > 1
            return claim(connection, workspace, run, owner, now, expires, limits, only_due, again)

        return await self._write(work)

    def begin(self) -> PostgresTransaction:
        self._check()
        return PostgresTransaction(self.pool, Appender(self._unsynced), self._settings.shown)

    # -- following

    async def mark(self, *, runs: bool = False) -> tuple[Notifier, int]:
        self._check()
        self._listener.start()
        notifier = self._runs_notifier if runs else self._notifier
        return notifier, notifier.notices

    async def changed(self, mark: tuple[Notifier, int], timeout: float) -> float:
        began = time.monotonic()
        await self._runtime.wait(*mark, timeout)
        return time.monotonic() - began

    # -- maintenance

    async def damage(self) -> list[str]:
        return await self._do(damage)

    async def remarks(self) -> list[str]:
        return await self._do(remarks)

    async def close(self) -> None:
        if self.refusal is not None:
            return
        await self._runtime.run(self._close)
        self._runtime.close()

    def _close(self) -> None:
        for group, _ in self._groups:
            group.close()
        self.refusal = StoreClosed(f"the store at {self._settings.shown} was closed", hint="open it again")
        self._listener.stop()
        self._vector_index.close()
        self.pool.close()
        unwatch(self)
        self._notifier.notify()
        self._runs_notifier.notify()


def _passing(error: BaseException) -> bool:
    """Whether waiting may help, for example while a server restarts. A wrong password or a full disk does not pass."""
    lasting = (pg.InvalidAuthorizationSpecification, pg.InvalidPassword, pg.InvalidCatalogName, pg.DiskFull)
    return not isinstance(error, lasting)
