"""The part of the store for memories: read them, and change them with an append."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from ...ports import (
    Change,
    Generation,
    IndexEntry,
    MemoryChanges,
    MemoryQuery,
    MemoryRow,
    Segment,
    StoredIndexEntry,
    Touched,
)
from ..common.memory_rows import DROPPED, Ledger, entering, indexed_upto, settle_all, touched, with_recalls
from ..common.row_checksum import checksum, expect_intact
from ..common.sql_file import load_queries

if TYPE_CHECKING:
    from .access import Access
    from .append import Target

_REMEMBERED = 100_000
M = load_queries(Path(__file__).parent / "memories.sql")


class Counts:
    """A cache of the writing connection: the number and change count of audiences, and the last number of a memory. It
    is valid while no other connection writes."""

    def __init__(self) -> None:
        self.audiences: dict[tuple[str, bytes], tuple[int, int]] = {}
        self.last: int | None = None

    def clear(self) -> None:
        """Clear the cache: another connection may have written."""
        self.audiences.clear()
        self.last = None

    def next_number(self, connection: apsw.Connection) -> int:
        """The number of a new memory."""
        last = int(_one(connection, M.last_number, ())[0]) if self.last is None else self.last
        self.last = last + 1
        return last + 1


class Newcomer:
    """The usual case: one new memory, without a key, that is not current yet, in a cached audience. It needs no
    ledger."""

    def __init__(self, connection: apsw.Connection, counts: Counts, workspace: str, row: MemoryRow) -> None:
        self._connection, self._counts, self._row = connection, counts, row
        self._place = (workspace, row.audience)

    def written(self, sid: int) -> Touched:
        """Store the memory."""
        row, (pid, changes) = self._row, self._counts.audiences[self._place]
        number = self._counts.next_number(self._connection)
        fields = (number, pid, row.id, sid, *row[3:17], changes + 1, 0)
        self._connection.execute(M.write_memory, (*fields, checksum(*fields)))
        self._counts.audiences[self._place] = (pid, changes + 1)
        return _UNTOUCHED


_UNTOUCHED = Touched()


class AudienceIndex:
    """An audience that a transaction changes. Memory rows are written by `write`."""

    def __init__(self, connection: apsw.Connection, workspace: str, audience: bytes, counts: Counts) -> None:
        self._connection = connection
        self._workspace, self.audience = workspace, audience
        self._inner: dict[int, tuple[int, int]] = {}
        """By number: the columns of a row that are not in `MemoryRow`, `sid` and `indexed`."""
        self._counts = counts
        known = counts.audiences.get((workspace, audience)) or _find_audience(connection, workspace, audience)
        self.pid: int | None = None if known is None else known[0]
        self.ledger = Ledger(self, 0 if known is None else known[1])

    def current(self, id: str) -> MemoryRow | None:
        """The current row with this id, or None."""
        row = None if self.pid is None else self._connection.execute(M.find_current, (id, self.pid)).fetchone()
        return None if row is None else self.taken(row)

    def keyed(self, key: str) -> list[MemoryRow]:
        """The current rows with this key."""
        rows: Any = () if self.pid is None else self._connection.execute(M.find_keyed, (self.pid, key)).fetchall()
        return [self.taken(row) for row in rows]

    def taken(self, columns: Sequence[Any]) -> MemoryRow:
        """A row of this audience from its columns, to be changed."""
        self._inner[columns[0]] = (columns[3], columns[-2])
        return read_memory(self.audience, "", columns)

    def put_index_entry(
        self, row: MemoryRow, generations: Sequence[int], generation: int, index_entry: IndexEntry
    ) -> None:
        """Write an index entry at once. It counts as a change of the row, but does not change the columns by which the
        ledger finds rows."""
        values = (generation, self.pid, row.number, index_entry.words, index_entry.vector)
        self._connection.execute(M.put_index_entry, (*values, checksum(*values)))
        indexed = {generation}
        if len(generations) > 1:
            rows: Any = self._connection.execute(M.generations_indexed, (self.pid, row.number, self._workspace))
            indexed = {there for (there,) in rows}
        self.ledger.changes += 1
        marks = (self.ledger.changes, indexed_upto(generations, indexed))
        fields = (row.number, self.pid, row.id, self._inner[row.number][0], *row[3:17], *marks)
        self._connection.execute(M.mark_indexed, (*marks, checksum(*fields), row.number))

    def write(self, sid: int) -> list[tuple[int, int]]:
        """Store all changes. New rows belong to this session. Returns one row per index entry of a forgotten memory:
        its size, and whether it had a vector."""
        ledger, execute = self.ledger, self._connection.execute
        if not ledger.changed:
            return []
        if self.pid is None:
            (self.pid,) = _one(self._connection, M.add_audience, (self._workspace, self.audience))
            execute(M.check_audience, (checksum(self.pid, self._workspace, self.audience), self.pid))
        for row in ledger.numbered(lambda: self._counts.next_number(self._connection)):
            where = self._inner.get(row.number, (sid, 0)) if row.id else (0, 0)
            fields = (row.number, self.pid, row.id, where[0], *row[3:18], where[1])
            execute(M.write_memory, (*fields, checksum(*fields)))
        dropped: list[Any] = []
        for number in ledger.forgotten:
            execute(M.drop_recall, (number,))
            execute(M.drop_segments, {"pid": self.pid, "number": number})
            dropped += execute(M.drop_index_entries, (self.pid, number)).fetchall()
        self._counts.audiences[self._workspace, self.audience] = (self.pid, ledger.changes)
        return dropped


class Audiences(dict[bytes, AudienceIndex]):
    """The audiences that a transaction changes. Each is read when it is first used."""

    def __init__(self, connection: apsw.Connection, workspace: str, counts: Counts | None = None) -> None:
        super().__init__()
        self._connection, self._workspace = connection, workspace
        self._counts = Counts() if counts is None else counts

    def __missing__(self, audience: bytes) -> AudienceIndex:
        self[audience] = AudienceIndex(self._connection, self._workspace, audience, self._counts)
        return self[audience]

    def find(self, number: int) -> MemoryRow | None:
        """The row with this number in the workspace, to be changed, or None."""
        return next(iter(self.all([number])), None)

    def all(self, numbers: Sequence[int]) -> list[MemoryRow]:
        """The rows with these numbers in the workspace, to be changed. Missing numbers are left out."""
        values = {"workspace": self._workspace, "numbers": json.dumps(numbers)}
        rows: Any = self._connection.execute(M.find_numbers, values).fetchall()
        return [self[audience].taken(row) for audience, *row in rows]

    def write(self, sid: int = 0) -> list[tuple[int, int]]:
        """Store all changes. Returns what `AudienceIndex.write` returns, for all audiences."""
        return [dropped for audience in self.values() for dropped in audience.write(sid)]

    def written(self, sid: int) -> Touched:
        """Store all changes of an append. Returns what they did."""
        dropped = self.write(sid)
        return touched((audience.ledger for audience in self.values()), dropped)


def _one(connection: apsw.Connection, query: str, values: Sequence[Any]) -> Any:
    return connection.execute(query, tuple(values)).fetchone()


def read_memory(audience: bytes, session: str | None, columns: Sequence[Any]) -> MemoryRow:
    """A memory from its columns. A damaged one gets `intact` False. `session` is the name of its session, if known."""
    number, _, id_, _, *rest, _, check = columns
    found = MemoryRow._make((audience, id_, session or "", *rest, number, True, 0, 0))
    try:
        intact = checksum(*columns[:-1]) == check
    except (TypeError, ValueError, OverflowError):
        intact = False  # damage changed the type of a value
    return found if intact else found._replace(intact=False)


def _find_audience(connection: apsw.Connection, workspace: str, audience: bytes) -> tuple[int, int] | None:
    """The number and the change count of an audience, or None."""
    row = _one(connection, M.find_audience, (workspace, audience))
    if row is None:
        return None
    expect_intact("an audience of memories", row[2], row[0], workspace, audience)
    return row[0], row[1]


class MemoryProjection:
    """Writes `MemoryChanges`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._counts = Counts()

    def forget(self) -> None:
        """Clear the cache."""
        self._counts.clear()

    def read(self, target: Target, change: MemoryChanges) -> Audiences | Newcomer:
        """The rows to write. Raises `StoreDamaged` if a row that the change needs is damaged."""
        if len(self._counts.audiences) > _REMEMBERED:
            self.forget()
        found = self._newcomer(target, change)
        if found is not None:
            return found
        audiences = Audiences(self._connection, target.workspace, self._counts)
        settle_all(change, target.records, lambda audience: audiences[audience].ledger, audiences.find)
        return audiences

    def _newcomer(self, target: Target, change: MemoryChanges) -> Newcomer | None:
        """The change as a `Newcomer`, or None if it is not this simple."""
        if change.ended or change.weighed or change.forgotten or len(change.memories) != 1:
            return None
        (row,) = entering(change, target.records)
        known = self._counts.audiences.get((target.workspace, row.audience))
        if row.key is not None or known is None:
            return None
        if self._connection.execute(M.find_current, (row.id, known[0])).fetchone() is not None:
            return None
        return Newcomer(self._connection, self._counts, target.workspace, row)

    def write(self, target: Target, change: MemoryChanges, answer: Audiences | Newcomer) -> Touched:
        return answer.written(target.sid)


def forget_owned(connection: apsw.Connection, workspace: str, ref: bytes) -> tuple[int, int, int]:
    """Forget the memories of an owner. Returns how many memories, vectors and bytes were removed."""
    rows: Any = connection.execute(M.memories_of_owner, (ref, workspace)).fetchall()
    audiences = Audiences(connection, workspace)
    for audience, *row in rows:
        audiences[audience].ledger.forget(audiences[audience].taken(row))
    dropped = audiences.write()
    return len(rows), sum(vector for _, vector in dropped), sum(size for size, _ in dropped)


class Memories:
    """Implements `MemoryStore`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def memories(self, workspace: str, query: MemoryQuery) -> list[MemoryRow]:
        def work(connection: apsw.Connection) -> list[MemoryRow]:
            pids = None if query.audiences is None else list(find_pids(connection, workspace, query.audiences).values())
            if query.key is not None and pids is None:
                pids = [pid for pid, *_ in connection.execute(M.list_audiences, (workspace,))]
            values = {
                "workspace": workspace,
                "pids": None if pids is None else json.dumps(pids),
                "kinds": None if query.kinds is None else json.dumps(query.kinds),
                "numbers": None if query.numbers is None else json.dumps(query.numbers),
                **{name: getattr(query, name) for name in ("id", "key", "at", "after", "limit")},
            }
            rows: Any = connection.execute(_narrowed(query), values)
            return [
                with_recalls(read_memory(audience, session, row), recalled, at)
                for audience, session, recalled, at, *row in rows
            ]

        return await self._access.read(work)

    async def audience_changes(self, workspace: str, audiences: Sequence[bytes] | None) -> dict[bytes, int]:
        def work(connection: apsw.Connection) -> dict[bytes, int]:
            if audiences is None:
                rows: Any = connection.execute(M.list_audiences, (workspace,))
                return {audience: changes for _, audience, changes, _ in rows}
            found = ((audience, _one(connection, M.find_audience, (workspace, audience))) for audience in audiences)
            return {audience: row[1] for audience, row in found if row is not None}

        return await self._access.read(work)

    async def changes(self, workspace: str, audience: bytes, generation: int, after: int, limit: int) -> list[Change]:
        def work(connection: apsw.Connection) -> list[Change]:
            pids = find_pids(connection, workspace, [audience])
            values = {"pid": pids.get(audience, -1), "generation": generation, "after": after, "limit": limit}
            return [_change(audience, generation, row) for row in connection.execute(M.read_changes, values)]

        return await self._access.read(work)

    async def unindexed(self, workspace: str, generation: int, limit: int) -> list[MemoryRow]:
        values = {"workspace": workspace, "generation": generation, "limit": limit}

        def work(connection: apsw.Connection) -> list[MemoryRow]:
            rows: Any = connection.execute(M.read_unindexed, values)
            return [read_memory(audience, session, row) for audience, session, *row in rows]

        return await self._access.read(work)

    async def count_unindexed(self, workspace: str, generation: int) -> int:
        values = {"workspace": workspace, "generation": generation}

        def work(connection: apsw.Connection) -> int:
            row: Any = connection.execute(M.count_unindexed, values).fetchone()
            return int(row[0])

        return await self._access.read(work)

    async def put_index_entries(self, workspace: str, generation: int, index_entries: Sequence[IndexEntry]) -> None:
        def work(connection: apsw.Connection) -> None:
            generations = [one.number for one in read_generations(connection, workspace)]
            if generation not in generations:
                return  # the generation was dropped, so nothing would ever remove the entries
            audiences = Audiences(connection, workspace)
            rows = {row.number: row for row in audiences.all([index_entry.number for index_entry in index_entries])}
            for index_entry in index_entries:
                row = rows.get(index_entry.number)
                if row is not None and row.id and row.intact:
                    audiences[row.audience].put_index_entry(row, generations, generation, index_entry)

        await self._access.write(work)

    async def index_entries(
        self, workspace: str, audience: bytes | None, generation: int, numbers: Sequence[int] | None
    ) -> list[StoredIndexEntry]:
        def work(connection: apsw.Connection) -> list[StoredIndexEntry]:
            asked: dict[str, Any] = {"workspace": workspace, "audience": audience, "generation": generation}
            query = M.read_index_entries
            if audience is None or numbers is not None:
                query = M.read_index_entries_anywhere if audience is None else M.read_some_index_entries
                asked["numbers"] = json.dumps(list(numbers or ()))
            rows: Any = connection.execute(query, asked)
            return [
                StoredIndexEntry(number, id_, owner, words, vector, where)
                for number, id_, owner, words, vector, where, pid, check in rows
                if checksum(generation, pid, number, words, vector) == check
            ]

        return await self._access.read(work)

    async def note_recalls(self, workspace: str, recalls: Sequence[tuple[int, int, int]]) -> None:
        def work(connection: apsw.Connection) -> None:
            audiences = Audiences(connection, workspace)
            for number, times, time in recalls:
                row = audiences.find(number)
                if row is None or not row.id:
                    continue
                before = _one(connection, M.find_recall, (number,))
                if before is not None:
                    expect_intact(f"the recalls of memory {number}", before[2], number, *before[:2])
                before = before or (0, 0)
                fields = (number, before[0] + times, max(before[1], time))
                connection.execute(M.write_recall, (*fields, checksum(*fields)))

        await self._access.write(work)

    async def generations(self, workspace: str) -> list[Generation]:
        return await self._access.read(lambda connection: read_generations(connection, workspace))

    async def add_generation(self, workspace: str, identity: bytes, *, active: bool) -> Generation:
        def work(connection: apsw.Connection) -> Generation:
            there = read_generations(connection, workspace)
            for one in there:
                if one.identity == identity:
                    return one
            number = int(_one(connection, M.last_generation, (workspace,))[0]) + 1
            made = Generation(number, identity, active and not any(one.active for one in there))
            _write_generation(connection, workspace, made, int(made.active))
            return made

        return await self._access.write(work)

    async def activate(self, workspace: str, generation: int) -> None:
        def work(connection: apsw.Connection) -> None:
            there = read_generations(connection, workspace)
            if all(one.number != generation for one in there):
                return
            for one in there:
                if one.number == generation:
                    _write_generation(connection, workspace, one, 1)
                else:
                    connection.execute(M.drop_generation_index_entries, (one.number, workspace))
                    connection.execute(M.drop_generation_segments, (one.number, workspace))
                    _write_generation(connection, workspace, one._replace(identity=b""), DROPPED)

        await self._access.write(work)

    async def segments(self, workspace: str, audience: bytes, generation: int) -> list[Segment]:
        def work(connection: apsw.Connection) -> list[Segment]:
            pid = find_pids(connection, workspace, [audience]).get(audience, -1)
            rows: Any = connection.execute(M.read_segments, (generation, pid))
            return [Segment(*fields) for *fields, check in rows if checksum(generation, pid, *fields) == check]

        return await self._access.read(work)

    async def segment_spans(self, workspace: str, generation: int) -> list[tuple[bytes, int, int]]:
        values = {"workspace": workspace, "generation": generation}

        def work(connection: apsw.Connection) -> list[tuple[bytes, int, int]]:
            rows: Any = connection.execute(M.segment_spans, values)
            return list(rows)

        return await self._access.read(work)

    async def put_segment(self, workspace: str, audience: bytes, generation: int, segment: Segment, seen: int) -> bool:
        def work(connection: apsw.Connection) -> bool:
            pid = find_pids(connection, workspace, [audience]).get(audience)
            if pid is None or all(one.number != generation for one in read_generations(connection, workspace)):
                return False
            late = {"pid": pid, "seen": seen, "first": segment.first, "last": segment.last}
            if connection.execute(M.forgotten_since, late).fetchone() is not None:
                return False
            connection.execute(M.drop_overlapping, (generation, pid, segment.upto, segment.after))
            *fields, body = segment
            check = checksum(generation, pid, *segment)
            connection.execute(M.put_segment, (generation, pid, *fields, check, body))
            return True

        return await self._access.write(work)

    async def recalls(self, workspace: str, audience: bytes) -> dict[int, int]:
        def work(connection: apsw.Connection) -> dict[int, int]:
            pid = find_pids(connection, workspace, [audience]).get(audience, -1)
            rows: Any = connection.execute(M.read_recalls, (pid,))
            return dict(rows)

        return await self._access.read(work)


def _narrowed(query: MemoryQuery) -> str:
    asked = ((query.id, M.by_id), (query.numbers, M.by_number), (query.key, M.by_key), (query.kinds, M.by_kind))
    chosen = [condition for value, condition in asked if value is not None]
    if query.audiences is not None or query.key is not None:
        chosen.append(M.by_audience)
    if not query.history:
        chosen.append(M.only_current if query.at is None else M.known_at)
    read: str = M.read_memories
    return read.replace("CONDITIONS", " AND ".join(chosen) or "true")


def find_pids(connection: apsw.Connection, workspace: str, audiences: Sequence[bytes]) -> dict[bytes, int]:
    """The numbers of these audiences. Audiences that do not exist are left out."""
    found = ((audience, _one(connection, M.find_audience, (workspace, audience))) for audience in audiences)
    return {audience: row[0] for audience, row in found if row is not None}


def _change(audience: bytes, generation: int, columns: Sequence[Any]) -> Change:
    *row, session, words, vector, check, recalled, recalled_at = columns
    memory = read_memory(audience, session, row)
    if words is not None and checksum(generation, row[1], memory.number, words, vector) != check:
        words = vector = None  # damaged: it is built again from the text
    return Change(memory, words, vector, recalled, recalled_at)


def read_generations(connection: apsw.Connection, workspace: str) -> list[Generation]:
    """The generations of a workspace, without those that were dropped, ordered by number."""
    found = []
    rows: Any = connection.execute(M.list_generations, (workspace,))
    for number, identity, active, check in rows:
        expect_intact(f"generation {number} of the vectors", check, workspace, number, identity, active)
        if active != DROPPED:
            found.append(Generation(number, identity, bool(active)))
    return found


def _write_generation(connection: apsw.Connection, workspace: str, one: Generation, active: int) -> None:
    fields = (workspace, one.number, one.identity, active)
    connection.execute(M.write_generation, (*fields, checksum(*fields)))
