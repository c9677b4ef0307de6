"""A pool in memory, ready to be searched: columns in NumPy and a list of places for each term. Kept right by the
changes that the store counts, so that a search reads only what is new."""

from __future__ import annotations

import datetime as dt
from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ports import MemoryRow
from .times import Span
from .traces import Gist, Vector, day_of, told_spans

FOREVER = 2**62
EPISODE = "episode"
_NONE = np.iinfo(np.int32).min

_COLUMNS: dict[str, tuple[Any, Any]] = {
    "alive": (np.bool_, False),
    "number": (np.int64, 0),
    "length": (np.float32, 0),
    "session": (np.int32, -1),
    "before": (np.int32, -1),
    "after": (np.int32, -1),
    "answers": (np.bool_, False),
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
    "names_time": (np.bool_, False),
    "known": (np.bool_, False),
}
"""The columns of a pool: the type of each, and what it holds where nothing is. `opens` is when one begins that was said
ahead of its time: the others hold at once, whatever the clock of who said them. `known` says that there is a vector."""


class Names:
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


class Pool:
    """The current memories of one pool, each at a place that it keeps. Not for two threads at once."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self.size = 0
        self.seen = 0
        """The count of changes that this pool has taken in."""
        self._columns = {name: np.full(16, empty, dtype=kind) for name, (kind, empty) in _COLUMNS.items()}
        self._vectors: Vector = np.zeros((16, dims), dtype=np.float32)
        self._postings: dict[int, tuple[array[int], array[int]]] = {}
        self._places: dict[int, int] = {}
        self._last_of: dict[int, int] = {}
        self._asks: list[bool] = []
        self._positions: list[int] = []
        self.told: list[tuple[Span, ...]] = []
        self.metadata: list[dict[str, Any] | None] = []
        self.speakers, self.kinds, self.sessions = Names(), Names(), Names()

    def column(self, name: str) -> NDArray[Any]:
        """A column, one value for each place."""
        return self._columns[name][: self.size]

    @property
    def vectors(self) -> Vector:
        """One row for each place; zeros where there is no vector yet."""
        return self._vectors[: self.size]

    def count(self) -> int:
        """How many memories are alive."""
        return int(np.count_nonzero(self.column("alive")))

    def postings(self, term: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]] | None:
        """The places of the living memories that have a term, and how often each has it."""
        found = self._postings.get(term)
        if found is None:
            return None
        places, counts = np.frombuffer(found[0], dtype=np.uint32), np.frombuffer(found[1], dtype=np.uint8)
        alive = self._columns["alive"][places]
        return places[alive], counts[alive]  # copies: the lists may grow again

    def put(self, row: MemoryRow, gist: Gist, vector: Vector | None, recalled: int) -> None:
        """Take in a memory, or what is new about it."""
        place = self._places.get(row.number)
        if place is None:
            place = self._add(row, gist)
        columns = self._columns
        columns["importance"][place] = row.importance
        columns["recalled"][place] = max(recalled, columns["recalled"][place])  # some are not stored yet
        columns["ends"][place] = FOREVER if row.ends is None else row.ends
        columns["expires"][place] = FOREVER if row.expires is None else row.expires
        if vector is not None:
            self._vectors[place] = vector
            columns["known"][place] = True

    def _add(self, row: MemoryRow, gist: Gist) -> int:
        place = self.size
        if place == len(self._vectors):
            self._grow()
        self.size += 1
        self._places[row.number] = place
        columns, on = self._columns, day_of(row.begins)
        columns["alive"][place] = True
        columns["number"][place] = row.number
        columns["length"][place] = gist.length
        columns["substance"][place] = np.log1p(gist.substance)
        columns["speaker"][place] = self.speakers.number(gist.speaker) if gist.speaker else -1
        columns["kind"][place] = self.kinds.number(row.kind)
        columns["day"][place] = on.toordinal()
        columns["begins"][place] = row.begins
        columns["opens"][place] = row.begins if row.begins > row.recorded else -FOREVER
        columns["names_time"][place] = bool(gist.told)
        self.told.append(told_spans(gist, on))
        self.metadata.append(gist.metadata)
        self._asks.append(gist.asks)
        self._positions.append(row.position)
        for term, often in zip(np.frombuffer(gist.terms, dtype="<u4").tolist(), gist.counts, strict=True):
            found = self._postings.get(term)
            if found is None:
                found = self._postings[term] = (array("I"), array("B"))
            found[0].append(place)
            found[1].append(often)
        if row.kind == EPISODE:
            self._join(place, self.sessions.number(row.session))
        return place

    def _join(self, place: int, session: int) -> None:
        """Put an episode after the one before it in its session."""
        before, position = self._last_of.get(session, -1), self._positions[place]
        after = -1
        while before >= 0 and self._positions[before] > position:
            before, after = int(self._columns["before"][before]), before
        self._columns["session"][place] = session
        self._link(before, place)
        self._link(place, after)
        if after < 0:
            self._last_of[session] = place

    def _link(self, before: int, after: int) -> None:
        if before >= 0:
            self._columns["after"][before] = after
        if after >= 0:
            self._columns["before"][after] = before
            speaker = self._columns["speaker"]
            self._columns["answers"][after] = before >= 0 and self._asks[before] and speaker[before] != speaker[after]

    def note(self, number: int) -> None:
        """This memory was recalled."""
        place = self._places.get(number)
        if place is not None:
            self._columns["recalled"][place] += 1

    def drop(self, number: int) -> None:
        """Answer with this memory no longer."""
        place = self._places.pop(number, None)
        if place is None:
            return
        columns = self._columns
        columns["alive"][place] = False
        self._vectors[place] = 0
        columns["known"][place] = False
        self.told[place], self.metadata[place] = (), None
        session = int(columns["session"][place])
        if session >= 0:
            before, after = int(columns["before"][place]), int(columns["after"][place])
            self._link(before, after)
            if after < 0:
                self._last_of[session] = before
            columns["session"][place] = columns["before"][place] = columns["after"][place] = -1

    def _grow(self) -> None:
        size = len(self._vectors) * 2
        for name, (kind, empty) in _COLUMNS.items():
            grown = np.full(size, empty, dtype=kind)
            grown[: self.size] = self._columns[name][: self.size]
            self._columns[name] = grown
        vectors = np.zeros((size, self.dims), dtype=np.float32)
        vectors[: self.size] = self._vectors[: self.size]
        self._vectors = vectors

    def days(self, on: dt.date) -> NDArray[np.float32]:
        """How many days ago each memory is from, at least 0."""
        return np.maximum(0, on.toordinal() - self.column("day").astype(np.int64)).astype(np.float32)
