"""Proposals: statements about a person that the person accepts or dismisses before they are saved.

A proposal is an event of one session, with a bookmark for its state: "pending", "accepted" or "dismissed". Accepting it
appends the decision and its effect in one transaction. The effect is a memory, a profile field, or the persona. A
writer appends at the position it has read, so that only one of two concurrent decisions succeeds.

The id of a proposal is a hash of its content, keyed with its owner's salt. So a dismissed proposal is recognized when
it is made again, and the id reveals nothing once the owner is erased.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import InvalidInput, PositionConflict, ProposalDecided, UnknownProposal, shown
from ...journal.events import Draft, Event, check_name, moment
from ...journal.journal import Journal
from ...journal.owners import Owner
from ...journal.reader import PAGE
from ...ports import BatchChange, Bookmark, BookmarkChanges, BookmarkQuery, MemoryChanges, MemoryRow, SubjectGone
from ..catalog.catalog import Catalog
from ..catalog.memory_event import ADDED, check_unicode, default_scope, memory_data, memory_id, memory_row
from .persona import Persona

SESSION = "@proposals"
"""The session of all proposals and decisions."""
MADE, ACCEPTED, DISMISSED = "proposal.made", "proposal.accepted", "proposal.dismissed"
PROFILE, PERSONA = "profile", "persona"
"""Kinds of proposals that do not become a memory."""
_TRIES = 100
_LOOSE = re.compile(r"[\W_]+")


class ProposalState(enum.StrEnum):
    """The state of a proposal."""

    PENDING = "pending"
    """Not decided yet, and not saved."""
    ACCEPTED = "accepted"
    """Saved, possibly with an edited text."""
    DISMISSED = "dismissed"
    """Not saved, and not proposed again."""


_OPEN = (ProposalState.PENDING, ProposalState.DISMISSED)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something that is saved once a person accepts it.

    - `kind`: the kind of the memory, or "profile" (`key` is the field, `content` its value), or "persona".
    - `evidence`, `source`: what was said, and its event.
    - `reason`: why it was proposed.
    - `decided`, `decided_by`, `note`: time, actor and note of the decision.
    - `memory`: the id of the memory that it became.
    """

    id: str
    kind: str
    content: str
    key: str | None
    title: str | None
    subject: str | None
    evidence: str
    reason: str
    confidence: float
    source: str | None
    state: ProposalState
    made: dt.datetime
    decided: dt.datetime | None = None
    decided_by: str | None = None
    note: str | None = None
    memory: str | None = None


class ProposalDraft(NamedTuple):
    """What to propose, and why. `details` are the details of a memory."""

    content: str
    kind: str
    details: Mapping[str, Any]
    evidence: str = ""
    reason: str = ""
    source: str | None = None


class _Decision(NamedTuple):
    """A decision: its events, and the projection writes that go with them."""

    drafts: Sequence[Draft]
    changes: Sequence[BatchChange]


class Proposals:
    """The proposals of one workspace."""

    def __init__(self, journal: Journal, catalog: Catalog, persona: Persona) -> None:
        self._journal = journal
        self._catalog = catalog
        self._persona = persona

    # -- making

    async def make(
        self,
        draft: ProposalDraft,
        subject: str | None = None,
        actor: str | None = None,
        accepted: bool = False,
        owner: Owner | None = None,
    ) -> Proposal | None:
        """Make a proposal. It is durable on return. If the same proposal is pending or dismissed, that one is returned
        unchanged. Returns None if the content is already known. With `accepted`, the actor accepts it in the same
        transaction. With an `owner`, raises `SubjectGone` if that subject was erased meanwhile."""
        data = _checked(draft)
        if subject is not None:
            subject = check_name("subject", subject)
        for _ in range(_TRIES):
            head = await self._journal.reader.head(SESSION)
            whose = owner or await self._journal.owner(None if draft.kind == PERSONA else subject)
            id = _identity(whose, data)
            before = await self._state_bookmark(id)
            if before is not None and before.name != ProposalState.ACCEPTED and not accepted:
                return await self._read(before)
            if await self._is_known(data, whose):
                return None
            drafts = [Draft(MADE, {"id": id, **data}, actor, draft.source)]
            if accepted:
                fields = await self._fields(data, whose)
                decided = self._acceptance(id, data, whose, actor, fields, of=head.position + 1, first=1)
                drafts += decided.drafts
                changes = [
                    one._replace(removed=[(state, id) for state in _OPEN]) if isinstance(one, BookmarkChanges) else one
                    for one in decided.changes
                ]
            else:
                mark = Bookmark(ProposalState.PENDING, id, 0, 0, owner=whose.ref)
                # An accepted proposal whose content is not known now was forgotten.
                changes = [BookmarkChanges(bookmarks=[mark], removed=[(ProposalState.ACCEPTED, id)])]
            try:
                await self._append(drafts, whose, head.position, changes)
            except (PositionConflict, SubjectGone) as error:
                last = self._retryable(error)
                if owner is not None and isinstance(error, SubjectGone):
                    raise
            else:
                return await self.get(id)
        raise last

    async def _is_known(self, data: Mapping[str, Any], owner: Owner) -> bool:
        if data["kind"] == PERSONA:
            return bool(await self._persona.text() == data["content"])
        if data["kind"] == PROFILE:
            return bool((await self._persona.fields(owner)).get(data["key"]) == data["content"])
        row = memory_row(SESSION, 0, data["memory"], owner)
        return await self._catalog.current(row.id, row.audience) is not None

    async def _fields(self, data: Mapping[str, Any], owner: Owner) -> dict[str, str]:
        return await self._persona.fields(owner) if data["kind"] == PROFILE else {}

    def _retryable(self, error: Exception) -> Exception:
        if isinstance(error, SubjectGone):
            self._journal.forget_owners()
        return error

    # -- reading

    async def get(self, id: str) -> Proposal:
        """A proposal by its id. Raises `UnknownProposal`."""
        mark = await self._state_bookmark(check_name("id of a proposal", id))
        found = None if mark is None else await self._read(mark)
        if found is None:
            raise UnknownProposal(id)
        return found

    async def listed(self, state: ProposalState, subject: str | None, everyone: bool) -> AsyncGenerator[Proposal, None]:
        """Yield proposals in a state, newest first: those of a subject and those without a subject. With `everyone`,
        all of them."""
        owners = None if everyone else {one.ref for one in await self._owners(subject)}
        async with aclosing(self._journal.bookmarks.find(SESSION, BookmarkQuery(state.value))) as marks:
            async for found in marks:
                if owners is None or found.bookmark.owner in owners:
                    proposal = await self._read(found.bookmark)
                    if proposal is not None:
                        yield proposal

    async def _owners(self, subject: str | None) -> list[Owner]:
        owners = [await self._journal.owner(None)]
        if subject is not None:
            subject = check_name("subject", subject)
            if await self._journal.store.subject(self._journal.workspace, subject) is not None:
                owners.append(await self._journal.owner(subject))
        return owners

    async def _state_bookmark(self, id: str) -> Bookmark | None:
        for state in ProposalState:
            async with aclosing(self._journal.bookmarks.find(SESSION, BookmarkQuery(state.value, id), page=1)) as marks:
                async for found in marks:
                    return found.bookmark
        return None

    async def _read(self, mark: Bookmark) -> Proposal | None:
        """A proposal from the bookmark on its newest event; None if it was erased."""
        position = mark.position if mark.intact else await self._newest_position(mark.id)
        event = await self._event(position)
        if event is None:
            return None
        made = event if event.type == MADE else await self._event(event.data["of"])
        return None if made is None else _proposal(made, event)

    async def _newest_position(self, id: str) -> int:
        """The position of the newest event of a proposal, from a scan of the journal because the bookmark is
        damaged."""
        newest, types = 0, frozenset({MADE, ACCEPTED, DISMISSED})
        async with aclosing(self._journal.reader.pages(SESSION, 1, None, types, PAGE)) as pages:
            async for page in pages:
                newest = max([newest, *(one.position for one in page if not one.erased and one.data.get("id") == id)])
        return newest

    async def _event(self, position: int) -> Event | None:
        events = await self._journal.bookmarks.events(SESSION, [position])
        return events[0] if events and not events[0].erased else None

    # -- deciding

    async def accept(
        self, id: str, *, content: str | None = None, title: str | None = None, actor: str | None = None
    ) -> Proposal:
        """Accept a proposal and save it. `content` replaces its text. Raises `UnknownProposal` and
        `ProposalDecided`."""
        return await self._decide(id, lambda made: _edited(made, content, title), None, actor)

    async def dismiss(self, id: str, *, note: str | None = None, actor: str | None = None) -> Proposal:
        """Dismiss a proposal, so that it is not proposed again. Raises `UnknownProposal` and `ProposalDecided`."""
        if note is not None and (not isinstance(note, str) or not note.strip()):
            raise InvalidInput(f"`note` cannot be {shown(note)}", hint="give a text that is not empty")
        return await self._decide(id, None, note, actor)

    async def _decide(
        self,
        id: str,
        edit: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None,
        note: str | None,
        actor: str | None,
    ) -> Proposal:
        id = check_name("id of a proposal", id)
        for _ in range(_TRIES):
            head = await self._journal.reader.head(SESSION)
            mark = await self._state_bookmark(id)
            proposal = None if mark is None else await self._read(mark)
            if mark is None or proposal is None:
                raise UnknownProposal(id)
            if proposal.state is not ProposalState.PENDING:
                raise ProposalDecided(id, proposal.state.value, proposal.decided_by)
            made = await self._event(mark.position if mark.intact else await self._newest_position(id))
            owner = await self._journal.owner(proposal.subject)
            if made is None:
                raise UnknownProposal(id)
            if edit is None:
                decided = self._dismissal(id, made.position, owner, note, actor)
            else:
                data = edit(made.data)
                fields = await self._fields(data, owner)
                decided = self._acceptance(id, data, owner, actor, fields, of=made.position)
            try:
                await self._append(decided.drafts, owner, head.position, decided.changes)
            except (PositionConflict, SubjectGone) as error:
                last = self._retryable(error)
            else:
                return await self.get(id)
        raise last

    def _dismissal(self, id: str, of: int, owner: Owner, note: str | None, actor: str | None) -> _Decision:
        data = {"id": id, "of": of} if note is None else {"id": id, "of": of, "note": note}
        mark = Bookmark(ProposalState.DISMISSED, id, 0, 0, owner=owner.ref)
        changes = (BookmarkChanges(bookmarks=[mark], removed=[(ProposalState.PENDING, id)]),)
        return _Decision((Draft(DISMISSED, data, actor, of),), changes)

    def _acceptance(
        self,
        id: str,
        data: Mapping[str, Any],
        owner: Owner,
        actor: str | None,
        fields: Mapping[str, str],
        *,
        of: int,
        first: int = 0,
    ) -> _Decision:
        """The decision to accept. Its event has the index `first` in the append."""
        row: MemoryRow | None = None
        if data["kind"] in (PROFILE, PERSONA):
            effect, where = self._persona.change(data["kind"], data.get("key"), data["content"], fields, owner)
            marks = [where._replace(position=first + 1)]
        else:
            effect, marks = Draft(ADDED, dict(data["memory"])), []
            row = memory_row(SESSION, first + 1, data["memory"], owner)
        said: dict[str, Any] = {"id": id, "of": of, "content": data["content"]}
        if row is not None:
            said["memory"] = row.id
        marks.append(Bookmark(ProposalState.ACCEPTED, id, first, 0, owner=owner.ref))
        drafts = (Draft(ACCEPTED, said, actor, of), Draft(effect.type, effect.data, actor, of))
        rows = () if row is None else (row,)
        return _Decision(
            drafts,
            (BookmarkChanges(bookmarks=marks, removed=[(ProposalState.PENDING, id)]), MemoryChanges(memories=rows)),
        )

    async def _append(
        self, drafts: Sequence[Draft], owner: Owner, expected: int, changes: Sequence[BatchChange]
    ) -> None:
        prepared = [self._journal.prepare(draft, owner, whole=True) for draft in drafts]
        await self._journal.append_prepared(SESSION, prepared, owner, expected=expected, changes=changes)


def _checked(draft: ProposalDraft) -> dict[str, Any]:
    """The data of a proposal's event. Raises `InvalidInput`."""
    if draft.source is not None:
        check_name("source", draft.source)
    if draft.kind in (PROFILE, PERSONA):
        if not isinstance(draft.content, str) or not draft.content.strip():
            raise InvalidInput("there is nothing to propose", hint="give a text that is not empty")
        check_unicode(draft.content)
        memory = None
        if draft.kind == PROFILE and draft.details.get("key") is None:
            raise InvalidInput("a proposal for the profile needs a field", hint='give a key, such as key="name"')
        key = None if draft.kind == PERSONA else check_name("key", draft.details["key"])
    else:
        memory = memory_data(draft.content, draft.kind, draft.details)
        key = memory.get("key")
    confidence = memory_data("-", "-", {"confidence": draft.details.get("confidence", 1.0)}).get("confidence", 1.0)
    data = {
        "kind": check_name("kind", draft.kind),
        "content": draft.content,
        "key": key,
        "evidence": draft.evidence,
        "reason": draft.reason,
        "confidence": confidence,
        "source": draft.source,
        "memory": memory,
    }
    return {name: value for name, value in data.items() if value is not None}


def _identity(owner: Owner, data: Mapping[str, Any]) -> str:
    """The id of a proposal. Case and punctuation of the content do not change it, except for a persona."""
    session = "" if data["kind"] in (PROFILE, PERSONA) else str(data["memory"].get("scope") or default_scope(owner))
    loose = data["content"] if data["kind"] == PERSONA else _LOOSE.sub(" ", data["content"].casefold())
    return memory_id(owner, session.encode(), data["kind"], data.get("key"), "proposal", loose or data["content"])


def _edited(made: Mapping[str, Any], content: str | None, title: str | None) -> dict[str, Any]:
    """The data of a proposal with an edited text. The confidence is dropped, because a person has accepted it."""
    data = dict(made)
    if content is not None and (not isinstance(content, str) or not content.strip()):
        raise InvalidInput("there is nothing to accept", hint="give a text that is not empty, or leave out `content`")
    if content is not None:
        check_unicode(content)
        data["content"] = content
    if "memory" in data:
        memory = {**data["memory"], "content": data["content"]}
        memory.pop("confidence", None)
        if data.get("evidence"):  # stored with the memory, because the session of the evidence may be removed
            memory["metadata"] = {"evidence": [data["evidence"]], **memory.get("metadata", {})}
        if title is not None:
            memory["title"] = check_name("title", title)
        data["memory"] = memory
    return data


def _proposal(made: Event, newest: Event) -> Proposal:
    data, decided = made.data, newest is not made
    state = {MADE: ProposalState.PENDING, ACCEPTED: ProposalState.ACCEPTED, DISMISSED: ProposalState.DISMISSED}
    memory = data.get("memory") or {}
    return Proposal(
        id=data["id"],
        kind=data["kind"],
        content=newest.data.get("content", data["content"]),
        key=data.get("key"),
        title=memory.get("title"),
        subject=made.subject,
        evidence=data.get("evidence", ""),
        reason=data.get("reason", ""),
        confidence=data.get("confidence", 1.0),
        source=data.get("source"),
        state=state[newest.type],
        made=moment(made.time),
        decided=moment(newest.time) if decided else None,
        decided_by=newest.actor if decided else None,
        note=newest.data.get("note") if decided else None,
        memory=newest.data.get("memory") if decided else None,
    )
