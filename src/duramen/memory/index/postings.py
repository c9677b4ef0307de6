"""Postings: for each term, the memories that have it. Most are in packed lists, the newest in loose lists."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.uint32]
Counts = NDArray[np.uint8]
_LOOSE = 20_000
"""How many entries may stay loose. If there are more, all are packed."""
_FEW = 500
"""How many entries are added as loose ones to empty postings. More are packed at once."""
_FULL = 1_000_000
"""The most entries of one packed part: a merge takes several times the memory of its parts."""


class PackedPostings(NamedTuple):
    """Postings lists in sequence. The list of the n-th term is between the n-th offset and the next one."""

    terms: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    places: Places
    counts: Counts

    @classmethod
    def of(cls, terms: NDArray[np.uint32], places: Places, counts: Counts) -> PackedPostings:
        """Pack entries, which must be in the order of their places, by term."""
        order = np.argsort(terms, kind="stable")
        ordered = terms[order]
        starts = np.nonzero(np.diff(ordered, prepend=ordered[:1] ^ 1))[0] if len(ordered) else np.zeros(0, np.intp)
        offsets = np.append(starts, len(ordered)).astype(np.uint32)
        return cls(ordered[starts], offsets, places[order], counts[order])

    def entries(self) -> tuple[NDArray[np.uint32], Places, Counts]:
        """The terms, places and counts of all entries, in the order of the terms."""
        return np.repeat(self.terms, self.offsets[1:] - self.offsets[:-1]), self.places, self.counts

    def find(self, term: int) -> slice | None:
        """Where the list of a term is; None if there is none."""
        at = int(self.terms.searchsorted(np.uint32(term)))
        if at == len(self.terms) or self.terms[at] != term:
            return None
        return slice(int(self.offsets[at]), int(self.offsets[at + 1]))


class Postings:
    """The places that have each term, and how often each has it."""

    def __init__(self) -> None:
        self._packed: list[PackedPostings] = []
        """Each part is full, or at least twice as large as the next, so that there are few parts."""
        self._loose: dict[int, tuple[array[int], array[int]]] = {}
        self._entries = 0

    def add(self, terms: NDArray[np.uint32], counts: Counts, places: Places) -> None:
        """Add entries of new memories, in the order of their places."""
        if len(terms) > (_LOOSE // 8 if self._packed or self._loose else _FEW):
            self.take(PackedPostings.of(terms, places, counts))
            return
        for term, often, place in zip(terms.tolist(), counts.tolist(), places.tolist(), strict=True):
            found = self._loose.get(term)
            if found is None:
                found = self._loose[term] = (array("I"), array("B"))
            found[0].append(place)
            found[1].append(often)
        self._entries += len(terms)
        if self._entries > _LOOSE:
            self._pack_loose()

    def take(self, packed: PackedPostings) -> None:
        """Add packed lists of new memories. Their places must be higher than all existing ones."""
        self._pack_loose()
        self._packed.append(packed)
        while len(self._packed) > 1:
            before, last = (len(part.places) for part in self._packed[-2:])
            if before >= 2 * last or before + last > _FULL:
                break
            self._packed[-2:] = [_merged(self._packed[-2:])]

    def packed(self) -> PackedPostings:
        """All lists, merged into one."""
        self._pack_loose()
        empty = np.zeros(0, dtype=np.uint32)
        return _merged(self._packed) if self._packed else PackedPostings.of(empty, empty, np.zeros(0, dtype=np.uint8))

    def _pack_loose(self) -> None:
        if not self._loose:
            return
        loose, self._loose, self._entries = self._loose, {}, 0
        terms = np.repeat(
            np.fromiter(loose, dtype=np.uint32, count=len(loose)), [len(places) for places, _ in loose.values()]
        )
        places = np.concatenate([np.frombuffer(places, dtype=np.uint32) for places, _ in loose.values()])
        counts = np.concatenate([np.frombuffer(counts, dtype=np.uint8) for _, counts in loose.values()])
        self.take(PackedPostings.of(terms, places, counts))

    def find(self, term: int) -> tuple[Places, Counts] | None:
        """The places that have a term, ascending, and how often each has it; None if there are none. Includes places of
        removed memories. The arrays are valid only until the next change."""
        places: list[Places] = []
        counts: list[Counts] = []
        for packed in self._packed:
            at = packed.find(term)
            if at is not None:
                places.append(packed.places[at])
                counts.append(packed.counts[at])
        loose = self._loose.get(term)
        if loose is not None:  # copies: an array cannot grow while a view of it exists
            places.append(np.array(loose[0], dtype=np.uint32))
            counts.append(np.array(loose[1], dtype=np.uint8))
        if not places:
            return None
        return (places[0], counts[0]) if len(places) == 1 else (np.concatenate(places), np.concatenate(counts))

    def frequency(self, term: int) -> int:
        """How many places have a term."""
        found = [packed.places[at] for packed in self._packed if (at := packed.find(term)) is not None]
        loose = self._loose.get(term)
        return sum(len(places) for places in found) + (0 if loose is None else len(loose[0]))

    def chosen(self, terms: Sequence[int], places: NDArray[Any]) -> Postings:
        """The postings of these terms for these places (ascending), with the places numbered from 0."""
        found = Postings()
        for term in terms:
            counts = self.counts(term, places)
            there = np.nonzero(counts)[0].astype(np.uint32)
            if len(there):
                found._loose[term] = (array("I", there.tobytes()), array("B", counts[there].tobytes()))
        return found

    def counts(self, term: int, places: NDArray[Any]) -> Counts:
        """How often each of these places has a term; 0 for a negative place."""
        counts = np.zeros(len(places), dtype=np.uint8)
        posted = self.find(term)
        if posted is not None and len(places):
            places = places.astype(
                np.uint32
            )  # another type would copy the list; -1 becomes a place that does not exist
            at = np.minimum(np.searchsorted(posted[0], places), len(posted[0]) - 1)
            there = posted[0][at] == places
            counts[there] = posted[1][at[there]]
        return counts

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return sum(column.nbytes for packed in self._packed for column in packed) + 10 * self._entries


def _merged(parts: Sequence[PackedPostings]) -> PackedPostings:
    """Merge parts. The places of each part must be higher than those of the part before."""
    terms, places, counts = zip(*(part.entries() for part in parts), strict=True)
    return PackedPostings.of(np.concatenate(terms), np.concatenate(places), np.concatenate(counts))
