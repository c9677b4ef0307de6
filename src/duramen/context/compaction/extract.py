"""A summary without a model: the most important sentences of a conversation, unchanged and in time order."""

from __future__ import annotations

from collections.abc import Sequence

from ...ports.world import TokenCounter
from .lines import Excerpt, SummaryLine, Weight, lines_of, shortened
from .scores import Scored, marks_of, scored, terms_of
from .trim import frame_of

__all__ = ["Excerpt", "summarise"]

_LEAST = 20
"""A shortened line has at least this many characters of text. A shorter one says too little."""
_MISSES = 40
"""The choice stops after this many lines in a row that did not fit."""
_OFFERED = 4000
"""At most this many lines are tried. The bound matters when most lines repeat each other."""


def summarise(items: Sequence[Excerpt], *, limit: int, counter: TokenCounter) -> str:
    """Summarise excerpts in at most `limit` tokens. Returns labelled lines in time order: `decided: …`,
    `error: … -> fixed: …`, `user: …`, `called: …`, `returned: …`.

    Lines are chosen in this order: decisions and errors with their fix, the newest and the oldest before those between;
    errors without a fix; other sentences by score. A score rises with names, numbers, paths, wishes and central words,
    for the goal, for the end of the conversation and for unanswered questions. Pleasantries and repetitions are left
    out. An excerpt of kind "summary" is split into its lines, which keep their labels. The same items give the same
    text in every process. The text is empty if no line is worth including.
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
    """Reorder: the newest, the oldest, the second newest, … so that the middle is dropped first."""
    turned = lines[::-1]
    return [one for pair in zip(turned, lines, strict=True) for one in pair][: len(lines)]


class _Choice:
    """The lines chosen so far, the most important first, and the room that is left."""

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
        """Choose the line if it fits and repeats no other. Returns False when no further line should be tried."""
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
        """The line, shortened to its share of the limit. The first line, decisions and errors are also shortened to the
        room that is left. Empty if too little would remain."""
        share = self._limit // (3 if line.weight is Weight.SAID else 2) if self._chosen else self._limit
        to_room = line.weight is not Weight.SAID or not self._chosen
        text = shortened(line, min(share, self._room + max(self._frame, 0)) if to_room else share, self._counter)
        return text if len(text) >= min(len(line.label) + _LEAST, len(line.written())) else ""

    def _fits(self, one: Scored, text: str) -> bool:
        cost = self._counter.count(text) - self._frame
        if cost > self._room:
            # So far the lines were counted separately. Counted together, they may leave more room.
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
        """The summary. The whole may count more tokens than its lines, so the least important lines are dropped until
        it fits."""
        while self._chosen:
            summary = self._joined(self._chosen)
            if self._counter.count(summary) <= self._limit:
                return summary
            self._chosen.pop()
        return ""


def _repeats(terms: frozenset[str], others: frozenset[str]) -> bool:
    """Whether a line with these terms adds nothing to a line with the other terms."""
    if len(terms) < 3 or len(others) < 3:
        return terms == others
    shared = len(terms & others)
    alike = shared >= 0.85 * len(terms) or shared >= 0.7 * len(terms | others)
    return alike and marks_of(terms) <= marks_of(others)
