"""Memories in memory: the rows of a workspace, what is searched of them, and the part of the store that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import TypeVar

from ...ports import Beside, Change, Generation, Kept, MemoryQuery, MemoryRow, Record, Segment, Touched, Trace
from ..common.memory_rows import Ledger, noted, settle_all, touched, traced_upto

T = TypeVar("T")


@dataclass(slots=True)
class Memories:
    """Everything that a workspace remembers."""

    changes: dict[bytes, int] = field(default_factory=dict)
    """How often each pool was changed."""
    rows: dict[int, MemoryRow] = field(default_factory=dict)
    """By number, ascending."""
    traces: dict[tuple[int, int], Trace] = field(default_factory=dict)
    """By generation and number."""
    segments: dict[tuple[int, bytes, int], Segment] = field(default_factory=dict)
    """By generation, pool and the count that they begin after."""
    recalls: dict[int, tuple[int, int]] = field(default_factory=dict)
    generations: list[Generation] = field(default_factory=list)
    numbers: count[int] = field(default_factory=lambda: count(1))
    generation_numbers: count[int] = field(default_factory=lambda: count(1))

    def write(self, session: str, beside: Beside, records: Sequence[Record]) -> Touched:
        """Enter, end and forget memories with an append; what that did."""
        ledgers = _Ledgers(self)
        settle_all(beside, records, ledgers.__getitem__, self.rows.get)
        return touched(ledgers.values(), [(trace.vector,) for trace in ledgers.write(session)])

    def forget_owned(self, ref: bytes) -> tuple[int, int, int]:
        """Forget what an owner's erasure takes: how many memories, how many vectors, how many bytes."""
        owned = [row for row in self.rows.values() if row.owner == ref]
        ledgers = _Ledgers(self)
        for row in owned:
            ledgers[row.pool].forget(row)
        dropped = ledgers.write("")
        vectors = [trace.vector for trace in dropped if trace.vector is not None]
        return len(owned), len(vectors), sum(len(one) for one in vectors) + sum(len(one.words) for one in dropped)

    def untraced(self, generation: int) -> list[MemoryRow]:
        """Current rows without a trace in a generation: first those that have none in an earlier one either."""
        current = [row for row in self.rows.values() if row.closed is None]
        without = [row for row in current if (generation, row.number) not in self.traces]
        return sorted(without, key=lambda row: self._traced(row.number))

    def _traced(self, number: int) -> int:
        there = {generation for generation, traced in self.traces if traced == number}
        return traced_upto([one.number for one in self.generations], there)

    def put_traces(self, generation: int, traces: Sequence[Trace]) -> None:
        if all(one.number != generation for one in self.generations):
            return
        ledgers = _Ledgers(self)
        for trace in traces:
            row = self.rows.get(trace.number)
            if row is not None and row.id:
                self.traces[generation, row.number] = trace._replace(pool=row.pool)
                ledgers[row.pool].put(row)
        ledgers.write("")

    def kept_traces(self, pool: bytes | None, generation: int, numbers: Sequence[int] | None) -> list[Kept]:
        wanted = None if numbers is None else set(numbers)
        rows = (row for row in self.rows.values() if pool in (None, row.pool) and row.closed is None)
        chosen = (row for row in rows if (wanted is None and pool is not None) or row.number in (wanted or ()))
        found = ((row, self.traces.get((generation, row.number))) for row in chosen)
        return [
            Kept(row.number, row.id, row.owner, one.words, one.vector, row.pool)
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
            self.traces = {key: trace for key, trace in self.traces.items() if key[0] == generation}
            self.segments = {key: one for key, one in self.segments.items() if key[0] == generation}

    def put_segment(self, pool: bytes, generation: int, segment: Segment, seen: int) -> bool:
        late = (row for row in self.rows.values() if row.pool == pool and row.changed > seen and not row.id)
        gone = any(segment.first <= row.number <= segment.last for row in late)
        if gone or all(one.number != generation for one in self.generations):
            return False
        for key, one in list(self.segments.items()):
            if key[:2] == (generation, pool) and one.after < segment.upto and one.upto > segment.after:
                del self.segments[key]
        self.segments[generation, pool, segment.after] = segment
        return True

    def segments_of(self, pool: bytes, generation: int) -> list[Segment]:
        return [one for key, one in sorted(self.segments.items()) if key[:2] == (generation, pool)]

    def drop_segments(self, pool: bytes, number: int) -> None:
        """Drop what may hold a memory."""
        for key, one in list(self.segments.items()):
            if key[1] == pool and one.first <= number <= one.last:
                del self.segments[key]

    def changed(self, pool: bytes, generation: int, after: int) -> list[Change]:
        """What changed in a pool after a count."""
        rows = [row for row in self.rows.values() if row.pool == pool and row.changed > after]
        found = []
        for row in sorted(rows, key=lambda row: row.changed):
            trace = self.traces.get((generation, row.number))
            words, vector = (None, None) if trace is None else (trace.words, trace.vector)
            found.append(Change(row, words, vector, *self.recalls.get(row.number, (0, 0))))
        return found


class _Pool:
    """The rows of one pool."""

    def __init__(self, memories: Memories, pool: bytes) -> None:
        self._memories, self._pool = memories, pool

    def _rows(self) -> list[MemoryRow]:
        return [row for row in self._memories.rows.values() if row.pool == self._pool]

    def current(self, id: str) -> MemoryRow | None:
        return next((row for row in self._rows() if row.id == id and row.closed is None), None)

    def keyed(self, key: str) -> list[MemoryRow]:
        return [row for row in self._rows() if row.key == key and row.closed is None]


class _Ledgers(dict[bytes, Ledger]):
    """The pools that an operation changes."""

    def __init__(self, memories: Memories) -> None:
        super().__init__()
        self._memories = memories

    def __missing__(self, pool: bytes) -> Ledger:
        self[pool] = Ledger(_Pool(self._memories, pool), self._memories.changes.get(pool, 0))
        return self[pool]

    def write(self, session: str) -> list[Trace]:
        """Store all changes; new rows are of this session. Gives the traces that went with what was forgotten."""
        kept, dropped = self._memories, []
        for pool, ledger in self.items():
            for row in sorted(ledger.numbered(lambda: next(kept.numbers)), key=attrgetter("number")):
                kept.rows[row.number] = row if row.number in kept.rows else row._replace(session=session)
            for number in ledger.forgotten:
                kept.recalls.pop(number, None)
                kept.drop_segments(pool, number)
                dropped += [kept.traces.pop(key) for key in list(kept.traces) if key[1] == number]
            if ledger.changed:
                kept.changes[pool] = ledger.changes
        return dropped


def wanted(row: MemoryRow, query: MemoryQuery) -> bool:
    """Whether a query asks for a row."""
    if query.history:
        known = bool(row.id)
    elif query.at is None:
        known = row.closed is None
    else:
        known = bool(row.id) and row.recorded <= query.at and (row.closed is None or row.closed > query.at)
    return (
        known
        and row.number > query.after
        and (query.pools is None or row.pool in query.pools)
        and (query.id is None or row.id == query.id)
        and (query.key is None or row.key == query.key)
        and (query.kinds is None or row.kind in query.kinds)
        and (query.numbers is None or row.number in query.numbers)
    )


class Remembering:
    """The part of the store that keeps memories."""

    async def _remember(self, workspace: str, work: Callable[[Memories], T]) -> T:
        raise NotImplementedError

    async def memories(self, workspace: str, query: MemoryQuery) -> list[MemoryRow]:
        return await self._remember(
            workspace,
            lambda kept: [
                noted(row, *kept.recalls.get(row.number, (None, None)))
                for row in [row for row in kept.rows.values() if wanted(row, query)][: query.limit]
            ],
        )

    async def pool_changes(self, workspace: str, pools: Sequence[bytes] | None) -> dict[bytes, int]:
        return await self._remember(
            workspace,
            lambda kept: {pool: changes for pool, changes in kept.changes.items() if pools is None or pool in pools},
        )

    async def changes(self, workspace: str, pool: bytes, generation: int, after: int, limit: int) -> list[Change]:
        return await self._remember(workspace, lambda kept: kept.changed(pool, generation, after)[:limit])

    async def untraced(self, workspace: str, generation: int, limit: int) -> list[MemoryRow]:
        return await self._remember(workspace, lambda kept: kept.untraced(generation)[:limit])

    async def count_untraced(self, workspace: str, generation: int) -> int:
        return await self._remember(workspace, lambda kept: len(kept.untraced(generation)))

    async def put_traces(self, workspace: str, generation: int, traces: Sequence[Trace]) -> None:
        await self._remember(workspace, lambda kept: kept.put_traces(generation, traces))

    async def traces(
        self, workspace: str, pool: bytes | None, generation: int, numbers: Sequence[int] | None
    ) -> list[Kept]:
        return await self._remember(workspace, lambda kept: kept.kept_traces(pool, generation, numbers))

    async def segments(self, workspace: str, pool: bytes, generation: int) -> list[Segment]:
        return await self._remember(workspace, lambda kept: kept.segments_of(pool, generation))

    async def segment_spans(self, workspace: str, generation: int) -> list[tuple[bytes, int, int]]:
        return await self._remember(
            workspace,
            lambda kept: [
                (key[1], one.after, one.upto) for key, one in sorted(kept.segments.items()) if key[0] == generation
            ],
        )

    async def put_segment(self, workspace: str, pool: bytes, generation: int, segment: Segment, seen: int) -> bool:
        return await self._remember(workspace, lambda kept: kept.put_segment(pool, generation, segment, seen))

    async def recalls(self, workspace: str, pool: bytes) -> dict[int, int]:
        return await self._remember(
            workspace,
            lambda kept: {
                number: count for number, (count, _) in kept.recalls.items() if kept.rows[number].pool == pool
            },
        )

    async def note_recalls(self, workspace: str, recalls: Sequence[tuple[int, int, int]]) -> None:
        await self._remember(workspace, lambda kept: kept.note_recalls(recalls))

    async def generations(self, workspace: str) -> list[Generation]:
        return await self._remember(workspace, lambda kept: list(kept.generations))

    async def add_generation(self, workspace: str, identity: bytes, *, active: bool) -> Generation:
        return await self._remember(workspace, lambda kept: kept.add_generation(identity, active))

    async def activate(self, workspace: str, generation: int) -> None:
        await self._remember(workspace, lambda kept: kept.activate(generation))
