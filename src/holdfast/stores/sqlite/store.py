"""The SQLite store: one file, many processes.

Locks, always in this order: the handle's `_writing` lock (threads), the write lock file (processes),
SQLite's own write lock (BEGIN IMMEDIATE). Readers take none: in WAL mode each reads its own snapshot.
Isolation: writers are serial, readers see a snapshot. Retry rule: a group of appends that fails as a whole
is tried again one by one; nothing else is retried. Commits are WAL with synchronous=FULL: durable on return.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple, TypeVar

import apsw

from ...crashpoints import reach
from ...errors import HoldfastError, SessionExists, StoreBusy, StoreClosed, StoreError, StoreReadOnly
from ...ports import (
    Append,
    Appended,
    Blob,
    Erase,
    Erasure,
    FeedItem,
    Head,
    LeaseRow,
    Record,
    Rewrap,
    SessionRow,
    SubjectRow,
)
from ...runtime import Bell, Runtime
from ..forking import forked, inherited, refuse_inherited, watch
from ..group import GroupCommit, Ticket
from ..queries import refuse_outdated
from ..rowcheck import checksum, expect_intact, mismatches
from .appending import (
    Appender,
    Q,
    check_fence,
    find_session,
    head_of,
    read_lease,
    read_records,
    write_lease,
)
from .connection import SCHEMA_VERSION, SqliteSettings, check_version, connect, explain, migrate, translated
from .writelock import WriteLock

T = TypeVar("T")


class Mark(NamedTuple):
    """What a follower saw: rings of the handle's own bell, and the file's data version."""

    rings: int
    version: int


class SqliteStore:
    """A journal store in one SQLite file. Safe to share between threads."""

    name = "sqlite"

    def __init__(self, settings: SqliteSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._refusal: StoreError | None = None
        self._bell = Bell()
        self._writing = threading.RLock()
        self._idle: list[apsw.Connection] = []
        self._watching = threading.Lock()
        refuse_inherited(settings.path)
        self._lock: WriteLock | nullcontext[None] = nullcontext()
        self._writer = self._watcher = connect(settings)
        try:
            self._prepare()
        except BaseException:
            self._close_connections()
            raise
        self._appender = Appender(self._writer)
        self._group: GroupCommit[Append, Appended] = GroupCommit(self._flush, self._append_alone)
        watch(self)

    @property
    def _alone(self) -> bool:
        return self._settings.exclusive

    def _prepare(self) -> None:
        """Take the lock file, bring the schema up to date, and open the connection that watches for others."""
        settings = self._settings
        if not (settings.readonly or settings.exclusive or settings.vfs):
            try:
                self._lock = WriteLock(settings.path + "-lock", settings.timeout)
            except OSError as error:
                raise StoreReadOnly(f"{settings.path} cannot be written: {error}", hint="open it readonly") from error
        if settings.readonly:
            with translated(settings.path):
                refuse_outdated(check_version(self._writer, settings.path), SCHEMA_VERSION, settings.path)
        else:
            with self._lock:
                migrate(self._writer, settings.path)
        if not self._alone:
            self._watcher = connect(settings)

    def disown(self) -> None:
        """From here on this is a child's copy of its parent's handle. Its part in the lock goes: if the parent
        dies with the lock, a child must not keep it."""
        self._refusal = forked()
        if isinstance(self._lock, WriteLock):
            self._lock.close()
        inherited.append(self._settings.path)

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    # -- running work on connections

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        self._check()
        return await self._runtime.run(lambda: self._reading(work))

    def _reading(self, work: Callable[[apsw.Connection], T]) -> T:
        if self._alone:
            with self._writing, translated(self._settings.path):
                return work(self._writer)
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self._settings)
        try:
            with translated(self._settings.path):
                return work(connection)
        finally:
            self._idle.append(connection)
            if self._refusal is not None:
                self._close_idle()

    async def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        self._check()
        return await self._runtime.run(lambda: self._in_transaction(work))

    def _in_transaction(self, work: Callable[[apsw.Connection], T]) -> T:
        try:
            with self._writing:
                self._check()
                with self._lock:
                    result = self._committed(work)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise explain(error, self._settings.path) from error
        self._bell.ring()
        return result

    def _committed(self, work: Callable[[apsw.Connection], T]) -> T:
        writer = self._writer
        try:
            writer.execute("BEGIN IMMEDIATE")
            self._appender.refresh()
            result = work(writer)
            writer.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        return result

    def _roll_back(self) -> None:
        self._appender.forget()
        if self._writer.in_transaction:
            with suppress(apsw.Error):
                self._writer.execute("ROLLBACK")

    # -- appending

    async def append(self, request: Append) -> Appended:
        self._check()
        if self._runtime.looping:
            return await self._group.commit_looping(request)
        return self._group.commit(request)

    def _append_alone(self, request: Append) -> Appended:
        reach("append.begun")
        try:
            with self._writing, self._lock:
                self._check()
                done = self._appender.one_quickly(request)
                if done is None:
                    done = self._committed(lambda _: self._apply_one(request))
        except BaseException as error:
            self._appender.forget()
            if isinstance(error, (apsw.Error, UnicodeDecodeError)):
                raise explain(error, self._settings.path) from error
            raise
        reach("append.committed")
        self._bell.ring()
        return done

    def _apply_one(self, request: Append) -> Appended:
        done = self._appender.append(request)
        self._appender.insert_staged()
        reach("append.inserted")
        return done

    def _flush(self, tickets: list[Ticket[Append, Appended]]) -> None:
        """Settle a group: in one transaction, or, if one of them brings it down, each on its own."""
        outcomes: Sequence[Appended | HoldfastError]
        reach("append.begun")
        try:
            with self._writing:
                self._check()
                with self._lock:
                    quick = self._appender.quickly([ticket.request for ticket in tickets])
                    outcomes = quick or self._committed(lambda _: self._apply(tickets))
        except StoreBusy as busy:
            outcomes = [busy] * len(tickets)  # all of them have waited
        except Exception:  # noqa: BLE001 - each append has its own outcome, found below
            self._appender.forget()
            outcomes = [self._outcome_alone(ticket.request) for ticket in tickets]
        reach("append.committed")
        self._bell.ring()
        for ticket, outcome in zip(tickets, outcomes, strict=True):
            if isinstance(outcome, Appended):
                ticket.answer = outcome
            else:
                ticket.error = outcome

    def _outcome_alone(self, request: Append) -> Appended | HoldfastError:
        try:
            return self._append_alone(request)
        except HoldfastError as refusal:
            return refusal

    def _apply(self, tickets: list[Ticket[Append, Appended]]) -> list[Appended | HoldfastError]:
        outcomes: list[Appended | HoldfastError] = []
        for ticket in tickets:
            try:
                outcomes.append(self._appender.append(ticket.request))
            except HoldfastError as refusal:
                outcomes.append(refusal)
        self._appender.insert_staged()
        reach("append.inserted")
        return outcomes

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
        def work(connection: apsw.Connection) -> SessionRow | None:
            row = find_session(connection, workspace, session)
            if row is None:
                return None
            sid, created, parent, fork_at, _, _ = row
            last: Any = connection.execute(Q.last_event, (sid,)).fetchone()
            position, updated = (last[0], last[2]) if last else (fork_at, created)
            return SessionRow(session, created, parent, fork_at, position, updated)

        return await self._read(work)

    async def sessions(self, workspace: str, after: str, limit: int) -> list[SessionRow]:
        def work(connection: apsw.Connection) -> list[SessionRow]:
            found = []
            rows: Any = connection.execute(Q.list_sessions, (workspace, after, limit))
            for sid, session, created, parent, fork_at, fork_hash, check, head, updated in rows:
                fields = (sid, workspace, session, created, parent, fork_at, fork_hash)
                expect_intact(f"session {session!r}", check, *fields)
                stands = fork_at if head is None else head
                found.append(SessionRow(session, created, parent, fork_at, stands, updated or created))
            return found

        return await self._read(work)

    async def session_names(self, workspace: str, after: str, limit: int) -> list[str]:
        return await self._read(lambda connection: _column(connection, Q.list_session_names, (workspace, after, limit)))

    async def workspaces(self) -> list[str]:
        return await self._read(lambda connection: _column(connection, Q.list_workspaces))

    async def fork(self, workspace: str, parent: str, at: Head, session: str, now: int) -> None:
        def work(connection: apsw.Connection) -> None:
            if find_session(connection, workspace, session) is not None:
                raise SessionExists(session)
            self._appender.create(workspace, session, now, parent, at)

        await self._write(work)

    async def feed(self, workspace: str, after: int, limit: int) -> list[FeedItem]:
        def work(connection: apsw.Connection) -> list[FeedItem]:
            rows: Any = connection.execute(Q.read_feed, (after, workspace, limit))
            return [FeedItem(seq, session, prev, Record(*rest)) for seq, session, prev, *rest in rows]

        return await self._read(work)

    async def cursor(self, workspace: str, outlet: str) -> int:
        return await self._read(lambda connection: _cursor(connection, workspace, outlet))

    async def advance(self, workspace: str, outlet: str, before: int, after: int) -> bool:
        def work(connection: apsw.Connection) -> bool:
            found = _cursor(connection, workspace, outlet)
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
        return await self._read(lambda connection: _subject(connection, Q.find_subject, workspace, name))

    async def subject_by_ref(self, workspace: str, ref: bytes) -> SubjectRow | None:
        return await self._read(lambda connection: _subject(connection, Q.find_subject_by_ref, workspace, ref))

    async def add_subject(self, workspace: str, subject: SubjectRow) -> SubjectRow:
        def work(connection: apsw.Connection) -> SubjectRow:
            check = checksum(workspace, *subject)
            connection.execute(Q.add_subject, (workspace, *subject, check))
            return _subject(connection, Q.find_subject, workspace, subject.name) or subject

        return await self._write(work)

    async def subjects(self, workspace: str) -> list[SubjectRow]:
        def work(connection: apsw.Connection) -> list[SubjectRow]:
            rows: Any = connection.execute(Q.list_subjects, (workspace,))
            return [_checked_subject(workspace, row) for row in rows]

        return await self._read(work)

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
            return self._erase(connection, request)

        erased = await self._write(work)
        reach("erase.committed")
        await self._runtime.run(self._purge_log)
        return erased

    def _erase(self, connection: apsw.Connection, request: Erase) -> Erasure:
        reach("erase.begun")
        payloads = size = 0
        held: dict[str, tuple[int, int]] = {}
        rows: Any = connection.execute(Q.payloads_of_subject, (request.ref, request.workspace)).fetchall()
        for seq, sid, session, payload in rows:
            connection.execute(Q.erase_payload, (request.digest(payload), seq))
            payloads, size = payloads + 1, size + len(payload)
            held[session] = (sid, held.get(session, (sid, 0))[1] + 1)
        gone: Any = connection.execute(Q.delete_blobs_of, (request.ref, request.workspace)).fetchall()
        connection.execute(Q.delete_subject, (request.workspace, request.ref))
        self._appender.forget()
        reach("erase.removed")
        tombstones = {}
        for session, (sid, count) in held.items():
            head = head_of(connection, find_session(connection, request.workspace, session))
            tombstones[session] = request.tombstone(session, head, count)
            self._appender.place_one(request.workspace, session, sid, tombstones[session])
        return Erasure(payloads, len(gone), size + sum(row[0] for row in gone), tombstones)

    def _purge_log(self) -> None:
        """Empty the write-ahead log, which still holds the erased pages."""
        with self._writing, translated(self._settings.path), self._lock:
            until = time.monotonic() + self._settings.timeout
            while True:
                busy, *_ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
                if not busy:
                    return
                if time.monotonic() > until:
                    break
        raise StoreBusy(
            "erased, but a reader in another process keeps the old log alive",
            hint="close that reader and call erase again",
        )

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

    async def lease(self, workspace: str, session: str) -> LeaseRow | None:
        return await self._read(lambda connection: read_lease(connection, workspace, session))

    # -- following

    async def mark(self) -> Mark:
        self._check()
        return Mark(self._bell.rings, self._data_version())

    def _data_version(self) -> int:
        with self._watching, translated(self._settings.path):
            return int(self._watcher.pragma("data_version"))

    async def changed(self, mark: Mark, timeout: float) -> float:
        # Writers in this process ring the bell. Those in others are seen by the data version: a look
        # costs microseconds, so look often at first and then every 20 ms.
        began, pause = time.monotonic(), 0.001
        while (waited := time.monotonic() - began) < timeout:
            if await self._runtime.wait(self._bell, mark.rings, min(pause, timeout - waited)):
                break
            self._check()
            if self._data_version() != mark.version:
                break
            pause = min(pause * 1.5, 0.02)
        return time.monotonic() - began

    # -- looking after the file

    async def damage(self) -> list[str]:
        return await self._read(_damage)

    async def close(self) -> None:
        if self._refusal is not None:
            return
        await self._runtime.run(self._group.close)
        with self._writing:
            self._refusal = StoreClosed(f"{self._settings.path} was closed", hint="open it again")
            self._close_connections()
        self._bell.ring()
        self._runtime.close()

    def _close_connections(self) -> None:
        # An error while closing changes nothing: what was acknowledged is safe, and the connection is closed.
        self._close_idle()
        for connection in (self._watcher, self._writer):
            with suppress(apsw.Error):
                connection.close()
        if isinstance(self._lock, WriteLock):
            self._lock.close()

    def _close_idle(self) -> None:
        while self._idle:
            with suppress(apsw.Error):
                self._idle.pop().close()


def _column(connection: apsw.Connection, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
    rows: Any = connection.execute(query, values)
    return [row[0] for row in rows]


def _cursor(connection: apsw.Connection, workspace: str, outlet: str) -> int:
    row: Any = connection.execute(Q.read_cursor, (workspace, outlet)).fetchone()
    if row is None:
        return 0
    expect_intact(f"the cursor of {outlet!r}", row[1], workspace, outlet, row[0])
    return int(row[0])


def _subject(connection: apsw.Connection, query: str, workspace: str, which: Any) -> SubjectRow | None:
    row: Any = connection.execute(query, (workspace, which)).fetchone()
    return None if row is None else _checked_subject(workspace, row)


def _checked_subject(workspace: str, row: Any) -> SubjectRow:
    *fields, check = row
    subject = SubjectRow(*fields)
    expect_intact(f"subject {subject.ref.hex()}", check, workspace, *subject)
    return subject


def _damage(connection: apsw.Connection) -> list[str]:
    found = [text for text in _column(connection, "PRAGMA integrity_check(10)") if text != "ok"]
    for what, query in (
        ("an event belongs to no session", Q.orphan_events),
        ("a blob belongs to no subject", Q.orphan_blobs),
        ("the feed contradicts the order of a session", Q.disorder),
        ("events are missing: the numbers of the feed have a gap", Q.gap),
    ):
        if connection.execute(query).fetchone() is not None:
            found.append(what)
    for kind, query in (
        ("session", Q.all_sessions),
        ("subject", Q.all_subjects),
        ("lease", Q.all_leases),
        ("cursor", Q.all_cursors),
    ):
        rows: Any = connection.execute(query)
        found += [f"the {kind} {name!r} does not match its checksum" for name in mismatches(rows)]
    return found
