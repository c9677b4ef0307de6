"""Converts a memory to a memory file and back, and gives the path of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import BoundaryRefused, InvalidInput
from ...journal.events import moment
from ...memory.extraction.expiry import holds_until
from ...memory.knowledge.policies import Policies
from ...memory.knowledge.procedures import note_of
from ...ports import MemoryRow
from ..folder.names import file_name, folder_name
from ..folder.paths import KNOWLEDGE_FOLDERS, place
from ..formats.index_file import IndexLine, brief
from ..formats.memory_file import KNOWN, MemoryFile, first_paragraph

_FOLDERS = {kind: folder for folder, kind in KNOWLEDGE_FOLDERS.items()}
_OWN = ("preference", "identity")
_PREFIX = "procedure:"
_POLICIES = {"none": "none", "check": "check before use", "reconfirm": "must be reconfirmed"}
_WEIGHTS = {"importance": 0.5, "confidence": 1.0}
_PROCEDURE = ("procedure", "version")
_TITLE = 70
FILE, TAGS, EVIDENCE, FRONT, SUMMARY = "file", "tags", "evidence", "front", "summary"
"""Keys of a memory's metadata that its file shows: file name, tags, evidence, front-matter fields that people added,
and a summary that a person wrote."""


class StoredMemory(NamedTuple):
    """A stored memory: its row, the data of its event, and its subject."""

    row: MemoryRow
    data: Mapping[str, Any]
    subject: str | None

    @property
    def procedure(self) -> Mapping[str, Any] | None:
        """The steps, name and version, if the memory was saved as a procedure. Otherwise None."""
        found = self.data.get("procedure")
        return found if isinstance(found, Mapping) else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.data.get("metadata") or {}


def memory_file_of(known: StoredMemory, policies: Policies) -> MemoryFile:
    """The memory file of a memory."""
    row, metadata, own = known.row, known.metadata, known.procedure
    content, steps = known.data["content"], ()
    if own is not None:
        steps, content = tuple(own["steps"]), note_of(known.data)
    return MemoryFile(
        content=content,
        title=title_of(known),
        summary=_summary(known, content, steps),
        steps=steps,
        evidence=_texts(metadata.get(EVIDENCE)),
        id=row.id,
        kind=row.kind,
        tags=_texts(metadata.get(TAGS)),
        policy=_POLICIES[policies.of(row.kind).check],
        observed=moment(row.recorded),
        verified=moment(row.confirmed),
        source=f"{row.session}#{row.position}",
        key=None if own is not None else row.key,
        subject=known.subject,
        scope="workspace" if known.subject is not None and not row.audience else None,
        extra=_extra(known),
    )


def _texts(value: object) -> tuple[str, ...]:
    """Tags or evidence as texts. An application may have stored one text or several."""
    if not value:
        return ()
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else (str(value),)


def _summary(known: StoredMemory, content: str, steps: tuple[str, ...]) -> str:
    own = known.metadata.get(SUMMARY)
    return str(own) if own else _derived(content, steps)


def _derived(content: str, steps: tuple[str, ...]) -> str:
    """The summary derived from the content or the steps."""
    return brief(first_paragraph(content) or "; ".join(steps))


def title_of(known: StoredMemory) -> str:
    """The title of a memory: its own, the name of its procedure, or its first words."""
    title = known.data.get("title")
    if title:
        return " ".join(str(title).split())
    if known.procedure is not None:
        return " ".join(str(known.procedure["name"]).split())
    return brief(first_paragraph(known.data["content"]), _TITLE)


def _extra(known: StoredMemory) -> dict[str, Any]:
    front = known.metadata.get(FRONT)
    extra: dict[str, Any] = {}
    if isinstance(front, Mapping):
        extra = {str(name): value for name, value in front.items() if name not in KNOWN}
    for name, usual in _WEIGHTS.items():
        value = known.data.get(name, usual)
        if value != usual:
            extra[name] = value
    if known.procedure is not None:
        extra |= {name: known.procedure[key] for name, key in zip(_PROCEDURE, ("name", "version"), strict=True)}
    return extra


def path_of(known: StoredMemory, workspace: str) -> str:
    """The path of a memory's file. It depends only on the memory, so a rebuild gives the same path."""
    folder = folder_of(known.row.kind, workspace)
    chosen = known.metadata.get(FILE)
    if isinstance(chosen, str) and _is_place(f"{folder}/{chosen}", workspace):
        return f"{folder}/{chosen}"
    if known.row.key is not None:
        about = known.row.key.removeprefix(_PREFIX) if known.procedure is not None else known.row.key
        return f"{folder}/{file_name(about, f'{known.row.audience.hex()} {known.row.key}')}"
    return other_path(known, workspace)


def other_path(known: StoredMemory, workspace: str) -> str:
    """The path of a memory's file if another file has its usual path."""
    name = file_name(title_of(known), f"{known.row.audience.hex()} {known.row.id}")
    return f"{folder_of(known.row.kind, workspace)}/{name}"


def folder_of(kind: str, workspace: str) -> str:
    """The folder of a kind. Kinds that an application defines share the folder of facts."""
    if kind in _OWN:
        return kind
    return f"workspace/{folder_name(workspace)}/knowledge/{_FOLDERS.get(kind, 'facts')}"


def _is_place(path: str, workspace: str) -> bool:
    try:
        place(path, workspace)
    except BoundaryRefused:
        return False
    return True


def index_line_of(file: MemoryFile, path: str) -> IndexLine:
    """The line of a file in an index at the root."""
    return IndexLine(
        title=file.title or brief(file.gist, _TITLE),
        path=path,
        kind=file.kind,
        policy=file.policy,
        tags=file.tags,
        summary=brief(file.gist),
    )


# -- from a file to a memory


class MemoryInput(NamedTuple):
    """The content of a file, as input for a memory."""

    content: str
    kind: str
    subject: str | None
    details: dict[str, Any]
    steps: tuple[str, ...]
    name: str | None


def memory_input(file: MemoryFile, kind: str, name: str, before: StoredMemory | None) -> MemoryInput:
    """The input for a memory from a file, with details of the memory `before` that the file does not show. A title
    that only repeats the first words is dropped. Raises `InvalidInput` for the scope "session"."""
    if file.scope == "session":
        raise InvalidInput('a memory with scope "session" cannot have a file', hint="remove `scope`")
    title = file.title
    if title is not None and (title == brief(first_paragraph(file.content), _TITLE) or _is_untouched(title, before)):
        title = None if before is None else before.data.get("title")
    content = file.content or ("" if file.steps else file.title or "")
    details: dict[str, Any] = {"title": title, "key": file.key, "metadata": _metadata(file, name, before)}
    details |= {} if file.scope is None else {"scope": file.scope}
    details |= {} if before is None else _still(before, content)
    details |= {weight: file.extra[weight] for weight in _WEIGHTS if weight in file.extra}
    procedure = file.extra.get("procedure")
    named = str(procedure) if procedure else file.title or name.removesuffix(".md")
    return MemoryInput(content, kind, file.subject, details, file.steps, named if file.steps else None)


def _metadata(file: MemoryFile, name: str, before: StoredMemory | None) -> dict[str, Any]:
    shown = (TAGS, EVIDENCE, FRONT, SUMMARY, *_PROCEDURE, "standing")
    metadata: dict[str, Any] = {} if before is None else {k: v for k, v in before.metadata.items() if k not in shown}
    extra = {key: value for key, value in file.extra.items() if key not in (*_WEIGHTS, *_PROCEDURE)}
    values = {TAGS: list(file.tags), EVIDENCE: list(file.evidence), FRONT: extra, SUMMARY: _own_summary(file, before)}
    return metadata | {key: value for key, value in values.items() if value} | {FILE: name}


def _own_summary(file: MemoryFile, before: StoredMemory | None) -> str | None:
    """The summary that a person wrote. None if it is only derived from the old or the new text."""
    derived = {_derived(file.content, file.steps)}
    if before is not None:
        text, own = before.data["content"], before.procedure
        if before.metadata.get(SUMMARY):
            return file.summary
        derived.add(_summary(before, note_of(before.data) if own else text, tuple(own["steps"]) if own else ()))
    return None if file.summary in derived else file.summary


def _still(before: StoredMemory, content: str) -> dict[str, Any]:
    """Details of the old memory that still apply to its new text. An end date that was derived from the old text is
    dropped, because the new text determines it."""
    data, kept = before.data, {}
    if data.get("speaker"):
        kept["speaker"] = data["speaker"]
    if "valid_from" in data:
        kept["valid_from"] = moment(data["valid_from"])
    if "ttl" in data:
        kept["ttl"] = data["ttl"] / 1e6
    ends = data.get("valid_to")
    if ends is not None and (content == data["content"] or holds_until(data["content"], before.row.begins) != ends):
        kept["valid_to"] = moment(ends)
    return kept


def _is_untouched(title: str, before: StoredMemory | None) -> bool:
    return before is not None and title == title_of(before)


def is_same(file: MemoryFile, other: MemoryFile) -> bool:
    """Whether two memory files have the same content. Fields that only the store sets are ignored."""
    return _meant(file) == _meant(other)


def _meant(file: MemoryFile) -> tuple[Any, ...]:
    extra = {name: value for name, value in file.extra.items() if name != "version"}
    said = (file.content, file.title, file.summary or _derived(file.content, file.steps), file.steps, file.evidence)
    return *said, file.tags, file.kind, file.key, file.subject, file.scope, extra
