"""Escapes untrusted text for a terminal: characters that would move the cursor, hide or reorder text.

Agents journal text from outside. It must not control the terminal of the reader or look like other text.
"""

from __future__ import annotations

import unicodedata

_UNSAFE = frozenset(["Cc", "Cf", "Cs", "Zl", "Zp"])
"""Control, format (bidirectional overrides, zero width, tags), surrogates, line and paragraph separators."""


class _Escapes(dict[int, str]):
    """A translation table that is filled on demand. It uses the escapes of JSON, so that JSON stays valid."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if unicodedata.category(char) in _UNSAFE:
            units = char.encode("utf-16-be", "surrogatepass")
            char = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
        self[code] = char
        return char


_ESCAPES = _Escapes()


def visible(text: str) -> str:
    """The text on one line, every unsafe character written as its escape: ESC is `\\u001b`."""
    return text if text.isprintable() else text.translate(_ESCAPES)
