"""Candidates from a store that searches by itself, where there is too much to be ranked whole.

The store gives the nearest by their codes and the best by their rarest words, with every filter inside: words while the
question gets its vector, the nearest as soon as it has it. Those are measured again by their vectors; the best of both,
and what stands beside them, are read and ranked as always, against how things stand in all that is searched, which is
estimated from some of it drawn by chance.
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
from .corpus_stats import COMMON, CorpusStats, held_by, measures_of, weight
from .selection import ActiveSearch, Selection, chosen_of

EXACT = 4_000
"""Up to so many memories everything is ranked."""
_LEAST_DRAWN, _MOST_DRAWN = 200, 2_000
_KEPT = 256
"""Audiences of which it is kept how things stand."""
_STALE = 0.25
"""By which part what is searched may change before it is looked at anew."""
_SCANNED = 60_000
"""Of more memories only an index finds those that are near."""
_NEAR, _FAR_NEAR = 300, 800
"""Codes to take: from an audience, and from so many that only an index finds them. They are too coarse for less."""
_LOOKED_AT = 1_500
"""Memories that are looked at for their words: a common word must not rank every memory that has it."""
_LATE = 200
"""Memories without a vector that are candidates, whatever they say."""
_MOST_TERMS = 24
_NOTHING = RetrievalResult([], [], [], {})
Values = tuple[tuple[str, tuple[str, ...]], ...]
"""What metadata must have: each name, with all forms in JSON that are equal to the value."""


class Retrieval:
    """A source of candidates."""

    def __init__(
        self, journal: Journal, texts: MemoryTexts, codec: IndexCodec, embedder: WorkspaceEmbedder, retriever: Retriever
    ) -> None:
        self._journal, self._texts, self._codec, self._embedder = journal, texts, codec, embedder
        self._retriever = retriever
        self.exact = EXACT
        self._known: OrderedDict[tuple[Any, ...], tuple[int, CorpusStats | None]] = OrderedDict()
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Draw anew: somebody was erased."""
        with self._lock:
            self._known.clear()

    def ahead(self, asked: ActiveSearch) -> StoreSearch | None:
        """A search that is begun before its question has a vector; None if the store cannot do it."""
        wanted, values = asked.wanted, _values(asked.wanted.metadata)
        if not asked.generation or wanted.at is not None or values is None or len(asked.question.terms) > _MOST_TERMS:
            return None
        return StoreSearch(self, asked, values)

    async def candidates(self, asked: ActiveSearch) -> Selection | None:
        """Candidates, for which every filter holds; None if all of it can be ranked, or the store cannot search it."""
        begun = asked.ahead if isinstance(asked.ahead, StoreSearch) else self.ahead(asked)
        found = None if begun is None else await begun.found(asked)
        if found is None:
            return None
        standing, words, near, worded, early, read = found
        chosen = self._chosen(asked, near, worded)
        changes = _joined(read, await self.beside(asked.generation, chosen - early))
        audiences = await self._audiences(changes, chosen, asked.generation)
        # What stands beside a candidate is one, too: an answer rarely repeats the words of its question.
        picked = [chosen_of(audience, asked.wanted, asked.now) for audience in audiences]
        counted = _counted(worded, words, standing.left(asked))
        held = held_by(standing, asked.question.terms, counted, audiences)
        return Selection(audiences, picked, measures_of(standing, asked, held, audiences))

    async def retrieve(self, retrieve: RetrievalQuery) -> RetrievalResult | None:
        """What the store finds."""
        return await self._retriever.retrieve(self._journal.workspace, retrieve)

    async def beside(self, generation: int, numbers: set[int]) -> list[Change]:
        """These memories, and what stands beside them."""
        return await self._retriever.with_adjacent(self._journal.workspace, generation, sorted(numbers))

    async def changes(self, audiences: Sequence[bytes] | None) -> int:
        """How often what is searched was changed."""
        return sum((await self._journal.store.audience_changes(self._journal.workspace, audiences)).values())

    def size(self, audiences: Sequence[bytes] | None, generation: int, changes: int) -> int | None:
        """About how many memories are searched, as far as that can be said before they are looked at; None if it
        cannot, or the store could not search them when they last were."""
        with self._lock:
            known = self._known.get(_place(audiences, generation))
        if known is not None:
            return None if known[1] is None else known[1].size
        return changes if self.exact < changes <= _SCANNED else None

    async def standing(self, audiences: Sequence[bytes] | None, generation: int, changes: int) -> CorpusStats | None:
        """How things stand in what was changed so often; None if it is small, or the store cannot search it."""
        if changes <= self.exact:
            return None
        place = _place(audiences, generation)
        with self._lock:
            known = self._known.get(place)
            if known is not None and known[1] is not None and abs(changes - known[0]) <= _STALE * known[0]:
                self._known.move_to_end(place)
                return known[1]
        most = min(_MOST_DRAWN, max(_LEAST_DRAWN, changes // 100))
        sample = await self._retriever.sample_corpus(self._journal.workspace, generation, audiences, self.exact, most)
        standing = None
        if sample is not None:
            drawn = AudienceIndex(self._embedder.dims)
            drawn.put_all(self._codec.open_sample(sample.memories, drawn.dims))
            standing = CorpusStats(max(self.exact + 1, sample.size), drawn, sample.episodes_per_session)
        with self._lock:
            self._known[place] = (changes, standing)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return standing

    def _chosen(self, asked: ActiveSearch, near: RetrievalResult, having: RetrievalResult) -> set[int]:
        """The best by meaning, by words and by both; and what is so new that it has no index_entry yet."""
        most = _most(asked)
        cosines = self._cosines(asked, [*near.by_vector, *having.by_words])
        nearest = sorted(cosines, key=cosines.__getitem__, reverse=True)
        worded = [one.number for one in having.by_words]
        places = set(worded)
        both = [number for number in nearest if number in places]
        chosen = {*nearest[:most], *worded[:most], *both[:most]}
        return chosen.union(one.number for found in (near, having) for one in found.unindexed)

    def _cosines(self, asked: ActiveSearch, found: Sequence[Candidate]) -> dict[int, float]:
        """How near the vectors of candidates are; without those that have none."""
        given = {number: vector for _, number, vector, _ in found if vector is not None}
        if asked.vector is None or not given:
            return {}
        at, vectors = self._codec.plain_vectors(list(given.values()), self._embedder.dims)
        numbers = list(given)
        return dict(zip([numbers[place] for place in at], (vectors @ asked.vector).tolist(), strict=True))

    async def _audiences(self, changes: Sequence[Change], chosen: set[int], generation: int) -> list[AudienceIndex]:
        """What was read, as audiences that are made for this search."""
        sound = [change for change in _in_runs(changes, chosen) if change.row.intact]
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


def _place(audiences: Sequence[bytes] | None, generation: int) -> tuple[Any, ...]:
    return generation, None if audiences is None else tuple(sorted(audiences))


def _most(asked: ActiveSearch) -> int:
    """How many candidates are chosen by meaning, by words and by both."""
    return max(60, 6 * asked.wanted.limit)


def _joined(some: Sequence[Change], others: Sequence[Change]) -> list[Change]:
    """Two answers of `Retriever.with_adjacent` as one, each memory once, in the same order."""
    found = {change.row.number: change for change in (*some, *others)}
    return sorted(found.values(), key=lambda one: (one.row.audience, one.row.session, one.row.position, one.row.number))


def _in_runs(changes: Sequence[Change], chosen: set[int]) -> list[Change]:
    """Episodes that do not stand side by side, each under a session of its own (see `real_session`): of two in a row
    one was chosen, and what is right before and after it was read; else there are others between them."""
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


class Found(NamedTuple):
    """What the store found: how things stand, which words were looked for, what is near and what has the words; and of
    which candidates it was read `early` what stands beside them, and what that is."""

    standing: CorpusStats
    words: RetrievalQuery
    near: RetrievalResult
    worded: RetrievalResult
    early: set[int]
    read: list[Change]


class StoreSearch:
    """A search in the store that is under way: how things stand and what words find while the question is embedded, and
    what is near it as soon as it is: one does not wait for the other."""

    def __init__(self, seeking: Retrieval, asked: ActiveSearch, values: Values) -> None:
        self._seeking, self._asked, self._values = seeking, asked, values
        self._size: int | None = None
        self._looked = False
        self._standing: CorpusStats | None = None
        self._words: RetrievalQuery | None = None
        self._worded: RetrievalResult | None = None
        self._near: RetrievalResult | None = None
        self._early, self._read = set[int](), list[Change]()

    async def meanwhile(self) -> None:
        """Look how things stand, then for words; and read the best of those, as long as what is near is not found."""
        await self._look()
        if self._worded is not None and self._near is None:
            self._early = {one.number for one in self._worded.by_words[: _most(self._asked)]}
            self._read = await self._seeking.beside(self._asked.generation, self._early)

    async def _look(self) -> None:
        self._looked = True
        seeking, asked, audiences = self._seeking, self._asked, self._asked.wanted.audiences
        changes = await seeking.changes(audiences)
        self._size = seeking.size(audiences, asked.generation, changes)
        self._standing = await seeking.standing(audiences, asked.generation, changes)
        if self._standing is not None:
            retrieve = _retrieve(asked, self._standing.size, self._values)
            self._words = _for_words(retrieve, self._standing, asked.question.terms)
            self._worded = await seeking.retrieve(self._words)

    def then(self, vector: Vector) -> None:
        """Look for what is near, on a connection of its own, if it is known by now that there is enough."""
        if self._size is not None:
            self._near = drive(self._retrieve_near(self._size, vector))

    async def _retrieve_near(self, size: int, vector: Vector) -> RetrievalResult | None:
        retrieve = _retrieve(self._asked, size, self._values)
        near = max(_NEAR if size <= _SCANNED else _FAR_NEAR, 20 * self._asked.wanted.limit)
        return await self._seeking.retrieve(retrieve._replace(code=code_of(vector), vector_limit=min(near, 5_000)))

    async def found(self, asked: ActiveSearch) -> Found | None:
        """What was found, whole; None if the store cannot tell. The question has its vector now, if it gets one."""
        if not self._looked:
            await self._look()
        if self._standing is None or self._words is None or self._worded is None:
            return None
        near: RetrievalResult | None = _NOTHING
        if asked.vector is not None:
            near = self._near or await self._retrieve_near(self._standing.size, asked.vector)
        if near is None:
            return None
        return Found(self._standing, self._words, near, self._worded, self._early, self._read)


def _retrieve(asked: ActiveSearch, size: int, values: Values) -> RetrievalQuery:
    """What is asked of about so many memories, but for what of them."""
    wanted = asked.wanted
    return RetrievalQuery(
        generation=asked.generation,
        audiences=wanted.audiences,
        now=asked.now,
        code=None,
        vector_limit=0,
        terms=(),
        term_weights=(),
        lookup_terms=(),
        require_all=False,
        scan_limit=_LOOKED_AT,
        word_limit=max(150, 12 * wanted.limit),
        mean_length=1.0,
        corpus_size=size,
        kinds=None if wanted.kinds is None else tuple(sorted(wanted.kinds)),
        since=wanted.since,
        until=wanted.until,
        metadata=values,
        unindexed_limit=_LATE if asked.waiting else 0,
    )


def _for_words(retrieve: RetrievalQuery, standing: CorpusStats, terms: tuple[int, ...]) -> RetrievalQuery:
    rare, together = _rare(standing, terms)
    weights = tuple(weight(standing.share(term)) for term in terms)
    return retrieve._replace(
        terms=terms, term_weights=weights, lookup_terms=rare, require_all=together, mean_length=standing.length
    )


def _rare(standing: CorpusStats, terms: Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """Which terms of a question are looked up: the rarest, as long as few enough memories have one of them. If even the
    rarest is too common for that, those that have it together with others: they are the best by words anyway."""
    order = sorted(range(len(terms)), key=lambda place: standing.share(terms[place]))
    taken: list[int] = []
    expected = 0.0
    for place in order:
        share = standing.share(terms[place])
        expected += share * standing.size
        if taken and (expected > _LOOKED_AT or standing.hits(terms[place]) > max(COMMON, standing.drawn.size // 4)):
            break
        taken.append(place)
    if not order or standing.share(terms[order[0]]) * standing.size <= _LOOKED_AT:
        return tuple(taken), False
    taken, expected = [], float(standing.size)
    for place in order:
        taken.append(place)
        expected *= standing.share(terms[place])
        if expected <= _LOOKED_AT / 2:
            break
    return tuple(taken), True


def _counted(found: RetrievalResult, asked: RetrievalQuery, left: float) -> dict[int, int]:
    """How many memories have each term that was looked up, by its place, where filters left this part of all; nothing
    if not all of them were looked at."""
    if asked.require_all or sum(found.mask_counts.values()) >= asked.scan_limit:
        return {}
    having = {
        place: sum(count for mask, count in found.mask_counts.items() if mask >> place & 1)
        for place in asked.lookup_terms
    }
    return {place: round(count / left) for place, count in having.items()}


def _values(metadata: Mapping[str, Any] | None) -> Values | None:
    """Values to look for, each in all forms in JSON that are equal to it; None if one has none."""
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
