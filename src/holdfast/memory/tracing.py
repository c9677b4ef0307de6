"""Traces made of the texts of memories, batch after batch: while the vectors of one are made, the one before it is
stored and the one after it is read."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..crashpoints import reach
from ..errors import EmbedderFailed
from ..journal.journal import Journal
from ..ports import MemoryRow
from ..runtime import meanwhile
from .embedding import Embedding
from .texts import Texts
from .traces import Gist, PackedVector, pack_vectors, said

BATCH = 32
"""Memories that are embedded together at least, if there are so many."""
_LARGEST_BATCH = 2_048
_BATCH_TAKES = 0.5
"""Seconds that a batch should take, at most: a transaction for each few would take longer than the rest, and what is
embedded but not stored is made again after a kill."""
_STRETCH = 2.0
"""Seconds after which no other batch is begun: somebody may wait for the turn."""


@dataclass(slots=True)
class _Batch:
    """Memories on their way from the store and back into it, by number."""

    rows: dict[int, MemoryRow] = field(default_factory=dict)
    texts: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    gists: dict[int, Gist] = field(default_factory=dict)
    vectors: dict[int, PackedVector] = field(default_factory=dict)
    asked: int = 0


class Tracing:
    """Makes the traces that the memories of a workspace are without."""

    def __init__(self, journal: Journal, texts: Texts, embedding: Embedding) -> None:
        self._journal = journal
        self._texts = texts
        self._embedding = embedding
        self._size = BATCH
        self._unreadable: set[int] = set()

    async def some(self, generation: int, is_ending: Callable[[], bool]) -> int:
        """Make traces for a while; how many memories there were, 0 if none is without."""
        until = time.monotonic() + _STRETCH
        batches = self.batches(generation, lambda: is_ending() or time.monotonic() > until)
        return sum([count async for count in batches])

    async def batches(
        self, generation: int, is_ending: Callable[[], bool] = lambda: False
    ) -> AsyncGenerator[int, None]:
        """Make traces, and say of each batch that is stored how many memories it had."""
        before, batch = _Batch(), await self._read(generation)
        while batch.rows:
            began, is_last = time.monotonic(), len(batch.rows) < batch.asked or is_ending()
            beside = self._beside(generation, before, batch, is_last)
            batch.vectors, after = await meanwhile(partial(self._vectors, batch.texts), beside)
            reach("memory.embedded")
            self._size = _next_size(batch.asked, len(batch.rows), time.monotonic() - began)
            if before.rows:
                yield len(before.rows)
            before, batch = batch, after
            if not batch.rows:
                await self._store(generation, before)
                yield len(before.rows)
                # Some may have come meanwhile.
                before, batch = _Batch(), _Batch() if is_ending() else await self._read(generation)

    async def _beside(self, generation: int, before: _Batch, batch: _Batch, is_last: bool) -> _Batch:
        """What is done while the vectors of a batch are made. Gives the batch after it."""
        await self._store(generation, before)
        batch.gists = {number: self._texts.gist(batch.rows[number], text) for number, text in batch.texts.items()}
        return _Batch() if is_last else await self._read(generation, batch.rows)

    async def _read(self, generation: int, taken: Collection[int] = ()) -> _Batch:
        """The next memories without a trace, but for those that are taken already."""
        asked = self._size
        most = asked + len(self._unreadable) + len(taken)
        found = await self._journal.store.untraced(self._journal.workspace, generation, most)
        rows = {row.number: row for row in found if row.number not in self._unreadable and row.number not in taken}
        known = await self._texts.of(list(rows.values()))
        texts = {number: known[number] for number, row in rows.items() if number in known and row.intact}
        # What is damaged must not stand in the way of what comes after it.
        self._unreadable.update(rows.keys() - texts.keys())
        return _Batch(rows, texts, asked=asked)

    async def _store(self, generation: int, batch: _Batch) -> None:
        traces = []
        for number, vector in batch.vectors.items():
            owner = await self._journal.landmarks.owner_of(batch.rows[number].owner)
            if owner is not None:
                traces.append(self._texts.trace(batch.rows[number], batch.gists[number], vector, owner, generation))
        if traces:
            await self._journal.store.put_traces(self._journal.workspace, generation, traces)
            reach("memory.traced")

    def _vectors(self, texts: Mapping[int, Mapping[str, Any]]) -> dict[int, PackedVector]:
        """The vectors of some memories. One that the embedder refuses, as too long for it or otherwise, waits; it must
        not keep all others waiting. Blocks. Raises `EmbedderFailed` if it gives none at all."""
        try:
            return self._embed(texts)
        except EmbedderFailed:
            if len(texts) < 2:
                raise
        newest, found = max(texts), dict[int, PackedVector]()
        for number in sorted(texts, reverse=True):
            try:
                found |= self._embed({number: texts[number]})
            except EmbedderFailed:
                if number == newest:
                    raise  # it is down: each of them would take its time to fail
                self._unreadable.add(number)
        return found

    def _embed(self, texts: Mapping[int, Mapping[str, Any]]) -> dict[int, PackedVector]:
        vectors = self._embedding.embed_now([said(text) for text in texts.values()])
        return {} if vectors is None else dict(zip(texts, pack_vectors(vectors), strict=True))


def _next_size(size: int, had: int, took: float) -> int:
    """How many memories the next batch may have, after one that might have had `size` and took so many seconds."""
    if had < size and took < _BATCH_TAKES:
        return size  # it was quick because there were few
    return max(BATCH, min(int(had * _BATCH_TAKES / max(took, 1e-6)), size * 4, _LARGEST_BATCH))
