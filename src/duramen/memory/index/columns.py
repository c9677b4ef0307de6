"""What an audience is made of: its columns, names by number, the places of numbers, and codes of vectors."""

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
"""The columns of an audience: the type of each, and what it holds where nothing is. `opens` is when one begins that was said
ahead of its time: the others hold at once, whatever the clock of who said them. `told` is where the times that it names
begin, of which there are `tells`; `noted` where its metadata do, in `notes` bytes. `known` says that there is a
vector."""


class NameTable:
    """Numbers for names, given as they come."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.names)
            self.names.append(name)
        return found

    def find(self, name: str) -> int:
        """The number of a name; -1 if it has none."""
        return self._numbers.get(name, -1)


class PlaceTable:
    """The places of numbers: sorted, and a dict of what came since."""

    def __init__(self) -> None:
        self._numbers: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._places: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._newest: dict[int, int] = {}

    def add(self, numbers: NDArray[np.int64], start: int) -> None:
        """New numbers, at places in a row."""
        self._newest.update(zip(numbers.tolist(), range(start, start + len(numbers)), strict=True))
        if len(self._newest) > max(1_000, len(self._numbers) // 16):  # an entry of it takes many times as much
            added = np.fromiter(self._newest, dtype=np.int64, count=len(self._newest))
            places = np.fromiter(self._newest.values(), dtype=np.int64, count=len(self._newest))
            kept = ~np.isin(self._numbers, added)  # one that was dropped and came again
            numbers, places = np.append(self._numbers[kept], added), np.append(self._places[kept], places)
            order = np.argsort(numbers, kind="stable")
            self._numbers, self._places, self._newest = numbers[order], places[order], {}

    def find(self, numbers: NDArray[np.int64], alive: NDArray[np.bool_]) -> NDArray[np.intp]:
        """The places of numbers; -1 for what is not there, or not alive."""
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
    """On which side of a center the numbers of vectors lie: a column for each, 64 in a row."""
    count, dims = vectors.shape
    bits = np.zeros((count, -(-dims // 64) * 8), dtype=np.uint8)
    bits[:, : -(-dims // 8)] = np.packbits(vectors > center, axis=1)
    return bits.view(np.uint64).T
