"""Imports memory files of other programs, and exports memories to their formats.

A note becomes a memory, with its origin in the metadata. The same text from several files is one memory with several
origins. A note without text of its own, such as an index of links, is stored as an event. It is never recalled, but
an export can write the same files again.

Files can come from anyone. So a note about a person's preferences or identity, and a note that would replace a memory
about these, becomes a proposal, unless the caller trusts the files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from ...errors import InvalidInput
from ...journal.events import Draft, check_name, check_path
from ...journal.journal import Journal
from ...memory.catalog.catalog import HOME
from ...memory.catalog.memory_event import memory_data, memory_row
from ...memory.catalog.records import Memory
from ...memory.knowledge.proposals import Proposal
from ...memory.memory_service import MemoryService
from ...ports import MemoryQuery, MemoryRow
from ...runtime import run_blocking
from ..formats import Note, format_named
from ..formats.note import Role
from ..formats.note_folder import export_folder, import_folder
from .journal_edit import DECIDED_BY_PEOPLE, JournalEdit
from .memory_mapping import SUMMARY, TAGS, MemoryInput
from .report import SkippedFile

SESSION = "@imports"
"""The session for imported notes that are not memories."""
KEPT = "import.kept"
PLACES = "imported"
"""The metadata key for the origins of a memory."""
_KINDS = {Role.DAILY: "episode"}
_pack = msgspec.msgpack.encode
ProgressCallback = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class MemoriesImported:
    """What an import did. `added`: ids of memories that are new or have a new origin. `known`: number of notes that
    changed nothing. `skipped`: files or lines that were not imported, and why. `proposed`: ids of the proposals that a
    person has to decide on."""

    added: tuple[str, ...] = ()
    known: int = 0
    skipped: tuple[SkippedFile, ...] = ()
    proposed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoriesExported:
    """What an export did: the number of memories, and the paths that are new or changed."""

    memories: int
    written: tuple[str, ...]


class ImportExport:
    """Imports and exports the memories of a workspace."""

    def __init__(self, journal: Journal, service: MemoryService) -> None:
        self._journal = journal
        self._service = service

    async def import_from(
        self,
        root: str,
        format: str,
        subject: str | None,
        actor: str | None,
        trusted: bool,
        shown: ProgressCallback | None,
    ) -> MemoriesImported:
        """Import the notes in a folder or a file. Idempotent: a repeat changes nothing. A file that cannot be imported
        is reported in `skipped`. Unless `trusted`, notes about a person become proposals."""
        read = await run_blocking(lambda: import_folder(format_named(format), root))
        journal_edit = JournalEdit(self._service, actor or "import", f"imported from {format}")
        added: list[str] = []
        proposed: list[str] = []
        known, skipped = 0, [SkippedFile(one.path, one.reason, one.line) for one in read.problems]
        for number, note in enumerate(read.notes):
            if shown is not None:
                shown("Importing", number, len(read.notes))
            try:
                taken = await self._take(note, format, subject, journal_edit, trusted)
            except InvalidInput as error:
                skipped.append(SkippedFile(note.origin, error.message))
                continue
            known += taken is None
            if isinstance(taken, Proposal):
                proposed.append(taken.id)
            elif taken is not None:
                added.append(taken)
        if shown is not None and read.notes:
            shown("Importing", len(read.notes), len(read.notes))
        return MemoriesImported(tuple(added), known, tuple(skipped), tuple(dict.fromkeys(proposed)))

    async def _take(
        self, note: Note, format: str, subject: str | None, journal_edit: JournalEdit, trusted: bool
    ) -> str | Proposal | None:
        """Import a note. Returns the id of the memory, or the pending proposal, or None if nothing is new."""
        fields = note.metadata.get("fields")
        if subject is None and format == "jsonl" and isinstance(fields, Mapping):
            said_of = fields.get("subject")
            subject = said_of if isinstance(said_of, str) and said_of else None
        if note.role is Role.HEADING or (note.role is Role.INDEX and note.metadata.get("only_links")):
            await self._keep(note, subject)
            return None
        said = _said(note, subject, self._journal.clock.now())
        owner = await self._journal.owner(subject)
        row = memory_row(HOME, 0, memory_data(said.content, said.kind, said.details), owner)
        before = await self._service.catalog.current(row.id, row.audience)
        place = _place(note, said)
        if not trusted and await self._is_about_a_person(row):
            return await journal_edit.propose(said)
        if before is not None:
            places = _places(before.metadata)
            if place in places:
                return None
            said.details["metadata"] = {**said.details["metadata"], **before.metadata, PLACES: [*places, place]}
        return await journal_edit.say(said)

    async def _is_about_a_person(self, row: MemoryRow) -> bool:
        """Whether a memory is a preference or identity, or would replace one, because it has the same key."""
        rows = [row]
        if row.key is not None:
            query = MemoryQuery((row.audience,), key=row.key)
            rows += await self._journal.store.memories(self._journal.workspace, query)
        return any(one.kind in DECIDED_BY_PEOPLE and one.closed is None for one in rows)

    async def _keep(self, note: Note, subject: str | None) -> None:
        """Store a note that is not a memory. Idempotent."""
        data = _plain(note)
        owner = await self._journal.owner(subject)
        key = owner.address(_pack(data)).hex()  # keyed with the owner's salt: it reveals nothing after an erasure
        await self._journal.append(SESSION, [Draft(KEPT, data, "import")], key=key, subject=subject)

    # -- export

    async def export_to(
        self,
        root: str,
        format: str,
        memories: AsyncIterator[Memory],
        whose: Callable[[str | None], bool],
        shown: ProgressCallback | None,
    ) -> MemoriesExported:
        """Write memories to a folder in the format of another program. Memories that were imported from this format are
        written to their original files."""
        chosen, notes, count = format_named(format), [], 0
        show = shown or (lambda what, done, total: None)
        async for memory in memories:
            count += 1
            show("Reading", count, count)
            notes += list(_notes(memory, format))
        notes += [note async for note in self._kept(format, whose)]
        notes.sort(key=lambda note: (note.origin, note.metadata.get("order", 0)) if note.origin else ("\U0010ffff", 0))
        show_writing = partial(show, "Writing")
        return MemoriesExported(count, await run_blocking(lambda: export_folder(chosen, notes, root, show_writing)))

    async def _kept(self, format: str, whose: Callable[[str | None], bool]) -> AsyncGenerator[Note, None]:
        found: dict[tuple[str, int], Note] = {}
        async with aclosing(self._journal.reader.pages(SESSION, 1, None, frozenset({KEPT}), 500)) as pages:
            async for page in pages:
                for event in page:
                    if not event.erased and event.data["metadata"].get("format") == format and whose(event.subject):
                        note = _restored(event.data)
                        found[note.origin, note.metadata.get("order", 0)] = note  # the newest of each origin
        for note in found.values():
            yield note


def _said(note: Note, subject: str | None, now: int) -> MemoryInput:
    """A note as input for a memory."""
    metadata: dict[str, Any] = {}
    if note.tags:
        metadata[TAGS] = list(note.tags)
    if note.summary:
        metadata[SUMMARY] = note.summary
    kind = note.kind or _KINDS.get(note.role, "fact")
    content = note.text if note.text.strip() else note.title or note.summary or note.origin
    details: dict[str, Any] = {"title": _name(note.title), "key": _name(note.key), "metadata": metadata}
    if note.created is not None and note.created.timestamp() * 1e6 <= now and note.created.year >= 1970:
        details["valid_from"] = note.created
    details["lasting"] = True  # words such as "today" in an old note do not end the memory
    said = MemoryInput(content, kind, subject, details, (), None)
    metadata[PLACES] = [_place(note, said)]
    return said


def _name(text: str | None) -> str | None:
    """The text if it can be a title or a key, otherwise None. The origin stores it in both cases."""
    try:
        return check_name("title", text) if text else None
    except InvalidInput:
        return None


def _place(note: Note, said: MemoryInput) -> dict[str, Any]:
    """The origin of a note: all data that is needed to write its file again."""
    place = _plain(note)
    if said.content == note.text:
        del place["text"]
    return place


def _plain(note: Note) -> dict[str, Any]:
    times = {name: _iso(getattr(note, name)) for name in ("created", "updated")}
    names = ("text", "title", "summary", "kind", "key", "origin")
    plain = {name: getattr(note, name) for name in names} | times
    return {**plain, "role": note.role.value, "tags": list(note.tags), "metadata": dict(note.metadata)}


def _restored(plain: Mapping[str, Any]) -> Note:
    return Note(
        text=plain["text"],
        title=plain["title"],
        summary=plain["summary"],
        kind=plain["kind"],
        tags=tuple(plain["tags"]),
        key=plain["key"],
        created=_time(plain["created"]),
        updated=_time(plain["updated"]),
        role=Role(plain["role"]),
        origin=plain["origin"],
        metadata=plain["metadata"],
    )


def _iso(time: dt.datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time(text: str | None) -> dt.datetime | None:
    return None if text is None else dt.datetime.fromisoformat(text)


def _places(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = metadata.get(PLACES)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _notes(memory: Memory, format: str) -> list[Note]:
    """A memory as notes: one for each origin in this format, or a single new one."""
    places = _places(memory.metadata)
    own = [place for place in places if place.get("metadata", {}).get("format") == format]
    if own or places:
        return [_placed(memory, place) for place in own or places[:1]]
    fields = {"id": memory.id, "subject": memory.subject, "source": memory.source}
    said = {name: value for name, value in fields.items() if value is not None}
    return [
        Note(
            memory.content,
            title=memory.title,
            summary=memory.metadata.get(SUMMARY),
            kind=memory.kind,
            tags=_tags(memory),
            key=memory.key,
            created=memory.recorded,
            updated=memory.confirmed,
            metadata={"format": "jsonl", "fields": said} if format == "jsonl" else {},
        )
    ]


def _placed(memory: Memory, place: Mapping[str, Any]) -> Note:
    """The note of a memory at one of its origins, with the changes since the import."""
    note = _restored({"text": memory.content, **place})
    stored = _said(note, memory.subject, 0)
    # The same text may have several origins with different titles. None of these is a new title.
    titles = {stored.details["title"], *(_name(one.get("title")) for one in _places(memory.metadata))}
    now = {
        "text": note.text if memory.content == stored.content else memory.content,
        "title": note.title if memory.title in titles else memory.title,
        "summary": memory.metadata.get(SUMMARY) or (note.summary and None),
        "kind": note.kind if memory.kind == stored.kind else memory.kind,
        "key": note.key if memory.key == stored.details["key"] else memory.key,
        "tags": list(_tags(memory)),
    }
    if note.summary == "":
        now["summary"] = ""
    return _restored({**_plain(note), **now})


def _tags(memory: Memory) -> tuple[str, ...]:
    tags = memory.metadata.get(TAGS) or ()
    return tuple(map(str, tags)) if isinstance(tags, (list, tuple)) else (str(tags),)


def checked_path(path: object) -> str:
    """The path of a folder or a file as text. Raises `InvalidInput` if it is not a path."""
    return check_path(path, "give the path of a folder")
