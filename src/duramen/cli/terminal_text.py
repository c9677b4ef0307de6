"""Untrusted text on a terminal: what would move the cursor, hide or reorder text is shown as an escape.

Agents journal what the world sent them. Nothing of it may command the reader's terminal, or look like something else.
"""

from __future__ import annotations

import unicodedata

_UNSAFE = frozenset(["Cc", "Cf", "Cs", "Zl", "Zp"])
"""Control, format (bidirectional overrides, zero width, tags), surrogates, line and paragraph separators."""


class _Escapes(dict[int, str]):
    """A translation table that fills itself. The escapes are JSON's, so that JSON stays JSON."""

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
