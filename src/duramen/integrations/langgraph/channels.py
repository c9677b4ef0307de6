"""Converts the values of a graph's channels to fields that share unchanged parts, and back.

A list of objects becomes items that are stored one by one. A dict that holds such lists or long texts becomes fields.
Everything else becomes opaque bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

from ...checkpoints.manifest import BytesField, Fields, ListField
from ...checkpoints.persistent_list import PersistentList
from .serializer import ValueSerializer
from .snapshot import Dump, restore, take_snapshots

Path = tuple[str, ...]
_NUMBERS = frozenset([int, float, bool, type(None)])
_DEEPEST = 4
_MOST_FIELDS = 64
"""A dict with more keys is stored as one value: a field for each key would cost more than it saves."""
_LONG = 1000
_REMEMBERED = 100
"""The number of namespaces whose last lists are held in memory."""


class SavedList(NamedTuple):
    """The items of a list when they were last saved or loaded, and their snapshots."""

    items: Sequence[Any]
    snapshots: PersistentList[Any]

    def begins(self, items: Sequence[Any]) -> bool:
        """Whether a list begins with the same objects (by identity)."""
        return 0 < len(self.items) <= len(items) and all(map(is_, items, self.items))


Lists = dict[Path, SavedList]


class SavedCheckpoint(NamedTuple):
    """The lists of the checkpoint that was last saved or loaded under a name."""

    id: str
    lists: Lists


class SavedLists:
    """A cache of the lists that were last saved. An entry that is missing costs time, never correctness. Safe to share
    between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: OrderedDict[tuple[str, str], SavedCheckpoint] = OrderedDict()

    def lists(self, session: str, name: str) -> Lists:
        """The lists that were last saved under this name; empty if they are not cached."""
        remembered = self._names.get((session, name))
        return remembered.lists if remembered is not None else {}

    def saved(self, session: str, name: str, id: str, lists: Lists) -> None:
        """Cache the lists of a checkpoint."""
        with self._lock:
            self._names[session, name] = SavedCheckpoint(id, lists)
            self._names.move_to_end((session, name))
            while len(self._names) > _REMEMBERED:
                self._names.popitem(last=False)

    def forget(self, session: str) -> None:
        """Remove a session's lists from the cache. Call this before its checkpoints are removed."""
        with self._lock:
            for place in [place for place in self._names if place[0] == session]:
                del self._names[place]

    def loaded(self, session: str, name: str, id: str, lists: Mapping[Path, list[Any]]) -> None:
        """Note that the checkpoint was loaded as these new objects. The next checkpoint will consist of them."""
        with self._lock:
            remembered = self._names.get((session, name))
            if remembered is None or remembered.id != id:
                return
            for path, items in lists.items():
                seen = remembered.lists.get(path)
                if seen is not None and len(seen.snapshots) == len(items):
                    remembered.lists[path] = seen._replace(items=items.copy())


class FieldEncoder:
    """Converts values to fields. `lists` holds the lists that it met, once they are saved.

    `untouched`: no object of the lists in `before` can have been changed in place since they were saved.
    """

    def __init__(self, serializer: ValueSerializer, before: Lists | None = None, *, untouched: bool = False) -> None:
        self._serializer = serializer
        self._dump = serializer.dump
        self._before = before or {}
        self._untouched = untouched
        self.lists: Lists = {}

    def fields(self, values: Mapping[str, Any], path: Path = ()) -> Fields:
        """The fields of these values, by name."""
        return {name: self._form(value, (*path, name)) for name, value in values.items()}

    def _form(self, value: Any, path: Path) -> BytesField | ListField | Fields:
        value = self._serializer.named(path[-1], value)
        kind = type(value)
        if kind is list and _holds_objects(value):
            return self._items(value, path)
        if kind is dict and len(path) < _DEEPEST and _is_worth_fields(value):
            return self.fields(value, path)
        return BytesField(self._dump(value))

    def _items(self, items: list[Any], path: Path) -> ListField:
        seen = self._before.get(path) if self._untouched else None
        item_encoder = _ItemEncoder(self._dump)
        return ListField(items.copy(), item_encoder, _ListSnapshot(self._dump, seen, self.lists, path, item_encoder))


class _ItemEncoder:
    """Encodes items. It encodes the snapshot of an item if there is one, because a node may change a message while it
    is saved. Encoders of one serializer are equal."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._snapshots: dict[int, Any] = {}

    def note(self, items: Sequence[Any], snapshots: Sequence[Any]) -> None:
        """Set the snapshots of the items to encode. The caller must keep the items alive while this is used."""
        self._snapshots = dict(zip(map(id, items), snapshots, strict=True))

    def __call__(self, item: Any) -> bytes:
        snapshot = self._snapshots.get(id(item), item)
        if snapshot is item:
            return self._dump(item)
        return snapshot if type(snapshot) is bytes else self._dump(restore(snapshot, item))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ItemEncoder) and other._dump == self._dump

    def __hash__(self) -> int:
        return hash(self._dump)


class _ListSnapshot:
    """Takes the snapshots of a list and records them. Objects of one serializer are equal, because they take equal
    snapshots."""

    def __init__(
        self, dump: Dump, seen: SavedList | None, lists: Lists, path: Path, item_encoder: _ItemEncoder
    ) -> None:
        self._dump = dump
        self._seen = seen
        self._lists = lists
        self._path = path
        self._item_encoder = item_encoder

    def __call__(self, items: Sequence[Any], known: Sequence[Any]) -> Sequence[Any]:
        seen = self._seen
        if seen is not None and seen.begins(items):
            fresh = items[len(seen.items) :]
            more = take_snapshots(fresh, [], self._dump)
            # Extend only if both are of one kind: a MessageSnapshots must contain messages only.
            alike = type(more) is type(seen.snapshots) or not fresh
            found = seen.snapshots.extended(more) if alike else PersistentList([*seen.snapshots, *more])
        else:
            found = take_snapshots(items, known, self._dump)
        count = len(known) if isinstance(known, PersistentList) and known.is_prefix_of(found) else 0
        self._item_encoder.note(items[count:], found[count:])
        self._lists[self._path] = SavedList(items, found)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ListSnapshot) and other._dump == self._dump

    def __hash__(self) -> int:
        return hash(self._dump)


def _holds_objects(items: list[Any]) -> bool:
    """Whether to store the items one by one. A list of numbers is stored as one value, which takes far less space."""
    if items and type(items[0]) not in _NUMBERS:
        return True  # a shortcut for long lists of messages
    return not set(map(type, items)) <= _NUMBERS


def _is_worth_fields(value: dict[Any, Any]) -> bool:
    return (
        len(value) <= _MOST_FIELDS
        and set(map(type, value)) == {str}
        and any(
            _holds_objects(inner) if type(inner) is list else type(inner) is str and len(inner) > _LONG
            for inner in value.values()
        )
    )


class FieldDecoder:
    """Converts stored fields back to values. `lists` holds the lists that it made."""

    def __init__(self, serializer: ValueSerializer) -> None:
        self._load = serializer.load
        self.lists: dict[Path, list[Any]] = {}

    def values(self, fields: Mapping[str, Any], path: Path = ()) -> dict[str, Any]:
        """The values of these fields, by name."""
        return {name: self._value(field, (*path, name)) for name, field in fields.items()}

    def _value(self, field: Any, path: Path) -> Any:
        if isinstance(field, bytes):
            return self._load(field)
        if isinstance(field, dict):
            return self.values(field, path)
        self.lists[path] = items = [self._load(body) for body in field]
        return items


_FEW = 8
"""A list with at most this many items is serialized at once. In a longer list, most items are probably stored already
and need not be serialized."""


def serialize_short_lists(fields: Fields) -> Fields:
    """The same fields with their short lists serialized."""
    return {name: _serialized(value) for name, value in fields.items()}


def _serialized(value: BytesField | ListField | Fields) -> BytesField | ListField | Fields:
    if isinstance(value, ListField) and len(value.values) <= _FEW:
        return ListField([value.encode(item) for item in value.values], bytes, _unchanged)
    return serialize_short_lists(value) if isinstance(value, dict) else value


def fields_from_stored(fields: Mapping[str, Any]) -> Fields:
    """Fields that were read from the store, in the form to save them in another thread."""
    return {name: _stored(field) for name, field in fields.items()}


def _stored(field: Any) -> BytesField | ListField | Fields:
    if isinstance(field, bytes):
        return BytesField(field)
    return fields_from_stored(field) if isinstance(field, dict) else ListField(field, bytes, _unchanged)


def _unchanged(bodies: Sequence[Any], _: Sequence[Any]) -> Sequence[Any]:
    return list(bodies)
