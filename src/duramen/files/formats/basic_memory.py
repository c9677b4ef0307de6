"""Basic Memory's notes: one file each, with title, type, permalink and tags. Its text has observations and relations.

    - [category] what was observed #tag (context)
    - relates_to [[Another note]] (context)

The text is not changed. `observations` and `relations` parse it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...errors import FileMalformed
from ..folder.names import slug
from .frontmatter import Node, Verbatim
from .index_file import KINDS, brief
from .markdown_page import kept, laid_out, opened, rest_of, text_of
from .memory_file import tags_of
from .note import Imported, Note, moment, path_for, worth_writing

_KNOWN = frozenset({"title", "type", "permalink", "tags", "created", "modified"})
_ITEM = re.compile(r"[ \t]*[-*+][ \t]+(.*)")
_OBSERVED = re.compile(r"\[([^\[\]()]+)\][ \t]+(.*)")
_TASK = re.compile(r"\[[ xX-]\]")
_TAG = re.compile(r"(?:^|(?<=\s))#([^\s#]+)")
_CONTEXT = re.compile(r"(.*\S)[ \t]+\(([^()]*)\)[ \t]*")
_RELATION = re.compile(
    r"""(?:"([^"]+)"|'([^']+)'|([^\s\[\]"']+))[ \t]+\[\[([^\[\]]+)\]\](?:[ \t]*\(([^()]*)\))?[ \t]*"""
)
_LINK = re.compile(r"\[\[([^\[\]]+)\]\]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of a note. `text` is without its tags and context."""

    category: str | None
    text: str
    tags: tuple[str, ...] = ()
    context: str | None = None


@dataclass(frozen=True, slots=True)
class NoteRelation:
    """A relation of a note to another, which may not exist."""

    type: str
    target: str
    context: str | None = None


class BasicMemory:
    """Basic Memory's notes."""

    name = "basic-memory"

    def read(self, files: Mapping[str, str]) -> Imported:
        """See `Format`."""
        notes: list[Note] = []
        problems: list[FileMalformed] = []
        for path in sorted(path for path in files if path.endswith(".md")):
            try:
                notes.append(_note(files[path], path))
            except FileMalformed as problem:
                problems.append(problem)
        return Imported(tuple(notes), tuple(problems))

    def write(self, notes: Iterable[Note]) -> dict[str, str]:
        """See `Format`."""
        files: dict[str, str] = {}
        for note in worth_writing(notes, self.name):
            path = path_for(note, self.name, files)
            usual = _usual(note.title if note.title is not None else brief(note.text, 60))
            files[path] = laid_out(note, self.name, usual, partial(_said, path=note.origin), _fields)
        return files


def _note(text: str, path: str) -> Note:
    page = opened(text, path)
    said = _said(page.fields, path)
    body, layout = kept(page, _usual(said["title"] or ""))
    fields = rest_of(page.fields, _KNOWN)
    if type := text_of(page.fields, "type"):
        fields["type"] = type
    metadata: dict[str, Any] = {"format": BasicMemory.name, "fields": fields, **layout}
    return replace(Note(body, origin=path, metadata=metadata), **said)


def _usual(title: str) -> str:
    return f"\n# {title}\n\n" if title.strip() == title and "\n" not in title and title else "\n"


def _said(fields: Mapping[str, Node], path: str) -> dict[str, Any]:
    type = text_of(fields, "type")
    title = text_of(fields, "title")
    return {
        "title": posixpath.basename(path).removesuffix(".md") if title is None else title,
        "summary": None,
        "kind": type if type in KINDS else None,
        "tags": tags_of(fields["tags"], path) if "tags" in fields else (),
        "key": text_of(fields, "permalink"),
        "created": moment(text_of(fields, "created") or ""),
        "updated": moment(text_of(fields, "modified") or ""),
    }


def _fields(note: Note) -> dict[str, Any]:
    rest = dict(note.metadata.get("fields", {})) if note.metadata.get("format") == BasicMemory.name else {}
    type = rest.pop("type", None) or "note"
    if (type if type in KINDS else None) != note.kind:
        type = note.kind or "note"
    title = note.title if note.title is not None else brief(note.text, 60)
    fields: dict[str, Any] = {"title": title, "type": type, "permalink": note.key or slug(title)}
    if note.tags:
        fields["tags"] = list(note.tags)
    for name, time in (("created", note.created), ("modified", note.updated)):
        if time is not None:
            fields[name] = Verbatim(time.isoformat())
    return fields | rest


# -- observations and relations in a text


def observations(text: str) -> tuple[Observation, ...]:
    """The observations in a text: list items with a category or tags. Tasks, links and code do not count."""
    found = (_observation(item) for item in _items(text))
    return tuple(each for each in found if each is not None)


def relations(text: str) -> tuple[NoteRelation, ...]:
    """The relations in a text: list items with a type and a link, and every other link as ``links_to``."""
    found: list[NoteRelation] = []
    for line in _lines(text):
        item = _ITEM.fullmatch(line)
        tie = _RELATION.fullmatch(item[1]) if item else None
        if tie:
            found.append(NoteRelation(tie[1] or tie[2] or tie[3], tie[4].strip(), tie[5] or None))
        elif not (item and _observation(item[1])):
            found += [NoteRelation("links_to", target.strip()) for target in _LINK.findall(line)]
    return tuple(found)


def _observation(item: str) -> Observation | None:
    if _TASK.match(item) or _RELATION.fullmatch(item) or item.startswith("[["):
        return None
    headed = _OBSERVED.fullmatch(item)
    rest = headed[2] if headed else item
    if not headed and not _TAG.search(item):
        return None
    context = _CONTEXT.fullmatch(rest)
    rest = context[1] if context else rest
    tags = tuple(_TAG.findall(rest))
    said = " ".join(_TAG.sub("", rest).split())
    return Observation(headed[1].strip() if headed else None, said, tags, context[2] if context else None)


def _items(text: str) -> Iterable[str]:
    return (found[1] for line in _lines(text) if (found := _ITEM.fullmatch(line)))


def _lines(text: str) -> Iterable[str]:
    """The lines outside code fences."""
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence:
            yield line.rstrip("\r")
