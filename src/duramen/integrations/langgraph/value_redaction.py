"""Replaces credentials in values that LangGraph's serializer packed.

The packed form is searched instead of the objects: it is a tree of plain data, whatever classes a graph uses. Objects
are extension types, whose bodies are packed in the same way.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import msgspec

from ...errors import InvalidInput
from ...journal.redaction import Redactor

_Ext = msgspec.msgpack.Ext
_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.encode
_SEARCHED = frozenset([str, bytes, list, dict, _Ext])
_OBJECTS = range(6)
"""The extension types of LangGraph's serializer that hold packed values: calls of constructors, and pydantic models."""


class ValueRedactor:
    """Redacts packed values. A value without a credential keeps its bytes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def packed(self, kind: str, body: bytes) -> bytes:
        """The bytes of a value of this kind. Those of a kind that is not known, such as an encrypted one, stay. Raises
        `InvalidInput` if the value is nested too deep."""
        if kind in ("bytes", "bytearray", "json"):
            return self._redactor.body(bytes(body))
        if kind != "msgpack":
            return body
        try:
            value = _decode(body)
            redacted = self._tree(value)
        except RecursionError:
            raise InvalidInput("a value of the graph is nested too deep", hint="store flatter data") from None
        return body if redacted is value else _encode(redacted)

    def member(self, name: str, value: Any) -> Any:
        """A value under a name: hidden if the name is that of a credential."""
        return self._redactor.member(name, value, False)

    def _tree(self, value: Any) -> Any:
        """The same object if there is nothing to replace."""
        kind = type(value)
        if kind is str:
            found = self._redactor.text(value)
            return value if found == value else found
        if kind is bytes:
            body = self._redactor.body(value)
            return value if body == value else body
        if kind is list or kind is tuple:
            items = [self._tree(item) for item in value]
            return value if all(map(is_, items, value)) else kind(items)
        if kind is dict:
            return self._mapping(value)
        if kind is _Ext and value.code in _OBJECTS:
            inner = _decode(value.data)
            redacted = self._tree(inner)
            return value if redacted is inner else _Ext(value.code, _encode(redacted))
        return value

    def _mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        redactor = self._redactor
        named = redactor.names_a_value(value)
        found: dict[Any, Any] = {}
        for key, item in value.items():
            if type(item) in _SEARCHED:
                item = self._tree(redactor.member(key, item, named))
            if type(key) is not str:
                key = self._tree(key)
            elif key not in redactor.clean:
                key = redactor.key(key, found, value)
            found[key] = item
        unchanged = all(map(is_, found, value)) and all(map(is_, found.values(), value.values()))
        return value if unchanged and len(found) == len(value) else found
