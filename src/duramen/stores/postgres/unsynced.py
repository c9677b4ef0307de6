"""Batches that were committed without waiting for the disk. A crash of the server may remove them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from ...ports import Batch, Record
from .leases import Place


class UnsyncedBatch(NamedTuple):
    """A committed batch and its records."""

    batch: Batch
    records: list[Record]

    @property
    def last(self) -> Record:
        return self.records[-1]


class UnsyncedBatches:
    """The unsynced batches of this process, by session, in order.

    A batch stays here until a synced commit follows it in its session, or until `Store.sync` has found it in the
    database after a flush. If the server lost it, it is stored again from here.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._kept: dict[Place, tuple[UnsyncedBatch, ...]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, place: Place) -> tuple[UnsyncedBatch, ...]:
        """The unsynced batches of a session."""
        return self._kept.get(place, ())

    def all(self) -> dict[Place, tuple[UnsyncedBatch, ...]]:
        """The unsynced batches of all sessions."""
        with self._mutex:
            return dict(self._kept)

    def keep(self, place: Place, batch: Batch, records: list[Record]) -> None:
        """Add a batch that was committed."""
        with self._mutex:
            self._kept[place] = (*self._kept.get(place, ()), UnsyncedBatch(batch, records))

    def replace(self, place: Place, known: Sequence[UnsyncedBatch], batches: Sequence[UnsyncedBatch]) -> None:
        """Replace `known` by `batches`, which were stored again."""
        with self._mutex:
            self._put(place, (*batches, *self._others(place, known)))

    def release(self, place: Place, safe: Sequence[UnsyncedBatch]) -> None:
        """Remove batches that a crash cannot remove any more."""
        if place not in self._kept:
            return
        with self._mutex:
            self._put(place, self._others(place, safe))

    def _others(self, place: Place, known: Sequence[UnsyncedBatch]) -> tuple[UnsyncedBatch, ...]:
        return tuple(one for one in self._kept.get(place, ()) if all(one is not other for other in known))

    def _put(self, place: Place, batches: tuple[UnsyncedBatch, ...]) -> None:
        if batches:
            self._kept[place] = batches
        else:
            self._kept.pop(place, None)
