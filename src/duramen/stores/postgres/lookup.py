"""What is found by name or by position instead of by range: landmarks, parts, single events, a conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...ports import FeedItem, Landmark, LandmarkQuery, Part
from ..common.bookmark_rows import checked_part, read_landmark
from .append import to_record
from .connection import Connection
from .sql import Q

T = TypeVar("T")


class Finding:
    """The part of the store that finds events and states by name instead of by range."""

    async def _do(self, work: Callable[[Connection], T]) -> T:
        raise NotImplementedError

    async def pick(self, workspace: str, session: str, positions: Sequence[int]) -> list[FeedItem]:
        def work(connection: Connection) -> list[FeedItem]:
            rows = connection.execute(Q.pick_events, (workspace, session, list(positions)), binary=True)
            return [FeedItem(0, session, previous, to_record(tuple(rest))) for previous, *rest in rows]

        return await self._do(work)

    async def talk(self, workspace: str, session: str, first: int, last: int, limit: int) -> list[int]:
        values = (workspace, session, first, last, limit)
        return await self._do(lambda connection: [row[0] for row in connection.execute(Q.read_talk, values)])

    async def landmarks(self, workspace: str, session: str, query: LandmarkQuery) -> list[Landmark]:
        place = (workspace, session)
        values = {"workspace": workspace, "session": session, **query._asdict()}

        def work(connection: Connection) -> list[Landmark]:
            chosen = Q.read_attached if query.name.startswith("+") else Q.read_landmarks
            rows = connection.execute(chosen, values, binary=True)
            return [read_landmark(place, row) for row in rows]

        return await self._do(work)

    async def landmark_names(self, workspace: str, session: str, prefix: str) -> list[str]:
        values = (workspace, session, prefix)
        return await self._do(lambda connection: [row[0] for row in connection.execute(Q.landmark_names, values)])

    async def strand_end(self, workspace: str, session: str, strand: int) -> int:
        def work(connection: Connection) -> int:
            found = connection.execute(Q.strand_end, (workspace, session, strand)).fetchone()
            return found[0] if found else 0

        return await self._do(work)

    async def expired(self, workspace: str, prefix: str, now: int, limit: int) -> list[tuple[str, Landmark]]:
        def work(connection: Connection) -> list[tuple[str, Landmark]]:
            rows = connection.execute(Q.expired_landmarks, (workspace, prefix, now, limit), binary=True)
            return [(session, read_landmark((workspace, session), row)) for session, *row in rows]

        return await self._do(work)

    async def parts(self, workspace: str, session: str, strand: int, first: int, last: int) -> list[Part]:
        asked = {"workspace": workspace, "session": session, "strand": strand, "first": first, "last": last}
        place = (workspace, session)
        return await self._do(
            lambda connection: [
                checked_part(place, row) for row in connection.execute(Q.read_parts, asked, binary=True)
            ]
        )
