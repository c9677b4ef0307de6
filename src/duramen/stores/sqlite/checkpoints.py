"""The part of the store for bookmarks and chunks: read them, and change them with an append."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from ...ports import Bookmark, BookmarkChanges, BookmarkQuery, Chunk
from ..common.bookmark_rows import (
    bookmark_columns,
    checked_chunk,
    chunk_columns,
    placed,
    read_bookmark,
    refuse_conflict,
)
from .rows import column, find_session
from .sql import Q

if TYPE_CHECKING:
    from .access import Access
    from .append import Target

T = TypeVar("T")

_REMEMBERED = 100_000


class BookmarkProjection:
    """Writes `BookmarkChanges`. It caches the newest bookmark of a name and the end of a chunk log while no other
    connection writes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._newest: dict[tuple[int, str], str | None] = {}
        self._ends: dict[tuple[int, int], int] = {}

    def forget(self) -> None:
        """Clear the caches."""
        self._newest.clear()
        self._ends.clear()

    def read(self, target: Target, change: BookmarkChanges) -> None:
        """Raise `CheckpointConflict` or `ChunkLogMoved` if another writer was first."""
        if len(self._newest) + len(self._ends) > _REMEMBERED:
            self.forget()
        refuse_conflict(
            target.session,
            change,
            lambda name: self._newest_of(target.sid, name),
            lambda chunk_log: self._end_of(target.sid, chunk_log),
        )

    def _newest_of(self, sid: int, name: str) -> str | None:
        if sid < 0:
            return None
        if (sid, name) not in self._newest:
            found: Any = self._connection.execute(Q.newest_bookmark, (sid, name)).fetchone()
            self._newest[sid, name] = found[0] if found else None
        return self._newest[sid, name]

    def _end_of(self, sid: int, chunk_log: int) -> int:
        if sid < 0:
            return 0
        if (sid, chunk_log) not in self._ends:
            found: Any = self._connection.execute(Q.chunk_log_end, (sid, chunk_log)).fetchone()
            self._ends[sid, chunk_log] = found[0] if found else 0
        return self._ends[sid, chunk_log]

    def write(self, target: Target, change: BookmarkChanges, answer: None) -> None:
        """Write in the order that `BookmarkChanges` states."""
        execute, sid = self._connection.execute, target.sid
        for chunk in change.chunks:
            execute(Q.add_chunk, chunk_columns((sid,), chunk))
            self._ends[sid, chunk.chunk_log] = chunk.start + max(chunk.count, 1)
        if change.removed or change.only_chunk_logs is not None:
            self.forget()
        for name, id_ in change.removed:
            execute(Q.remove_bookmark, (sid, name, id_))
        for bookmark in placed(change, target.records):
            execute(Q.write_bookmark, bookmark_columns((sid,), bookmark))
            self._newest.pop((sid, bookmark.name), None)
        if len(change.bookmarks) == 1:  # with several, the next read asks the database which is the newest
            self._newest[sid, change.bookmarks[0].name] = change.bookmarks[0].id
        for bookmark in change.rewritten:
            columns = bookmark_columns((sid,), bookmark)
            execute(Q.rewrite_bookmark, (*columns[4:], *columns[:4]))
        if change.only_chunk_logs is not None:
            for (chunk_log,) in execute(Q.all_chunk_logs, (sid,)).fetchall():
                if chunk_log not in change.only_chunk_logs:
                    execute(Q.cut_chunk_log, (sid, chunk_log))
        for position, digest in change.stripped:
            execute(Q.strip_payload, (digest, sid, position))


class Checkpoints:
    """Implements the methods of `Store` for bookmarks and chunks."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def _in_session(
        self, workspace: str, session: str, work: Callable[[apsw.Connection, int], list[T]]
    ) -> list[T]:
        """Run a function with the `sid` of a session. Returns [] if there is no such session."""

        def found(connection: apsw.Connection) -> list[T]:
            row = find_session(connection, workspace, session)
            return [] if row is None else work(connection, row[0])

        return await self._access.read(found)

    async def bookmarks(self, workspace: str, session: str, query: BookmarkQuery) -> list[Bookmark]:
        return await self._in_session(workspace, session, lambda c, sid: _read_bookmarks(c, sid, query))

    async def bookmark_names(self, workspace: str, session: str, prefix: str) -> list[str]:
        return await self._in_session(workspace, session, lambda c, sid: column(c, Q.bookmark_names, (sid, prefix)))

    async def expired(self, workspace: str, prefix: str, now: int, limit: int) -> list[tuple[str, Bookmark]]:
        return await self._access.read(lambda connection: _expired_bookmarks(connection, workspace, prefix, now, limit))

    async def chunk_log_end(self, workspace: str, session: str, chunk_log: int) -> int:
        found: list[int] = await self._in_session(
            workspace, session, lambda c, sid: column(c, Q.chunk_log_end, (sid, chunk_log))
        )
        return found[0] if found else 0

    async def chunks(self, workspace: str, session: str, chunk_log: int, first: int, last: int) -> list[Chunk]:
        return await self._in_session(workspace, session, lambda c, sid: _read_chunks(c, sid, chunk_log, first, last))


def _read_bookmarks(connection: apsw.Connection, sid: int, query: BookmarkQuery) -> list[Bookmark]:
    """See `Store.bookmarks`."""
    values = (sid, query.name, query.id, query.upto, query.until, query.limit)
    chosen = Q.read_attached if query.name.startswith("+") else Q.read_bookmarks
    chosen = Q.read_bookmark if query.id is not None else chosen
    rows: Any = connection.execute(chosen, values)
    return [read_bookmark((sid,), row) for row in rows]


def _expired_bookmarks(
    connection: apsw.Connection, workspace: str, prefix: str, now: int, limit: int
) -> list[tuple[str, Bookmark]]:
    """See `Store.expired`."""
    rows: Any = connection.execute(Q.expired_bookmarks, (now, workspace, prefix, limit))
    return [(session, read_bookmark((sid,), row)) for sid, session, *row in rows]


def _read_chunks(connection: apsw.Connection, sid: int, chunk_log: int, first: int, last: int) -> list[Chunk]:
    """See `Store.chunks`."""
    rows: Any = connection.execute(Q.read_chunks, {"sid": sid, "chunk_log": chunk_log, "first": first, "last": last})
    return [checked_chunk((sid,), row) for row in rows]
