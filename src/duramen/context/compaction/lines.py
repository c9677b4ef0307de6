"""Turns excerpts of a conversation into the lines from which a summary is chosen: label, text and weight."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...ports.world import TokenCounter
from .sentences import is_pleasantry, sentences
from .trim import cut, plain

DECIDED, ERROR, FIXED, CALLED, RETURNED, EARLIER = "decided", "error", "fixed", "called", "returned", "earlier"
OBSERVED = "observed"
_BY = " by "
_ARROW = f" -> {FIXED}: "
_LABEL = re.compile(r"^([^\s:][^:\n]{0,39}): (.+)$")
_LONGEST_LABEL = 40
_RETURNED_SENTENCES = 12
"""Sentences of a tool's output that are considered. Long outputs were replaced by digests before."""
_LONG_LINE = 320
"""Characters above which a line of an earlier summary is split into its sentences."""


class Excerpt(NamedTuple):
    """A part of a session to be summarised. `kind` is "message", "tool.called", "tool.returned", "decision", "error",
    "resolution", "observation" or "summary" (the text of an earlier summary)."""

    role: str
    kind: str
    text: str
    position: int
    source: str = ""
    """The tool that returned the text, or who observed it."""

    @property
    def label(self) -> str:
        """What a summary says before the text: who said it, or where it comes from."""
        if self.kind == "tool.returned":
            return attributed(RETURNED, self.source)
        if self.kind == "observation":
            return attributed(OBSERVED, self.source)
        return _one_line(self.role) or _one_line(self.kind) or EARLIER


def attributed(label: str, source: str) -> str:
    """A label with the source of the text, such as "returned by search"."""
    name = _one_line(source)[: _LONGEST_LABEL - len(label) - len(_BY)].strip()
    return f"{label}{_BY}{name}" if name else label


def _one_line(text: str) -> str:
    return plain(text.replace(":", " "))[:_LONGEST_LABEL].strip()


class Weight(enum.IntEnum):
    """The class of a line. Lower values are chosen first."""

    KEPT = 0
    """Decisions, and errors with their fix."""
    OPEN = 1
    """Errors without a fix."""
    SAID = 2
    """Everything else that was said or done."""


class SummaryLine(NamedTuple):
    """A line that a summary may contain. `turn` is the index of its excerpt, `inner` its index within that excerpt."""

    label: str
    text: str
    weight: Weight
    turn: int
    inner: int

    @property
    def base(self) -> str:
        """The label without the source of the text."""
        return self.label.partition(_BY)[0]

    @property
    def order(self) -> tuple[int, int]:
        """The sort key for time order."""
        return self.turn, self.inner

    def written(self) -> str:
        """The line as it appears in a summary."""
        return f"{self.label}: {self.text}"


def shortened(line: SummaryLine, tokens: int, counter: TokenCounter) -> str:
    """The written line in at most `tokens`. An error with its fix keeps a part of both, or the result is empty."""
    written = line.written()
    error, arrow, fix = written.partition(_ARROW)
    if not arrow or counter.count(written) <= tokens:
        return cut(written, tokens, counter)
    fix = cut(arrow + fix, tokens // 2, counter)
    error = cut(error, tokens - counter.count(fix), counter)
    return error + fix if error and len(fix) > len(arrow) and counter.count(error + fix) <= tokens else ""


def lines_of(items: Sequence[Excerpt]) -> list[SummaryLine]:
    """All lines of the excerpts in time order, without pleasantries."""
    ordered = sorted(items, key=lambda item: item.position)
    fixes, used = _fixes(ordered)
    lines: list[SummaryLine] = []
    for turn, item in enumerate(ordered):
        if turn not in used:
            lines += _lines(turn, item, fixes.get(turn))
    return lines


def _fixes(items: Sequence[Excerpt]) -> tuple[dict[int, str], set[int]]:
    """The fix of each error by index, and the indexes of the resolutions used. A resolution belongs to the nearest
    earlier error without one."""
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
        parts = [(item.label, one) for one in sentences(item.text)[:_RETURNED_SENTENCES]]
    else:
        parts = [(item.label, one) for one in sentences(item.text)]
    for inner, (label, text) in enumerate(parts):
        text = _unlabelled(label, text)
        # The label may be a role that happens to be called "decided". Only these kinds have a weight.
        weight = _weight(label, text) if item.kind in _WEIGHTY else Weight.SAID
        if text and (weight is not Weight.SAID or not is_pleasantry(text)):
            yield SummaryLine(label, text, weight, turn, inner)


_WHOLE = {"decision": DECIDED, "error": ERROR, "resolution": FIXED, "tool.called": CALLED}
_WEIGHTY = frozenset(["decision", "error", "resolution", "summary"])


def _unlabelled(label: str, text: str) -> str:
    """Remove repetitions of the label at the start of the text, as in "user: user: hello"."""
    prefix = f"{label.lower()}:"
    while text[: len(prefix)].lower() == prefix:
        text = text[len(prefix) :].lstrip()
    return text


def _weight(label: str, text: str) -> Weight:
    if label in (DECIDED, FIXED) or (label == ERROR and _ARROW in text):
        return Weight.KEPT
    return Weight.OPEN if label == ERROR else Weight.SAID


def _earlier(text: str) -> Iterator[tuple[str, str]]:
    """The labels and lines of a summary. Lines without a label, which a model wrote, are split into sentences."""
    for raw in text.splitlines():
        line = plain(raw)
        found = _LABEL.match(line)
        if found is None:
            yield from ((EARLIER, one) for one in sentences(line))
        elif len(line) <= _LONG_LINE or found[1] in (DECIDED, ERROR, FIXED):
            yield found[1], found[2]
        else:
            yield from ((found[1], one) for one in sentences(found[2]))
