"""Claude Code's memory folders: MEMORY.md with a link to each file, and files with name, description and type.

Newer versions store the type in a mapping called metadata. Both forms are read. Lines of the index that are not links
are the user's text, so the index is a note as well.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...errors import FileMalformed
from .frontmatter import Many, Node, Scalar
from .index_file import IndexLine, brief, parse, render_line
from .markdown_page import kept, laid_out, opened, rest_of, text_of
from .note import Imported, Note, Role, path_for, trimmed, worth_writing

INDEX = "MEMORY.md"
KINDS = {"user": "identity", "feedback": "preference", "project": "fact", "reference": "reference"}
"""Claude Code's types, and the closest kind of memory for each."""
_TYPES = {kind: type for type, kind in KINDS.items()} | {"procedure": "project", "blocker": "project"}
_KNOWN = frozenset({"name", "description", "type"})
_BEFORE = "\n"


class Claude:
    """Claude Code's memory folders."""

    name = "claude"

    def read(self, files: Mapping[str, str]) -> Imported:
        """See `Format`."""
        notes: list[Note] = []
        problems: list[FileMalformed] = []
        for path in sorted(path for path in files if path.endswith(".md")):
            try:
                notes.append(_index(files[path]) if path == INDEX else _note(files[path], path))
            except FileMalformed as problem:
                problems.append(problem)
        return Imported(tuple(notes), tuple(problems))

    def write(self, notes: Iterable[Note]) -> dict[str, str]:
        """See `Format`. An index among the notes is written unchanged, with one more line for each new file."""
        files: dict[str, str] = {INDEX: ""}
        index, lines = None, []
        for note in worth_writing(notes, self.name):
            if note.role is Role.INDEX and index is None and note.metadata.get("format") == self.name:
                index = note
                continue
            path = path_for(note, self.name, files)
            files[path] = laid_out(note, self.name, _BEFORE, _said, _fields)
            if note.metadata.get("format") != self.name or path != note.origin:
                title = note.title or posixpath.basename(path).removesuffix(".md")
                lines.append(IndexLine(title, path, summary=brief(note.summary or note.text)))
        files[INDEX] = _listed(index, lines)
        return {path: text for path, text in files.items() if path != INDEX or lines or index}


def _index(text: str) -> Note:
    found = parse(text)
    before, inner, after = trimmed(text)
    layout = {"format": Claude.name, "only_links": not found.others, "before": before, "after": after}
    return Note(inner, title=found.heading, role=Role.INDEX, origin=INDEX, metadata=layout)


def _listed(index: Note | None, lines: list[IndexLine]) -> str:
    """The text of the index, with the missing lines added."""
    text = ""
    if index is not None:
        text = f"{index.metadata.get('before', '')}{index.text}{index.metadata.get('after', '')}"
    linked = {posixpath.normpath(index_line.path) for index_line in parse(text).lines}
    return _extended(
        text, [render_line(index_line) for index_line in lines if posixpath.normpath(index_line.path) not in linked]
    )


def _extended(text: str, lines: list[str]) -> str:
    if not lines:
        return text
    return text + ("" if not text or text.endswith("\n") else "\n") + "".join(f"{each}\n" for each in lines)


def _note(text: str, path: str) -> Note:
    page = opened(text, path)
    body, layout = kept(page, _BEFORE)
    fields = rest_of(page.fields, _KNOWN)
    if type := text_of(page.fields, "type"):
        fields["type"] = type
    note = Note(body, origin=path, metadata={"format": Claude.name, "fields": fields, **layout})
    return replace(note, **_said(page.fields))


def _said(fields: Mapping[str, Node]) -> dict[str, Any]:
    return {
        "title": text_of(fields, "name"),
        "summary": text_of(fields, "description"),
        "kind": KINDS.get(_type(fields) or ""),
        "tags": (),
        "key": None,
        "created": None,
        "updated": None,
    }


def _type(fields: Mapping[str, Node]) -> str | None:
    inner = fields.get("metadata")
    if isinstance(inner, Many) and isinstance(inner.items, Mapping) and isinstance(inner.items.get("type"), Scalar):
        return text_of(fields, "type") or text_of(inner.items, "type")
    return text_of(fields, "type")


def _fields(note: Note) -> dict[str, Any]:
    rest = dict(note.metadata.get("fields", {})) if note.metadata.get("format") == Claude.name else {}
    type = rest.pop("type", None)
    if KINDS.get(type or "") != note.kind:
        type = _TYPES.get(note.kind or "", "project")
    name = note.title if note.title is not None else brief(note.text, 60)
    return {"name": name, "description": note.summary or brief(note.text), "type": type or "project", **rest}
