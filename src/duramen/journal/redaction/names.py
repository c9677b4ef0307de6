"""Which names are those of credentials.

A name is split into words (`refreshToken`, `X-Api-Key`, `DB_PASSWORD`). So `access_token` is redacted, and `max_tokens`
and `next_page_token` are not.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

_SECRET_WORDS = frozenset(
    [
        *("password", "passwd", "passphrase", "pwd", "secret", "credential", "authorization", "cookie", "bearer"),
        *("apikey", "accesskey", "privatekey", "secretkey", "authtoken", "accesstoken", "refreshtoken", "idtoken"),
        *("jwt", "otp", "csrf", "xsrf", "pin", "cvv", "ssn"),
    ]
)
_SECRET_ENDINGS = ("password", "passwd", "passphrase")
_BEFORE_KEY = frozenset(
    ["api", "access", "private", "signing", "encryption", "account", "master", "auth", "ssh", "secret", "app"]
)
_BEFORE_PASS = frozenset(["db", "user", "admin", "root", "mysql", "postgres", "redis", "smtp", "mail", "ftp", "my"])
_HARMLESS_BEFORE_TOKEN = frozenset(
    ["page", "next", "continuation", "sync", "resume", "cursor", "previous", "prev", "stop", "eos", "bos", "pad"]
)
_HARMLESS_AFTER = frozenset(
    [
        *("count", "counts", "limit", "length", "policy", "hint", "name", "names", "id", "ids", "type", "url", "uri"),
        *("path", "file", "field", "fields", "expires", "expiry", "expiration", "required", "enabled", "version"),
        *("usage", "budget", "rotation", "algorithm", "min", "max", "label", "placeholder", "regex", "pattern"),
        *("size", "format", "status", "strength", "changed", "helper", "provider", "manager", "ref", "arn", "ttl"),
        *("bucket", "kind", "index", "error", "prompt", "env", "var"),
    ]
)
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case."""
    return [word.lower() for word in _WORDS.findall(name)]


@lru_cache(maxsize=16384)
def names_a_credential(name: str) -> bool:
    """Whether a field with this name contains a credential."""
    words = words_of(name)
    if not words or words[-1] in _HARMLESS_AFTER:
        return False
    if any(word in _SECRET_WORDS or word.removesuffix("s") in _SECRET_WORDS for word in words):
        return True
    if any(word.endswith(_SECRET_ENDINGS) for word in words):
        return True
    if any(first in _BEFORE_KEY and second in ("key", "keys") for first, second in pairwise(words)):
        return True
    before = words[-2] if len(words) > 1 else ""
    if words[-1] == "pass":
        return before in _BEFORE_PASS
    return words[-1] == "token" and before not in _HARMLESS_BEFORE_TOKEN
