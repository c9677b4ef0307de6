"""Reads a safetensors file with NumPy alone: nothing is copied, pages come from the disk when they are used."""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInput

_DTYPES: Mapping[str, str] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
_LONGEST_HEADER = 100_000_000


class Place(NamedTuple):
    """Where a tensor lies in its file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    length: int


def read_safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The file's tensors by name, read-only, in the file's own memory.

    Raises `InvalidInput` for a file that is not in the format, is cut short, or has a type that NumPy lacks. The file
    must not change while an array of it is alive.
    """
    places = locate_tensors(path)
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {
        name: np.frombuffer(data, place.dtype, math.prod(place.shape), place.offset).reshape(place.shape)
        for name, place in places.items()
    }


def locate_tensors(path: Path) -> dict[str, Place]:
    """Where each tensor lies. Raises what `read_safetensors` raises."""
    with path.open("rb") as file:
        size = path.stat().st_size
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
            raise _broken(path, "its header is cut short")
        entries = _header(path, file.read(length))
    start = 8 + length
    return {name: _place(path, name, entry, start, size) for name, entry in entries.items() if name != "__metadata__"}


def _header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(text)
    except ValueError:
        raise _broken(path, "its header is not JSON") from None
    if not isinstance(entries, dict):
        raise _broken(path, "its header is not an object")
    return entries


def _place(path: Path, name: str, entry: Any, start: int, size: int) -> Place:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(first), int(end)]}:
            pass
        case _:
            raise _broken(path, f"tensor {name!r} is not described")
    if dtype not in _DTYPES:
        raise _broken(path, f"tensor {name!r} has the type {dtype}, which NumPy lacks")
    kind = np.dtype(_DTYPES[dtype])
    if not 0 <= first <= end <= size - start or end - first != math.prod(shape) * kind.itemsize:
        raise _broken(path, f"tensor {name!r} does not fit its place")
    return Place(kind, tuple(shape), start + first, end - first)


def _broken(path: Path, why: str) -> InvalidInput:
    return InvalidInput(f"{path} is not a safetensors file that can be read: {why}")
