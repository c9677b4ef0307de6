"""Reads the conversation of a session, including events of the sessions that it was forked from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...errors import JournalDamaged
from ...journal.events import Event
from ...journal.journal import Journal
from ...journal.reader import Segment


class ConversationReader:
    """Finds and reads the conversation events of sessions."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def places(self, session: str, first: int, last: int, limit: int | None = None) -> list[int]:
        """The positions of the conversation events from `first` to `last`, in order. With a `limit`, the newest."""
        found: list[int] = []
        for origin, low, high in reversed(await self._stretches(session, last)):
            low, high = max(low, first), min(high, last)
            if low <= high and (limit is None or len(found) < limit):
                most = 10**9 if limit is None else limit - len(found)
                found += await self._journal.store.talk(self._journal.workspace, origin, low, high, most)
        found.reverse()
        return found

    async def events(self, session: str, places: Sequence[int]) -> list[Event]:
        """The events at these positions, in order. Each is verified. Raises `JournalDamaged`."""
        if not places:
            return []
        found: list[Event] = []
        for origin, low, high in await self._stretches(session, max(places)):
            here = [place for place in places if low <= place <= high]
            if here:
                found += await self._journal.bookmarks.events(origin, here)
        return found

    async def readable(self, session: str, places: Sequence[int]) -> list[Event]:
        """Like `events`, but skips damaged events. For information that is useful but not required."""
        try:
            return await self.events(session, places)
        except JournalDamaged:
            found: list[Event] = []
            for place in places:
                with suppress(JournalDamaged):
                    found += await self.events(session, [place])
            return found

    async def _stretches(self, session: str, last: int) -> list[Segment]:
        shared = await self._journal.reader.lineage(session)
        return [*shared, Segment(session, shared[-1].last + 1 if shared else 1, last)]
