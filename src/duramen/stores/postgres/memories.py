"""Rows of memories, and their changes.

Code that changes rows of an audience first locks the audience's row. So the changes of an audience are counted in the
order of commits, and only one transaction decides which row with an id or key is current.

Order of locks, after those that `store` lists (lease, subject, sessions, runs, blobs): generations by number, then
audiences by name. A transaction locks all its audiences before it reads a row of one. It locks a memory, its index
entries and its recalls only after the audience. A memory never moves to another audience, so the audience of a number
can be read before it is locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...ports import Change, Generation, IndexEntry, MemoryChanges, MemoryRow, Touched
from ..common.memory_rows import DROPPED, Ledger, indexed_upto, settle_all, touched
from ..common.row_checksum import checksum, expect_intact
from ..common.sql_file import load_queries
from . import searchable
from .connection import Connection
from .projection import Target
from .searchable import S

M = load_queries(Path(__file__).parent / "memories.sql")
Recall = tuple[int, int]
"""How often a memory was recalled, and when last."""


class AudienceIndex:
    """An audience that a transaction changes. Its row is locked. Memory rows are written by `write`."""

    def __init__(
        self,
        connection: Connection,
        workspace: str,
        audience: bytes,
        ids: Iterable[str] = (),
        keys: Iterable[str] = (),
    ) -> None:
        """Send the statements that lock the audience and read the current rows with these ids and keys. In a pipeline
        this does not wait. The first use of `ledger` waits."""
        self._connection = connection
        self.place = (workspace, audience)
        self._indexed: dict[int, int] = {}
        """The column `indexed` of each row, by number."""
        self._put: set[int] = set()
        """The numbers of rows of which only an index entry changed."""
        self._ledger: Ledger | None = None
        self._locked = connection.execute(M.lock_audience, self.place, binary=True)
        self._asked = {(M.find_current, one): self._ask(M.find_current, one) for one in ids}
        self._asked |= {(M.find_keyed, one): self._ask(M.find_keyed, one) for one in keys}

    def lock(self) -> Ledger:
        """Wait for the lock. Creates the audience's row if there is none."""
        row = self._locked.fetchone()
        if row is None:
            self._asked.clear()  # these rows were read before the lock
            self._connection.execute(M.add_audience, (*self.place, checksum(*self.place, 0)))
            row = self._connection.execute(M.lock_audience, self.place, binary=True).fetchone()
        assert row is not None, "audiences are never removed"
        expect_intact("an audience of memories", row[1], *self.place, row[0])
        self._ledger = Ledger(self, row[0])
        return self._ledger

    @property
    def ledger(self) -> Ledger:
        """The changes of the audience."""
        return self._ledger or self.lock()

    def current(self, id: str) -> MemoryRow | None:
        """The current row with this id, or None."""
        return next(iter(self._read(M.find_current, id)), None)

    def keyed(self, key: str) -> list[MemoryRow]:
        """The current rows with this key."""
        return self._read(M.find_keyed, key)

    def _ask(self, query: str, which: str) -> Any:
        return self._connection.execute(query.encode(), (*self.place, which), binary=True)

    def _read(self, query: str, which: str) -> list[MemoryRow]:
        asked = self._asked.pop((query, which), None) or self._ask(query, which)
        return [self.taken(row) for row in asked.fetchall()]

    def taken(self, columns: Sequence[Any]) -> MemoryRow:
        """A row of this audience from its columns, to be changed."""
        self._indexed[columns[2]] = columns[-2]
        return read_memory(columns)

    def put_index_entries(
        self, generations: Sequence[int], generation: int, index_entries: dict[int, tuple[MemoryRow, IndexEntry]]
    ) -> None:
        """Write index entries, by the numbers of their rows. Each counts as a change of its row."""
        columns = []
        for number, (_, index_entry) in sorted(index_entries.items()):
            fields = (*self.place, number, generation, index_entry.words, index_entry.vector)
            columns.append((*fields, checksum(*fields)))
        self._connection.cursor().executemany(M.put_index_entry, columns)
        rows = ((row, index_entry.search_fields) for _, (row, index_entry) in sorted(index_entries.items()))
        searchable.put(self._connection, self.place[0], generation, rows)
        self._put.update(index_entries)
        there: dict[int, set[int]] = {}
        for number, made in self._connection.execute(M.generations_indexed, (*self.place, list(index_entries))):
            there.setdefault(number, set()).add(made)
        for number, (row, _) in sorted(index_entries.items()):
            self._indexed[number] = indexed_upto(generations, there.get(number, ()))
            self.ledger.put(row)

    def write(self, session: str, numbers: Iterable[tuple[Any, ...]] = ()) -> list[tuple[Any, ...]]:
        """Store all changes. New rows belong to this session and get these numbers. Returns one row per index entry of
        a forgotten memory: its size, and whether it had a vector."""
        ledger, connection = self.ledger, self._connection
        if not ledger.changed:
            return []
        there: list[tuple[Any, ...]] = []
        added: list[tuple[Any, ...]] = []
        given = iter(numbers)
        for row in ledger.numbered(lambda: int(next(given)[0])):
            known = row.number in ledger.changed
            kept = row if known else row._replace(session=session)
            fields = (*self.place, row.number, *kept[1:18], self._indexed.get(row.number, 0) if row.id else 0)
            (there if known else added).append((*fields, checksum(*fields)))
        if there:
            connection.cursor().executemany(M.write_memory, [(*row[3:], *row[:3]) for row in there])
            searchable.follow(connection, *self.place, self._moved())
        if added:
            connection.cursor().executemany(M.add_memory, added)
        check = checksum(*self.place, ledger.changes)
        connection.execute(M.count_changes, (ledger.changes, check, *self.place))
        return self._drop_index_entries()

    def _moved(self) -> list[MemoryRow]:
        """The existing rows that changed, without those of which only an index entry changed."""
        return [row for row in self.ledger.changed.values() if row.number > 0 and row.number not in self._put]

    def _drop_index_entries(self) -> list[tuple[Any, ...]]:
        if not self.ledger.forgotten:
            return []
        gone = (*self.place, self.ledger.forgotten)
        self._connection.execute(M.drop_recalls, gone)
        self._connection.execute(M.drop_segments, gone)
        return self._connection.execute(M.drop_index_entries, gone).fetchall()


def lock_audiences(connection: Connection, workspace: str, audiences: Iterable[bytes]) -> dict[bytes, AudienceIndex]:
    """Audiences to change. They are locked in the order of their names."""
    locked = {}
    for audience in sorted(set(audiences)):
        locked[audience] = AudienceIndex(connection, workspace, audience)
        locked[audience].lock()
    return locked


def read_memory(columns: Sequence[Any]) -> MemoryRow:
    """A memory from its columns. A damaged one is not raised but returned with `intact` False, so that it does not hide
    others."""
    *fields, check = columns
    _, audience, number, *rest, _ = fields
    found = MemoryRow._make((audience, *rest, number, True, 0, 0))
    return found if checksum(*fields) == check else found._replace(intact=False)


def read_change(generation: int, columns: Sequence[Any]) -> Change:
    """A change from its columns. A damaged index entry is left out, because it can be built again."""
    words, vector, check, recalled, time, *row = columns
    memory = read_memory(row)
    if words is not None and checksum(*row[:3], generation, words, vector) != check:
        words = vector = None
    return Change(memory, words, vector, recalled, time)


def _audiences_of(connection: Connection, workspace: str, numbers: Sequence[int]) -> dict[int, bytes]:
    return dict(connection.execute(M.audiences_of, (workspace, list(numbers)), binary=True).fetchall())


def locked_rows(
    connection: Connection, workspace: str, numbers: Sequence[int], more: Iterable[bytes] = ()
) -> tuple[dict[bytes, AudienceIndex], dict[int, MemoryRow]]:
    """The rows with these numbers, to be changed, and their audiences and the audiences in `more`. All audiences are
    locked in the order of their names."""
    found = _audiences_of(connection, workspace, numbers) if numbers else {}
    audiences = lock_audiences(connection, workspace, {*found.values(), *more})
    rows = connection.execute(M.find_numbers, (workspace, list(found)), binary=True).fetchall() if found else []
    return audiences, {row[2]: audiences[row[1]].taken(row) for row in rows}


class _Asked(NamedTuple):
    """The locked audiences of a change, and numbers for its new memories."""

    audiences: dict[bytes, AudienceIndex]
    numbers: Any


class MemoryProjection:
    """Writes `MemoryChanges`."""

    def ask(self, target: Target, change: MemoryChanges) -> _Asked | None:
        """Lock the audiences of new memories, and read the rows with the same ids and keys. Returns None if the change
        names memories by number, because their audiences must be read before any audience is locked."""
        if change.ended or change.weighed or change.forgotten:
            return None
        audiences = {}
        for audience in sorted({row.audience for row in change.memories}):
            rows = [row for row in change.memories if row.audience == audience]
            ids, keys = {row.id for row in rows}, {row.key for row in rows if row.key is not None}
            audiences[audience] = AudienceIndex(target.connection, target.workspace, audience, ids, keys)
        return _Asked(audiences, target.connection.execute(M.next_numbers, (len(change.memories),)))

    def read(self, target: Target, change: MemoryChanges, asked: _Asked | None) -> _Asked:
        """The rows to write. Raises `StoreDamaged` if a row that the change needs is damaged."""
        rows: dict[int, MemoryRow] = {}
        if asked is None:
            numbers = [*(number for number, _ in (*change.ended, *change.weighed)), *change.forgotten]
            entered = {row.audience for row in change.memories}
            audiences, rows = locked_rows(target.connection, target.workspace, numbers, entered)
            asked = _Asked(audiences, target.connection.execute(M.next_numbers, (len(change.memories),)))
        settle_all(change, target.records, lambda audience: asked.audiences[audience].ledger, rows.get)
        return asked

    def write(self, target: Target, change: MemoryChanges, answer: _Asked) -> Touched:
        """Store the rows."""
        numbers = iter(answer.numbers.fetchall())
        audiences = answer.audiences.values()
        dropped = [row for audience in audiences for row in audience.write(target.session, numbers)]
        return touched((audience.ledger for audience in audiences), dropped)


def forget_owned(connection: Connection, workspace: str, ref: bytes) -> tuple[int, int, int]:
    """Forget the memories of an owner. Returns how many memories, vectors and bytes were removed. The caller has
    deleted the subject, so no append can add another memory."""
    named = connection.execute(M.audiences_of_owner, (workspace, ref), binary=True).fetchall()
    audiences = lock_audiences(connection, workspace, (audience for (audience,) in named))
    rows = connection.execute(M.memories_of_owner, (workspace, ref), binary=True).fetchall() if audiences else []
    for row in rows:
        audiences[row[1]].ledger.forget(audiences[row[1]].taken(row))
    dropped = [row for audience in audiences.values() for row in audience.write("")]
    return len(rows), sum(vector for _, vector in dropped), sum(size for size, _ in dropped)


def read_recalls(connection: Connection, workspace: str, rows: Iterable[MemoryRow]) -> dict[int, Recall]:
    """How often memories were recalled, and when last, by number."""
    places = {row.number: row.audience for row in rows}
    values = (workspace, list(set(places.values())), list(places))
    found: dict[int, Recall] = {}
    for audience, number, times, time, check in connection.execute(M.find_recalls, values, binary=True):
        expect_intact(f"the recalls of memory {number}", check, workspace, audience, number, times, time)
        found[number] = (times, time)
    return found


def note_recalls(
    connection: Connection, workspace: str, recalls: Sequence[tuple[int, int, int]], tried: list[dict[int, Recall]]
) -> None:
    """See `MemoryStore.note_recalls`. `tried` are the totals of earlier tries. If one of them was committed although
    its answer was lost, nothing is added again."""
    _, rows = locked_rows(connection, workspace, [number for number, _, _ in recalls])
    there = {number: row for number, row in rows.items() if row.id}
    before = read_recalls(connection, workspace, there.values())
    if before and before in tried:
        return
    totals: dict[int, Recall] = dict(before)
    for number, times, time in recalls:
        if number in there:
            known = totals.get(number, (0, 0))
            totals[number] = (known[0] + times, max(known[1], time))
    tried.append(totals)
    fields = sorted((workspace, there[number].audience, number, *total) for number, total in totals.items())
    if fields:
        connection.cursor().executemany(M.write_recall, [(*row, checksum(*row)) for row in fields])


def put_index_entries(
    connection: Connection, workspace: str, generation: int, index_entries: Sequence[IndexEntry]
) -> None:
    """See `MemoryStore.put_index_entries`."""
    generations = [one.number for one in read_generations(connection, M.keep_generations, workspace)]
    if generation not in generations:
        return  # the generation was dropped, so nothing would ever remove the entries
    audiences, rows = locked_rows(connection, workspace, [index_entry.number for index_entry in index_entries])
    chosen: dict[bytes, dict[int, tuple[MemoryRow, IndexEntry]]] = {}
    for index_entry in index_entries:
        row = rows.get(index_entry.number)
        if row is not None and row.id and row.intact:
            chosen.setdefault(row.audience, {})[row.number] = (row, index_entry)
    for name, audience in audiences.items():
        if name in chosen:
            audience.put_index_entries(generations, generation, chosen[name])
            audience.write("")


def read_generations(connection: Connection, query: str, workspace: str) -> list[Generation]:
    """The generations of a workspace, without those that were dropped, ordered by number."""
    found = []
    for number, identity, active, check in connection.execute(query.encode(), (workspace,), binary=True):
        expect_intact(f"generation {number} of the vectors", check, workspace, number, identity, active)
        if active != DROPPED:
            found.append(Generation(number, identity, bool(active)))
    return found


def add_generation(connection: Connection, workspace: str, identity: bytes, active: bool) -> Generation:
    """See `MemoryStore.add_generation`."""
    connection.execute(M.lock_generations, (workspace,))
    there = read_generations(connection, M.list_generations, workspace)
    for one in there:
        if one.identity == identity:
            return one
    last: Any = connection.execute(M.last_generation, (workspace,)).fetchone()
    made = Generation(last[0] + 1, identity, active and not any(one.active for one in there))
    _write_generation(connection, workspace, made, int(made.active))
    connection.execute(S.set_searched, (workspace, made.number))
    return made


def activate(connection: Connection, workspace: str, generation: int) -> None:
    """See `MemoryStore.activate`. Index entries are removed under the locks on their audiences."""
    connection.execute(M.lock_generations, (workspace,))
    there = read_generations(connection, M.list_generations, workspace)
    if all(one.number != generation for one in there):
        return
    for one in there:
        chosen = one.number == generation
        kept = one if chosen else one._replace(identity=b"")
        _write_generation(connection, workspace, kept, 1 if chosen else DROPPED)
    connection.execute(M.lock_audiences, (workspace,))
    connection.execute(M.drop_generation_index_entries, (workspace, generation))
    connection.execute(M.drop_generation_segments, (workspace, generation))
    searchable.drop_others(connection, workspace, generation)


def _write_generation(connection: Connection, workspace: str, one: Generation, active: int) -> None:
    fields = (workspace, one.number, one.identity, active)
    connection.execute(M.write_generation, (*fields, checksum(*fields)))
