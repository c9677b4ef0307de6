"""The SQLite store: one file, many processes.

Isolation: writers are serial (see `writing`, which also says the order of locks), readers see a snapshot and take no
lock. Retry rule: a group of appends that fails as a whole is tried again one by one; nothing else is retried. Commits
are WAL with synchronous=FULL: durable on return.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import apsw

from ...crash_points import reach
from ...errors import InvalidInput, SessionExists, StoreClosed, StoreError
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
    RunQuery,
    RunRow,
    SessionRow,
    Stored,
    SubjectRow,
)
from ...runtime import Notifier, Runtime, is_driven, waiting_thread
from ..common.fork_guard import forked, inherited, refuse_inherited, unwatch, watch
from ..common.group_commit import GroupCommit
from ..common.row_checksum import checksum
from ..common.sql_file import refuse_outdated
from .append import find_session, head_of, read_records
from .catalog import column, cursor_of, damage, erase, session_row, session_rows, subject_of, subjects_of
from .connection import SCHEMA_VERSION, SqliteSettings, check_version, connect, translated
from .leases import check_fence, read_lease, write_lease
from .lookup import Finding
from .memories import Remembering
from .runs import claim, due_runs, list_runs, read_run
from .segments import Packing
from .sql import Q
from .writer import SqliteTransaction, Writer

T = TypeVar("T")


class Mark(NamedTuple):
    """What a follower saw: a notifier of the handle and its count of notices, and the file's data version."""

    notifier: Notifier
    notices: int
    version: int


class SqliteStore(Finding, Remembering, Packing):
    """A journal store in one SQLite file. Safe to share between threads."""

    name = "sqlite"
    retriever = None

    def __init__(self, settings: SqliteSettings, runtime: Runtime) -> None:
        refuse_inherited(settings.file)
        self._settings = settings
        self._runtime = runtime
        self.refusal: StoreError | None = None
        self._notifier, self._runs_notifier = Notifier(), Notifier()
        self._idle: list[apsw.Connection] = []
        self._watching = threading.Lock()
        self._writing = Writer(settings, self._notifier, self._runs_notifier)
        self._group: GroupCommit[Batch, Stored] = GroupCommit(self._writing.flush)
        try:
            self._watcher = connect(settings)
            if settings.readonly:
                with translated(settings.path):
                    refuse_outdated(check_version(self._watcher, settings.path), SCHEMA_VERSION, settings.path)
        except BaseException:
            self._writing.close()
            raise
        watch(self)

    def disown(self) -> None:
        """From here on this is a child's copy of its parent's handle."""
        self.refusal = forked()
        self._writing.let_go()
        inherited.append(self._settings.file)

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)

    # -- running work on connections

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        self._check()
        return await self._runtime.run(lambda: self._reading(work))

    def _reading(self, work: Callable[[apsw.Connection], T]) -> T:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self._settings)
        try:
            with translated(self._settings.path):
                return work(connection)
        finally:
            self._idle.append(connection)
            if self.refusal is not None:
                self._close_idle()

    def _check_writable(self) -> None:
        """A thread inside a transaction of its own would wait for itself."""
        self._check()
        if self._writing.held_by is not None and self._writing.held_by == waiting_thread():
            raise InvalidInput(
                "this step has a transaction open; nothing else can be written until it ends",
                hint="write through the connection that duramen.transaction() gave, or in another step",
            )

    async def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        self._check_writable()
        return await self._runtime.run(lambda: self._writing.transaction(work))

    async def append(self, batch: Batch) -> Stored:
        self._check_writable()
        if not self._runtime.looping:
            return self._group.commit(batch)
        if is_driven():
            return self._group.commit_beside(batch)
        return await self._group.commit_looping(batch)

    # -- reading

    async def head(self, workspace: str, session: str) -> Head | None:
        def work(connection: apsw.Connection) -> Head | None:
            row = find_session(connection, workspace, session)
            return None if row is None else head_of(connection, row)

        return await self._read(work)

    async def read(self, workspace: str, session: str, start: int, stop: int) -> list[Record]:
        def work(connection: apsw.Connection) -> list[Record]:
            row = find_session(connection, workspace, session)
            return [] if row is None else read_records(connection, row[0], start, stop)

        return await self._read(work)

    async def find(self, workspace: str, session: str, key: str) -> int | None:
        def work(connection: apsw.Connection) -> int | None:
            row = find_session(connection, workspace, session)
            found: Any = row and connection.execute(Q.find_key, (row[0], key)).fetchone()
            return found[0] if found else None

        return await self._read(work)

    async def session(self, workspace: str, session: str) -> SessionRow | None:
        return await self._read(lambda connection: session_row(connection, workspace, session))

    async def sessions(self, workspace: str, after: str, limit: int) -> list[SessionRow]:
        return await self._read(lambda connection: session_rows(connection, workspace, after, limit))

    async def session_names(self, workspace: str, after: str, limit: int) -> list[str]:
        return await self._read(lambda connection: column(connection, Q.list_session_names, (workspace, after, limit)))

    async def workspaces(self) -> list[str]:
        return await self._read(lambda connection: column(connection, Q.list_workspaces))

    async def fork(self, workspace: str, parent: str, at: Head, session: str, now: int) -> None:
        def work(connection: apsw.Connection) -> None:
            if find_session(connection, workspace, session) is not None:
                raise SessionExists(session)
            self._writing.appender.create(workspace, session, now, parent, at)

        await self._write(work)

    async def feed(self, workspace: str, after: int, limit: int) -> list[FeedItem]:
        def work(connection: apsw.Connection) -> list[FeedItem]:
            rows: Any = connection.execute(Q.read_feed, (after, workspace, limit))
            return [FeedItem(seq, session, prev, Record(*rest)) for seq, session, prev, *rest in rows]

        return await self._read(work)

    async def cursor(self, workspace: str, outlet: str) -> int:
        return await self._read(lambda connection: cursor_of(connection, workspace, outlet))

    async def advance(self, workspace: str, outlet: str, before: int, after: int) -> bool:
        def work(connection: apsw.Connection) -> bool:
            found = cursor_of(connection, workspace, outlet)
            if found != before:
                return found == after
            check = checksum(workspace, outlet, after)
            connection.execute(Q.write_cursor, (workspace, outlet, after, check))
            return True

        return await self._write(work)

    # -- blobs and subjects

    async def blob(self, workspace: str, address: bytes) -> bytes | None:
        def work(connection: apsw.Connection) -> bytes | None:
            row: Any = connection.execute(Q.read_blob, (workspace, address)).fetchone()
            return row[0] if row else None

        return await self._read(work)

    async def blobs(self, workspace: str, after: bytes, limit: int) -> list[Blob]:
        def work(connection: apsw.Connection) -> list[Blob]:
            rows: Any = connection.execute(Q.list_blobs, (workspace, after, limit))
            return [Blob(*row) for row in rows]

        return await self._read(work)

    async def missing_blobs(self, workspace: str, addresses: Sequence[bytes]) -> set[bytes]:
        def work(connection: apsw.Connection) -> set[bytes]:
            return {
                address
                for address in addresses
                if connection.execute(Q.has_blob, (workspace, address)).fetchone() is None
            }

        return await self._read(work)

    async def subject(self, workspace: str, name: str) -> SubjectRow | None:
        return await self._read(lambda connection: subject_of(connection, Q.find_subject, workspace, name))

    async def subject_by_ref(self, workspace: str, ref: bytes) -> SubjectRow | None:
        return await self._read(lambda connection: subject_of(connection, Q.find_subject_by_ref, workspace, ref))

    async def add_subject(self, workspace: str, subject: SubjectRow) -> SubjectRow:
        def work(connection: apsw.Connection) -> SubjectRow:
            check = checksum(workspace, *subject)
            connection.execute(Q.add_subject, (workspace, *subject, check))
            return subject_of(connection, Q.find_subject, workspace, subject.name) or subject

        return await self._write(work)

    async def subjects(self, workspace: str) -> list[SubjectRow]:
        return await self._read(lambda connection: subjects_of(connection, workspace))

    async def rewrap(self, workspace: str, rows: Iterable[Rewrap]) -> int:
        def work(connection: apsw.Connection) -> int:
            moved = 0
            for ref, before, after in rows:
                values = (after.wrapped, after.master, checksum(workspace, *after), workspace, ref, before)
                connection.execute(Q.rewrap_subject, values)
                moved += connection.changes()
            return moved

        return await self._write(work)

    async def erase(self, request: Erase) -> Erasure:
        def work(connection: apsw.Connection) -> Erasure:
            reach("erase.begun")
            erased = erase(connection, self._writing.appender, request)
            reach("erase.removed")
            return erased

        erased = await self._write(work)
        reach("erase.committed")
        await self._runtime.run(self._writing.purge_log)
        return erased

    # -- leases

    async def acquire(self, workspace: str, session: str, owner: str, now: int, expires: int) -> LeaseRow | None:
        def work(connection: apsw.Connection) -> LeaseRow | None:
            lease = read_lease(connection, workspace, session)
            if lease is not None and lease.expires > now and lease.owner != owner:
                return None
            taken = LeaseRow(owner, lease.fence + 1 if lease else 1, expires)
            write_lease(connection, workspace, session, taken)
            return taken

        return await self._write(work)

    async def renew(self, workspace: str, session: str, fence: int, now: int, expires: int) -> LeaseRow:
        def work(connection: apsw.Connection) -> LeaseRow:
            lease = check_fence(connection, workspace, session, fence, now)
            kept = lease._replace(expires=expires)
            write_lease(connection, workspace, session, kept)
            return kept

        return await self._write(work)

    async def release(self, workspace: str, session: str, fence: int) -> None:
        def work(connection: apsw.Connection) -> None:
            lease = read_lease(connection, workspace, session)
            if lease is not None and lease.fence == fence:
                write_lease(connection, workspace, session, lease._replace(expires=0))

        await self._write(work)
        self._runs_notifier.notify()

    async def lease(self, workspace: str, session: str) -> LeaseRow | None:
        return await self._read(lambda connection: read_lease(connection, workspace, session))

    # -- runs

    async def run(self, workspace: str, run: str) -> RunRow | None:
        return await self._read(lambda connection: read_run(connection, workspace, run))

    async def runs(self, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
        return await self._read(lambda connection: list_runs(connection, workspace, query))

    async def due(self, workspace: str, now: int, limit: int, skip: int = 0) -> list[RunRow]:
        return await self._read(lambda connection: due_runs(connection, workspace, now, limit, skip))

    async def next_wake(self, workspace: str, now: int) -> int | None:
        found = await self._read(lambda connection: column(connection, Q.next_wake, (workspace, now)))
        return found[0] if found else None

    async def claim(
        self, workspace: str, run: str, owner: str, now: int, expires: int, limits: Limits | None, only_due: bool
    ) -> LeaseRow | None:
        return await self._write(
            lambda connection: claim(connection, workspace, run, owner, now, expires, limits, only_due)
        )

    def begin(self) -> SqliteTransaction:
        self._check_writable()
        return SqliteTransaction(self._writing)

    # -- following

    async def mark(self, *, runs: bool = False) -> Mark:
        self._check()
        notifier = self._runs_notifier if runs else self._notifier
        return Mark(notifier, notifier.notices, self._data_version())

    def _data_version(self) -> int:
        with self._watching, translated(self._settings.path):
            return int(self._watcher.pragma("data_version"))

    async def changed(self, mark: Mark, timeout: float) -> float:
        # Writers in this process ring the notifier. Those in others are seen by the data version: a look
        # costs microseconds, so look often at first and then every 20 ms.
        began, pause = time.monotonic(), 0.001
        while (waited := time.monotonic() - began) < timeout:
            if await self._runtime.wait(mark.notifier, mark.notices, min(pause, timeout - waited)):
                break
            self._check()
            if self._data_version() != mark.version:
                break
            pause = min(pause * 1.5, 0.02)
        return time.monotonic() - began

    # -- looking after the file

    async def remarks(self) -> list[str]:
        return []

    async def damage(self) -> list[str]:
        return await self._read(damage)

    async def sync(self) -> None:
        if (await self._read(lambda connection: column(connection, Q.newest_event))) in ([], [None]):
            return
        if self._settings.readonly:
            await self._runtime.run(self._sync_log)
        elif self._writing.held_by != waiting_thread():  # the commit of a transaction that is open here syncs
            await self._write(lambda connection: connection.execute(Q.mark_synced))

    def _sync_log(self) -> None:
        """A handle that cannot write syncs the write-ahead log as it is."""
        with suppress(OSError):  # there is none: everything is in the database
            log = os.open(self._settings.file + "-wal", os.O_RDONLY)
            try:
                os.fsync(log)
            finally:
                os.close(log)

    async def close(self) -> None:
        if self.refusal is not None:
            return
        await self._runtime.run(self._close)
        self._runtime.close()

    def _close(self) -> None:
        self._group.close()
        self.refusal = StoreClosed(f"{self._settings.path} was closed", hint="open it again")
        self._close_idle()
        with suppress(apsw.Error):
            self._watcher.close()
        self._writing.close()
        unwatch(self)
        self._notifier.notify()
        self._runs_notifier.notify()

    def _close_idle(self) -> None:
        while self._idle:
            with suppress(apsw.Error):
                self._idle.pop().close()
