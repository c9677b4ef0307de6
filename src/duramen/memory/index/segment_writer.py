"""Segments made in the background: changes of a pool that came to rest, packed together, so that a process that begins
reads them at once. A kill loses nothing but the segment under way."""

from __future__ import annotations

from collections.abc import Sequence

from ...crash_points import reach
from ...journal.journal import Journal
from ..catalog.texts import Texts
from .workspace_embedder import Embedding

LEAST = 512
"""Changes that are packed together at least, if nothing stands behind them yet."""
MOST = 4_096
Span = tuple[int, int]


class Segmenting:
    """Packs the pools of a workspace."""

    def __init__(self, journal: Journal, texts: Texts, embedding: Embedding) -> None:
        self._journal = journal
        self._texts = texts
        self._embedding = embedding
        self._looked: dict[tuple[bytes, int], int] = {}
        """The count of each pool when it was last looked at."""

    async def once(self, generation: int) -> None:
        """Pack whatever can be packed."""
        store, workspace = self._journal.store, self._journal.workspace
        counted = await store.pool_changes(workspace, None)
        moved = {pool: count for pool, count in counted.items() if self._may_have(pool, generation, count)}
        if not moved:
            return
        spans: dict[bytes, list[Span]] = {}
        for pool, after, upto in await store.segment_spans(workspace, generation):
            spans.setdefault(pool, []).append((after, upto))
        for pool, count in moved.items():
            if not _is_packed(spans.get(pool, []), count):
                await self._pack(pool, generation, spans.get(pool, []))
            self._looked[pool, generation] = count

    def _may_have(self, pool: bytes, generation: int, count: int) -> bool:
        looked = self._looked.get((pool, generation))
        return count >= LEAST if looked is None else count - looked >= LEAST

    async def _pack(self, pool: bytes, generation: int, spans: Sequence[Span]) -> None:
        """Fill the first gap between the segments of a pool, and the one behind them."""
        begin = 0
        for after, upto in spans:
            if begin < after and await self._fill(pool, generation, begin, after) < after:
                return
            begin = upto
        if spans and spans[-1][1] - spans[-1][0] < MOST and await self._counted(pool) - begin >= LEAST:
            begin = spans[-1][0]  # a small one is packed again, with what came after it
        await self._fill(pool, generation, begin, None)

    async def _counted(self, pool: bytes) -> int:
        return (await self._journal.store.pool_changes(self._journal.workspace, [pool])).get(pool, 0)

    async def _fill(self, pool: bytes, generation: int, begin: int, end: int | None) -> int:
        """Pack changes from one count up to another, or as far as they go; up to which it was done."""
        store, workspace = self._journal.store, self._journal.workspace
        while end is None or begin < end:
            seen = await self._counted(pool)
            changes = await store.changes(workspace, pool, generation, begin, MOST)
            inside = [one for one in changes if end is None or one.row.changed <= end]
            if end is None and len(inside) < LEAST:
                return begin
            upto = end if end is not None and len(inside) < MOST else inside[-1].row.changed
            entries = await self._texts.entries(inside, self._embedding.dims, generation)
            gone = [one.row.number for one in inside if one.row.number not in entries]
            segment = await self._texts.segment(pool, generation, (begin, upto), list(entries.values()), gone)
            reach("memory.packing")
            if segment is None or not await store.put_segment(workspace, pool, generation, segment, seen):
                return begin
            reach("memory.packed")
            begin = upto
        return begin


def _is_packed(spans: Sequence[Span], count: int) -> bool:
    """Whether segments leave nothing to pack of so many changes. Mostly so where a process begins: it need not read the
    changes of each pool to find that out."""
    begin = 0
    for after, upto in spans:
        if after > begin:
            return False
        begin = upto
    return count - begin < LEAST
