"""Takes candidates from a store that can search by itself, for a corpus that is too large to rank whole.

The store finds the memories with the nearest codes and those with the rarest words of the question. It applies every
filter. It searches by words while the question is embedded, and by vector as soon as there is one. The candidates are
then compared by their full vectors. The best by words and by vector, and the episodes next to them, are read and
ranked. Statistics of the whole corpus are estimated from a random sample.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...journal.journal import Journal
from ...ports import Candidate, Change, MemoryRow, RetrievalQuery, RetrievalResult, Retriever
from ...runtime import drive
from ..catalog.texts import MemoryTexts
from ..index.audience_index import AudienceIndex, IndexedMemory
from ..index.columns import EPISODE
from ..index.index_codec import IndexCodec
from ..index.index_entry import Vector, code_of, json_form, read_term_stats
from ..index.workspace_embedder import WorkspaceEmbedder
from .corpus_stats import COMMON, CorpusStats, document_frequencies, estimate_measures, term_weight
from .selection import ActiveSearch, Selection, filter_mask

EXACT_LIMIT = 4_000
"""Up to this many memories, all of them are ranked."""
_MIN_SAMPLE, _MAX_SAMPLE = 200, 2_000
_CACHE_SIZE = 256
"""How many corpus statistics are cached."""
_STALE_SHARE = 0.25
"""The share of the corpus that may change before a new sample is taken."""
_SCAN_SIZE = 60_000
"""Above this many memories, only an index can find the nearest vectors fast enough."""
_VECTOR_LIMIT, _LARGE_VECTOR_LIMIT = 300, 800
"""How many candidates to take by code, from a scan and from an index. With fewer, coarse codes would miss good ones."""
_SCAN_LIMIT = 1_500
"""How many memories the store scores by words at most, so that a common word does not slow it down."""
_UNINDEXED_LIMIT = 200
"""How many memories without a vector become candidates, whatever their text."""
_MAX_TERMS = 24
_NOTHING = RetrievalResult([], [], [], {})
Values = tuple[tuple[str, tuple[str, ...]], ...]
"""Metadata to match: each name with all JSON forms of values that are equal in Python (1 and true)."""


class Retrieval:
    """A source of candidates: the store's own search."""

    def __init__(
        self, journal: Journal, texts: MemoryTexts, codec: IndexCodec, embedder: WorkspaceEmbedder, retriever: Retriever
    ) -> None:
        self._journal, self._texts, self._codec, self._embedder = journal, texts, codec, embedder
        self._retriever = retriever
        self.exact_limit = EXACT_LIMIT
        self._cached: OrderedDict[tuple[Any, ...], tuple[int, CorpusStats | None]] = OrderedDict()
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Drop the cached statistics, because a subject was erased or the vectors changed."""
        with self._lock:
            self._cached.clear()

    def prefetch(self, search: ActiveSearch) -> StoreSearch | None:
        """A search that can start before the question has a vector; None if the store cannot run it."""
        request, values = search.request, _json_values(search.request.metadata)
        if not search.generation or request.at is not None or values is None or len(search.question.terms) > _MAX_TERMS:
            return None
        return StoreSearch(self, search, values)

    async def candidates(self, search: ActiveSearch) -> Selection | None:
        """Candidates that match every filter; None if the corpus is small, or the store cannot run this search."""
        store_search = search.prefetch if isinstance(search.prefetch, StoreSearch) else self.prefetch(search)
        found = None if store_search is None else await store_search.found(search)
        if found is None:
            return None
        stats, word_query, by_vector, by_words, early, read = found
        chosen = self._choose(search, by_vector, by_words)
        changes = _joined(read, await self.with_adjacent(search.generation, chosen - early))
        audiences = await self._audiences(changes, chosen, search.generation)
        # The neighbours of a candidate are also candidates: an answer rarely repeats the words of its question.
        masks = [filter_mask(audience, search.request, search.now) for audience in audiences]
        counted = _document_counts(by_words, word_query, stats.filtered_share(search))
        frequencies = document_frequencies(stats, search.question.terms, counted, audiences)
        return Selection(audiences, masks, estimate_measures(stats, search, frequencies, audiences))

    async def retrieve(self, query: RetrievalQuery) -> RetrievalResult | None:
        """The store's result in this workspace; None if it cannot search."""
        return await self._retriever.retrieve(self._journal.workspace, query)

    async def with_adjacent(self, generation: int, numbers: set[int]) -> list[Change]:
        """These memories, and the episodes right before and after them."""
        return await self._retriever.with_adjacent(self._journal.workspace, generation, sorted(numbers))

    async def change_count(self, audiences: Sequence[bytes] | None) -> int:
        """The sum of the change counts of the searched audiences."""
        return sum((await self._journal.store.audience_changes(self._journal.workspace, audiences)).values())

    def estimated_size(self, audiences: Sequence[bytes] | None, generation: int, changes: int) -> int | None:
        """The approximate number of memories that are searched; None if it is not known without a query, or if the
        store could not search them last time."""
        with self._lock:
            known = self._cached.get(_cache_key(audiences, generation))
        if known is not None:
            return None if known[1] is None else known[1].size
        return changes if self.exact_limit < changes <= _SCAN_SIZE else None

    async def corpus_stats(
        self, audiences: Sequence[bytes] | None, generation: int, changes: int
    ) -> CorpusStats | None:
        """Statistics of a corpus with this change count; None if it is small, or the store cannot search it."""
        if changes <= self.exact_limit:
            return None
        key = _cache_key(audiences, generation)
        with self._lock:
            known = self._cached.get(key)
            if known is not None and known[1] is not None and abs(changes - known[0]) <= _STALE_SHARE * known[0]:
                self._cached.move_to_end(key)
                return known[1]
        most = min(_MAX_SAMPLE, max(_MIN_SAMPLE, changes // 100))
        sample = await self._retriever.sample_corpus(
            self._journal.workspace, generation, audiences, self.exact_limit, most
        )
        stats = None
        if sample is not None:
            index = AudienceIndex(self._embedder.dims)
            index.put_all(self._codec.open_sample(sample.memories, index.dims))
            stats = CorpusStats(max(self.exact_limit + 1, sample.size), index, sample.episodes_per_session)
        with self._lock:
            self._cached[key] = (changes, stats)
            while len(self._cached) > _CACHE_SIZE:
                self._cached.popitem(last=False)
        return stats

    def _choose(self, search: ActiveSearch, by_vector: RetrievalResult, by_words: RetrievalResult) -> set[int]:
        """The numbers of the best by vector, by words and by both, and of memories without an index entry."""
        limit = _candidate_limit(search)
        cosines = self._cosines(search, [*by_vector.by_vector, *by_words.by_words])
        nearest = sorted(cosines, key=cosines.__getitem__, reverse=True)
        best_words = [one.number for one in by_words.by_words]
        with_words = set(best_words)
        both = [number for number in nearest if number in with_words]
        chosen = {*nearest[:limit], *best_words[:limit], *both[:limit]}
        return chosen.union(one.number for found in (by_vector, by_words) for one in found.unindexed)

    def _cosines(self, search: ActiveSearch, found: Sequence[Candidate]) -> dict[int, float]:
        """The cosines of candidates, by number; those without a vector are left out."""
        given = {number: vector for _, number, vector, _ in found if vector is not None}
        if search.vector is None or not given:
            return {}
        at, vectors = self._codec.plain_vectors(list(given.values()), self._embedder.dims)
        numbers = list(given)
        return dict(zip([numbers[place] for place in at], (vectors @ search.vector).tolist(), strict=True))

    async def _audiences(self, changes: Sequence[Change], chosen: set[int], generation: int) -> list[AudienceIndex]:
        """Temporary indexes of the memories that were read, one for each audience."""
        sound = [change for change in _split_sessions(changes, chosen) if change.row.intact]
        entries = await self._codec.open_entries(sound, self._embedder.dims, generation)
        unread = [change for change in changes if change.row.intact and change.row.number not in entries]
        texts = await self._texts.event_data([change.row for change in unread])
        for change in unread:
            number = change.row.number
            if number in texts:
                entries[number] = IndexedMemory(
                    change.row, read_term_stats(texts[number], change.row.begins), None, change.recalled
                )
        by_audience: dict[bytes, list[IndexedMemory]] = {}
        for entry in entries.values():
            by_audience.setdefault(entry.row.audience, []).append(entry)
        audiences = []
        for name in sorted(by_audience):
            audiences.append(AudienceIndex(self._embedder.dims))
            audiences[-1].put_all(by_audience[name])
        return audiences


def _cache_key(audiences: Sequence[bytes] | None, generation: int) -> tuple[Any, ...]:
    return generation, None if audiences is None else tuple(sorted(audiences))


def _candidate_limit(search: ActiveSearch) -> int:
    """How many candidates are chosen by vector, by words and by both."""
    return max(60, 6 * search.request.limit)


def _joined(some: Sequence[Change], others: Sequence[Change]) -> list[Change]:
    """Two results of `Retriever.with_adjacent` as one, each memory once, in the same order."""
    found = {change.row.number: change for change in (*some, *others)}
    return sorted(found.values(), key=lambda one: (one.row.audience, one.row.session, one.row.position, one.row.number))


def _split_sessions(changes: Sequence[Change], chosen: set[int]) -> list[Change]:
    """The changes, with a separate session name for each run of adjacent episodes (see `real_session`). Two consecutive
    episodes are adjacent if one of them was chosen, because its neighbours were read. Otherwise there may be others
    between them."""
    found: list[Change] = []
    last: MemoryRow | None = None
    run = 0
    for change in changes:
        row = change.row
        if row.kind == EPISODE:
            same = last is not None and (last.audience, last.session) == (row.audience, row.session)
            if not (same and last is not None and (last.number in chosen or row.number in chosen)):
                run += 1
            last = row
            change = change._replace(row=row._replace(session=f"{row.session}\0{run}"))
        found.append(change)
    return found


class StoreFindings(NamedTuple):
    """The results of the store, with the statistics and the word query that they are based on. `early` are the numbers
    of memories that were read with their neighbours during the search, and `read` is what was read."""

    stats: CorpusStats
    word_query: RetrievalQuery
    by_vector: RetrievalResult
    by_words: RetrievalResult
    early: set[int]
    read: list[Change]


class StoreSearch:
    """A running search in the store: by words while the question is embedded, and by vector as soon as there is one.
    Neither waits for the other."""

    def __init__(self, retrieval: Retrieval, search: ActiveSearch, values: Values) -> None:
        self._retrieval, self._search, self._values = retrieval, search, values
        self._size: int | None = None
        self._has_started = False
        self._stats: CorpusStats | None = None
        self._word_query: RetrievalQuery | None = None
        self._by_words: RetrievalResult | None = None
        self._by_vector: RetrievalResult | None = None
        self._early, self._read = set[int](), list[Change]()

    async def during_embedding(self) -> None:
        """Read the statistics and search by words. Then read the best results while the search by vector runs."""
        await self._search_words()
        if self._by_words is not None and self._by_vector is None:
            self._early = {one.number for one in self._by_words.by_words[: _candidate_limit(self._search)]}
            self._read = await self._retrieval.with_adjacent(self._search.generation, self._early)

    async def _search_words(self) -> None:
        self._has_started = True
        retrieval, search, audiences = self._retrieval, self._search, self._search.request.audiences
        changes = await retrieval.change_count(audiences)
        self._size = retrieval.estimated_size(audiences, search.generation, changes)
        self._stats = await retrieval.corpus_stats(audiences, search.generation, changes)
        if self._stats is not None:
            query = _filters(search, self._stats.size, self._values)
            self._word_query = _word_query(query, self._stats, search.question.terms)
            self._by_words = await retrieval.retrieve(self._word_query)

    def after_embedding(self, vector: Vector) -> None:
        """Search by vector on a separate connection, if the corpus is known to be large enough."""
        if self._size is not None:
            self._by_vector = drive(self._search_vector(self._size, vector))

    async def _search_vector(self, size: int, vector: Vector) -> RetrievalResult | None:
        query = _filters(self._search, size, self._values)
        limit = max(_VECTOR_LIMIT if size <= _SCAN_SIZE else _LARGE_VECTOR_LIMIT, 20 * self._search.request.limit)
        return await self._retrieval.retrieve(query._replace(code=code_of(vector), vector_limit=min(limit, 5_000)))

    async def found(self, search: ActiveSearch) -> StoreFindings | None:
        """Everything that was found; None if the corpus is small or the store cannot search it. `search` has the
        question's vector, if there is an embedder."""
        if not self._has_started:
            await self._search_words()
        if self._stats is None or self._word_query is None or self._by_words is None:
            return None
        by_vector: RetrievalResult | None = _NOTHING
        if search.vector is not None:
            by_vector = self._by_vector or await self._search_vector(self._stats.size, search.vector)
        if by_vector is None:
            return None
        return StoreFindings(self._stats, self._word_query, by_vector, self._by_words, self._early, self._read)


def _filters(search: ActiveSearch, size: int, values: Values) -> RetrievalQuery:
    """A query with the filters of a search, still without words and vector."""
    request = search.request
    return RetrievalQuery(
        generation=search.generation,
        audiences=request.audiences,
        now=search.now,
        code=None,
        vector_limit=0,
        terms=(),
        term_weights=(),
        lookup_terms=(),
        require_all=False,
        scan_limit=_SCAN_LIMIT,
        word_limit=max(150, 12 * request.limit),
        mean_length=1.0,
        corpus_size=size,
        kinds=None if request.kinds is None else tuple(sorted(request.kinds)),
        since=request.since,
        until=request.until,
        metadata=values,
        unindexed_limit=_UNINDEXED_LIMIT if search.waiting else 0,
    )


def _word_query(query: RetrievalQuery, stats: CorpusStats, terms: tuple[int, ...]) -> RetrievalQuery:
    lookup, require_all = _lookup_terms(stats, terms)
    weights = tuple(term_weight(stats.share(term)) for term in terms)
    return query._replace(
        terms=terms, term_weights=weights, lookup_terms=lookup, require_all=require_all, mean_length=stats.mean_length
    )


def _lookup_terms(stats: CorpusStats, terms: Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """Which terms to look up (by place), and whether a memory must have all of them.

    These are the rarest terms, as many as keep the expected number of memories within `_SCAN_LIMIT`. If even the rarest
    term is too common, a memory must have several terms together. Such memories have the best word scores anyway.
    """
    order = sorted(range(len(terms)), key=lambda place: stats.share(terms[place]))
    taken: list[int] = []
    expected = 0.0
    for place in order:
        share = stats.share(terms[place])
        expected += share * stats.size
        if taken and (expected > _SCAN_LIMIT or stats.hits(terms[place]) > max(COMMON, stats.sample.size // 4)):
            break
        taken.append(place)
    if not order or stats.share(terms[order[0]]) * stats.size <= _SCAN_LIMIT:
        return tuple(taken), False
    taken, expected = [], float(stats.size)
    for place in order:
        taken.append(place)
        expected *= stats.share(terms[place])
        if expected <= _SCAN_LIMIT / 2:
            break
    return tuple(taken), True


def _document_counts(found: RetrievalResult, query: RetrievalQuery, share: float) -> dict[int, int]:
    """How many memories have each term that was looked up, by the term's place. `share` is the share of memories that
    the filters leave. Empty if the store did not score all memories."""
    if query.require_all or sum(found.mask_counts.values()) >= query.scan_limit:
        return {}
    having = {
        place: sum(count for mask, count in found.mask_counts.items() if mask >> place & 1)
        for place in query.lookup_terms
    }
    return {place: round(count / share) for place, count in having.items()}


def _json_values(metadata: Mapping[str, Any] | None) -> Values | None:
    """Metadata to match, each value with all JSON forms of equal values; None if a value has no JSON form."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for name, value in (metadata or {}).items():
        form = json_form(value)
        if form is None or json_form(name) is None:
            return None
        forms = [form]
        if isinstance(value, (bool, int, float)) and value in (0, 1):
            forms = [str(int(value)), "true" if value else "false"]
        found.append((name, tuple(forms)))
    return tuple(found)
