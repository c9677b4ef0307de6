"""Redaction: replaces credentials before they reach the journal, by the name of a field and by patterns in text.

A name is split into words (`refreshToken`, `X-Api-Key`, `DB_PASSWORD`). So `access_token` is redacted, and `max_tokens`
and `next_page_token` are not. Only text and bytes are replaced: a number under `tokens` is not a secret.

Text that is JSON, such as the arguments of a tool call, is also parsed, because the patterns do not see its structure.
Every pattern takes linear time, so no text makes the search slow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ..errors import InvalidInput, shown
from .events import check_text

REDACTED = "[redacted]"

_SECRET_WORDS = frozenset(
    [
        *("password", "passwd", "passphrase", "pwd", "secret", "credential", "authorization", "cookie", "bearer"),
        *("apikey", "accesskey", "privatekey", "secretkey", "authtoken", "accesstoken", "refreshtoken", "idtoken"),
        *("jwt", "otp", "csrf", "xsrf", "pin", "cvv", "ssn"),
    ]
)
_BEFORE_KEY = frozenset(
    ["api", "access", "private", "signing", "encryption", "account", "master", "auth", "ssh", "secret"]
)
_HARMLESS_BEFORE_TOKEN = frozenset(
    ["page", "next", "continuation", "sync", "resume", "cursor", "previous", "prev", "stop", "eos", "bos", "pad"]
)
_HARMLESS_AFTER = frozenset(
    [
        *("count", "counts", "limit", "length", "policy", "hint", "name", "names", "id", "ids", "type", "url", "uri"),
        *("path", "file", "field", "fields", "expires", "expiry", "expiration", "required", "enabled", "version"),
        *("usage", "budget", "rotation", "algorithm"),
    ]
)
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_SCHEMA_TYPES = frozenset(["string", "number", "integer", "boolean", "object", "array", "null"])
_LONGEST_JSON = 1_000_000

_SIGNS = {
    ":": ("://", '":', "':", '" ', "' "),
    "_": ("sk_", "pk_", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "-": ("sk-", "pk-", "rk-", "glpat-", "xox", "-----BEGIN"),
    "A": ("AKIA", "ASIA", "AIza", "BEARER", "BASIC"),
    "J": ("eyJ",),
    "e": ("earer",),
    "s": ("asic",),
}
"""Text without any of these substrings cannot match a pattern. The search for the single character comes first, because
it is faster."""

_SHAPES = (
    (("-----BEGIN",), r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    (("sk-", "pk-", "rk-", "sk_", "pk_", "rk_"), r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{20,}"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9_-]{16,}"),
    (("github_pat_",), r"\bgithub_pat_\w{20,}"),
    (("glpat-", "xox"), r"\b(?:glpat|xox[abprs])-[A-Za-z0-9_-]{16,}"),
    (("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    (("AIza",), r"\bAIza[0-9A-Za-z_-]{35}"),
    (("eyJ",), r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"),
    (
        ("earer", "asic", "BEARER", "BASIC"),
        r"(?i:\b(?:bearer|basic))\s+(?=[A-Za-z0-9+/=._~-]*[A-Z0-9=])[A-Za-z0-9+/=._~-]{16,}",
    ),
    (("://",), r"(?<=://)[^\s/:@]*:[^\s/]+(?=@)"),
)
_PATTERNS = tuple((signs, re.compile(pattern, re.DOTALL)) for signs, pattern in _SHAPES)

_ASSIGNED = re.compile(r"""((["'])(?P<name>[A-Za-z][\w.-]{1,40})\2\s*:\s*(["']))((?:\\.|(?!\4)[^\\])*)""", re.DOTALL)
_ASSIGNED_ESCAPED = re.compile(
    r"""((?<!\\)(\\{1,15})(["'])(?P<name>[A-Za-z][\w.-]{1,40})\2\3\s*:\s*\2(["']))(.*?)(?=\2\5|\Z)""", re.DOTALL
)


@lru_cache(maxsize=16384)
def names_a_credential(name: str) -> bool:
    """Whether a field with this name contains a credential."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _HARMLESS_AFTER:
        return False
    if any(word in _SECRET_WORDS or word.removesuffix("s") in _SECRET_WORDS for word in words):
        return True
    if any(first in _BEFORE_KEY and second in ("key", "keys") for first, second in pairwise(words)):
        return True
    return words[-1] == "token" and not (len(words) > 1 and words[-2] in _HARMLESS_BEFORE_TOKEN)


class Redactor:
    """Decides what is redacted. Fields named in `extra` always are, fields named in `keep` never are. With `values`
    False, text is not searched."""

    def __init__(self, *, extra: Iterable[str] = (), keep: Iterable[str] = (), values: bool = True) -> None:
        for what, names in (("extra", extra), ("keep", keep)):
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise InvalidInput(f"`{what}` cannot be {shown(names)}", hint="give a list of field names")
        self._extra = frozenset(check_text("extra", name).lower() for name in extra)
        self._keep = frozenset(check_text("keep", name).lower() for name in keep)
        self._values = values
        self.known: dict[Any, bool] = {}

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
            if len(self.known) < 16384:
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

    def text(self, value: str) -> str:
        """The text with the credentials in it replaced."""
        if not self._values or len(value) < 8:
            return value
        for character, signs in _SIGNS.items():
            if character in value:
                for sign in signs:
                    if sign in value:
                        return self._searched(value)
        return value

    def _searched(self, value: str) -> str:
        for signs, pattern in _PATTERNS:
            if any(sign in value for sign in signs):
                value = pattern.sub(REDACTED, value)
        if ":" not in value or ('"' not in value and "'" not in value):
            return value
        value = _ASSIGNED.sub(self._assignment, value)
        if "\\" in value:
            value = _ASSIGNED_ESCAPED.sub(self._assignment, value)
        return self._as_json(value) if value[:1] in ("{", "[") and len(value) <= _LONGEST_JSON else value

    def _assignment(self, found: re.Match[str]) -> str:
        return found[1] + REDACTED if self.hides(found["name"]) else found[0]

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
