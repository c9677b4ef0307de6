"""The format of a segment: memories of an audience packed as columns, which load without a loop over memories."""

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
"""The columns that are packed. The others are derived from these, or stored elsewhere (`recalled`)."""
_VERSION = 1


class SegmentBody(msgspec.Struct, array_like=True, frozen=True):
    """The contents of a segment: columns by name, postings, the dates that memories name, their metadata, the names
    that columns refer to by number, and the numbers of removed memories."""

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
    """Pack memories, without their vectors, and the numbers of removed ones."""
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
    """A column as bytes; integers as differences, which compress well."""
    if column.dtype.kind == "i":
        column = np.diff(column, prepend=column.dtype.type(0))
    return column.tobytes()


def _unpack_column(name: str, packed: bytes) -> NDArray[Any]:
    kind = np.dtype(COLUMNS[name][0])
    column = np.frombuffer(packed, dtype=kind)
    return np.cumsum(column, dtype=kind) if kind.kind == "i" else column


def unpack(packed: bytes) -> SegmentBody:
    """The contents of a packed segment. Raises ValueError if it is unreadable or of another version."""
    try:
        body = _decode(packed)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if body.version != _VERSION or set(body.columns) != set(_PACKED_COLUMNS):
        raise ValueError("the segment was packed by another version")
    return body


def load_segment(audience: AudienceIndex, body: SegmentBody, name: bytes) -> None:
    """Load a segment of the audience `name` into an index. It replaces memories that the index already has. Raises
    ValueError or IndexError if the segment is damaged."""
    columns = {name: _unpack_column(name, packed) for name, packed in body.columns.items()}
    if any(len(column) != body.count for column in columns.values()):
        raise ValueError("the columns of the segment have different lengths")
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
    """A column of name numbers, translated to other numbers. -1 stays -1."""
    renumbered: NDArray[np.int32] = np.array([*numbers, -1], dtype=np.int32)[column]
    return renumbered
