"""Procedures: named steps in order. Every version is stored, with how often it worked.

A procedure is a memory of the kind "procedure". Its text is searched and recalled like any other. Its steps are in the
same event. All procedures are events of one session. A writer appends at the position it has read, so that one of two
concurrent writers fails and tries again.

An outcome is an event with the new counts and a bookmark, so that the counts are found without a scan. The same
transaction sets the importance of the memory. The memory keeps its id and its vector, and the journal explains its
importance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from ...errors import InvalidInput, PositionConflict, UnknownProcedure, shown
from ...journal.events import Draft, check_name
from ...journal.journal import Journal
from ...journal.owners import Owner
from ...journal.reader import PAGE
from ...ports import BatchChange, BookmarkChanges, MemoryChanges, MemoryQuery, MemoryRow, SubjectGone
from ..catalog.catalog import Catalog
from ..catalog.memory_event import ADDED, audience_of, default_scope, memory_data
from ..catalog.records import Memory, Recalled
from ..catalog.texts import MemoryTexts
from ..ranking.search import Search
from ..ranking.selection import SearchRequest
from .outcomes import COUNTS, FAILED, WORKED, OutcomeCounts, OutcomeLog

PROCEDURE = "procedure"
SESSION = "@procedures"
"""The session of all procedures and their outcomes."""
_FIELD = "procedure"
_PREFIX = "procedure:"
"""The prefix of the keys of procedures, so that a fact with the key "deploy" does not replace the procedure
"deploy"."""
_OWN = ("version", "standing")
"""Metadata that duramen sets for each version."""
_TRIES = 100
_MATCHING = 3
"""How many procedures `add_matching` adds at most."""
_pack = msgspec.msgpack.encode


@dataclass(frozen=True, slots=True)
class Procedure:
    """One version of a procedure. `version` counts from 1. `successes` and `failures` are of this version. A `standing`
    procedure is part of every recollection. `memory` is the memory that stores it."""

    name: str
    version: int
    steps: tuple[str, ...]
    title: str | None
    standing: bool
    successes: int
    failures: int
    memory: Memory

    @property
    def rate(self) -> float | None:
        """The share of outcomes that were successes; None before the first one."""
        return OutcomeCounts(self.successes, self.failures).rate

    @property
    def bound(self) -> float:
        """The lower bound of the rate at 95 % confidence; 0 before the first outcome. Use it to compare procedures: 98
        of 100 is better than 1 of 1."""
        return OutcomeCounts(self.successes, self.failures).bound

    @property
    def current(self) -> bool:
        """Whether this is the current version."""
        return self.memory.current

    @property
    def source(self) -> str:
        """The event that saved it, as ``"session#position"``."""
        return self.memory.source


class ProcedureEdit(NamedTuple):
    """What to save. None keeps the value of the previous version."""

    steps: tuple[str, ...]
    title: str | None = None
    standing: bool | None = None
    importance: float | None = None
    note: str | None = None
    metadata: Mapping[str, Any] | None = None


class _Version(NamedTuple):
    """A stored version: its row, and the data of its event."""

    row: MemoryRow
    data: Mapping[str, Any]

    @property
    def own(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.data[_FIELD]
        return found

    def is_unchanged_by(self, edit: ProcedureEdit, whole: bool) -> bool:
        """Whether an edit changes nothing. A `whole` edit states everything, as a memory file does, so its note is
        compared, too. In another edit, a note describes only the occasion, such as the run that the steps are from."""
        same = self.data.get("title") == edit.title and bool(self.own.get("standing")) == bool(edit.standing)
        same = same and (not whole or (edit.note or "") == self.note) and self.metadata == edit.metadata
        return same and tuple(self.own["steps"]) == edit.steps and self.data.get("importance", 0.5) == edit.importance

    @property
    def note(self) -> str:
        """The text after the steps."""
        return note_of(self.data)

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata, without those that duramen sets."""
        return {name: value for name, value in self.data.get("metadata", {}).items() if name not in _OWN}


class Procedures:
    """The procedures of one workspace."""

    def __init__(self, journal: Journal, texts: MemoryTexts, catalog: Catalog, search: Search) -> None:
        self._journal = journal
        self._texts = texts
        self._catalog = catalog
        self._search = search
        self._outcomes = OutcomeLog(journal, SESSION)

    # -- saving

    async def save(
        self,
        name: str,
        edit: ProcedureEdit,
        subject: str | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
        owner: Owner | None = None,
    ) -> Procedure:
        """Save a procedure as a new version. On return it is durable and can be found by its words. An edit that
        changes nothing makes no new version. With an `owner`, raises `SubjectGone` if that subject was erased
        meanwhile."""
        name = check_name("name of a procedure", name)
        if subject is not None:
            subject = check_name("subject", subject)
        for _ in range(_TRIES):
            head = await self._journal.reader.head(SESSION)
            whose = owner or await self._journal.owner(subject)
            audience = audience_of(default_scope(whose), whose.ref, SESSION)
            before = await self._versions(audience, name)
            current = next((one for one in before if one.row.closed is None), None)
            wanted = _completed(edit, current)
            if current is not None and current.is_unchanged_by(wanted, whole=edit.metadata is not None):
                return await self._procedure(current)
            number = 1 + max((one.own["version"] for one in before), default=0)
            data = _event(name, number, wanted)
            if current is not None and self._journal.clock.now() < current.row.begins:
                # The other writer's clock is ahead. This version must still be the newer one.
                data["valid_from"] = current.row.begins
            try:
                prepared = self._journal.prepare(Draft(ADDED, data, actor, cause), whose)
                await self._journal.append_prepared(SESSION, [prepared], whose, expected=head.position)
            except PositionConflict as conflict:
                last: Exception = conflict
            except SubjectGone as gone:
                self._journal.forget_owners()
                if owner is not None:
                    raise
                last = gone
            else:
                saved = next(one for one in await self._versions(audience, name) if one.own["version"] == number)
                return await self._procedure(saved)
        raise last

    # -- reading

    async def get(self, name: str, version: int | None = None, subject: str | None = None) -> Procedure | None:
        """The current version, or the given version; None if there is none."""
        kept = await self._one(name, version, subject)
        return None if kept is None else await self._procedure(kept)

    async def versions(self, name: str, subject: str | None = None) -> list[Procedure]:
        """Every version, oldest first."""
        for audience in await self._audiences(name, subject):
            found = await self._versions(audience, name)
            if found:
                return await self._procedures(found)
        return []

    async def listed(self, audiences: tuple[bytes, ...] | None) -> list[Procedure]:
        """The current procedures in these audiences, in the order in which they were saved."""
        found: list[_Version] = []
        query = MemoryQuery(audiences, kinds=(PROCEDURE,), limit=PAGE)
        while rows := await self._journal.store.memories(self._journal.workspace, query):
            found += await self._saved_versions(rows)
            query = query._replace(after=rows[-1].number)
        return await self._procedures(found)

    async def standing(self, audiences: tuple[bytes, ...]) -> list[Memory]:
        """The standing procedures in these audiences, oldest first."""
        return await self._search.with_metadata({"standing": True}, audiences, PROCEDURE)

    async def add_matching(self, query: str, audiences: tuple[bytes, ...], found: Recalled) -> Recalled:
        """The result of a search. If it has no procedure, those that match the query are added, because many facts can
        push procedures out of a result."""
        indexes = await self._search.index_cache.without_vectors(audiences)
        have_none = all(audience.kinds.find(PROCEDURE) < 0 for audience in indexes)
        if have_none or any(hit.memory.kind == PROCEDURE for hit in found):
            return found
        more = await self._search.find(SearchRequest(query, audiences, _MATCHING, frozenset([PROCEDURE])))
        return replace(found, hits=(*found.hits, *(hit for hit in more if hit.likeness > 0)))

    async def _audiences(self, name: str, subject: str | None) -> list[bytes]:
        """The audiences to search for a procedure: the subject's before the workspace's."""
        name = check_name("name of a procedure", name)
        return list(reversed(await self._catalog.audiences(subject, None)))

    async def _one(self, name: str, version: int | None, subject: str | None) -> _Version | None:
        if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 1):
            raise InvalidInput(f"`version` cannot be {shown(version)}", hint="give a whole number from 1")
        for audience in await self._audiences(name, subject):
            if version is None:
                rows = await self._rows(MemoryQuery((audience,), key=_PREFIX + name))
                found = await self._saved_versions(rows)
            else:
                found = [one for one in await self._versions(audience, name) if one.own["version"] == version]
            if found:
                return found[0]
        return None

    async def _versions(self, audience: bytes, name: str) -> list[_Version]:
        rows = await self._rows(MemoryQuery((audience,), key=_PREFIX + name, history=True, limit=2**31))
        kept = {one.own["version"]: one for one in await self._saved_versions(rows)}
        return [kept[version] for version in sorted(kept)]

    async def _rows(self, query: MemoryQuery) -> list[MemoryRow]:
        return await self._journal.store.memories(self._journal.workspace, query)

    async def _saved_versions(self, rows: Sequence[MemoryRow]) -> list[_Version]:
        """The procedures among these rows. Forgotten, erased and damaged ones are left out."""
        texts = await self._texts.event_data(rows)
        kept = [_Version(row, texts[row.number]) for row in rows if row.number in texts and row.intact]
        return [one for one in kept if one.row.session == SESSION and isinstance(one.data.get(_FIELD), dict)]

    async def _procedure(self, kept: _Version) -> Procedure:
        found = await self._procedures([kept])
        if not found:
            raise UnknownProcedure(str(kept.own["name"]))  # erased meanwhile
        return found[0]

    async def _procedures(self, kept: Sequence[_Version]) -> list[Procedure]:
        memories = {memory.source: memory for memory in await self._texts.memories([one.row for one in kept])}
        counts = await self._outcomes.counts([one.row.position for one in kept])
        procedures = []
        for row, data in kept:
            memory, own = memories.get(f"{row.session}#{row.position}"), data[_FIELD]
            if memory is not None:
                steps, standing = tuple(own["steps"]), bool(own.get("standing"))
                outcomes = counts.get(row.position, OutcomeCounts())
                procedures.append(
                    Procedure(own["name"], own["version"], steps, memory.title, standing, *outcomes, memory)
                )
        return procedures

    # -- outcomes

    async def log_outcome(
        self,
        name: str,
        worked: bool,
        *,
        version: int | None,
        subject: str | None,
        reason: str | None,
        actor: str | None,
        cause: int | str | None,
        key: str | None,
    ) -> Procedure:
        """Log an outcome. With a key, it is logged exactly once. Returns the procedure with its new counts. Raises
        `UnknownProcedure`."""
        if reason is not None and (not isinstance(reason, str) or not reason.strip()):
            raise InvalidInput(f"`reason` cannot be {shown(reason)}", hint="give a text that is not empty")
        for _ in range(_TRIES):
            head = await self._journal.reader.head(SESSION)
            kept = await self._one(name, version, subject)
            owner = None if kept is None else await self._journal.bookmarks.owner_of(kept.row.owner)
            if kept is None or owner is None:
                raise UnknownProcedure(name, version)
            position = kept.row.position
            outcomes = (await self._outcomes.counts([position])).get(position, OutcomeCounts()).plus(worked)
            data = {"name": name, "version": kept.own["version"], "of": position, **outcomes._asdict()}
            if reason is not None:
                data["reason"] = reason
            draft = Draft(WORKED if worked else FAILED, data, actor, position if cause is None else cause)
            changes = (
                BookmarkChanges(bookmarks=[self._outcomes.bookmark(position, owner)]),
                MemoryChanges(weighed=[(kept.row.number, outcomes.weigh(kept.data.get("importance", 0.5)))]),
            )
            try:
                await self._append(draft, owner, head.position, _outcome_key(kept.row.audience, name, key), changes)
            except PositionConflict as conflict:
                last: Exception = conflict
            except SubjectGone as gone:
                self._journal.forget_owners()
                last = gone
            else:
                found = await self.get(name, kept.own["version"], subject)
                if found is None:
                    raise UnknownProcedure(name, version)
                return found
        raise last

    async def forget(self, name: str, subject: str | None, actor: str | None) -> int:
        """Remove every version and every outcome of a procedure. Returns the number of versions. Raises
        `UnknownProcedure`."""
        for _ in range(_TRIES):
            head = await self._journal.reader.head(SESSION)
            for audience in await self._audiences(name, subject):
                rows = await self._rows(MemoryQuery((audience,), key=_PREFIX + name, history=True, limit=2**31))
                if rows:
                    break
            else:
                raise UnknownProcedure(name)
            saved = {row.position for row in rows if row.session == SESSION}
            positions = sorted(saved | set(await self._outcomes.positions(saved)))
            changes = (
                BookmarkChanges(
                    stripped=await self._journal.bookmarks.digests(SESSION, positions),
                    removed=[(COUNTS, str(position)) for position in sorted(saved)],
                ),
                MemoryChanges(forgotten=sorted(row.number for row in rows)),
            )
            draft = Draft("memory.forgotten", {"ids": sorted({row.id for row in rows})}, actor)
            try:
                await self._append(draft, await self._journal.owner(None), head.position, None, changes)
            except PositionConflict as conflict:
                last = conflict
                continue
            await self._journal.purge()
            return len(saved)
        raise last

    async def _append(
        self, draft: Draft, owner: Owner, expected: int, key: str | None, changes: Sequence[BatchChange]
    ) -> None:
        prepared = self._journal.prepare(draft, owner, whole=True)
        await self._journal.append_prepared(SESSION, [prepared], owner, key=key, expected=expected, changes=changes)


def checked_steps(steps: object) -> tuple[str, ...]:
    """The steps as a tuple. Raises `InvalidInput`."""
    if isinstance(steps, (str, bytes)) or not isinstance(steps, Sequence) or not steps:
        raise InvalidInput(f"`steps` cannot be {shown(steps)}", hint="give a list of texts, one for each step")
    for step in steps:
        if not isinstance(step, str) or not step.strip():
            raise InvalidInput(f"a step cannot be {shown(step)}", hint="give a text that says what to do")
    return tuple(steps)


def _completed(edit: ProcedureEdit, before: _Version | None) -> ProcedureEdit:
    data: Mapping[str, Any] = {} if before is None else before.data
    return edit._replace(
        title=data.get("title") if edit.title is None else edit.title,
        standing=bool(data.get(_FIELD, {}).get("standing")) if edit.standing is None else edit.standing,
        importance=data.get("importance", 0.5) if edit.importance is None else edit.importance,
        metadata=(before.metadata if before is not None else {}) if edit.metadata is None else dict(edit.metadata),
    )


def _event(name: str, version: int, edit: ProcedureEdit) -> dict[str, Any]:
    """The data of the event that saves a version."""
    lines = _lines(name, version, edit.steps)
    content = "\n".join([*lines, edit.note] if edit.note else lines)
    kept = {"version": version, "standing": True} if edit.standing else {"version": version}
    details = {
        "key": _PREFIX + name,
        "title": edit.title,
        "importance": edit.importance,
        "metadata": {**(edit.metadata or {}), **kept},
    }
    data = memory_data(content, PROCEDURE, details)
    data[_FIELD] = {"name": name, "version": version, "steps": list(edit.steps), "standing": bool(edit.standing)}
    return data


def _lines(name: str, version: int, steps: Sequence[str]) -> list[str]:
    return [f"{name}, version {version}", *(f"{number}. {step}" for number, step in enumerate(steps, 1))]


def note_of(data: Mapping[str, Any]) -> str:
    """The note of a procedure's event: the text after its steps."""
    own, content = data[_FIELD], str(data["content"])
    head = "\n".join(_lines(own["name"], own["version"], own["steps"]))
    return content.removeprefix(head).removeprefix("\n")


def _outcome_key(audience: bytes, name: str, key: str | None) -> str | None:
    """The idempotency key of an outcome. It does not depend on the version."""
    if key is None:
        return None
    return "outcome:" + blake2b(_pack((audience, name, check_name("idempotency key", key))), digest_size=16).hexdigest()
