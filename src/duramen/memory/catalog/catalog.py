"""The catalog of a workspace: remember, read, revise and forget memories."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...crash_points import reach
from ...errors import UnknownMemory
from ...journal.encoder import Prepared
from ...journal.events import Draft, check_name
from ...journal.journal import Journal
from ...journal.owners import Owner
from ...ports import BookmarkChanges, MemoryChanges, MemoryQuery, MemoryRow, Record, SubjectGone
from ...stores.common.memory_rows import Ledger
from .memory_event import (
    ADDED,
    MemoryInput,
    audience_of,
    has_extra_details,
    is_memory,
    memory_data,
    memory_data_list,
    memory_row,
)
from .records import ForgetReport, Memory, memory_of
from .texts import MemoryTexts

HOME = "@memory"
"""The session of memories that belong to no other session."""
_PAGE = 500
_EXTRA_DETAILS = ("title", "metadata", "relations")
"""Details that a later event may add to a memory."""


class Catalog:
    """Stores, reads and removes memories."""

    def __init__(self, journal: Journal, texts: MemoryTexts, forget_decisions: Callable[[str], Awaitable[int]]) -> None:
        self._journal = journal
        self._texts = texts
        self._forget_decisions = forget_decisions

    async def remember(
        self,
        session: str,
        content: str,
        kind: str,
        details: Mapping[str, Any],
        *,
        subject: str | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
        key: str | None = None,
    ) -> Memory:
        """Store a memory at the end of a session. On return it is durable and can be found by its words."""
        draft = Draft(ADDED, memory_data(content, kind, details, self._journal.clock.now()), actor, cause)
        (memory,) = await self._add(session, [draft], subject, key)
        return memory

    async def remember_all(
        self,
        session: str,
        contents: Iterable[MemoryInput],
        kind: str,
        details: Mapping[str, Any],
        *,
        subject: str | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
    ) -> list[Memory]:
        """Store several memories in one append: all or none."""
        every = memory_data_list(contents, kind, details, self._journal.clock.now())
        return await self._add(session, [Draft(ADDED, data, actor, cause) for data in every], subject) if every else []

    async def _add(
        self, session: str, drafts: Sequence[Draft], subject: str | None, key: str | None = None
    ) -> list[Memory]:
        if subject is not None:
            subject = check_name("subject", subject)
        while True:
            owner = await self._journal.owner(subject)
            prepared, change = await self._prepare(session, drafts, owner)
            try:
                done = await self._journal.append_prepared(session, prepared, owner, key=key, changes=(change,))
            except SubjectGone:
                self._journal.forget_owners()
                continue
            met = {row.id for row in change.memories} if done.repeated else done.touched.met
            return [
                (await self._stored(session, event.position) if row.id in met else None)
                # If it is missing, another caller forgot it just now. Return it as it was given.
                or memory_of(_row_at(row, event), one.data, subject)
                for event, row, one in zip(done.records, change.memories, prepared, strict=True)
            ]

    async def _prepare(
        self, session: str, drafts: Sequence[Draft], owner: Owner
    ) -> tuple[list[Prepared], MemoryChanges]:
        """The events and rows of new memories. An event that lacks details which the same memory already has, gets
        them."""
        prepared: list[Prepared] = []
        rows: list[MemoryRow] = []
        renewing: list[int] = []
        said: dict[tuple[bytes, str], list[int]] = {}
        """The places of each id and key in this append."""
        for place, draft in enumerate(drafts):
            one = self._journal.prepare(draft, owner)
            row = memory_row(session, place, one.data, owner)
            names = [
                (row.audience, f"id {row.id}"),
                *([(row.audience, f"key {row.key}")] if row.key is not None else []),
            ]
            if has_extra_details(one.data):
                places = sorted({at for name in names for at in said.get(name, ())})
                current = await self._current_after(row, [(rows[at], at in renewing) for at in places])
                in_append = current is not None and current.number < 0
                known = prepared[current.position].data if current and in_append else await self._known_details(current)
                whole = _merge_details(one.data, known)
                if whole is not None:
                    renewing.append(place)
                    one = self._journal.prepare(Draft(ADDED, whole, draft.actor, draft.cause), owner)
            for name in names:
                said.setdefault(name, []).append(place)
            prepared.append(one)
            rows.append(row)
        return prepared, MemoryChanges(memories=tuple(rows), renewing=tuple(renewing))

    async def _current_after(self, row: MemoryRow, before: Sequence[tuple[MemoryRow, bool]]) -> MemoryRow | None:
        """The row with the id of this memory that will be current when the memory is stored; None if there is none.

        `before` are the earlier rows of the same append with the same id or key, each with whether it is renewing. A
        row of the same append has a number below 0.
        """
        rows = await self._rows(MemoryQuery((row.audience,), id=row.id))
        if not before:
            return rows[0] if rows else None
        if row.key is not None:
            rows = await self._all_rows(MemoryQuery((row.audience,), key=row.key))
        ledger, now = Ledger(_CurrentRows(rows), 0), self._journal.clock.now()
        for one, renewing in before:
            ledger.enter(_row_timed(one, now), renewing)
        return ledger.current(row.id)

    async def _known_details(self, row: MemoryRow | None) -> Mapping[str, Any] | None:
        """The stored details of a memory that a later event may take over."""
        memories = await self._texts.memories([] if row is None else [row])
        if not memories:
            return None
        (known,) = memories
        related = [list(one) for one in known.relations]
        return {"title": known.title, "metadata": dict(known.metadata), "relations": related}

    async def _stored(self, session: str, position: int) -> Memory | None:
        """The memory of an event; None if it was forgotten."""
        (event,) = await self._journal.bookmarks.events(session, [position])
        if not isinstance(event.data, dict):
            return None
        owner: Owner = await self._journal.owner(event.subject)
        row = memory_row(session, 0, event.data, owner)
        found = await self.current(row.id, row.audience)
        if found is None:
            rows = [
                one
                for one in await self._all_rows(MemoryQuery(id=row.id, history=True))
                if one.audience == row.audience
            ]
            memories = await self._texts.memories(rows)
            found = memories[-1] if memories else None
        return found

    async def current(self, id: str, audience: bytes | None = None) -> Memory | None:
        """The current memory of an id; None if there is none."""
        audiences = None if audience is None else (audience,)
        memories = await self._texts.memories(await self._rows(MemoryQuery(audiences, id=id)))
        return memories[0] if memories else None

    async def get(self, id: str) -> Memory:
        """A memory by its id: the current one, otherwise the newest. Raises `UnknownMemory`."""
        rows = await self._all_rows(MemoryQuery(id=check_name("id of a memory", id), history=True))
        found = await self._texts.memories(rows)
        if not found:
            raise UnknownMemory(id)
        return next((one for one in found if one.current), found[-1])

    async def by_source(self, source: str, session: str, subject: str | None) -> Memory:
        """The memory of an event, if a subject in a session may see it. Raises `UnknownMemory`."""
        where, _, position = source.rpartition("#")
        audiences = await self.audiences(subject, session)
        events = []
        if where and position.isdecimal() and len(position) < 18:
            events = await self._journal.bookmarks.events(where, [int(position)])
        for event in events:
            if event.type == ADDED and isinstance(event.data, dict) and not event.erased and is_memory(event.data):
                row = memory_row(where, 0, event.data, await self._journal.owner(event.subject))
                found = await self.current(row.id, row.audience) if row.audience in audiences else None
                if found is not None:
                    return found
        raise UnknownMemory(source)

    async def history(self, id: str) -> list[Memory]:
        """Every version of a memory, oldest first: each statement of it, memories with the same key in the same scope,
        and memories that it replaced by an edit."""
        ids, rows = {check_name("id of a memory", id)}, await self._versions(id)
        newest = rows
        while newest:
            older = sorted(await self._revised_ids(newest) - ids)
            newest = [row for one in older for row in await self._versions(one)]
            ids |= set(older)
            rows += newest
        unique = sorted({row.number: row for row in rows}.values(), key=lambda row: (row.recorded, row.number))
        return await self._texts.memories(unique)

    async def _versions(self, id: str) -> list[MemoryRow]:
        rows = await self._all_rows(MemoryQuery(id=id, history=True))
        keyed = {(row.audience, row.key) for row in rows if row.key is not None}
        for audience, key in sorted(keyed):
            rows += await self._all_rows(MemoryQuery((audience,), key=key, history=True))
        return rows

    async def _revised_ids(self, rows: Sequence[MemoryRow]) -> set[str]:
        """The ids of the memories that these replaced by `revise`. Its event names the replaced one as the cause."""
        found: set[str] = set()
        for revised in await self._journal.bookmarks.events(
            HOME, [row.position for row in rows if row.session == HOME]
        ):
            where, _, position = str(revised.cause or "").rpartition("#")
            before = [int(position)] if where and position.isdecimal() and len(position) < 18 else []
            for event in await self._journal.bookmarks.events(where, before) if before else ():
                if event.type == ADDED and isinstance(event.data, dict) and not event.erased and is_memory(event.data):
                    owner = await self._journal.owner(event.subject)
                    found.add(memory_row(where, 0, event.data, owner).id)
        return found

    async def listed(self, query: MemoryQuery) -> AsyncGenerator[Memory, None]:
        """Yield memories in the order in which they were stored."""
        left = query.limit
        while left > 0:
            rows = await self._rows(query._replace(limit=min(left, _PAGE)))
            for memory in await self._texts.memories(rows):
                yield memory
            if len(rows) < min(left, _PAGE):
                return
            left -= len(rows)
            query = query._replace(after=rows[-1].number)

    async def _rows(self, query: MemoryQuery) -> list[MemoryRow]:
        return await self._journal.store.memories(self._journal.workspace, query)

    async def _all_rows(self, query: MemoryQuery) -> list[MemoryRow]:
        """All rows, page by page."""
        found: list[MemoryRow] = []
        while rows := await self._rows(query._replace(after=found[-1].number if found else 0, limit=_PAGE)):
            found += rows
        return found

    async def audiences(self, subject: str | None, session: str | None) -> tuple[bytes, ...]:
        """The audiences that a subject in a session may see: the workspace's, the subject's, the session's."""
        found = [b""]
        if subject is not None:
            row = await self._journal.store.subject(self._journal.workspace, check_name("subject", subject))
            if row is not None:
                found.append(audience_of("subject", row.ref, ""))
        if session is not None:
            found.append(audience_of("session", None, check_name("session", session)))
        return tuple(found)

    # -- confirming

    async def confirm(self, id: str, *, actor: str | None = None) -> Memory:
        """State a memory again with the same text, so that it counts as fresh. Raises `UnknownMemory` if it is unknown
        or has ended."""
        rows = await self._rows(MemoryQuery(id=check_name("id of a memory", id)))
        texts = await self._texts.event_data(rows)
        for row in rows:
            owner = await self._journal.bookmarks.owner_of(row.owner)
            if row.number not in texts or owner is None:
                continue
            session = row.session if row.audience[:1] == b"t" else HOME  # session scope: only this session sees it
            draft = Draft(ADDED, dict(texts[row.number]), actor, f"{row.session}#{row.position}")
            prepared = self._journal.prepare(draft, owner)
            again = memory_row(session, 0, prepared.data, owner)
            await self._journal.append_prepared(session, [prepared], owner, changes=(MemoryChanges(memories=(again,)),))
        found = await self.current(id) if texts else None
        if found is None:
            raise UnknownMemory(id)
        return found

    # -- changing

    async def revise(
        self,
        row: MemoryRow,
        content: str,
        kind: str,
        details: Mapping[str, Any],
        *,
        subject: str | None = None,
        actor: str | None = None,
    ) -> Memory:
        """Replace a memory by another text in one transaction. The old text becomes history. Raises `InvalidInput`, and
        `UnknownMemory` if another caller forgets it meanwhile."""
        data = memory_data(content, kind, details, self._journal.clock.now())
        draft = Draft(ADDED, data, actor, f"{row.session}#{row.position}")
        owner = await self._journal.owner(subject)
        prepared = self._journal.prepare(draft, owner)
        new = memory_row(HOME, 0, prepared.data, owner)
        if (new.id, new.audience) == (row.id, row.audience):  # the same text: only its details are new
            return await self.remember(HOME, content, kind, details, subject=subject, actor=actor)
        changes = (MemoryChanges(memories=(new,), ended=((row.number, self._journal.clock.now()),)),)
        done = await self._journal.append_prepared(HOME, [prepared], owner, changes=changes)
        stored = await self._stored(HOME, done.records[0].position)
        if stored is None:
            raise UnknownMemory(new.id)
        return stored

    async def retire(self, row: MemoryRow, *, actor: str | None = None, successor: str | None = None) -> str:
        """End a memory and keep it in the history. `successor` is the id of the memory that replaces it. Returns the
        event as "session#position"."""
        said = {"id": row.id} if successor is None else {"id": row.id, "successor": successor}
        owner = await self._journal.owner(None)
        note = self._journal.prepare(Draft("memory.retired", said, actor, f"{row.session}#{row.position}"), owner)
        changes = (MemoryChanges(ended=((row.number, self._journal.clock.now()),)),)
        done = await self._journal.append_prepared(HOME, [note], owner, changes=changes)
        return f"{HOME}#{done.records[0].position}"

    # -- forgetting

    async def forget(self, id: str, *, actor: str | None = None) -> ForgetReport:
        """Remove a memory: its rows, words and vectors, and its text from every event that stated it. Raises
        `UnknownMemory`."""
        query = MemoryQuery(id=check_name("id of a memory", id), history=True)
        rows = await self._all_rows(query)
        if not rows:  # forgotten before, perhaps by a process that was killed before the purge: finish it
            await self._journal.purge()
            raise UnknownMemory(id)
        report, done = _NOTHING, set[int]()
        while rows:
            report = _sum(report, await self._forget(rows, actor))
            done |= {row.number for row in rows}
            rows = [row for row in await self._all_rows(query) if row.number not in done]  # stated again meanwhile
        await self._journal.purge()
        return report._replace(memories=1)

    async def forget_before(
        self, time: int, kinds: Sequence[str] | None, audiences: tuple[bytes, ...] | None, *, actor: str | None = None
    ) -> ForgetReport:
        """Forget the memories that were last stated before a time."""
        rows = await self._all_rows(MemoryQuery(audiences, kinds=None if kinds is None else tuple(kinds), history=True))
        said: dict[tuple[bytes, str], int] = {}
        for row in rows:
            said[row.audience, row.id] = max(row.confirmed, said.get((row.audience, row.id), row.confirmed))
        old = [row for row in rows if said[row.audience, row.id] < time]
        report = _NOTHING
        for first in range(0, len(old), _PAGE):
            report = _sum(report, await self._forget(old[first : first + _PAGE], actor))
        if old:
            await self._journal.purge()
        return report._replace(memories=sum(last < time for last in said.values()))

    async def _forget(self, rows: Sequence[MemoryRow], actor: str | None) -> ForgetReport:
        decisions = 0
        for id in sorted({row.id for row in rows}):
            decisions += await self._forget_decisions(id)
        report = ForgetReport(0, len(rows), 0, 0, 0, decisions)
        by_session: dict[str, list[MemoryRow]] = {}
        for row in rows:
            by_session.setdefault(row.session, []).append(row)
        for session, gone in sorted(by_session.items()):
            digests = await self._journal.bookmarks.digests(session, sorted({row.position for row in gone}))
            note = Draft("memory.forgotten", {"ids": sorted({row.id for row in gone})}, actor)
            owner = await self._journal.owner(None)
            changes = (BookmarkChanges(stripped=digests), MemoryChanges(forgotten=sorted(row.number for row in gone)))
            reach("memory.forgetting")
            prepared = [self._journal.prepare(note, owner)]
            done = await self._journal.append_prepared(session, prepared, owner, changes=changes)
            report = _sum(report, ForgetReport(0, 0, len(digests), done.touched.words, done.touched.vectors, 0))
        return report


_NOTHING = ForgetReport(0, 0, 0, 0, 0, 0)


def _sum(one: ForgetReport, other: ForgetReport) -> ForgetReport:
    return ForgetReport(*(a + b for a, b in zip(one, other, strict=True)))


def _merge_details(data: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The data of an event; where it has no title, metadata or relations, it gets those known `before`. None if the
    result equals what was known: the memory is then only confirmed, and its vector is not computed again."""
    if before is None:
        return None
    whole = data | {name: before[name] for name in _EXTRA_DETAILS if before.get(name) and not data.get(name)}
    return None if all((whole.get(name) or None) == (before.get(name) or None) for name in _EXTRA_DETAILS) else whole


def _row_at(row: MemoryRow, event: Record) -> MemoryRow:
    """A new row at the position and time of its event."""
    return _row_timed(row, event.time)._replace(position=event.position)


def _row_timed(row: MemoryRow, time: int) -> MemoryRow:
    return row._replace(
        recorded=time,
        confirmed=time,
        begins=row.begins or time,
        expires=None if row.expires is None else time + row.expires,
    )


class _CurrentRows(NamedTuple):
    """The current rows of one key."""

    rows: Sequence[MemoryRow]

    def current(self, id: str) -> MemoryRow | None:
        return next((row for row in self.rows if row.id == id), None)

    def keyed(self, key: str) -> Sequence[MemoryRow]:
        return self.rows
