"""How things stand in what a store searches by itself, estimated from some memories drawn by chance, so that candidates
can be ranked as if everything else stood beside them."""

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
from .selection import ActiveSearch, chosen_of

COMMON = 8
"""A term that so many of those drawn have is common: how often it occurs is estimated, and it is not looked up."""
_ENOUGH = 30
"""Those drawn that a filter must leave for it to say how things stand among them."""


class CorpusStats(NamedTuple):
    """What is searched: about how many memories, some of them drawn by chance, and how many episodes a session has."""

    size: int
    drawn: AudienceIndex
    talk: float

    @property
    def length(self) -> float:
        """The mean length of a text."""
        lengths = self.drawn.column("length")
        return float(lengths.mean()) if lengths.size else 1.0

    def hits(self, term: int) -> int:
        """How many of those drawn have a term."""
        found = self.drawn.postings(term)
        return 0 if found is None else len(found[0])

    def share(self, term: int) -> float:
        """Which part of all memories has a term, about; more than none."""
        return (self.hits(term) + 0.5) / (self.drawn.size + 1)

    def left(self, asked: ActiveSearch) -> float:
        """Which part of all memories the filters leave, about; more than none."""
        chosen = np.count_nonzero(chosen_of(self.drawn, asked.wanted, asked.now))
        return 1.0 if chosen == self.drawn.size else (chosen + 0.5) / (self.drawn.size + 1)

    def turns(self) -> float:
        """Which part of all memories are episodes."""
        return float((self.drawn.column("session") >= 0).mean()) if self.drawn.size else 0.0


def weight(share: float) -> float:
    """What a term counts that this part of all memories has: the rarity of BM25."""
    return math.log(1 + (1 - min(share, 1.0)) / max(share, 1e-9))


def held_by(
    standing: CorpusStats, terms: Sequence[int], counted: Mapping[int, int], ranked: Sequence[AudienceIndex]
) -> tuple[int, ...]:
    """How many memories have each term: counted where the store did (by place), else estimated; not fewer than are
    ranked, of which some may be newer than what the store looked at."""
    found = []
    for place, term in enumerate(terms):
        about = counted[place] if place in counted else max(1, round(standing.size * standing.share(term)))
        posted = [audience.postings(term) for audience in ranked]
        found.append(max(about, sum(len(one[0]) for one in posted if one is not None)))
    return tuple(found)


def measures_of(
    standing: CorpusStats, asked: ActiveSearch, held: tuple[int, ...], ranked: Sequence[AudienceIndex]
) -> Measures:
    """How things stand for a question, and the sessions of what is ranked."""
    beside = 1 + 2 * standing.turns()
    shares = [count / max(1, standing.size) for count in held]
    near_shares = [1 - (1 - min(1.0, share)) ** beside for share in shares]
    own = Corpus(standing.size, standing.length, held)
    near = Corpus(standing.size, standing.length * beside, _counts(near_shares, standing.size))
    cosines = _cosines(standing, asked)
    talk = max(1.0, standing.talk)
    talks = max(1, round(standing.size * standing.turns() / talk))
    told_in = [1 - (1 - min(1.0, share)) ** talk for share in shares]
    told = Corpus(talks, standing.length * talk, _counts(told_in, talks))
    substance = standing.drawn.column("substance")[standing.drawn.column("session") >= 0]
    return Measures(
        own=own,
        near=near,
        words=_of_terms(shares),
        near_words=_of_terms(near_shares),
        meaning=Spread.of(cosines),
        session_meaning=_highest(cosines, round(talk)),
        substance=float(substance.mean()) if substance.size else 0.0,
        speakers=speaker_shares([standing.drawn]),
        session_words=[_told(audience, asked.question.terms, told) for audience in ranked],
        session_best=[_best(audience, asked.vector) for audience in ranked],
    )


def real_session(name: str) -> str:
    """The session of an episode that stands in a run of its own."""
    return name.split("\0")[0]


def _talks(audience: AudienceIndex) -> tuple[NDArray[np.intp], int]:
    """Which talk each session of what is ranked is a run of, and how many talks there are."""
    names = NameTable()
    talks = np.array([names.number(real_session(name)) for name in audience.sessions.names], dtype=np.intp)
    return talks, len(names.names)


def _told(audience: AudienceIndex, terms: Sequence[int], told: Corpus) -> Floats:
    """BM25 of the sessions of what is ranked, by what is known of their words: what is ranked."""
    talks, count = _talks(audience)
    scores = np.zeros(count, dtype=np.float32)
    for place, term in enumerate(terms):
        posted = audience.postings(term)
        if posted is not None and count:
            session = audience.column("session")[posted[0]]
            inside = session >= 0
            often = np.bincount(talks[session[inside]], weights=posted[1][inside], minlength=count).astype(np.float32)
            there = np.nonzero(often)[0]
            lengths = np.full(len(there), told.length, dtype=np.float32)
            scores[there] += term_scores(told, place, lengths, often[there])
    return scores[talks]


def _best(audience: AudienceIndex, vector: Vector | None) -> Floats:
    """The highest cosine of each session of what is ranked."""
    talks, count = _talks(audience)
    highest = np.full(count, -1, dtype=np.float32)
    session = audience.column("session")
    there = (session >= 0) & audience.column("has_vector")
    if vector is not None and there.any():
        np.maximum.at(highest, talks[session[there]], audience.vectors[there] @ vector)
    return highest[talks]


def _counts(shares: Sequence[float], size: int) -> tuple[int, ...]:
    return tuple(round(share * size) for share in shares)


def _of_terms(shares: Sequence[float]) -> Spread:
    """Of a sum over terms that occur independently of each other, each once in a text of mean length."""
    weights = [(share, weight(share)) for share in shares if share > 0]
    mean = sum(share * worth for share, worth in weights)
    return Spread(mean, math.sqrt(sum(share * (1 - min(1.0, share)) * worth**2 for share, worth in weights)))


def _cosines(standing: CorpusStats, asked: ActiveSearch) -> Floats:
    """Of those drawn that the filters leave; of all, if those are too few to tell."""
    if asked.vector is None:
        return np.zeros(0, dtype=np.float32)
    known, vectors = standing.drawn.column("has_vector"), standing.drawn.vectors
    chosen = chosen_of(standing.drawn, asked.wanted, asked.now) & known
    found: Vector = vectors[chosen if np.count_nonzero(chosen) >= _ENOUGH else known] @ asked.vector
    return found


def _highest(cosines: Floats, talk: int) -> Spread:
    """Of the highest in a session of so many, as if they were drawn anew."""
    if not cosines.size:
        return Spread(0.0, 0.0)
    chance = np.random.default_rng(talk)
    return Spread.of(cosines[chance.integers(0, cosines.size, (200, max(1, talk)))].max(axis=1))
