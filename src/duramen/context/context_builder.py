"""The context builder: what the model sees next in a session, built from its journal and nothing else.

The newest compaction says up to which event the conversation is summarised. The window is those summaries, the hand-off
and the progress of the session, and what was said since. If that is too much, the builder compacts first, which is
journaled, and then builds from the journal: the result never depends on the process that built it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from ..crash_points import reach
from ..errors import CheckpointConflict, JournalDamaged, StoreReadOnly
from ..journal.events import Draft, Event
from ..journal.journal import Journal
from ..models import load_model
from ..ports import TALK, Bookmark, BookmarkChanges, BookmarkQuery, TokenCounter
from ..runtime import Lock, run_blocking
from .compaction.compaction import (
    Summary,
    SummaryJob,
    SummaryText,
    entries_due,
    merge_due,
    overflow,
    summarise_by_extraction,
    summarise_with_model,
    summary_jobs,
    summary_limit,
)
from .compaction.trim import fit_lines
from .handoff import Handoffs, progress_lines
from .progress.progress_log import ProgressLog
from .tokens.counters import counter_for
from .window.context import Context, ContextTrace, Shown
from .window.conversation import ConversationEntry, Priority, conversation_entries
from .window.conversation_reader import ConversationReader
from .window.entries import EntryRenderer
from .window.fit import EARLIER, CachedCounter, Section, WindowFitter
from .window.settings import Window

COMPACTED = "context"
"""The name of the bookmarks that compactions set."""
_NEAR = 200
"""Events that are read in a row, with all that lies between those of the conversation, and verified as a chain."""
_AT_ONCE = 2_000
"""Entries that one pass of compaction summarises."""
_SUMMARY = "context.summary"
_FRUITLESS = 5
"""Compactions in a row that change nothing: others may have been first, but not so often."""
_PATIENCE = 60.0
_BLOCKS = 64
"""Summaries of different people cannot be put together; of so many, the newest stay."""
_HANDOFF_SHARE = 0.2
_PROGRESS_SHARE = 0.15


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
    entries: tuple[ConversationEntry, ...]
    read: int
    unread: tuple[int, ...]


class ContextBuilder:
    """Builds contexts for all sessions of a handle, which share its caches."""

    def __init__(self, journal: Journal, progress: ProgressLog, handoffs: Handoffs) -> None:
        self._journal = journal
        self._progress = progress
        self._handoffs = handoffs
        self._reader = ConversationReader(journal)
        self._counters: list[tuple[Any, TokenCounter]] = []
        self._compaction_locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._lock = threading.Lock()
        self._renderers: dict[tuple[str, int], tuple[EntryRenderer, CachedCounter]] = {}

    def forget(self) -> None:
        """Drop cached texts from memory, after an erasure."""
        self._renderers.clear()

    async def build(self, session: str, window: Window, *, at: int | None, system: str) -> Context:
        """The context at the session's end, compacted first if that is due; or as it was at a position."""
        renderer, counting = self._renderer_for(window)
        compactions, fruitless, seen = int(at is None), 0, None
        while True:
            head = (await self._journal.reader.head(session)).position
            position = head if at is None else min(at, head)
            conversation = await self._read(session, position, oldest_first=compactions > 0)
            if not compactions or not self._is_due(session, conversation, window, counting, renderer):
                break
            try:
                await self._compact_locked(session, conversation.compaction, window, counting, renderer)
                fruitless = fruitless + 1 if conversation.compaction.id == seen else 0
                seen = conversation.compaction.id
                if fruitless > _FRUITLESS:
                    raise JournalDamaged(session, position, "a compaction that cannot be read stands in the way")
            except StoreReadOnly:
                compactions = 0  # a read-only handle shows what fits without
        added = await self._session_sections(session, position, window, counting)
        fitter = WindowFitter(session, window, renderer, counting)
        fitted = fitter.fit(system, [*added, *_summary_sections(conversation)], conversation.entries)
        trace = (*_other_traces(conversation), *fitted.trace)
        counted = (fitted.tokens, window.budget, counting.counter.name)
        return Context(session, position, fitted.system, fitted.memory, fitted.messages, *counted, trace)

    async def _session_sections(
        self, session: str, position: int, window: Window, counting: CachedCounter
    ) -> list[Section]:
        """What else the model is given as of a position: the hand-off and the progress."""
        found = []
        begun = await self._handoffs.begun(session, upto=position)
        if begun is not None:
            text = begun.text(counting.counter, int(window.budget * _HANDOFF_SHARE))
            found.append(Section("handoff", "## Hand-off", text, 0, 0))
        lines = progress_lines(await self._progress.read(session, at=position))
        if lines:
            text = fit_lines(lines, counting.counter, int(window.budget * _PROGRESS_SHARE))
            found.append(Section("progress", "## Progress", text, 0, 0))
        return [section for section in found if section.text]

    def _renderer_for(self, window: Window) -> tuple[EntryRenderer, CachedCounter]:
        counter = self._counter(window.counter)
        place = (counter.name, window.mask_to)
        known = self._renderers.get(place)
        if known is None or known[1].counter is not counter:
            known = self._renderers[place] = (EntryRenderer(counter, window.mask_to), CachedCounter(counter))
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
        places = await self._reader.places(session, compaction.upto + 1, position)
        unread: list[int] = []
        if len(places) > _AT_ONCE:
            cut = _AT_ONCE if oldest_first else len(places) - _AT_ONCE
            places, unread = (places[:cut], places[cut:]) if oldest_first else (places[cut:], places[:cut])
        events = await self._reader.events(session, compaction.kept)
        events += await self._events(session, compaction.upto + 1, position, places)
        summaries = [_summary(event) for event in await self._reader.events(session, compaction.summaries)]
        ordered = tuple(sorted(summaries, key=lambda one: (one.first, one.last)))
        read = places[-1] if places else compaction.upto
        return Conversation(position, compaction, ordered, tuple(conversation_entries(events)), read, tuple(unread))

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

    async def _events(self, session: str, first: int, last: int, places: Sequence[int]) -> list[Event]:
        """The events of a conversation at these positions, verified: as a chain, unless too many events lie between."""
        if last - first >= _NEAR or not places:
            return await self._reader.events(session, places)
        events = await self._journal.reader.events(session, first, last, None)
        return [event for event in events if event.type.startswith(TALK)]

    # -- compacting

    def _is_due(
        self, session: str, conversation: Conversation, window: Window, counting: CachedCounter, renderer: EntryRenderer
    ) -> bool:
        return bool(conversation.unread or self._due(session, conversation, window, counting, renderer))

    async def _compact_locked(
        self, session: str, seen: Compaction, window: Window, counting: CachedCounter, renderer: EntryRenderer
    ) -> None:
        """Compact, unless another thread of this process does: a model is not asked twice for the same."""
        with self._lock:
            lock = self._compaction_locks.setdefault(session, Lock())
        locked = await lock.acquire(_PATIENCE)
        try:
            position = (await self._journal.reader.head(session)).position
            conversation = await self._read(session, position, oldest_first=True)
            if conversation.compaction.id == seen.id and self._is_due(
                session, conversation, window, counting, renderer
            ):
                await self._compact(session, conversation, window, counting, renderer)
        finally:
            if locked:
                lock.release()

    async def _compact(
        self, session: str, conversation: Conversation, window: Window, counting: CachedCounter, renderer: EntryRenderer
    ) -> None:
        """Summarise what is due, as journaled events. Another process may do the same."""
        summarised = self._due(session, conversation, window, counting, renderer)
        limit = summary_limit(window)
        blocks = [one for one in conversation.summaries if one.text]
        for job in summary_jobs(summarised, counting.counter):
            blocks.append(await self._summarise(session, job, limit, window, counting.counter))
        while (lower := merge_due(blocks, [counting.text(one.text) for one in blocks], window)) is not None:
            merged = await self._summarise(session, lower, limit, window, counting.counter)
            blocks = sorted([one for one in blocks if one not in lower.merged] + [merged], key=lambda one: one.first)
        await self._note(session, conversation, summarised, blocks)

    def _due(
        self, session: str, conversation: Conversation, window: Window, counting: CachedCounter, renderer: EntryRenderer
    ) -> list[ConversationEntry]:
        if conversation.unread:  # far too many: all that was read goes, but what is always shown, or not answered yet
            always = [entry for entry in conversation.entries if entry.priority is Priority.ALWAYS or entry.is_open]
            return [entry for entry in conversation.entries if entry not in always] + overflow(always)
        tokens = [renderer.render(session, entry, window.masked_from).tokens for entry in conversation.entries]
        rest = sum(counting.text(one.text) for one in conversation.summaries)
        return entries_due(conversation.entries, tokens, rest, window) + overflow(conversation.entries)

    async def _summarise(
        self, session: str, job: SummaryJob, limit: int, window: Window, counter: TokenCounter
    ) -> Summary:
        """The journaled summary of a job: a model is not asked twice."""
        for event in await self._known(session, job.key):
            return _summary(event)
        written = await self._written(job, limit, window, counter)
        reach("context.summarised")
        data = {"first": job.first, "last": job.last, "level": job.level, "text": written.text}
        draft = Draft(_SUMMARY, {**data, "by": written.by, "note": written.note}, "duramen")
        (event,) = await self._journal.append(session, [draft], key=job.key, subject=job.subject)
        if event.type != _SUMMARY or event.erased:  # the key belongs to another event, or the summary was erased
            (event,) = await self._journal.append(session, [draft], subject=job.subject)
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

    async def _written(self, job: SummaryJob, limit: int, window: Window, counter: TokenCounter) -> SummaryText:
        if window.model is None:
            return summarise_by_extraction(job, limit, counter)
        model = load_model(window.model) if isinstance(window.model, str) else window.model
        return await run_blocking(lambda: summarise_with_model(model, job, limit, counter))

    async def _note(
        self,
        session: str,
        conversation: Conversation,
        summarised: Sequence[ConversationEntry],
        blocks: Sequence[Summary],
    ) -> None:
        """Journal up to where the conversation lies in summaries now."""
        gone = {entry.position for entry in summarised}
        upto = conversation.read if conversation.unread else max(entry.last for entry in summarised)
        upto = max(upto, conversation.compaction.upto)
        staying = [
            place
            for entry in conversation.entries
            if entry.position not in gone
            for place in entry.places
            if place <= upto
        ]
        empty = [one for one in conversation.summaries if not one.text]
        lost = [*conversation.compaction.lost, *((one.first, one.last) for one in (*empty, *blocks[:-_BLOCKS]))]
        data = {
            "upto": upto,
            "kept": sorted(staying),
            "summaries": [one.position for one in blocks[-_BLOCKS:]],
            "lost": [[min(one[0] for one in lost), max(one[1] for one in lost)]] if lost else [],
        }
        rows = await self._journal.store.bookmarks(self._journal.workspace, session, BookmarkQuery(COMPACTED))
        if rows and rows[0].intact and rows[0].id != conversation.compaction.id:
            return  # another process compacted meanwhile
        own = rows[0].id if rows else None  # damaged or not: this one takes its place
        owner = await self._journal.owner(None)
        prepared = [self._journal.prepare(Draft("context.compacted", data, "duramen"), owner)]
        bookmark = Bookmark(COMPACTED, self._journal.ids.random(6).hex(), 0, self._journal.clock.now(), owner=owner.ref)
        changes = (BookmarkChanges((bookmark,), after=(COMPACTED, own)),)
        with suppress(CheckpointConflict):  # the same
            await self._journal.append_prepared(session, prepared, owner, changes=changes)


def _summary(event: Event) -> Summary:
    if event.erased:
        return Summary(event.position, event.position, event.position, 0, "", event.subject)
    data = event.data
    return Summary(event.position, data["first"], data["last"], data["level"], data["text"], event.subject)


def _summary_sections(conversation: Conversation) -> list[Section]:
    return [Section("summary", EARLIER, one.text, one.first, one.last) for one in conversation.summaries if one.text]


def _other_traces(conversation: Conversation) -> list[ContextTrace]:
    """The traces of what is in no entry and no section."""
    found = [
        ContextTrace(one.first, one.last, "summary", Shown.SUMMARISED, "nothing in it was worth keeping", 0)
        for one in conversation.summaries
        if not one.text
    ]
    for first, last in conversation.compaction.lost:
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
    if conversation.unread:
        first, last = conversation.unread[0], conversation.unread[-1]
        found.append(ContextTrace(first, last, "entries", Shown.LEFT_OUT, "too many to be read at once", 0))
    return found
