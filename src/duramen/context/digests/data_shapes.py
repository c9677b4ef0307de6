"""Describes the shape of data: its keys, its counts and one example."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from ..compaction.trim import ELLIPSIS, plain
from .long_text import counted
from .sketch import Piece, Slot

DEEPEST = 64
"""Deeper data is treated as text: how deep a parser can go depends on the stack of the caller."""
_WIDEST = 1_000_000
"""With more lists and objects on one level, data counts as too deep without a further look."""
_CONTAINERS = frozenset([dict, list, tuple, set, frozenset])
_KEYS = 24
"""Keys of one object that are listed."""
_SAMPLE = 50
"""Items of a list from which its kind is derived."""
_SHORT = 32
"""Texts up to this length are shown. Longer ones are described."""
_STATUS = frozenset(
    ["exitcode", "exitstatus", "returncode", "rc", "status", "statuscode", "code", "ok", "success", "iserror", "state"]
)
_TROUBLE = frozenset(
    ["error", "errors", "message", "detail", "details", "reason", "errormessage", "exception", "title"]
)
_COUNTS = re.compile(r"^total|^n$|(?:count|total)s?$")
_COUNTABLE = frozenset([str, int, bool, type(None)])
_MOST_VALUES = 8
_TALLIED = ("status", "state", "level", "severity", "result", "outcome", "conclusion", "type", "kind")


class Number(str):
    """A number from JSON text, as it was written."""

    __slots__ = ()


_decoder = msgspec.json.Decoder(float_hook=Number)


class Known(NamedTuple):
    """The pieces about an object apart from its shape. `keys` are the keys described by them, `inside` the keys whose
    objects contain a described key."""

    pieces: list[Piece]
    keys: frozenset[str]
    inside: frozenset[str]


def parsed(text: str) -> tuple[str, Any] | None:
    """The name of the format ("JSON" or "JSON lines") and the data of a text. None if the text is neither."""
    if text[:256].lstrip()[:1] not in ("{", "["):
        return None
    value = _decoded(text)
    name = "JSON"
    if value is None:
        first, more, _ = text.partition("\n")
        name = "JSON lines"
        value = _decoded(text, lines=True) if more and _decoded(first) is not None else None
    return None if value is None or deeper_than(value, DEEPEST) else (name, value)


def _decoded(text: str, *, lines: bool = False) -> Any:
    try:
        return _decoder.decode_lines(text) if lines else _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def deeper_than(value: object, most: int) -> bool:
    """Whether lists and objects are nested more than `most` levels deep, or one level has too many of them. Data that
    contains itself, or one list in many places, grows with every level."""
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(most):
        level = _children(level)
        if not level or len(level) > _WIDEST:
            return bool(level)
    return True


def _children(level: list[Any]) -> list[Any]:
    objects = [one.values() for one in level if type(one) is dict]
    inner = [child for values in objects for child in values if type(child) in _CONTAINERS]
    lists = [one for one in level if type(one) is not dict]
    inner += [child for values in lists for child in values if type(child) in _CONTAINERS]
    return inner


def encoded_size(value: object) -> int | None:
    """The size of a value as JSON, in bytes. None if it cannot be encoded."""
    if deeper_than(value, DEEPEST):
        return None
    try:
        return len(msgspec.json.encode(value, enc_hook=lambda other: type(other).__name__))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def shape_pieces(value: object) -> list[Piece]:
    """The pieces that describe data, the most important first."""
    known = _known(value) if isinstance(value, dict) else Known([], frozenset(), frozenset())
    shape = _unsaid(value, known) if isinstance(value, dict) else shape_of(value)
    many = _largest_list(value)
    pieces = [*known.pieces, Piece(Slot.SHAPE, plain(shape), 0.6)]
    return [*pieces, *_tallies(many), *_failed_items(many), *_example(many)]


def _unsaid(value: dict[Any, Any], known: Known) -> str:
    rest = {key: item for key, item in value.items() if key not in known.keys}
    if not rest and known.keys:
        return ""
    described = {key for key in known.inside if isinstance(inner := rest.get(key), dict) and not _children([inner])}
    return _object_shape(rest, 3, frozenset(described))


def shape_of(value: object, depth: int = 3) -> str:
    """The shape as text: short values unchanged, others by their kind and length."""
    if isinstance(value, Mapping):
        return _object_shape(value, depth)
    if isinstance(value, (list, tuple)):
        return _list_shape(value, depth)
    if isinstance(value, (set, frozenset)):
        kinds = sorted({_kind(item) for item in value})
        return f"set of {len(value):,} ({', '.join(kinds)})"
    return _scalar(value)


def _object_shape(value: Mapping[Any, Any], depth: int, described: frozenset[str] = frozenset()) -> str:
    """The keys with their shapes. For keys in `described`, only the kind is given."""
    if depth <= 0 or not value:
        return f"object of {counted(len(value), 'key')}"
    shapes = [(key, shape_of(item, 0 if key in described else depth - 1)) for key, item in list(value.items())[:_KEYS]]
    named = [f"{_key(key)}: {shape}" for key, shape in shapes]
    more = [f"{len(value) - _KEYS:,} more"] if len(value) > _KEYS else []
    return "{" + ", ".join([*named, *more]) + "}"


def _list_shape(value: list[Any] | tuple[Any, ...], depth: int) -> str:
    sample = [*value[:_SAMPLE], *value[-1:]]
    kinds = dict.fromkeys(_kind(item) for item in sample)
    if list(kinds) == ["object"]:
        keys = dict.fromkeys(_key(key) for item in sample for key in list(item)[:_KEYS])
        return f"list of {counted(len(value), 'object')} with {', '.join(list(keys)[:_KEYS])}"
    if list(kinds) == ["list"] and depth > 0:
        return f"list of {len(value):,}, the first a {shape_of(value[0], depth - 1)}"
    if len(kinds) == 1:
        return f"list of {counted(len(value), next(iter(kinds)))}"
    return f"list of {len(value):,} ({', '.join(kinds)})" if value else "empty list"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for types, name in _KIND_NAMES:
        if isinstance(value, types):
            return name
    return type(value).__name__


_KIND_NAMES: tuple[tuple[Any, str], ...] = (
    (int, "integer"),
    ((float, Number), "number"),
    (str, "text"),
    (Mapping, "object"),
    ((list, tuple), "list"),
    ((set, frozenset), "set"),
    ((bytes, bytearray, memoryview), "bytes"),
)


def _key(key: object) -> str:
    return key[:_SHORT] if isinstance(key, str) else _scalar(key)


def _scalar(value: object) -> str:
    kind = _kind(value)
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else "null"
    if isinstance(value, Number) or kind not in ("text", "integer", "number", "bytes"):
        return str(value)[:_SHORT] if isinstance(value, str) or kind in _WRITTEN else kind
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= _SHORT else f"text of {len(value):,}"
    if isinstance(value, int):
        # Python refuses to convert huge integers to decimal text.
        return str(value) if value.bit_length() <= 256 else f"integer of {value.bit_length():,} bits"
    return str(value) if isinstance(value, float) else f"{len(value):,} bytes"  # type: ignore[arg-type]


_WRITTEN = frozenset(
    ["datetime", "date", "time", "timedelta", "Decimal", "UUID", "complex", "PosixPath", "WindowsPath"]
)


def _known(value: dict[Any, Any]) -> Known:
    """Status, errors and counts among the keys of an object and of its inner objects."""
    pieces: dict[Slot, list[Piece]] = {Slot.STATUS: [], Slot.ERRORS: [], Slot.COUNTS: []}
    keys: set[str] = set()
    inside: set[str] = set()
    for top, path, key, item in _named(value):
        place = _meaning(key, item, inside_error="error" in path.lower())
        if place is None:
            continue
        text = plain(item[:2000]) if isinstance(item, str) else _scalar(item)
        pieces[place].append(Piece(place, f"{plain(path + _key(key))}: {text}", 0.3))
        (inside if path else keys).add(top)
    said = [*pieces[Slot.STATUS][:3], *pieces[Slot.ERRORS][:4], *pieces[Slot.COUNTS][:4]]
    return Known(said, frozenset(keys), frozenset(inside))


def _named(value: dict[Any, Any], path: str = "", top: str | None = None) -> Iterator[tuple[str, str, str, Any]]:
    """Each item as (top-level key, path, key, value)."""
    for key, item in list(value.items())[:200]:
        if not isinstance(key, str):
            continue
        above = key if top is None else top
        yield above, path, key, item
        inner = item[0] if isinstance(item, list) and item and key.lower() == "errors" else item
        if isinstance(inner, dict) and path.count(".") < 1:
            yield from _named(inner, f"{path}{key[:_SHORT]}.", above)


def _meaning(key: str, item: object, *, inside_error: bool) -> Slot | None:
    name = key.lower().replace("_", "").replace("-", "")
    if isinstance(item, (dict, list, tuple)) or (isinstance(item, str) and len(item) > 2000):
        return None
    if name in _STATUS and item is not None:
        return Slot.STATUS
    if name in _TROUBLE and item and (inside_error or name.startswith(("err", "exc", "message"))):
        return Slot.ERRORS
    is_count = isinstance(item, int) and not isinstance(item, bool) and _COUNTS.search(name)
    return Slot.COUNTS if is_count else None


def _largest_list(value: object) -> list[Any]:
    if isinstance(value, list):
        return value
    inner = value.values() if isinstance(value, dict) else []
    lists = [item for item in inner if isinstance(item, list)]
    lists += [item for one in inner if isinstance(one, dict) for item in one.values() if isinstance(item, list)]
    return max(lists, key=len, default=[])


def _tallies(items: list[Any]) -> list[Piece]:
    """How often each value of a key such as "status" occurs among the objects of a list."""
    objects = [item for item in items if type(item) is dict]
    for key in [key for key in _TALLIED if any(key in item for item in objects[:_SAMPLE])]:
        values_given = [item.get(key) for item in objects]
        if (
            all(type(value) in _COUNTABLE for value in values_given)
            and 1 < len(values := Counter(values_given)) <= _MOST_VALUES
        ):
            ranked = sorted(((_scalar(value), n) for value, n in values.items()), key=lambda one: (-one[1], one[0]))
            text = plain(", ".join(f"{value} {n:,}" for value, n in ranked))
            return [Piece(Slot.COUNTS, text, 0.3, f"by {key}: ")] if ranked[0][1] > 1 else []
    return []


def _failed_items(items: list[Any]) -> list[Piece]:
    """The distinct values of `error` among the items of a list."""
    values_given = [item.get("error") for item in items if isinstance(item, dict) and item.get("error")]
    texts = dict.fromkeys(one if isinstance(one, str) else example_of(one) for one in values_given[:100])
    return [Piece(Slot.ERRORS, plain(text[:2000]), 0.25, "! ") for text in list(texts)[:3]]


def _example(items: list[Any]) -> list[Piece]:
    return [Piece(Slot.EXAMPLE, plain(example_of(items[0])), 0.5, "first: ")] if items else []


def example_of(value: object, depth: int = 2) -> str:
    """The value as text, with long parts shortened."""
    if isinstance(value, Mapping):
        if depth <= 0:
            return "{" + ELLIPSIS + "}" if value else "{}"
        inner = [f"{_key(key)}: {example_of(item, depth - 1)}" for key, item in list(value.items())[:_KEYS]]
        return "{" + ", ".join([*inner, *([ELLIPSIS] if len(value) > _KEYS else [])]) + "}"
    if isinstance(value, (list, tuple)):
        if depth <= 0:
            return f"[{ELLIPSIS}]" if value else "[]"
        inner = [example_of(item, depth - 1) for item in value[:3]]
        return "[" + ", ".join([*inner, *([ELLIPSIS] if len(value) > 3 else [])]) + "]"
    if isinstance(value, str) and not isinstance(value, Number):
        return f'"{value[:_SHORT]}{ELLIPSIS if len(value) > _SHORT else ""}"'
    return shape_of(value)
