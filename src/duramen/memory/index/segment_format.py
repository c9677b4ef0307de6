"""Memories of an audience packed into bytes and taken in again, without looking at each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .audience_index import AudienceIndex, IndexedMemory
from .columns import COLUMNS, EPISODE
from .postings import PackedPostings

_PACKED_COLUMNS = tuple(
    name
    for name in COLUMNS
    if name not in ("alive", "before", "after", "is_answer", "recalled", "first_date", "metadata_start")
)
"""The columns that are packed. The others follow from them, or are counted elsewhere."""
_VERSION = 1


class SegmentBody(msgspec.Struct, array_like=True, frozen=True):
    """Memories packed: columns by name, the lists of their terms, the times that they name, their metadata, the names
    that columns number, and the numbers of those that are memories no longer."""

    version: int
    count: int
    columns: dict[str, bytes]
    lists: tuple[bytes, bytes, bytes, bytes]
    dates: bytes
    metadata: bytes
    names: tuple[list[str], list[str], list[str]]
    removed: list[int]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SegmentBody).decode
_LISTS = (np.uint32, np.uint32, np.uint32, np.uint8)


def pack(entries: Sequence[IndexedMemory], removed: Sequence[int]) -> bytes:
    """Memories, of which only is kept that there is a vector, and the numbers of those that are none any more."""
    audience = AudienceIndex(0)
    audience.put_all([entry._replace(vector=None) for entry in entries])
    audience.column("has_vector")[:] = [entry.vector is not None for entry in entries]
    lists = audience.packed_postings()
    body = SegmentBody(
        _VERSION,
        audience.size,
        {name: _pack_column(audience.column(name)) for name in _PACKED_COLUMNS},
        (lists.terms.tobytes(), lists.offsets.tobytes(), lists.places.tobytes(), lists.counts.tobytes()),
        audience.named_days().tobytes(),
        audience.packed_metadata(),
        (audience.speakers.names, audience.kinds.names, audience.sessions.names),
        list(removed),
    )
    return _encode(body)


def _pack_column(column: NDArray[Any]) -> bytes:
    """A column as bytes: whole numbers as what they differ from the one before, which presses well."""
    if column.dtype.kind == "i":
        column = np.diff(column, prepend=column.dtype.type(0))
    return column.tobytes()


def _unpack_column(name: str, packed: bytes) -> NDArray[Any]:
    kind = np.dtype(COLUMNS[name][0])
    column = np.frombuffer(packed, dtype=kind)
    return np.cumsum(column, dtype=kind) if kind.kind == "i" else column


def unpack(packed: bytes) -> SegmentBody:
    """What was packed. ValueError if it cannot be read, or by this version."""
    try:
        body = _decode(packed)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if body.version != _VERSION or set(body.columns) != set(_PACKED_COLUMNS):
        raise ValueError("it was packed by another version")
    return body


def load_segment(audience: AudienceIndex, body: SegmentBody, name: bytes) -> None:
    """Put what was packed of the audience of a name into one; what it says of a memory that is there takes the place of
    what was known."""
    columns = {name: _unpack_column(name, packed) for name, packed in body.columns.items()}
    if any(len(column) != body.count for column in columns.values()):
        raise ValueError("a column has another length than the others")
    lists = PackedPostings(*(np.frombuffer(part, dtype=kind) for part, kind in zip(body.lists, _LISTS, strict=True)))
    speakers, kinds, sessions = body.names
    columns["speaker"] = _renumbered(columns["speaker"], [audience.speakers.number(name) for name in speakers])
    columns["kind"] = _renumbered(columns["kind"], [audience.kinds.number(name) for name in kinds])
    episodes = columns["kind"] == audience.kinds.find(EPISODE)
    joined = _renumbered(columns["session"], [audience.session_number(name, session) for session in sessions])
    dates = np.frombuffer(body.dates, dtype=np.int32).reshape(-1, 2)
    for number in (*body.removed, *audience.known_numbers(columns["number"])):
        audience.drop(number)
    audience.append(columns, lists, dates, body.metadata, np.where(episodes, joined, -1))


def _renumbered(column: NDArray[Any], numbers: Sequence[int]) -> NDArray[np.int32]:
    """A column of numbers of names, by other numbers; -1 stays."""
    renumbered: NDArray[np.int32] = np.array([*numbers, -1], dtype=np.int32)[column]
    return renumbered
