"""Caches the indexes of audiences in memory and updates them with the store's changes.

When the cache is full, it drops the vectors of the least recently used indexes first, then whole indexes. Both can be
read again from the store.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ...errors import EmbedderFailed
from ...journal.journal import Journal
from ...ports import Change, MemoryRow
from ..catalog.texts import MemoryTexts
from . import segment_format
from .audience_index import AudienceIndex, IndexedMemory
from .index_codec import IndexCodec
from .index_entry import Vector
from .workspace_embedder import WorkspaceEmbedder

EXACT_LIMIT = 100_000
"""Up to this many memories, all are ranked. Above it, candidates are chosen first."""
CACHE_BYTES = 512 * 2**20
"""How many bytes all indexes together may take."""
_PAGE = 5_000
_CENTER_SAMPLE = 100
"""The center of the vectors is computed from at most this many memories in each of at most this many audiences."""


class IndexCache:
    """Loads and caches indexes. A caller that reads an index holds `lock`."""

    def __init__(self, journal: Journal, texts: MemoryTexts, codec: IndexCodec, embedder: WorkspaceEmbedder) -> None:
        self._journal = journal
        self._texts = texts
        self._codec = codec
        self._embedder = embedder
        self.exact_limit = EXACT_LIMIT
        self._grown = False
        """Whether an index grew since the last check for eviction."""
        self._centers: dict[int, Vector] = {}
        self._audiences: OrderedDict[tuple[bytes | None, int], AudienceIndex] = OrderedDict()
        """Indexes by audience and generation. The audience None is the combined index of all audiences."""
        self.lock = threading.RLock()

    def clear(self) -> None:
        """Drop every index, because a subject was erased or the vectors changed."""
        with self.lock:
            self._audiences.clear()

    def count_recall(self, row: MemoryRow, generation: int) -> None:
        """Count a recall of a memory."""
        for name in (row.audience, None):
            audience = self._audiences.get((name, generation))
            if audience is not None:
                audience.count_recall(row.number)

    async def without_vectors(self, audiences: tuple[bytes, ...] | None) -> list[AudienceIndex]:
        """Current indexes, with or without vectors."""
        return [audience for _, audience in await self.current(audiences, await self._generation())]

    async def with_vectors(self, audiences: tuple[bytes, ...] | None) -> list[AudienceIndex]:
        """Current indexes with the vectors that the store has."""
        return await self.exact(audiences, await self._generation())

    async def _generation(self) -> int:
        try:
            return await self._embedder.generation()
        except EmbedderFailed:
            return 0

    async def exact(self, wanted: tuple[bytes, ...] | None, generation: int) -> list[AudienceIndex]:
        """Current indexes of a generation with their vectors."""
        found = await self.current(wanted, generation)
        for name, audience in found:
            while not audience.exact:
                seen, read = audience.seen.get(name), await self.vectors(name, audience, generation)
                with self.lock:
                    if audience.seen.get(name) == seen:
                        audience.set_vectors(*read)
                        self._grown = True
        self._evict()
        return [audience for _, audience in found]

    async def ensure_codes(self, name: bytes, audience: AudienceIndex, generation: int) -> None:
        """Make codes for an index, unless it has some."""
        center = await self._center([name], generation) if audience.center is None else None
        while audience.center is None and center is not None:
            seen, read = audience.seen.get(name), await self.vectors(name, audience, generation)
            with self.lock:
                if audience.seen.get(name) == seen:
                    audience.set_codes(center, *read)
                    self._grown = True

    async def current(self, wanted: tuple[bytes, ...] | None, generation: int) -> list[tuple[bytes, AudienceIndex]]:
        """Current indexes of a generation, each with its audience."""
        counted = await self._journal.store.audience_changes(self._journal.workspace, wanted)
        with self.lock:
            unread = any((name, generation) not in self._audiences for name in counted)
        center = await self._center_of(counted, generation) if unread and self._is_large(counted) else None
        found = []
        for name in sorted(counted):
            with self.lock:
                known = self._audiences.get((name, generation))
            if known is None:
                known = await self._load(name, generation, center)
                known = self._add(name, generation, known)
            self._mark_used(name, generation)
            await self._catch_up(name, known, generation, counted[name])
            found.append((name, known))
        self._evict()
        return found

    async def combined(self, generation: int) -> AudienceIndex | None:
        """One current index of all audiences, with codes; None if there are too few memories for codes. It exists
        because with many audiences, the work per audience would take longer than the search."""
        counted = await self._journal.store.audience_changes(self._journal.workspace, None)
        if not self._is_large(counted):
            return None
        with self.lock:
            known = self._audiences.get((None, generation))
        if known is None or not known.seen.keys() <= counted.keys():
            made = await self._load_combined(sorted(counted), generation, await self._center_of(counted, generation))
            with self.lock:
                self._audiences.pop((None, generation), None)
            known = self._add(None, generation, made)
        self._mark_used(None, generation)
        for name, count in counted.items():
            if known.seen.get(name, 0) < count:
                await self._catch_up(name, known, generation, count)
        self._evict()
        return known

    def _is_large(self, counted: Mapping[bytes, int]) -> bool:
        # Every memory changes when it is stored, and again when it gets its vector.
        return sum(counted.values()) > 2 * self.exact_limit

    def _add(self, name: bytes | None, generation: int, audience: AudienceIndex) -> AudienceIndex:
        """Add a loaded index. Returns it, or the one that another thread added first."""
        with self.lock:
            self._grown = True
            return self._audiences.setdefault((name, generation), audience)

    def _mark_used(self, name: bytes | None, generation: int) -> None:
        with self.lock:
            if (name, generation) in self._audiences:
                self._audiences.move_to_end((name, generation))

    async def _load_combined(self, names: Sequence[bytes], generation: int, center: Vector | None) -> AudienceIndex:
        whole = AudienceIndex(self._embedder.dims if generation else 0, exact=False, center=center, several=True)
        for name in names:
            if await self._load_segments(name, whole, generation):
                whole.add_vectors(*await self.vectors(name, whole, generation))
        return whole

    async def _load(self, name: bytes, generation: int, center: Vector | None) -> AudienceIndex:
        """A new index, loaded from the segments of an audience; an empty one if there are none."""
        audience = AudienceIndex(self._embedder.dims if generation else 0, exact=False)
        if await self._load_segments(name, audience, generation):
            return audience
        return AudienceIndex(audience.dims, exact=center is None, center=center)

    async def _load_segments(self, name: bytes, audience: AudienceIndex, generation: int) -> bool:
        """Load the segments of an audience, and the changes in the gaps between them. Returns whether it has
        segments."""
        store, workspace = self._journal.store, self._journal.workspace
        segments = await store.segments(workspace, name, generation) if generation else []
        for segment in segments:
            await self._fill_gap(name, audience, generation, segment.after)
            body = await self._codec.open_segment(name, generation, segment)
            if body is not None and audience.seen.get(name, 0) == segment.after:
                with suppress(ValueError, IndexError):  # a damaged segment is skipped: its changes are read instead
                    segment_format.load_segment(audience, body, name)
                    audience.seen[name] = segment.upto
        if segments:
            audience.set_recall_counts(await store.recalls(workspace, name))
        return bool(segments)

    async def _center_of(self, counted: Mapping[bytes, int], generation: int) -> Vector | None:
        largest = sorted(counted, key=lambda name: counted[name])[-_CENTER_SAMPLE:]
        return await self._center(largest, generation) if generation else None

    async def _center(self, names: Sequence[bytes], generation: int) -> Vector:
        """The mean of some vectors. Without it, codes would be too coarse for an embedder whose vectors are not spread
        around zero. A generation has one center, so that codes of different indexes can be compared."""
        found = self._centers.get(generation)
        if found is None:
            some: list[Vector] = []
            for name in names:
                changes = await self._journal.store.changes(
                    self._journal.workspace, name, generation, 0, _CENTER_SAMPLE
                )
                opened = await self._codec.open_entries(changes, self._embedder.dims, generation)
                some += [entry.vector for entry in opened.values() if entry.vector is not None]
            found = np.mean(some, axis=0, dtype=np.float32) if some else np.zeros(self._embedder.dims, np.float32)
            if len(some) >= _CENTER_SAMPLE:
                found = self._centers.setdefault(generation, found)
        return found

    async def _catch_up(self, name: bytes, audience: AudienceIndex, generation: int, count: int) -> None:
        """Apply the changes of an audience, at least up to a change count."""
        while (seen := audience.seen.get(name, 0)) < count:
            changes = await self._journal.store.changes(self._journal.workspace, name, generation, seen, _PAGE)
            opened = await self._codec.current_entries(changes, self._embedder.dims, generation)
            with self.lock:
                if audience.seen.get(name, 0) == seen:
                    _apply_changes(name, audience, changes, opened)
                    self._grown = True
            if not changes:
                break  # the change is not visible yet: the next search reads it

    async def _fill_gap(self, name: bytes, audience: AudienceIndex, generation: int, count: int) -> None:
        """Apply the changes of an audience up to a count, where the next segment begins. A row that changed again after
        that count is read later."""
        while (seen := audience.seen.get(name, 0)) < count:
            changes = await self._journal.store.changes(self._journal.workspace, name, generation, seen, _PAGE)
            until = [change for change in changes if change.row.changed <= count]
            _apply_changes(
                name, audience, until, await self._codec.current_entries(until, self._embedder.dims, generation)
            )
            if len(until) < _PAGE:
                audience.seen[name] = count

    async def vectors(
        self, name: bytes | None, audience: AudienceIndex, generation: int, numbers: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], Vector]:
        """The stored vectors of an audience, or of the memories with these `numbers`: their numbers, and a row for
        each. If `name` is None, of all audiences."""
        wanted = None if numbers is None else numbers.tolist()
        store, workspace = self._journal.store, self._journal.workspace
        kept = await store.index_entries(workspace, name, generation, wanted) if audience.dims else []
        return await self._codec.open_vectors(kept, audience.dims, generation)

    def _evict(self) -> None:
        with self.lock:
            if not self._grown:
                return
            self._grown = False
            kept = sum(audience.held_bytes + audience.vector_bytes for audience in self._audiences.values())
            for audience in list(self._audiences.values())[:-1]:
                if kept > CACHE_BYTES:
                    kept -= audience.vector_bytes
                    audience.drop_vectors()
            while kept > CACHE_BYTES and len(self._audiences) > 1:
                kept -= self._audiences.popitem(last=False)[1].held_bytes

    async def as_of(self, wanted: tuple[bytes, ...] | None, time: int, generation: int) -> list[AudienceIndex]:
        """Indexes of what was known at a time. They are made for one search and not cached."""
        store, workspace = self._journal.store, self._journal.workspace
        counted = await store.audience_changes(workspace, wanted)
        found = []
        for name in sorted(counted):
            audience = AudienceIndex(self._embedder.dims if generation else 0)
            after = 0
            while changes := await store.changes(workspace, name, generation, after, _PAGE):
                after = changes[-1].row.changed
                then = await self._changes_as_of(changes, time)
                _apply_changes(
                    name, audience, then, await self._codec.current_entries(then, self._embedder.dims, generation)
                )
            found.append(audience)
        return found

    async def _changes_as_of(self, changes: Sequence[Change], time: int) -> list[Change]:
        """Changes with their rows as known at a time. A row that was not known then is closed. If a row was ended after
        that time, its end is the one that its own event states."""
        ended = [one.row for one in changes if one.row.closed is not None and one.row.ends is not None]
        said = await self._texts.event_data(
            [row for row in ended if row.id and row.recorded <= time < (row.closed or 0)]
        )
        found = []
        for change in changes:
            row = change.row
            if row.recorded > time or (row.closed is not None and row.closed <= time):
                row = row._replace(closed=row.recorded)
            else:
                ends = said[row.number].get("valid_to") if row.number in said else row.ends
                row = row._replace(closed=None, successor=None, ends=ends)
            found.append(change._replace(row=row))
        return found


def _apply_changes(
    name: bytes, audience: AudienceIndex, changes: Sequence[Change], opened: dict[int, IndexedMemory]
) -> None:
    for change in changes:
        if change.row.number not in opened:
            audience.drop(change.row.number)
    audience.put_all(list(opened.values()))
    if changes:
        audience.seen[name] = max(audience.seen.get(name, 0), changes[-1].row.changed)
