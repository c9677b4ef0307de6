r"""A memory file: one memory as one markdown file.

    ---
    id: 01J9ZK
    kind: procedure
    tags: [ferry, travel]
    policy: check before use
    observed: 2026-03-02T08:15:00Z
    ---
    # Book the ferry

    The first paragraph is the summary, unless the front matter contains one.

    ## Steps

    1. Open the site
    2. Choose 8:00

    ## Evidence

    - trip-456#12: booked

`parse` returns exactly what was rendered. `render` puts a backslash before a line only where `parse` would misread it:
a blank line at the start or end of the content, and a line that looks like one of the two headings, like a title where
there is none, or like a git conflict marker. Every part is optional: plain text is a valid memory file.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...errors import FileMalformed, InvalidInput, shown
from . import list_items as items
from .frontmatter import Node, Scalar, Verbatim, joined, split

_HEADING = re.compile(r"## +(steps|evidence)[ \t:]*\r?", re.IGNORECASE | re.ASCII)
_OTHER_HEADING = re.compile(r"#{1,2} +\S")
_CONFLICT = re.compile(r"(<{7}|>{7})( |$)")
_TITLE = re.compile(r"# +(\S(?:.*\S)?)[ \t\r]*")
_TEXTS = ("id", "kind", "title", "summary", "policy", "source", "key", "subject", "scope")
_TIMES = ("observed", "verified")
_ORDER = ("id", "kind", "title", "summary", "tags", "policy", *_TIMES, "source", "key", "subject", "scope")


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """One memory as a file contains it. Unknown values are None.

    If `summary` is None, the first paragraph of the content is the summary. `extra` contains the front-matter fields
    that duramen does not define; they are preserved.
    """

    content: str
    title: str | None = None
    summary: str | None = None
    steps: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    id: str | None = None
    kind: str | None = None
    tags: tuple[str, ...] = ()
    policy: str | None = None
    observed: dt.datetime | None = None
    verified: dt.datetime | None = None
    source: str | None = None
    key: str | None = None
    subject: str | None = None
    scope: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if taken := sorted(KNOWN & set(self.extra)):
            raise InvalidInput(f"`extra` contains the known field {shown(taken[0])}", hint="pass it by its name")
        for name in _TIMES:
            time = getattr(self, name)
            if time is not None and time.tzinfo is None:
                raise InvalidInput(f"{name} has no time zone", hint="use datetimes in UTC")
            if time is not None:
                object.__setattr__(self, name, _in_utc(time))

    @property
    def gist(self) -> str:
        """The summary, or the first paragraph of the content."""
        return first_paragraph(self.content) if self.summary is None else self.summary


KNOWN = frozenset(each.name for each in fields(MemoryFile)) - {"extra", "content", "steps", "evidence"}
"""The fields of the front matter that duramen defines."""


def first_paragraph(text: str) -> str:
    """The lines up to the first blank line, stripped."""
    lines = text.strip().split("\n")
    end = next((number for number, line in enumerate(lines) if not line.strip()), len(lines))
    return "\n".join(lines[:end]).strip()


# -- writing


def render(file: MemoryFile) -> str:
    """The text of the file. `parse` returns the same memory file."""
    found = _TITLE.fullmatch(f"# {file.title}") if file.title else None
    headed = found is not None and found[1] == file.title
    parts = [f"# {file.title}"] if headed else []
    if file.content:
        parts.append(_escaped(file.content, untitled=file.title is None))
    if file.steps:
        parts += ["## Steps", items.listed(file.steps, numbered=True)]
    if file.evidence:
        parts += ["## Evidence", items.listed(file.evidence, numbered=False)]
    body = "\n\n".join(parts) + "\n" if parts else ""
    return joined(_front(file, headed), body, fenced="\r" in body or body.startswith(("---", "\ufeff")))


def _front(file: MemoryFile, headed: bool) -> dict[str, Any]:
    front: dict[str, Any] = {}
    for name in _ORDER:
        value = getattr(file, name)
        if value is None or value == () or (name == "title" and headed):
            continue
        front[name] = Verbatim(_time(value)) if isinstance(value, dt.datetime) else value
    return front | dict(file.extra)


def _time(value: dt.datetime) -> str:
    return value.replace(tzinfo=None).isoformat() + "Z"


def _in_utc(value: dt.datetime) -> dt.datetime:
    try:
        return value.astimezone(dt.UTC)
    except OverflowError as error:
        raise InvalidInput(f"{value} cannot be expressed in UTC", hint="use times within years 2 to 9998") from error


def _escaped(content: str, *, untitled: bool) -> str:
    lines = content.split("\n")
    special = _special(lines, untitled)
    return "\n".join(f"\\{line}" if at in special else line for at, line in enumerate(lines))


def _special(lines: list[str], untitled: bool) -> set[int]:
    """The lines that need a backslash to be read as text, whether they already have one or not."""
    bare = [line.lstrip("\\") for line in lines]
    found = {at for at in (0, len(lines) - 1) if not bare[at].strip()}
    found |= {at for at, line in enumerate(bare) if _HEADING.fullmatch(line) or _CONFLICT.match(line)}
    return found | {0} if untitled and _TITLE.fullmatch(bare[0]) else found


# -- reading


def parse(text: str, path: str) -> MemoryFile:
    """Parse a memory file, written by duramen or by a person. Raises `FileMalformed` with the line."""
    text = text.removeprefix("\ufeff")
    if "\r\n" in text and text.count("\n") == text.count("\r\n"):  # every line ends with CRLF
        text = text.replace("\r\n", "\n")
    front, body, first = split(text, path)
    lines = body.split("\n")
    for number, line in enumerate(lines, first):
        if _CONFLICT.match(line):
            raise FileMalformed(path, number, "git conflict marker", hint="keep one side and remove the markers")
    known = _fields(front, path)
    title = _taken_title(lines) if "title" not in front else None
    content, steps, evidence = _sections(lines)
    if title is not None:
        known["title"] = title
    return MemoryFile(
        content=_unescaped(content, untitled=known.get("title") is None),
        steps=items.read(steps),
        evidence=items.read(evidence),
        extra={name: node.value for name, node in front.items() if name not in KNOWN},
        **known,
    )


def _fields(front: dict[str, Node], path: str) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name in _TEXTS:
        if name in front:
            known[name] = _text(name, front[name], path)
    for name in _TIMES:
        if name in front:
            known[name] = _moment(name, front[name], path)
    if "tags" in front:
        known["tags"] = tags_of(front["tags"], path)
    return known


def _text(name: str, node: Node, path: str) -> str | None:
    if isinstance(node, Scalar):
        return None if node.plain and node.value is None else node.text
    raise FileMalformed(path, node.line, f"`{name}` must be text", hint=f"write `{name}: …` in one line")


def _moment(name: str, node: Node, path: str) -> dt.datetime | None:
    text = _text(name, node, path)
    if text is None:
        return None
    try:
        time = dt.datetime.fromisoformat(text)
        return time.astimezone(dt.UTC) if time.tzinfo else time.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError) as error:
        raise FileMalformed(
            path, node.line, f"`{name}` must be a time", hint="write it like 2026-03-02T08:15:00Z"
        ) from error


def tags_of(node: Node, path: str) -> tuple[str, ...]:
    """The tags of a list, or of a text with commas. Raises `FileMalformed` for anything else."""
    if isinstance(node, Scalar):
        whole = _text("tags", node, path)
        return tuple(filter(None, map(str.strip, whole.split(",")))) if whole else ()
    if isinstance(node.items, tuple) and all(isinstance(item, Scalar) for item in node.items):
        return tuple(item.text for item in node.items if isinstance(item, Scalar) and (item.text or not item.plain))
    raise FileMalformed(path, node.line, "`tags` must be a list of texts", hint="write it like tags: [ferry, travel]")


def _taken_title(lines: list[str]) -> str | None:
    """Remove the title from the top of the lines, and return it. None if there is no title."""
    at = next((number for number, line in enumerate(lines) if line.strip()), None)
    found = None if at is None else _TITLE.fullmatch(lines[at])
    if at is None or found is None:
        return None
    del lines[: at + 1]
    return found[1]


def _sections(lines: list[str]) -> tuple[list[str], list[str], list[str]]:
    parts: dict[str, list[str]] = {"": [], "steps": [], "evidence": []}
    current = ""
    for line in lines:
        heading = _HEADING.fullmatch(line)
        if heading:
            current = heading[1].lower()
            continue
        if current and _OTHER_HEADING.match(line):
            current = ""
        parts[current].append(line)
    return parts[""], parts["steps"], parts["evidence"]


def _unescaped(lines: list[str], *, untitled: bool) -> str:
    while lines and not lines[0].strip():
        del lines[0]
    while lines and not lines[-1].strip():
        del lines[-1]
    special = _special(lines, untitled) if lines else ()
    return "\n".join(line.removeprefix("\\") if at in special else line for at, line in enumerate(lines))
