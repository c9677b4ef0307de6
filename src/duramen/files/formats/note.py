"""The types that all formats share: `Note`, `Imported` and the `Format` protocol."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import FileMalformed
from ..folder.names import file_name
from ..folder.paths import name_trouble


class Role(enum.StrEnum):
    """The role of a note in its folder."""

    NOTE = "note"  # something to remember
    DAILY = "daily"  # an entry of a daily log
    INDEX = "index"  # a list of the other notes, possibly with other text
    HEADING = "heading"  # no text, but needed to write the same file again


@dataclass(frozen=True, slots=True)
class Note:
    """A note in a file of another program.

    `text` has no blank lines at its start and end. `origin` is the path of its file, relative to the root of the
    folder. `metadata` is plain data that the format needs to write the same file again. Unknown fields are in it under
    "fields".
    """

    text: str
    title: str | None = None
    summary: str | None = None
    kind: str | None = None
    tags: tuple[str, ...] = ()
    key: str | None = None
    created: dt.datetime | None = None
    updated: dt.datetime | None = None
    role: Role = Role.NOTE
    origin: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of a read: notes in the order of their paths, and the errors of files that could not be parsed."""

    notes: tuple[Note, ...]
    problems: tuple[FileMalformed, ...] = ()


class Format(Protocol):
    """A file format for memories.

    `read` never raises for the content of a file: a malformed file becomes a problem, and the others are read. `write`
    of the notes from `read` returns the same files, byte for byte, except files with problems. Notes from other
    formats are written so that `read` returns their text.
    """

    name: str

    def read(self, files: Mapping[str, str]) -> Imported:
        """The notes in the texts, which are given by path."""
        ...

    def write(self, notes: Iterable[Note]) -> dict[str, str]:
        """The texts of the files by path."""
        ...


def path_for(note: Note, format: str, taken: Mapping[str, object]) -> str:
    """The path to which a note is written: its origin, if it comes from the same format, otherwise a new name."""
    if note.metadata.get("format") == format and is_safe(note.origin) and note.origin not in taken:
        return note.origin
    title = note.title or note.key or note.text[:60]
    number, path = 0, file_name(title, note.key or f"{title}\0{note.text}")
    while path in taken:
        number += 1
        path = file_name(title, f"{number}\0{note.key}\0{note.text}")
    return path


def worth_writing(notes: Iterable[Note], format: str) -> Iterator[Note]:
    """The notes to write in this format: those of the same format, and those of others that have text of their own."""
    for note in notes:
        own = note.metadata.get("format") == format
        if own or not (note.role is Role.HEADING or (note.role is Role.INDEX and note.metadata.get("only_links"))):
            yield note


def is_safe(path: str) -> bool:
    """Whether a path is inside its folder on every system. Only such paths are written."""
    return bool(path) and len(path) < 1000 and not any(map(name_trouble, path.split("/")))


def trimmed(text: str) -> tuple[str, str, str]:
    """Split a text into the blank lines before it, the text, and the blank lines after it."""
    lines = text.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return text, "", ""
    last = max(at for at, line in enumerate(lines) if line.strip())
    before = "\n".join(lines[:first]) + "\n" if first else ""
    after = "\n" + "\n".join(lines[last + 1 :]) if last + 1 < len(lines) else ""
    return before, "\n".join(lines[first : last + 1]), after


def moment(text: str) -> dt.datetime | None:
    """A time in ISO 8601, in UTC if it has no time zone. None for anything else."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
