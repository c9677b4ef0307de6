"""Looks up the stored memories that have files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...journal.journal import Journal
from ...memory.catalog.catalog import HOME
from ...memory.catalog.memory_event import memory_data, memory_row
from ...memory.memory_service import MemoryService
from ...ports import MemoryQuery, MemoryRow
from .memory_mapping import FILE, MemoryInput, StoredMemory, path_of


class KnownMemories:
    """Looks up memories with their texts and subjects."""

    def __init__(self, journal: Journal, service: MemoryService) -> None:
        self._journal = journal
        self._service = service

    async def of(self, rows: Sequence[MemoryRow]) -> list[StoredMemory]:
        """The rows with their texts and subjects. Memories of single sessions, and forgotten, erased or damaged ones
        are left out."""
        rows = [row for row in rows if row.intact and row.audience[:1] != b"t"]
        texts: Mapping[int, Mapping[str, Any]] = await self._service.texts.event_data(rows)
        found = []
        for row in rows:
            owner = await self._journal.bookmarks.owner_of(row.owner)
            if row.number in texts and owner is not None:
                found.append(StoredMemory(row, texts[row.number], owner.name))
        return found

    async def versions(self, id: str) -> list[StoredMemory]:
        """All versions of a memory, unless it belongs to a single session."""
        if not id or "\0" in id or not id.isascii():
            return []
        return await self.of(await self._rows(MemoryQuery(id=id, history=True)))

    async def numbered(self, numbers: Iterable[int]) -> list[StoredMemory]:
        """The current memories with these numbers."""
        wanted = tuple(sorted(numbers))
        if not wanted:
            return []
        rows = await self._rows(MemoryQuery(numbers=wanted, limit=len(wanted)))
        return [one for one in await self.of(rows) if one.row.closed is None]

    async def source(self, id: str | None) -> str | None:
        """The event of a current memory, as "session#position". None if there is none."""
        found = [one.row for one in await self.versions(id or "") if one.row.closed is None]
        return f"{found[-1].session}#{found[-1].position}" if found else None

    async def actors(self, known: Iterable[StoredMemory]) -> dict[int, str]:
        """The actor of each memory, by number."""
        by_session: dict[str, list[MemoryRow]] = {}
        for one in known:
            by_session.setdefault(one.row.session, []).append(one.row)
        found: dict[int, str] = {}
        for session, rows in by_session.items():
            events = await self._journal.bookmarks.events(session, sorted({row.position for row in rows}))
            said = {event.position: event.actor for event in events}
            found |= {row.number: said.get(row.position) or "duramen" for row in rows}
        return found

    async def identity(self, said: MemoryInput) -> str | None:
        """The id that a memory with this content has. None for a procedure, which is identified by its name."""
        if (said.steps and said.name) or not said.content.strip():
            return None
        owner = await self._journal.owner(said.subject)
        return memory_row(HOME, 0, memory_data(said.content, said.kind, said.details), owner).id

    async def filed_at(self, path: str, said: MemoryInput) -> str | None:
        """The id of a current memory with this content and this path. It exists if an interrupted sync stored it."""
        id = await self.identity(said)
        if said.steps and said.name:
            found = await self._service.procedures.get(said.name, subject=said.subject)
            id = found.memory.id if found is not None and found.steps == said.steps else None
        for one in await self.versions(id or ""):
            named = one.metadata.get(FILE) == path.rpartition("/")[2]
            if one.row.closed is None and named and path_of(one, self._journal.workspace) == path:
                return one.row.id
        return None

    async def has_owner(self, ref: str) -> bool:
        """Whether the subject with this reference still exists."""
        return await self._journal.bookmarks.owner_of(bytes.fromhex(ref)) is not None

    async def _rows(self, query: MemoryQuery) -> list[MemoryRow]:
        return await self._journal.store.memories(self._journal.workspace, query)
