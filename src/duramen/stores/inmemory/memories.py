"""The memory part of the in-memory store: rows, index entries, segments and generations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import Protocol, TypeVar

from ...ports import (
    Change,
    Generation,
    IndexEntry,
    MemoryChanges,
    MemoryQuery,
    MemoryRow,
    Record,
    Segment,
    StoredIndexEntry,
    Touched,
)
from ..common.memory_rows import Ledger, indexed_upto, settle_all, touched, with_recalls

T = TypeVar("T")


@dataclass(slots=True)
class Memories:
    """The memories of one workspace."""

    changes: dict[bytes, int] = field(default_factory=dict)
    """The change count of each audience."""
    rows: dict[int, MemoryRow] = field(default_factory=dict)
    """By number, ascending."""
    index_entries: dict[tuple[int, int], IndexEntry] = field(default_factory=dict)
    """By generation and number."""
    segments: dict[tuple[int, bytes, int], Segment] = field(default_factory=dict)
    """By generation, audience and `after`."""
    recalls: dict[int, tuple[int, int]] = field(default_factory=dict)
    generations: list[Generation] = field(default_factory=list)
    numbers: count[int] = field(default_factory=lambda: count(1))
    generation_numbers: count[int] = field(default_factory=lambda: count(1))

    def write(self, session: str, change: MemoryChanges, records: Sequence[Record]) -> Touched:
        """Apply the memory changes of an append."""
        ledgers = _Ledgers(self)
        settle_all(change, records, ledgers.__getitem__, self.rows.get)
        return touched(ledgers.values(), [(index_entry.vector,) for index_entry in ledgers.write(session)])

    def forget_owned(self, ref: bytes) -> tuple[int, int, int]:
        """Forget the memories of an owner. Returns how many memories, vectors and bytes were removed."""
        owned = [row for row in self.rows.values() if row.owner == ref]
        ledgers = _Ledgers(self)
        for row in owned:
            ledgers[row.audience].forget(row)
        dropped = ledgers.write("")
        vectors = [index_entry.vector for index_entry in dropped if index_entry.vector is not None]
        return len(owned), len(vectors), sum(len(one) for one in vectors) + sum(len(one.words) for one in dropped)

    def unindexed(self, generation: int) -> list[MemoryRow]:
        """See `MemoryStore.unindexed`."""
        current = [row for row in self.rows.values() if row.closed is None]
        without = [row for row in current if (generation, row.number) not in self.index_entries]
        return sorted(without, key=lambda row: self._indexed(row.number))

    def _indexed(self, number: int) -> int:
        there = {generation for generation, indexed in self.index_entries if indexed == number}
        return indexed_upto([one.number for one in self.generations], there)

    def put_index_entries(self, generation: int, index_entries: Sequence[IndexEntry]) -> None:
        if all(one.number != generation for one in self.generations):
            return
        ledgers = _Ledgers(self)
        for index_entry in index_entries:
            row = self.rows.get(index_entry.number)
            if row is not None and row.id:
                self.index_entries[generation, row.number] = index_entry._replace(audience=row.audience)
                ledgers[row.audience].put(row)
        ledgers.write("")

    def kept_index_entries(
        self, audience: bytes | None, generation: int, numbers: Sequence[int] | None
    ) -> list[StoredIndexEntry]:
        wanted = None if numbers is None else set(numbers)
        rows = (row for row in self.rows.values() if audience in (None, row.audience) and row.closed is None)
        chosen = (row for row in rows if (wanted is None and audience is not None) or row.number in (wanted or ()))
        found = ((row, self.index_entries.get((generation, row.number))) for row in chosen)
        return [
            StoredIndexEntry(row.number, row.id, row.owner, one.words, one.vector, row.audience)
            for row, one in found
            if one is not None
        ]

    def note_recalls(self, recalls: Sequence[tuple[int, int, int]]) -> None:
        for number, times, time in recalls:
            if number in self.rows and self.rows[number].id:
                before = self.recalls.get(number, (0, 0))
                self.recalls[number] = (before[0] + times, max(before[1], time))

    def add_generation(self, identity: bytes, active: bool) -> Generation:
        for one in self.generations:
            if one.identity == identity:
                return one
        active = active and not any(one.active for one in self.generations)
        self.generations.append(Generation(next(self.generation_numbers), identity, active))
        return self.generations[-1]

    def activate(self, generation: int) -> None:
        kept = [one._replace(active=True) for one in self.generations if one.number == generation]
        if kept:
            self.generations = kept
            self.index_entries = {
                key: index_entry for key, index_entry in self.index_entries.items() if key[0] == generation
            }
            self.segments = {key: one for key, one in self.segments.items() if key[0] == generation}

    def put_segment(self, audience: bytes, generation: int, segment: Segment, seen: int) -> bool:
        late = (row for row in self.rows.values() if row.audience == audience and row.changed > seen and not row.id)
        gone = any(segment.first <= row.number <= segment.last for row in late)
        if gone or all(one.number != generation for one in self.generations):
            return False
        for key, one in list(self.segments.items()):
            if key[:2] == (generation, audience) and one.after < segment.upto and one.upto > segment.after:
                del self.segments[key]
        self.segments[generation, audience, segment.after] = segment
        return True

    def segments_of(self, audience: bytes, generation: int) -> list[Segment]:
        return [one for key, one in sorted(self.segments.items()) if key[:2] == (generation, audience)]

    def drop_segments(self, audience: bytes, number: int) -> None:
        """Drop the segments that may contain a memory."""
        for key, one in list(self.segments.items()):
            if key[1] == audience and one.first <= number <= one.last:
                del self.segments[key]

    def changed(self, audience: bytes, generation: int, after: int) -> list[Change]:
        """See `MemoryStore.changes`."""
        rows = [row for row in self.rows.values() if row.audience == audience and row.changed > after]
        found = []
        for row in sorted(rows, key=lambda row: row.changed):
            index_entry = self.index_entries.get((generation, row.number))
            words, vector = (None, None) if index_entry is None else (index_entry.words, index_entry.vector)
            found.append(Change(row, words, vector, *self.recalls.get(row.number, (0, 0))))
        return found


class _Audience:
    """The rows of one audience."""

    def __init__(self, memories: Memories, audience: bytes) -> None:
        self._memories, self._audience = memories, audience

    def _rows(self) -> list[MemoryRow]:
        return [row for row in self._memories.rows.values() if row.audience == self._audience]

    def current(self, id: str) -> MemoryRow | None:
        return next((row for row in self._rows() if row.id == id and row.closed is None), None)

    def keyed(self, key: str) -> list[MemoryRow]:
        return [row for row in self._rows() if row.key == key and row.closed is None]


class _Ledgers(dict[bytes, Ledger]):
    """The audiences that an operation changes."""

    def __init__(self, memories: Memories) -> None:
        super().__init__()
        self._memories = memories

    def __missing__(self, audience: bytes) -> Ledger:
        self[audience] = Ledger(_Audience(self._memories, audience), self._memories.changes.get(audience, 0))
        return self[audience]

    def write(self, session: str) -> list[IndexEntry]:
        """Store all changes. New rows belong to this session. Returns the index entries of forgotten memories, which
        were removed."""
        kept, dropped = self._memories, []
        for audience, ledger in self.items():
            for row in sorted(ledger.numbered(lambda: next(kept.numbers)), key=attrgetter("number")):
                kept.rows[row.number] = row if row.number in kept.rows else row._replace(session=session)
            for number in ledger.forgotten:
                kept.recalls.pop(number, None)
                kept.drop_segments(audience, number)
                dropped += [kept.index_entries.pop(key) for key in list(kept.index_entries) if key[1] == number]
            if ledger.changed:
                kept.changes[audience] = ledger.changes
        return dropped


def wanted(row: MemoryRow, query: MemoryQuery) -> bool:
    """Whether a row matches a query."""
    if query.history:
        known = bool(row.id)
    elif query.at is None:
        known = row.closed is None
    else:
        known = bool(row.id) and row.recorded <= query.at and (row.closed is None or row.closed > query.at)
    return (
        known
        and row.number > query.after
        and (query.audiences is None or row.audience in query.audiences)
        and (query.id is None or row.id == query.id)
        and (query.key is None or row.key == query.key)
        and (query.kinds is None or row.kind in query.kinds)
        and (query.numbers is None or row.number in query.numbers)
    )


class Work(Protocol):
    """Runs a function on the memories of a workspace, under the lock of the store."""

    async def __call__(self, workspace: str, work: Callable[[Memories], T], /) -> T: ...


class MemoryPart:
    """Implements `MemoryStore`."""

    def __init__(self, do: Work) -> None:
        self._do = do

    async def memories(self, workspace: str, query: MemoryQuery) -> list[MemoryRow]:
        return await self._do(
            workspace,
            lambda kept: [
                with_recalls(row, *kept.recalls.get(row.number, (None, None)))
                for row in [row for row in kept.rows.values() if wanted(row, query)][: query.limit]
            ],
        )

    async def audience_changes(self, workspace: str, audiences: Sequence[bytes] | None) -> dict[bytes, int]:
        return await self._do(
            workspace,
            lambda kept: {
                audience: changes
                for audience, changes in kept.changes.items()
                if audiences is None or audience in audiences
            },
        )

    async def changes(self, workspace: str, audience: bytes, generation: int, after: int, limit: int) -> list[Change]:
        return await self._do(workspace, lambda kept: kept.changed(audience, generation, after)[:limit])

    async def unindexed(self, workspace: str, generation: int, limit: int) -> list[MemoryRow]:
        return await self._do(workspace, lambda kept: kept.unindexed(generation)[:limit])

    async def count_unindexed(self, workspace: str, generation: int) -> int:
        return await self._do(workspace, lambda kept: len(kept.unindexed(generation)))

    async def put_index_entries(self, workspace: str, generation: int, index_entries: Sequence[IndexEntry]) -> None:
        await self._do(workspace, lambda kept: kept.put_index_entries(generation, index_entries))

    async def index_entries(
        self, workspace: str, audience: bytes | None, generation: int, numbers: Sequence[int] | None
    ) -> list[StoredIndexEntry]:
        return await self._do(workspace, lambda kept: kept.kept_index_entries(audience, generation, numbers))

    async def segments(self, workspace: str, audience: bytes, generation: int) -> list[Segment]:
        return await self._do(workspace, lambda kept: kept.segments_of(audience, generation))

    async def segment_spans(self, workspace: str, generation: int) -> list[tuple[bytes, int, int]]:
        return await self._do(
            workspace,
            lambda kept: [
                (key[1], one.after, one.upto) for key, one in sorted(kept.segments.items()) if key[0] == generation
            ],
        )

    async def put_segment(self, workspace: str, audience: bytes, generation: int, segment: Segment, seen: int) -> bool:
        return await self._do(workspace, lambda kept: kept.put_segment(audience, generation, segment, seen))

    async def recalls(self, workspace: str, audience: bytes) -> dict[int, int]:
        return await self._do(
            workspace,
            lambda kept: {
                number: count for number, (count, _) in kept.recalls.items() if kept.rows[number].audience == audience
            },
        )

    async def note_recalls(self, workspace: str, recalls: Sequence[tuple[int, int, int]]) -> None:
        await self._do(workspace, lambda kept: kept.note_recalls(recalls))

    async def generations(self, workspace: str) -> list[Generation]:
        return await self._do(workspace, lambda kept: list(kept.generations))

    async def add_generation(self, workspace: str, identity: bytes, *, active: bool) -> Generation:
        return await self._do(workspace, lambda kept: kept.add_generation(identity, active))

    async def activate(self, workspace: str, generation: int) -> None:
        await self._do(workspace, lambda kept: kept.activate(generation))
