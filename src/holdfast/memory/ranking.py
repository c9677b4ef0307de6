"""The ranking of recall: parts of a score, their weights and how they are fused. Pure: no store, no clock.

A part is one reason why a memory may answer a question: its words, its meaning, what stands next to it, who said it,
when. Words and meaning are standardised over what is searched (mean 0, deviation 1), so that a score of one can be
weighed against a score of the other; ranks would throw away how far apart they are. Every part is kept, so that a score
can be explained, and the sum of the parts is the score.

Parts that a memory has nothing for are 0: a fact has no neighbours, a store without an embedder has no meaning, and the
rest goes on working.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bm25 import word_scores
from .measures import Floats, Measures, Spread
from .names import is_about
from .pools import Pool
from .times import Span, closeness, spans
from .traces import READ_UPTO, TIMES_CAP, Vector
from .words import number_of, query_terms

Chosen = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Weights:
    """What each part counts: the one place where it is said. Round on purpose; measured by bench/recall.py.

    Words and meaning are in standard deviations of what is searched; the others are in the unit named beside them.
    """

    words: float = 0.2
    """The memory's own words (BM25)."""
    near_words: float = 0.2
    """Words of the memory and of the one before and after it, read as one text: an answer rarely repeats them."""
    meaning: float = 0.6
    """Cosine of the vectors."""
    neighbours: float = 0.3
    """Of the mean relevance (the three above) of the memories before and after."""
    answer: float = 0.4
    """Of the relevance of the one before, where that is another speaker's question: this is its answer."""
    session_words: float = 0.2
    """BM25 of the whole session among the sessions, not standardised: no session matching must count nothing."""
    session_meaning: float = 0.2
    """The session's best vector, standardised."""
    speaker: float = 2.0
    """Said by the person asked about, times twice that person's share of the pool, at most 1: in a talk of two
    people tell of themselves, in a crowd they are mostly told of."""
    substance: float = 0.6
    """For each natural logarithm of a turn's different words that carry meaning above the mean of the turns: talk has
    filler, and "Thanks!" answers nothing. Facts are never filler: 0."""
    time: float = 2.0
    """Nearness (0 to 1) of the memory's times to those that the question names."""
    dated: float = 1.0
    """The question asks for a time and the text names one."""
    importance: float = 0.5
    """For each point of importance above or below the middle (0.5)."""
    recency: float = 0.05
    """Newness (1 now, half after `half_life_days`): decides between equals, so it is small."""
    access: float = 0.05
    """For each natural logarithm of the times that it was recalled."""
    half_life_days: float = 90.0


DEFAULT = Weights()
_ASKS_TIME = re.compile(
    r"^\W*(?:(?:in|on|since|until|by|at)\s+)?"
    r"(?:when|how long|(?:what|which)\s+(?:year|month|day|date|time|season|week))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question as it is searched: its terms, the days that it names, and whether it asks for a time."""

    text: str
    terms: tuple[int, ...]
    asked: tuple[Span, ...]
    asks_time: bool
    on: date

    @classmethod
    def read(cls, text: str, on: date) -> Question:
        """Read a question that is asked on the day `on`."""
        text = text[:READ_UPTO]
        terms = tuple(number_of(term) for term in query_terms(text))
        return cls(text, terms, spans(text, on)[:TIMES_CAP], _ASKS_TIME.search(text) is not None, on)


class Ranked:
    """Scores over several pools in a row, and the parts whose sum they are."""

    def __init__(
        self, pools: Sequence[Pool], chosen: Chosen, parts: Mapping[str, Floats], likeness: Floats | None = None
    ) -> None:
        self._pools, self._chosen, self.parts = pools, chosen, parts
        self.likeness: Floats = np.zeros(len(chosen), dtype=np.float32) if likeness is None else likeness
        """From 0 to 1: how near the meaning is, or how much of the question's words are there."""
        self._starts = list(accumulate((pool.size for pool in pools), initial=0))
        self.scores: Floats = np.sum(list(parts.values()), axis=0) if len(chosen) else np.zeros(0, dtype=np.float32)

    def best(self, limit: int, least: float = 0.0) -> list[int]:
        """The best of what was searched and has that likeness, highest first; of equals the newer one, whatever the
        store."""
        places = np.nonzero(self._chosen & (self.likeness >= least) if least else self._chosen)[0]
        if len(places) > limit:
            lowest = np.partition(self.scores[places], len(places) - limit)[len(places) - limit]
            places = places[self.scores[places] >= lowest]
        ordered = sorted(places.tolist(), key=self._order)
        return ordered[:limit]

    def _order(self, index: int) -> tuple[float, int, int]:
        # By number at last: ids are hashes under a salt, which order the same things differently in every store.
        pool, place = self.place(index)
        return (-round(float(self.scores[index]), 5), -int(pool.column("begins")[place]), -self.number(index))

    def place(self, index: int) -> tuple[Pool, int]:
        """The pool and the place of a score."""
        which = bisect_right(self._starts, index) - 1
        return self._pools[which], index - self._starts[which]

    def number(self, index: int) -> int:
        """The number of the memory of a score."""
        pool, place = self.place(index)
        return int(pool.column("number")[place])

    def spread(self, order: Sequence[int], limit: int, diversity: float) -> list[int]:
        """Of the best, those that say different things: each is measured against the ones before it."""
        if not order:
            return []
        left, taken = list(order), [order[0]]
        vectors = {index: pool.vectors[place] for index in order for pool, place in [self.place(index)]}
        left.remove(order[0])
        while left and len(taken) < limit:
            chosen = np.array([vectors[index] for index in taken])
            alike = {index: float((chosen @ vectors[index]).max()) if chosen.size else 0.0 for index in left}
            best = max(left, key=lambda index: (float(self.scores[index]) - 2 * diversity * alike[index], -index))
            left.remove(best)
            taken.append(best)
        return taken

    def explain(self, index: int) -> dict[str, float]:
        """Every part of one score that is not 0, the largest first."""
        parts = {name: float(values[index]) for name, values in self.parts.items() if values[index]}
        return dict(sorted(parts.items(), key=lambda item: -abs(item[1])))


def rank(
    question: Question,
    pools: Sequence[Pool],
    chosen: Sequence[Chosen],
    vector: Vector | None = None,
    weights: Weights = DEFAULT,
    measures: Measures | None = None,
) -> Ranked:
    """Score every chosen memory of the pools for the question; `vector` is the question's, of length 1. Without
    `measures` they are all that is searched; with them they are candidates, and what stands beside those: then the
    pools hold more than is chosen, and only what they hold counts for its neighbours."""
    searched = _Searched(pools, np.concatenate(chosen) if chosen else np.zeros(0, dtype=bool), measures)
    if not searched.chosen.any():
        return Ranked(pools, searched.chosen, {})
    words = word_scores(pools, question.terms, measures)
    own = searched.standardised("words", np.concatenate(words.own))
    near = searched.standardised("near_words", np.concatenate(words.near))
    relevance = {"words": weights.words * own, "near_words": weights.near_words * near}
    likeness = np.concatenate(words.coverage)
    cosines = None if vector is None else searched.each(lambda pool: pool.vectors @ vector)
    if cosines is not None:
        known = searched.column("known")
        relevance["meaning"] = weights.meaning * searched.standardised("meaning", cosines, known)
        # What has no vector yet must not fall behind for that: its words stand for its meaning.
        relevance["words"] += np.where(known, np.float32(0), weights.meaning * own).astype(np.float32)
        likeness = np.clip(np.maximum(likeness, cosines), 0, 1)
    parts = (
        relevance
        | _neighbourhood(np.sum(list(relevance.values()), axis=0), searched, weights)
        | _session_parts(words.told, cosines, searched, weights)
        | _own_parts(question, searched, weights)
    )
    return Ranked(pools, searched.chosen, parts, likeness)


class _Searched:
    """What is searched: pools in a row, which of their memories, and what those are measured against."""

    def __init__(self, pools: Sequence[Pool], chosen: Chosen, measures: Measures | None) -> None:
        self.pools, self.chosen, self.measures = pools, chosen, measures
        self.starts = np.cumsum([0, *(pool.size for pool in pools)])

    def each(self, work: Callable[[Pool], NDArray[Any]]) -> NDArray[Any]:
        """One value for each place, over all pools."""
        return np.concatenate([work(pool) for pool in self.pools])

    def column(self, name: str) -> NDArray[Any]:
        return self.each(lambda pool: pool.column(name))

    def places(self, name: str) -> NDArray[np.int64]:
        """A column of places, as places in the row of all pools; negative where there is none."""
        moved = [
            np.where(column >= 0, column + start, -1)
            for column, start in zip((pool.column(name) for pool in self.pools), self.starts[:-1], strict=True)
        ]
        return np.concatenate(moved)

    def standardised(self, part: str, values: Floats, known: Chosen | None = None) -> Floats:
        """Mean 0 and deviation 1 over what is searched and known; 0 elsewhere, and where every value is the same."""
        if self.measures is not None:
            spread: Spread = getattr(self.measures, part)
        else:
            spread = Spread.of(values[self.chosen if known is None else self.chosen & known])
        scores = spread.standardised(values)
        return scores if known is None else np.where(known, scores, np.float32(0))


def _neighbourhood(relevance: Floats, searched: _Searched, weights: Weights) -> dict[str, Floats]:
    before, after = searched.places("before"), searched.places("after")
    earlier, later = _taken(relevance, before), _taken(relevance, after)
    count = np.maximum(1, (before >= 0).astype(np.float32) + (after >= 0))
    return {
        "neighbours": weights.neighbours * (earlier + later) / count,
        "answer": weights.answer * earlier * searched.column("answers"),
    }


def _session_parts(
    told: Sequence[Floats], cosines: Floats | None, searched: _Searched, weights: Weights
) -> dict[str, Floats]:
    def by_session(values: Sequence[Floats]) -> Floats:
        rows = zip(values, searched.pools, strict=True)
        return np.concatenate([_taken(scores, pool.column("session")) for scores, pool in rows])

    parts: dict[str, Floats] = {"session_words": np.float32(weights.session_words) * by_session(told)}
    inside = searched.column("session") >= 0
    if cosines is not None and inside.any():
        best = _best_cosines(searched, cosines) if searched.measures is None else searched.measures.session_best
        told_of = searched.standardised("session_meaning", by_session(best), inside)
        parts["session_meaning"] = weights.session_meaning * told_of
    return parts


def _best_cosines(searched: _Searched, cosines: Floats) -> list[Floats]:
    """The highest cosine of each session, pool by pool."""
    best = []
    for pool, start in zip(searched.pools, searched.starts[:-1], strict=True):
        session = pool.column("session")
        there = (session >= 0) & pool.column("known")
        highest = np.full(len(pool.sessions.names), -1, dtype=np.float32)
        np.maximum.at(highest, session[there], cosines[start : start + pool.size][there])
        best.append(highest)
    return best


def _own_parts(question: Question, searched: _Searched, weights: Weights) -> dict[str, Floats]:
    turns = searched.column("session") >= 0
    substance = searched.column("substance")
    counted = turns & searched.chosen
    mean = float(substance[counted].mean()) if counted.any() else 0.0
    if searched.measures is not None:
        mean = searched.measures.substance
    return {
        "speaker": np.float32(weights.speaker) * _asked_about(question, searched),
        "substance": np.where(turns, weights.substance * (substance - mean), 0).astype(np.float32),
        "time": weights.time * _nearness(question, searched),
        "dated": np.float32(weights.dated * question.asks_time) * searched.column("names_time"),
        "importance": weights.importance * (searched.column("importance") - 0.5),
        "recency": weights.recency
        * searched.each(lambda pool: np.float32(0.5) ** (pool.days(question.on) / weights.half_life_days)),
        "access": weights.access * np.log1p(searched.column("recalled")),
    }


def _asked_about(question: Question, searched: _Searched) -> Floats:
    """1 where the speaker is asked about, less where that is a small part of what is searched."""
    shares = speaker_shares(searched.pools) if searched.measures is None else searched.measures.speakers
    weight = {name: min(1.0, 2 * share) for name, share in shares.items() if is_about(question.text, name)}
    if not weight:
        return np.zeros(len(searched.chosen), dtype=np.float32)

    def of(pool: Pool) -> Floats:
        weights = np.array([weight.get(name, 0.0) for name in pool.speakers.names], dtype=np.float32)
        return _taken(weights, pool.column("speaker"))

    return searched.each(of)


def speaker_shares(pools: Sequence[Pool]) -> dict[str, float]:
    """Which part of the living memories of some pools each speaker said."""
    said: dict[str, int] = {}
    for pool in pools:
        counts = np.bincount(pool.column("speaker")[pool.column("alive")] + 1, minlength=len(pool.speakers.names) + 1)
        for name, count in zip(pool.speakers.names, counts[1:].tolist(), strict=True):
            said[name] = said.get(name, 0) + count
    everything = max(1, sum(pool.count() for pool in pools))
    return {name: count / everything for name, count in said.items()}


def _nearness(question: Question, searched: _Searched) -> Floats:
    nearness = np.zeros(len(searched.chosen), dtype=np.float32)
    if question.asked:
        told = [spans for pool in searched.pools for spans in pool.told]
        for index in np.nonzero(searched.chosen)[0].tolist():
            nearness[index] = closeness(question.asked, told[index])
    return nearness


def _taken(values: Floats, places: NDArray[Any]) -> Floats:
    """`values[places]`, and 0 where a place is negative."""
    if not len(values):
        return np.zeros(len(places), dtype=np.float32)
    return np.where(places >= 0, values[places], np.float32(0))
