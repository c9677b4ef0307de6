"""Replaces a large tool output by a digest: a few lines with the most important facts, and a reference to the rest."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...ports.world import TokenCounter
from ..compaction.trim import plain
from .binary import as_text, binary
from .data_shapes import encoded_size, parsed, shape_of, shape_pieces
from .documents import TextFormat, document
from .findings import bare, findings
from .long_text import LongText, counted
from .sketch import Piece, Sketch, Slot, fit
from .tables import table

_SHORT = 80
"""A longer text inside data is examined like an output of its own."""
_EDGES = 20
"""At most this many lines from each end are shown."""
_ENVELOPE = frozenset(
    [
        "type",
        "role",
        "content",
        "is_error",
        "isError",
        "tool_use_id",
        "tool_call_id",
        "id",
        "name",
        "cache_control",
        "_meta",
    ]
)
"""Keys around the content of a tool result, in the formats of Anthropic, OpenAI and MCP."""
_NO_DIGITS = str.maketrans("", "", "0123456789")
_READ_FIRST = ("stderr", "error", "output", "stdout", "text", "content", "body", "result")


def digest(output: object, *, limit: int = 100, counter: TokenCounter, reference: str) -> str:
    """The digest of a tool output in at most `limit` tokens: size and format, exit status, counts, error lines, the
    shape of data and tables, the first and last lines. The reference is the last line.

    `output` is text, bytes, plain data or content blocks. Equal outputs give equal digests in every process. Apart from
    a few fixed words and numbers, a digest contains only text of the output, without control characters and each piece
    on one line. Below `minimum`, the digest is the reference alone, even if that exceeds the limit.
    """
    return fit(_sketch(output), limit=limit, counter=counter, reference=reference)


def minimum(reference: str, counter: TokenCounter) -> int:
    """The smallest limit that a digest with this reference does not exceed."""
    return counter.count(reference)


def _sketch(output: object) -> Sketch:
    if isinstance(output, (bytes, bytearray, memoryview)):
        body = bytes(output)
        text = as_text(body)
        return binary(body) if text is None else _of_text(text)
    if isinstance(output, str):
        return _of_text(output)
    blocks = _content_blocks(output)
    return _of_data(output) if blocks is None else _of_blocks(blocks)


def _of_text(text: str) -> Sketch:
    data = parsed(text)
    whole = LongText(text)
    if data is not None:
        name, value = data
        return Sketch(f"{name}, {whole.size}", [*shape_pieces(value), *_said_inside(value)])
    format = document(whole) or table(whole)
    if format is not None:
        return Sketch(f"{format.name}, {whole.size}", _of_format(format, whole))
    return Sketch(whole.size, _of_prose(whole))


def _of_format(format: TextFormat, whole: LongText) -> list[Piece]:
    if not format.prose:
        return format.pieces
    found = findings(whole)
    last = [Piece(Slot.LAST, line, 0.2, "last: ") for line in whole.last[:1]]
    return [*format.pieces, *last, *found.foremost, *found.further]


def _of_prose(whole: LongText) -> list[Piece]:
    """The pieces in order: status and worst error, the last and the first line, further errors, further lines."""
    found = findings(whole)
    first = [Piece(Slot.FIRST, bare(line), 0.18, "first: ") for line in whole.first[:_EDGES]]
    last = [Piece(Slot.LAST, bare(line), 0.22, "last: ") for line in whole.last[:_EDGES]]
    edges = [*last[:1], *first[:1]] if whole.lines > 1 else [*first[:1], *last[:1]]
    return [*found.foremost, *edges, *found.further, *_differing(edges, [*last[1:], *first[1:]])]


def _differing(shown: list[Piece], more: list[Piece]) -> list[Piece]:
    """The additional lines that differ in more than digits from each other and from the lines already shown."""
    kinds = {piece.text.translate(_NO_DIGITS) for piece in shown}
    kept = []
    for piece in more:
        kind = piece.text.translate(_NO_DIGITS)
        if kind not in kinds:
            kinds.add(kind)
            kept.append(piece)
    return kept


def _of_data(output: object) -> Sketch:
    if not isinstance(output, (dict, list, tuple, set, frozenset)):
        return Sketch("a value", [Piece(Slot.SHAPE, plain(shape_of(output)), 0.6)])
    size = encoded_size(output)
    return Sketch("data" if size is None else f"data, {size:,} bytes", [*shape_pieces(output), *_said_inside(output)])


def _said_inside(value: object) -> list[Piece]:
    """Pieces of the long texts in an object, such as "stdout". Only its top level is read."""
    if not isinstance(value, dict):
        return []
    texts = {key: item for key, item in value.items() if isinstance(item, str) and len(item) > _SHORT}
    ordered = sorted(texts, key=lambda key: _READ_FIRST.index(key) if key in _READ_FIRST else len(_READ_FIRST))
    return _of_prose(LongText("\n".join(texts[key] for key in ordered))) if texts else []


def _content_blocks(output: object) -> list[dict[str, Any]] | None:
    """The content blocks, if the output is a list of them or a tool result that contains them. Otherwise None."""
    if isinstance(output, dict) and "content" in output and output.keys() <= _ENVELOPE:
        inner = output["content"]
        blocks = _content_blocks([{"type": "text", "text": inner}] if isinstance(inner, str) else inner)
        failed = output.get("is_error") or output.get("isError")
        return [{"type": "error"}, *blocks] if blocks and failed else blocks
    if isinstance(output, list) and output and all(isinstance(one, dict) for one in output):
        blocks = [one for one in output if isinstance(one.get("type"), str)]
        if len(blocks) == len(output) and any(isinstance(one.get("text"), str) for one in blocks):
            return blocks
    return None


def _of_blocks(blocks: list[dict[str, Any]]) -> Sketch:
    texts = [one["text"] for one in blocks if isinstance(one.get("text"), str)]
    sketch = _of_text("\n".join(texts))
    others = Counter(plain(one["type"][:40]) for one in blocks if not isinstance(one.get("text"), str))
    if not others:
        return sketch
    named = ", ".join(f"{count:,} {name}" for name, count in sorted(others.items()))
    counts = f"{counted(len(texts), 'text')}, {named}"
    return sketch._replace(pieces=[Piece(Slot.STATUS, counts, 0.3), *sketch.pieces])
