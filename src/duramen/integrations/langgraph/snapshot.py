"""Detects which items of a list changed since it was last saved, without serializing them again.

Each item has a snapshot: a copy of its fields, which in-place changes cannot reach. The current fields are compared
with the snapshot by `==`, and only new items are copied. A change that `==` does not detect, such as 1 to True, is not
detected here.

A conversation of a thousand messages is compared at each checkpoint, and most of the time goes into reading it from
memory. So the messages are read in one pass, only new ones are copied, and all empty containers share one snapshot.
Messages that are saved repeatedly are watched, which takes a third of the time: see `change_detection`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter, eq
from typing import Any, Self

from pydantic import BaseModel

from ...checkpoints.persistent_list import PersistentList
from .change_detection import ATOMS, CAN_WATCH, Watch, read_state

Dump = Callable[[Any], bytes]
_NO_DICT: dict[Any, Any] = {}
_NO_LIST: list[Any] = []
_live_message = attrgetter("__class__", "__dict__", "__pydantic_extra__")
"""Everything that can change in a message. A snapshot is a copy of this."""


class MessageSnapshots(PersistentList[Any]):
    """The snapshots of a list in which every item is a message."""

    __slots__ = ("_compared", "_watch")

    def __init__(self, snapshots: Iterable[Any]) -> None:
        super().__init__(snapshots)
        self._watch: Watch | None = None
        self._compared: Any = None
        """The first message of the list that was last compared."""

    def extended(self, more: Sequence[Any]) -> Self:
        """These snapshots and more. The longer list is not watched yet."""
        longer = super().extended(more)
        longer._watch = longer._compared = None
        return longer

    def match(self, items: Sequence[Any]) -> bool:
        """Whether a list begins with the messages of these snapshots, unchanged."""
        if not 0 < len(self) <= len(items):
            return False
        items = items[: len(self)]
        try:
            return self._holds(items) or self._equals(items)
        except Exception:  # noqa: BLE001 - not a message, or a value that raises when it is compared
            self._watch = None
            return False

    def _holds(self, items: Sequence[Any]) -> bool:
        watch = self._watch
        if watch is None or watch.first is not items[0]:
            return False
        if watch.holds(items):
            return True
        self._watch = None  # a message changed, so the watched objects are out of date
        return False

    def _equals(self, items: Sequence[Any]) -> bool:
        # Watching pays only if the same objects are saved often, and not if they were loaded for one more step.
        often = CAN_WATCH and self._compared is items[0]
        self._compared = items[0]
        if not often:
            return all(map(eq, self, map(_live_message, items)))
        states, watch = [read_state(item) for item in items], Watch(items[0])
        if not all(map(eq, self, (state.content for state in states))):
            return False
        self._watch = watch if watch.add(items, states, self) else None
        return True

    def followed_by(self, items: Sequence[Any], dump: Dump) -> MessageSnapshots:
        """These snapshots and those of further messages. If these are watched, the longer list is watched instead."""
        watch, self._watch = self._watch, None
        states = [read_state(item) for item in items]
        snapshots = [_copied(state.content, item, dump) for state, item in zip(states, items, strict=True)]
        longer = self.extended(snapshots)
        longer._compared = self._compared
        if watch is not None and all(type(one) is tuple for one in snapshots) and watch.add(items, states, snapshots):
            longer._watch = watch
        return longer


def take_snapshots(items: Sequence[Any], known: Sequence[Any], dump: Dump) -> PersistentList[Any]:
    """The snapshots of items. A snapshot in `known` that is still valid is used again (the same object)."""
    if isinstance(known, MessageSnapshots) and known.match(items):
        fresh = items[len(known) :]
        if not fresh:
            return known
        if _are_messages(fresh):
            return known.followed_by(fresh, dump)
    if _are_messages(items):
        return MessageSnapshots(_snapshots_of(list(map(_live_message, items)), items, known, dump))
    return PersistentList(_snapshots_of([_live(item, dump) for item in items], items, known, dump))


def restore(snapshot: Any, item: Any) -> Any:
    """Rebuild an item from its snapshot for serializing. Later changes of the item do not matter."""
    if type(snapshot) is not tuple:
        return snapshot
    kind, fields, undeclared = snapshot
    message = object.__new__(kind)
    of_pydantic = {"fields_set__": item.__pydantic_fields_set__, "extra__": undeclared, "private__": None}
    for name, value in of_pydantic.items():
        object.__setattr__(message, f"__pydantic_{name}", value)
    object.__setattr__(message, "__dict__", fields.copy())
    return message


def _are_messages(items: Sequence[Any]) -> bool:
    return all(map(_is_transparent, set(map(type, items))))


def _snapshots_of(live: list[Any], items: Sequence[Any], known: Sequence[Any], dump: Dump) -> list[Any]:
    """The snapshots of items, given everything that can change in them (`live`)."""
    count = len(known)
    if count and _equal(live[:count], list(known)):
        return [*known, *(_copied(*one, dump) for one in zip(live[count:], items[count:], strict=True))]
    kept = [old if _equal(one, old) else None for one, old in zip(live, known, strict=False)]
    kept += [None] * (len(items) - len(kept))
    return [_copied(one, item, dump) if old is None else old for old, one, item in zip(kept, live, items, strict=True)]


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - for example an array, whose comparison has no single result
        return False


def _live(item: Any, dump: Dump) -> Any:
    """Everything that can change in an item; its serialized bytes if that cannot be determined."""
    kind: Any = type(item)
    if kind is str or kind is dict or kind is list:
        return item
    return _live_message(item) if _is_transparent(kind) else dump(item)


def _copied(live: Any, item: Any, dump: Dump) -> Any:
    try:
        if type(live) is tuple:
            kind, fields, extra = live
            return kind, _copy(fields), _copy(extra)
        return _copy(live)
    except ValueError:  # it contains a value of another type, which cannot be copied or compared here
        return dump(item)


@lru_cache(1024)
def _is_transparent(kind: type[object]) -> bool:
    """Whether the fields of a class contain everything that is serialized of its objects."""
    if not issubclass(kind, BaseModel) or kind.__private_attributes__:
        return False
    own = [one for one in kind.__mro__ if one is not BaseModel and vars(one).get("__slots__")]
    return not own and not kind.__pydantic_decorators__.model_serializers


def _copy(value: Any) -> Any:
    """A copy that shares no mutable object. Raises ValueError for values that are not plain data."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict:
        if not value:
            return _NO_DICT
        # Iterate over a shallow copy, because another thread may change the dict.
        return {name: inner if type(inner) in ATOMS else _copy(inner) for name, inner in value.copy().items()}
    if kind is list:
        return [inner if type(inner) in ATOMS else _copy(inner) for inner in value.copy()] if value else _NO_LIST
    if kind is tuple or kind is frozenset:
        return kind(map(_copy, value))
    if kind is set:
        return set(map(_copy, value.copy()))
    raise ValueError(f"{kind.__name__} is not plain data")
