"""Reads the texts of memories, which are stored in their events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...errors import JournalDamaged
from ...journal.events import Event
from ...journal.journal import Journal
from ...ports import MemoryRow
from .memory_event import ADDED
from .records import Memory, memory_of


class MemoryTexts:
    """Reads the texts of memories."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def event_data(self, rows: Sequence[MemoryRow]) -> dict[int, Mapping[str, Any]]:
        """The event data of memories, by number. Forgotten, erased and damaged ones are left out."""
        by_session: dict[str, dict[int, list[int]]] = {}
        for row in rows:
            by_session.setdefault(row.session, {}).setdefault(row.position, []).append(row.number)
        found: dict[int, Mapping[str, Any]] = {}
        for session, numbers in by_session.items():
            for event in await self._readable(session, sorted(numbers)):
                if event.type == ADDED and isinstance(event.data, dict):
                    found.update((number, event.data) for number in numbers[event.position])
        return found

    async def _readable(self, session: str, positions: Sequence[int]) -> list[Event]:
        """The events at these positions. A damaged one is left out and does not hide the others."""
        try:
            return await self._journal.bookmarks.events(session, positions)
        except JournalDamaged:
            found: list[Event] = []
            for position in positions:
                with suppress(JournalDamaged):
                    found += await self._journal.bookmarks.events(session, [position])
            return found

    async def memories(self, rows: Sequence[MemoryRow]) -> list[Memory]:
        """The memories of rows, in the same order. Forgotten, erased and damaged ones are left out."""
        texts = await self.event_data(rows)
        found = []
        for row in rows:
            owner = await self._journal.bookmarks.owner_of(row.owner)
            if row.number in texts and owner is not None and row.intact:
                found.append(memory_of(row, texts[row.number], owner.name))
        return found
