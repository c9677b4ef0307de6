"""Memories as the stores read and write them: what a new one does to those that are there."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from ...errors import StoreDamaged
from ...ports import MemoryChanges, MemoryRow, Record, Touched

DROPPED = -1
"""What is stored of a generation that was dropped, in place of whether it is active."""


def entering(change: MemoryChanges, records: Sequence[Record]) -> Iterable[MemoryRow]:
    """The memories of an append at the positions and times that their events got: `expires` counts from there, and so
    does `begins` where it is 0."""
    for row in change.memories:
        event = records[row.position]
        begins = event.time if row.begins == 0 else row.begins
        expires = None if row.expires is None else event.time + row.expires
        yield row._replace(
            position=event.position,
            recorded=event.time,
            begins=begins,
            expires=expires,
            importance=float(row.importance),  # a whole number would be read back as another type than was checked
            confidence=float(row.confidence),
            confirmed=event.time,
            number=0,
        )


def settled(
    row: MemoryRow,
    same: Callable[[str], MemoryRow | None],
    keyed: Callable[[str], Sequence[MemoryRow]],
    renewing: bool = False,
) -> list[MemoryRow]:
    """The rows to write for a new memory: itself, and those whose place it takes or that it confirms.

    `same` gives the current row of an id in its audience, `keyed` those of a key. A new row has no number. One that only
    says again what is known is closed at once: it is history that leads to its event, which `forget` must find, too. If
    it is `renewing`, the one before becomes that.
    """
    known = same(row.id)
    if row.key is None and known is None:
        return [row]  # nothing to settle: most are like this
    over, others = _lapsed(keyed(row.key) if row.key is not None else (), row.recorded)
    if known is None or any(one.number == known.number for one in over):
        return [*over, *_placed(row, others)]
    if _to_come(known, row.recorded) and known.begins != row.begins:
        others = [_freed(one, known) for one in others if one.number != known.number]
        return [*over, _replaced(known, row), *_placed(_confirming(row, known), others)]
    ends = _said_to_end(known, row)
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
    """Of the rows of a key those that another one has followed by now, closed when it did; and the others, by when they
    begin: at most one that has begun, and those that were said ahead of their time."""
    ordered = sorted(keyed, key=lambda one: (one.begins, one.number))
    begun = [one for one in ordered if not _to_come(one, now)]
    over = [one._replace(closed=follower.begins, successor=follower.id) for one, follower in pairwise(begun)]
    gone = {one.number for one in over}
    return over, [one for one in ordered if one.number not in gone]


def _placed(row: MemoryRow, others: Sequence[MemoryRow]) -> list[MemoryRow]:
    """A new row among those of its key, which are in the order in which they begin."""
    if row.begins > row.recorded:
        # What holds until then keeps its place, and gets an end. What was to begin later was said before: it goes.
        before = [one for one in others if one.begins < row.begins][-1:]
        ending = [one._replace(ends=_earlier(one.ends, row.begins)) for one in before]
        return [*ending, *(_replaced(one, row) for one in others if one.begins >= row.begins), row]
    # News of the past: what is known now is not touched. What holds from now on is none, whatever their clocks.
    if others and row.begins < others[0].begins and row.begins != row.recorded:
        past = row._replace(ends=_earlier(row.ends, others[0].begins))
        if _to_come(others[0], row.recorded):
            return [past]
        return [past._replace(closed=row.recorded, successor=others[0].id)]
    return [*(_replaced(one, row) for one in others), row]


def _replaced(older: MemoryRow, row: MemoryRow) -> MemoryRow:
    """A row whose place another one takes. One that was only to begin later never held."""
    ends = older.begins if _to_come(older, row.recorded) else _earlier(older.ends, row.begins)
    return older._replace(ends=ends, closed=row.recorded, successor=row.id)


def _to_come(row: MemoryRow, now: int) -> bool:
    """Whether a row was said ahead of its time, which has not come. Others hold at once, whatever the clocks."""
    return row.begins > max(now, row.recorded)


def _freed(row: MemoryRow, follower: MemoryRow) -> MemoryRow:
    """A row that was to end where another one begins, which now does not."""
    return row._replace(ends=None) if row.ends == follower.begins else row


def _confirming(row: MemoryRow, other: MemoryRow) -> MemoryRow:
    """A row that stands for another one, too, which says the same."""
    return row._replace(
        times=row.times + other.times,
        importance=max(row.importance, other.importance),
        confidence=max(row.confidence, other.confidence),
    )


def _said_to_end(known: MemoryRow, row: MemoryRow) -> int | None:
    """When a memory ends that is said again: as it says, else as was known; if that is over, it holds again."""
    over = known.ends is not None and known.ends <= row.recorded
    return known.ends if row.ends is None and not over else row.ends


def _earlier(ends: int | None, begins: int) -> int:
    return begins if ends is None else min(ends, begins)


def gone(row: MemoryRow) -> MemoryRow:
    """What is left of a memory that was forgotten."""
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


def noted(row: MemoryRow, recalled: int | None, at: int | None) -> MemoryRow:
    """A row with how often it was recalled, if it was."""
    return row._replace(recalled=recalled, recalled_at=at or 0) if recalled else row


class Rows(Protocol):
    """The rows of one audience, as they are in the store."""

    def current(self, id: str) -> MemoryRow | None:
        """The current row of an id."""
        ...

    def keyed(self, key: str) -> Sequence[MemoryRow]:
        """The current rows of a key, in any order: more than one if some are still to begin."""
        ...


class Ledger:
    """One audience while a transaction changes it. Rows are read when they are needed and changed here; the store writes
    them when all is settled, so that a transaction that is refused has written nothing.

    `changed` holds the rows to write, by number and in the order of their counts; a new one's number is below 0. Those
    that are there already must be written first: a new row may take the place of one of them.
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
        """The ids of new memories that met another, and of those that they met."""

    def enter(self, row: MemoryRow, renewing: bool = False) -> None:
        """A memory that was said."""
        changes = settled(row, self.current, self._keyed, renewing)
        if changes != [row]:
            self.met.update(change.id for change in changes)
        for change in changes:
            self.put(change)

    def end(self, row: MemoryRow, time: int) -> None:
        """A memory that holds no longer; nothing if it is history."""
        row = _sound(self.changed.get(row.number, row))
        if row.closed is None:
            self.put(row._replace(closed=time, ends=_earlier(row.ends, time)))

    def weigh(self, row: MemoryRow, importance: float) -> None:
        """A memory that counts more or less from now on; nothing if it is history."""
        row = _sound(self.changed.get(row.number, row))
        if row.closed is None:
            self.put(row._replace(importance=float(importance)))

    def forget(self, row: MemoryRow, now: int | None = None) -> None:
        """Leave nothing of a memory but that it was. It may be damaged. If it was only to begin after `now`, what holds
        until then goes on."""
        row = self.changed.get(row.number, row)
        if not (row.id or not row.intact):
            return
        if now is not None and row.intact and row.key is not None and row.closed is None and _to_come(row, now):
            for other in self._keyed(row.key):
                if other.number != row.number and _freed(other, row) != other:
                    self.put(_freed(other, row))
        self.put(gone(row))
        self.forgotten.append(row.number)

    def put(self, row: MemoryRow) -> None:
        """A row to write: it counts as a change."""
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
        """The rows to write, in the order in which to write them; new ones get their numbers now, in the order in which
        they were said."""
        there = [row for row in self.changed.values() if row.number >= 0]
        new = [row for row in self.changed.values() if row.number < 0]
        numbers = {said: number() for said in sorted((row.number for row in new), reverse=True)}
        return there + [row._replace(number=numbers[row.number]) for row in new]

    def current(self, id: str) -> MemoryRow | None:
        """The current row of an id, after what was changed."""
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
        row = _sound(self.changed.get(row.number, row))
        return row if row.closed is None else None


def _sound(row: MemoryRow) -> MemoryRow:
    if not row.intact:
        raise StoreDamaged(
            f"the row of memory {row.number} does not match its checksum", hint="forget it, or restore it from a backup"
        )
    return row


def settle_all(
    change: MemoryChanges,
    records: Sequence[Record],
    ledger: Callable[[bytes], Ledger],
    find: Callable[[int], MemoryRow | None],
) -> None:
    """Enter, end, weigh and forget memories with an append. `ledger` gives an audience's, `find` a row of this workspace."""
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
    """What an append did to memories. Of each index entry that went it is said last whether there was a vector."""
    met = frozenset(id for ledger in ledgers for id in ledger.met)
    return Touched(met, len(dropped), sum(1 for one in dropped if one[-1]))


def indexed_upto(generations: Iterable[int], there: Container[int]) -> int:
    """The last generation up to which a memory has an index entry in all of them; 0 if it has none in the first."""
    last = 0
    for generation in generations:
        if generation not in there:
            break
        last = generation
    return last
