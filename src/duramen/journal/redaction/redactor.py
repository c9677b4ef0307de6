"""Redaction: replaces credentials before they reach the journal, by the name of a field and by patterns in text.

Only text and bytes are replaced: a number under `tokens` is not a secret. Text that is JSON, such as the arguments of a
tool call, is also parsed if patterns may not see its structure. Every pattern takes linear time, so no text makes the
search slow.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from hashlib import scrypt
from itertools import chain, count
from typing import Any

from ...errors import InvalidInput, shown
from ..events import MAX_NAME, check_text
from .assignments import credential_spans, lower_case, stems_in
from .names import names_a_credential
from .shapes import REDACTED, redact_shapes

_SCHEMA_TYPES = frozenset(["string", "number", "integer", "boolean", "object", "array", "null"])
_LONGEST_JSON = 1_000_000
_SHORTEST = 8
_CACHED = 16384


class Redactor:
    """Decides what is redacted. Fields named in `extra` always are, fields named in `keep` never are. With `values`
    False, text is not searched."""

    def __init__(self, *, extra: Iterable[str] = (), keep: Iterable[str] = (), values: bool = True) -> None:
        for what, names in (("extra", extra), ("keep", keep)):
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise InvalidInput(f"`{what}` cannot be {shown(names)}", hint="give a list of field names")
        self._extra = frozenset(check_text("extra", name).lower() for name in extra)
        self._keep = frozenset(check_text("keep", name).lower() for name in keep)
        self._stems = tuple(sorted(name for name in self._extra if name))
        self._values = values
        self.known: dict[Any, bool] = {}
        """Names for which `hides` was asked, and its answers."""
        self.clean: set[str] = set()
        """Keys of mappings that hold no credential."""

    def hides(self, name: object) -> bool:
        """Whether text and bytes in a field with this name are redacted."""
        if isinstance(name, bytes):
            name = name.decode("latin-1")
        if not isinstance(name, str):
            return False
        known = self.known.get(name)
        if known is None:
            lowered = name.lower()
            known = lowered not in self._keep and (lowered in self._extra or names_a_credential(name))
            if len(self.known) < _CACHED:
                self.known[name] = known
        return known

    def member(self, key: object, item: Any, named: bool) -> Any:
        """The item to store under a key of a mapping. It is redacted if the key names a credential, or if `named` is
        True and the key is "value". Under a key that ends in "headers", (name, value) pairs are redacted too. A JSON
        schema that describes a field is not redacted."""
        if self.hides(key) or (named and key == "value"):
            return item if isinstance(item, dict) and item.get("type") in _SCHEMA_TYPES else _hide(item)
        if type(item) in (list, tuple) and isinstance(key, str) and key.lower().endswith("headers"):
            return type(item)([self.pair(part) for part in item])
        return item

    def pair(self, pair: Any) -> Any:
        """The pair, with its second item redacted if the first one names a credential."""
        if type(pair) in (list, tuple) and len(pair) == 2 and self.hides(pair[0]):
            return type(pair)((pair[0], _hide(pair[1])))
        return pair

    def names_a_value(self, mapping: Mapping[Any, Any]) -> bool:
        """Whether a mapping is {"name": the name of a credential, "value": …}."""
        return "value" in mapping and self.hides(mapping.get("name"))

    def key(self, key: str, *taken: Container[Any]) -> str:
        """A key of a mapping with credentials inside it replaced. A key that changes gets a number if it is `taken`."""
        found = self.text(key)
        if found == key:
            if len(self.clean) < _CACHED:
                self.clean.add(key)
            return key
        numbered = (f"{found} {number}" for number in count(2))
        return next(one for one in chain((found,), numbered) if not any(one in keys for keys in taken))

    def name(self, name: str) -> str:
        """A name to store something under: as given, or with credentials replaced and a digest before it, so that
        different names stay different. The digest is slow to compute, because a password could be guessed with it."""
        found = self.text(name)
        if found == name:
            return name
        digest = scrypt(name.encode("utf-8", "surrogatepass"), salt=b"duramen.name", n=2**11, r=8, p=1, dklen=10)
        stored = f"{digest.hex()} {found}"[:MAX_NAME]
        # In a payload the name is redacted again, and must not change.
        return stored if self.text(stored) == stored else f"{digest.hex()} {REDACTED}"

    def body(self, value: bytes) -> bytes:
        """Bytes with credentials inside them replaced, if they are UTF-8 text. A change would break anything else."""
        if len(value) < _SHORTEST:
            return value
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return value
        found = self.text(text)
        return value if found == text else found.encode()

    def text(self, value: str) -> str:
        """The text with the credentials in it replaced."""
        if not self._values or len(value) < _SHORTEST:
            return value
        lowered = lower_case(value)
        shaped = redact_shapes(value, lowered)
        if shaped != value:
            value, lowered = shaped, lower_case(shaped)
        telling = False
        stems = stems_in(value, lowered, self._stems)
        if stems:
            value, telling = self._without_assigned(value, lowered, stems)
        if value[0] in "{[" and len(value) <= _LONGEST_JSON and (telling or "\\u" in value or "\\/" in value):
            return self._as_json(value)
        return value

    def _without_assigned(self, value: str, lowered: str, stems: Iterable[str]) -> tuple[str, bool]:
        """The text without the values of names of credentials, and whether it contains such a name."""
        telling: list[str] = []

        def hides(name: str) -> bool:
            hidden = self.hides(name)
            if hidden:
                telling.append(name)
            return hidden

        return _without(value, credential_spans(value, lowered, stems, hides)), bool(telling)

    def _as_json(self, value: str) -> str:
        """JSON text with the credentials that only its structure reveals replaced. Other text is returned unchanged."""
        try:
            parsed = json.loads(value)
            cleaned = self._tree(parsed)
        except (ValueError, RecursionError):
            return value
        return value if cleaned == parsed else json.dumps(cleaned, ensure_ascii=False)

    def _tree(self, value: Any) -> Any:
        if isinstance(value, dict):
            named = self.names_a_value(value)
            return {key: self._tree(self.member(key, item, named)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._tree(item) for item in value]
        return self.text(value) if isinstance(value, str) else value


def _hide(value: Any) -> Any:
    """The value with all text and bytes in it replaced. Numbers and None stay."""
    if isinstance(value, (str, bytes, bytearray)):
        return REDACTED if value else value
    if isinstance(value, dict):
        return {key: _hide(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_hide(item) for item in value]) if type(value) in (list, tuple) else REDACTED
    if isinstance(value, (int, float)) or value is None:
        return value
    return REDACTED


def _without(value: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with these parts of it replaced."""
    parts: list[str] = []
    end = 0
    for first, last in spans:
        if first >= end:
            parts += (value[end:first], REDACTED)
        end = max(end, last)
    return "".join((*parts, value[end:])) if parts else value
