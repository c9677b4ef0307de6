"""Search the memories of a workspace: audiences kept in memory and brought up to date by what changed, ranked, and the
best of them read again from the store, so that nothing is given that was forgotten meanwhile."""

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
from .selection import ActiveSearch, CandidateSource, SearchRequest, Selection, chosen_of

_NO_VECTORS = "meaning: there is no embedder, or it has made no vectors here"


class Search:
    """Finds memories."""

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

    def forget(self) -> None:
        """Read everything anew: somebody was erased."""
        for source in self._sources:
            source.forget()
        self.index_cache.clear()

    async def find(self, wanted: SearchRequest) -> Recalled:
        """The best memories for a query. Raises `EmbedderMismatch`; without an embedder words alone are searched."""
        now = self._journal.clock.now()
        missing: tuple[str, ...] = (_NO_VECTORS,)
        question = Question.read(wanted.query, day_of(now if wanted.at is None else wanted.at))
        asked = ActiveSearch(wanted, question, None, 0, now)
        try:
            generation = await self._embedder.generation()
            if generation:
                waiting = await self._index_worker.count_waiting(generation)
                asked, missing = asked._replace(generation=generation, waiting=waiting), ()
                ahead = self._sources[0].ahead(asked)
                vector = await self._embedder.embed_question(wanted.query, ahead)
                asked = asked._replace(vector=vector, ahead=ahead)
        except EmbedderMismatch:
            raise
        except EmbedderFailed as failure:
            missing = (f"meaning: {failure}",)
        ranked = await self._ranked(asked)
        hits = await self._read(ranked, wanted)
        self._index_worker.start()
        if wanted.at is None:
            self._note(hits, asked.generation, now)
        return Recalled(tuple(hit for _, hit in hits), asked.waiting, missing)

    def _note(self, hits: Sequence[tuple[MemoryRow, Hit]], generation: int, now: int) -> None:
        """These were recalled."""
        self._index_worker.add_recalls([row.number for row, _ in hits], now)
        with self._lock:
            for row, _ in hits:
                self.index_cache.count_recall(row, generation)

    async def with_metadata(self, metadata: Mapping[str, Any], audiences: tuple[bytes, ...], kind: str) -> list[Memory]:
        """All current memories of a kind that have these values, oldest first, whatever they say."""
        wanted = SearchRequest("", audiences, kinds=frozenset([kind]), metadata=metadata)
        held, now = await self.index_cache.without_vectors(audiences), self._journal.clock.now()
        with self._lock:
            numbers = [
                number
                for audience in held
                for number in audience.column("number")[chosen_of(audience, wanted, now)].tolist()
            ]
        return await self.read(sorted(numbers))

    async def mentioning(self, name: str, audiences: tuple[bytes, ...] | None) -> list[int]:
        """The numbers of the current memories that have all words of a name, the newest first."""
        wanted = SearchRequest(name, audiences)
        held, now = await self.index_cache.without_vectors(audiences), self._journal.clock.now()
        found: list[tuple[int, int]] = []
        with self._lock:
            for audience in held:
                chosen = chosen_of(audience, wanted, now)
                for term in terms(name):
                    having = np.zeros(audience.size, dtype=bool)
                    posted = audience.postings(number_of(term))
                    if posted is not None:
                        having[posted[0]] = True
                    chosen &= having
                found += zip(
                    audience.column("begins")[chosen].tolist(), audience.column("number")[chosen].tolist(), strict=True
                )
        return [number for _, number in sorted(found, reverse=True)]

    async def read(self, numbers: Sequence[int]) -> list[Memory]:
        """Memories by their numbers, in that order; without those that are not current any more."""
        query = MemoryQuery(numbers=tuple(numbers), limit=len(numbers) or 1)
        rows = await self._journal.store.memories(self._journal.workspace, query) if numbers else []
        at = {number: place for place, number in enumerate(numbers)}
        return await self._texts.memories(sorted(rows, key=lambda row: at[row.number]))

    # -- ranking

    async def _ranked(self, asked: ActiveSearch) -> Ranked:
        """What is searched, ranked. This is the one place where it is decided what that is: the candidates that a
        source chose where there is much, else everything in the audiences."""
        wanted, generation = asked.wanted, asked.generation
        if wanted.at is not None:
            selection = Selection(await self.index_cache.as_of(wanted.audiences, wanted.at, generation))
        else:
            selection = await self._candidates(asked) or Selection(
                await self.index_cache.exact(wanted.audiences, generation)
            )
        return await run_blocking(lambda: self._rank(asked, selection))

    async def _candidates(self, asked: ActiveSearch) -> Selection | None:
        """What the first source gives that can tell; None if everything is ranked."""
        for source in self._sources:
            selection = await source.candidates(asked)
            if selection is not None:
                return selection
        return None

    def _rank(self, asked: ActiveSearch, selection: Selection) -> Ranked:
        with self._lock:
            audiences, chosen, measures, cosines = selection
            if chosen is None:
                chosen = [chosen_of(audience, asked.wanted, asked.now) for audience in audiences]
            return rank(asked.question, audiences, chosen, asked.vector, asked.wanted.weights, measures, cosines)

    async def _read(self, ranked: Ranked, wanted: SearchRequest) -> list[tuple[MemoryRow, Hit]]:
        """The best as the store has them now; what is gone by now makes room for the next."""
        with self._lock:
            order = ranked.best(wanted.limit * 5 if wanted.diversity else wanted.limit + 5, wanted.threshold)
            if wanted.diversity:
                order = ranked.spread(order, wanted.limit * 2, wanted.diversity)
            numbers = [ranked.number(index) for index in order]
        hits: list[tuple[MemoryRow, Hit]] = []
        while order and len(hits) < wanted.limit:
            room = wanted.limit - len(hits)
            memories = await self._memories(numbers[:room], wanted.at is not None)
            for index, number in zip(order[:room], numbers[:room], strict=True):
                if number in memories:
                    row, memory = memories[number]
                    score, likeness = float(ranked.scores[index]), float(ranked.likeness[index])
                    hits.append((row, Hit(memory, score, likeness, ranked.explain(index))))
            order, numbers = order[room:], numbers[room:]
        return hits

    async def _memories(self, numbers: Sequence[int], history: bool) -> dict[int, tuple[MemoryRow, Memory]]:
        """Memories by number, without those that were forgotten or erased."""
        query = MemoryQuery(numbers=tuple(numbers), history=history, limit=len(numbers))
        rows = await self._journal.store.memories(self._journal.workspace, query)
        read = {(one.id, one.source): one for one in await self._texts.memories(rows)}
        found = ((row, read.get((row.id, f"{row.session}#{row.position}"))) for row in rows)
        return {row.number: (row, memory) for row, memory in found if memory is not None}
