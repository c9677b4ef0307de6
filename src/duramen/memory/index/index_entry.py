"""Index entries: the term statistics and the vector of a memory, computed once from its text and packed."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import shake_256
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...journal.events import moment
from ...ports import SearchFields
from ..extraction.dates import MONTHS, spans
from ..extraction.words import STOP_WORDS, number_of_word, split

Vector = NDArray[np.float32]
READ_UPTO = 20_000
"""How many characters of a text are indexed. The rest is stored but cannot be found."""
SUBSTANCE_CAP = 30
_LONGEST_FORM = 10_000
TIMES_CAP = 50
"""How many dates of a text are indexed. A text with more is usually a table or a log, and each date is compared with
each date of a question."""


class TermStats(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Term statistics of a text: the numbers of its terms (32 bits each) and how often each occurs, its length, the
    days that it names, how many different terms other than stop words it has (`substance`), and whether it is a
    question."""

    terms: bytes
    counts: bytes
    length: int
    dates: list[tuple[int, int]]
    substance: int
    is_question: bool
    speaker: str
    metadata: dict[str, Any] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TermStats).decode


def day_of(time: int) -> dt.date:
    """The day (in UTC) of a time in microseconds; the nearest one that `datetime` can represent."""
    return moment(time).date()


def read_term_stats(data: Mapping[str, Any], time: int) -> TermStats:
    """The term statistics of a memory, from the data of its event and the time at which it begins."""
    on = day_of(time)
    speaker = data.get("speaker") or ""
    text = data["content"][:READ_UPTO]
    titled = f"{data['title']}\n{text}" if data.get("title") else text
    words = split(titled)
    counted = Counter(_numbers_around(on, speaker))
    counted.update(map(number_of_word, words))
    found = sorted(counted)
    carrying = {number_of_word(word) for word in words if word not in STOP_WORDS}
    return TermStats(
        terms=np.array(found, dtype="<u4").tobytes(),
        counts=bytes([min(255, counted[term]) for term in found]),
        length=counted.total(),
        dates=[(span.start.toordinal(), span.end.toordinal()) for span in spans(titled, on)[:TIMES_CAP]],
        substance=min(SUBSTANCE_CAP, len(carrying)),  # distinguishes a statement from "Thanks!"
        is_question="?" in text,
        speaker=speaker,
        metadata=data.get("metadata"),
    )


@lru_cache(maxsize=1024)
def _numbers_around(on: dt.date, speaker: str) -> tuple[int, ...]:
    """The numbers of the terms of a text's day and speaker. A text is found by these, too."""
    return tuple(map(number_of_word, split(f"{on.day} {MONTHS[on.month - 1]} {on.year} {speaker}")))


def pack(stats: TermStats) -> bytes:
    """Term statistics in their stored form."""
    return _encode(stats)


def unpack(packed: bytes) -> TermStats:
    """Term statistics from their stored form. Raises ValueError."""
    return _decode(packed)


def embedded_text(data: Mapping[str, Any]) -> str:
    """The text to embed for a memory: its speaker, title and content."""
    content = data["content"][:READ_UPTO]
    text = f"{data['title']}. {content}" if data.get("title") else content
    return f"{data['speaker']}: {text}" if data.get("speaker") else text


class PackedVector(NamedTuple):
    """A vector in its stored form, and its code."""

    body: bytes
    code: bytes


def pack_vectors(vectors: Vector) -> list[PackedVector]:
    """Pack vectors of length 1 (rows): one byte per dimension after the scale."""
    scales = (np.abs(vectors).max(axis=1).astype(np.float64) / 127).astype(np.float32)
    scales[scales == 0] = 1
    numbers = np.rint(vectors / scales[:, None]).astype(np.int8)
    bodies = (scale.tobytes() + row.tobytes() for scale, row in zip(scales, numbers, strict=True))
    return list(map(PackedVector, bodies, codes_of(vectors)))


def packed_size(dims: int) -> int:
    """How many bytes a packed vector has."""
    return 4 + dims


def unpack_vectors(packed: Sequence[bytes], dims: int, skip: int = 0) -> Vector:
    """Vectors of length 1 from their stored form. Each has `dims` dimensions (`has_dims`) after `skip` bytes."""
    head = skip + 4
    rows = np.frombuffer(b"".join(packed), dtype=np.int8).reshape(-1, head + dims)[:, head:].astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1
    rows /= lengths[:, None]
    return rows


def has_dims(packed: bytes | None, dims: int) -> bool:
    """Whether this is a packed vector of `dims` dimensions."""
    return packed is not None and dims > 0 and len(packed) == packed_size(dims)


def code_bits(dims: int) -> int:
    """How many bits the code of a vector with `dims` dimensions has."""
    return 1 << max(8, (dims - 1).bit_length())


def code_of(vector: Vector) -> bytes:
    """The code of one vector."""
    return codes_of(vector[None])[0]


def codes_of(vectors: Vector) -> list[bytes]:
    """The codes of vectors (rows). A code has one bit for each of many evenly spread directions: whether the vector
    points that way. The number of bits in which two codes differ is proportional to the angle between their vectors,
    for every embedder. The signs of the dimensions would have this property only if they were balanced around zero."""
    count, dims = vectors.shape
    size = code_bits(dims)
    turned = np.zeros((count, size), dtype=np.float32)
    turned[:, :dims] = vectors * _signs(size)[:dims]
    rows = 1 << (size.bit_length() - 1) // 2
    # A Walsh-Hadamard transform, computed as the product of two small ones.
    mixed = _hadamard(rows) @ turned.reshape(count, rows, size // rows) @ _hadamard(size // rows)
    return [row.tobytes() for row in np.packbits(mixed.reshape(count, size) > 0, axis=1)]


@lru_cache(maxsize=16)
def _hadamard(size: int) -> Vector:
    made = np.ones((1, 1), dtype=np.float32)
    while len(made) < size:
        made = np.block([[made, made], [made, -made]])
    return made


@lru_cache(maxsize=4)
def _signs(size: int) -> Vector:
    """Random signs that never change, because codes are stored."""
    chance = np.frombuffer(shake_256(b"duramen.code").digest(size // 8), dtype=np.uint8)
    return (np.unpackbits(chance).astype(np.float32) * 2) - 1


def search_fields(stats: TermStats, code: bytes | None) -> SearchFields:
    """The fields of a memory that a store can search by itself. Only for memories that are not sealed."""
    return SearchFields(stats.terms, stats.length, code, _json(stats.metadata) if stats.metadata else None)


def _json(metadata: Mapping[str, Any]) -> str:
    """Metadata as JSON, without values that `json_form` refuses: no search in the store can match them."""
    forms = ((json_form(name), json_form(value)) for name, value in metadata.items())
    return "{" + ",".join(f"{name}:{form}" for name, form in forms if name and form) + "}"


def json_form(value: Any) -> str | None:
    """A value as JSON; None if it has no JSON form that every database reads as the same value."""
    try:
        form = json.dumps(value, allow_nan=False, ensure_ascii=False)
        form.encode()  # databases refuse lone surrogates
        plain = len(form) <= _LONGEST_FORM and "\\u0000" not in form and json.loads(form) == value
    except (TypeError, ValueError, RecursionError):
        return None
    return form if plain else None
