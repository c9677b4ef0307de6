"""Which paths memory files may have. One function, `place`, decides, without access to the disk.

A path is refused unless it is exactly a path of the layout. Nothing is decoded, folded or repaired. Paths that another
system, a browser or an editor could read as a different path are also refused, on every system.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from ...errors import BoundaryRefused, shown
from .names import fold, folder_name

MAX_NAME = 200
"""The longest name in bytes. Temporary names are longer, and systems allow 255."""


class Area(enum.StrEnum):
    """The purpose of a file."""

    ROOT_INDEX = "root index"  # MEMORY.md
    PERSONA = "persona"  # SOUL.md
    PROGRESS = "progress"  # PROGRESS.md
    AGENTS = "agents"  # AGENTS.md: read, never written
    INDEX = "index"  # workspace/<id>/MEMORY.md
    KNOWLEDGE = "knowledge"  # workspace/<id>/knowledge/<kind>/*.md
    RUNTIME = "runtime"  # workspace/<id>/runtime/*: temporary state, never knowledge
    PREFERENCE = "preference"  # preference/*.md
    IDENTITY = "identity"  # identity/*.md
    DAILY = "daily"  # memory/YYYY-MM-DD.md


KNOWLEDGE_FOLDERS = {"facts": "fact", "procedures": "procedure", "blockers": "blocker", "reference": "reference"}
"""The knowledge folders, and the kind of the memories in each."""
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
    """An accepted path. `kind` is the kind of memory in its folder, if the folder determines it."""

    path: str
    area: Area
    kind: str | None = None

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the path, starting at the root."""
        return tuple(self.path.split("/")[:-1])

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.rpartition("/")[2]

    @property
    def writable(self) -> bool:
        """Whether duramen may write the file."""
        return self.area is not Area.AGENTS


def place(path: str, workspace: str) -> Place:
    """The place of a path in the layout of a workspace. Raises `BoundaryRefused` for anything else than a path of the
    layout, relative to the root, with / between its names."""
    if not isinstance(path, str):
        raise BoundaryRefused(shown(path), "a path must be text")
    found = _decided(path, workspace)
    if isinstance(found, str):
        raise BoundaryRefused(path, found)
    return found


@lru_cache(1 << 16)
def _decided(path: str, workspace: str) -> Place | str:
    """The place, or why the path is refused. Cached, because a sync asks for each path several times."""
    return _trouble(path) or _laid_out(path.split("/"), path, folder_name(workspace))


def _trouble(path: str) -> str:
    """What is wrong with the spelling of a path. Empty if nothing is."""
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it is absolute"
    if "\\" in path:
        return "it contains a backslash"
    if len(path) > 5 * MAX_NAME:
        return "it is too long"
    return next(filter(None, map(name_trouble, path.split("/"))), "")


@lru_cache(4096)
def name_trouble(name: str) -> str:
    """What is wrong with one name of a path. Empty for a name that means the same on every system."""
    if _PLAIN.fullmatch(name) and len(name) <= MAX_NAME:
        return "it is the name of a device" if _DEVICE.fullmatch(name) else ""
    if name in ("", ".", ".."):
        return f"it contains the name {shown(name)}" if name else "it contains an empty name"
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
        return "it contains a percent code"
    if _SHORT_NAME.search(name):
        return "it may be the short form of another name"
    if ".." in name:
        return "it contains two dots in a row"
    return "it is the name of a device" if _DEVICE.fullmatch(fold(name)) else ""


def _character_trouble(name: str) -> str:
    for character in name:
        code = f"U+{ord(character):04X}"
        if unicodedata.category(character) in _INVISIBLE:
            return f"it contains the character {code}, which is invisible"
        if character in _FORBIDDEN:
            return f"it contains the character {character!r}"
        if character in _SLASH_LIKE:
            return f"it contains the character {code}, which looks like a slash"
        if character > "\x7f" and _MEANINGFUL & set(unicodedata.normalize("NFKC", character)):
            return f"it contains the character {code}, which some systems read as another"
        if character != " " and unicodedata.category(character) == "Zs":
            return f"it contains the character {code}, which looks like a space"
    if unicodedata.normalize("NFC", name) != name:
        return "its letters and accents are not composed (NFC)"
    if _MEANINGFUL & (set(unicodedata.normalize("NFKC", name)) - set(name)):
        return "it contains characters that some systems read as others"
    return ""


def _laid_out(parts: list[str], path: str, own: str) -> Place | str:
    """The place of a correctly spelled path, or why it is refused."""
    match parts:
        case [name]:
            return Place(path, _FILES[name]) if name in _FILES else "there is no such file in the layout"
        case ["workspace", folder, *_] if folder != own:
            return "it belongs to another workspace"
        case ["workspace", _, "MEMORY.md"]:
            return Place(path, Area.INDEX)
        case ["workspace", _, "knowledge", folder, name] if folder in KNOWLEDGE_FOLDERS:
            return _file_trouble(name) or Place(path, Area.KNOWLEDGE, KNOWLEDGE_FOLDERS[folder])
        case ["workspace", _, "runtime", _]:
            return Place(path, Area.RUNTIME)
        case [folder, name] if folder in _PERSONAL_FOLDERS:
            return _file_trouble(name) or Place(path, _PERSONAL_FOLDERS[folder], folder)
        case ["memory", name]:
            return Place(path, Area.DAILY) if is_day(name) else "the name of a daily log must be YYYY-MM-DD.md"
    return "there is no such folder in the layout"


def _file_trouble(name: str) -> str:
    if not name.endswith(".md"):
        return "the name of a memory file must end with .md"
    return "MEMORY.md does not belong in this folder" if fold(name) == "memory.md" else ""


def is_day(name: str) -> bool:
    """Whether this is the name of a daily log."""
    found = _DAY.fullmatch(name)
    try:
        return found is not None and bool(dt.date.fromisoformat(found[1]))
    except ValueError:
        return False
