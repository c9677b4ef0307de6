"""What the formats have in common: notes, and what a reading gives."""

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
    """What a note is in its folder."""

    NOTE = "note"  # something to remember
    DAILY = "daily"  # an entry of a daily log
    INDEX = "index"  # a list of the other notes, and perhaps more
    HEADING = "heading"  # no text of its own; kept so that the file can be written again


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was read from another's file, or is to be written to one.

    `text` has no blank lines around it. `origin` is the path that it came from, from the folder's root. `metadata` is
    plain data that the format needs to write the same file again, with the fields that it does not know under "fields".
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
    """What a reading gave: notes in the order of their paths, and the files that could not be understood."""

    notes: tuple[Note, ...]
    problems: tuple[FileMalformed, ...] = ()


class Format(Protocol):
    """A way to keep memories in files.

    `read` never raises for what stands in a file: a bad one is a problem, and the rest goes on. `write` of what `read`
    gave is the same files, to the byte, except for those that had problems. Notes from elsewhere are written so that
    `read` gives their text back.
    """

    name: str

    def read(self, files: Mapping[str, str]) -> Imported:
        """The notes in these texts, given under their paths."""
        ...

    def write(self, notes: Iterable[Note]) -> dict[str, str]:
        """The texts of the files, under their paths."""
        ...


def path_for(note: Note, format: str, taken: Mapping[str, object]) -> str:
    """Where a note is written: where it came from, if that was a folder of the same format, else a name of its own."""
    if note.metadata.get("format") == format and is_safe(note.origin) and note.origin not in taken:
        return note.origin
    title = note.title or note.key or note.text[:60]
    number, path = 0, file_name(title, note.key or f"{title}\0{note.text}")
    while path in taken:
        number += 1
        path = file_name(title, f"{number}\0{note.key}\0{note.text}")
    return path


def worth_writing(notes: Iterable[Note], format: str) -> Iterator[Note]:
    """The notes that a folder of this format is to have: its own, and what others say in words of their own."""
    for note in notes:
        own = note.metadata.get("format") == format
        if own or not (note.role is Role.HEADING or (note.role is Role.INDEX and note.metadata.get("only_links"))):
            yield note


def is_safe(path: str) -> bool:
    """Whether a path stays in its folder on every system. Others than that are not written to."""
    return bool(path) and len(path) < 1000 and not any(map(name_trouble, path.split("/")))


def trimmed(text: str) -> tuple[str, str, str]:
    """A text, and the blank lines before and after it."""
    lines = text.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return text, "", ""
    last = max(at for at, line in enumerate(lines) if line.strip())
    before = "\n".join(lines[:first]) + "\n" if first else ""
    after = "\n" + "\n".join(lines[last + 1 :]) if last + 1 < len(lines) else ""
    return before, "\n".join(lines[first : last + 1]), after


def moment(text: str) -> dt.datetime | None:
    """A time in ISO 8601, in UTC where it does not say; None for anything else."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
