"""Ranks memories for a question. Pure functions: no store, no clock.

A part of a score is one reason why a memory may answer the question: its words, its meaning, its neighbours, who said
it, when. Words and meaning are standardised over everything that is searched (mean 0, deviation 1), so that they can be
weighted against each other. Ranks are not used, because they lose the distance between scores. A score is the sum of
its parts. All parts are returned, so that a score can be explained.

A part that does not apply to a memory is 0: a fact has no neighbours, and without an embedder there is no meaning.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..extraction.dates import Span, closeness, spans
from ..extraction.names import is_about
from ..extraction.words import number_of, query_terms
from ..index.audience_index import AudienceIndex
from ..index.index_entry import READ_UPTO, TIMES_CAP, Vector
from .bm25 import WordScores, word_scores
from .measures import Floats, Measures, Spread
from .weights import DEFAULT as DEFAULT
from .weights import Weights as Weights

Chosen = NDArray[np.bool_]


_ASKS_TIME = re.compile(
    r"^\W*(?:(?:in|on|since|until|by|at)\s+)?"
    r"(?:when|how long|(?:what|which)\s+(?:year|month|day|date|time|season|week))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Question:
    """A parsed question: its terms, the dates that it names, and whether it asks for a time."""

    text: str
    terms: tuple[int, ...]
    dates: tuple[Span, ...]
    asks_time: bool
    on: date

    @classmethod
    def parse(cls, text: str, on: date) -> Question:
        """Parse a question that is asked on the day `on`."""
        text = text[:READ_UPTO]
        terms = tuple(number_of(term) for term in query_terms(text))
        return cls(text, terms, spans(text, on)[:TIMES_CAP], _ASKS_TIME.search(text) is not None, on)


class Ranked:
    """The scores of the memories of several indexes, in sequence, and the parts that add up to them."""

    def __init__(
        self,
        audiences: Sequence[AudienceIndex],
        chosen: Chosen,
        parts: Mapping[str, Floats],
        likeness: Floats | None = None,
        measures: Measures | None = None,
    ) -> None:
        self.measures = measures
        """What the scores were measured against; None if nothing was searched."""
        self._audiences, self._chosen, self.parts = audiences, chosen, parts
        self.likeness: Floats = np.zeros(len(chosen), dtype=np.float32) if likeness is None else likeness
        """From 0 to 1: how close the meaning is, or how many of the question's words a memory has."""
        self._starts = list(accumulate((audience.size for audience in audiences), initial=0))
        self.scores: Floats = np.zeros(len(chosen), dtype=np.float32)
        for values in parts.values():
            if values.strides != (0,):  # else it is `nothing()`: 0 for all
                self.scores += values

    def best(self, limit: int, least: float = 0.0) -> list[int]:
        """The indexes of the best scores with a likeness of at least `least`, highest score first. Of equal scores, the
        newer memory is first. The order is the same in every store."""
        places = np.nonzero(self._chosen & (self.likeness >= least) if least else self._chosen)[0]
        if len(places) > limit:
            lowest = np.partition(self.scores[places], len(places) - limit)[len(places) - limit]
            places = places[self.scores[places] >= lowest]
        ordered = sorted(places.tolist(), key=self._order)
        return ordered[:limit]

    def _order(self, index: int) -> tuple[float, int, int]:
        # The last criterion is the number, not the id: ids are salted hashes and sort differently in every store.
        audience, place = self.place(index)
        return (-round(float(self.scores[index]), 5), -int(audience.column("begins")[place]), -self.number(index))

    def place(self, index: int) -> tuple[AudienceIndex, int]:
        """The index and the place of a score."""
        which = bisect_right(self._starts, index) - 1
        return self._audiences[which], index - self._starts[which]

    def number(self, index: int) -> int:
        """The number of the memory of a score."""
        audience, place = self.place(index)
        return int(audience.column("number")[place])

    def spread(self, order: Sequence[int], limit: int, diversity: float) -> list[int]:
        """A diverse selection from the best scores. A memory that is similar to one selected before it loses score."""
        if not order:
            return []
        left, taken = list(order), [order[0]]
        vectors = {index: audience.vectors[place] for index in order for audience, place in [self.place(index)]}
        left.remove(order[0])
        while left and len(taken) < limit:
            chosen = np.array([vectors[index] for index in taken])
            alike = {index: float((chosen @ vectors[index]).max()) if chosen.size else 0.0 for index in left}
            best = max(left, key=lambda index: (float(self.scores[index]) - 2 * diversity * alike[index], -index))
            left.remove(best)
            taken.append(best)
        return taken

    def explain(self, index: int) -> dict[str, float]:
        """The parts of one score that are not 0, largest absolute value first."""
        parts = {name: float(values[index]) for name, values in self.parts.items() if values[index]}
        return dict(sorted(parts.items(), key=lambda item: -abs(item[1])))


def rank(
    question: Question,
    audiences: Sequence[AudienceIndex],
    chosen: Sequence[Chosen],
    vector: Vector | None = None,
    weights: Weights = DEFAULT,
    measures: Measures | None = None,
    cosines: tuple[Floats, Spread | None] | None = None,
) -> Ranked:
    """Score every chosen memory of the indexes for the question. `vector` is the question's vector, of length 1.

    Without `measures`, the indexes hold everything that is searched. With them, the indexes hold candidates and their
    neighbours, and `chosen` marks the candidates. `cosines`, over all indexes, replace the cosines of the vectors.
    Their spread is given if it is already known.
    """
    searched = _Searched(audiences, np.concatenate(chosen) if chosen else np.zeros(0, dtype=bool), measures)
    if not searched.chosen.any():
        return Ranked(audiences, searched.chosen, {})
    is_rough = cosines is not None and cosines[1] is not None  # a first pass needs only the order, not the likeness
    words = word_scores(audiences, question.terms, measures, coverage=not is_rough)
    own = searched.standardised("words", np.concatenate(words.own))
    near = own
    if words.near is not words.own:
        near = searched.standardised("near_words", np.concatenate(words.near))
    relevance = {"words": weights.words * own, "near_words": weights.near_words * near}
    likeness = None if is_rough else np.concatenate(words.coverage)
    if cosines is None and vector is not None:
        cosines = searched.each(lambda audience: audience.vectors @ vector), None
    if cosines is not None:
        known = searched.column("has_vector")
        relevance["meaning"] = weights.meaning * searched.standardised("meaning", cosines[0], known, cosines[1])
        # A memory without a vector must not be at a disadvantage: its words also count as its meaning.
        if not known.all():
            relevance["words"] += np.where(known, np.float32(0), weights.meaning * own).astype(np.float32)
        if likeness is not None:
            likeness = np.clip(np.maximum(likeness, cosines[0]), 0, 1)
    sessions = _Sessions(words.sessions, None if cosines is None else cosines[0], searched)
    parts = (
        relevance
        | _neighbour_parts(relevance, searched, weights)
        | sessions.parts(weights)
        | _memory_parts(question, searched, weights)
    )
    return Ranked(audiences, searched.chosen, parts, likeness, searched.measured(words, sessions))


class _Searched:
    """The indexes in sequence, which of their memories are ranked, and the measures for these."""

    def __init__(self, audiences: Sequence[AudienceIndex], chosen: Chosen, measures: Measures | None) -> None:
        self.audiences, self.chosen, self.measures = audiences, chosen, measures
        self.inside: Chosen | None = None
        """Which memories are in a session; None if no index has sessions."""
        if any(audience.sessions.names for audience in audiences):
            self.inside = self.column("session") >= 0
        self._spreads: dict[str, Spread] = {}
        self._substance: float | None = None
        self._shares: Mapping[str, float] | None = None
        self.starts = np.cumsum([0, *(audience.size for audience in audiences)])

    def each(self, work: Callable[[AudienceIndex], NDArray[Any]]) -> NDArray[Any]:
        """One value for each place, over all indexes."""
        return np.concatenate([work(audience) for audience in self.audiences])

    def column(self, name: str) -> NDArray[Any]:
        return self.each(lambda audience: audience.column(name))

    def started(self) -> Iterator[tuple[AudienceIndex, int]]:
        """The indexes, each with its start in the sequence of all."""
        return zip(self.audiences, self.starts[:-1].tolist(), strict=True)

    def places(self, name: str) -> NDArray[np.int64]:
        """A column of places, converted to places in the sequence of all indexes; -1 where there is none."""
        moved = [
            np.where(column >= 0, column + start, -1)
            for column, start in zip(
                (audience.column(name) for audience in self.audiences), self.starts[:-1], strict=True
            )
        ]
        return np.concatenate(moved)

    def nothing(self) -> Floats:
        """0 for all places, without allocating memory."""
        return np.broadcast_to(np.float32(0), len(self.chosen))

    def standardised(
        self, part: str, values: Floats, known: Chosen | None = None, spread: Spread | None = None
    ) -> Floats:
        """Standard scores over the memories that are searched and `known`; 0 for others, and if all values are
        equal."""
        if self.measures is not None:
            spread = getattr(self.measures, part)
        elif spread is None:
            counted = self.chosen if known is None else self.chosen & known
            spread = Spread.of(values if counted.all() else values[counted])
        assert spread is not None
        self._spreads[part] = spread
        scores = spread.standardised(values)
        return scores if known is None or known.all() else np.where(known, scores, np.float32(0))

    def substance(self) -> float:
        """The mean substance of the turns."""
        if self._substance is None:
            self._substance = 0.0
            if self.measures is not None:
                self._substance = self.measures.substance
            elif self.inside is not None and (counted := self.inside & self.chosen).any():
                self._substance = float(self.column("substance")[counted].mean())
        return self._substance

    def shares(self) -> Mapping[str, float]:
        """Each speaker's share of the memories."""
        if self._shares is None:
            self._shares = speaker_shares(self.audiences) if self.measures is None else self.measures.speakers
        return self._shares

    def measured(self, words: WordScores, sessions: _Sessions) -> Measures:
        """What the scores were measured against."""
        none = Spread(0.0, 0.0)
        own = self._spreads["words"]
        return Measures(
            own=words.corpora[0],
            near=words.corpora[1],
            words=own,
            near_words=self._spreads.get("near_words", own),
            meaning=self._spreads.get("meaning", none),
            session_meaning=self._spreads.get("session_meaning", none),
            substance=self.substance(),
            speakers=self.shares(),
            session_words=words.sessions,
            session_best=sessions.best,
        )


def _neighbour_parts(relevance: Mapping[str, Floats], searched: _Searched, weights: Weights) -> dict[str, Floats]:
    if searched.inside is None:
        return {"neighbours": searched.nothing(), "answer": searched.nothing()}
    summed = np.sum(list(relevance.values()), axis=0)
    before, after = searched.places("before"), searched.places("after")
    earlier, later = _taken(summed, before), _taken(summed, after)
    count = np.maximum(1, (before >= 0).astype(np.float32) + (after >= 0))
    return {
        "neighbours": weights.neighbours * (earlier + later) / count,
        "answer": weights.answer * earlier * searched.column("is_answer"),
    }


class _Sessions:
    """The parts of scores that come from sessions: how well each session matches as a whole."""

    def __init__(self, word_scores: Sequence[Floats], cosines: Floats | None, searched: _Searched) -> None:
        self._word_scores, self._searched = word_scores, searched
        self.best: Sequence[Floats] = ()
        """The highest cosine of each session, for each index."""
        if searched.measures is not None:
            self.best = searched.measures.session_best
        elif cosines is not None:
            self.best = [self._highest(audience, cosines[start:]) for audience, start in searched.started()]

    @staticmethod
    def _highest(audience: AudienceIndex, cosines: Floats) -> Floats:
        highest = np.full(len(audience.sessions.names), -1, dtype=np.float32)
        if len(highest):
            session = audience.column("session")
            there = (session >= 0) & audience.column("has_vector")
            np.maximum.at(highest, session[there], cosines[: audience.size][there])
        return highest

    def parts(self, weights: Weights) -> dict[str, Floats]:
        searched = self._searched
        if searched.inside is None:
            return {"session_words": searched.nothing()}
        parts: dict[str, Floats] = {"session_words": np.float32(weights.session_words) * self._each(self._word_scores)}
        if self.best and searched.inside.any():
            best = searched.standardised("session_meaning", self._each(self.best), searched.inside)
            parts["session_meaning"] = weights.session_meaning * best
        return parts

    def _each(self, values: Sequence[Floats]) -> Floats:
        rows = zip(values, self._searched.audiences, strict=True)
        return np.concatenate([_taken(scores, audience.column("session")) for scores, audience in rows])


def _memory_parts(question: Question, searched: _Searched, weights: Weights) -> dict[str, Floats]:
    substance, dated = searched.nothing(), searched.nothing()
    if searched.inside is not None:
        above = weights.substance * (searched.column("substance") - searched.substance())
        substance = np.where(searched.inside, above, 0).astype(np.float32)
    if question.asks_time:
        dated = np.float32(weights.dated) * (searched.column("date_count") > 0)
    age = searched.each(lambda audience: audience.ages(question.on)) / np.float32(-weights.half_life_days)
    return {
        "speaker": _speaker_part(question, searched, weights),
        "substance": substance,
        "time": _time_part(question, searched, weights),
        "dated": dated,
        "importance": np.float32(weights.importance) * (searched.column("importance") - np.float32(0.5)),
        "recency": np.float32(weights.recency) * np.exp2(age),
        "access": _access_part(searched, weights),
    }


def _access_part(searched: _Searched, weights: Weights) -> Floats:
    recalled = searched.column("recalled")
    often = np.nonzero(recalled != 0)[0]  # much faster than `nonzero` on floats
    if not len(often):
        return searched.nothing()
    access = np.zeros(len(recalled), dtype=np.float32)
    access[often] = weights.access * np.log1p(recalled[often])
    return access


def _speaker_part(question: Question, searched: _Searched, weights: Weights) -> Floats:
    """The part for memories of a speaker that the question is about. It is smaller for a speaker with a small share of
    the memories."""
    about = {name: share for name, share in searched.shares().items() if is_about(question.text, name)}
    weight = {name: weights.speaker * min(1.0, 2 * share) for name, share in about.items()}
    if not weight:
        return searched.nothing()

    def of(audience: AudienceIndex) -> Floats:
        said = np.array([weight.get(name, 0.0) for name in audience.speakers.names], dtype=np.float32)
        return _taken(said, audience.column("speaker"))

    return searched.each(of)


def speaker_shares(audiences: Sequence[AudienceIndex]) -> dict[str, float]:
    """Each speaker's share of the memories in these indexes."""
    said: dict[str, int] = {}
    for audience in audiences:
        if not audience.speakers.names:
            continue
        counts = np.bincount(
            audience.column("speaker")[audience.column("alive")] + 1, minlength=len(audience.speakers.names) + 1
        )
        for name, count in zip(audience.speakers.names, counts[1:].tolist(), strict=True):
            said[name] = said.get(name, 0) + count
    everything = max(1, sum(audience.count() for audience in audiences)) if said else 1
    return {name: count / everything for name, count in said.items()}


def _time_part(question: Question, searched: _Searched, weights: Weights) -> Floats:
    """The part for how close the dates of a memory (its day, and those it names) are to the question's dates."""
    if not question.dates:
        return searched.nothing()
    return np.float32(weights.time) * searched.each(lambda audience: nearness(question.dates, audience))


def nearness(asked: Sequence[Span], audience: AudienceIndex) -> Floats:
    """For each place of an index, the highest `closeness` of its dates to the dates asked for."""
    day, counts = audience.column("day").astype(np.int64), audience.column("date_count").astype(np.int64)
    owners = np.repeat(np.arange(audience.size), counts)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    named = audience.named_days()[audience.column("first_date")[owners] + within].astype(np.int64)
    nearest = np.zeros(audience.size, dtype=np.float32)
    for one in asked:
        np.maximum(nearest, closeness(one, day, day), out=nearest)
        np.maximum.at(nearest, owners, closeness(one, named[:, 0], named[:, 1]))
    return nearest


def _taken(values: Floats, places: NDArray[Any]) -> Floats:
    """`values[places]`, and 0 where a place is negative."""
    if not len(values):
        return np.zeros(len(places), dtype=np.float32)
    return np.where(places >= 0, values[places], np.float32(0))
