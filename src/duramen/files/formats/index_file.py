r"""Indexes: lists of what there is, one line for each file.

    - [Book the ferry](knowledge/procedures/book-the-ferry-1c2d3e4f5a.md) [procedure] [verify: check before use] - Early

`parse` gives back what was rendered, exactly: in titles, kinds and tags a backslash comes before brackets and before
itself, and what would break the line stands there as a number, such as ``&#10;``. Addresses are percent-encoded.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ..folder.names import fold

KINDS = ("preference", "identity", "fact", "procedure", "blocker", "reference")
"""The order of the kinds in an index; others come after them."""
MAX_SUMMARY = 160
"""Letters of a summary that `brief` leaves."""
_INNER = r"(?:\\.|[^\\\[\]])*"
_LINE = re.compile(
    rf"[-*+] +\[({_INNER})\]\(<?([^()<>\s]*)>?\)((?: +\[{_INNER}\])*)(?:(?: +[-\u2013\u2014]|:)(?: +(.*))?)?"
)
_GROUP = re.compile(rf" +\[({_INNER})\]")
_TITLE = re.compile(r"# +(\S.*)")
_PART = re.compile(r"((?:\\.|[^\\,])*)(,?)")
_NUMBER = re.compile(r"&(amp|#[0-9]{1,7});")
_POLICY = re.compile(r"verify: ?")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of an index. `path` is relative to the folder that the index lies in."""

    title: str
    path: str
    kind: str | None = None
    policy: str | None = None
    tags: tuple[str, ...] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        for name in ("kind", "policy"):
            object.__setattr__(self, name, getattr(self, name) or None)


@dataclass(frozen=True, slots=True)
class Index:
    """What an index says. `others` are lines that are none of ours, with their numbers."""

    heading: str | None
    entries: tuple[Entry, ...]
    others: tuple[tuple[int, str], ...] = ()


def linked(path: str, index: str) -> str:
    """The address of a file, as it stands in an index; both are paths from the root."""
    return posixpath.relpath(path, posixpath.dirname(index) or ".")


def brief(text: str, limit: int = MAX_SUMMARY) -> str:
    """The text in one line, and not too long for an index."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    cut = line[:limit]
    return (cut[: cut.rfind(" ")] if " " in cut[limit // 2 :] else cut[:-1]).rstrip(" ,.;:") + "…"


def order(entry: Entry) -> tuple[int, str, str, str]:
    """Where an entry stands: by kind, then by title. It depends on nothing but the entry."""
    known = KINDS.index(entry.kind) if entry.kind in KINDS else len(KINDS)
    return known, entry.kind or "", fold(entry.title), entry.path


def render(heading: str, entries: Iterable[Entry]) -> str:
    """The text of an index. The same entries give the same text, whatever order they come in."""
    lines = [line(entry) for entry in sorted(entries, key=order)]
    return "\n".join([f"# {_encoded(heading)}", "", *lines, ""] if lines else [f"# {_encoded(heading)}", ""])


def line(entry: Entry) -> str:
    """One line."""
    parts = [f"- [{_escaped(entry.title)}]({quote(entry.path, safe='/')})"]
    if entry.kind or entry.policy or entry.tags:
        parts.append(f"[{_escaped(entry.kind or '', ':')}]")
    if entry.policy:
        parts.append(f"[verify: {_escaped(entry.policy)}]")
    if entry.tags:
        parts.append("[" + ", ".join(_escaped(tag, ":,") for tag in entry.tags) + "]")
    if entry.summary:
        parts.append(f"- {_encoded(entry.summary)}")
    return " ".join(parts)


def _encoded(text: str) -> str:
    """Everything in one line, without blanks at its ends."""
    text = re.sub(r"&(?=(?:amp|#[0-9]{1,7});)", "&amp;", text)
    inner = "".join(letter if letter.isprintable() else f"&#{ord(letter)};" for letter in text)
    if inner.startswith(" "):
        inner = f"&#32;{inner[1:]}"
    return f"{inner[:-1]}&#32;" if inner.endswith(" ") else inner


def _escaped(text: str, more: str = "") -> str:
    return re.sub(rf"([\\\[\]{more}])", r"\\\1", _encoded(text))


def _decoded(text: str) -> str:
    return _NUMBER.sub(_letter, text)


def _letter(found: re.Match[str]) -> str:
    code = 38 if found[1] == "amp" else int(found[1][1:])
    return chr(code) if code <= 0x10FFFF else found[0]


def _unescaped(text: str) -> str:
    return _decoded(re.sub(r"\\(.)", r"\1", text))


def parse(text: str) -> Index:
    """The index that this text holds, written by us or by a person. Nothing is malformed: what is no entry is given
    back with its line."""
    heading: str | None = None
    entries: list[Entry] = []
    others: list[tuple[int, str]] = []
    for number, given in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        stripped = given.strip()
        if not stripped:
            continue
        title = _TITLE.fullmatch(stripped) if heading is None and not entries else None
        if title:
            heading = _decoded(title[1])
        elif entry := read_line(stripped):
            entries.append(entry)
        else:
            others.append((number, given))
    return Index(heading, tuple(entries), tuple(others))


def read_line(text: str) -> Entry | None:
    """The entry that a line is, or None."""
    found = _LINE.fullmatch(text)
    if found is None:
        return None
    groups = _GROUP.findall(found[3])
    kind = groups.pop(0) if groups and not _POLICY.match(groups[0]) else ""
    policy = _POLICY.sub("", groups.pop(0), count=1) if groups and _POLICY.match(groups[0]) else ""
    tags = tuple(_unescaped(tag.strip()) for group in groups for tag in _split(group))
    return Entry(
        _unescaped(found[1]), unquote(found[2]), _unescaped(kind), _unescaped(policy), tags, _decoded(found[4] or "")
    )


def _split(group: str) -> list[str]:
    """The parts between the commas that have no backslash before them."""
    parts, at = [], 0
    while found := _PART.match(group, at):
        parts.append(found[1])
        if not found[2]:
            break
        at = found.end()
    return parts
