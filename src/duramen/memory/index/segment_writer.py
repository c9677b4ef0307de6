"""Packs the changes of an audience into segments, so that a new process loads them quickly. A kill loses only the
segment in progress."""

from __future__ import annotations

from collections.abc import Sequence

from ...crash_points import reach
from ...journal.journal import Journal
from .index_codec import IndexCodec
from .workspace_embedder import WorkspaceEmbedder

MIN_CHANGES = 512
"""How many changes a new segment at the end of an audience has at least."""
MAX_CHANGES = 4_096
Span = tuple[int, int]


class SegmentWriter:
    """Writes the segments of a workspace."""

    def __init__(self, journal: Journal, codec: IndexCodec, embedder: WorkspaceEmbedder) -> None:
        self._journal = journal
        self._codec = codec
        self._embedder = embedder
        self._seen_counts: dict[tuple[bytes, int], int] = {}
        """The change count of each audience and generation at the last call of `write_segments`."""

    async def write_segments(self, generation: int) -> None:
        """Write every segment that is due."""
        store, workspace = self._journal.store, self._journal.workspace
        counted = await store.audience_changes(workspace, None)
        moved = {
            audience: count for audience, count in counted.items() if self._has_enough(audience, generation, count)
        }
        if not moved:
            return
        spans: dict[bytes, list[Span]] = {}
        for audience, after, upto in await store.segment_spans(workspace, generation):
            spans.setdefault(audience, []).append((after, upto))
        for audience, count in moved.items():
            if not _is_packed(spans.get(audience, []), count):
                await self._pack(audience, generation, spans.get(audience, []))
            self._seen_counts[audience, generation] = count

    def _has_enough(self, audience: bytes, generation: int, count: int) -> bool:
        looked = self._seen_counts.get((audience, generation))
        return count >= MIN_CHANGES if looked is None else count - looked >= MIN_CHANGES

    async def _pack(self, audience: bytes, generation: int, spans: Sequence[Span]) -> None:
        """Pack the changes in the gaps between the segments of an audience, and those after its last segment."""
        begin = 0
        for after, upto in spans:
            if begin < after and await self._fill(audience, generation, begin, after) < after:
                return
            begin = upto
        if (
            spans
            and spans[-1][1] - spans[-1][0] < MAX_CHANGES
            and await self._change_count(audience) - begin >= MIN_CHANGES
        ):
            begin = spans[-1][0]  # a small last segment is packed again, together with the changes after it
        await self._fill(audience, generation, begin, None)

    async def _change_count(self, audience: bytes) -> int:
        return (await self._journal.store.audience_changes(self._journal.workspace, [audience])).get(audience, 0)

    async def _fill(self, audience: bytes, generation: int, begin: int, end: int | None) -> int:
        """Pack the changes between two counts, or all after the first. Returns the count that was reached."""
        store, workspace = self._journal.store, self._journal.workspace
        while end is None or begin < end:
            seen = await self._change_count(audience)
            changes = await store.changes(workspace, audience, generation, begin, MAX_CHANGES)
            inside = [one for one in changes if end is None or one.row.changed <= end]
            if end is None and len(inside) < MIN_CHANGES:
                return begin
            upto = end if end is not None and len(inside) < MAX_CHANGES else inside[-1].row.changed
            entries = await self._codec.current_entries(inside, self._embedder.dims, generation)
            removed = [one.row.number for one in inside if one.row.number not in entries]
            segment = await self._codec.pack_segment(
                audience, generation, (begin, upto), list(entries.values()), removed
            )
            reach("memory.packing")
            if segment is None or not await store.put_segment(workspace, audience, generation, segment, seen):
                return begin
            reach("memory.packed")
            begin = upto
        return begin


def _is_packed(spans: Sequence[Span], count: int) -> bool:
    """Whether the segments cover enough of `count` changes, so that there is nothing to pack. A new process then need
    not read the changes of the audience."""
    begin = 0
    for after, upto in spans:
        if after > begin:
            return False
        begin = upto
    return count - begin < MIN_CHANGES
