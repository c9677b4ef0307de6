"""Searches the memories of a workspace.

It ranks the indexes in memory, or candidates from the store. It reads the best memories from the store again before it
returns them, so that it never returns a forgotten memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import EmbedderFailed, EmbedderMismatch
from ...journal.journal import Journal
from ...ports import MemoryQuery, MemoryRow
from ...runtime import run_blocking
from ..catalog.records import Hit, Memory, Recalled
from ..catalog.texts import MemoryTexts
from ..extraction.words import number_of, terms
from ..index.index_cache import IndexCache
from ..index.index_entry import day_of
from ..index.index_worker import IndexWorker
from ..index.workspace_embedder import WorkspaceEmbedder
from .rank import Question, Ranked, rank
from .selection import ActiveSearch, CandidateSource, SearchRequest, Selection, filter_mask

_NO_VECTORS = "meaning: there is no embedder, or it has made no vectors yet"


class Search:
    """Finds memories. Decides what is ranked, and which source chooses the candidates."""

    def __init__(
        self,
        journal: Journal,
        texts: MemoryTexts,
        embedder: WorkspaceEmbedder,
        index_worker: IndexWorker,
        index_cache: IndexCache,
        sources: Sequence[CandidateSource],
    ) -> None:
        self._journal = journal
        self._texts = texts
        self._embedder = embedder
        self._index_worker = index_worker
        self.index_cache = index_cache
        self._lock = index_cache.lock
        self._sources = sources

    def clear(self) -> None:
        """Drop all caches, because a subject was erased or the vectors changed."""
        for source in self._sources:
            source.clear()
        self.index_cache.clear()

    async def find(self, request: SearchRequest) -> Recalled:
        """The best memories for a request. If the embedder is missing or fails, it searches by words only, and
        `missing` says so. Raises `EmbedderMismatch`."""
        now = self._journal.clock.now()
        missing: tuple[str, ...] = (_NO_VECTORS,)
        question = Question.parse(request.query, day_of(now if request.at is None else request.at))
        search = ActiveSearch(request, question, None, 0, now)
        try:
            generation = await self._embedder.generation()
            if generation:
                waiting = await self._index_worker.count_waiting(generation)
                search, missing = search._replace(generation=generation, waiting=waiting), ()
                prefetch = self._sources[0].prefetch(search)
                vector = await self._embedder.embed_question(request.query, prefetch)
                search = search._replace(vector=vector, prefetch=prefetch)
        except EmbedderMismatch:
            raise
        except EmbedderFailed as failure:
            missing = (f"meaning: {failure}",)
        ranked = await self._rank_best(search)
        hits = await self._read(ranked, request)
        self._index_worker.start()
        if request.at is None:
            self._count_recalls(hits, search.generation, now)
        return Recalled(tuple(hit for _, hit in hits), search.waiting, missing)

    def _count_recalls(self, hits: Sequence[tuple[MemoryRow, Hit]], generation: int, now: int) -> None:
        """Count a recall of each hit."""
        self._index_worker.add_recalls([row.number for row, _ in hits], now)
        with self._lock:
            for row, _ in hits:
                self.index_cache.count_recall(row, generation)

    async def with_metadata(self, metadata: Mapping[str, Any], audiences: tuple[bytes, ...], kind: str) -> list[Memory]:
        """All current memories of a kind with these metadata, oldest first."""
        request = SearchRequest("", audiences, kinds=frozenset([kind]), metadata=metadata)
        held, now = await self.index_cache.without_vectors(audiences), self._journal.clock.now()
        with self._lock:
            numbers = [
                number
                for audience in held
                for number in audience.column("number")[filter_mask(audience, request, now)].tolist()
            ]
        return await self.read(sorted(numbers))

    async def mentioning(self, name: str, audiences: tuple[bytes, ...] | None) -> list[int]:
        """The numbers of the current memories that have all words of a name, newest first."""
        request = SearchRequest(name, audiences)
        held, now = await self.index_cache.without_vectors(audiences), self._journal.clock.now()
        found: list[tuple[int, int]] = []
        with self._lock:
            for audience in held:
                chosen = filter_mask(audience, request, now)
                for term in terms(name):
                    has_terms = np.zeros(audience.size, dtype=bool)
                    posted = audience.postings(number_of(term))
                    if posted is not None:
                        has_terms[posted[0]] = True
                    chosen &= has_terms
                found += zip(
                    audience.column("begins")[chosen].tolist(), audience.column("number")[chosen].tolist(), strict=True
                )
        return [number for _, number in sorted(found, reverse=True)]

    async def read(self, numbers: Sequence[int]) -> list[Memory]:
        """Memories by their numbers, in that order. Those that are no longer current are left out."""
        query = MemoryQuery(numbers=tuple(numbers), limit=len(numbers) or 1)
        rows = await self._journal.store.memories(self._journal.workspace, query) if numbers else []
        at = {number: place for place, number in enumerate(numbers)}
        return await self._texts.memories(sorted(rows, key=lambda row: at[row.number]))

    # -- ranking

    async def _rank_best(self, search: ActiveSearch) -> Ranked:
        """Rank the candidates of a source, or everything in the audiences if no source has candidates."""
        request, generation = search.request, search.generation
        if request.at is not None:
            selection = Selection(await self.index_cache.as_of(request.audiences, request.at, generation))
        else:
            selection = await self._candidates(search) or Selection(
                await self.index_cache.exact(request.audiences, generation)
            )
        return await run_blocking(lambda: self._rank(search, selection))

    async def _candidates(self, search: ActiveSearch) -> Selection | None:
        """The candidates of the first source that has any; None if everything must be ranked."""
        for source in self._sources:
            selection = await source.candidates(search)
            if selection is not None:
                return selection
        return None

    def _rank(self, search: ActiveSearch, selection: Selection) -> Ranked:
        with self._lock:
            audiences, chosen, measures, cosines = selection
            if chosen is None:
                chosen = [filter_mask(audience, search.request, search.now) for audience in audiences]
            return rank(search.question, audiences, chosen, search.vector, search.request.weights, measures, cosines)

    async def _read(self, ranked: Ranked, request: SearchRequest) -> list[tuple[MemoryRow, Hit]]:
        """The best memories, read from the store. If one was removed meanwhile, the next best takes its place."""
        with self._lock:
            order = ranked.best(request.limit * 5 if request.diversity else request.limit + 5, request.threshold)
            if request.diversity:
                order = ranked.spread(order, request.limit * 2, request.diversity)
            numbers = [ranked.number(index) for index in order]
        hits: list[tuple[MemoryRow, Hit]] = []
        while order and len(hits) < request.limit:
            room = request.limit - len(hits)
            memories = await self._memories(numbers[:room], request.at is not None)
            for index, number in zip(order[:room], numbers[:room], strict=True):
                if number in memories:
                    row, memory = memories[number]
                    score, likeness = float(ranked.scores[index]), float(ranked.likeness[index])
                    hits.append((row, Hit(memory, score, likeness, ranked.explain(index))))
            order, numbers = order[room:], numbers[room:]
        return hits

    async def _memories(self, numbers: Sequence[int], history: bool) -> dict[int, tuple[MemoryRow, Memory]]:
        """Memories by number. Forgotten and erased ones are left out."""
        query = MemoryQuery(numbers=tuple(numbers), history=history, limit=len(numbers))
        rows = await self._journal.store.memories(self._journal.workspace, query)
        read = {(one.id, one.source): one for one in await self._texts.memories(rows)}
        found = ((row, read.get((row.id, f"{row.session}#{row.position}"))) for row in rows)
        return {row.number: (row, memory) for row, memory in found if memory is not None}
