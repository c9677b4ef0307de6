"""Bookmarks of a session, including those of the sessions that it was forked from."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from ..ports import Bookmark, BookmarkQuery, Store
from .chain import payload_digest
from .events import Event
from .owners import NOBODY, Owner, Owners
from .reader import Reader

ATTACHED = "+"
"""The prefix of the names of bookmarks that are attached to another bookmark."""


def attached_to(name: str, id: str) -> str:
    """The name of the bookmarks that are attached to the bookmark with this name and id."""
    return attached_under(name) + _short(id, 12)


def attached_under(name: str) -> str:
    """The prefix of `attached_to` for all bookmarks with this name."""
    return ATTACHED + _short(name, 6)


def _short(text: str, size: int) -> str:
    """A short hash of a text. There are many attached bookmarks, and each name is stored twice."""
    return urlsafe_b64encode(blake2b(text.encode(), digest_size=size).digest()).decode()


class Found(NamedTuple):
    """A bookmark, and the session that set it."""

    session: str
    bookmark: Bookmark


class Bookmarks:
    """The bookmarks of one workspace."""

    def __init__(self, store: Store, workspace: str, reading: Reader, owners: Owners) -> None:
        self._store = store
        self._workspace = workspace
        self._reader = reading
        self._owners = owners

    async def find(self, session: str, query: BookmarkQuery, page: int = 100) -> AsyncGenerator[Found, None]:
        """Yield bookmarks, newest first: the session's own, then those of the events that it shares."""
        stretches = [
            (session, None),
            *((one.session, one.last) for one in reversed(await self._reader.lineage(session))),
        ]
        for origin, last in stretches:
            upto = last if query.upto is None else query.upto if last is None else min(last, query.upto)
            while True:
                asked = query._replace(upto=upto, limit=page)
                rows = await self._store.bookmarks(self._workspace, origin, asked)
                for row in rows:
                    yield Found(origin, row)
                if len(rows) < page or (upto is not None and rows[-1].position > upto):
                    break
                upto = rows[-1].position - 1

    async def newest(
        self, session: str, name: str, *, upto: int | None = None, until: int | None = None
    ) -> Found | None:
        """The newest intact bookmark with this name, at or before the position `upto` and the time `until`."""
        async for found in self.find(session, BookmarkQuery(name, None, upto, until), page=1):
            if found.bookmark.intact:
                return found
        return None

    async def events(self, session: str, positions: Sequence[int]) -> list[Event]:
        """The session's own events at these positions, verified. Positions that do not exist are left out."""
        items = await self._store.pick(self._workspace, session, positions)
        return await self._reader.opened_feed(items)

    async def owner_of(self, ref: bytes | None) -> Owner | None:
        """The owner with this reference, or None if the subject was erased."""
        return NOBODY if ref is None else (await self._owners.load([ref])).get(ref)

    async def digests(self, session: str, positions: Sequence[int]) -> list[tuple[int, bytes]]:
        """The positions and digests of the payloads at these positions. Payloads that were removed are left out."""
        found = []
        for item in await self._store.pick(self._workspace, session, positions):
            owner = await self.owner_of(item.record.subject)
            if item.record.payload is not None and owner is not None:
                found.append((item.record.position, payload_digest(item.record.payload, owner.salt)))
        return found
