"""Asks a model to resolve contradictions: one of two memories holds, or both, or one statement replaces both.

A decision is an event with its reason, appended in the transaction that applies it. It has a bookmark for each of the
two memories. So the model is not asked again, and forgetting a memory also removes the decisions that may quote it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import UnknownMemory, shown
from ...journal.events import Draft
from ...journal.journal import Journal
from ...journal.owners import Owner
from ...ports import Bookmark, BookmarkChanges, BookmarkQuery, MemoryChanges, MemoryQuery, MemoryRow, Model
from ..catalog.memory_event import ADDED, memory_data, memory_row
from ..catalog.records import Memory
from ..catalog.texts import MemoryTexts
from ..extraction.json_question import ask_json, text_of
from ..injection import suspicions
from .contradictions import Contradiction

DECIDED = "@memory.decided"
"""The session of decisions about memories."""
_TASK = (
    "Two remembered statements seem to disagree, `older` and `newer`; `disagreement` says on what. Decide which holds "
    'now. Answer with one JSON object: "decision": "newer" if the newer one replaces the older one, "older" if the '
    'newer one is wrong, "both" if both can be true at the same time, "merge" if one statement should say what both '
    'say together; "content": that statement, only for "merge"; "reason": why, in one sentence.'
)
_SESSION = b"t"
_TOKENS = 400
_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class Merged:
    """The outcome for two memories: the one that stays, and the one that ended, if any.

    `decision` is "same" if both say the same. If a model decided, it is "newer", "older", "merge", "both" or
    "undecided", with the `reason` it gave.
    """

    kept: Memory
    ended: Memory | None
    decision: str = "same"
    reason: str = ""


class _Pair(NamedTuple):
    """Two memories with their rows. They have the same owner and the same audience."""

    older: tuple[MemoryRow, Memory]
    newer: tuple[MemoryRow, Memory]
    owner: Owner


def _bookmark_name(id: str) -> str:
    return f"decided:{id}"


class Decisions:
    """The journaled decisions about pairs of memories."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def made(self, one: str, other: str) -> bool:
        """Whether there is a decision about two memories."""
        query = BookmarkQuery(_bookmark_name(one), other)
        return bool(await self._journal.store.bookmarks(self._journal.workspace, DECIDED, query))

    async def marks(self, id: str) -> list[Bookmark]:
        """The bookmarks of all decisions about a memory."""
        query = BookmarkQuery(_bookmark_name(id), limit=10_000)
        return await self._journal.store.bookmarks(self._journal.workspace, DECIDED, query)

    async def forget(self, id: str) -> int:
        """Remove all decisions about a memory. Returns how many."""
        marks = await self.marks(id)
        if not marks:
            return 0
        removed = [pair for mark in marks for pair in ((mark.name, mark.id), (_bookmark_name(mark.id), id))]
        stripped = await self._journal.bookmarks.digests(DECIDED, sorted({mark.position for mark in marks}))
        owner = await self._journal.owner(None)
        note = self._journal.prepare(Draft("memory.forgotten", {"ids": [id]}, "duramen"), owner)
        changes = (BookmarkChanges(removed=removed, stripped=stripped),)
        await self._journal.append_prepared(DECIDED, [note], owner, changes=changes)
        return len(stripped)


class ContradictionResolver:
    """Asks a model about contradictions and applies its decisions."""

    def __init__(self, journal: Journal, texts: MemoryTexts, decisions: Decisions) -> None:
        self._journal = journal
        self._texts = texts
        self._decisions = decisions

    async def resolve(self, found: list[Contradiction], model: Model, most: int) -> AsyncGenerator[Merged, None]:
        """Resolve at most `most` contradictions. Yields each outcome. If the answer cannot be used, the outcome is
        "undecided" with a reason, and the contradiction remains. Raises `ModelFailed`."""
        asked = 0
        for one in found:
            pair = await self._pair(one)
            if pair is None or await self._decisions.made(one.older.id, one.newer.id):
                continue
            if asked == most:
                return
            asked += 1
            about = {
                "older": _shown_to_model(one.older),
                "newer": _shown_to_model(one.newer),
                "disagreement": one.reason,
            }
            answer = await ask_json(model, _TASK, about, _TOKENS)
            decision, content, reason = _parse_answer(answer)
            if decision == "undecided":
                yield Merged(one.newer, None, decision, reason)
                continue
            for merged in await self._carry_out(pair, decision, content, reason, model.name):
                yield merged

    async def _pair(self, one: Contradiction) -> _Pair | None:
        """The rows of two memories; None if one is no longer current, or if they may not be combined. Memories are
        combined only within one owner and audience, and never in the scope of a session."""
        found = []
        for memory in (one.older, one.newer):
            rows = await self._journal.store.memories(self._journal.workspace, MemoryQuery(id=memory.id))
            found += [(row, memory) for row in rows if f"{row.session}#{row.position}" == memory.source]
        if len(found) < 2:
            return None
        (old, _), (new, _) = found
        owner = await self._journal.bookmarks.owner_of(old.owner)
        if owner is None or (old.audience, old.owner) != (new.audience, new.owner) or old.audience.startswith(_SESSION):
            return None
        return _Pair(found[0], found[1], owner)

    async def _carry_out(self, pair: _Pair, decision: str, content: str, reason: str, by: str) -> list[Merged]:
        """Apply a decision and journal it, in one transaction. Returns the outcomes."""
        (old_row, older), (new_row, newer) = pair.older, pair.newer
        now, owner = self._journal.clock.now(), pair.owner
        note = {"older": older.id, "newer": newer.id, "decision": decision, "reason": reason, "model": by}
        ended_rows = {"newer": [old_row], "older": [new_row], "merge": [old_row, new_row]}.get(decision, [])
        drafts = [Draft("memory.resolved", note, "duramen")]
        rows = []
        if decision == "merge":
            data = memory_data(content, newer.kind, _details(newer))
            drafts.append(Draft(ADDED, data, "duramen"))
            rows = [memory_row(DECIDED, 1, data, owner)]
        names = [(older.id, newer.id), (newer.id, older.id), *((row.id, older.id) for row in rows)]
        changes = (
            BookmarkChanges(
                bookmarks=[Bookmark(_bookmark_name(one), other, 0, 0, owner=owner.ref) for one, other in names]
            ),
            MemoryChanges(memories=rows, ended=[(row.number, now) for row in ended_rows]),
        )
        prepared = [self._journal.prepare(draft, owner, whole=True) for draft in drafts]
        await self._journal.append_prepared(DECIDED, prepared, owner, changes=changes)
        if decision == "both":
            return [Merged(newer, None, decision, reason)]
        if decision != "merge":
            kept, ended = (newer, older) if decision == "newer" else (older, newer)
            return [Merged(kept, ended, decision, reason)]
        made = await self._journal.store.memories(
            self._journal.workspace, MemoryQuery((rows[0].audience,), id=rows[0].id)
        )
        for memory in await self._texts.memories(made):
            return [Merged(memory, ended, decision, reason) for ended in (older, newer)]
        raise UnknownMemory(rows[0].id)  # forgotten meanwhile


def _shown_to_model(memory: Memory) -> dict[str, Any]:
    shown = {"said": memory.content, "on": f"{memory.valid_from:%Y-%m-%d %H:%M}", "by": memory.speaker}
    return {name: value for name, value in shown.items() if value}


def _details(memory: Memory) -> dict[str, Any]:
    """The details that a merged statement takes from the newer memory."""
    kept = {"key": memory.key, "title": memory.title, "speaker": memory.speaker, "scope": memory.scope}
    metadata = {"metadata": dict(memory.metadata)} if memory.metadata else {}
    return {**kept, **metadata, "importance": memory.importance, "confidence": memory.confidence}


def _parse_answer(answer: object) -> tuple[str, str, str]:
    """The decision of an answer, the content for a merge, and the reason; "undecided" if it cannot be used."""
    if not isinstance(answer, dict):
        return "undecided", "", "the answer is not an object"
    decision, reason = answer.get("decision"), text_of(answer.get("reason"), _LONGEST)
    if decision not in ("newer", "older", "both", "merge"):
        return "undecided", "", f"{shown(decision)} is not a decision"
    if reason is None:
        return "undecided", "", "the answer has no reason"
    content = text_of(answer.get("content"), _LONGEST) if decision == "merge" else ""
    if content is None:
        return "undecided", "", "the answer has no statement to replace both"
    why = suspicions(content)
    if why:
        return "undecided", "", f"the statement looks like instructions to a model: {'; '.join(why)}"
    return decision, content, reason
