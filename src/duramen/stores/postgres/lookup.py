"""Reads by name or position: bookmarks, chunks, single events, conversations."""

from __future__ import annotations

from collections.abc import Sequence

from ...ports import Bookmark, BookmarkQuery, Chunk, FeedItem
from ..common.bookmark_rows import checked_chunk, read_bookmark
from .append import to_record
from .connection import Connection, Work
from .sql import Q


class Lookup:
    """Implements the methods of `Store` for bookmarks and chunks, `pick` and `talk`."""

    def __init__(self, do: Work) -> None:
        self._do = do

    async def pick(self, workspace: str, session: str, positions: Sequence[int]) -> list[FeedItem]:
        def work(connection: Connection) -> list[FeedItem]:
            values = {"workspace": workspace, "session": session, "positions": list(positions)}
            rows = connection.execute(Q.pick_events, values, binary=True)
            return [FeedItem(0, session, previous, to_record(tuple(rest))) for previous, *rest in rows]

        return await self._do(work)

    async def talk(self, workspace: str, session: str, first: int, last: int, limit: int) -> list[int]:
        values = (workspace, session, first, last, limit)
        return await self._do(lambda connection: [row[0] for row in connection.execute(Q.read_talk, values)])

    async def bookmarks(self, workspace: str, session: str, query: BookmarkQuery) -> list[Bookmark]:
        place = (workspace, session)
        values = {"workspace": workspace, "session": session, **query._asdict()}

        def work(connection: Connection) -> list[Bookmark]:
            chosen = Q.read_attached if query.name.startswith("+") else Q.read_bookmarks
            rows = connection.execute(chosen, values, binary=True)
            return [read_bookmark(place, row) for row in rows]

        return await self._do(work)

    async def bookmark_names(self, workspace: str, session: str, prefix: str) -> list[str]:
        values = (workspace, session, prefix)
        return await self._do(lambda connection: [row[0] for row in connection.execute(Q.bookmark_names, values)])

    async def chunk_log_end(self, workspace: str, session: str, chunk_log: int) -> int:
        def work(connection: Connection) -> int:
            found = connection.execute(Q.chunk_log_end, (workspace, session, chunk_log)).fetchone()
            return found[0] if found else 0

        return await self._do(work)

    async def expired(self, workspace: str, prefix: str, now: int, limit: int) -> list[tuple[str, Bookmark]]:
        def work(connection: Connection) -> list[tuple[str, Bookmark]]:
            rows = connection.execute(Q.expired_bookmarks, (workspace, prefix, now, limit), binary=True)
            return [(session, read_bookmark((workspace, session), row)) for session, *row in rows]

        return await self._do(work)

    async def chunks(self, workspace: str, session: str, chunk_log: int, first: int, last: int) -> list[Chunk]:
        asked = {"workspace": workspace, "session": session, "chunk_log": chunk_log, "first": first, "last": last}
        place = (workspace, session)
        return await self._do(
            lambda connection: [
                checked_chunk(place, row) for row in connection.execute(Q.read_chunks, asked, binary=True)
            ]
        )
