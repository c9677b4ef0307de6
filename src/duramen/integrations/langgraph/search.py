"""Selects items and namespaces with LangGraph's filters and match conditions, and ranks items by words."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langgraph.store.base import MatchCondition

from ...checkpoints.kv_items import KvItem, Namespace
from ...errors import InvalidInput, shown

_WORD = re.compile(r"\w+")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def matches(value: Any, wanted: Any) -> bool:
    """Whether a value matches a filter: it is equal or meets the operators. Dicts and lists are compared
    recursively."""
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_holds(value, name, bound) for name, bound in wanted.items())
        return isinstance(value, Mapping) and all(matches(value.get(key), inner) for key, inner in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(matches(*pair) for pair in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _holds(value: Any, name: str, bound: Any) -> bool:
    if name == "$eq":
        return bool(value == bound)
    if name == "$ne":
        return bool(value != bound)
    order = _ORDERS.get(name)
    if order is None:
        raise InvalidInput(f"{shown(name)} is not a filter operator", hint="use $eq, $ne, $gt, $gte, $lt or $lte")
    alike = isinstance(value, str) == isinstance(bound, str)
    return alike and all(isinstance(one, str | int | float) for one in (value, bound)) and order(value, bound)


def ranked(items: Sequence[KvItem], query: str | None) -> list[tuple[KvItem, float | None]]:
    """Items with their scores, best first. The score is the share of the query's words that occur in the item's texts.
    Items with equal scores, and all items without a query, are ordered by their last update, newest first."""
    recent = sorted(items, key=lambda item: item.updated, reverse=True)
    words = _words(query or "")
    if not words:
        return [(item, None) for item in recent]
    shares = [len(words & _words(" ".join(_texts(item.value)))) / len(words) for item in recent]
    order = sorted(range(len(recent)), key=shares.__getitem__, reverse=True)
    return [(recent[place], shares[place]) for place in order]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def filter_namespaces(
    namespaces: Sequence[Namespace], conditions: Sequence[MatchCondition] | None, max_depth: int | None
) -> list[Namespace]:
    """The namespaces that meet all conditions, shortened to `max_depth` parts, sorted, without duplicates."""
    found = [
        namespace for namespace in namespaces if all(_meets(namespace, condition) for condition in conditions or ())
    ]
    return sorted({namespace[:max_depth] for namespace in found})


def _meets(namespace: Namespace, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidInput(f"match_type cannot be {shown(condition.match_type)}", hint='use "prefix" or "suffix"')
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
