"""Noticing which items of a list changed since it was last saved, without serializing them again.

Each item has a stand-in that no change in place can reach: a message's fields, copied. What an item is made of now is
compared with the stand-in that was there, at the speed of `==` on dicts; only what is new is copied. A change that `==`
does not see, such as 1 to True, is not seen here.

A conversation of a thousand messages is compared at each checkpoint, and most of that time goes into fetching it from
memory: they are gone over once, nothing is copied but what is new, and whatever is empty has one stand-in. Messages
that are saved again and again are watched, which takes a third of that: see `watching`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter, eq
from typing import Any, Self

from pydantic import BaseModel

from ...journal.growing import Growing
from .watching import ATOMS, CAN_WATCH, Watch

Dump = Callable[[Any], bytes]
_NO_DICT: dict[Any, Any] = {}
_NO_LIST: list[Any] = []
_live_message = attrgetter("__class__", "__dict__", "__pydantic_extra__")
"""All that can change about a message. Its stand-in is the same, copied."""


class Messages(Growing[Any]):
    """The stand-ins of messages, where each item is one."""

    __slots__ = ("_compared", "_watch")

    def __init__(self, stand_ins: Iterable[Any]) -> None:
        super().__init__(stand_ins)
        self._watch: Watch | None = None
        self._compared: Any = None
        """The first of the messages that were last compared."""

    def and_more(self, more: Sequence[Any]) -> Self:
        """These and some more, which nobody watches yet."""
        longer = super().and_more(more)
        longer._watch = longer._compared = None
        return longer

    def stand_for(self, items: Sequence[Any]) -> bool:
        """Whether a list begins with what these stand for."""
        if not 0 < len(self) <= len(items):
            return False
        items = items[: len(self)]
        watch = self._watch
        try:
            if watch is not None and watch.first is items[0] and watch.holds(items):
                return True
            # Watching pays where the same messages come often: not for those that were loaded for one more step.
            watch = Watch(items) if CAN_WATCH and self._compared is items[0] else None
            self._compared = items[0]
            if not all(map(eq, self, map(_live_message, items))):
                return False
        except (AttributeError, ValueError):  # no message; an array inside, which has no one answer
            return False
        if watch is not None:
            watch.expect(items, self)
            self._watch = watch
        return True

    def followed_by(self, items: Sequence[Any], dump: Dump) -> Messages:
        """These and the stand-ins of further messages, which are watched along if these are."""
        watch, self._watch = self._watch, None  # it goes along, or is set up anew
        if watch is not None:
            watch.look_at(items)
        stand_ins = [_copied(_live_message(item), item, dump) for item in items]
        longer = self.and_more(stand_ins)
        longer._compared = self._compared
        if watch is not None and all(type(one) is tuple for one in stand_ins):
            watch.expect(items, stand_ins)
            longer._watch = watch
        return longer


def freeze(items: Sequence[Any], known: Sequence[Any], dump: Dump) -> Growing[Any]:
    """The stand-ins of items. Where the one in `known` still holds, it is that very object."""
    if isinstance(known, Messages) and known.stand_for(items):
        fresh = items[len(known) :]
        if not fresh:
            return known
        if _are_messages(fresh):
            return known.followed_by(fresh, dump)
    if _are_messages(items):
        return Messages(_frozen(list(map(_live_message, items)), items, known, dump))
    return Growing(_frozen([_live(item, dump) for item in items], items, known, dump))


def _are_messages(items: Sequence[Any]) -> bool:
    return all(map(_is_transparent, set(map(type, items))))


def _frozen(live: list[Any], items: Sequence[Any], known: Sequence[Any], dump: Dump) -> list[Any]:
    """Stand-ins from all that can change about the items."""
    count = len(known)
    if count and _equal(live[:count], list(known)):
        return [*known, *(_copied(*one, dump) for one in zip(live[count:], items[count:], strict=True))]
    kept = [old if _equal(one, old) else None for one, old in zip(live, known, strict=False)]
    kept += [None] * (len(items) - len(kept))
    return [_copied(one, item, dump) if old is None else old for old, one, item in zip(kept, live, items, strict=True)]


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # an array inside, which has no one answer
        return False


def _live(item: Any, dump: Dump) -> Any:
    """All that can change about an item; its bytes if that is not known."""
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
    except ValueError:  # something inside that cannot be copied, or compared, without knowing it
        return dump(item)


@lru_cache(1024)
def _is_transparent(kind: type[object]) -> bool:
    """Whether the fields of a class's objects say all that is serialized."""
    return issubclass(kind, BaseModel) and not kind.__private_attributes__


def _copy(value: Any) -> Any:
    """A copy that shares nothing that can change. ValueError for other than plain data."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict:
        if not value:
            return _NO_DICT
        return {name: inner if type(inner) in ATOMS else _copy(inner) for name, inner in value.items()}
    if kind is list:
        return [inner if type(inner) in ATOMS else _copy(inner) for inner in value] if value else _NO_LIST
    if kind is tuple or kind is set or kind is frozenset:
        return kind(map(_copy, value))
    raise ValueError(f"{kind.__name__} is no plain data")
