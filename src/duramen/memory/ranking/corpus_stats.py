"""Estimates the statistics of a corpus that the store searches, from a random sample. With them, candidates are ranked
as if the whole corpus were in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..index.audience_index import AudienceIndex
from ..index.columns import NameTable
from ..index.index_entry import Vector
from .bm25 import term_scores
from .measures import Corpus, Floats, Measures, Spread
from .rank import speaker_shares
from .selection import ActiveSearch, filter_mask

COMMON = 8
"""A term is common if more memories of the sample than this have it. It may be left out of the lookup; its frequency is
then estimated."""
_ENOUGH = 30
"""If the filters leave fewer memories of the sample than this, the cosines of the whole sample are used."""


class CorpusStats(NamedTuple):
    """The approximate size of a corpus, a sample of it, and the mean number of episodes in a session."""

    size: int
    sample: AudienceIndex
    episodes_per_session: float

    @property
    def mean_length(self) -> float:
        """The mean length of a text."""
        lengths = self.sample.column("length")
        return float(lengths.mean()) if lengths.size else 1.0

    def hits(self, term: int) -> int:
        """How many memories of the sample have a term."""
        found = self.sample.postings(term)
        return 0 if found is None else len(found[0])

    def share(self, term: int) -> float:
        """The estimated share of memories that have a term, always above 0."""
        return (self.hits(term) + 0.5) / (self.sample.size + 1)

    def filtered_share(self, search: ActiveSearch) -> float:
        """The estimated share of memories that the filters leave, always above 0."""
        chosen = np.count_nonzero(filter_mask(self.sample, search.request, search.now))
        return 1.0 if chosen == self.sample.size else (chosen + 0.5) / (self.sample.size + 1)

    def episode_share(self) -> float:
        """The estimated share of memories that are episodes."""
        return float((self.sample.column("session") >= 0).mean()) if self.sample.size else 0.0


def term_weight(share: float) -> float:
    """The BM25 rarity of a term that this share of memories has."""
    return math.log(1 + (1 - min(share, 1.0)) / max(share, 1e-9))


def document_frequencies(
    stats: CorpusStats, terms: Sequence[int], counted: Mapping[int, int], ranked: Sequence[AudienceIndex]
) -> tuple[int, ...]:
    """How many memories have each term: as `counted` by the store (by the term's place), otherwise estimated. The
    result is at least the count in the `ranked` indexes, because these may have memories that the store did not search
    yet."""
    found = []
    for place, term in enumerate(terms):
        about = counted[place] if place in counted else max(1, round(stats.size * stats.share(term)))
        posted = [audience.postings(term) for audience in ranked]
        found.append(max(about, sum(len(one[0]) for one in posted if one is not None)))
    return tuple(found)


def estimate_measures(
    stats: CorpusStats, search: ActiveSearch, frequencies: tuple[int, ...], ranked: Sequence[AudienceIndex]
) -> Measures:
    """The estimated measures for the scores of a question, with the session scores of the ranked indexes."""
    window = 1 + 2 * stats.episode_share()
    shares = [count / max(1, stats.size) for count in frequencies]
    near_shares = [1 - (1 - min(1.0, share)) ** window for share in shares]
    own = Corpus(stats.size, stats.mean_length, frequencies)
    near = Corpus(stats.size, stats.mean_length * window, _counts(near_shares, stats.size))
    cosines = _cosines(stats, search)
    episodes = max(1.0, stats.episodes_per_session)
    sessions = max(1, round(stats.size * stats.episode_share() / episodes))
    session_shares = [1 - (1 - min(1.0, share)) ** episodes for share in shares]
    session_corpus = Corpus(sessions, stats.mean_length * episodes, _counts(session_shares, sessions))
    substance = stats.sample.column("substance")[stats.sample.column("session") >= 0]
    return Measures(
        own=own,
        near=near,
        words=_spread_of_terms(shares),
        near_words=_spread_of_terms(near_shares),
        meaning=Spread.of(cosines),
        session_meaning=_highest(cosines, round(episodes)),
        substance=float(substance.mean()) if substance.size else 0.0,
        speakers=speaker_shares([stats.sample]),
        session_words=[_session_scores(audience, search.question.terms, session_corpus) for audience in ranked],
        session_best=[_best(audience, search.vector) for audience in ranked],
    )


def real_session(name: str) -> str:
    """The real session of a run of adjacent episodes (see `retrieval._split_sessions`)."""
    return name.split("\0")[0]


def _real_sessions(audience: AudienceIndex) -> tuple[NDArray[np.intp], int]:
    """The real session of each run in an index, and how many real sessions there are."""
    names = NameTable()
    sessions = np.array([names.number(real_session(name)) for name in audience.sessions.names], dtype=np.intp)
    return sessions, len(names.names)


def _session_scores(audience: AudienceIndex, terms: Sequence[int], session_corpus: Corpus) -> Floats:
    """BM25 of the sessions in an index, by the words of their memories in this index."""
    sessions, count = _real_sessions(audience)
    scores = np.zeros(count, dtype=np.float32)
    for place, term in enumerate(terms):
        posted = audience.postings(term)
        if posted is not None and count:
            session = audience.column("session")[posted[0]]
            inside = session >= 0
            often = np.bincount(sessions[session[inside]], weights=posted[1][inside], minlength=count).astype(
                np.float32
            )
            there = np.nonzero(often)[0]
            lengths = np.full(len(there), session_corpus.mean_length, dtype=np.float32)
            scores[there] += term_scores(session_corpus, place, lengths, often[there])
    return scores[sessions]


def _best(audience: AudienceIndex, vector: Vector | None) -> Floats:
    """The highest cosine of each session in an index."""
    sessions, count = _real_sessions(audience)
    highest = np.full(count, -1, dtype=np.float32)
    session = audience.column("session")
    there = (session >= 0) & audience.column("has_vector")
    if vector is not None and there.any():
        np.maximum.at(highest, sessions[session[there]], audience.vectors[there] @ vector)
    return highest[sessions]


def _counts(shares: Sequence[float], size: int) -> tuple[int, ...]:
    return tuple(round(share * size) for share in shares)


def _spread_of_terms(shares: Sequence[float]) -> Spread:
    """The spread of a sum over terms that occur independently, each once in a text of mean length."""
    weights = [(share, term_weight(share)) for share in shares if share > 0]
    mean = sum(share * worth for share, worth in weights)
    return Spread(mean, math.sqrt(sum(share * (1 - min(1.0, share)) * worth**2 for share, worth in weights)))


def _cosines(stats: CorpusStats, search: ActiveSearch) -> Floats:
    """The cosines of the memories in the sample that the filters leave; of the whole sample if these are too few."""
    if search.vector is None:
        return np.zeros(0, dtype=np.float32)
    known, vectors = stats.sample.column("has_vector"), stats.sample.vectors
    chosen = filter_mask(stats.sample, search.request, search.now) & known
    found: Vector = vectors[chosen if np.count_nonzero(chosen) >= _ENOUGH else known] @ search.vector
    return found


def _highest(cosines: Floats, length: int) -> Spread:
    """The spread of the highest cosine in a session of this length, by resampling."""
    if not cosines.size:
        return Spread(0.0, 0.0)
    chance = np.random.default_rng(length)
    return Spread.of(cosines[chance.integers(0, cosines.size, (200, max(1, length)))].max(axis=1))
