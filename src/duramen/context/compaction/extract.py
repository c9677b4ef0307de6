"""A summary without a model: the sentences of a conversation that matter most, in their own words and in time order."""

from __future__ import annotations

from collections.abc import Sequence

from ...ports.world import TokenCounter
from .lines import Excerpt, SummaryLine, Weight, lines_of, shortened
from .scores import Scored, marks_of, scored, terms_of
from .trim import frame_of

__all__ = ["Excerpt", "summarise"]

_LEAST = 20
"""Characters below which the beginning of a line says nothing."""
_MISSES = 40
"""Lines that did not fit, one after the other, after which no more are tried."""

_OFFERED = 4000
"""Lines that are looked at when room is left because most of them repeat each other."""


def summarise(items: Sequence[Excerpt], *, limit: int, counter: TokenCounter) -> str:
    """At most `limit` tokens of what the excerpts say, one line each, in time order: `decided: …`,
    `error: … -> fixed: …`, `user: …`, `called: …`, `returned: …`.

    Decisions and errors with what fixed them come first into it; where even these are too many, the oldest and the
    newest stay. Then errors that are open, and then sentences by what they tell: names, numbers, paths and wishes, how
    central their words are, the goal and the end, questions nobody answered. Pleasantries and what was said already
    are left out. An excerpt of kind "summary" is taken line by line, with the labels it has. The same items give the
    same bytes in every process; nothing to say gives an empty text.
    """
    lines = scored(lines_of(items))
    chosen = _Choice(limit, counter)
    for one in _by_importance(lines)[:_OFFERED]:
        if not chosen.take(one):
            break
    return chosen.text()


def _by_importance(lines: Sequence[Scored]) -> list[Scored]:
    kept = _ends_inwards([one for one in lines if one.line.weight is Weight.KEPT])
    rest = [
        one for one in lines if one.line.weight is not Weight.KEPT and (one.score > 0 or one.line.weight is Weight.OPEN)
    ]
    rest.sort(key=lambda one: (one.line.weight, -one.score, one.line.order))
    return kept + rest


def _ends_inwards(lines: list[Scored]) -> list[Scored]:
    """The newest, the oldest, the second newest, …: what is lost, if anything, is lost from the middle."""
    turned = lines[::-1]
    return [one for pair in zip(turned, lines, strict=True) for one in pair][: len(lines)]


class _Choice:
    """The lines chosen so far, the most important first."""

    def __init__(self, limit: int, counter: TokenCounter) -> None:
        self._limit = limit
        self._counter = counter
        self._frame = frame_of(counter)
        self._room = limit - max(self._frame, 0)
        self._misses = 0
        self._chosen: list[tuple[Scored, str]] = []
        self._terms: list[frozenset[str]] = []
        self._repeated: set[frozenset[str]] = set()
        self._written: set[str] = set()

    def take(self, one: Scored) -> bool:
        """Choose the line if there is room for it. False when no more need be offered."""
        written = one.line.written()
        terms = terms_of(one.line.text)
        if written in self._written or terms in self._repeated or any(_repeats(terms, other) for other in self._terms):
            self._repeated.add(terms)
            return True
        text = self._fitted(one.line)
        if text and text not in self._written and self._fits(one, text):
            self._chosen.append((one, text))
            self._terms.append(terms)
            self._written |= {text, written}
            self._misses = 0
        else:
            self._misses += 1
        return self._misses < _MISSES and self._room > 1

    def _fitted(self, line: SummaryLine) -> str:
        """The line, shortened to its share of the limit; to the room there is only if it must stay, or is the first."""
        share = self._limit // (3 if line.weight is Weight.SAID else 2) if self._chosen else self._limit
        may_end = line.weight is not Weight.SAID or not self._chosen
        text = shortened(line, min(share, self._room + max(self._frame, 0)) if may_end else share, self._counter)
        return text if len(text) >= min(len(line.label) + _LEAST, len(line.written())) else ""

    def _fits(self, one: Scored, text: str) -> bool:
        cost = self._counter.count(text) - self._frame
        if cost > self._room:
            # The parts were counted so far; the whole may leave more room.
            self._room = self._limit - self._counter.count(self._joined(self._chosen))
            cost = self._counter.count(self._joined([*self._chosen, (one, text)])) - self._limit + self._room
        if cost > self._room:
            return False
        self._room -= cost
        return True

    @staticmethod
    def _joined(chosen: list[tuple[Scored, str]]) -> str:
        return "\n".join(text for _, text in sorted(chosen, key=lambda one: one[0].line.order))

    def text(self) -> str:
        """The summary. Tokens of a whole are not always those of its lines: the least important go until it fits."""
        while self._chosen:
            summary = self._joined(self._chosen)
            if self._counter.count(summary) <= self._limit:
                return summary
            self._chosen.pop()
        return ""


def _repeats(terms: frozenset[str], others: frozenset[str]) -> bool:
    """Whether a line of these terms says nothing that one of the others does not say."""
    if len(terms) < 3 or len(others) < 3:
        return terms == others
    shared = len(terms & others)
    alike = shared >= 0.85 * len(terms) or shared >= 0.7 * len(terms | others)
    return alike and marks_of(terms) <= marks_of(others)
