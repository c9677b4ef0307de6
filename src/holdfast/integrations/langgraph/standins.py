"""Noticing which items of a list changed since it was last saved, without serializing them again.

Each item has a stand-in that no change in place can reach: a message's fields, copied. What an item is made of now is
compared with the stand-in that was there, at the speed of `==` on dicts; only what is new is copied. A change that `==`
does not see, such as 1 to True, is not seen here.

A conversation of a thousand messages is compared at each checkpoint, and most of that time goes into fetching it from
memory. So messages are compared column by column, and whatever is empty has one stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

Dump = Callable[[Any], bytes]
_ATOMS = frozenset([str, int, float, bool, bytes, type(None)])
_NO_DICT: dict[Any, Any] = {}
_NO_LIST: list[Any] = []
_fields = attrgetter("__dict__")
_extra = attrgetter("__pydantic_extra__")


class _Messages(list[Any]):
    """The stand-ins of messages, and the same once more as columns."""

    __slots__ = ("extras", "fields", "kinds")

    def __init__(self, stand_ins: list[Any]) -> None:
        super().__init__(stand_ins)
        columns = [one if type(one) is tuple else (None, None, None) for one in stand_ins]
        self.kinds, self.fields, self.extras = (
            [one[0] for one in columns],
            [one[1] for one in columns],
            [one[2] for one in columns],
        )

    def heads(self, kinds: list[Any], fields: list[Any], extras: list[Any]) -> bool:
        """Whether a list begins with what these stand for."""
        count = len(self)
        return (
            0 < count <= len(kinds)
            and kinds[:count] == self.kinds
            and _equal(fields[:count], self.fields)
            and _equal(extras[:count], self.extras)
        )

    def and_more(self, more: list[Any]) -> _Messages:
        """These and some others."""
        fresh = _Messages(more)
        joined = _Messages([])
        joined += self
        joined += fresh
        joined.kinds = self.kinds + fresh.kinds
        joined.fields = self.fields + fresh.fields
        joined.extras = self.extras + fresh.extras
        return joined


def freeze(items: Sequence[Any], known: list[Any], dump: Dump) -> list[Any]:
    """The stand-ins of items. Where the one in `known` still holds, it is that very object."""
    kinds = list(map(type, items))
    if not all(map(_is_transparent, set(kinds))):
        return _frozen([_live(item, dump) for item in items], items, known, dump)
    fields, extras, count = list(map(_fields, items)), list(map(_extra, items)), len(known)
    if type(known) is not _Messages or not known.heads(kinds, fields, extras):
        return _Messages(_frozen(list(zip(kinds, fields, extras, strict=True)), items, known, dump))
    if count == len(items):
        return known
    more = zip(kinds[count:], fields[count:], extras[count:], strict=True)
    return known.and_more([_copied(live, item, dump) for live, item in zip(more, items[count:], strict=True)])


def _frozen(live: list[Any], items: Sequence[Any], known: list[Any], dump: Dump) -> list[Any]:
    """Stand-ins from all that can change about the items."""
    count = len(known)
    if count and _equal(live[:count], known):
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
    return (kind, _fields(item), _extra(item)) if _is_transparent(kind) else dump(item)


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
    if kind in _ATOMS:
        return value
    if kind is dict:
        if not value:
            return _NO_DICT
        return {name: inner if type(inner) in _ATOMS else _copy(inner) for name, inner in value.items()}
    if kind is list:
        return [inner if type(inner) in _ATOMS else _copy(inner) for inner in value] if value else _NO_LIST
    if kind is tuple or kind is set or kind is frozenset:
        return kind(map(_copy, value))
    raise ValueError(f"{kind.__name__} is no plain data")
