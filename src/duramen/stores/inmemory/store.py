"""The in-memory store: the simplest implementation of the port, for tests. Its data is lost when the process ends.

One lock protects everything. Every operation is one critical section, so isolation is serial and nothing is retried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ...errors import InvalidInput, SessionExists, StoreClosed, StoreError
from ...ports import (
    TALK,
    Batch,
    Blob,
    Bookmark,
    BookmarkQuery,
    Chunk,
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
    Transaction,
)
from ...runtime import Notifier, Runtime
from ..common.fork_guard import forked, watch
from .memories import Memories, MemoryPart
from .workspace import Session, Workspace, append, erase, find, has_room, held, is_held, wanted

T = TypeVar("T")


class InMemoryStore:
    """A journal store in the memory of this process."""

    name = "inmemory"
    retriever = None

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._notifier, self._runs_notifier = Notifier(), Notifier()
        self._spaces: dict[str, Workspace] = {}
        self._refusal: StoreError | None = None
        memories = MemoryPart(self._with_memories)
        self.memories, self.changes = memories.memories, memories.changes
        self.audience_changes = memories.audience_changes
        self.unindexed, self.count_unindexed = memories.unindexed, memories.count_unindexed
        self.index_entries, self.put_index_entries = memories.index_entries, memories.put_index_entries
        self.segments, self.segment_spans = memories.segments, memories.segment_spans
        self.put_segment, self.recalls = memories.put_segment, memories.recalls
        self.note_recalls, self.generations = memories.note_recalls, memories.generations
        self.add_generation, self.activate = memories.add_generation, memories.activate
        watch(self)

    def disown(self) -> None:
        self._refusal = forked()

    async def _do(self, workspace: str, work: Callable[[Workspace], T]) -> T:
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        with self._lock:
            return work(self._spaces.setdefault(workspace, Workspace()))

    async def _with_memories(self, workspace: str, work: Callable[[Memories], T], /) -> T:
        return await self._do(workspace, lambda space: work(space.memories))

    async def append(self, request: Batch) -> Stored:
        done = await self._do(request.workspace, lambda space: append(space, request))
        self._notifier.notify()
        if request.changes:
            self._runs_notifier.notify()
        return done

    async def head(self, workspace: str, session: str) -> Head | None:
        def work(space: Workspace) -> Head | None:
            found = space.sessions.get(session)
            return found.head if found else None

        return await self._do(workspace, work)

    async def read(self, workspace: str, session: str, start: int, stop: int) -> list[Record]:
        def work(space: Workspace) -> list[Record]:
            found = space.sessions.get(session)
            if found is None:
                return []
            skip = found.fork.position + 1
            return found.records[max(0, start - skip) : max(0, stop - skip + 1)]

        return await self._do(workspace, work)

    async def find(self, workspace: str, session: str, key: str) -> int | None:
        return await self._do(workspace, lambda space: find(space, session, key))

    async def pick(self, workspace: str, session: str, positions: Sequence[int]) -> list[FeedItem]:
        return await self._do(workspace, lambda space: space.pick(session, positions))

    async def talk(self, workspace: str, session: str, first: int, last: int, limit: int) -> list[int]:
        records = await self.read(workspace, session, first, last)
        return [record.position for record in reversed(records) if record.type.startswith(TALK)][:limit]

    async def bookmarks(self, workspace: str, session: str, query: BookmarkQuery) -> list[Bookmark]:
        def work(space: Workspace) -> list[Bookmark]:
            named = [one for key, one in space.bookmarks.items() if key[:2] == (session, query.name)]
            found = [
                one
                for one in named
                if query.id in (None, one.id)
                and (query.upto is None or one.position <= query.upto)
                and (query.until is None or one.time <= query.until)
            ]
            return sorted(found, key=lambda one: one.position, reverse=True)[: query.limit]

        return await self._do(workspace, work)

    async def bookmark_names(self, workspace: str, session: str, prefix: str) -> list[str]:
        def work(space: Workspace) -> list[str]:
            return sorted({name for kept, name, _ in space.bookmarks if kept == session and name.startswith(prefix)})

        return await self._do(workspace, work)

    async def chunk_log_end(self, workspace: str, session: str, chunk_log: int) -> int:
        return await self._do(workspace, lambda space: space.end(session, chunk_log))

    async def expired(self, workspace: str, prefix: str, now: int, limit: int) -> list[tuple[str, Bookmark]]:
        def work(space: Workspace) -> list[tuple[str, Bookmark]]:
            named = [(key[0], one) for key, one in space.bookmarks.items() if one.name.startswith(prefix)]
            due = [one for one in named if one[1].expires is not None and one[1].expires <= now]
            return sorted(due, key=lambda one: one[1].expires or 0)[:limit]

        return await self._do(workspace, work)

    async def chunks(self, workspace: str, session: str, chunk_log: int, first: int, last: int) -> list[Chunk]:
        def work(space: Workspace) -> list[Chunk]:
            found = sorted(chunk for key, chunk in space.chunks.items() if key[:2] == (session, chunk_log))
            return [chunk for chunk in found if chunk.start < last and chunk.start + chunk.count > first]

        return await self._do(workspace, work)

    async def session(self, workspace: str, session: str) -> SessionRow | None:
        def work(space: Workspace) -> SessionRow | None:
            found = space.sessions.get(session)
            return found.row(session) if found else None

        return await self._do(workspace, work)

    async def sessions(self, workspace: str, after: str, limit: int) -> list[SessionRow]:
        def work(space: Workspace) -> list[SessionRow]:
            names = sorted(name for name in space.sessions if name > after)[:limit]
            return [space.sessions[name].row(name) for name in names]

        return await self._do(workspace, work)

    async def session_names(self, workspace: str, after: str, limit: int) -> list[str]:
        return [row.session for row in await self.sessions(workspace, after, limit)]

    async def workspaces(self) -> list[str]:
        return await self._do("", lambda _: sorted(name for name, space in self._spaces.items() if space.sessions))

    async def fork(self, workspace: str, parent: str, at: Head, session: str, now: int) -> None:
        def work(space: Workspace) -> None:
            if session in space.sessions:
                raise SessionExists(session)
            space.sessions[session] = Session(now, parent, at)

        await self._do(workspace, work)

    async def feed(self, workspace: str, after: int, limit: int) -> list[FeedItem]:
        def work(space: Workspace) -> list[FeedItem]:
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
        def work(space: Workspace) -> bool:
            found = space.cursors.get(outlet, 0)
            if found != before:
                return found == after
            space.cursors[outlet] = after
            return True

        return await self._do(workspace, work)

    async def blob(self, workspace: str, address: bytes) -> bytes | None:
        def work(space: Workspace) -> bytes | None:
            found = space.blobs.get(address)
            return found.body if found else None

        return await self._do(workspace, work)

    async def blobs(self, workspace: str, after: bytes, limit: int) -> list[Blob]:
        def work(space: Workspace) -> list[Blob]:
            return [space.blobs[address] for address in sorted(space.blobs) if address > after][:limit]

        return await self._do(workspace, work)

    async def missing_blobs(self, workspace: str, addresses: Sequence[bytes]) -> set[bytes]:
        return await self._do(workspace, lambda space: set(addresses) - space.blobs.keys())

    async def subject(self, workspace: str, name: str) -> SubjectRow | None:
        return await self._do(workspace, lambda space: space.subject(name))

    async def subject_by_ref(self, workspace: str, ref: bytes) -> SubjectRow | None:
        return await self._do(workspace, lambda space: space.subjects.get(ref))

    async def add_subject(self, workspace: str, subject: SubjectRow) -> SubjectRow:
        def work(space: Workspace) -> SubjectRow:
            return space.subject(subject.name) or space.subjects.setdefault(subject.ref, subject)

        return await self._do(workspace, work)

    async def subjects(self, workspace: str) -> list[SubjectRow]:
        return await self._do(workspace, lambda space: sorted(space.subjects.values()))

    async def rewrap(self, workspace: str, rows: Iterable[Rewrap]) -> int:
        def work(space: Workspace) -> int:
            moved = 0
            for ref, before, after in rows:
                if ref in space.subjects and space.subjects[ref].wrapped == before:
                    space.subjects[ref] = after
                    moved += 1
            return moved

        return await self._do(workspace, work)

    async def erase(self, request: Erase) -> Erasure:
        return await self._do(request.workspace, lambda space: erase(space, request))

    async def acquire(self, workspace: str, session: str, owner: str, now: int, expires: int) -> LeaseRow | None:
        def work(space: Workspace) -> LeaseRow | None:
            lease = space.leases.get(session)
            if lease is not None and lease.expires > now and lease.owner != owner:
                return None
            space.leases[session] = LeaseRow(owner, lease.fence + 1 if lease else 1, expires)
            return space.leases[session]

        return await self._do(workspace, work)

    async def renew(self, workspace: str, session: str, fence: int, now: int, expires: int) -> LeaseRow:
        def work(space: Workspace) -> LeaseRow:
            kept = held(space, session, fence, now)._replace(expires=expires)
            space.leases[session] = kept
            return kept

        return await self._do(workspace, work)

    async def release(self, workspace: str, session: str, fence: int) -> None:
        def work(space: Workspace) -> None:
            lease = space.leases.get(session)
            if lease is not None and lease.fence == fence:
                space.leases[session] = lease._replace(expires=0)

        await self._do(workspace, work)
        self._runs_notifier.notify()

    async def lease(self, workspace: str, session: str) -> LeaseRow | None:
        return await self._do(workspace, lambda space: space.leases.get(session))

    async def run(self, workspace: str, run: str) -> RunRow | None:
        return await self._do(workspace, lambda space: space.runs.get(run))

    async def runs(self, workspace: str, query: RunQuery) -> list[tuple[RunRow, LeaseRow | None]]:
        def work(space: Workspace) -> list[tuple[RunRow, LeaseRow | None]]:
            rows = sorted(space.runs.values(), key=lambda row: (row.created, row.run), reverse=True)
            found = [row for row in rows if wanted(row, query)][: query.limit]
            return [(row, space.leases.get(row.session) if row.status == "open" else None) for row in found]

        return await self._do(workspace, work)

    async def due(self, workspace: str, now: int, limit: int, skip: int = 0) -> list[RunRow]:
        def work(space: Workspace) -> list[RunRow]:
            due = [row for row in space.runs.values() if row.wake is not None and row.wake <= now]
            free = [row for row in due if not is_held(space, row.session, now)]
            return sorted(free, key=lambda row: (-row.priority, row.wake, row.run))[skip : skip + limit]

        return await self._do(workspace, work)

    async def next_wake(self, workspace: str, now: int) -> int | None:
        def work(space: Workspace) -> int | None:
            return min(
                (row.wake for row in space.runs.values() if row.wake is not None and row.wake > now), default=None
            )

        return await self._do(workspace, work)

    async def claim(
        self, workspace: str, run: str, owner: str, now: int, expires: int, limits: Limits | None, only_due: bool
    ) -> LeaseRow | None:
        def work(space: Workspace) -> LeaseRow | None:
            row = space.runs.get(run)
            if row is None or row.status != "open" or (only_due and (row.wake is None or row.wake > now)):
                return None
            lease = space.leases.get(row.session)
            if lease is not None and lease.expires > now and lease.owner != owner:
                return None
            if limits is not None and not has_room(space, row, now, limits):
                return None
            space.leases[row.session] = LeaseRow(owner, lease.fence + 1 if lease else 1, expires)
            if row.started is None:
                space.runs[run] = row._replace(started=now)
            return space.leases[row.session]

        return await self._do(workspace, work)

    def begin(self) -> Transaction:
        raise InvalidInput("the in-memory store has no transactions", hint="open a file or a postgresql:// URL")

    async def mark(self, *, runs: bool = False) -> tuple[Notifier, int]:
        notifier = self._runs_notifier if runs else self._notifier
        return notifier, notifier.notices

    async def changed(self, mark: tuple[Notifier, int], timeout: float) -> float:
        began = time.monotonic()
        await self._runtime.wait(*mark, timeout)
        return time.monotonic() - began

    async def remarks(self) -> list[str]:
        return []

    async def damage(self) -> list[str]:
        return []

    async def sync(self) -> None:
        """Does nothing: the data is not on a disk."""

    async def close(self) -> None:
        self._refusal = self._refusal or StoreClosed("the in-memory store was closed", hint="open a new one")
        self._notifier.notify()
        self._runs_notifier.notify()
        self._runtime.close()
