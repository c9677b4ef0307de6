"""Names of files and folders. A name depends only on its title and id, and is the same on every system."""

from __future__ import annotations

import hashlib
import re
import unicodedata

MAX_SLUG = 60
"""Characters of a title that become part of a file name."""
_SAFE_FOLDER = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?", re.ASCII)
_HASHED = re.compile(r".*-x[0-9a-f]{16}", re.ASCII)
_DEVICE = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]", re.ASCII)
_OTHERS = re.compile(r"[^a-z0-9]+", re.ASCII)
_SPELLED = str.maketrans(
    {
        "ä": "ae",
        "ö": "oe",
        "ü": "ue",
        "ß": "ss",
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "ł": "l",
    }
)


def fold(name: str) -> str:
    """The name without case and Unicode form. Names with the same result collide on some systems."""
    if name.isascii():
        return name.lower()
    once = unicodedata.normalize("NFKC", name).casefold()
    return unicodedata.normalize("NFKC", once)


def folder_name(workspace: str) -> str:
    """The folder of a workspace: its id if that is a safe name, otherwise a readable part of it and a hash. Different
    workspaces have different folders, even on systems that ignore case."""
    if _SAFE_FOLDER.fullmatch(workspace) and not (_HASHED.fullmatch(workspace) or _DEVICE.fullmatch(workspace)):
        return workspace
    return f"{slug(workspace)[:40].strip('-')}-x{_digest(workspace, 16)}"


def file_name(title: str, id: str) -> str:
    """The file name of a memory: words of its title, and a part of the hash of its id that makes it unique.

    It depends on nothing else, so it is the same after a rebuild. It is lower-case ASCII.
    """
    return f"{slug(title)}-{_digest(id, 10)}.md"


def slug(title: str) -> str:
    """The words of a title in lower-case ASCII with hyphens. "note" if there are none."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", title).casefold().translate(_SPELLED))
    words = _OTHERS.sub("-", plain.encode("ascii", "ignore").decode()).strip("-")
    if len(words) > MAX_SLUG:
        words = words[: MAX_SLUG + 1].rpartition("-")[0] or words[:MAX_SLUG]
    return words.strip("-") or "note"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
