"""Removes control characters from text and shortens it to a token limit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ports.world import TokenCounter

_ESCAPE_CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[@-~]"
)
_COMMANDING = re.compile("[\x00-\x20\x7f-\xa0\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]+")
"""Control characters, line separators, bidirectional overrides and invisible tags, with the spaces around them."""
_SURROGATES = re.compile("[\ud800-\udfff]")
_CHARACTERS_A_TOKEN = 24
"""An upper bound on the characters of one token."""
ELLIPSIS = "…"


def plain(text: str) -> str:
    """The text on one line, without escape codes and control characters. Its words do not change."""
    if text.isprintable() and "  " not in text:
        return text.strip(" ")
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPE_CODES.sub("", text)
    text = _COMMANDING.sub(" ", text).strip()
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def frame_of(counter: TokenCounter) -> int:
    """How many tokens fewer a text takes as a line of a larger text than alone. Estimating counters add a constant to
    every text. Negative if only the line end counts."""
    one, other = "called: one", "called: two"
    return counter.count(one) + counter.count(other) - counter.count(f"{one}\n{other}")


def cut(text: str, tokens: int, counter: TokenCounter) -> str:
    """The text, shortened to at most `tokens`. A shortened text ends at the end of a word, with "…". Empty if nothing
    fits."""
    longest = max(tokens, 0) * _CHARACTERS_A_TOKEN
    if len(text) <= longest and counter.count(text) <= tokens:
        return text
    low, high, best = 0, min(len(text), longest), ""
    while high - low > 1 + low // 32:
        middle = (low + high) // 2
        shorter = _beginning(text, middle)
        if shorter and counter.count(shorter) > tokens:
            high = middle
        else:
            low, best = middle, shorter or best
    return best


def _beginning(text: str, length: int) -> str:
    head = text[:length]
    if length < len(text) and text[length] != " ":
        # A path or a script without spaces is cut anywhere, because otherwise little of it would remain.
        space = head.rfind(" ")
        head = head[:space] if space > length * 2 // 3 else head
    head = head.rstrip(" ,;:(-")
    return head + ELLIPSIS if head else ""


def fit_lines(lines: Sequence[str], counter: TokenCounter, budget: int) -> str:
    """As many of the lines as fit into `budget` tokens, in order. A line takes at most a quarter of the budget."""
    kept: list[str] = []
    used, share = 0, max(12, budget // 4)
    for line in lines:
        shorter = cut(line, min(share, budget - used - 1), counter)
        cost = counter.count(shorter) + 1
        if shorter and used + cost <= budget:
            kept.append(shorter)
            used += cost
    text = "\n".join(kept)
    while kept and counter.count(text) > budget:  # the joined text may count more than its lines
        kept.pop()
        text = "\n".join(kept)
    return text
