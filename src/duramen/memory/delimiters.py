"""Delimits text from a store in a prompt, so that the text cannot end its element or start another one.

Three rules keep the text inside:

- The tags of a block carry a digest of everything in the block. A text cannot contain its own digest, because writing
  the digest into the text changes the digest. An attacker who knows every other character of the block needs about
  2**60 tries to find a text that fits. A digest that leaked is of no use once the block changes.
- A character that looks like an opening bracket, in front of letters that look like the name of one of our elements, is
  escaped. The comparison folds both first.
- Invisible characters that can carry hidden text are removed.

The digest needs no stored secret. The same content gives the same bytes after a restart, in another process, in a fork,
on another store and after an import.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote, unquote

from .folded_text import CLOSING, OPENING, QUOTES, folded_with_places, visible

_LENGTH = 12
_SHORT = 4
_ELEMENTS = ("memory", "recalled", "session", "earlier", "record")
_DELIMITER = re.compile(
    r"<(?=[^\w<>]*(?:" + "|".join(r"[^a-z<>]*".join(name) for name in _ELEMENTS) + "))", re.IGNORECASE
)
_FRAGILE = re.compile(rf"""[%&<>"'{OPENING}{CLOSING}{QUOTES}]|[^\S ]| (?= )|^ | $|[^\x20-\x7e](?<![\w\ud800-\udfff])""")
_BRACKETS = str.maketrans(
    dict.fromkeys(OPENING, "<") | dict.fromkeys(CLOSING, ">") | dict.fromkeys(QUOTES, '"')  # escaped afterwards
)


def nonce_of(texts: Iterable[str]) -> str:
    """The nonce for the tags around these texts: a digest of them in 12 lower-case letters and digits."""
    digest = hashlib.sha256(b"duramen delimiter")
    for text in texts:
        body = text.encode("utf-8", "surrogatepass")
        digest.update(len(body).to_bytes(8, "big") + body)
    return base64.b32encode(digest.digest()).decode().lower()[:_LENGTH]


def short(nonce: str) -> str:
    """The beginning of a nonce, for elements inside a block. The block's own tags carry the whole nonce."""
    return nonce[:_SHORT]


def block(name: str, nonce: str, body: str) -> str:
    """An element around a text that was escaped by `enclosed`."""
    return f"<{name}-{nonce}>\n{body}\n</{name}-{nonce}>"


def attribute(value: str) -> str:
    """The value, on one line and escaped for use between the quotes of an attribute."""
    return escape(" ".join(visible(value).translate(_BRACKETS).split()), quote=True)


def reference(source: str) -> str:
    """The source of a memory as a model sees it. Characters that a model may not repeat exactly are percent-encoded."""
    return _FRAGILE.sub(lambda found: quote(found[0], safe=""), source)


def referred(reference: str) -> str:
    """The source that was encoded by `reference`."""
    return unquote(reference)


def enclosed(text: str) -> str:
    """The text, escaped so that it can neither end the element around it nor start another one."""
    text = visible(text)
    if text.isascii():
        return _DELIMITER.sub("&lt;", text)
    if not any(bracket in text for bracket in OPENING):
        return text
    compared, places = folded_with_places(text)
    found = {places[one.start()] for one in _DELIMITER.finditer(compared)}
    return "".join("&lt;" if place in found else character for place, character in enumerate(text)) if found else text


def marked(line: str, why: Sequence[str]) -> str:
    """A line for a prompt, escaped. If it looks like instructions, it begins with the reasons."""
    return f"[suspicious: {'; '.join(why)}] {enclosed(line)}" if why else enclosed(line)
