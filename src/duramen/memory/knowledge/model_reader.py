"""Lets a model read the conversation every few turns, to find what the rules miss.

The model's answer is journaled before it is used. If the process is killed then, the next one continues from the answer
and does not ask the model again about the same turns. Each candidate is checked against the turns. The decisions are
appended with their reasons, exactly once, and the same append removes the answer. An event with a bookmark records how
far a session was read.

If the model fails, only its candidates are missing, because the rules have read every turn. The failure is journaled,
and the model reads these turns together with the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

from ...crash_points import reach
from ...errors import ModelFailed
from ...journal.events import Draft
from ...journal.journal import Journal
from ...journal.owners import Owner
from ...ports import Bookmark, BookmarkChanges, BookmarkQuery, MemoryChanges, Model, SubjectGone
from ..catalog.memory_event import memory_row
from ..extraction.json_question import ask_json
from ..extraction.rules.model_check import FIELDS, KINDS, CheckedCandidate, check_candidate, parse_candidates
from ..extraction.rules.turn_reader import turns_between
from ..extraction.rules.turns import PROCEDURE, TurnRecord
from ..index.index_worker import IndexWorker
from .procedures import Procedures
from .promotion import DONE, LEASE, SESSION, decision_notes, idempotency_key, learn_procedure, memory_draft
from .proposals import ProposalDraft, Proposals

ANSWERED, READ, FAILED = "writeback.answered", "writeback.reread", "writeback.model_failed"
_MARK = "reread"
_MODEL_LEASE = 180_000_000
"""How long the lease lasts while a model answers, in microseconds. It must be longer than the slowest answer."""
_RETRY_AFTER = 60_000_000
"""How long to wait before a failed model is asked again, in microseconds."""
_MAX_TURNS = 20
"""How many turns the model reads at once, newest ones. Only the rules have read the older ones."""
_MAX_CHARACTERS = 2_000
_TOKENS = 1_500
_TASK = (
    "You read the last turns of a conversation between a user and an assistant, in `turns`, and list what is worth "
    "remembering for weeks or longer because the USER said so: facts about their work, rules, references, ways to do "
    "something that worked, and what they wish or say about themselves. No small talk, no questions, no guesses, "
    "nothing that holds only now, no temporary failures, no secrets, nothing that only the assistant or a tool said. "
    'Answer with a JSON object {"candidates": [...]}. Each candidate is an object with "kind": one of '
    + ", ".join(KINDS)
    + '; "content": one short statement that can be understood by itself, in which the user is called "The user"; for '
    'a procedure what it is for; for a profile the bare value; "key": for a profile one of '
    + ", ".join(FIELDS)
    + ', else null; "steps": for a procedure its steps in their order, else []; "confidence": a number from 0 to 1; '
    '"quote": the words of the user that say it, copied exactly. If there is nothing, answer {"candidates": []}.'
)


class ModelReaderSettings(NamedTuple):
    """The model, after how many turns it reads them, and the policy for text that looks like instructions."""

    model: Model
    every: int = 5
    policy: str = "flag"


class _Progress(NamedTuple):
    """The position up to which a session was read, and the position up to which a read was tried."""

    upto: int
    tried: int


class _TurnRange(NamedTuple):
    """Turns with the same owner that the model reads together."""

    session: str
    turns: list[TurnRecord]
    owner: Owner
    fence: int | None

    @property
    def place(self) -> str:
        return f"{self.turns[0].position}-{self.turns[-1].position}"


class ModelReader:
    """Lets a model read the sessions of a workspace."""

    def __init__(
        self,
        journal: Journal,
        procedures: Procedures,
        proposals: Proposals,
        index_worker: IndexWorker,
        settings: ModelReaderSettings,
    ) -> None:
        self._journal = journal
        self._procedures = procedures
        self._proposals = proposals
        self._index_worker = index_worker
        self._settings = settings
        self._retry_at = 0

    async def read(self, session: str, position: int, fence: int | None, *, now: bool = False) -> int:
        """Let the model read the turns of a session up to a position. Without `now`, only if there are enough new
        turns. Returns the number of candidates. A failure of the model is journaled, not raised."""
        mark = await self._progress(session)
        if position <= mark.upto or (not now and self._journal.clock.now() < self._retry_at):
            return 0
        turns_read = await turns_between(self._journal, session, mark.upto + 1, position)
        fresh = sum(turn.position > mark.tried for turn, _ in turns_read)
        if not turns_read or (not now and fresh < self._settings.every):
            return 0
        found = 0
        try:
            for subject, group in groupby(turns_read[-_MAX_TURNS:], key=lambda one: one[1]):
                found += await self._read_range(session, [turn for turn, _ in group], subject, fence)
        except ModelFailed as failure:
            self._retry_at = self._journal.clock.now() + _RETRY_AFTER
            await self._failed(session, mark, position, failure, fence)
            return found
        await self._note(READ, {"session": session, "upto": position, "tried": position}, fence)
        return found

    async def _read_range(self, session: str, turns: list[TurnRecord], subject: str | None, fence: int | None) -> int:
        owner = await self._owner_of(subject)
        if owner is None:
            return 0
        # Read the turns again now that the owner is known. If the owner is erased after this, the appends fail.
        again = await turns_between(self._journal, session, turns[0].position, turns[-1].position)
        if [turn.position for turn, _ in again] != [turn.position for turn in turns]:
            return 0
        turn_range = _TurnRange(session, turns, owner, fence)
        try:
            return await self._keep(turn_range, *await self._answer(turn_range))
        except SubjectGone:
            self._journal.forget_owners()
            return 0

    async def _owner_of(self, subject: str | None) -> Owner | None:
        if subject is None:
            return await self._journal.owner(None)
        row = await self._journal.store.subject(self._journal.workspace, subject)
        return None if row is None else await self._journal.bookmarks.owner_of(row.ref)

    # -- asking

    async def _answer(self, turn_range: _TurnRange) -> tuple[int, list[dict[str, Any]]]:
        """The position and the candidates of the journaled answer about these turns. If there is none, the model is
        asked. Position 0 if these turns are done. Raises `ModelFailed`."""
        store, workspace = self._journal.store, self._journal.workspace
        if (
            await store.find(workspace, SESSION, idempotency_key("reread", turn_range.session, turn_range.place))
            is not None
        ):
            return 0, []
        key = idempotency_key("answer", turn_range.session, turn_range.place)
        position = await store.find(workspace, SESSION, key)
        if position is None:
            if turn_range.fence is not None:
                now = self._journal.clock.now()
                await store.renew(workspace, SESSION, turn_range.fence, now, now + _MODEL_LEASE)
            candidates = await self._ask_model(turn_range.turns)
            where = f"{turn_range.session}#{turn_range.place}"
            data = {"turns": where, "model": self._settings.model.name, "candidates": candidates}
            draft = Draft(ANSWERED, data, "duramen")
            prepared = self._journal.prepare(draft, turn_range.owner, whole=True)
            await self._journal.append_prepared(SESSION, [prepared], turn_range.owner, key=key, fence=turn_range.fence)
            position = await store.find(workspace, SESSION, key)
            if turn_range.fence is not None:
                now = self._journal.clock.now()
                await store.renew(workspace, SESSION, turn_range.fence, now, now + LEASE)
        reach("writeback.answered")
        events = await self._journal.bookmarks.events(SESSION, [position or 0])
        answered = [] if not events or events[0].erased else events[0].data["candidates"]
        return position or 0, answered

    async def _ask_model(self, turns: Sequence[TurnRecord]) -> list[dict[str, Any]]:
        answer = await ask_json(self._settings.model, _TASK, {"turns": [_shown(turn) for turn in turns]}, _TOKENS)
        candidates = parse_candidates(answer)
        if candidates is None:
            raise ModelFailed(
                self._settings.model.name, "its answer has no list of candidates", hint="try a larger model"
            )
        return candidates

    # -- storing

    async def _keep(self, turn_range: _TurnRange, answer: int, candidates: Sequence[dict[str, Any]]) -> int:
        """Propose, learn or remember each candidate that passes the check, and journal every decision. Returns the
        number of candidates."""
        if not answer:
            return 0
        key = idempotency_key("reread", turn_range.session, turn_range.place)
        found = [check_candidate(one, turn_range.turns, self._settings.policy) for one in candidates]
        for one in found:
            if one.finding.keep and one.proposed:
                await self._propose(one, turn_range)
        for number, one in enumerate(found):
            if one.finding.keep and not one.proposed:
                await learn_procedure(
                    self._procedures, one.finding, turn_range.session, turn_range.owner, f"{key}:{number}"
                )
        reach("writeback.proposed")
        await self._append(found, turn_range, answer, key)
        self._index_worker.wake()
        return len(found)

    async def _propose(self, one: CheckedCandidate, turn_range: _TurnRange) -> None:
        finding, owner = one.finding, turn_range.owner
        details: dict[str, Any] = {"confidence": one.confidence} | ({} if one.key is None else {"key": one.key})
        source = f"{turn_range.session}#{finding.position}"
        wanted = ProposalDraft(finding.content, finding.kind, details, finding.evidence, finding.reason, source)
        await self._proposals.make(wanted, owner.name, "duramen", owner=owner)

    async def _append(self, found: Sequence[CheckedCandidate], turn_range: _TurnRange, answer: int, key: str) -> None:
        where = f"{turn_range.session}#{turn_range.place}"
        data = {"turns": where, "model": self._settings.model.name, "decided": _decision_notes(found)}
        drafts = [Draft(DONE, data, "duramen", f"{turn_range.session}#{turn_range.turns[-1].position}")]
        for one in found:
            if one.finding.keep and not one.proposed and one.finding.kind != PROCEDURE:
                drafts.append(memory_draft(one.finding, turn_range.session, one.confidence))
        owner = turn_range.owner
        prepared = [self._journal.prepare(draft, owner) for draft in drafts]
        rows = [memory_row(SESSION, index, one.data, owner) for index, one in enumerate(prepared) if index]
        changes = (
            BookmarkChanges(stripped=await self._journal.bookmarks.digests(SESSION, [answer])),
            MemoryChanges(memories=rows),
        )
        await self._journal.append_prepared(SESSION, prepared, owner, key=key, fence=turn_range.fence, changes=changes)

    # -- progress

    async def _progress(self, session: str) -> _Progress:
        query = BookmarkQuery(_MARK, _id(session))
        marks = await self._journal.store.bookmarks(self._journal.workspace, SESSION, query)
        events = await self._journal.bookmarks.events(SESSION, [one.position for one in marks if one.intact])
        if events:
            return _Progress(events[0].data["upto"], events[0].data["tried"])
        shared = await self._journal.reader.lineage(
            session
        )  # turns from before a fork are read in the original session
        return _Progress(shared[-1].last, shared[-1].last) if shared else _Progress(0, 0)

    async def _failed(
        self, session: str, mark: _Progress, position: int, failure: ModelFailed, fence: int | None
    ) -> None:
        note = {
            "session": session,
            "upto": mark.upto,
            "tried": position,
            "model": self._settings.model.name,
            "error": str(failure)[:500],
            "instead": "the rules alone",
        }
        await self._note(FAILED, note, fence)

    async def _note(self, type: str, data: dict[str, Any], fence: int | None) -> None:
        owner = await self._journal.owner(None)
        prepared = [self._journal.prepare(Draft(type, data, "duramen"), owner)]
        changes = (BookmarkChanges(bookmarks=[Bookmark(_MARK, _id(data["session"]), 0, 0)]),)
        await self._journal.append_prepared(SESSION, prepared, owner, fence=fence, changes=changes)


def _id(session: str) -> str:
    return blake2b(session.encode(), digest_size=16).hexdigest()


def _decision_notes(found: Sequence[CheckedCandidate]) -> list[dict[str, Any]]:
    noted = decision_notes([one.finding for one in found])
    return [note | {"proposed": True} if one.proposed else note for note, one in zip(noted, found, strict=True)]


def _shown(turn: TurnRecord) -> dict[str, Any]:
    """A turn as the model sees it. Tool outputs are left out, because the user did not say them."""
    commands = [f"{call.command or call.tool}: {'worked' if call.ok else 'failed'}" for call in turn.calls[:20]]
    shown = {"user": _cut(turn.user), "assistant": _cut(turn.assistant), "done": [_cut(one, 200) for one in commands]}
    return {name: value for name, value in shown.items() if value}


def _cut(text: str, most: int = _MAX_CHARACTERS) -> str:
    return text if len(text) <= most else text[:most] + " \u2026"
