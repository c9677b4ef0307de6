"""Consolidation: merges memories that say the same in nearly the same words.

The newer memory stays. The older one ends and remains readable as history. Memories that differ in a number, a name or
a negation are never merged.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...journal.events import Draft
from ...journal.journal import Journal
from ...ports import MemoryChanges, MemoryQuery, MemoryRow, Model
from ..catalog.records import Memory
from ..catalog.texts import MemoryTexts
from ..extraction.names import names
from ..extraction.words import STOP_WORDS, terms
from ..index.audience_index import AudienceIndex
from ..index.columns import EPISODE
from ..index.index_worker import IndexWorker
from ..ranking.search import Search
from .contradictions import Contradiction, ContradictionFinder
from .resolution import ContradictionResolver, Merged

MERGE_COSINE = 0.9
"""Two memories with at least this cosine are compared by their words, and may be merged."""
ASK_COSINE = 0.8
"""A model is asked about two memories with at least this cosine."""
_MAX_PAIRS = 1_000
SHARED_WORDS = 0.75
"""The share of words that two memories must have in common to be merged. Without vectors, all words must match."""
_BLOCK = 512
_NEGATION_WORDS = """
    no not never none nobody nothing neither nor without cannot stop except unless hardly
"""
_NEGATIONS = frozenset(_NEGATION_WORDS.split())
_NOT_MERGED = frozenset((EPISODE, "procedure"))


class Consolidation:
    """Merges memories that say the same, and lets a model resolve those that disagree."""

    def __init__(
        self,
        journal: Journal,
        texts: MemoryTexts,
        search: Search,
        contradictions: ContradictionFinder,
        resolver: ContradictionResolver,
        index_worker: IndexWorker,
    ) -> None:
        self._journal = journal
        self._texts = texts
        self._search = search
        self._contradictions = contradictions
        self._resolver = resolver
        self._index_worker = index_worker

    async def run(self, audiences: tuple[bytes, ...] | None, model: Model | None, limit: int) -> list[Merged]:
        """Merge memories that say the same. With a model, also resolve contradictions and pairs that are close in
        meaning, at most `limit` of them. Returns the outcomes. Raises `ModelFailed`."""
        done = [merged async for merged in self._merge(audiences)]
        if model is not None:
            found = [*await self._contradictions.find(audiences), *await self._similar_pairs(audiences)]
            done += [merged async for merged in self._resolver.resolve(found, model, limit)]
            self._index_worker.wake()
        return done

    async def _merge(self, audiences: tuple[bytes, ...] | None) -> AsyncGenerator[Merged, None]:
        """Merge memories that say the same. Yields each pair after it is merged."""
        for audience in await self._search.index_cache.with_vectors(audiences):
            ended: set[int] = set()
            for one, other in _close_pairs(audience) if audience.dims else await self._pairs_with_same_words(audience):
                if one in ended or other in ended:
                    continue
                query = MemoryQuery(numbers=(one, other))
                rows = await self._journal.store.memories(self._journal.workspace, query)
                memories = await self._texts.memories(rows)
                if len(memories) == 2 and _say_the_same(memories[0], memories[1], bool(audience.dims)):
                    older, newer = sorted(zip(rows, memories, strict=True), key=lambda pair: pair[0].confirmed)
                    await self._end(older[0], newer[0])
                    ended.add(older[0].number)
                    yield Merged(newer[1], older[1])

    async def _similar_pairs(self, audiences: tuple[bytes, ...] | None) -> list[Contradiction]:
        """Pairs for the model: close in meaning and not merged, newest first."""
        found: list[Contradiction] = []
        for audience in await self._search.index_cache.with_vectors(audiences):
            for pair in _close_pairs(audience, ASK_COSINE) if audience.dims else ():
                memories = await self._search.read(pair)
                if len(memories) == 2 and memories[0].kind == memories[1].kind:
                    older, newer = sorted(memories, key=lambda one: (one.valid_from, one.confirmed))
                    found.append(Contradiction(older, newer, "they are close in meaning"))
                if len(found) == _MAX_PAIRS:
                    return found
        return sorted(found, key=lambda one: one.newer.confirmed, reverse=True)

    async def _pairs_with_same_words(self, audience: AudienceIndex) -> list[tuple[int, int]]:
        """Pairs of memories with the same words, for an index without vectors. Each memory is read once."""
        seen: dict[tuple[str, frozenset[str]], int] = {}
        pairs = []
        numbers = audience.column("number")[_candidates(audience)].tolist()
        for start in range(0, len(numbers), _BLOCK):
            query = MemoryQuery(numbers=tuple(numbers[start : start + _BLOCK]), limit=_BLOCK)
            rows = await self._journal.store.memories(self._journal.workspace, query)
            texts = await self._texts.event_data(rows)
            for row in rows:
                if row.number in texts:
                    said = (row.kind, _words(texts[row.number]["content"]))
                    if said in seen:
                        pairs.append((seen[said], row.number))
                    seen[said] = row.number
        return pairs

    async def _end(self, older: MemoryRow, newer: MemoryRow) -> None:
        owner = await self._journal.owner(None)
        note = Draft("memory.merged", {"id": older.id, "into": newer.id}, "duramen")
        changes = (MemoryChanges(ended=((older.number, self._journal.clock.now()),)),)
        await self._journal.append_prepared(older.session, [self._journal.prepare(note, owner)], owner, changes=changes)


def _candidates(audience: AudienceIndex) -> NDArray[np.intp]:
    """The places of memories that may be merged."""
    apart = [audience.kinds.find(kind) for kind in _NOT_MERGED]
    return np.nonzero(audience.column("alive") & ~np.isin(audience.column("kind"), apart))[0]


def _close_pairs(audience: AudienceIndex, least: float = MERGE_COSINE) -> Iterator[tuple[int, int]]:
    """Pairs of memories that are close in meaning, by number."""
    chosen = _candidates(audience)
    numbers, vectors = audience.column("number")[chosen].tolist(), audience.vectors[chosen]
    for start in range(0, len(chosen), _BLOCK):
        likeness = vectors[start : start + _BLOCK] @ vectors.T
        for row, column in zip(*np.nonzero(likeness >= least), strict=True):
            if column > start + row:
                yield numbers[start + row], numbers[column]


def _say_the_same(one: Memory, other: Memory, by_meaning: bool) -> bool:
    if one.kind != other.kind or one.key != other.key or one.speaker != other.speaker:
        return False
    first, second = _words(one.content), _words(other.content)
    if _marks(one.content) != _marks(other.content):
        return False
    shared = len(first & second) / max(1, len(first | second))
    return shared >= (SHARED_WORDS if by_meaning else 1.0)


def _words(text: str) -> frozenset[str]:
    return frozenset(term for term in terms(text) if term not in STOP_WORDS)


def _marks(text: str) -> tuple[Sequence[str], frozenset[str], frozenset[str]]:
    """What must be equal in merged memories: numbers, names, negations."""
    words = terms(text)
    numbers = sorted(word for word in words if any(letter.isdigit() for letter in word))
    denied = frozenset(word for word in words if word in _NEGATIONS) | frozenset(
        {"not"} if "n't" in text.lower() else ()
    )
    return numbers, frozenset(name.lower() for name in names(text)), denied
