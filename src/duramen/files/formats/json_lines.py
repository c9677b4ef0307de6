"""JSON Lines: one object per line, with its text under "text" (or "content", or "memory")."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ...errors import FileMalformed
from .note import Imported, Note, moment, worth_writing

FILE = "memory.jsonl"
_TEXTS = ("text", "content", "memory")
_STRINGS = ("title", "summary", "kind", "key")
_TIMES = ("created", "updated")
_HINT = 'write one object per line, such as {"text": "The ferry leaves at 8."}'


class JsonLines:
    """The JSON Lines format."""

    name = "jsonl"

    def read(self, files: Mapping[str, str]) -> Imported:
        """See `Format`. A malformed line becomes a problem; the other lines are read."""
        notes: list[Note] = []
        problems: list[FileMalformed] = []
        for path in sorted(path for path in files if path.endswith((".jsonl", ".ndjson"))):
            for number, line in enumerate(files[path].removeprefix("\ufeff").split("\n"), 1):
                if not line.strip():
                    continue
                try:
                    notes.append(_note(line, path, number))
                except FileMalformed as problem:
                    problems.append(problem)
        return Imported(tuple(notes), tuple(problems))

    def write(self, notes: Iterable[Note]) -> dict[str, str]:
        """See `Format`. All notes are written to one file, each with the fields that it had."""
        lines = "".join(f"{_line(note)}\n" for note in worth_writing(notes, self.name))
        return {FILE: lines} if lines else {}


def _note(line: str, path: str, number: int) -> Note:
    fields = _object(line, path, number)
    name = next((name for name in _TEXTS if name in fields), "text")
    if not isinstance(fields.get(name), str):
        raise FileMalformed(path, number, 'there is no "text"', hint=_HINT)
    said: dict[str, Any] = {each: _string(fields, each, path, number) for each in _STRINGS}
    for each in _TIMES:
        text = _string(fields, each, path, number)
        said[each] = moment(text) if text else None
        if text and said[each] is None:
            raise FileMalformed(path, number, f'"{each}" must be a time', hint="write it like 2026-03-02T08:15:00Z")
    tags = fields.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise FileMalformed(path, number, '"tags" must be a list of texts', hint='write it like "tags": ["ferry"]')
    known = {name, "tags", *_STRINGS, *_TIMES}
    rest = {each: value for each, value in fields.items() if each not in known}
    times = {each: fields[each] for each in _TIMES if fields.get(each)}
    metadata = {"format": JsonLines.name, "fields": rest, "under": name, "times": times}
    return Note(fields[name], tags=tuple(tags), origin=path, metadata=metadata, **said)


def _object(line: str, path: str, number: int) -> dict[str, Any]:
    try:
        fields = json.loads(line, parse_constant=_refused, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise FileMalformed(path, number, f"not JSON: {reason}", hint=_HINT) from error
    if not isinstance(fields, dict):
        raise FileMalformed(path, number, "not a JSON object", hint=_HINT)
    return fields


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name occurs twice")
    return fields


def _string(fields: Mapping[str, Any], name: str, path: str, number: int) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise FileMalformed(path, number, f'"{name}" must be text', hint=_HINT)
    return value


def _line(note: Note) -> str:
    metadata = note.metadata if note.metadata.get("format") == JsonLines.name else {}
    fields: dict[str, Any] = {metadata.get("under", "text"): note.text}
    fields |= {name: value for name in _STRINGS if (value := getattr(note, name)) is not None}
    if note.tags:
        fields["tags"] = list(note.tags)
    fields |= {name: value for name in _TIMES if (value := _time(name, note, metadata)) is not None}
    return _encoded(fields | metadata.get("fields", {}))


def _time(name: str, note: Note, metadata: Mapping[str, Any]) -> str | None:
    """The time as the file spelled it, if it has not changed. Otherwise in ISO 8601."""
    time: dt.datetime | None = getattr(note, name)
    written = metadata.get("times", {}).get(name)
    if isinstance(written, str) and moment(written) == time:
        return written
    return None if time is None else time.isoformat()


def _encoded(fields: Mapping[str, Any]) -> str:
    line = json.dumps(fields, ensure_ascii=False)
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(fields)
    return line
