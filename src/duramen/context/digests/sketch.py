"""What a digest says about an output, piece by piece, and how many pieces a limit of tokens has room for."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from ...ports.world import TokenCounter
from ..compaction.trim import cut, frame_of

_LEAST = 12
"""Characters below which a piece that had to be cut says nothing."""


class Slot(enum.IntEnum):
    """Where a piece stands in the digest, whatever its importance."""

    STATUS = 1
    """how it ended"""
    COUNTS = 2
    """how much of what"""
    SHAPE = 3
    """what it is made of"""
    EXAMPLE = 4
    """one of many"""
    ERRORS = 5
    """what went wrong"""
    FIRST = 6
    """how it begins"""
    LAST = 7
    """how it ends"""


class Piece(NamedTuple):
    """One line of a digest. `share` is the part of the limit that it may take before the others had their turn; the
    `label` says what the text is."""

    place: Slot
    text: str
    share: float = 0.2
    label: str = ""


class Sketch(NamedTuple):
    """What there is to say about an output: what it is, and the pieces, the most important first."""

    what: str
    pieces: Sequence[Piece]


def fit(sketch: Sketch, *, limit: int, counter: TokenCounter, reference: str) -> str:
    """The digest: what it is, as many pieces as the limit has room for, and the reference at the end."""
    head, tail = f"[tool output, {sketch.what}]", f"whole: {reference}"
    bare = _assembled(head, [], tail)
    room = limit - counter.count(bare)
    if room < 0:
        return tail if counter.count(tail) <= limit else reference
    kept = _chosen(sketch.pieces, room, limit, counter)
    while kept:
        digest = _assembled(head, kept, tail)
        over = counter.count(digest) - limit
        if over <= 0:
            return digest
        # Tokens of a whole are not always those of its parts.
        least = kept.pop()
        shorter = _cut(least, counter.count(least.label + least.text) - over, counter)
        if _LEAST <= len(shorter.text) < len(least.text):
            kept.append(shorter)
    return bare


def _assembled(head: str, pieces: Sequence[Piece], tail: str) -> str:
    # The last lines come from the end backwards.
    ordered = [piece for piece in pieces if piece.place is not Slot.LAST]
    ordered += [piece for piece in reversed(pieces) if piece.place is Slot.LAST]
    ordered.sort(key=lambda piece: piece.place)
    return "\n".join([head, *(piece.label + piece.text for piece in ordered), tail])


def _chosen(pieces: Sequence[Piece], room: int, limit: int, counter: TokenCounter) -> list[Piece]:
    """The pieces in order of importance, each within its share; what room is left then goes to those that were cut."""
    frame = frame_of(counter)
    kept: list[tuple[Piece, Piece]] = []
    said: set[str] = set()
    for piece in pieces:
        if room < 1:
            break
        if not piece.text or piece.text in said:
            continue
        shorter = _cut(piece, min(room, max(4, int(piece.share * limit))) + frame, counter)
        if len(shorter.text) >= min(_LEAST, len(piece.text)):
            room -= counter.count(shorter.label + shorter.text) - frame
            said.add(piece.text)
            kept.append((piece, shorter))
    return _regrown(kept, room, counter)


def _regrown(kept: list[tuple[Piece, Piece]], room: int, counter: TokenCounter) -> list[Piece]:
    grown = []
    for piece, shorter in kept:
        if room > 1 and shorter != piece:
            cost = counter.count(shorter.label + shorter.text)
            shorter = _cut(piece, cost + room, counter)
            room -= counter.count(shorter.label + shorter.text) - cost
        grown.append(shorter)
    return grown


def _cut(piece: Piece, tokens: int, counter: TokenCounter) -> Piece:
    text = cut(piece.label + piece.text, tokens, counter)
    return piece._replace(text=text[len(piece.label) :])
