r"""OpenClaw's workspace: MEMORY.md for lasting notes, memory/YYYY-MM-DD.md (or YYYY-MM-DD-topic.md) for daily logs.

Each section of level 2 is a note. A line in a note that looks like such a heading has a backslash before it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping

from .note import Imported, Note, Role, is_safe, trimmed, worth_writing

LASTING = "MEMORY.md"
_LAST = 1_000_000
_DAILY = re.compile(r"memory/([0-9]{4}-[0-9]{2}-[0-9]{2})(?:-[^/]*)?\.md", re.ASCII)
_SECTION = re.compile(r"##[ \t]+(\S.*)")
_ESCAPED = re.compile(r"\\*##[ \t]+\S.*", re.DOTALL)
_TITLE = re.compile(r"#[ \t]+(\S.*)")
_TIME = re.compile(r"\[?([01]?[0-9]|2[0-3]):([0-5][0-9])\b", re.ASCII)


class OpenClaw:
    """OpenClaw's memory files."""

    name = "openclaw"

    def read(self, files: Mapping[str, str]) -> Imported:
        """See `Format`. Any text is valid, so there are no problems."""
        wanted = [path for path in files if path == LASTING or _DAILY.fullmatch(path)]
        return Imported(tuple(note for path in sorted(wanted) for note in _notes(files[path], path)))

    def write(self, notes: Iterable[Note]) -> dict[str, str]:
        """See `Format`. Notes of other formats are written to MEMORY.md, entries of a daily log to the log of their
        day."""
        parts: dict[str, list[tuple[int, str]]] = {}
        for note in worth_writing(notes, self.name):
            path, own = _path(note), note.metadata.get("format") == self.name
            sections = parts.setdefault(path, [])
            at = note.metadata.get("order", 0) if own else _LAST + len(sections)
            sections.append((int(at), _section(note, own)))
        return {path: _joined(path, sections) for path, sections in parts.items()}


def _notes(text: str, path: str) -> Iterable[Note]:
    day = _day(path)
    for order, (heading, rest) in enumerate(_split(text)):
        before, inner, after = trimmed(rest)
        found = (_SECTION if heading else _TITLE).fullmatch((heading or inner.split("\n", 1)[0]).rstrip())
        if found and not heading:
            first, _, under = inner.partition("\n")
            more, inner, _ = trimmed(under)
            before += f"{first}\n{more}" if inner else first
        title = found[1] if found else None
        layout = {"format": OpenClaw.name, "order": order, "heading": heading, "before": before, "after": after}
        layout |= {"title": title} if title else {}
        yield Note(
            _unescaped(inner),
            title=title,
            created=_moment(day, title or "") if day else None,
            role=Role.HEADING if not inner else Role.DAILY if day else Role.NOTE,
            origin=path,
            metadata=layout,
        )


def _split(text: str) -> list[tuple[str, str]]:
    """The sections as pairs of heading and text. Text before the first heading has an empty heading."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.split("\n"):
        if _SECTION.fullmatch(line.rstrip()):
            sections.append((line, [""]))  # so that the text begins with the line end of the heading
        else:
            sections[-1][1].append(line)
    found = [(heading, "\n".join(lines)) for heading, lines in sections]
    return found if sections[0][1] else found[1:]


def _section(note: Note, own: bool) -> str:
    if not own:
        title = _one_line(note.title or note.summary or note.key or note.text[:60]) or "Note"
        return f"## {title}\n\n{_escaped(note.text)}\n"
    top = f"{note.metadata.get('heading', '')}{note.metadata.get('before', '')}"
    was = note.metadata.get("title")
    if was and note.title and note.title != was:
        top = top.replace(was, _one_line(note.title) or "Note", 1)
    return f"{top}{_escaped(note.text)}{note.metadata.get('after', '')}"


def _joined(path: str, sections: list[tuple[int, str]]) -> str:
    ordered = [text for _, text in sorted(sections, key=lambda each: each[0])]
    if all(at >= _LAST for at, _ in sections):
        ordered.insert(0, f"# {_day(path) or 'Memory'}\n")
    return "\n".join(ordered)


def _path(note: Note) -> str:
    if note.metadata.get("format") == OpenClaw.name and is_safe(note.origin):
        return note.origin
    if note.role is Role.DAILY and note.created is not None:
        return f"memory/{note.created.astimezone(dt.UTC).date().isoformat()}.md"
    return LASTING


def _day(path: str) -> str | None:
    found = _DAILY.fullmatch(path)
    return found[1] if found else None


def _moment(day: str, title: str) -> dt.datetime | None:
    time = _TIME.match(title)
    try:
        date = dt.date.fromisoformat(day)
    except ValueError:
        return None
    clock = dt.time(int(time[1]), int(time[2])) if time else dt.time()
    return dt.datetime.combine(date, clock, dt.UTC)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    return "\n".join(f"\\{line}" if _ESCAPED.fullmatch(line) else line for line in text.split("\n"))


def _unescaped(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(line[1:] if line.startswith("\\") and _ESCAPED.fullmatch(line) else line for line in lines)
