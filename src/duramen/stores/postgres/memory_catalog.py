"""Reads of memories, and writes of what belongs to them without an append: index entries, recalls, generations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ports import Change, Generation, IndexEntry, MemoryQuery, MemoryRow, StoredIndexEntry
from ..common.memory_rows import with_recalls
from ..common.row_checksum import checksum
from .connection import Connection, Work, execute_planned
from .memories import (
    M,
    Recall,
    activate,
    add_generation,
    note_recalls,
    put_index_entries,
    read_change,
    read_generations,
    read_memory,
)


class MemoryCatalog:
    """Implements `MemoryStore`, except for segments and recall counts, which are in `segments`."""

    def __init__(self, do: Work, write: Work) -> None:
        self._do, self._write = do, write

    async def memories(self, workspace: str, query: MemoryQuery) -> list[MemoryRow]:
        values = {"workspace": workspace, **query._asdict()}
        for name in ("audiences", "kinds", "numbers"):
            values[name] = None if values[name] is None else list(values[name])

        def work(connection: Connection) -> list[MemoryRow]:
            rows = connection.execute(_narrowed(query).encode(), values, binary=True)
            return [with_recalls(read_memory(row), recalled, at) for recalled, at, *row in rows]

        return await self._do(work)

    async def audience_changes(self, workspace: str, audiences: Sequence[bytes] | None) -> dict[bytes, int]:
        def work(connection: Connection) -> dict[bytes, int]:
            if audiences is None:
                return dict(connection.execute(M.list_audiences, (workspace,), binary=True).fetchall())
            return dict(connection.execute(M.some_audiences, (workspace, list(audiences)), binary=True).fetchall())

        return await self._do(work)

    async def changes(self, workspace: str, audience: bytes, generation: int, after: int, limit: int) -> list[Change]:
        asked = {"workspace": workspace, "audience": audience, "generation": generation, "after": after, "limit": limit}

        def work(connection: Connection) -> list[Change]:
            return [read_change(generation, row) for row in connection.execute(M.read_changes, asked, binary=True)]

        return await self._do(work)

    async def unindexed(self, workspace: str, generation: int, limit: int) -> list[MemoryRow]:
        values = {"workspace": workspace, "generation": generation, "limit": limit}

        def work(connection: Connection) -> list[MemoryRow]:
            return [read_memory(row) for row in execute_planned(connection, M.read_unindexed, values)]

        return await self._do(work)

    async def count_unindexed(self, workspace: str, generation: int) -> int:
        values = {"workspace": workspace, "generation": generation}

        def work(connection: Connection) -> int:
            row: Any = execute_planned(connection, M.count_unindexed, values).fetchone()
            return int(row[0])

        return await self._do(work)

    async def put_index_entries(self, workspace: str, generation: int, index_entries: Sequence[IndexEntry]) -> None:
        if index_entries:
            await self._write(lambda connection: put_index_entries(connection, workspace, generation, index_entries))

    async def index_entries(
        self, workspace: str, audience: bytes | None, generation: int, numbers: Sequence[int] | None
    ) -> list[StoredIndexEntry]:
        asked: dict[str, Any] = {"workspace": workspace, "audience": audience, "generation": generation}
        query = M.read_index_entries
        if audience is None or numbers is not None:
            query = M.read_index_entries_anywhere if audience is None else M.read_some_index_entries
            asked["numbers"] = list(numbers or ())

        def work(connection: Connection) -> list[StoredIndexEntry]:
            rows = connection.execute(query, asked, binary=True)
            return [
                StoredIndexEntry(fields[2], id_, owner, fields[4], fields[5], fields[1])
                for id_, owner, check, *fields in rows
                if checksum(*fields) == check
            ]

        return await self._do(work)

    async def note_recalls(self, workspace: str, recalls: Sequence[tuple[int, int, int]]) -> None:
        tried: list[dict[int, Recall]] = []
        if recalls:
            await self._write(lambda connection: note_recalls(connection, workspace, recalls, tried))

    async def generations(self, workspace: str) -> list[Generation]:
        return await self._do(lambda connection: read_generations(connection, M.list_generations, workspace))

    async def add_generation(self, workspace: str, identity: bytes, *, active: bool) -> Generation:
        return await self._write(lambda connection: add_generation(connection, workspace, identity, active))

    async def activate(self, workspace: str, generation: int) -> None:
        await self._write(lambda connection: activate(connection, workspace, generation))


def _narrowed(query: MemoryQuery) -> str:
    """The query with only the conditions that are used, because PostgreSQL plans each query text once for all
    values."""
    asked = (
        (query.audiences, M.by_audience),
        (query.id, M.by_id),
        (query.key, M.by_key),
        (query.kinds, M.by_kind),
        (query.numbers, M.by_number),
    )
    chosen = [condition for value, condition in asked if value is not None]
    if not query.history:
        chosen.append(M.only_current if query.at is None else M.known_at)
    read: str = M.read_memories
    return read.replace("CONDITIONS", " AND ".join(chosen) or "true")
