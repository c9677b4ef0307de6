"""A memory as a leaf, where its file lies, and what a leaf says as a memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import BoundaryRefused
from ..files.indexes import Entry, brief
from ..files.leaves import Leaf, first_paragraph
from ..files.naming import folder_name, leaf_name
from ..files.paths import KNOWLEDGE_FOLDERS, place
from ..journal.events import moment
from ..memory.policies import Policies
from ..ports import MemoryRow

_FOLDERS = {kind: folder for folder, kind in KNOWLEDGE_FOLDERS.items()}
_OWN = ("preference", "identity")
_PREFIX = "procedure:"
_POLICIES = {"none": None, "check": "check before use", "reconfirm": "must be reconfirmed"}
_WEIGHTS = {"importance": 0.5, "confidence": 1.0}
_PROCEDURE = ("procedure", "version")
_TITLE = 70
FILE, TAGS, EVIDENCE, FRONT = "file", "tags", "evidence", "front"
"""What of a memory's metadata is told in its leaf: its file's name, tags, evidence, and fields of the front matter that
people added."""


class Known(NamedTuple):
    """A memory as it is stored: its row, the data of its event, and whose it is."""

    row: MemoryRow
    data: Mapping[str, Any]
    subject: str | None

    @property
    def procedure(self) -> Mapping[str, Any] | None:
        """Its steps and its name, if it was saved as a procedure."""
        found = self.data.get("procedure")
        return found if isinstance(found, Mapping) else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.data.get("metadata") or {}


def leaf_of(known: Known, policies: Policies) -> Leaf:
    """The leaf of a memory."""
    row, metadata, own = known.row, known.metadata, known.procedure
    content, steps = known.data["content"], ()
    if own is not None:
        steps = tuple(own["steps"])
        content = _note(content, own)
    evidence = metadata.get(EVIDENCE) or ()
    return Leaf(
        content=content,
        title=title_of(known),
        steps=steps,
        evidence=(evidence,) if isinstance(evidence, str) else tuple(map(str, evidence)),
        id=row.id,
        kind=row.kind,
        tags=tuple(map(str, metadata.get(TAGS) or ())),
        policy=_POLICIES[policies.of(row.kind).check],
        observed=moment(row.recorded),
        verified=moment(row.confirmed),
        source=f"{row.session}#{row.position}",
        key=None if own is not None else row.key,
        subject=known.subject,
        extra=_extra(known),
    )


def title_of(known: Known) -> str:
    """What stands over a memory: its own title, or its first words."""
    title = known.data.get("title")
    if title:
        return " ".join(str(title).split())
    if known.procedure is not None:
        return " ".join(str(known.procedure["name"]).split())
    return brief(first_paragraph(known.data["content"]), _TITLE)


def _note(content: str, own: Mapping[str, Any]) -> str:
    """What is said of a procedure beside its steps."""
    lines = [f"{own['name']}, version {own['version']}", *(f"{n}. {step}" for n, step in enumerate(own["steps"], 1))]
    return content.removeprefix("\n".join(lines)).lstrip("\n")


def _extra(known: Known) -> dict[str, Any]:
    extra: dict[str, Any] = dict(known.metadata.get(FRONT) or {})
    for name, usual in _WEIGHTS.items():
        value = known.data.get(name, usual)
        if value != usual:
            extra[name] = value
    if known.procedure is not None:
        extra |= {name: known.procedure[key] for name, key in zip(_PROCEDURE, ("name", "version"), strict=True)}
    return extra


def path_of(known: Known, workspace: str) -> str:
    """Where the file of a memory lies. It depends on nothing but the memory: a rebuild gives the same."""
    folder = folder_of(known.row.kind, workspace)
    chosen = known.metadata.get(FILE)
    if isinstance(chosen, str) and _is_place(f"{folder}/{chosen}", workspace):
        return f"{folder}/{chosen}"
    if known.row.key is not None:
        about = known.row.key.removeprefix(_PREFIX) if known.procedure is not None else known.row.key
        return f"{folder}/{leaf_name(about, f'{known.row.pool.hex()} {known.row.key}')}"
    return other_path(known, workspace)


def other_path(known: Known, workspace: str) -> str:
    """Where it lies if that place is taken."""
    name = leaf_name(title_of(known), f"{known.row.pool.hex()} {known.row.id}")
    return f"{folder_of(known.row.kind, workspace)}/{name}"


def folder_of(kind: str, workspace: str) -> str:
    """The folder of a kind. Kinds of an application's own lie with the facts."""
    if kind in _OWN:
        return kind
    return f"workspace/{folder_name(workspace)}/knowledge/{_FOLDERS.get(kind, 'facts')}"


def _is_place(path: str, workspace: str) -> bool:
    try:
        place(path, workspace)
    except BoundaryRefused:
        return False
    return True


def entry_of(leaf: Leaf, path: str) -> Entry:
    """The line of a leaf in an index that lies at the root."""
    return Entry(
        title=leaf.title or brief(leaf.gist, _TITLE),
        path=path,
        kind=leaf.kind,
        policy=leaf.policy,
        tags=leaf.tags,
        summary=brief(leaf.gist or "; ".join(leaf.steps)),
    )


# -- back


class Said(NamedTuple):
    """What a leaf says as a memory."""

    content: str
    kind: str
    subject: str | None
    details: dict[str, Any]
    steps: tuple[str, ...]
    name: str | None


def said_in(leaf: Leaf, kind: str, name: str, before: Known | None) -> Said:
    """What a person wrote, on top of what was there before. A title that only repeats the first words is none."""
    metadata: dict[str, Any] = {} if before is None else {k: v for k, v in before.metadata.items() if k != "version"}
    extra = {key: value for key, value in leaf.extra.items() if key not in (*_WEIGHTS, *_PROCEDURE)}
    for key, value in ((TAGS, list(leaf.tags)), (EVIDENCE, list(leaf.evidence)), (FRONT, extra)):
        metadata.pop(key, None)
        if value:
            metadata[key] = value
    if before is None or before.row.key is None:
        metadata[FILE] = name
    title = leaf.title
    if title is not None and (title == brief(first_paragraph(leaf.content), _TITLE) or _is_untouched(title, before)):
        title = None if before is None else before.data.get("title")
    details: dict[str, Any] = {"title": title, "key": leaf.key, "metadata": metadata}
    details |= {weight: leaf.extra[weight] for weight in _WEIGHTS if weight in leaf.extra}
    content = leaf.content or (leaf.title or "")
    procedure = leaf.extra.get("procedure")
    named = str(procedure) if procedure else leaf.title
    return Said(content, kind, leaf.subject, details, leaf.steps, named if leaf.steps else None)


def _is_untouched(title: str, before: Known | None) -> bool:
    return before is not None and title == title_of(before)


def is_same(leaf: Leaf, other: Leaf) -> bool:
    """Whether two leaves say the same: what is told by the store alone does not count."""
    return _meant(leaf) == _meant(other)


def _meant(leaf: Leaf) -> tuple[Any, ...]:
    extra = {name: value for name, value in leaf.extra.items() if name != "version"}
    return leaf.content, leaf.title, leaf.steps, leaf.evidence, leaf.tags, leaf.kind, leaf.key, leaf.subject, extra
