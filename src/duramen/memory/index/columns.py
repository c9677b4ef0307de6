"""The parts of an index: its columns, its tables of names and of places, and vector codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .index_entry import Vector

FOREVER = 2**62
EPISODE = "episode"
_NONE = np.iinfo(np.int32).min
COLUMNS: dict[str, tuple[Any, Any]] = {
    "alive": (np.bool_, False),
    "number": (np.int64, 0),
    "length": (np.float32, 0),
    "session": (np.int32, -1),
    "position": (np.int64, 0),
    "before": (np.int32, -1),
    "after": (np.int32, -1),
    "is_question": (np.bool_, False),
    "is_answer": (np.bool_, False),
    "substance": (np.float32, 0),
    "speaker": (np.int32, -1),
    "kind": (np.int32, 0),
    "importance": (np.float32, 0.5),
    "recalled": (np.float32, 0),
    "day": (np.int32, _NONE),
    "begins": (np.int64, 0),
    "opens": (np.int64, -FOREVER),
    "ends": (np.int64, FOREVER),
    "expires": (np.int64, FOREVER),
    "first_date": (np.int32, 0),
    "date_count": (np.uint8, 0),
    "metadata_start": (np.int64, 0),
    "metadata_size": (np.int32, 0),
    "has_vector": (np.bool_, False),
}
"""The columns of an index, with the type and the default of each.

- `opens`: when a memory begins that was recorded before it holds. Other memories hold at once, whatever the writer's
  clock was.
- `first_date`, `date_count`: the place of the first date that the memory names, and how many dates it names.
- `metadata_start`, `metadata_size`: where its metadata are."""


class NameTable:
    """Numbers names from 0, in the order in which they are first used."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a name. A new name gets the next number."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.names)
            self.names.append(name)
        return found

    def find(self, name: str) -> int:
        """The number of a name; -1 if it has none."""
        return self._numbers.get(name, -1)


class PlaceTable:
    """Finds the place of a memory by its number, in sorted arrays and a dict of the newest numbers."""

    def __init__(self) -> None:
        self._numbers: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._places: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._newest: dict[int, int] = {}

    def add(self, numbers: NDArray[np.int64], start: int) -> None:
        """Add numbers at consecutive places."""
        self._newest.update(zip(numbers.tolist(), range(start, start + len(numbers)), strict=True))
        if len(self._newest) > max(1_000, len(self._numbers) // 16):  # a dict entry takes much more memory
            added = np.fromiter(self._newest, dtype=np.int64, count=len(self._newest))
            places = np.fromiter(self._newest.values(), dtype=np.int64, count=len(self._newest))
            kept = ~np.isin(self._numbers, added)  # a memory that was dropped and added again has a new place
            numbers, places = np.append(self._numbers[kept], added), np.append(self._places[kept], places)
            order = np.argsort(numbers, kind="stable")
            self._numbers, self._places, self._newest = numbers[order], places[order], {}

    def find(self, numbers: NDArray[np.int64], alive: NDArray[np.bool_]) -> NDArray[np.intp]:
        """The places of numbers; -1 for numbers that are missing or not alive."""
        places = np.full(len(numbers), -1, dtype=np.intp)
        if len(self._numbers):
            at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
            there = self._numbers[at] == numbers
            places[there] = self._places[at[there]]
        if self._newest:
            newest = np.array([self._newest.get(number, -1) for number in numbers.tolist()], dtype=np.intp)
            places = np.where(newest >= 0, newest, places)
        return np.where((places >= 0) & alive[places], places, -1)


def codes_of(vectors: Vector, center: Vector) -> NDArray[np.uint64]:
    """The codes of vectors: one bit per dimension, set if it is above the center. One column per vector, 64 bits per
    row."""
    count, dims = vectors.shape
    bits = np.zeros((count, -(-dims // 64) * 8), dtype=np.uint8)
    bits[:, : -(-dims // 8)] = np.packbits(vectors > center, axis=1)
    return bits.view(np.uint64).T
