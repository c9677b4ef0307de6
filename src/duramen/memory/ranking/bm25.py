"""BM25 over indexes, for memories, for memories with their neighbours, and for sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..index.audience_index import AudienceIndex
from .measures import Corpus, Floats, Measures

K1 = 0.9
B = 0.4


class Hits(NamedTuple):
    """Where a term occurs in an index, and how often at each place."""

    places: NDArray[np.intp]
    counts: Floats


class Documents(NamedTuple):
    """The texts of several indexes (memories, or sessions): statistics, lengths, and where each term occurs."""

    corpus: Corpus
    lengths: Sequence[Floats]
    hits: Sequence[Sequence[Hits]]
    """For each term, for each index."""

    @classmethod
    def of(
        cls, count: int, lengths: Sequence[Floats], hits: Sequence[Sequence[Hits]], corpus: Corpus | None = None
    ) -> Documents:
        """Documents with the given statistics. Without `corpus`, these documents are the whole corpus."""
        if corpus is None:
            total = sum(float(length.sum()) for length in lengths)
            held = tuple(sum(len(found.places) for found in term) for term in hits)
            corpus = Corpus(count, total / count if count and total else 1.0, held)
        return cls(corpus, lengths, hits)

    def rarity(self, term: int) -> float:
        """The weight of a term: high where few texts have it, never below zero."""
        return rarity(self.corpus, term)

    def coverage(self) -> list[Floats]:
        """The share of the question's terms that each text has, from 0 to 1; rare terms count more."""
        weights = [1 + self.rarity(term) for term in range(len(self.hits))]
        covered = [np.zeros(len(lengths), dtype=np.float32) for lengths in self.lengths]
        for weight, term in zip(weights, self.hits, strict=True):
            for cover, hits in zip(covered, term, strict=True):
                cover[hits.places] += np.float32(weight / (sum(weights) or 1.0))
        return covered

    def scores(self) -> list[Floats]:
        """The score of each text, for each index; 0 where no term occurs."""
        scores = [np.zeros(len(lengths), dtype=np.float32) for lengths in self.lengths]
        for number, term in enumerate(self.hits):
            for score, lengths, (places, counts) in zip(scores, self.lengths, term, strict=True):
                score[places] += term_scores(self.corpus, number, lengths[places], counts)
        return scores


def rarity(corpus: Corpus, term: int) -> float:
    """The weight of a term: high where few texts have it, never below zero."""
    held = min(corpus.frequencies[term], corpus.count)
    return math.log(1 + (corpus.count - held + 0.5) / (held + 0.5))


def term_scores(corpus: Corpus, term: int, lengths: Floats, counts: Floats) -> Floats:
    """The share of one term in the scores of texts with these lengths and term counts."""
    norm = K1 * (1 - B + B * lengths / corpus.mean_length)
    scores = np.float32(rarity(corpus, term)) * counts * np.float32(K1 + 1) / (counts + norm)
    return scores.astype(np.float32, copy=False)


_NOWHERE = Hits(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.float32))


def _hits(audience: AudienceIndex, term: int) -> Hits:
    found = audience.postings(term)
    return _NOWHERE if found is None else Hits(found[0].astype(np.intp), found[1].astype(np.float32))


class WordScores(NamedTuple):
    """BM25 scores for each index: of memories by their own words, of memories with their neighbours' words (`near`),
    and of sessions. `coverage` is the share of the question that each memory covers. Session scores are by session, the
    others by place. `corpora` are the statistics of memories, and of memories with their neighbours."""

    own: list[Floats]
    near: list[Floats]
    sessions: list[Floats]
    coverage: list[Floats]
    corpora: tuple[Corpus, Corpus]


def word_scores(
    audiences: Sequence[AudienceIndex], terms: Sequence[int], measures: Measures | None = None, *, coverage: bool = True
) -> WordScores:
    """The word scores of indexes for these terms. Without `measures`, the indexes are the whole corpus."""
    own = [[_hits(audience, term) for audience in audiences] for term in terms]
    lengths = [audience.column("length") * audience.column("alive") for audience in audiences]
    count = sum(audience.count() for audience in audiences)
    each = Documents.of(count, lengths, own, None if measures is None else measures.own)
    scores, with_neighbours = each.scores(), each
    near_scores = scores
    if any(audience.sessions.names for audience in audiences):
        near = [[_near(audience, hits) for audience, hits in zip(audiences, found, strict=True)] for found in own]
        near_lengths = [_near_lengths(audience, length) for audience, length in zip(audiences, lengths, strict=True)]
        with_neighbours = Documents.of(count, near_lengths, near, None if measures is None else measures.near)
        near_scores = with_neighbours.scores()
    sessions_scores = _session_scores(audiences, own, lengths) if measures is None else list(measures.session_words)
    return WordScores(
        scores, near_scores, sessions_scores, each.coverage() if coverage else [], (each.corpus, with_neighbours.corpus)
    )


def session_scores(audiences: Sequence[AudienceIndex], terms: Sequence[int]) -> list[Floats]:
    """The BM25 scores of sessions for these terms, for each index."""
    if not any(audience.sessions.names for audience in audiences):
        return [np.zeros(0, dtype=np.float32) for _ in audiences]
    lengths = [audience.column("length") * audience.column("alive") for audience in audiences]
    return _session_scores(audiences, [[_hits(audience, term) for audience in audiences] for term in terms], lengths)


def _session_scores(
    audiences: Sequence[AudienceIndex], own: Sequence[Sequence[Hits]], lengths: Sequence[Floats]
) -> list[Floats]:
    if not any(audience.sessions.names for audience in audiences):
        return [np.zeros(0, dtype=np.float32) for _ in audiences]
    hits = [[_session_hits(audience, hits) for audience, hits in zip(audiences, found, strict=True)] for found in own]
    session_lengths = [_session_lengths(audience, length) for audience, length in zip(audiences, lengths, strict=True)]
    sessions = sum(int(np.count_nonzero(length)) for length in session_lengths)
    return Documents.of(sessions, session_lengths, hits).scores()


def _near(audience: AudienceIndex, hits: Hits) -> Hits:
    """The hits if each text is read together with its two neighbours."""
    if not len(hits.places) or not audience.sessions.names:
        return hits
    spread = np.zeros(audience.size, dtype=np.float32)
    spread[hits.places] = hits.counts
    for side in ("before", "after"):
        with_neighbours = audience.column(side)[hits.places]
        there = with_neighbours >= 0
        # A text has one neighbour on each side, so no place occurs twice here.
        spread[with_neighbours[there]] += hits.counts[there]
    places = np.nonzero(spread)[0]
    return Hits(places, spread[places])


def _near_lengths(audience: AudienceIndex, lengths: Floats) -> Floats:
    if not audience.sessions.names:
        return lengths
    before, after = audience.column("before"), audience.column("after")
    return lengths + np.where(before >= 0, lengths[before], 0) + np.where(after >= 0, lengths[after], 0)


def _session_hits(audience: AudienceIndex, hits: Hits) -> Hits:
    sessions = audience.column("session")[hits.places]
    inside = sessions >= 0
    counts = np.bincount(sessions[inside], weights=hits.counts[inside], minlength=len(audience.sessions.names))
    places = np.nonzero(counts)[0]
    return Hits(places, counts[places].astype(np.float32))


def _session_lengths(audience: AudienceIndex, lengths: Floats) -> Floats:
    sessions = audience.column("session")
    inside = sessions >= 0
    return np.bincount(sessions[inside], weights=lengths[inside], minlength=len(audience.sessions.names)).astype(
        np.float32
    )
