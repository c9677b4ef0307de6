"""Finding places in a session by name, over the sessions that it was forked from."""

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
"""How the names begin under which lies what is attached to a bookmark."""


def attached_to(name: str, id: str) -> str:
    """The name under which lies what is attached to a bookmark."""
    return attached_under(name) + _short(id, 12)


def attached_under(name: str) -> str:
    """How all those names begin, for the bookmarks under one name."""
    return ATTACHED + _short(name, 6)


def _short(text: str, size: int) -> str:
    """A text of any length by its hash: there are many of these names, and each is stored twice."""
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
        """Bookmarks, newest first: the session's own, then those of the events that it shares."""
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
        """The newest bookmark under a name that is intact, at or before a position or a time."""
        async for found in self.find(session, BookmarkQuery(name, None, upto, until), page=1):
            if found.bookmark.intact:
                return found
        return None

    async def events(self, session: str, positions: Sequence[int]) -> list[Event]:
        """Single events of this very session, each verified; what is missing is left out."""
        items = await self._store.pick(self._workspace, session, positions)
        return await self._reader.opened_feed(items)

    async def owner_of(self, ref: bytes | None) -> Owner | None:
        """The living owner with this reference."""
        return NOBODY if ref is None else (await self._owners.load([ref])).get(ref)

    async def digests(self, session: str, positions: Sequence[int]) -> list[tuple[int, bytes]]:
        """What stands for the payloads at these positions once they are gone; without those that are gone already."""
        found = []
        for item in await self._store.pick(self._workspace, session, positions):
            owner = await self.owner_of(item.record.subject)
            if item.record.payload is not None and owner is not None:
                found.append((item.record.position, payload_digest(item.record.payload, owner.salt)))
        return found
