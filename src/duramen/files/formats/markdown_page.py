"""Files with front matter and a text, for Claude Code and Basic Memory.

A note keeps its raw front matter. If the fields of the note have not changed, that front matter is written unchanged,
with its comments and spelling. Otherwise the fields are written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import FileMalformed
from .frontmatter import FENCE, Node, Scalar, joined, split
from .note import Note, trimmed

_FIELD = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?", re.ASCII)
SAYS = ("title", "summary", "kind", "tags", "key", "created", "updated")
"""The attributes of a note that the front matter contains."""


@dataclass(frozen=True, slots=True)
class Page:
    """A file: its fields, their source text, and the text after them. `front` is None if there is no front matter."""

    fields: Mapping[str, Node]
    front: str | None
    body: str
    line: int


def opened(text: str, path: str) -> Page:
    """Parse a file. If the fields are not valid YAML but every line is `name: value`, as models write it, the values
    are read as plain text. Raises `FileMalformed` otherwise."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text[len(mark) :]
    try:
        fields, body, line = split(text, path)
    except FileMalformed:
        fields, body, line = _plainly(text)
        if not fields:
            raise
    if line == 1:
        return Page({}, mark or None, body, 1)
    return Page(fields, mark + text[: len(text) - len(body)], body, line)


def _plainly(text: str) -> tuple[dict[str, Node], str, int]:
    lines = text.split("\n")
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), 0)
    found = [_FIELD.fullmatch(line.rstrip()) for line in lines[1:end]]
    if not end or not all(found):
        return {}, text, 1
    fields: dict[str, Node] = {}
    for at, match in enumerate(found, 2):
        if match is None or match[1] in fields:
            return {}, text, 1
        fields[match[1]] = Scalar(match[2] or "", False, at)
    return fields, "\n".join(lines[end + 1 :]), end + 2


def text_of(fields: Mapping[str, Node], name: str) -> str | None:
    """The text of a field. None if it is missing or not a scalar."""
    node = fields.get(name)
    if not isinstance(node, Scalar) or (node.plain and node.value is None):
        return None
    return node.text


def rest_of(fields: Mapping[str, Node], known: frozenset[str]) -> dict[str, Any]:
    """The fields that are not in `known`, as plain data."""
    return {name: node.value for name, node in fields.items() if name not in known}


def kept(page: Page, usual: str) -> tuple[str, dict[str, Any]]:
    """The text of a page, and the metadata that is needed to write the same page. `usual` is the default text between
    front matter and text, which need not be stored."""
    before, text, after = trimmed(page.body)
    if usual.strip() and text.startswith(usual.strip() + "\n"):
        more, text, _ = trimmed(text[len(usual.strip()) :])
        before += usual.strip() + more
    elif usual.strip() and text == usual.strip():
        before, text, after = page.body, "", ""
    layout = {name: value for name, value, was in (("before", before, usual), ("after", after, "\n")) if value != was}
    front = {} if page.front is None else {"front_matter": page.front}
    return text, front | layout


def laid_out(
    note: Note,
    format: str,
    usual: str,
    said: Callable[[Mapping[str, Node]], dict[str, Any]],
    fields: Callable[[Note], dict[str, Any]],
) -> str:
    """The text of a note's file. `said` converts fields to note attributes, `fields` a note to fields."""
    own = note.metadata if note.metadata.get("format") == format else {}
    before, after = own.get("before", usual), own.get("after", "\n")
    raw = own.get("front_matter", "")
    mine = {name: getattr(note, name) for name in SAYS}
    was = said(opened(raw, note.origin).fields) if own else {}
    if was.get("title") and note.title:
        before = before.replace(f"# {was['title']}\n", f"# {' '.join(note.title.split())}\n", 1)
    body = f"{before}{note.text}{after}" if note.text or "before" in own else usual
    if was == mine:
        return f"{raw}{body}"
    return joined(fields(note), body)
