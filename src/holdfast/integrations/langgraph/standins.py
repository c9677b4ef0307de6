"""Noticing which items of a list changed since it was last saved, without serializing them again.

Each item has a stand-in that no change in place can reach: a message's fields, copied. What an item is made of now is
compared with the stand-in that was there, at the speed of `==` on dicts; only what is new is copied. A change that `==`
does not see, such as 1 to True, is not seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

Dump = Callable[[Any], bytes]
_ATOMS = frozenset([str, int, float, bool, bytes, type(None)])
_parts = attrgetter("__class__", "__dict__", "__pydantic_extra__")


def freeze(items: Sequence[Any], known: list[Any], dump: Dump) -> list[Any]:
    """The stand-ins of items. Where the one in `known` still holds, it is that very object."""
    if all(map(_is_transparent, set(map(type, items)))):
        live: list[Any] = list(map(_parts, items))
    else:
        live = [_live(item, dump) for item in items]
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
    return _parts(item) if _is_transparent(kind) else dump(item)


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
        return {name: inner if type(inner) in _ATOMS else _copy(inner) for name, inner in value.items()}
    if kind is list:
        return [inner if type(inner) in _ATOMS else _copy(inner) for inner in value]
    if kind is tuple or kind is set or kind is frozenset:
        return kind(map(_copy, value))
    raise ValueError(f"{kind.__name__} is no plain data")
