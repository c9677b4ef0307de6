"""Makes index entries in batches. While one batch is embedded, the batch before it is stored and the next one is
read."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

from ...crash_points import reach
from ...errors import DuramenError, EmbedderFailed
from ...journal.journal import Journal
from ...ports import MemoryRow
from ...runtime import run_alongside
from ..catalog.texts import MemoryTexts
from .index_codec import IndexCodec
from .index_entry import READ_UPTO, PackedVector, TermStats, embedded_text, pack_vectors, read_term_stats
from .workspace_embedder import WorkspaceEmbedder

BATCH = 32
"""The size of the first batch, and the smallest size of any batch, whatever the length of the texts."""
_LARGEST_BATCH = 2_048
_TARGET_TIME = 0.5
"""Seconds that a batch should take. Smaller batches spend most of their time in transactions. With larger ones, a kill
loses more vectors that are computed but not stored."""
_GROWTH = 16
"""The factor by which a batch may be larger than the one before."""
_BUILD_TIME = 2.0
"""Seconds after which `build_some` starts no new batch: another thread may wait for the lock."""


@dataclass(slots=True)
class _Batch:
    """Memories that are read, embedded and stored together, by number. If it `is_full`, more memories are waiting."""

    rows: dict[int, MemoryRow] = field(default_factory=dict)
    texts: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    stats: dict[int, TermStats] = field(default_factory=dict)
    vectors: dict[int, PackedVector] = field(default_factory=dict)
    is_full: bool = False


class IndexBuilder:
    """Makes the missing index entries of a workspace."""

    def __init__(self, journal: Journal, texts: MemoryTexts, codec: IndexCodec, embedder: WorkspaceEmbedder) -> None:
        self._journal = journal
        self._texts = texts
        self._codec = codec
        self._embedder = embedder
        self._size, self._room = BATCH, 0
        """How many memories a batch may have, and how many characters in total if it has more than `BATCH` memories."""
        self._unreadable: set[int] = set()

    async def build_some(self, generation: int, is_ending: Callable[[], bool]) -> int:
        """Make index entries for about `_BUILD_TIME` seconds. Returns for how many memories; 0 if none was missing."""
        until = time.monotonic() + _BUILD_TIME
        batches = self.build_batches(generation, lambda: is_ending() or time.monotonic() > until)
        return sum([count async for count in batches])

    async def build_batches(
        self, generation: int, is_ending: Callable[[], bool] = lambda: False
    ) -> AsyncGenerator[int, None]:
        """Make all missing index entries. Yields the number of memories of each stored batch. No new batch starts once
        `is_ending` returns True."""
        before, batch = _Batch(), await self._read(generation)
        while batch.rows:
            # The room is 0 until the first batch has shown how long a batch takes.
            began, continues = time.monotonic(), batch.is_full and self._room > 0 and not is_ending()
            meanwhile_work = self._during_embedding(generation, before, batch, continues)
            batch.vectors, after = await run_alongside(partial(self._vectors, batch.texts), meanwhile_work)
            reach("memory.embedded")
            self._adjust_batch_size(batch, time.monotonic() - began)
            if before.rows:
                try:
                    yield len(before.rows)
                except GeneratorExit:
                    with suppress(DuramenError):  # the store may be closed: then the entries are made again later
                        await self._store(generation, batch)  # the embedder may charge for these vectors
                    raise
            before, batch = batch, after
            if not batch.rows:
                await self._store(generation, before)
                yield len(before.rows)
                # New memories may have been stored meanwhile.
                before, batch = _Batch(), _Batch() if is_ending() else await self._read(generation)

    def _adjust_batch_size(self, batch: _Batch, took: float) -> None:
        """Set the size of the next batches, after a batch that took `took` seconds."""
        if batch.is_full or took > _TARGET_TIME:  # a fast batch that is not full says nothing about the speed
            growth = min(_TARGET_TIME / max(took, 1e-6), _GROWTH)
            self._size = max(BATCH, min(int(len(batch.rows) * growth), _LARGEST_BATCH))
            self._room = int(sum(map(_length, batch.texts.values())) * growth)
        batch.texts = {}

    async def _during_embedding(self, generation: int, before: _Batch, batch: _Batch, continues: bool) -> _Batch:
        """While a batch is embedded, store the one before it and read the one after it. Returns the one after it."""
        await self._store(generation, before)
        batch.stats = {number: read_term_stats(text, batch.rows[number].begins) for number, text in batch.texts.items()}
        return await self._read(generation, batch.rows) if continues else _Batch()

    async def _read(self, generation: int, taken: Collection[int] = ()) -> _Batch:
        """The next memories without an index entry, except those in `taken`."""
        size = self._size
        most = size + len(self._unreadable) + len(taken)
        found = await self._journal.store.unindexed(self._journal.workspace, generation, most)
        rows = {row.number: row for row in found if row.number not in self._unreadable and row.number not in taken}
        known = await self._texts.event_data(list(rows.values()))
        texts = {number: known[number] for number, row in rows.items() if number in known and row.intact}
        # A damaged memory must not block later ones.
        self._unreadable.update(rows.keys() - texts.keys())
        lengths = zip(texts, accumulate(map(_length, texts.values())), strict=True)
        too_many = {number for at, (number, upto) in enumerate(lengths) if at >= BATCH and upto > self._room}
        return _Batch(
            {number: row for number, row in rows.items() if number not in too_many},
            {number: text for number, text in texts.items() if number not in too_many},
            is_full=len(rows) >= size or bool(too_many),
        )

    async def _store(self, generation: int, batch: _Batch) -> None:
        index_entries = []
        for number, vector in batch.vectors.items():
            owner = await self._journal.bookmarks.owner_of(batch.rows[number].owner)
            if owner is not None:
                index_entries.append(
                    self._codec.index_entry(batch.rows[number], batch.stats[number], vector, owner, generation)
                )
        if index_entries:
            await self._journal.store.put_index_entries(self._journal.workspace, generation, index_entries)
            reach("memory.indexed")

    def _vectors(self, texts: Mapping[int, Mapping[str, Any]]) -> dict[int, PackedVector]:
        """The vectors of memories, by number. Blocks. A text that the embedder refuses, for example because it is too
        long, is skipped and does not stop the others. Raises `EmbedderFailed` if the embedder seems to be down: it
        refuses the only text, or the first two that are tried separately."""
        try:
            return self._embed(texts)
        except EmbedderFailed:
            if len(texts) < 2:
                raise
        *others, newest = sorted(texts)
        found: dict[int, PackedVector] = {}
        refused = set[int]()
        for number in (newest, *others):
            try:
                found |= self._embed({number: texts[number]})
            except EmbedderFailed:
                refused.add(number)
                if not found and len(refused) > 1:
                    raise  # the embedder seems to be down, and each further try may take long
        self._unreadable |= refused
        return found

    def _embed(self, texts: Mapping[int, Mapping[str, Any]]) -> dict[int, PackedVector]:
        vectors = self._embedder.embed([embedded_text(text) for text in texts.values()])
        return {} if vectors is None else dict(zip(texts, pack_vectors(vectors), strict=True))


def _length(text: Mapping[str, Any]) -> int:
    return min(len(text["content"]), READ_UPTO)
