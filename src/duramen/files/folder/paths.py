"""Which paths memory files have. One function, `place`, decides about each; it touches no disk.

A path is refused unless it is one of the layout's, spelled in the one way there is. Nothing is decoded, folded or
repaired: what another system, a browser or an editor might take for another path is refused as well, on every system.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from ...errors import BoundaryRefused
from .names import fold, folder_name

MAX_NAME = 200
"""Bytes that a name may have: temporary names are longer, and 255 is the most that systems take."""


class Area(enum.StrEnum):
    """What a file is for."""

    ROOT_INDEX = "root index"  # MEMORY.md
    PERSONA = "persona"  # SOUL.md, the persona
    PROGRESS = "progress"  # PROGRESS.md
    AGENTS = "agents"  # AGENTS.md: read, never written
    INDEX = "index"  # workspace/<id>/MEMORY.md
    KNOWLEDGE = "knowledge"  # workspace/<id>/knowledge/<kind>/*.md
    RUNTIME = "runtime"  # workspace/<id>/runtime/*: volatile, never knowledge
    PREFERENCE = "preference"  # preference/*.md
    IDENTITY = "identity"  # identity/*.md
    DAILY = "daily"  # memory/YYYY-MM-DD.md


KNOWLEDGE_FOLDERS = {"facts": "fact", "procedures": "procedure", "blockers": "blocker", "reference": "reference"}
"""The folders of knowledge, and the kind of what lies in each."""
_FILES = {"MEMORY.md": Area.ROOT_INDEX, "SOUL.md": Area.PERSONA, "PROGRESS.md": Area.PROGRESS, "AGENTS.md": Area.AGENTS}
_PERSONAL_FOLDERS = {"preference": Area.PREFERENCE, "identity": Area.IDENTITY}

_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9_-]|\.(?=[a-z0-9_]))*", re.ASCII)
_DEVICE = re.compile(r"(?:con|prn|aux|nul|clock\$|conin\$|conout\$|com[0-9]|lpt[0-9])(?:[ .].*)?", re.ASCII | re.DOTALL)
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})\.md", re.ASCII)
_PERCENT = re.compile(r"%[0-9a-fA-F]{2}|%u[0-9a-fA-F]{4}")
_SHORT_NAME = re.compile(r"~[0-9]")
_FORBIDDEN = set('<>:"|?*')
_SLASH_LIKE = set("\u2044\u2215\u2216\u27cb\u27cd\u29f5\u29f8\u29f9\u1735\u2571\u2572\u3033\u4e3f")
_MEANINGFUL = set("./\\:%~")
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@dataclass(frozen=True, slots=True)
class Place:
    """A path that was let through. `kind` is what lies there, where the folder says it."""

    path: str
    area: Area
    kind: str | None = None

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that lead to it, from the root."""
        return tuple(self.path.split("/")[:-1])

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]

    @property
    def writable(self) -> bool:
        """Whether we may write there at all."""
        return self.area is not Area.AGENTS


def place(path: str, workspace: str) -> Place:
    """What lies at this path in the folder of that workspace. Raises `BoundaryRefused` for whatever is not exactly a
    path of the layout, relative to the root, with / between its names."""
    if not isinstance(path, str):
        raise BoundaryRefused(repr(path), "a path is a text")
    found = _decided(path, workspace)
    if isinstance(found, str):
        raise BoundaryRefused(path, found)
    return found


@lru_cache(1 << 16)
def _decided(path: str, workspace: str) -> Place | str:
    """The place, or why there is none. It depends on nothing else, and a sync asks for each path again and again."""
    return _trouble(path) or _laid_out(path.split("/"), path, folder_name(workspace))


def _trouble(path: str) -> str:
    """What is wrong with the spelling, whatever the layout says."""
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it is absolute"
    if "\\" in path:
        return "it has a backslash"
    if len(path) > 5 * MAX_NAME:
        return "it is too long"
    return next(filter(None, map(name_trouble, path.split("/"))), "")


@lru_cache(4096)
def name_trouble(name: str) -> str:
    """What is wrong with one name of a path; empty for a name that means the same on every system."""
    if _PLAIN.fullmatch(name) and len(name) <= MAX_NAME:
        return "it is the name of a device" if _DEVICE.fullmatch(name) else ""
    if name in ("", ".", ".."):
        return f"it has {name!r} for a name" if name else "it has an empty name"
    if trouble := _character_trouble(name):
        return trouble
    if len(name.encode()) > MAX_NAME:
        return f"a name has more than {MAX_NAME} bytes"
    if name[0] == ".":
        return "a name begins with a dot"
    if name[0] in " -~":
        return f"a name begins with {name[0]!r}"
    if name[-1] in ". ":
        return "a name ends with a dot or a space"
    if _PERCENT.search(name):
        return "it has a percent code"
    if _SHORT_NAME.search(name):
        return "it may be the short form of another name"
    if ".." in name:
        return "it has two dots in a row"
    return "it is the name of a device" if _DEVICE.fullmatch(fold(name)) else ""


def _character_trouble(name: str) -> str:
    for character in name:
        code = f"U+{ord(character):04X}"
        if unicodedata.category(character) in _INVISIBLE:
            return f"it has the character {code}, which cannot be seen"
        if character in _FORBIDDEN:
            return f"it has the character {character!r}"
        if character in _SLASH_LIKE:
            return f"it has the character {code}, which looks like a slash"
        if character > "\x7f" and _MEANINGFUL & set(unicodedata.normalize("NFKC", character)):
            return f"it has the character {code}, which may be taken for another"
        if character != " " and unicodedata.category(character) == "Zs":
            return f"it has the character {code}, which looks like a space"
    if unicodedata.normalize("NFC", name) != name:
        return "its letters and their accents are not put together (NFC)"
    if _MEANINGFUL & (set(unicodedata.normalize("NFKC", name)) - set(name)):
        return "it has characters that may be taken for others"
    return ""


def _laid_out(parts: list[str], path: str, own: str) -> Place | str:
    """The place of a path that is spelled well, or why there is none."""
    match parts:
        case [name]:
            return Place(path, _FILES[name]) if name in _FILES else "there is no such file in the layout"
        case ["workspace", folder, *_] if folder != own:
            return "it is another workspace's"
        case ["workspace", _, "MEMORY.md"]:
            return Place(path, Area.INDEX)
        case ["workspace", _, "knowledge", folder, name] if folder in KNOWLEDGE_FOLDERS:
            return _file_trouble(name) or Place(path, Area.KNOWLEDGE, KNOWLEDGE_FOLDERS[folder])
        case ["workspace", _, "runtime", _]:
            return Place(path, Area.RUNTIME)
        case [folder, name] if folder in _PERSONAL_FOLDERS:
            return _file_trouble(name) or Place(path, _PERSONAL_FOLDERS[folder], folder)
        case ["memory", name]:
            return Place(path, Area.DAILY) if is_day(name) else "a daily log is named YYYY-MM-DD.md"
    return "there is no such folder in the layout"


def _file_trouble(name: str) -> str:
    if not name.endswith(".md"):
        return "a memory's file ends with .md"
    return "an index is not kept here" if fold(name) == "memory.md" else ""


def is_day(name: str) -> bool:
    """Whether this is the name of a daily log."""
    found = _DAY.fullmatch(name)
    try:
        return found is not None and bool(dt.date.fromisoformat(found[1]))
    except ValueError:
        return False
