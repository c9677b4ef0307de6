"""Finds text that looks like instructions to a model, so that callers can flag it or leave it out.

The text is folded first: compatibility forms and look-alike letters become ASCII, and format characters and marks are
dropped. Encoded parts are decoded: HTML entities, percent signs, base64, hexadecimal and invisible tags. This finds
common attacks, not all of them. What keeps remembered text apart from instructions are its delimiters and its role.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import unquote

from .folded_text import folded, has_hidden, hidden_text
from .injection_patterns import RULES, CompiledRules

HIDES_TEXT = "hides text in invisible characters"
_RULES = CompiledRules(RULES)
_LEET = str.maketrans("0134578@$!|", "oieastbasil")
_DIGIT_IN_WORD = re.compile(r"[a-z][013457@$!|]+[a-z]|\b[013457@$!|]+[a-z]{2}")
_SPACED = re.compile(r"(?<!\w)(?:\w[ .\-_*]){3,}\w(?!\w)")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){12,}")
_ENCODED = re.compile(r"&#?\w{2,8};|%[0-9a-fA-F]{2}")
_LABEL = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \d\d:\d\d )?"
    r"(?:user|assistant|called|returned|observed|decided|error|fixed|earlier)\b[^:\n]{0,60}: ",
    re.MULTILINE,
)
"""What duramen writes before the text of an episode or of a line in a summary."""


def suspicions(text: str) -> tuple[str, ...]:
    """The reasons why a text looks like instructions to a model; empty if it does not."""
    found: dict[str, None] = {}
    for form in _forms(text):
        found |= _RULES.reasons(form)
    if has_hidden(text):
        found[HIDES_TEXT] = None
    return tuple(found)


def labelled_suspicions(text: str) -> tuple[str, ...]:
    """`suspicions` of a text whose lines duramen labelled with who said them. The labels themselves are not checked."""
    return suspicions(_LABEL.sub("", text))


def _forms(text: str) -> Iterator[str]:
    """The text as it is compared: folded, and again with what is written in other characters or encoded."""
    plain = folded(text)
    yield plain
    if _DIGIT_IN_WORD.search(plain):
        yield plain.translate(_LEET)
    if _SPACED.search(plain):
        yield _SPACED.sub(lambda run: re.sub(r"[ .\-_*]", "", run[0]), plain)
    if _ENCODED.search(plain):
        yield folded(unescape(unquote(plain)))
    for run in _BASE64.findall(text):
        yield from _decoded(run)
    if hidden := hidden_text(text):
        yield hidden


def _decoded(run: str) -> Iterator[str]:
    """The readable text in a run of base64 or hexadecimal digits."""
    if _HEX.fullmatch(run):
        body = bytes.fromhex(run)
    else:
        try:
            body = base64.b64decode(run.rstrip("=").translate(_URL_SAFE) + "=" * (-len(run.rstrip("=")) % 4))
        except (binascii.Error, ValueError):
            return
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return
    if text.isprintable() or "\n" in text:
        yield folded(text)


_URL_SAFE = str.maketrans("-_", "+/")
