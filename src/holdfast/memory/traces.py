"""What a search needs to know of a memory, worked out once from its text and packed: its gist and its vector."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..journal.events import moment
from .times import MONTHS, spans
from .words import content_words, number_of, terms

Vector = NDArray[np.float32]
READ_UPTO = 20_000
"""Characters of a text that are searched; what lies behind them is kept, but not found."""
SUBSTANCE_CAP = 30
TIMES_CAP = 50
"""Times of a text that count; more are a table or a log, and each would be compared with each that is asked for."""


class Gist(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A text as it is searched: the numbers of its terms (32 bits each) and how often each occurs, how long it is, the
    days that it names, how many words carry meaning, and whether it asks something."""

    terms: bytes
    counts: bytes
    length: int
    told: list[tuple[int, int]]
    substance: int
    asks: bool
    speaker: str
    metadata: dict[str, Any] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Gist).decode


def day_of(time: int) -> dt.date:
    """The day (in UTC) of a time in microseconds; the nearest that a calendar has."""
    return moment(time).date()


def read_gist(data: Mapping[str, Any], time: int) -> Gist:
    """The gist of a memory from the data of its event and the time at which it begins."""
    on = day_of(time)
    speaker = data.get("speaker") or ""
    text = data["content"][:READ_UPTO]
    titled = f"{data['title']}\n{text}" if data.get("title") else text
    dated = f"{on.day} {MONTHS[on.month - 1]} {on.year}"
    counted = Counter(number_of(term) for term in terms(f"{dated} {speaker} {titled}"))
    found = sorted(counted)
    return Gist(
        terms=np.array(found, dtype="<u4").tobytes(),
        counts=bytes(min(255, counted[term]) for term in found),
        length=counted.total(),
        told=[(span.start.toordinal(), span.end.toordinal()) for span in spans(titled, on)[:TIMES_CAP]],
        substance=min(SUBSTANCE_CAP, content_words(titled)),
        asks="?" in text,
        speaker=speaker,
        metadata=data.get("metadata"),
    )


def pack(gist: Gist) -> bytes:
    """A gist as it is stored."""
    return _encode(gist)


def unpack(packed: bytes) -> Gist:
    """A gist as it was. ValueError if it cannot be read."""
    return _decode(packed)


def said(data: Mapping[str, Any]) -> str:
    """The text of a memory as an embedder is given it."""
    content = data["content"][:READ_UPTO]
    text = f"{data['title']}. {content}" if data.get("title") else content
    return f"{data['speaker']}: {text}" if data.get("speaker") else text


def pack_vector(vector: Vector) -> bytes:
    """A vector of length 1 in a byte for each number, with the scale in front."""
    scale = float(np.abs(vector).max()) / 127 or 1.0
    numbers: bytes = np.rint(vector / scale).astype(np.int8).tobytes()
    return np.float32(scale).tobytes() + numbers


def unpack_vectors(packed: Sequence[bytes], dims: int) -> Vector:
    """Vectors as they were stored, of length 1 again. Each must have so many dimensions (`has_dims`)."""
    rows = np.frombuffer(b"".join(packed), dtype=np.int8).reshape(-1, 4 + dims)[:, 4:].astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1
    rows /= lengths[:, None]
    return rows


def has_dims(packed: bytes | None, dims: int) -> bool:
    """Whether there is a vector, and of so many dimensions."""
    return packed is not None and dims > 0 and len(packed) == 4 + dims
