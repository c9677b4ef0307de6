"""Estimates the tokens of a text without a tokenizer. The estimate is meant to be an upper bound.

Tokenizers differ in the long words and scripts that they know, but share many short and common pieces. A text is split
into the longest pieces that all of them know (`vocabulary.txt`), one token each. A tokenizer that knows longer pieces
counts fewer tokens. A character that some tokenizers do not know costs about as many tokens as it has bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Costs are counted in half tokens. Sums of integers are the same in every process.
_TOKEN = 2
# Every text gets 3 tokens, and one more for each 16: some tokenizers put a token before every text, and some split
# words into more pieces than necessary.
_FRAME = 3 * _TOKEN
_MARGIN = 16
_ACCENTED = r"\u00c0-\u024f\u1e00-\u1eff"
_WORD = rf"[A-Za-z{_ACCENTED}]+"
_SIGNS = r"[!-/:-@\[-`{-~]+"
_FOREIGN = rf"[^\x00-\x7f{_ACCENTED}]+"
# The space before a word belongs to the word, as in tokenizers. Digits are grouped in threes to keep the cache small.
_PARTS = re.compile(
    rf"{_WORD}| (?:{_WORD}|{_SIGNS}| +[0-9]?|{_FOREIGN}|)|{_SIGNS}|[0-9]{{1,3}}|[\x00-\x1f\x7f]+|{_FOREIGN}"
)
_FOREIGN_PART = re.compile(rf" ?{_FOREIGN}")
# (first code point, cost in half tokens of a character that is not a piece)
_SCRIPTS = (
    (0x0000, 2),
    (0x0080, 4),
    (0x0800, 6),
    (0x0900, 4),  # Devanagari, Bengali
    (0x0A00, 6),
    (0x0B80, 4),  # Tamil
    (0x0C00, 6),
    (0x0E00, 4),  # Thai
    (0x0E80, 6),
    (0x10A0, 4),  # Georgian
    (0x1100, 6),
    (0x3040, 4),  # Hiragana, Katakana
    (0x3100, 6),
    (0x4E00, 5),  # Chinese
    (0xA000, 6),
    (0xFF00, 4),  # full-width signs, between them full-width digits and letters
    (0xFF10, 6),
    (0xFF1A, 4),
    (0xFF21, 6),
    (0x10000, 8),
)
_STARTS = [start for start, _ in _SCRIPTS]
_SPACE = "·"  # how vocabulary.txt writes a space
_KEPT = 1 << 15
_LONG = 40
_NO_WORD = 2_000


class Estimate:
    """A counter without dependencies. On the corpus of the tests it never counts fewer tokens than any of the measured
    tokenizers; `docs/guides/context.md` says how many more. At most the number of UTF-8 bytes plus two."""

    name = "estimate"

    def count(self, text: str) -> int:
        """An upper estimate of the tokens that the text takes."""
        if not text:
            return 0
        halves = sum(map(_PART_COSTS.__getitem__, _PARTS.findall(text)))
        tokens = -(-(halves + halves // _MARGIN + _FRAME) // _TOKEN)
        # No tokenizer needs more than one token per byte. The bytes are counted only if the estimate comes close.
        return tokens if tokens <= len(text) else min(tokens, len(text.encode("utf-8", "surrogatepass")) + 2)


class _Remembered(dict[str, int]):
    """Caches the costs of short texts. The cache is cleared when it is full."""

    def __init__(self, cost: Callable[[str], int]) -> None:
        super().__init__()
        self._cost = cost

    def __missing__(self, text: str) -> int:
        cost = self._cost(text)
        if len(text) <= _LONG:
            if len(self) >= _KEPT:
                self.clear()
            self[text] = cost
        return cost


def _cost_of_part(part: str) -> int:
    if _FOREIGN_PART.match(part):
        return sum(map(_CHARACTER_COSTS.__getitem__, part))
    last, spaces = part[-1], len(part) - len(part.lstrip(" "))
    if last == " ":
        return _TOKEN * (1 + spaces // 16)
    if "0" <= last <= "9":
        # The last of several spaces before a digit is a token of its own.
        return _TOKEN * (len(part) - spaces + min(spaces, 2) + spaces // 16)
    return _cost_of_pieces(part)


def _cost_of_pieces(part: str) -> int:
    # Base64 and similar text has few pieces, and is too long to search for them.
    if len(part) > _NO_WORD and part.isascii():
        return _TOKEN * len(part)
    pieces, longest = _pieces()
    part = part.replace(" ", _SPACE)
    cost = at = 0
    while at < len(part):
        for end in range(min(len(part), at + longest), at, -1):
            if part[at:end] in pieces:
                cost += _TOKEN
                break
        else:
            cost += _CHARACTER_COSTS[part[at]]
        at = end
    return cost


def _cost_of_character(character: str) -> int:
    if character == " ":
        return _TOKEN // 2  # some tokenizers separate it from the letter that follows
    if character in _pieces()[0]:
        return _TOKEN
    return _SCRIPTS[bisect_right(_STARTS, ord(character)) - 1][1]


@cache
def _pieces() -> tuple[frozenset[str], int]:
    """The pieces that every tokenizer knows, and the length of the longest."""
    pieces = frozenset(Path(__file__).with_name("vocabulary.txt").read_text(encoding="utf-8").split())
    return pieces, max(map(len, pieces))


_PART_COSTS = _Remembered(_cost_of_part)
_CHARACTER_COSTS = _Remembered(_cost_of_character)
