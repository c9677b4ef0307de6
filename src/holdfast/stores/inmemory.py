"""The in-memory store: the port in its simplest form, for tests. It dies with the process.

One lock guards everything; every operation is a single critical section, so isolation is serial and
nothing is ever retried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import InvalidInput, LeaseLost, PositionConflict, RunActive, SessionExists, StoreClosed, StoreError
from ..ports import (
    GENESIS,
    Append,
    Appended,
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
    SubjectGone,
    SubjectRow,
    Transaction,
)
from ..runtime import Bell, Runtime
from .forking import forked, watch

T = TypeVar("T")


@dataclass(slots=True)
class _Session:
    created: int
    parent: str | None
    fork: Head
    records: list[Record] = field(default_factory=list)

    @property
    def head(self) -> Head:
        return Head(self.records[-1].position, self.records[-1].hash) if self.records else self.fork

    def row(self, name: str) -> SessionRow:
        updated = self.records[-1].time if self.records else self.created
        return SessionRow(name, self.created, self.parent, self.fork.position, self.head.position, updated)


@dataclass(slots=True)
class _Workspace:
    sessions: dict[str, _Session] = field(default_factory=dict)
    feed: list[tuple[str, int]] = field(default_factory=list)
    blobs: dict[bytes, Blob] = field(default_factory=dict)
    subjects: dict[bytes, SubjectRow] = field(default_factory=dict)
    leases: dict[str, LeaseRow] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    runs: dict[str, RunRow] = field(default_factory=dict)

    def subject(self, name: str) -> SubjectRow | None:
        return next((row for row in self.subjects.values() if row.name == name), None)

    def add(self, name: str, record: Record) -> None:
        self.sessions[name].records.append(record)
        self.feed.append((name, record.position))

    def record(self, name: str, position: int) -> Record:
        session = self.sessions[name]
        return session.records[position - session.fork.position - 1]


class InMemoryStore:
    """A journal store in this process's memory."""

    name = "inmemory"

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._bell, self._runs_bell = Bell(), Bell()
        self._spaces: dict[str, _Workspace] = {}
        self._refusal: StoreError | None = None
        watch(self)

    def disown(self) -> None:
        self._refusal = forked()

    async def _do(self, workspace: str, work: Callable[[_Workspace], T]) -> T:
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        with self._lock:
            return work(self._spaces.setdefault(workspace, _Workspace()))

    async def append(self, request: Append) -> Appended:
        done = await self._do(request.workspace, lambda space: _append(space, request))
        self._bell.ring()
        if request.changes:
            self._runs_bell.ring()
        return done

    async def head(self, workspace: str, session: str) -> Head | None:
        def work(space: _Workspace) -> Head | None:
            found = space.sessions.get(session)
            return found.head if found else None

        return await self._do(workspace, work)

    async def read(self, workspace: str, session: str, start: int, stop: int) -> list[Record]:
        def work(space: _Workspace) -> list[Record]:
            found = space.sessions.get(session)
            if found is None:
                return []
            skip = found.fork.position + 1
            return found.records[max(0, start - skip) : max(0, stop - skip + 1)]

        return await self._do(workspace, work)

    async def find(self, workspace: str, session: str, key: str) -> int | None:
        return await self._do(workspace, lambda space: _find(space, session, key))

    async def session(self, workspace: str, session: str) -> SessionRow | None:
        def work(space: _Workspace) -> SessionRow | None:
            found = space.sessions.get(session)
            return found.row(session) if found else None

        return await self._do(workspace, work)

    async def sessions(self, workspace: str, after: str, limit: int) -> list[SessionRow]:
        def work(space: _Workspace) -> list[SessionRow]:
            names = sorted(name for name in space.sessions if name > after)[:limit]
            return [space.sessions[name].row(name) for name in names]

        return await self._do(workspace, work)

    async def session_names(self, workspace: str, after: str, limit: int) -> list[str]:
        return [row.session for row in await self.sessions(workspace, after, limit)]

    async def workspaces(self) -> list[str]:
        return await self._do("", lambda _: sorted(name for name, space in self._spaces.items() if space.sessions))

    async def fork(self, workspace: str, parent: str, at: Head, session: str, now: int) -> None:
        def work(space: _Workspace) -> None:
            if session in space.sessions:
                raise SessionExists(session)
            space.sessions[session] = _Session(now, parent, at)

        await self._do(workspace, work)

    async def feed(self, workspace: str, after: int, limit: int) -> list[FeedItem]:
        def work(space: _Workspace) -> list[FeedItem]:
            items = []
            for cursor, (name, position) in enumerate(space.feed[after : after + limit], after + 1):
                session = space.sessions[name]
                first = position == session.fork.position + 1
                prev = session.fork.hash if first else space.record(name, position - 1).hash
                items.append(FeedItem(cursor, name, prev, space.record(name, position)))
            return items

        return await self._do(workspace, work)

    async def cursor(self, workspace: str, outlet: str) -> int:
        return await self._do(workspace, lambda space: space.cursors.get(outlet, 0))

    async def advance(self, workspace: str, outlet: str, before: int, after: int) -> bool:
        def work(space: _Workspace) -> bool:
            found = space.cursors.get(outlet, 0)
            if found != before:
                return found == after
            space.cursors[outlet] = after
            return True

        return await self._do(workspace, work)

    async def blob(self, workspace: str, address: bytes) -> bytes | None:
        def work(space: _Workspace) -> bytes | None:
            found = space.blobs.get(address)
            return found.body if found else None

        return await self._do(workspace, work)

    async def blobs(self, workspace: str, after: bytes, limit: int) -> list[Blob]:
        def work(space: _Workspace) -> list[Blob]:
            return [space.blobs[address] for address in sorted(space.blobs) if address > after][:limit]

        return await self._do(workspace, work)

    async def missing_blobs(self, workspace: str, addresses: Sequence[bytes]) -> set[bytes]:
        return await self._do(workspace, lambda space: set(addresses) - space.blobs.keys())

    async def subject(self, workspace: str, name: str) -> SubjectRow | None:
        return await self._do(workspace, lambda space: space.subject(name))

    async def subject_by_ref(self, workspace: str, ref: bytes) -> SubjectRow | None:
        return await self._do(workspace, lambda space: space.subjects.get(ref))

    async def add_subject(self, workspace: str, subject: SubjectRow) -> SubjectRow:
        def work(space: _Workspace) -> SubjectRow:
            return space.subject(subject.name) or space.subjects.setdefault(subject.ref, subject)

        return await self._do(workspace, work)

    async def subjects(self, workspace: str) -> list[SubjectRow]:
        return await self._do(workspace, lambda space: sorted(space.subjects.values()))

    async def rewrap(self, workspace: str, rows: Iterable[Rewrap]) -> int:
        def work(space: _Workspace) -> int:
            moved = 0
            for ref, before, after in rows:
                if ref in space.subjects and space.subjects[ref].wrapped == before:
                    space.subjects[ref] = after
                    moved += 1
            return moved

        return await self._do(workspace, work)

    async def erase(self, request: Erase) -> Erasure:
        return await self._do(request.workspace, lambda space: _erase(space, request))

    async def acquire(self, workspace: str, session: str, owner: str, now: int, expires: int) -> LeaseRow | None:
        def work(space: _Workspace) -> LeaseRow | None:
            lease = space.leases.get(session)
            if lease is not None and lease.expires > now and lease.owner != owner:
                return None
            space.leases[session] = LeaseRow(owner, lease.fence + 1 if lease else 1, expires)
            return space.leases[session]

        return await self._do(workspace, work)

    async def renew(self, workspace: str, session: str, fence: int, now: int, expires: int) -> LeaseRow:
        def work(space: _Workspace) -> LeaseRow:
            kept = _held(space, session, fence, now)._replace(expires=expires)
            space.leases[session] = kept
            return kept

        return await self._do(workspace, work)

    async def release(self, workspace: str, session: str, fence: int) -> None:
        def work(space: _Workspace) -> None:
            lease = space.leases.get(session)
            if lease is not None and lease.fence == fence:
                space.leases[session] = lease._replace(expires=0)

        await self._do(workspace, work)
        self._runs_bell.ring()

    async def lease(self, workspace: str, session: str) -> LeaseRow | None:
        return await self._do(workspace, lambda space: space.leases.get(session))

    async def run(self, workspace: str, run: str) -> RunRow | None:
        return await self._do(workspace, lambda space: space.runs.get(run))

    async def runs(self, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
        def work(space: _Workspace) -> list[tuple[RunRow, LeaseRow | None]]:
            rows = sorted(space.runs.values(), key=lambda row: (row.created, row.run), reverse=True)
            found = [row for row in rows if _wanted(row, query)][: query.limit]
            return [(row, space.leases.get(row.session) if row.status == "open" else None) for row in found]

        return await self._do(workspace, work)

    async def due(self, workspace: str, now: int, limit: int, skip: int = 0) -> list[RunRow]:
        def work(space: _Workspace) -> list[RunRow]:
            due = [row for row in space.runs.values() if row.wake is not None and row.wake <= now]
            free = [row for row in due if not _is_held(space, row.session, now)]
            return sorted(free, key=lambda row: (-row.priority, row.wake, row.run))[skip : skip + limit]

        return await self._do(workspace, work)

    async def next_wake(self, workspace: str, now: int) -> int | None:
        def work(space: _Workspace) -> int | None:
            return min(
                (row.wake for row in space.runs.values() if row.wake is not None and row.wake > now), default=None
            )

        return await self._do(workspace, work)

    async def claim(
        self, workspace: str, run: str, owner: str, now: int, expires: int, limits: Limits | None, only_due: bool
    ) -> LeaseRow | None:
        def work(space: _Workspace) -> LeaseRow | None:
            row = space.runs.get(run)
            if row is None or row.status != "open" or (only_due and (row.wake is None or row.wake > now)):
                return None
            lease = space.leases.get(row.session)
            if lease is not None and lease.expires > now and lease.owner != owner:
                return None
            if limits is not None and not _has_room(space, row, now, limits):
                return None
            space.leases[row.session] = LeaseRow(owner, lease.fence + 1 if lease else 1, expires)
            if row.started is None:
                space.runs[run] = row._replace(started=now)
            return space.leases[row.session]

        return await self._do(workspace, work)

    def begin(self) -> Transaction:
        raise InvalidInput("the in-memory store has no transactions", hint="open a file, or postgresql://…")

    async def mark(self, *, runs: bool = False) -> tuple[Bell, int]:
        bell = self._runs_bell if runs else self._bell
        return bell, bell.rings

    async def changed(self, mark: tuple[Bell, int], timeout: float) -> float:
        began = time.monotonic()
        await self._runtime.wait(*mark, timeout)
        return time.monotonic() - began

    async def damage(self) -> list[str]:
        return []

    async def close(self) -> None:
        self._refusal = self._refusal or StoreClosed("the in-memory store was closed", hint="open a new one")
        self._bell.ring()
        self._runs_bell.ring()
        self._runtime.close()


def _append(space: _Workspace, request: Append) -> Appended:
    position = _find(space, request.session, request.key) if request.key is not None else None
    if position is not None:
        skip = space.sessions[request.session].fork.position + 1
        records = space.sessions[request.session].records[position - skip : position - skip + request.size]
        return Appended(records, True)
    if request.fence is not None:
        _held(space, request.session, request.fence, request.now)
    session = space.sessions.get(request.session)
    head = session.head if session is not None else Head(0, GENESIS)
    if request.expected is not None and request.expected != head.position:
        raise PositionConflict(request.session, request.expected, head.position)
    if request.subject is not None and request.subject not in space.subjects:
        raise SubjectGone("the subject was erased")
    rows = _changed_runs(space, request)
    records = request.place(head)
    space.runs.update((row.run, row) for row in rows)
    if request.release:
        space.leases[request.session] = space.leases[request.session]._replace(expires=0)
    if session is None:
        space.sessions[request.session] = _Session(request.now, None, head)
    for blob in request.blobs:
        space.blobs.setdefault(blob.address, blob)
    for record in records:
        space.add(request.session, record)
    return Appended(records, False)


def _changed_runs(space: _Workspace, request: Append) -> list[RunRow]:
    rows = []
    for run, change in request.changes:
        before = space.runs.get(run)
        after = change(before)
        if after is None:
            continue
        if before is None:
            for row in space.runs.values():
                if row.session == after.session and row.status == "open":
                    raise RunActive(row.run, row.session, "")
        rows.append(after)
    return rows


def _wanted(row: RunRow, query: RunQuery) -> bool:
    asked = ((query.task, row.task), (query.queue, row.queue), (query.parent, row.parent), (query.session, row.session))
    return (
        (query.status is None or row.status in query.status)
        and all(wanted is None or wanted == found for wanted, found in asked)
        and (query.before is None or (row.created, row.run) < query.before)
    )


def _is_held(space: _Workspace, session: str, now: int) -> bool:
    lease = space.leases.get(session)
    return lease is not None and lease.expires > now


def _has_room(space: _Workspace, row: RunRow, now: int, limits: Limits) -> bool:
    queue = [other for other in space.runs.values() if other.queue == row.queue and other.run != row.run]
    active = [other for other in queue if other.status == "open" and _is_held(space, other.session, now)]
    for limit, others in ((limits.concurrency, active), (limits.key_concurrency, _of_key(active, row))):
        if limit is not None and len(others) >= limit:
            return False
    if row.started is not None:
        return True
    for rate, others in ((limits.rate, queue), (limits.key_rate, _of_key(queue, row))):
        if rate is not None and sum(1 for one in others if one.started and one.started > now - rate[1]) >= rate[0]:
            return False
    return True


def _of_key(rows: list[RunRow], row: RunRow) -> list[RunRow]:
    return [other for other in rows if other.queue_key == row.queue_key]


def _find(space: _Workspace, session: str, key: str) -> int | None:
    found = space.sessions.get(session)
    records = found.records if found else []
    return next((record.position for record in records if record.key == key), None)


def _held(space: _Workspace, session: str, fence: int, now: int) -> LeaseRow:
    lease = space.leases.get(session)
    if lease is None or lease.fence != fence or lease.expires <= now:
        raise LeaseLost(session, fence, lease.fence if lease else None)
    return lease


def _erase(space: _Workspace, request: Erase) -> Erasure:
    payloads = size = 0
    tombstones = {}
    for name, session in space.sessions.items():
        count = 0
        for index, record in enumerate(session.records):
            if record.subject == request.ref and record.payload is not None:
                digest = request.digest(record.payload)
                session.records[index] = record._replace(payload=None, payload_hash=digest)
                count, size = count + 1, size + len(record.payload)
        if count:
            payloads += count
            tombstones[name] = request.tombstone(name, session.head, count)
            space.add(name, tombstones[name])
    gone = [space.blobs.pop(blob.address) for blob in list(space.blobs.values()) if blob.owner == request.ref]
    space.subjects.pop(request.ref, None)
    return Erasure(payloads, len(gone), size + sum(len(blob.body) for blob in gone), tombstones)
