"""From excerpts of a conversation to the lines that a summary can be made of: who, what, and how much it must stay."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...ports.world import TokenCounter
from .sentences import is_manners, sentences
from .trim import cut, plain

DECIDED, ERROR, FIXED, CALLED, RETURNED, EARLIER = "decided", "error", "fixed", "called", "returned", "earlier"
_ARROW = f" -> {FIXED}: "
_LABEL = re.compile(r"^([^\s:][^:\n]{0,39}): (.+)$")
_RETURNED_SENTENCES = 12
"""Sentences of a tool's output that are looked at: what is long was masked before."""
_LONG_LINE = 320
"""Characters above which a line of an earlier summary is split into its sentences."""


class Excerpt(NamedTuple):
    """A part of a session to be summarised. `kind` is "message", "tool.called", "tool.returned", "decision", "error",
    "resolution" or "summary", which is the text of an earlier summary."""

    role: str
    kind: str
    text: str
    position: int


class Weight(enum.IntEnum):
    """How much a line must stay."""

    KEPT = 0
    """decisions, and errors with what fixed them: before everything else"""
    OPEN = 1
    """errors that nothing fixed yet"""
    SAID = 2
    """what was said and done"""


class SummaryLine(NamedTuple):
    """A line that a summary may hold. `turn` is the number of the excerpt from which it comes, `inner` its own number
    among the lines of that excerpt."""

    label: str
    text: str
    weight: Weight
    turn: int
    inner: int

    @property
    def order(self) -> tuple[int, int]:
        """Its place in time."""
        return self.turn, self.inner

    def written(self) -> str:
        """The line as it stands in a summary."""
        return f"{self.label}: {self.text}"


def shortened(line: SummaryLine, tokens: int, counter: TokenCounter) -> str:
    """The line as it is written, in at most `tokens`. Of an error and its fix, something of both stays."""
    written = line.written()
    error, arrow, fix = written.partition(_ARROW)
    if not arrow or counter.count(written) <= tokens:
        return cut(written, tokens, counter)
    fix = cut(arrow + fix, tokens // 2, counter)
    error = cut(error, tokens - counter.count(fix), counter)
    return error + fix if error and len(fix) > len(arrow) and counter.count(error + fix) <= tokens else ""


def lines_of(items: Sequence[Excerpt]) -> list[SummaryLine]:
    """All lines that the excerpts give, in time order; those that are manners only are left out."""
    ordered = sorted(items, key=lambda item: item.position)
    fixes, used = _fixes(ordered)
    lines: list[SummaryLine] = []
    for turn, item in enumerate(ordered):
        if turn not in used:
            lines += _lines(turn, item, fixes.get(turn))
    return lines


def _fixes(items: Sequence[Excerpt]) -> tuple[dict[int, str], set[int]]:
    """What fixed which error: a resolution belongs to the nearest error before it that has none."""
    unfixed: list[int] = []
    fixes: dict[int, str] = {}
    used: set[int] = set()
    for turn, item in enumerate(items):
        if item.kind == "error" and plain(item.text):
            unfixed.append(turn)
        elif item.kind == "resolution" and unfixed:
            fixes[unfixed.pop()] = item.text
            used.add(turn)
    return fixes, used


def _lines(turn: int, item: Excerpt, fix: str | None) -> Iterator[SummaryLine]:
    if item.kind == "summary":
        parts: Iterable[tuple[str, str]] = _earlier(item.text)
    elif item.kind in _WHOLE:
        parts = [(_WHOLE[item.kind], plain(item.text) if fix is None else f"{plain(item.text)}{_ARROW}{plain(fix)}")]
    elif item.kind == "tool.returned":
        parts = [(RETURNED, one) for one in sentences(item.text)[:_RETURNED_SENTENCES]]
    else:
        label = plain(item.role.replace(":", " "))[:40].strip() or plain(item.kind)[:40] or EARLIER
        parts = [(label, one) for one in sentences(item.text)]
    for inner, (label, text) in enumerate(parts):
        text = _unlabelled(label, text)
        # A role that is called "decided" decides nothing.
        weight = _weight(label, text) if item.kind in _WEIGHTY else Weight.SAID
        if text and (weight is not Weight.SAID or not is_manners(text)):
            yield SummaryLine(label, text, weight, turn, inner)


_WHOLE = {"decision": DECIDED, "error": ERROR, "resolution": FIXED, "tool.called": CALLED}
_WEIGHTY = frozenset(["decision", "error", "resolution", "summary"])


def _unlabelled(label: str, text: str) -> str:
    """The text without its own label in front, however often: a summary of a summary says who once."""
    prefix = f"{label.lower()}:"
    while text[: len(prefix)].lower() == prefix:
        text = text[len(prefix) :].lstrip()
    return text


def _weight(label: str, text: str) -> Weight:
    if label in (DECIDED, FIXED) or (label == ERROR and _ARROW in text):
        return Weight.KEPT
    return Weight.OPEN if label == ERROR else Weight.SAID


def _earlier(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a summary with their labels; what has none, because a model wrote it, is split into sentences."""
    for raw in text.splitlines():
        line = plain(raw)
        found = _LABEL.match(line)
        if found is None:
            yield from ((EARLIER, one) for one in sentences(line))
        elif len(line) <= _LONG_LINE or found[1] in (DECIDED, ERROR, FIXED):
            yield found[1], found[2]
        else:
            yield from ((found[1], one) for one in sentences(found[2]))
