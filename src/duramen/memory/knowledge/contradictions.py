"""Finds memories that cannot both hold, without a model."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from ...journal.events import moment
from ...journal.journal import Journal
from ...ports import MemoryQuery
from ..catalog.catalog import Catalog
from ..catalog.records import Memory
from ..extraction.claims import Claim, claims, contradict
from ..index.columns import EPISODE
from ..index.index_entry import READ_UPTO

_APART = frozenset((EPISODE, "procedure"))
"""Kinds that are not compared. Episodes record what was said, not what is true. Procedures have their own versions."""
_PERSONAL = re.compile(r"\b(?:i|me|my|mine|we|us|our|you|your|user)\b", re.IGNORECASE)
_MAX_CLAIMS = 200
"""How many claims about one topic are compared at most, so that a very common topic does not take too long."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two current memories that cannot both hold, and what they disagree on."""

    older: Memory
    newer: Memory
    reason: str


class ContradictionFinder:
    """Finds contradictions among current memories."""

    def __init__(self, journal: Journal, catalog: Catalog, is_decided: Callable[[str, str], Awaitable[bool]]) -> None:
        self._journal = journal
        self._catalog = catalog
        self._is_decided = is_decided

    async def find(self, audiences: tuple[bytes, ...] | None) -> list[Contradiction]:
        """All contradictions, newest first, each pair once. Pairs that were decided before are left out."""
        now = moment(self._journal.clock.now())
        claims_by_topic: dict[tuple[str, ...], list[tuple[Memory, Claim]]] = {}
        async for memory in self._catalog.listed(MemoryQuery(audiences, limit=2**31)):
            if memory.kind not in _APART and _holds(memory, now):
                for claim in claims(memory.content[:READ_UPTO], memory.speaker):
                    claims_by_topic.setdefault(claim.about, []).append((memory, claim))
        found: dict[tuple[str, str], Contradiction] = {}
        for claimed in claims_by_topic.values():
            for one in _contradictions(claimed):
                found.setdefault((one.older.source, one.newer.source), one)
        ordered = sorted(found.values(), key=lambda one: _age(one.newer), reverse=True)
        return [one for one in ordered if not await self._is_decided(one.older.id, one.newer.id)]


def _holds(memory: Memory, now: dt.datetime) -> bool:
    return all(end is None or end > now for end in (memory.valid_to, memory.expires))


def _age(memory: Memory) -> tuple[dt.datetime, dt.datetime, str]:
    return memory.valid_from, memory.confirmed, memory.source


def _contradictions(claimed: Sequence[tuple[Memory, Claim]]) -> Iterator[Contradiction]:
    newest = sorted(claimed, key=lambda pair: _age(pair[0]), reverse=True)[:_MAX_CLAIMS]
    for place, (newer, claim) in enumerate(newest):
        for older, before in newest[place + 1 :]:
            if contradict(before, claim) and _can_conflict(older, newer):
                yield Contradiction(older, newer, _disagreement(before, claim))


def _can_conflict(older: Memory, newer: Memory) -> bool:
    """Whether two memories have a common audience, hold at the same time, and mean the same person with "I"."""
    if older.valid_to is not None and older.valid_to <= newer.valid_from:
        return False
    places = {_scope_of(older), _scope_of(newer)}
    if _PERSONAL.search(older.content) or _PERSONAL.search(newer.content):
        return len(places) == 1 and older.speaker == newer.speaker
    return len(places) == 1 or ("workspace", None) in places


def _scope_of(memory: Memory) -> tuple[str, str | None]:
    where = {"subject": memory.subject, "session": memory.source.rpartition("#")[0]}
    return memory.scope, where.get(memory.scope)


def _disagreement(one: Claim, other: Claim) -> str:
    kind = one.about[0]
    if kind == "whole":
        return "one says what the other denies"
    if kind == "number":
        return f"{' '.join(one.value)} or {' '.join(other.value)}"
    said = f"{one.words} or {other.words}"
    return f"{one.about[2]}: {said}" if kind in ("relation", "attribute") else said
