"""What is found by name or by position instead of by range: bookmarks, chunks, single events, a conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from ...ports import Bookmark, BookmarkQuery, Chunk, FeedItem, Record
from ..common.bookmark_rows import checked_chunk, read_bookmark
from .append import find_session
from .sql import Q

T = TypeVar("T")


def read_bookmarks(connection: apsw.Connection, sid: int, query: BookmarkQuery) -> list[Bookmark]:
    """A session's bookmarks, newest first."""
    values = (sid, query.name, query.id, query.upto, query.until, query.limit)
    chosen = Q.read_attached if query.name.startswith("+") else Q.read_bookmarks
    chosen = Q.read_bookmark if query.id is not None else chosen
    rows: Any = connection.execute(chosen, values)
    return [read_bookmark((sid,), row) for row in rows]


def expired_bookmarks(
    connection: apsw.Connection, workspace: str, prefix: str, now: int, limit: int
) -> list[tuple[str, Bookmark]]:
    """Bookmarks whose time has come, with their sessions."""
    rows: Any = connection.execute(Q.expired_bookmarks, (now, workspace, prefix, limit))
    return [(session, read_bookmark((sid,), row)) for sid, session, *row in rows]


def read_chunks(connection: apsw.Connection, sid: int, chunk_log: int, first: int, last: int) -> list[Chunk]:
    """The chunks that hold a stretch of a chunk_log."""
    rows: Any = connection.execute(Q.read_chunks, {"sid": sid, "chunk_log": chunk_log, "first": first, "last": last})
    return [checked_chunk((sid,), row) for row in rows]


def pick_events(connection: apsw.Connection, session: str, sid: int, positions: list[int]) -> list[FeedItem]:
    """Single events, each with the hash before it."""
    rows: Any = connection.execute(Q.pick_events, (sid, json.dumps(positions)))
    return [FeedItem(0, session, previous, Record(*rest)) for previous, *rest in rows]


def _column(connection: apsw.Connection, query: str, values: tuple[Any, ...]) -> list[Any]:
    rows: Any = connection.execute(query, values)
    return [row[0] for row in rows]


class Finding:
    """The chunk of the store that finds events and states by name instead of by range."""

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        raise NotImplementedError

    async def _in_session(
        self, workspace: str, session: str, work: Callable[[apsw.Connection, int], list[T]]
    ) -> list[T]:
        """Read rows by a session's number; none if there is no such session."""

        def found(connection: apsw.Connection) -> list[T]:
            row = find_session(connection, workspace, session)
            return [] if row is None else work(connection, row[0])

        return await self._read(found)

    async def pick(self, workspace: str, session: str, positions: Sequence[int]) -> list[FeedItem]:
        wanted = sorted(set(positions))
        return await self._in_session(workspace, session, lambda c, sid: pick_events(c, session, sid, wanted))

    async def talk(self, workspace: str, session: str, first: int, last: int, limit: int) -> list[int]:
        values = (first, last, limit)
        return await self._in_session(workspace, session, lambda c, sid: _column(c, Q.read_talk, (sid, *values)))

    async def bookmarks(self, workspace: str, session: str, query: BookmarkQuery) -> list[Bookmark]:
        return await self._in_session(workspace, session, lambda c, sid: read_bookmarks(c, sid, query))

    async def bookmark_names(self, workspace: str, session: str, prefix: str) -> list[str]:
        return await self._in_session(workspace, session, lambda c, sid: _column(c, Q.bookmark_names, (sid, prefix)))

    async def expired(self, workspace: str, prefix: str, now: int, limit: int) -> list[tuple[str, Bookmark]]:
        return await self._read(lambda connection: expired_bookmarks(connection, workspace, prefix, now, limit))

    async def chunk_log_end(self, workspace: str, session: str, chunk_log: int) -> int:
        found = await self._in_session(workspace, session, lambda c, sid: _column(c, Q.chunk_log_end, (sid, chunk_log)))
        return found[0] if found else 0

    async def chunks(self, workspace: str, session: str, chunk_log: int, first: int, last: int) -> list[Chunk]:
        return await self._in_session(workspace, session, lambda c, sid: read_chunks(c, sid, chunk_log, first, last))
