"""Reads a safetensors file with NumPy alone: nothing is copied, pages come from the disk when they are used."""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def read_safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The file's tensors by name, read-only, in the file's own memory.

    Raises `InvalidInput` for a file that is not in the format, is cut short, or has a type that NumPy lacks. The file
    must not change while an array of it is alive.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
            raise _broken(path, "its header is cut short")
        entries = _header(path, file.read(length))
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[8 + length :]
    return {name: _tensor(path, name, entry, data) for name, entry in entries.items() if name != "__metadata__"}


def _header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(text)
    except ValueError:
        raise _broken(path, "its header is not JSON") from None
    if not isinstance(entries, dict):
        raise _broken(path, "its header is not an object")
    return entries


def _tensor(path: Path, name: str, entry: Any, data: memoryview) -> npt.NDArray[Any]:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            pass
        case _:
            raise _broken(path, f"tensor {name!r} is not described")
    if dtype not in _DTYPES:
        raise _broken(path, f"tensor {name!r} has the type {dtype}, which NumPy lacks")
    kind = np.dtype(_DTYPES[dtype])
    count = math.prod(shape)
    if not 0 <= start <= end <= len(data) or end - start != count * kind.itemsize:
        raise _broken(path, f"tensor {name!r} does not fit its place")
    return np.frombuffer(data[start:end], dtype=kind, count=count).reshape(shape)


def _broken(path: Path, why: str) -> InvalidInput:
    return InvalidInput(f"{path} is not a safetensors file that can be read: {why}")
