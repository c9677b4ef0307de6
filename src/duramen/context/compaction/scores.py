"""Scores summary lines: by facts that are visible in any language, and by how central their words are."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from .lines import CALLED, EARLIER, RETURNED, SummaryLine, Weight

_AROUND = (
    "\"'`()[]{}<>,;:.!?*\u00ab\u00bb\u2018\u2019\u201c\u201d\u2026"
    "\u0964\u060c\u061b\u061f\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f"
)
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_IDENTIFIER = re.compile(r"\w[/\\@_=#:]\w|^[/~.@#][\w/]|\w\.[a-z]\w|[a-z][A-Z]|^`|`$")
# fmt: off
_CUES = frozenset([
    "must", "never", "always", "prefer", "prefers", "preferred", "deadline", "only", "don't", "dont", "remember",
    "named", "name", "called", "budget", "agreed", "promise", "promised", "decided", "because", "until", "before",
    "due", "limit", "maximum", "minimum", "require", "requires", "required", "avoid", "instead", "allergic",
    "password", "token", "key", "version", "port", "address", "email", "phone", "birthday", "i'll", "we'll", "will",
    "cannot", "can't", "shouldn't", "mustn't", "important", "urgent", "goal", "want", "wants", "need", "needs",
])
# fmt: on
# fmt: off
_NEGATIONS = frozenset([
    "not", "no", "never", "don't", "dont", "doesn't", "didn't", "won't", "can't", "cannot", "isn't", "without",
    "neither", "nor",
])
# fmt: on
_ASSISTANTS = frozenset(["assistant", "ai", "model", "bot", "agent"])
_BASE = {CALLED: 1.0, RETURNED: 0.5, EARLIER: 4.0, "system": 3.0, "tool": 0.5, "developer": 3.0}
_PERSON = 5.0
_NAME = 1.5
_QUESTIONS = ("?", "\uff1f", "\u061f", "\u037e")


class _Word(NamedTuple):
    terms: tuple[str, ...]
    points: float
    capital: bool


class Scored(NamedTuple):
    """A line and its score."""

    line: SummaryLine
    score: float


def scored(lines: Sequence[SummaryLine]) -> list[Scored]:
    """The lines with their scores, in the order given. Takes time linear in the length of the text."""
    said = [line.text.split() for line in lines]
    often = Counter(chain.from_iterable(said))
    words = {raw: _word(raw) for raw in often}
    points_of = {raw: word.points for raw, word in words.items()}
    central = _centralities(said, often, words)
    places = _Places(lines)
    result = []
    for line, raws, centrality in zip(lines, said, central, strict=True):
        points = sum(map(points_of.__getitem__, raws))
        if raws and words[raws[0]].capital:
            points -= _NAME  # the first word of a sentence has a capital anyway
        score = 3 * math.sqrt(points) + 3 * centrality + places.bonus(line)
        if points == 0 and _says_nothing(line, raws, words):
            score -= 8
        # Rounded, because logarithms differ in their last digit between machines.
        result.append(Scored(line, round(score / math.sqrt(1 + len(line.text) / 80), 6)))
    return result


def terms_of(text: str) -> frozenset[str]:
    """The words of a text in lower case. For scripts without spaces: pairs of characters."""
    return frozenset(term for raw in text.split() for term in _word(raw).terms)


def marks_of(terms: frozenset[str]) -> frozenset[str]:
    """The numbers and negations among the terms. Lines that differ in one of them do not repeat each other."""
    return frozenset(term for term in terms if term in _NEGATIONS or any(map(str.isdigit, term)))


def _says_nothing(line: SummaryLine, raws: list[str], words: dict[str, _Word]) -> bool:
    """Whether a line is a few words without names or numbers."""
    return line.weight is Weight.SAID and len(raws) < 4 and sum(len(words[raw].terms) for raw in raws) < 4


def _word(raw: str) -> _Word:
    bare = raw.strip(_AROUND)
    if not bare:
        return _Word((), 0.0, False)
    lower = bare.lower()
    terms: tuple[str, ...] = (lower,)
    if len(bare) > 1 and _UNSPACED.search(bare):
        terms = tuple(lower[at : at + 2] for at in range(min(len(lower) - 1, 400)))
    points = 2.5 if any(map(str.isdigit, bare)) else 0.0
    if _IDENTIFIER.search(raw):
        points += 2.5
    if lower in _CUES:
        points += 2
    capital = bare[0].isupper() and lower not in ("i", "i'm", "i'll", "i'd", "i've")
    return _Word(terms, points + (_NAME if capital else 0), capital)


def _centralities(said: Sequence[list[str]], often: Counter[str], words: dict[str, _Word]) -> list[float]:
    """For each line, from 0 to 1: how often its words occur in the other lines. Very common words do not count."""
    counts: Counter[str] = Counter()
    for raw, count in often.items():
        for term in words[raw].terms:
            counts[term] += count
    weights = {term: count * math.log(max(1.0, len(said) / count)) for term, count in counts.items() if count > 1}
    weight_of = {raw: sum(weights.get(term, 0.0) for term in word.terms) for raw, word in words.items()}
    sums = [sum(map(weight_of.__getitem__, raws)) / (len(raws) + 4) for raws in said]
    top = max(sums, default=0.0)
    return [one / top if top > 0 else 0.0 for one in sums]


class _Places:
    """Scores a line by its speaker and its place in the conversation."""

    def __init__(self, lines: Sequence[SummaryLine]) -> None:
        people = [line for line in lines if _speaks(line)]
        self._goal = people[0].turn if people else -1
        self._goal_inner = people[0].inner if people else -1
        self._last = max((line.turn for line in lines), default=0)
        said = [line for line in lines if line.weight is Weight.SAID and line.base not in (CALLED, RETURNED, EARLIER)]
        self._last_of: dict[str, int] = {}
        for line in said:
            self._last_of[line.label] = line.turn

    def bonus(self, line: SummaryLine) -> float:
        """The base score of the speaker, plus points for the goal, the end and an unanswered question."""
        score = _BASE.get(line.base.lower(), _PERSON) if not _assists(line) else 1.0
        if line.turn == self._goal:
            score += 8 if line.inner == self._goal_inner else 2
        score += max(0, 3 - (self._last - line.turn))
        if line.text.endswith(_QUESTIONS) and line.turn != self._goal:
            score += 12 if self._open(line) else -5
        return score

    def _open(self, line: SummaryLine) -> bool:
        return all(last <= line.turn for label, last in self._last_of.items() if label != line.label)


def _speaks(line: SummaryLine) -> bool:
    return line.weight is Weight.SAID and line.base.lower() not in _BASE and not _assists(line)


def _assists(line: SummaryLine) -> bool:
    return line.label.lower() in _ASSISTANTS
