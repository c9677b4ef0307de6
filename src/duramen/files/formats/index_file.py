r"""Index files such as MEMORY.md: one line for each memory file.

    - [Book the ferry](knowledge/procedures/book-the-ferry-1c2d3e4f5a.md) [procedure] [verify: check before use] - Early

`parse` returns exactly what was rendered. In titles, kinds and tags, brackets and backslashes have a backslash before
them. Characters that would break the line are written as numbers, such as ``&#10;``. Paths are percent-encoded.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ..folder.names import fold

KINDS = ("preference", "identity", "fact", "procedure", "blocker", "reference")
"""The order of the kinds in an index. Other kinds come after them."""
MAX_SUMMARY = 160
"""The default length of `brief`, in characters."""
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
class IndexLine:
    """One line of an index. `path` is relative to the folder of the index."""

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
    """The content of an index. `others` are the lines that are not index lines, with their numbers."""

    heading: str | None
    lines: tuple[IndexLine, ...]
    others: tuple[tuple[int, str], ...] = ()


def linked(path: str, index: str) -> str:
    """The path of a file relative to an index. Both are given relative to the root."""
    return posixpath.relpath(path, posixpath.dirname(index) or ".")


def brief(text: str, limit: int = MAX_SUMMARY) -> str:
    """The text in one line, shortened to `limit` characters."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    cut = line[:limit]
    return (cut[: cut.rfind(" ")] if " " in cut[limit // 2 :] else cut[:-1]).rstrip(" ,.;:") + "…"


def order(index_line: IndexLine) -> tuple[int, str, str, str]:
    """The sort key of a line: by kind, then by title."""
    known = KINDS.index(index_line.kind) if index_line.kind in KINDS else len(KINDS)
    return known, index_line.kind or "", fold(index_line.title), index_line.path


def render(heading: str, lines: Iterable[IndexLine]) -> str:
    """The text of an index. It does not depend on the order of the lines."""
    texts = [render_line(index_line) for index_line in sorted(lines, key=order)]
    return "\n".join([f"# {_encoded(heading)}", "", *texts, ""] if texts else [f"# {_encoded(heading)}", ""])


def render_line(index_line: IndexLine) -> str:
    """The text of one line."""
    parts = [f"- [{_escaped(index_line.title)}]({quote(index_line.path, safe='/')})"]
    if index_line.kind or index_line.policy or index_line.tags:
        parts.append(f"[{_escaped(index_line.kind or '', ':')}]")
    if index_line.policy:
        parts.append(f"[verify: {_escaped(index_line.policy)}]")
    if index_line.tags:
        parts.append("[" + ", ".join(_escaped(tag, ":,") for tag in index_line.tags) + "]")
    if index_line.summary:
        parts.append(f"- {_encoded(index_line.summary)}")
    return " ".join(parts)


def _encoded(text: str) -> str:
    """The text on one line, with special characters and spaces at its ends encoded."""
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
    """Parse an index, written by duramen or by a person. Never fails: lines that are not index lines are returned in
    `others` with their numbers."""
    heading: str | None = None
    lines: list[IndexLine] = []
    others: list[tuple[int, str]] = []
    for number, given in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        stripped = given.strip()
        if not stripped:
            continue
        title = _TITLE.fullmatch(stripped) if heading is None and not lines else None
        if title:
            heading = _decoded(title[1])
        elif index_line := parse_line(stripped):
            lines.append(index_line)
        else:
            others.append((number, given))
    return Index(heading, tuple(lines), tuple(others))


def parse_line(text: str) -> IndexLine | None:
    """Parse one line. Returns None if it is not an index line."""
    found = _LINE.fullmatch(text)
    if found is None:
        return None
    groups = _GROUP.findall(found[3])
    kind = groups.pop(0) if groups and not _POLICY.match(groups[0]) else ""
    policy = _POLICY.sub("", groups.pop(0), count=1) if groups and _POLICY.match(groups[0]) else ""
    tags = tuple(_unescaped(tag.strip()) for group in groups for tag in _split(group))
    return IndexLine(
        _unescaped(found[1]), unquote(found[2]), _unescaped(kind), _unescaped(policy), tags, _decoded(found[4] or "")
    )


def _split(group: str) -> list[str]:
    """Split a group at the commas that have no backslash before them."""
    parts, at = [], 0
    while found := _PART.match(group, at):
        parts.append(found[1])
        if not found[2]:
            break
        at = found.end()
    return parts
