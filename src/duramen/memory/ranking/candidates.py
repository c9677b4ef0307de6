"""Chooses candidates from the indexes in memory, for a corpus that is too large to rank with all vectors and words.

The first pass ranks everything with what is in memory: codes (one bit per dimension of a vector) and the rare words of
the question. The second pass ranks the best of these with their stored vectors and all words, measured against the
whole corpus. Both passes use the same ranking: every part of a score counts for the choice, and filters apply before
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...runtime import run_blocking
from ..index.audience_index import AudienceIndex
from ..index.columns import codes_of
from ..index.index_cache import IndexCache
from ..index.index_entry import Vector
from .bm25 import session_scores, term_scores
from .measures import Corpus, Floats, Measures, Spread
from .rank import Chosen, Question, Ranked, rank
from .selection import ActiveSearch, Selection, filter_mask

CANDIDATES = 800
COMMON = 250_000
"""A word is common if more memories than this have it. It selects no candidates, but it counts for their scores."""
_SAMPLE_STEP = 128
"""At most one in this many memories is sampled for statistics."""
_SAMPLE_SIZE = 4_096
"""The approximate largest sample. With this many values, mean and deviation are precise to one percent."""


class _Estimate(NamedTuple):
    """Cosines estimated from codes: the mean cosine for each distance, and the spread of the true cosines."""

    by_distance: Floats
    spread: Spread


class _FirstPass(NamedTuple):
    """The result of the first pass.

    `audiences` are the indexes that have candidates. For each of them: `places` are the candidates and their neighbours
    (ascending), `chosen` marks the candidates among these, `cosines` are estimated from codes, and `session_sizes` is
    how many memories of each session are searched.
    """

    audiences: Sequence[int]
    places: Sequence[NDArray[np.intp]]
    chosen: Sequence[Chosen]
    cosines: Sequence[Floats] | None
    measures: Measures
    session_sizes: Sequence[NDArray[np.intp]]


class IndexCandidates:
    """Chooses candidates from the indexes in memory."""

    def __init__(self, index_cache: IndexCache) -> None:
        self._index_cache = index_cache

    def prefetch(self, search: ActiveSearch) -> None:
        """Do nothing: the indexes are in memory."""

    def clear(self) -> None:
        """Do nothing: this class has no cache."""

    async def candidates(self, search: ActiveSearch) -> Selection | None:
        """Candidates; None if there are few enough memories to rank them all."""
        held = await self._indexes(search)
        audiences = [audience for _, audience in held]
        if sum(audience.count() for audience in audiences) <= self._index_cache.exact_limit:
            return None
        for name, audience in held if search.vector is not None else ():
            if name is not None:
                await self._index_cache.ensure_codes(name, audience, search.generation)
            await self._sample(name, audience, search.generation)
        first = await run_blocking(lambda: self._first_pass(search, audiences))
        if first is None:
            return Selection((), (), None)
        return await self._second_pass(search, held, first)

    async def _indexes(self, search: ActiveSearch) -> Sequence[tuple[bytes | None, AudienceIndex]]:
        """The indexes to search, each with its audience, or the combined index of all audiences."""
        whole = await self._index_cache.combined(search.generation) if search.request.audiences is None else None
        if whole is not None:
            return [(None, whole)]
        return await self._index_cache.current(search.request.audiences, search.generation)

    async def _sample(self, name: bytes | None, audience: AudienceIndex, generation: int) -> None:
        """Load a sample of vectors, unless the index has a recent one. It shows how precise codes are."""
        if audience.size and audience.size >= 2 * audience.sampled:
            numbers = audience.column("number")[:: _step(audience)]
            read = await self._index_cache.vectors(name, audience, generation, numbers)
            with self._index_cache.lock:
                audience.set_sample(*read)

    # -- first pass: everything, with what is in memory

    def _first_pass(self, search: ActiveSearch, audiences: Sequence[AudienceIndex]) -> _FirstPass | None:
        with self._index_cache.lock:
            chosen = [filter_mask(audience, search.request, search.now) for audience in audiences]
            rare, common = _split_terms(search.question, audiences)
            cosines = None
            if search.vector is not None:
                codes = _Codes(search.vector)
                estimate = _estimate_cosines(search.vector, codes, audiences)
                found = [estimate.by_distance[_distances(audience.codes, codes.of(audience))] for audience in audiences]
                cosines = np.concatenate(found), estimate.spread
            question = replace(search.question, terms=rare)
            ranked = rank(question, audiences, chosen, None, search.request.weights, None, cosines)
            if ranked.measures is None:
                return None
            measures = _with_common(search.question, rare, common, audiences, chosen, ranked.measures)
            return _choose_best(search, audiences, ranked, chosen, None if cosines is None else cosines[0], measures)

    # -- second pass: the best, with vectors and all words

    async def _second_pass(
        self, search: ActiveSearch, held: Sequence[tuple[bytes | None, AudienceIndex]], first: _FirstPass
    ) -> Selection:
        audiences: list[AudienceIndex] = []
        exact: list[NDArray[np.intp]] = []
        for index, at in enumerate(first.audiences):
            name, audience = held[at]
            with self._index_cache.lock:
                excerpt = audience.excerpt(first.places[index], search.question.terms)
            audiences.append(excerpt)
            if search.vector is not None and first.cosines is not None:
                # Load the vectors of neighbours, too. Otherwise only their codes would count.
                numbers = excerpt.column("number")
                read = await self._index_cache.vectors(name, audience, search.generation, numbers)
                exact.append(excerpt.set_candidate_vectors(*read))
                first.cosines[index][exact[-1]] = excerpt.vectors[exact[-1]] @ search.vector
        if not exact or first.cosines is None:
            return Selection(audiences, first.chosen, first.measures)
        measures = _corrected_measures(first, audiences, exact)
        return Selection(audiences, first.chosen, measures, (np.concatenate(first.cosines), None))


def _choose_best(
    search: ActiveSearch,
    audiences: Sequence[AudienceIndex],
    ranked: Ranked,
    chosen: Sequence[Chosen],
    cosines: Floats | None,
    measures: Measures,
) -> _FirstPass:
    """Choose the candidates, and collect what the second pass needs to rank them."""
    searched = np.concatenate(chosen)
    scores = np.where(searched, ranked.scores, -np.inf)
    count = min(max(CANDIDATES, 10 * search.request.limit), int(np.count_nonzero(searched)))
    best = np.sort(_highest(scores, count))
    starts = np.cumsum([0, *(audience.size for audience in audiences)])
    cuts = np.searchsorted(best, starts)
    taken = [at for at in range(len(audiences)) if cuts[at] < cuts[at + 1]]
    found = []
    for at in taken:
        own = best[cuts[at] : cuts[at + 1]] - starts[at]
        leading = (
            None if cosines is None else _session_leaders(audiences[at], own, cosines[starts[at] : starts[at + 1]])
        )
        found.append(_with_neighbours(audiences[at], own, leading))
    return _FirstPass(
        taken,
        [places for places, _ in found],
        [candidates for _, candidates in found],
        None if cosines is None else [cosines[starts[at] + found[index][0]] for index, at in enumerate(taken)],
        replace(
            measures,
            session_words=[measures.session_words[at] for at in taken],
            session_best=[measures.session_best[at] for at in taken] if measures.session_best else (),
        ),
        [_session_sizes(audiences[at], chosen[at]) for at in taken],
    )


def _highest(scores: Floats, count: int) -> NDArray[np.intp]:
    """The places of the `count` highest scores, in no order. A sample gives a lower bound, so that most scores need not
    be partitioned."""
    places = np.arange(len(scores))
    some = scores[::_SAMPLE_STEP]
    spare = len(some) - 4 * (count // _SAMPLE_STEP + 8)
    if spare > 0:
        likely = np.nonzero(scores >= np.partition(some, spare)[spare])[0]
        places = likely if len(likely) >= count else places
    return places[np.argpartition(scores[places], len(places) - count)[len(places) - count :]]


def _step(audience: AudienceIndex) -> int:
    """The sampling step: one in this many memories of an index is sampled."""
    return max(_SAMPLE_STEP, audience.size // _SAMPLE_SIZE)


def _session_sizes(audience: AudienceIndex, chosen: Chosen) -> NDArray[np.intp]:
    sessions = audience.column("session")[chosen] if audience.sessions.names else np.zeros(0, dtype=np.int32)
    session_sizes: NDArray[np.intp] = np.bincount(sessions[sessions >= 0], minlength=len(audience.sessions.names))
    return session_sizes


def _session_leaders(audience: AudienceIndex, places: NDArray[np.intp], cosines: Floats) -> NDArray[np.intp]:
    """The places of the two memories with the highest cosines in each session that the given places are in."""
    if not audience.sessions.names:
        return np.zeros(0, dtype=np.intp)
    sessions = audience.column("session")
    wanted = np.zeros(len(audience.sessions.names) + 1, dtype=bool)  # the last one is for no session (-1)
    wanted[sessions[places]] = True
    wanted[-1] = False
    members = np.nonzero(wanted[sessions] & audience.column("has_vector"))[0]
    order = members[np.lexsort((-cosines[members], sessions[members]))]
    first = np.diff(sessions[order], prepend=-1) != 0
    second = np.zeros(len(order), dtype=bool)
    second[1:] = first[:-1]
    leading: NDArray[np.intp] = order[first | second]
    return leading


def _with_neighbours(
    audience: AudienceIndex, places: NDArray[np.intp], leading: NDArray[np.intp] | None
) -> tuple[NDArray[np.intp], Chosen]:
    """Candidates with their neighbours and session leaders, and which of these are candidates."""
    if not audience.sessions.names:
        return places, np.ones(len(places), dtype=bool)
    neighbours = [audience.column(side)[places] for side in ("before", "after")]
    found = np.unique(np.concatenate([places, *neighbours, *(() if leading is None else (leading,))]))
    found = found[found >= 0].astype(np.intp)
    return found, np.isin(found, places)


def _corrected_measures(
    first: _FirstPass, audiences: Sequence[AudienceIndex], exact: Sequence[NDArray[np.intp]]
) -> Measures:
    """The measures, with the highest exact cosine of each session. A session without an exact cosine gets the estimate
    from codes, corrected by the error of this estimate in the other sessions."""
    guesses, truths = [], []
    best = [some.copy() for some in first.measures.session_best]
    left = [np.ones(len(some), dtype=bool) for some in best]
    for index, (audience, places) in enumerate(zip(audiences, exact, strict=True)):
        sessions = audience.column("session")[places]
        places, sessions = places[sessions >= 0], sessions[sessions >= 0]
        met = np.unique(sessions)
        guesses.append(best[index][met])
        best[index][met], left[index][met] = -1, False
        np.maximum.at(best[index], sessions, first.cosines[index][places] if first.cosines else 0)
        truths.append(best[index][met])
    if not sum(len(some) for some in truths):
        return first.measures
    guess, truth = np.concatenate(guesses), np.concatenate(truths)
    middle, spread = Spread.of(truth), Spread.of(guess)
    slope = 1.0
    if spread.deviation > 1e-9 and len(guess) > 2:
        slope = max(0.1, float(np.mean((truth - middle.mean) * (guess - spread.mean))) / spread.deviation**2)
    for some, unmet in zip(best, left, strict=True):
        some[unmet] = middle.mean + slope * (some[unmet] - spread.mean)
    session_sizes = np.concatenate(first.session_sizes).astype(np.float64)
    values = np.concatenate(best)
    mean = float(np.average(values, weights=session_sizes)) if session_sizes.any() else 0.0
    apart = float(np.sqrt(np.average((values - mean) ** 2, weights=session_sizes))) if session_sizes.any() else 0.0
    return replace(first.measures, session_best=best, session_meaning=Spread(mean, apart))


def _split_terms(question: Question, audiences: Sequence[AudienceIndex]) -> tuple[tuple[int, ...], dict[int, int]]:
    """The rare terms of a question, which select candidates, and its common terms with how many memories have each. If
    all terms are common, the rarest of them counts as rare."""
    held = {term: sum(audience.frequency(term) for audience in audiences) for term in question.terms}
    rare = tuple(term for term in question.terms if held[term] <= COMMON)
    if not rare and held:
        rare = (min(held, key=lambda term: held[term]),)
    return rare, {term: count for term, count in held.items() if term not in rare}


def _distances(codes: NDArray[np.uint64], code: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """The number of bits in which each of the codes differs from one code."""
    distances = np.zeros(codes.shape[1], dtype=np.uint16)
    for words, word in zip(codes, code, strict=True):
        distances += np.bitwise_count(words ^ word)
    return distances


class _Codes:
    """The code of a question for each center of the indexes. Usually all indexes have the same center."""

    def __init__(self, vector: Vector) -> None:
        self._vector = vector
        self._known: dict[int, NDArray[np.uint64]] = {}

    def of(self, audience: AudienceIndex) -> NDArray[np.uint64]:
        if audience.center is None:
            return np.zeros(0, dtype=np.uint64)
        found = self._known.get(id(audience.center))
        if found is None:
            found = self._known[id(audience.center)] = codes_of(self._vector[None, :], audience.center)[:, 0]
        return found


def _estimate_cosines(vector: Vector, codes: _Codes, audiences: Sequence[AudienceIndex]) -> _Estimate:
    """The cosine for each distance of two codes, fitted to the samples."""
    sampled = [audience for audience in audiences if len(audience.sample) and audience.center is not None]
    steps = np.arange(64 * -(-len(vector) // 64) + 1, dtype=np.float64)
    angles = np.cos(np.pi * np.minimum(1, steps / len(vector)))
    if not sampled:
        return _Estimate(angles.astype(np.float32), Spread(0.0, 1 / float(np.sqrt(len(vector)))))
    true = np.concatenate([audience.sample @ vector for audience in sampled])
    seen = angles[np.concatenate([_distances(audience.sample_codes, codes.of(audience)) for audience in sampled])]
    spread, guessed = Spread.of(true), Spread.of(seen)
    slope = 1.0
    if guessed.deviation > 1e-9 and len(true) > 2:
        slope = float(np.mean((true - spread.mean) * (seen - guessed.mean))) / guessed.deviation**2
    # A linear fit through the means. The less precise the codes are for the sample, the flatter it is.
    fitted = spread.mean + max(0.1, slope) * (angles - guessed.mean)
    return _Estimate(np.clip(fitted, -1, 1).astype(np.float32), spread)


def _with_common(
    question: Question,
    rare: Sequence[int],
    common: dict[int, int],
    audiences: Sequence[AudienceIndex],
    chosen: Sequence[Chosen],
    measures: Measures,
) -> Measures:
    """Measures over the rare terms of a question, extended by the common terms. The spread of these is estimated from a
    sample."""
    if not common:
        return measures
    texts = 3 if any(audience.sessions.names for audience in audiences) else 1
    own = measures.own._replace(frequencies=_frequencies(question, rare, common, measures.own, 1))
    near = measures.near._replace(frequencies=_frequencies(question, rare, common, measures.near, texts))
    found = [
        _common_scores(question, common, audience, some, own, near)
        for audience, some in zip(audiences, chosen, strict=True)
    ]
    words, near_words = (Spread.of(np.concatenate([pair[side] for pair in found])) for side in (0, 1))
    return replace(
        measures,
        own=own,
        near=near,
        words=_summed(measures.words, words),
        near_words=_summed(measures.near_words, near_words),
        session_words=session_scores(audiences, question.terms),  # a common term may be in few sessions
    )


def _frequencies(
    question: Question, rare: Sequence[int], common: dict[int, int], corpus: Corpus, texts: int
) -> tuple[int, ...]:
    """How many texts have each term of a question, if `texts` memories are read as one text."""
    known = dict(zip(rare, corpus.frequencies, strict=True))
    shares = {term: min(1.0, count / max(1, corpus.count)) for term, count in common.items()}
    joined = {term: round(corpus.count * (1 - (1 - share) ** texts)) for term, share in shares.items()}
    return tuple((known | joined)[term] for term in question.terms)


def _common_scores(
    question: Question, common: dict[int, int], audience: AudienceIndex, chosen: Chosen, own: Corpus, near: Corpus
) -> tuple[Floats, Floats]:
    """The share of the common terms in the scores of a sample, by a memory's own words, and with its neighbours'
    words."""
    step = _step(audience)
    places = np.nonzero(chosen[::step])[0] * step
    lengths = audience.column("length")
    neighbours = [audience.column(side)[places] for side in ("before", "after")] if audience.sessions.names else []
    near_lengths: Floats = lengths[places]
    for side in neighbours:
        near_lengths = near_lengths + np.where(side >= 0, lengths[side], np.float32(0))
    scores, near_scores = np.zeros(len(places), dtype=np.float32), np.zeros(len(places), dtype=np.float32)
    for at, term in enumerate(question.terms):
        if term in common:
            counts = audience.term_counts(term, places).astype(np.float32)
            near_counts = counts
            for side in neighbours:
                near_counts = near_counts + audience.term_counts(term, side).astype(np.float32)
            scores += term_scores(own, at, lengths[places], counts)
            near_scores += term_scores(near, at, near_lengths, near_counts)
    return scores, near_scores


def _summed(one: Spread, other: Spread) -> Spread:
    """The spread of a sum of two independent values."""
    return Spread(one.mean + other.mean, float(np.hypot(one.deviation, other.deviation)))
