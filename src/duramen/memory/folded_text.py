"""Folds text for comparison, so that different spellings of the same letters compare equal.

Folded text is only compared. It is never stored and never shown.
"""

# ruff: noqa: RUF001 - letters that look alike are what this file is about

from __future__ import annotations

import re
import unicodedata

_LETTERS = (
    ("авекмнорстухіјѕԁԛԝһӏԍ", "abekmhopctyxijsdqwhlg"),  # Cyrillic
    ("αβεζηικμνορτυχωϲ", "abezhikmvoptuxwc"),  # Greek
    ("ıɩɪɑɡᴀᴄᴅᴇɢʜɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢʙᴊᴋʟᴍøłđ", "iiiagacdeghnoprstuvwyzbjklmold"),  # Latin letters that do not decompose
    ("’‘ʼ′`´“”„″‐‑‒–—−⁃", "''''''\"\"\"\"-------"),
)
"""Lower-case characters that look like ASCII characters and have no compatibility decomposition."""
OPENING = "<＜﹤‹〈〈⟨❬❮❰⦑⧼˂ᐸ≪≺⋖"
CLOSING = ">＞﹥›〉〉⟩❭❯❱⦒⧽˃ᐳ≫≻⋗"
QUOTES = '"＂“”„‟″〃ˮ'
_DROPPED = ("Mn", "Me", "Cf", "Co", "Cs", "Cn")
"""Categories without a letter of their own: combining marks, format characters (zero-width, directions, tags)."""
_FILLERS = frozenset("\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800")
"""Letters and signs that are shown as nothing."""
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
"""The flag of a region, such as Scotland: the only use of tag characters in Unicode."""
_HIDDEN = re.compile(
    f"({_FLAG.pattern})|[\U000e0000-\U000e007f]+|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{{2,}}"
    "|[\u200b-\u200f\u2060-\u2064\ufeff]{4,}"
)
"""Tags outside flags, and variation selectors or zero-width characters in a row. No script needs them."""


class _Folds(dict[int, str]):
    """The folded form of each character, computed when it is first needed."""

    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", chr(code)).lower())
        kept = [part for part in parts if part not in _FILLERS and unicodedata.category(part) not in _DROPPED]
        found = self[code] = "".join(_LIKE.get(part, part) for part in kept)
        return found


_LIKE = {like: plain for likes, plains in _LETTERS for like, plain in zip(likes, plains, strict=True)}
_LIKE |= dict.fromkeys(OPENING, "<") | dict.fromkeys(CLOSING, ">") | dict.fromkeys(QUOTES, '"')
_FOLDS = _Folds()


def folded(text: str) -> str:
    """The text in compatibility form and lower case, without format characters and marks, with look-alike letters as
    ASCII."""
    return text.lower() if text.isascii() else text.translate(_FOLDS)


def folded_with_places(text: str) -> tuple[str, list[int]]:
    """The folded text, and for each of its characters the index in `text` that it comes from."""
    parts = [folded(character) for character in text]
    return "".join(parts), [place for place, part in enumerate(parts) for _ in part]


def hidden_text(text: str) -> str:
    """The ASCII text that is spelled in invisible tag characters. Empty if there is none."""
    found = (part[0] for part in _HIDDEN.finditer(text) if part[1] is None) if not text.isascii() else iter(())
    return "".join(chr(ord(tag) - 0xE0000) for part in found for tag in part if 0xE0020 <= ord(tag) <= 0xE007E)


def has_hidden(text: str) -> bool:
    """Whether the text contains characters that `visible` removes."""
    return not text.isascii() and any(found[1] is None for found in _HIDDEN.finditer(text))


def visible(text: str) -> str:
    """The text without invisible characters in which data can be hidden. Flags and joined emoji do not change."""
    return text if text.isascii() else _HIDDEN.sub(lambda found: found[1] or "", text)
