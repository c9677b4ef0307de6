"""Content blocks of messages, and plain data as text. The same value gives the same text in every process."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec


def is_block(block: Any) -> bool:
    """Whether a value is a valid content block: text that is not blank, an image or document with a source, or a block
    of another type, which only the provider can check. Tool blocks are not valid."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return False
    kind = block["type"]
    if kind == "text":
        return isinstance(block.get("text"), str) and bool(block["text"].strip())
    if kind in ("image", "document"):
        source = block.get("source")
        return isinstance(source, dict) and isinstance(source.get("data", source.get("url")), str)
    if kind == "image_url":
        return bool(image_url(block))
    return kind not in ("tool_use", "tool_result", "tool_call")


def are_blocks(value: Any) -> bool:
    """Whether a value is a non-empty list of content blocks."""
    return isinstance(value, list) and bool(value) and all(map(is_block, value))


def image_url(block: Mapping[str, Any]) -> str:
    """The URL of an `image_url` block (OpenAI's format). Empty if there is none."""
    given = block.get("image_url")
    found = given.get("url") if isinstance(given, dict) else given
    return found if isinstance(found, str) else ""


def text_of(value: Any) -> str:
    """A value as text: strings unchanged, everything else as compact JSON. Sets are sorted, keys become text."""
    if isinstance(value, str):
        return value
    return as_json(value)


def as_json(value: Any) -> str:
    """Compact JSON of any value that the journal can store."""
    return json.dumps(plain_value(value), ensure_ascii=False, separators=(",", ":"))


def plain_value(value: Any) -> Any:
    """Convert any value that the journal can store to JSON types. Bytes become their length."""
    if value is None or (isinstance(value, (str, bool, int, float)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else text_of(key): plain_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain_value(inner) for inner in value), key=as_json)
    if isinstance(value, (bytes, bytearray)):
        return f"({len(value)} bytes)"
    return _object(value)


def _object(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return plain_value(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain_value(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return {name: plain_value(getattr(value, name)) for name in value.__struct_fields__}
    fields = getattr(value, "model_fields", None) or getattr(type(value), "model_fields", None)
    if isinstance(fields, dict):
        return {name: plain_value(getattr(value, name)) for name in fields}
    return str(value)  # a time, a number, a path, an id


def sendable(value: Any) -> Any:
    """A copy that is valid in a JSON request: lone surrogates are replaced, NaN and infinities become text."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {sendable(name): sendable(inner) for name, inner in value.items()}
    return [sendable(inner) for inner in value] if isinstance(value, list) else value
