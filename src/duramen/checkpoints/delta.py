"""Delta encoding of states: a manifest that refers to stored bodies, and the bodies that are new."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import InvalidInput
from .manifest import (
    BODY,
    FIELDS,
    FORMAT,
    INLINE,
    LIST,
    PAGE,
    PAGED_LIST,
    BodyRange,
    BytesField,
    Digester,
    Fields,
    ListField,
    StoredBytes,
    StoredList,
    append_ranges,
    flatten_ranges,
    pack,
)
from .persistent_list import PersistentList, as_persistent_list

_INLINE_BYTES = 64
"""Values up to this size are stored in the manifest, because a reference would not be much shorter."""
_UNPAGED = 8
"""How many of the last ranges of a list are not written to a page, because the last range may still grow."""
_MISSES = 16
"""How many items may be missing in the previous version of a list before all following items count as new."""
_NAMES = 32
_LISTS = 64
_LIST_ITEMS = 20_000
_BODIES = 4096


@dataclass(slots=True)
class DeltaBase:
    """What the next delta of a session is encoded against.

    It holds the end of the chunk log, how the last state under each name is stored, lists by the digest of their
    first item, and bodies by their digest. It keeps the most recent ones of each.
    """

    chunk_log: int
    end: int
    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)
    by_first_item: dict[bytes, StoredList] = field(default_factory=dict)
    bodies: dict[bytes, BodyRange] = field(default_factory=dict)
    _item_count: int = 0
    """The number of items of all lists in `by_first_item`."""

    def add(self, name: str | None, stored: dict[str, Any], new_bodies: Iterable[tuple[bytes, BodyRange]] = ()) -> None:
        """Add a stored state, and those of its bodies that are new."""
        if name is not None:
            _put(self.by_name, name, stored, _NAMES)
        self._add_lists(stored)
        for digest, where in new_bodies:
            _put(self.bodies, digest, where, _BODIES)

    def _add_lists(self, stored: dict[str, Any]) -> None:
        for one in stored.values():
            if type(one) is dict:
                self._add_lists(one)
            elif type(one) is StoredList and one.digests:
                self._add_list(one.digests[0], one)

    def _add_list(self, first: bytes, stored: StoredList) -> None:
        before = self.by_first_item.pop(first, None)
        self.by_first_item[first] = stored
        self._item_count += len(stored.digests) - (0 if before is None else len(before.digests))
        while len(self.by_first_item) > _LISTS or (len(self.by_first_item) > 1 and self._item_count > _LIST_ITEMS):
            self._item_count -= len(self.by_first_item.pop(next(iter(self.by_first_item))).digests)


def _put(recent: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    recent.pop(key, None)
    recent[key] = value
    if len(recent) > most:
        del recent[next(iter(recent))]


class Delta(NamedTuple):
    """A state ready to be stored: its packed manifest, its digest, its new bodies and their place in the chunk log.

    `stored` and `new_bodies` are the arguments of `DeltaBase.add` after the state is stored. States that are encoded
    together share `bodies` and `start`.
    """

    manifest: bytes
    digest: bytes
    bodies: list[bytes]
    chunk_log: int
    start: int
    stored: dict[str, Any]
    new_bodies: dict[bytes, BodyRange]


def encode_deltas(states: Iterable[tuple[str | None, Fields]], base: DeltaBase, salt: bytes) -> list[Delta]:
    """Encode states that will be stored together, each against the base and the states before it."""
    encoder = _Encoder(base, Digester(salt))
    last: dict[str | None, dict[str, Any]] = {}
    deltas = []
    for name, fields in states:
        encoder.chunk_logs = {encoder.chunk_log: 0}
        before = None if name is None else last.get(name) or base.by_name.get(name)
        node, digest, last[name] = encoder.encode(fields, before)
        manifest = pack([FORMAT, list(encoder.chunk_logs), encoder.start + len(encoder.bodies), node])
        deltas.append(
            Delta(manifest, digest, encoder.bodies, encoder.chunk_log, encoder.start, last[name], encoder.new_bodies)
        )
    return deltas


def digest_fields(fields: Fields, salt: bytes) -> bytes | None:
    """The digest of a state that is not encoded yet; None if some of its values are not serialized yet."""
    return None if _has_unserialized(fields) else _digest(fields, Digester(salt))


def _has_unserialized(fields: Fields) -> bool:
    """Whether there are lists whose items are serialized only if they are new."""
    return any(
        _has_unserialized(value) if type(value) is dict else type(value) is ListField and value.encode is not bytes
        for value in fields.values()
    )


def _digest(value: Any, digester: Digester) -> bytes:
    if type(value) is BytesField:
        return digester.body(value.body)
    if type(value) is ListField:
        return digester.items(map(digester.body, value.values)).digest()
    return digester.fields({name: _digest(inner, digester) for name, inner in value.items()})


class _Encoder:
    """Encodes states in order. Each method returns a node, its digest, and where it is stored."""

    def __init__(self, base: DeltaBase, digester: Digester) -> None:
        self._base = base
        self.chunk_log, self.start = base.chunk_log, base.end
        self._digester = digester
        self.bodies: list[bytes] = []
        self.new_bodies: dict[bytes, BodyRange] = {}
        self.chunk_logs: dict[int, int] = {self.chunk_log: 0}

    def encode(self, fields: Fields, stored: Any) -> tuple[Any, bytes, dict[str, Any]]:
        """Encode named fields. `stored` says where a previous version is stored, if there is one."""
        known = stored if type(stored) is dict else {}
        nodes, digests, after = {}, {}, {}
        for name, value in fields.items():
            nodes[name], digests[name], after[name] = self._field(value, known.get(name))
        return [FIELDS, nodes], self._digester.fields(digests), after

    def _field(self, value: Any, stored: Any) -> tuple[Any, bytes, Any]:
        if type(value) is BytesField:
            return self._bytes(value.body, stored)
        if type(value) is ListField:
            return self._list(value, stored)
        if type(value) is not dict:
            raise InvalidInput(
                f"a state cannot hold a field of type {type(value).__name__}",
                hint="give BytesField, ListField, or a dict of them",
            )
        return self.encode(value, stored)

    def _bytes(self, body: bytes, stored: Any) -> tuple[Any, bytes, StoredBytes]:
        digest = self._digester.body(body)
        if len(body) <= _INLINE_BYTES:
            return [INLINE, body], digest, StoredBytes(digest, body, None)
        where = stored.body if type(stored) is StoredBytes and stored.digest == digest else None
        if where is None:
            where = self._store(digest, body)
        return [BODY, *self._flatten([where])], digest, StoredBytes(digest, None, where)

    def _list(self, field: ListField, stored: Any) -> tuple[Any, bytes, StoredList]:
        old = stored if type(stored) is StoredList and stored.digests else self._similar(field)
        values, method = field.values, (field.encode, field.snapshot)
        bodies: list[bytes] | None = None
        snapshots = as_persistent_list(field.snapshot(values, old.snapshots if old.snapshot_method == method else []))
        if old.snapshot_method == method and old.snapshots and snapshots and snapshots[0] != old.snapshots[0]:
            other = self._similar(field)  # another beginning: perhaps another stored list begins like this
            old = other if other.digests else old
        if old.snapshot_method == method or not old.digests:
            hunks = diff_lists(old.snapshots, snapshots)
        else:  # a list that was read from the store has no snapshots: compare digests this time
            bodies = [field.encode(value) for value in values]
            hunks = diff_lists(old.digests, PersistentList(map(self._digester.body, bodies)))
        begun = _EMPTY
        if hunks[:1] == [(0, 0, len(old.digests))]:  # the most common case: it grew at its end, or did not change
            begun, hunks = old, hunks[1:]
        ranges: list[BodyRange] = begun.ranges.copy()
        added: list[bytes] = []
        for hunk in hunks:
            added += self._append_hunk(ranges, hunk, field, bodies, old)
        digests = begun.digests.extended(added) if begun.digests else PersistentList(added)
        hash_state = self._digester.items(added if begun.hash_state else digests, begun.hash_state)
        return self._list_node(ranges), hash_state.digest(), StoredList(snapshots, method, digests, ranges, hash_state)

    def _list_node(self, ranges: list[BodyRange]) -> Any:
        """The node of a list. If it has many ranges, the older ones are written to pages, and pages to pages of the
        next level. A page does not change while the list grows, and is shared like any other body."""
        levels: list[list[int]] = []
        while True:
            paged = (len(ranges) - _UNPAGED) // PAGE * PAGE if len(ranges) > _UNPAGED + PAGE else 0
            levels.append(self._flatten(ranges[paged:]))
            if not paged:
                break
            pages = [_page(ranges[at : at + PAGE]) for at in range(0, paged, PAGE)]
            ranges = [self._store(self._digester.body(page), page) for page in pages]
        return [LIST, *levels[0]] if len(levels) == 1 else [PAGED_LIST, levels]

    def _similar(self, field: ListField) -> StoredList:
        """A stored list of the session, under any name, that begins with the same item."""
        if not field.values:
            return _EMPTY
        first = self._digester.body(field.encode(field.values[0]))
        return self._base.by_first_item.get(first) or _EMPTY

    def _append_hunk(
        self, ranges: list[BodyRange], hunk: Hunk, field: ListField, bodies: list[bytes] | None, old: StoredList
    ) -> list[bytes]:
        """Append to `ranges` where a hunk of a list is stored. Returns the digests of its items."""
        origin, first, last = hunk
        if origin is not None:
            stop = origin + last - first
            append_ranges(ranges, _slice(old.ranges, origin, stop))
            return old.digests[origin:stop]
        digests = []
        for body in bodies[first:last] if bodies else map(field.encode, field.values[first:last]):
            digest = self._digester.body(body)
            digests.append(digest)
            append_ranges(ranges, [self._store(digest, body)])
        return digests

    def _store(self, digest: bytes, body: bytes) -> BodyRange:
        """Where a body is stored. A body that the session does not have is added to the new ones."""
        known = self._base.bodies.get(digest) or self.new_bodies.get(digest)
        if known is not None:
            return known
        first = self.start + len(self.bodies)
        self.bodies.append(body)
        self.new_bodies[digest] = BodyRange(self.chunk_log, first, first + 1)
        return self.new_bodies[digest]

    def _flatten(self, ranges: Iterable[BodyRange]) -> list[int]:
        return flatten_ranges(ranges, self.chunk_logs)


def _page(ranges: list[BodyRange]) -> bytes:
    chunk_logs: dict[int, int] = {}
    numbers = flatten_ranges(ranges, chunk_logs)
    return pack([list(chunk_logs), numbers])


Hunk = tuple[int | None, int, int]
"""A part of a list: its start in the old list (None: it is new), and its start and end in the new list."""
_EMPTY = StoredList(PersistentList(), None, PersistentList(), [])


def diff_lists(old: PersistentList[Any], new: PersistentList[Any]) -> list[Hunk]:
    """The new list as hunks: runs of old items in their order, and runs of new items."""
    known, count = len(old), len(new)
    if known and old.is_prefix_of(new):
        return [(0, 0, known), (None, known, count)] if count > known else [(0, 0, known)]
    hunks: list[Hunk] = []
    here, there, misses = 0, 0, 0
    while here < count:
        found = _find(old, new[here], there) if there < known and misses < _MISSES else -1
        if found < 0:
            misses += 1
            if hunks and hunks[-1][0] is None:
                hunks[-1] = (None, hunks[-1][1], here + 1)
            else:
                hunks.append((None, here, here + 1))
            here += 1
            continue
        length = _common_length(old, found, new, here)
        hunks.append((found, here, here + length))
        here, there = here + length, found + length
    return hunks


def _find(old: PersistentList[Any], item: Any, start: int) -> int:
    try:
        return old.index(item, start)
    except ValueError:
        return -1


def _common_length(old: PersistentList[Any], start: int, new: PersistentList[Any], first: int) -> int:
    """How many items are equal from these positions on."""
    length = min(len(old) - start, len(new) - first)
    if old[start : start + length] == new[first : first + length]:
        return length
    # The first item was found by identity or equality. It may differ from itself, as NaN does.
    return next((index for index in range(1, length) if old[start + index] != new[first + index]), length)


def _slice(ranges: list[BodyRange], first: int, last: int) -> list[BodyRange]:
    """Where the items from `first` up to, but not including, `last` are stored."""
    found, passed = [], 0
    for chunk_log, begin, end in ranges:
        low, high = max(first - passed, 0), min(last - passed, end - begin)
        if low < high:
            found.append(BodyRange(chunk_log, begin + low, begin + high))
        passed += end - begin
    return found
