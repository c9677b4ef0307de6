"""Working memory: the context window of a session, built from its journal and nothing else.

The newest compaction says up to which event the conversation lies in summaries; the window is those summaries and what
was said since. Whoever finds too much of it compacts first, which is journaled, and then builds from what is journaled:
what is built never depends on who built it.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from ...crash_points import reach
from ...errors import CheckpointConflict, JournalDamaged, StoreReadOnly
from ...journal.events import Draft, Event
from ...journal.journal import Journal
from ...models import load_model
from ...ports import TALK, Beside, Bookmark, BookmarkQuery, TokenCounter
from ...runtime import Lock, run_blocking
from ..compaction.compaction import (
    Piece,
    Summary,
    Written,
    ask,
    due,
    extract,
    merge_due,
    overflow,
    pieces,
    room_for_one,
)
from ..tokens.counters import counter_for
from .context import Context, ContextTrace, Shown
from .conversation import Priority, Unit, units
from .conversation_reader import Gathering
from .entries import Entries
from .fit import EARLIER, Counting, Fitting, Section
from .settings import Window

COMPACTED = "context"
"""The name of the bookmarks that compactions set."""
_NEAR = 200
"""Events that are read in a row, with all that lies between those of the conversation, and verified as a chain."""
_AT_ONCE = 2_000
"""Entries that one pass of compaction takes up."""
_SUMMARY = "context.summary"
_FRUITLESS = 5
"""Compactions in a row that change nothing: others may have been first, but not so often."""
_PATIENCE = 60.0
_BLOCKS = 64
"""Summaries of different people cannot be put together; of so many, the newest stay."""
Sections = Callable[[int, Window, Counting], Awaitable[list[Section]]]
"""What else belongs into the memory as of a position: a hand-off, the progress."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """Up to where a conversation lies in summaries; `kept` are older events that are shown all the same."""

    upto: int = 0
    kept: tuple[int, ...] = ()
    summaries: tuple[int, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    """Where summaries were given up: they said nothing, or are about too many people to be put together."""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a context is built from, as of a position. `read` is the last place that was read, `unread` are the places
    that were not, because there are too many to do at once."""

    position: int
    compaction: Compaction
    summaries: tuple[Summary, ...]
    units: tuple[Unit, ...]
    read: int
    unread: tuple[int, ...]


class WorkingMemory:
    """The context windows of a workspace's sessions."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._gathering = Gathering(journal)
        self._counters: list[tuple[Any, TokenCounter]] = []
        self._turns: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._lock = threading.Lock()
        self._entries: dict[tuple[str, int], tuple[Entries, Counting]] = {}

    def forget(self) -> None:
        """Drop what is remembered of texts from memory: somebody was erased."""
        self._entries.clear()

    async def context(
        self, session: str, window: Window, *, at: int | None, system: str, sections: Sections
    ) -> Context:
        """The context at the session's end, compacted first if that is due; or as it was at a position."""
        entries, counting = self._made_with(window)
        compactions, fruitless, seen = int(at is None), 0, None
        while True:
            head = (await self._journal.reader.head(session)).position
            position = head if at is None else min(at, head)
            talk = await self._read(session, position, oldest_first=compactions > 0)
            if not compactions or not self._is_due(session, talk, window, counting, entries):
                break
            try:
                await self._in_turn(session, talk.compaction, window, counting, entries)
                fruitless = fruitless + 1 if talk.compaction.id == seen else 0
                seen = talk.compaction.id
                if fruitless > _FRUITLESS:
                    raise JournalDamaged(session, position, "a compaction that cannot be read stands in the way")
            except StoreReadOnly:
                compactions = 0  # whoever may only look sees what fits without
        added = await sections(position, window, counting)
        fitting = Fitting(session, window, entries, counting)
        fitted = fitting.fit(system, [*added, *_summary_sections(talk)], talk.units)
        trace = (*_untraced(talk), *fitted.trace)
        counted = (fitted.tokens, window.budget, counting.counter.name)
        return Context(session, position, fitted.system, fitted.memory, fitted.said, *counted, trace)

    def _made_with(self, window: Window) -> tuple[Entries, Counting]:
        counter = self._counter(window.counter)
        place = (counter.name, window.mask_to)
        known = self._entries.get(place)
        if known is None or known[1].counter is not counter:
            known = self._entries[place] = (Entries(counter, window.mask_to), Counting(counter))
        return known

    def _counter(self, given: Any) -> TokenCounter:
        """The counter that was asked for, made once: what it counted is remembered."""
        for known, counter in self._counters:
            if known is given or (isinstance(given, str) and known == given):
                return counter
        counter = counter_for(given)
        self._counters = [(given, counter), *self._counters[:15]]
        return counter

    # -- reading

    async def _read(self, session: str, position: int, *, oldest_first: bool) -> Conversation:
        compaction = await self._compaction(session, position)
        places = await self._gathering.places(session, compaction.upto + 1, position)
        unread: list[int] = []
        if len(places) > _AT_ONCE:
            cut = _AT_ONCE if oldest_first else len(places) - _AT_ONCE
            places, unread = (places[:cut], places[cut:]) if oldest_first else (places[cut:], places[:cut])
        events = await self._gathering.events(session, compaction.kept)
        events += await self._talk(session, compaction.upto + 1, position, places)
        summaries = [_summary(event) for event in await self._gathering.events(session, compaction.summaries)]
        ordered = tuple(sorted(summaries, key=lambda one: (one.first, one.last)))
        read = places[-1] if places else compaction.upto
        return Conversation(position, compaction, ordered, tuple(units(events)), read, tuple(unread))

    async def _compaction(self, session: str, position: int) -> Compaction:
        found = await self._journal.bookmarks.newest(session, COMPACTED, upto=position)
        if found is None:
            return Compaction()
        events = await self._journal.bookmarks.events(found.session, [found.bookmark.position])
        if not events:
            raise JournalDamaged(found.session, found.bookmark.position, "the event is missing")
        data: dict[str, Any] = events[0].data
        lost = tuple((one[0], one[1]) for one in data["lost"])
        return Compaction(data["upto"], tuple(data["kept"]), tuple(data["summaries"]), lost, found.bookmark.id)

    async def _talk(self, session: str, first: int, last: int, places: Sequence[int]) -> list[Event]:
        """Those events, verified: as a chain with all that lies between, unless that is too much."""
        if last - first >= _NEAR or not places:
            return await self._gathering.events(session, places)
        events = await self._journal.reader.events(session, first, last, None)
        return [event for event in events if event.type.startswith(TALK)]

    # -- compacting

    def _is_due(self, session: str, talk: Conversation, window: Window, counting: Counting, entries: Entries) -> bool:
        return bool(talk.unread or self._due(session, talk, window, counting, entries))

    async def _in_turn(
        self, session: str, seen: Compaction, window: Window, counting: Counting, entries: Entries
    ) -> None:
        """Compact, unless a neighbour in this process does it meanwhile: a model is not asked twice for the same."""
        with self._lock:
            turn = self._turns.setdefault(session, Lock())
        mine = await turn.acquire(_PATIENCE)
        try:
            position = (await self._journal.reader.head(session)).position
            talk = await self._read(session, position, oldest_first=True)
            if talk.compaction.id == seen.id and self._is_due(session, talk, window, counting, entries):
                await self._compact(session, talk, window, counting, entries)
        finally:
            if mine:
                turn.release()

    async def _compact(
        self, session: str, talk: Conversation, window: Window, counting: Counting, entries: Entries
    ) -> None:
        """Summarise what is due, as journaled events. Somebody else may have done it."""
        doomed = self._due(session, talk, window, counting, entries)
        limit = room_for_one(window)
        blocks = [one for one in talk.summaries if one.text]
        for piece in pieces(doomed, counting.counter):
            blocks.append(await self._summarise(session, piece, limit, window, counting.counter))
        while (lower := merge_due(blocks, [counting.text(one.text) for one in blocks], window)) is not None:
            merged = await self._summarise(session, lower, limit, window, counting.counter)
            blocks = sorted([one for one in blocks if one not in lower.merged] + [merged], key=lambda one: one.first)
        await self._note(session, talk, doomed, blocks)

    def _due(
        self, session: str, talk: Conversation, window: Window, counting: Counting, entries: Entries
    ) -> list[Unit]:
        if talk.unread:  # far too many: all that was read goes, but what is always shown, or not answered yet
            always = [unit for unit in talk.units if unit.priority is Priority.ALWAYS or unit.is_open]
            return [unit for unit in talk.units if unit not in always] + overflow(always)
        tokens = [entries.make(session, unit, window.masked_from).tokens for unit in talk.units]
        rest = sum(counting.text(one.text) for one in talk.summaries)
        return due(talk.units, tokens, rest, window) + overflow(talk.units)

    async def _summarise(
        self, session: str, piece: Piece, limit: int, window: Window, counter: TokenCounter
    ) -> Summary:
        """A summary that is journaled, by whoever was first: a model is not asked twice."""
        for event in await self._known(session, piece.key):
            return _summary(event)
        written = await self._written(piece, limit, window, counter)
        reach("context.summarised")
        data = {"first": piece.first, "last": piece.last, "level": piece.level, "text": written.text}
        draft = Draft(_SUMMARY, {**data, "by": written.by, "note": written.note}, "duramen")
        (event,) = await self._journal.append(session, [draft], key=piece.key, subject=piece.subject)
        if event.type != _SUMMARY or event.erased:  # the key is somebody else's, or what it stood for is gone
            (event,) = await self._journal.append(session, [draft], subject=piece.subject)
        return _summary(event)

    async def _known(self, session: str, key: str) -> list[Event]:
        """The summary under an idempotency key, in the session or what it was forked from."""
        shared = await self._journal.reader.lineage(session)
        for origin, last in [(session, None), *((one.session, one.last) for one in shared)]:
            place = await self._journal.store.find(self._journal.workspace, origin, key)
            if place is not None and (last is None or place <= last):
                events = await self._journal.bookmarks.events(origin, [place])
                return [event for event in events if event.type == _SUMMARY and not event.erased]
        return []

    async def _written(self, piece: Piece, limit: int, window: Window, counter: TokenCounter) -> Written:
        if window.model is None:
            return extract(piece, limit, counter)
        model = load_model(window.model) if isinstance(window.model, str) else window.model
        return await run_blocking(lambda: ask(model, piece, limit, counter))

    async def _note(self, session: str, talk: Conversation, doomed: Sequence[Unit], blocks: Sequence[Summary]) -> None:
        """Journal up to where the conversation lies in summaries now."""
        gone = {unit.position for unit in doomed}
        upto = talk.read if talk.unread else max(unit.last for unit in doomed)
        upto = max(upto, talk.compaction.upto)
        staying = [place for unit in talk.units if unit.position not in gone for place in unit.places if place <= upto]
        empty = [one for one in talk.summaries if not one.text]
        lost = [*talk.compaction.lost, *((one.first, one.last) for one in (*empty, *blocks[:-_BLOCKS]))]
        data = {
            "upto": upto,
            "kept": sorted(staying),
            "summaries": [one.position for one in blocks[-_BLOCKS:]],
            "lost": [[min(one[0] for one in lost), max(one[1] for one in lost)]] if lost else [],
        }
        rows = await self._journal.store.bookmarks(self._journal.workspace, session, BookmarkQuery(COMPACTED))
        if rows and rows[0].intact and rows[0].id != talk.compaction.id:
            return  # somebody else compacted meanwhile
        own = rows[0].id if rows else None  # damaged or not: this one takes its place
        owner = await self._journal.owner(None)
        prepared = [self._journal.prepare(Draft("context.compacted", data, "duramen"), owner)]
        bookmark = Bookmark(COMPACTED, self._journal.ids.random(6).hex(), 0, self._journal.clock.now(), owner=owner.ref)
        beside = Beside((bookmark,), after=(COMPACTED, own))
        with suppress(CheckpointConflict):  # the same
            await self._journal.append_prepared(session, prepared, owner, beside=beside)


def _summary(event: Event) -> Summary:
    if event.erased:
        return Summary(event.position, event.position, event.position, 0, "", event.subject)
    data = event.data
    return Summary(event.position, data["first"], data["last"], data["level"], data["text"], event.subject)


def _summary_sections(talk: Conversation) -> list[Section]:
    return [Section("summary", EARLIER, one.text, one.first, one.last) for one in talk.summaries if one.text]


def _untraced(talk: Conversation) -> list[ContextTrace]:
    """What no entry and no section speaks of."""
    found = [
        ContextTrace(one.first, one.last, "summary", Shown.SUMMARISED, "nothing in it was worth keeping", 0)
        for one in talk.summaries
        if not one.text
    ]
    for first, last in talk.compaction.lost:
        found.append(
            ContextTrace(
                first,
                last,
                "summary",
                Shown.LEFT_OUT,
                "nothing in it was worth keeping, or summaries were about too many people",
                0,
            )
        )
    if talk.unread:
        first, last = talk.unread[0], talk.unread[-1]
        found.append(ContextTrace(first, last, "entries", Shown.LEFT_OUT, "too many to be read at once", 0))
    return found
