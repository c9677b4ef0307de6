"""Packs index entries and segments for the store, and seals them if their owner has a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeGuard

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...journal.envelope import disclose, enclose
from ...journal.journal import Journal
from ...journal.owners import NOBODY, Owner
from ...journal.sealing import EnvelopeFlags
from ...ports import Change, IndexEntry, MemoryRow, SampledMemory, Segment, StoredIndexEntry
from ..catalog.texts import MemoryTexts
from . import segment_format
from .audience_index import IndexedMemory
from .index_entry import (
    PackedVector,
    TermStats,
    Vector,
    has_dims,
    pack,
    packed_size,
    read_term_stats,
    search_fields,
    unpack,
    unpack_vectors,
)

_pack = msgspec.msgpack.encode
_PLAIN = bytes([EnvelopeFlags.PLAIN])


class IndexCodec:
    """Packs, seals, opens and unpacks index entries and segments."""

    def __init__(self, journal: Journal, texts: MemoryTexts) -> None:
        self._journal = journal
        self._texts = texts

    def index_entry(
        self, row: MemoryRow, stats: TermStats, vector: PackedVector, owner: Owner, generation: int
    ) -> IndexEntry:
        """The index entry of a memory, packed and sealed."""
        where = self._where(row.audience, row.id, generation)
        ids = self._journal.ids
        body = enclose(vector.body, owner, where + b"v", ids)
        clear = None if owner.data_key else search_fields(stats, vector.code)
        return IndexEntry(row.audience, row.number, enclose(pack(stats), owner, where, ids), body, clear)

    def _where(self, audience: bytes, id: str, generation: int) -> bytes:
        return _pack((self._journal.workspace, audience, id, generation))

    async def open_entries(self, changes: Sequence[Change], dims: int, generation: int) -> dict[int, IndexedMemory]:
        """The index entries of changed memories, opened, by number. Missing and unreadable ones are left out."""
        owners = {ref: await self._journal.bookmarks.owner_of(ref) for ref in {one.row.owner for one in changes}}
        all_stats: list[tuple[Change, TermStats]] = []
        vectors: dict[int, bytes] = {}
        for change in changes:
            row = change.row
            owner = owners[row.owner]
            if owner is None or change.words is None:
                continue
            try:
                all_stats.append((change, unpack(self._open(change.words, owner, row.audience, row.id, generation))))
                if change.vector is not None:
                    vectors[row.number] = self._open(change.vector, owner, row.audience, row.id, generation, b"v")
            except (ValueError, msgspec.DecodeError):
                continue
        found = _unpacked_vectors(vectors, dims)
        return {
            change.row.number: IndexedMemory(change.row, stats, found.get(change.row.number), change.recalled)
            for change, stats in all_stats
        }

    @staticmethod
    def open_sample(sample: Sequence[SampledMemory], dims: int) -> list[IndexedMemory]:
        """The index entries of a sample, none of which is sealed. Unreadable ones are left out."""
        all_stats: list[tuple[SampledMemory, TermStats]] = []
        for one in sample:
            with suppress(ValueError, msgspec.DecodeError):
                packed = one.words[1:] if _is_plain(one.words) else disclose(one.words, NOBODY, b"")
                all_stats.append((one, unpack(packed)))
        found = _unpacked_vectors({one.number: one.vector[1:] for one, _ in all_stats if _is_plain(one.vector)}, dims)
        return [IndexedMemory(_row_of(one), stats, found.get(one.number), 0) for one, stats in all_stats]

    async def current_entries(self, changes: Sequence[Change], dims: int, generation: int) -> dict[int, IndexedMemory]:
        """The index entries of the current memories among these changes, by number. If an entry is missing, its term
        statistics are computed from the text, without a vector."""
        current = [one for one in changes if _is_current(one.row)]
        found = await self.open_entries(current, dims, generation)
        unread = [one for one in current if one.row.number not in found]
        texts = await self._texts.event_data([one.row for one in unread])
        for one in unread:
            if one.row.number in texts:
                stats = read_term_stats(texts[one.row.number], one.row.begins)
                found[one.row.number] = IndexedMemory(one.row, stats, None, one.recalled)
        return found

    async def open_vectors(
        self, stored: Sequence[StoredIndexEntry], dims: int, generation: int
    ) -> tuple[NDArray[np.int64], Vector]:
        """The vectors of stored index entries: their numbers, and a row for each. Unreadable ones are left out."""
        owners = {ref: await self._journal.bookmarks.owner_of(ref) for ref in {one.owner for one in stored}}
        numbers: list[int] = []
        packed: list[bytes] = []
        for one in stored:
            owner = owners[one.owner]
            if owner is None or one.vector is None:
                continue
            with suppress(ValueError):
                body = self._open(one.vector, owner, one.audience, one.id, generation, b"v")
                if has_dims(body, dims):
                    numbers.append(one.number)
                    packed.append(body)
        return np.array(numbers, dtype=np.int64), unpack_vectors(packed, dims)

    def _open(
        self, envelope: bytes, owner: Owner, audience: bytes, id: str, generation: int, part: bytes = b""
    ) -> bytes:
        if envelope[:1] == _PLAIN:  # the usual case in a store without sealing
            return envelope[1:]
        return disclose(envelope, owner, self._where(audience, id, generation) + part)

    async def pack_segment(
        self,
        audience: bytes,
        generation: int,
        span: tuple[int, int],
        entries: Sequence[IndexedMemory],
        removed: Sequence[int],
    ) -> Segment | None:
        """A segment with changes of an audience; None if the entries have several owners, or their owner is erased."""
        refs = {entry.row.owner for entry in entries}
        owner = await self._journal.bookmarks.owner_of(next(iter(refs), None))
        if len(refs) > 1 or owner is None:
            return None
        numbers = [*(entry.row.number for entry in entries), *removed]
        body = enclose(
            segment_format.pack(entries, removed), owner, self._span(audience, generation, span), self._journal.ids
        )
        return Segment(*span, min(numbers, default=0), max(numbers, default=0), owner.ref if refs else None, body)

    async def open_segment(
        self, audience: bytes, generation: int, segment: Segment
    ) -> segment_format.SegmentBody | None:
        """The contents of a segment; None if it cannot be read."""
        owner = await self._journal.bookmarks.owner_of(segment.owner)
        if owner is None:
            return None
        span = self._span(audience, generation, segment[:2])
        try:
            return segment_format.unpack(disclose(segment.body, owner, span))
        except ValueError:
            return None

    def _span(self, audience: bytes, generation: int, span: tuple[int, int]) -> bytes:
        return _pack((self._journal.workspace, audience, "segment", generation, *span))

    @staticmethod
    def plain_vectors(bodies: Sequence[bytes], dims: int) -> tuple[list[int], Vector]:
        """Unsealed vectors: the places of the bodies that can be read, and a row for each."""
        size = len(_PLAIN) + packed_size(dims)
        plain = [at for at, body in enumerate(bodies) if len(body) == size and body[0] == EnvelopeFlags.PLAIN]
        return plain, unpack_vectors([bodies[at] for at in plain], dims, len(_PLAIN))


def _unpacked_vectors(packed: Mapping[int, bytes], dims: int) -> dict[int, Vector]:
    """Vectors by number. Those with other dimensions are left out."""
    numbers = [number for number, one in packed.items() if has_dims(one, dims)]
    if not numbers:
        return {}
    return dict(zip(numbers, unpack_vectors([packed[number] for number in numbers], dims), strict=True))


def _is_plain(body: bytes | None) -> TypeGuard[bytes]:
    return body is not None and body[:1] == _PLAIN


def _row_of(sample: SampledMemory) -> MemoryRow:
    """A row for a sampled memory, with only the fields that statistics need."""
    recorded = sample.begins if sample.opens is None else sample.begins - 1
    held = (recorded, sample.begins, sample.ends, sample.expires)
    place = (sample.session or "", sample.position or 0)
    # Positional arguments, because they are faster: this runs for hundreds of memories per question.
    return MemoryRow._make(
        (
            sample.audience,
            "",
            *place,
            sample.kind,
            None,
            None,
            *held,
            0.5,
            1.0,
            recorded,
            1,
            None,
            None,
            0,
            sample.number,
            True,
            0,
            0,
        )
    )


def _is_current(row: MemoryRow) -> bool:
    return row.closed is None and row.id != "" and row.intact
