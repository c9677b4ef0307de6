"""Working memory: the context window of a session, built from its journal and nothing else.

The newest compaction says up to which event the conversation lies in summaries; the window is those summaries and what
was said since. Whoever finds too much of it compacts first, which is journaled, and then builds from what is journaled:
what is built never depends on who built it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import models
from ..crashpoints import reach
from ..errors import CheckpointConflict
from ..journal.events import Draft, Event
from ..journal.journal import Journal
from ..ports import TALK, Beside, Landmark, TokenCounter
from ..runtime import aside
from .compacting import Piece, Summary, Written, ask, due, extract, merge_due, pieces, room_for_one
from .counting import counter_for
from .entries import Entries
from .fitting import EARLIER, Counting, Fitting, Section
from .rendering import Context
from .talk import Priority, Unit, units
from .window import Window

COMPACTED = "context"
"""The name of the landmarks that compactions set."""
_NEAR = 200
"""Events that are read in a row, with all that lies between those of the conversation, and verified as a chain."""
_AT_ONCE = 2_000
"""Entries that one pass of compaction takes up."""
_KEPT_PROMPTS = 20
Sections = Callable[[int, Window, Counting], Awaitable[list[Section]]]
"""What else belongs into the memory as of a position: a hand-off, the progress."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """Up to where a conversation lies in summaries. `beyond` are answers after that which are part of them; `kept` are
    older entries that are always shown."""

    upto: int = 0
    beyond: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    summaries: tuple[int, ...] = ()
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a context is built from, as of a position."""

    position: int
    compaction: Compaction
    summaries: tuple[Summary, ...]
    units: tuple[Unit, ...]
    backlog: int
    """Entries that are not read yet, because there are too many to do at once."""


class WorkingMemory:
    """The context windows of a workspace's sessions."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._entries: dict[tuple[str, int], tuple[Entries, Counting]] = {}

    async def context(
        self, session: str, window: Window, *, at: int | None, system: str, sections: Sections
    ) -> Context:
        """The context at the session's end, compacted first if that is due; or as it was at a position."""
        entries, counting = self._made_with(window)
        while True:
            head = (await self._journal.reading.head(session)).position
            position = head if at is None else min(at, head)
            talk = await self._read(session, position, whole=at is None)
            if at is not None or not await self._compact(session, talk, window, counting, entries):
                break
        added = await sections(position, window, counting)
        fitted = Fitting(session, window, entries, counting).fit(system, [*added, *self._sections(talk)], talk.units)
        return Context(
            session,
            position,
            fitted.system,
            fitted.memory,
            fitted.said,
            fitted.tokens,
            window.budget,
            counting.counter.name,
            fitted.trace,
        )

    def _made_with(self, window: Window) -> tuple[Entries, Counting]:
        counter = counter_for(window.counter)
        place = (counter.name, window.mask_to)
        known = self._entries.get(place)
        if known is None or known[1].counter is not counter:
            known = self._entries[place] = (Entries(counter, window.mask_to), Counting(counter))
        return known

    @staticmethod
    def _sections(talk: Conversation) -> list[Section]:
        return [Section("summary", EARLIER, one.text, one.first, one.last) for one in talk.summaries if one.text]

    # -- reading

    async def _read(self, session: str, position: int, *, whole: bool) -> Conversation:
        compaction = await self._compaction(session, position)
        places = [
            place
            for place in await self._places(session, compaction.upto + 1, position, None if whole else _AT_ONCE)
            if place not in compaction.beyond
        ]
        backlog = 0
        if len(places) > _AT_ONCE:
            backlog, places = len(places) - _AT_ONCE, places[:_AT_ONCE] if whole else places[-_AT_ONCE:]
        events = [
            *await self._events(session, compaction.kept),
            *await self._talk(session, compaction, position, places),
        ]
        summaries = [_summary(event) for event in await self._events(session, compaction.summaries) if not event.erased]
        ordered = tuple(sorted(summaries, key=lambda one: (one.first, one.last)))
        return Conversation(position, compaction, ordered, tuple(units(events)), backlog if whole else 0)

    async def _compaction(self, session: str, position: int) -> Compaction:
        found = await self._journal.landmarks.newest(session, COMPACTED, upto=position)
        if found is None:
            return Compaction()
        events = await self._journal.landmarks.events(found.session, [found.landmark.position])
        data: dict[str, Any] = events[0].data
        places = (tuple(data["beyond"]), tuple(data["kept"]), tuple(data["summaries"]))
        return Compaction(data["upto"], *places, id=found.landmark.id)

    async def _places(self, session: str, first: int, last: int, limit: int | None) -> list[int]:
        """Where the events of the conversation lie, in order; the newest ones, if there is a limit."""
        found: list[int] = []
        stretches = [*await self._journal.reading.lineage(session)]
        shared = stretches[-1].last if stretches else 0
        for origin, low, high in [
            (session, shared + 1, last),
            *((one[0], one[1], one[2]) for one in reversed(stretches)),
        ]:
            low, high = max(low, first), min(high, last)
            if low <= high and (limit is None or len(found) < limit):
                most = 10**9 if limit is None else limit - len(found)
                found += await self._journal.store.talk(self._journal.workspace, origin, low, high, most)
        found.reverse()
        return found

    async def _talk(self, session: str, compaction: Compaction, last: int, places: Sequence[int]) -> list[Event]:
        """Those events, verified: as a chain with all that lies between, unless that is too much."""
        first = compaction.upto + 1
        if last - first >= _NEAR or not places:
            return await self._events(session, places)
        events = await self._journal.reading.events(session, first, last, None)
        return [event for event in events if event.type.startswith(TALK) and event.position not in compaction.beyond]

    async def _events(self, session: str, places: Sequence[int]) -> list[Event]:
        """Single events of the session and what it was forked from, in order."""
        if not places:
            return []
        found: list[Event] = []
        stretches = [*await self._journal.reading.lineage(session)]
        shared = stretches[-1].last if stretches else 0
        for origin, low, high in [*stretches, (session, shared + 1, max(places))]:
            here = [place for place in places if low <= place <= high]
            if here:
                found += await self._journal.landmarks.events(origin, here)
        return found

    # -- compacting

    async def _compact(
        self, session: str, talk: Conversation, window: Window, counting: Counting, entries: Entries
    ) -> bool:
        """Summarise what is due, as journaled events; whether there was something. Somebody else may have done it."""
        tokens = sum(entries.make(session, unit, window.masked_from).tokens for unit in talk.units)
        tokens += sum(counting.text(one.text) for one in talk.summaries)
        doomed = list(talk.units) if talk.backlog else due(talk.units, tokens, window)
        doomed = [unit for unit in doomed if unit.priority is not Priority.ALWAYS]
        if not doomed:
            return False
        limit = room_for_one(window)
        blocks = list(talk.summaries)
        for piece in pieces(doomed, counting.counter):
            blocks.append(await self._summarise(session, piece, limit, window, counting.counter))
        while (piece_ := merge_due(blocks, [counting.text(one.text) for one in blocks], window)) is not None:
            merged = await self._summarise(session, piece_, limit, window, counting.counter)
            blocks = sorted([one for one in blocks if one not in piece_.merged] + [merged], key=lambda one: one.first)
        await self._note(session, talk, doomed, blocks)
        return True

    async def _summarise(
        self, session: str, piece: Piece, limit: int, window: Window, counter: TokenCounter
    ) -> Summary:
        """A summary that is journaled, by whoever was first: a model is not asked twice."""
        for event in await self._known(session, piece.key):
            return _summary(event)
        written = await self._written(piece, limit, window, counter)
        reach("context.summarised")
        data = {"first": piece.first, "last": piece.last, "level": piece.level, "text": written.text}
        draft = Draft("context.summary", {**data, "by": written.by, "note": written.note}, "holdfast")
        (event,) = await self._journal.append(session, [draft], key=piece.key, subject=piece.subject)
        return _summary(event)

    async def _known(self, session: str, key: str) -> list[Event]:
        """The event under an idempotency key, in the session or what it was forked from."""
        shared = await self._journal.reading.lineage(session)
        for origin, last in [(session, None), *((one.session, one.last) for one in shared)]:
            place = await self._journal.store.find(self._journal.workspace, origin, key)
            if place is not None and (last is None or place <= last):
                events = await self._journal.landmarks.events(origin, [place])
                return [event for event in events if not event.erased]
        return []

    async def _written(self, piece: Piece, limit: int, window: Window, counter: TokenCounter) -> Written:
        if window.model is None:
            return extract(piece, limit, counter)
        model = models.load(window.model) if isinstance(window.model, str) else window.model
        return await aside(lambda: ask(model, piece, limit, counter))

    async def _note(self, session: str, talk: Conversation, doomed: Sequence[Unit], blocks: Sequence[Summary]) -> None:
        """Journal up to where the conversation lies in summaries now."""
        before = talk.compaction
        gone = {unit.position for unit in doomed}
        upto = max(gone)
        stay = [unit.position for unit in talk.units if unit.priority is Priority.ALWAYS and unit.position <= upto]
        beyond = {unit.last for unit in talk.units if unit.position in gone and unit.last > upto}
        data = {
            "upto": max(upto, before.upto),
            "beyond": sorted(beyond | {place for place in before.beyond if place > upto}),
            "kept": sorted(stay)[-_KEPT_PROMPTS:],
            "summaries": [one.position for one in blocks],
        }
        owner = await self._journal.owner(None)
        prepared = [self._journal.prepare(Draft("context.compacted", data, "holdfast"), owner)]
        landmark = Landmark(COMPACTED, self._journal.ids.random(6).hex(), 0, self._journal.clock.now(), owner=owner.ref)
        own = await self._journal.landmarks.newest(session, COMPACTED)
        last = own.landmark.id if own is not None and own.session == session else None
        if own is not None and own.landmark.id != before.id:
            return  # somebody else compacted meanwhile
        try:
            await self._journal.append_prepared(
                session, prepared, owner, beside=Beside((landmark,), after=(COMPACTED, last))
            )
        except CheckpointConflict:
            return  # the same


def _summary(event: Event) -> Summary:
    data = event.data
    return Summary(event.position, data["first"], data["last"], data["level"], data["text"], event.subject)
