"""Rows of memories: what a new memory changes in the existing ones. `ports.memories.MemoryStore` states the rules."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from ...errors import StoreDamaged
from ...ports import MemoryChanges, MemoryRow, Record, Touched

DROPPED = -1
"""The value of the column `active` for a generation that was dropped."""


def entering(change: MemoryChanges, records: Sequence[Record]) -> Iterable[MemoryRow]:
    """The memories of an append with the positions and times of their events. `expires`, and a `begins` of 0, become
    absolute times."""
    for row in change.memories:
        event = records[row.position]
        begins = event.time if row.begins == 0 else row.begins
        expires = None if row.expires is None else event.time + row.expires
        yield row._replace(
            position=event.position,
            recorded=event.time,
            begins=begins,
            expires=expires,
            importance=float(row.importance),  # the database returns floats, and the checksum covers the type
            confidence=float(row.confidence),
            confirmed=event.time,
            number=0,
        )


def rows_for(
    row: MemoryRow,
    same: Callable[[str], MemoryRow | None],
    keyed: Callable[[str], Sequence[MemoryRow]],
    renewing: bool = False,
) -> list[MemoryRow]:
    """The rows to write for a new memory: its own row, and the rows that it replaces, ends or confirms.

    `same` returns the current row with an id in its audience, `keyed` the current rows with a key. A new row has number
    0. A row that repeats a known memory is stored as closed, because `forget` must also find its event. If it is
    `renewing`, the known row is closed instead.
    """
    known = same(row.id)
    if row.key is None and known is None:
        return [row]  # the usual case
    over, others = _lapsed(keyed(row.key) if row.key is not None else (), row.recorded)
    if known is None or any(one.number == known.number for one in over):
        return [*over, *_placed(row, others)]
    if _begins_later(known, row.recorded) and known.begins != row.begins:
        others = [_freed(one, known) for one in others if one.number != known.number]
        return [*over, _replaced(known, row), *_placed(_confirming(row, known), others)]
    ends = _stated_end(known, row)
    following = next((one for one in others if one.begins > known.begins), None)
    ends = ends if following is None else _earlier(ends, following.begins)
    if renewing:
        said = known._replace(closed=row.recorded, successor=row.id)
        return [*over, said, _confirming(row, known)._replace(begins=known.begins, ends=ends)]
    confirmed = _confirming(known, row)._replace(
        confirmed=max(known.confirmed, row.confirmed), expires=row.expires, ends=ends
    )
    return [*over, confirmed, row._replace(closed=row.recorded, successor=row.id)]


def _lapsed(keyed: Sequence[MemoryRow], now: int) -> tuple[list[MemoryRow], list[MemoryRow]]:
    """Split the current rows with one key in two lists, both ordered by begin. The first contains the rows that another
    row has followed, closed at that time. The second contains the others: at most one that has begun, and those that
    begin later."""
    ordered = sorted(keyed, key=lambda one: (one.begins, one.number))
    begun = [one for one in ordered if not _begins_later(one, now)]
    over = [one._replace(closed=follower.begins, successor=follower.id) for one, follower in pairwise(begun)]
    gone = {one.number for one in over}
    return over, [one for one in ordered if one.number not in gone]


def _placed(row: MemoryRow, others: Sequence[MemoryRow]) -> list[MemoryRow]:
    """The rows to write for a new row. `others` are the current rows with its key, ordered by begin."""
    if row.begins > row.recorded:
        # The row before it stays current and gets an end. Rows that begin later were stated earlier: replace them.
        before = [one for one in others if one.begins < row.begins][-1:]
        ending = [one._replace(ends=_earlier(one.ends, row.begins)) for one in before]
        return [*ending, *(_replaced(one, row) for one in others if one.begins >= row.begins), row]
    # The new row is about the past, so it does not replace the current one. A row that begins with its event is not
    # about the past, even if the clocks of the writers differ.
    if others and row.begins < others[0].begins and row.begins != row.recorded:
        past = row._replace(ends=_earlier(row.ends, others[0].begins))
        if _begins_later(others[0], row.recorded):
            return [past]
        return [past._replace(closed=row.recorded, successor=others[0].id)]
    return [*(_replaced(one, row) for one in others), row]


def _replaced(older: MemoryRow, row: MemoryRow) -> MemoryRow:
    """The row `older`, closed because `row` replaces it. If it was still to begin, it ends when it begins: it never
    held."""
    ends = older.begins if _begins_later(older, row.recorded) else _earlier(older.ends, row.begins)
    return older._replace(ends=ends, closed=row.recorded, successor=row.id)


def _begins_later(row: MemoryRow, now: int) -> bool:
    """Whether a row was stated to begin after its event, and that time has not come. All other rows hold at once, even
    if clocks differ."""
    return row.begins > max(now, row.recorded)


def _freed(row: MemoryRow, follower: MemoryRow) -> MemoryRow:
    """`row` without its end, if it was to end when `follower` begins. The follower no longer begins then."""
    return row._replace(ends=None) if row.ends == follower.begins else row


def _confirming(row: MemoryRow, other: MemoryRow) -> MemoryRow:
    """`row` with the counts and weights of `other`, which states the same."""
    return row._replace(
        times=row.times + other.times,
        importance=max(row.importance, other.importance),
        confidence=max(row.confidence, other.confidence),
    )


def _stated_end(known: MemoryRow, row: MemoryRow) -> int | None:
    """The end of a memory that is stated again: the stated one, else the known one. A known end in the past is dropped,
    because the memory holds again."""
    over = known.ends is not None and known.ends <= row.recorded
    return known.ends if row.ends is None and not over else row.ends


def _earlier(ends: int | None, begins: int) -> int:
    return begins if ends is None else min(ends, begins)


def forgotten_row(row: MemoryRow) -> MemoryRow:
    """The row of a forgotten memory. It keeps only its audience and number, and `closed` is when it was recorded."""
    return MemoryRow(
        audience=row.audience,
        id="",
        session="",
        position=0,
        kind="",
        key=None,
        owner=None,
        recorded=0,
        begins=0,
        ends=None,
        expires=None,
        importance=0.0,
        confidence=0.0,
        confirmed=0,
        closed=row.recorded,
        number=row.number,
    )


def with_recalls(row: MemoryRow, recalled: int | None, at: int | None) -> MemoryRow:
    """The row with its recall count, if it was recalled."""
    return row._replace(recalled=recalled, recalled_at=at or 0) if recalled else row


class Rows(Protocol):
    """The stored rows of one audience."""

    def current(self, id: str) -> MemoryRow | None:
        """The current row with this id, or None."""
        ...

    def keyed(self, key: str) -> Sequence[MemoryRow]:
        """The current rows with this key, in any order. There are several if some begin later."""
        ...


class Ledger:
    """Collects the changes of one audience in a transaction. It reads rows when they are needed. The store writes the
    changed rows at the end, so a refused transaction has written nothing.

    `changed` contains the rows to write, by number, in the order of their change counts. New rows have numbers below 0.
    The store must write the existing rows first, because a new row may replace one of them.
    """

    def __init__(self, rows: Rows, changes: int) -> None:
        self._rows = rows
        self._ids: dict[str, MemoryRow | None] = {}
        self._keys: dict[str, dict[int, MemoryRow]] = {}
        self._put_under: dict[str, dict[int, MemoryRow]] = {}
        self.changes = changes
        self.changed: dict[int, MemoryRow] = {}
        self.forgotten: list[int] = []
        self.met: set[str] = set()
        """The ids of new memories with the id or key of a current one, and the ids of those."""

    def enter(self, row: MemoryRow, renewing: bool = False) -> None:
        """Add a new memory."""
        changes = rows_for(row, self.current, self._keyed, renewing)
        if changes != [row]:
            self.met.update(change.id for change in changes)
        for change in changes:
            self.put(change)

    def end(self, row: MemoryRow, time: int) -> None:
        """Close a memory at a time. Does nothing if it is closed."""
        row = _undamaged(self.changed.get(row.number, row))
        if row.closed is None:
            self.put(row._replace(closed=time, ends=_earlier(row.ends, time)))

    def weigh(self, row: MemoryRow, importance: float) -> None:
        """Change the importance of a memory. Does nothing if it is closed."""
        row = _undamaged(self.changed.get(row.number, row))
        if row.closed is None:
            self.put(row._replace(importance=float(importance)))

    def forget(self, row: MemoryRow, now: int | None = None) -> None:
        """Forget a memory, which may be damaged. If it was to begin after `now`, the memory that was to end then
        continues to hold."""
        row = self.changed.get(row.number, row)
        if not (row.id or not row.intact):
            return
        if now is not None and row.intact and row.key is not None and row.closed is None and _begins_later(row, now):
            for other in self._keyed(row.key):
                if other.number != row.number and _freed(other, row) != other:
                    self.put(_freed(other, row))
        self.put(forgotten_row(row))
        self.forgotten.append(row.number)

    def put(self, row: MemoryRow) -> None:
        """Add a row to write. It counts as a change."""
        self.changes += 1
        number = row.number or -1 - len(self.changed)
        row = row._replace(number=number, changed=self.changes)
        self.changed.pop(number, None)
        self.changed[number] = row
        if row.closed is None:
            self._ids[row.id] = row
            if row.key is not None:
                self._put_under.setdefault(row.key, {})[number] = row

    def numbered(self, number: Callable[[], int]) -> list[MemoryRow]:
        """The rows, in the order in which to write them. `number` returns the number of a new row. New rows get their
        numbers in the order in which they were added."""
        there = [row for row in self.changed.values() if row.number >= 0]
        new = [row for row in self.changed.values() if row.number < 0]
        numbers = {said: number() for said in sorted((row.number for row in new), reverse=True)}
        return there + [row._replace(number=numbers[row.number]) for row in new]

    def current(self, id: str) -> MemoryRow | None:
        """The current row with this id, with the changes of this transaction."""
        if id not in self._ids:
            self._ids[id] = self._rows.current(id)
        return self._latest(self._ids[id])

    def _keyed(self, key: str) -> list[MemoryRow]:
        if key not in self._keys:
            self._keys[key] = {row.number: row for row in self._rows.keyed(key)}
        rows = self._keys[key] | self._put_under.get(key, {})
        latest = (self._latest(row) for row in rows.values())
        return [row for row in latest if row is not None]

    def _latest(self, row: MemoryRow | None) -> MemoryRow | None:
        if row is None:
            return None
        row = _undamaged(self.changed.get(row.number, row))
        return row if row.closed is None else None


def _undamaged(row: MemoryRow) -> MemoryRow:
    if not row.intact:
        raise StoreDamaged(
            f"the row of memory {row.number} does not match its checksum",
            hint="forget the memory, or restore it from a backup",
        )
    return row


def settle_all(
    change: MemoryChanges,
    records: Sequence[Record],
    ledger: Callable[[bytes], Ledger],
    find: Callable[[int], MemoryRow | None],
) -> None:
    """Apply `MemoryChanges` to the ledgers. `ledger` returns the ledger of an audience, `find` a row of the workspace
    by its number."""
    for given, row in zip(change.memories, entering(change, records), strict=True):
        ledger(row.audience).enter(row, given.position in change.renewing)
    for number, time in change.ended:
        found = find(number)
        if found is not None:
            ledger(found.audience).end(found, time)
    for number, importance in change.weighed:
        found = find(number)
        if found is not None:
            ledger(found.audience).weigh(found, importance)
    for number in change.forgotten:
        found = find(number)
        if found is not None:
            ledger(found.audience).forget(found, records[-1].time)


def touched(ledgers: Iterable[Ledger], dropped: Sequence[Sequence[Any]]) -> Touched:
    """What an append did to memories. `dropped` has one row per removed index entry. Its last column says whether the
    entry had a vector."""
    met = frozenset(id for ledger in ledgers for id in ledger.met)
    return Touched(met, len(dropped), sum(1 for one in dropped if one[-1]))


def indexed_upto(generations: Iterable[int], there: Container[int]) -> int:
    """The last of the ascending `generations` before the first that is not in `there`. 0 if the first is not."""
    last = 0
    for generation in generations:
        if generation not in there:
            break
        last = generation
    return last
