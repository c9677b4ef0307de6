"""Credentials never reach the journal: values under telling names, and telling values, are replaced.

A name is split into words (`refreshToken`, `X-Api-Key`, `DB_PASSWORD`), so that `max_tokens` and
`next_page_token` are left alone while `access_token` is not. Only text and bytes are replaced: a count
under `tokens` is no secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

REDACTED = "[redacted]"

_SECRET_WORDS = frozenset(
    [
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "secrets",
        "credential",
        "credentials",
        "authorization",
        "cookie",
        "cookies",
        "apikey",
        "accesskey",
        "privatekey",
        "secretkey",
        "authtoken",
        "accesstoken",
        "refreshtoken",
        "idtoken",
        "bearer",
        "jwt",
        "otp",
        "csrf",
        "xsrf",
        "pin",
        "cvv",
        "ssn",
    ]
)
_SECRET_PAIRS = frozenset(
    (first, "key")
    for first in ("api", "access", "private", "signing", "encryption", "account", "master", "auth", "ssh", "secret")
)
_HARMLESS_BEFORE_TOKEN = frozenset(
    ["page", "next", "continuation", "sync", "resume", "cursor", "previous", "prev", "stop", "eos", "bos", "pad"]
)
_HARMLESS_AFTER = frozenset(
    [
        "count",
        "counts",
        "limit",
        "length",
        "policy",
        "hint",
        "name",
        "names",
        "id",
        "ids",
        "type",
        "url",
        "uri",
        "path",
        "file",
        "field",
        "fields",
        "expires",
        "expiry",
        "expiration",
        "required",
        "enabled",
        "version",
        "usage",
        "budget",
        "rotation",
        "algorithm",
    ]
)
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_VALUES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:sk|pk|rk)[-_](?:[A-Za-z]+[-_])*[A-Za-z0-9_-]{20,}"
    r"|\b(?:ghp|gho|ghu|ghs|ghr|glpat|xox[abprs])[-_][A-Za-z0-9_-]{16,}|\bgithub_pat_\w{20,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"
    r"|(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9+/=._~-]{16,}",
    re.DOTALL,
)
_ASSIGNMENTS = re.compile(
    r"""((?P<quote>\\?["'])(?P<name>[A-Za-z][\w.-]{1,40})(?P=quote)\s*:\s*(?P<open>\\?["']))"""
    r"""((?:(?!(?P=open)).)+)""",
    re.DOTALL,
)
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]+:)[^\s/@]+(?=@)", re.IGNORECASE)
_SIGNS = {
    ":": ("://", '":', "':", '" :', "' :"),
    "_": ("sk_", "pk_", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "-": ("sk-", "pk-", "rk-", "glpat-", "xox", "-----BEGIN"),
    "A": ("AKIA", "ASIA", "AIza", "BEARER", "BASIC"),
    "J": ("eyJ",),
    "e": ("earer",),
    "s": ("asic",),
}
"""Text without any of these holds nothing that the patterns would find. One character, which is quick to look for, is
asked for before the signs that need it."""


@lru_cache(maxsize=16384)
def names_a_credential(name: str) -> bool:
    """Whether a value under this name is taken for a credential."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _HARMLESS_AFTER:
        return False
    if any(word in _SECRET_WORDS for word in words):
        return True
    if any(pair in _SECRET_PAIRS for pair in pairwise(words)):
        return True
    return words[-1] == "token" and not (len(words) > 1 and words[-2] in _HARMLESS_BEFORE_TOKEN)


class Redactor:
    """Decides what is replaced. `extra` names are credentials too, `keep` names never are."""

    def __init__(self, *, extra: Iterable[str] = (), keep: Iterable[str] = (), values: bool = True) -> None:
        self._extra = frozenset(name.lower() for name in extra)
        self._keep = frozenset(name.lower() for name in keep)
        self._values = values
        self.known: dict[str, bool] = {}

    def hides(self, name: str) -> bool:
        """Whether text and bytes under this name are replaced."""
        known = self.known.get(name)
        if known is None:
            lowered = name.lower()
            known = lowered not in self._keep and (lowered in self._extra or names_a_credential(name))
            if len(self.known) < 16384:
                self.known[name] = known
        return known

    def text(self, value: str) -> str:
        """The text with credentials inside it replaced."""
        if not self._values or len(value) < 8:
            return value
        for character, signs in _SIGNS.items():
            if character in value:
                for sign in signs:
                    if sign in value:
                        return self._searched(value)
        return value

    def _searched(self, value: str) -> str:
        value = _VALUES.sub(REDACTED, value)
        value = _URL_PASSWORD.sub(lambda found: found[1] + REDACTED, value)
        return _ASSIGNMENTS.sub(self._assignment, value)

    def _assignment(self, found: re.Match[str]) -> str:
        return found[1] + REDACTED if self.hides(found["name"]) else found[0]
