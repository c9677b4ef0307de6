"""The pieces of a digest, and how many of them fit into a token limit."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from ...ports.world import TokenCounter
from ..compaction.trim import cut, frame_of

_LEAST = 12
"""A shortened piece has at least this many characters of text. A shorter one says too little."""


class Slot(enum.IntEnum):
    """The place of a piece in the digest, which does not depend on its importance."""

    STATUS = 1
    """The exit status or result."""
    COUNTS = 2
    """Numbers of items."""
    SHAPE = 3
    """The structure of the output."""
    EXAMPLE = 4
    """One of many items."""
    ERRORS = 5
    """Error lines."""
    FIRST = 6
    """The first lines."""
    LAST = 7
    """The last lines."""


class Piece(NamedTuple):
    """One line of a digest. `share` is the share of the limit that it may take in the first round. `label` is a prefix
    that says what the text is."""

    place: Slot
    text: str
    share: float = 0.2
    label: str = ""


class Sketch(NamedTuple):
    """The description of an output: its type and size, and the pieces, the most important first."""

    what: str
    pieces: Sequence[Piece]


def fit(sketch: Sketch, *, limit: int, counter: TokenCounter, reference: str) -> str:
    """The digest: type and size, as many pieces as fit, and the reference at the end."""
    head, tail = f"[tool output, {sketch.what}]", f"full: {reference}"
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
        # The whole may count more tokens than its parts.
        least = kept.pop()
        shorter = _cut(least, counter.count(least.label + least.text) - over, counter)
        if _LEAST <= len(shorter.text) < len(least.text):
            kept.append(shorter)
    return bare


def _assembled(head: str, pieces: Sequence[Piece], tail: str) -> str:
    # The pieces of the last lines are in reverse order.
    ordered = [piece for piece in pieces if piece.place is not Slot.LAST]
    ordered += [piece for piece in reversed(pieces) if piece.place is Slot.LAST]
    ordered.sort(key=lambda piece: piece.place)
    return "\n".join([head, *(piece.label + piece.text for piece in ordered), tail])


def _chosen(pieces: Sequence[Piece], room: int, limit: int, counter: TokenCounter) -> list[Piece]:
    """The pieces in order of importance, each within its share. Remaining room goes to pieces that were shortened."""
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
