"""BM25 over pools: of memories, of memories with their neighbours, and of sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .pools import Pool

Floats = NDArray[np.float32]
K1 = 0.9
B = 0.4


class Hits(NamedTuple):
    """Where one term occurs in one pool, and how often in each."""

    places: NDArray[np.intp]
    counts: Floats


class Documents(NamedTuple):
    """Texts of one sort over several pools: how many there are, how long each is, and where each term occurs."""

    count: int  # type: ignore[assignment]  # of texts, not the method of tuples
    lengths: Sequence[Floats]
    hits: Sequence[Sequence[Hits]]
    """For each term, for each pool."""

    def rarity(self, term: int) -> float:
        """The weight of a term: high where few texts have it, never below zero."""
        held = sum(len(hits.places) for hits in self.hits[term])
        return math.log(1 + (self.count - held + 0.5) / (held + 0.5))

    def coverage(self) -> list[Floats]:
        """How much of what is asked for each text has, from 0 to 1; rare terms count for more."""
        weights = [1 + self.rarity(term) for term in range(len(self.hits))]
        covered = [np.zeros(len(lengths), dtype=np.float32) for lengths in self.lengths]
        for weight, term in zip(weights, self.hits, strict=True):
            for cover, hits in zip(covered, term, strict=True):
                cover[hits.places] += np.float32(weight / (sum(weights) or 1.0))
        return covered

    def scores(self) -> list[Floats]:
        """The score of each text, pool by pool; 0 where no term occurs."""
        total = sum(float(lengths.sum()) for lengths in self.lengths)
        mean = total / self.count if self.count and total else 1.0
        scores = [np.zeros(len(lengths), dtype=np.float32) for lengths in self.lengths]
        for number, term in enumerate(self.hits):
            rarity = self.rarity(number)
            for score, lengths, (places, counts) in zip(scores, self.lengths, term, strict=True):
                norm = K1 * (1 - B + B * lengths[places] / mean)
                score[places] += np.float32(rarity) * counts * np.float32(K1 + 1) / (counts + norm)
        return scores


_NOWHERE = Hits(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.float32))


def _hits(pool: Pool, term: int) -> Hits:
    found = pool.postings(term)
    return _NOWHERE if found is None else Hits(found[0].astype(np.intp), found[1].astype(np.float32))


class WordScores(NamedTuple):
    """The scores of the memories' own words, of their words with their neighbours' and of their sessions', and how much
    of the question each memory has; those of sessions by session, the others by place."""

    own: list[Floats]
    near: list[Floats]
    told: list[Floats]
    coverage: list[Floats]


def word_scores(pools: Sequence[Pool], terms: Sequence[int]) -> WordScores:
    """How well the words of some pools fit some terms."""
    own = [[_hits(pool, term) for pool in pools] for term in terms]
    lengths = [pool.column("length") * pool.column("alive") for pool in pools]
    count = sum(pool.count() for pool in pools)
    near = [[_near(pool, hits) for pool, hits in zip(pools, found, strict=True)] for found in own]
    near_lengths = [_near_lengths(pool, length) for pool, length in zip(pools, lengths, strict=True)]
    told = [[_of_session(pool, hits) for pool, hits in zip(pools, found, strict=True)] for found in own]
    session_lengths = [_session_lengths(pool, length) for pool, length in zip(pools, lengths, strict=True)]
    sessions = sum(int(np.count_nonzero(length)) for length in session_lengths)
    each = Documents(count, lengths, own)
    return WordScores(
        each.scores(),
        Documents(count, near_lengths, near).scores(),
        Documents(sessions, session_lengths, told).scores(),
        each.coverage(),
    )


def _near(pool: Pool, hits: Hits) -> Hits:
    """The same hits where each text is read with the one before and the one after it."""
    if not len(hits.places) or not pool.sessions.names:
        return hits
    spread = np.zeros(pool.size, dtype=np.float32)
    spread[hits.places] = hits.counts
    for side in ("before", "after"):
        beside = pool.column(side)[hits.places]
        there = beside >= 0
        spread[beside[there]] += hits.counts[there]  # each text has one neighbour on a side: no place comes twice
    places = np.nonzero(spread)[0]
    return Hits(places, spread[places])


def _near_lengths(pool: Pool, lengths: Floats) -> Floats:
    if not pool.sessions.names:
        return lengths
    before, after = pool.column("before"), pool.column("after")
    return lengths + np.where(before >= 0, lengths[before], 0) + np.where(after >= 0, lengths[after], 0)


def _of_session(pool: Pool, hits: Hits) -> Hits:
    sessions = pool.column("session")[hits.places]
    inside = sessions >= 0
    counts = np.bincount(sessions[inside], weights=hits.counts[inside], minlength=len(pool.sessions.names))
    places = np.nonzero(counts)[0]
    return Hits(places, counts[places].astype(np.float32))


def _session_lengths(pool: Pool, lengths: Floats) -> Floats:
    sessions = pool.column("session")
    inside = sessions >= 0
    return np.bincount(sessions[inside], weights=lengths[inside], minlength=len(pool.sessions.names)).astype(np.float32)
