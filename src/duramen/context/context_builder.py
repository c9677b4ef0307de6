"""Builds what the model sees next in a session, from the session's journal alone.

The newest compaction records up to which event the conversation is summarised. The context consists of the summaries,
the hand-off, the progress, and the entries since that event. If they exceed the window, the builder journals a
compaction first and then builds from the journal. The result is the same in every process.
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
from .section_marker import SectionMarker
from .tokens.counters import counter_for
from .window.context import Context, ContextTrace, Shown
from .window.conversation import ConversationEntry, Priority, conversation_entries
from .window.conversation_reader import ConversationReader
from .window.entries import EntryRenderer
from .window.fit import RECALLED, CachedCounter, Section, WindowFitter
from .window.settings import Window

COMPACTED = "context"
"""The name of the bookmarks that compactions set."""
_NEAR = 200
"""Up to this many events are read as one range and verified as a chain, including events outside the conversation."""
_AT_ONCE = 2_000
"""Conversation events that one pass of compaction reads."""
_SUMMARY = "context.summary"
_FRUITLESS = 5
"""Compactions in a row that may change nothing because another process compacted first. More mean damage."""
_PATIENCE = 60.0
"""Seconds to wait for another thread that compacts the same session."""
_BLOCKS = 64
"""At most this many summaries are kept: the newest. Summaries of different subjects cannot be merged."""
_HANDOFF_SHARE = 0.2
_PROGRESS_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class Compaction:
    """Events up to `upto` are summarised, except those in `kept`. `summaries` are the positions of the summaries."""

    upto: int = 0
    kept: tuple[int, ...] = ()
    summaries: tuple[int, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges whose summaries were dropped: they were empty, or there were too many subjects to merge them."""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a context is built from, as of a position. `read` is the last position that was read. `unread` are the
    positions beyond the limit of one pass."""

    position: int
    compaction: Compaction
    summaries: tuple[Summary, ...]
    entries: tuple[ConversationEntry, ...]
    read: int
    unread: tuple[int, ...]


class ContextBuilder:
    """Builds contexts for all sessions of a handle. The sessions share its caches."""

    def __init__(self, journal: Journal, progress: ProgressLog, handoffs: Handoffs, suspicious: str = "flag") -> None:
        self._journal = journal
        self._marker = SectionMarker(suspicious)
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
        self._marker.forget()

    async def build(self, session: str, window: Window, *, at: int | None, system: str, recalled: str = "") -> Context:
        """Return the context at the end of the session, or at position `at`. `recalled` is the text of a recollection.

        At the end, it compacts first if compaction is due. A read-only handle does not compact; what does not fit is
        left out. Raises `JournalDamaged` if the newest compaction cannot be read.
        """
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
                    raise JournalDamaged(session, position, "the newest compaction cannot be read")
            except StoreReadOnly:
                compactions = 0
        added = await self._session_sections(session, position, window, counting)
        fitter = WindowFitter(session, window, renderer, counting)
        summaries, kept_out = self._marker.summaries(conversation.summaries)
        sections = [*added, *summaries, *([Section(RECALLED, "", recalled)] if recalled else [])]
        fitted = fitter.fit(system, sections, conversation.entries)
        trace = (*_other_traces(conversation), *kept_out, *fitted.trace)
        counted = (fitted.tokens, window.budget, counting.counter.name)
        parts = (fitted.system, fitted.state, fitted.summaries, fitted.recalled, fitted.messages)
        return Context(session, position, *parts, *counted, trace)

    async def _session_sections(
        self, session: str, position: int, window: Window, counting: CachedCounter
    ) -> list[Section]:
        """The hand-off and the progress as of a position, as sections."""
        found = []
        begun = await self._handoffs.begun(session, upto=position)
        if begun is not None:
            text = begun.text(counting.counter, int(window.budget * _HANDOFF_SHARE))
            found.append(self._marker.section("handoff", "## Hand-off", text))
        lines = progress_lines(await self._progress.read(session, at=position))
        if lines:
            text = fit_lines(lines, counting.counter, int(window.budget * _PROGRESS_SHARE))
            found.append(self._marker.section("progress", "## Progress", text))
        return [section for section in found if section.text]

    def _renderer_for(self, window: Window) -> tuple[EntryRenderer, CachedCounter]:
        counter = self._counter(window.counter)
        place = (counter.name, window.mask_to)
        known = self._renderers.get(place)
        if known is None or known[1].counter is not counter:
            known = self._renderers[place] = (EntryRenderer(counter, window.mask_to), CachedCounter(counter))
        return known

    def _counter(self, given: Any) -> TokenCounter:
        """The counter for a `Window.counter` value. It is created once, because counters cache their counts."""
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
        """The verified events of a conversation at these positions. A short range is verified as a chain."""
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
        """Compact, unless another thread of this process does it first: the model is called once per summary."""
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
        """Journal summaries of the entries that are due. Another process may do the same at the same time."""
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
        if conversation.unread:  # summarise everything read, except pinned entries and calls without a result
            always = [entry for entry in conversation.entries if entry.priority is Priority.ALWAYS or entry.is_open]
            return [entry for entry in conversation.entries if entry not in always] + overflow(always)
        tokens = [renderer.render(session, entry, window.masked_from).tokens for entry in conversation.entries]
        rest = sum(counting.text(one.text) for one in conversation.summaries)
        return entries_due(conversation.entries, tokens, rest, window) + overflow(conversation.entries)

    async def _summarise(
        self, session: str, job: SummaryJob, limit: int, window: Window, counter: TokenCounter
    ) -> Summary:
        """Return the journaled summary of a job, or write and journal it. The model is called once per job."""
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
        """The summary with an idempotency key, from the session or the sessions that it was forked from."""
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
        """Journal the compaction, unless another process compacted in the meantime."""
        replaced = {entry.position for entry in summarised}
        upto = conversation.read if conversation.unread else max(entry.last for entry in summarised)
        upto = max(upto, conversation.compaction.upto)
        staying = [
            place
            for entry in conversation.entries
            if entry.position not in replaced
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
            return  # another process compacted in the meantime
        own = rows[0].id if rows else None  # the new compaction follows the newest one, even a damaged one
        owner = await self._journal.owner(None)
        prepared = [self._journal.prepare(Draft("context.compacted", data, "duramen"), owner)]
        bookmark = Bookmark(COMPACTED, self._journal.ids.random(6).hex(), 0, self._journal.clock.now(), owner=owner.ref)
        changes = (BookmarkChanges((bookmark,), after=(COMPACTED, own)),)
        with suppress(CheckpointConflict):  # another process compacted in the meantime
            await self._journal.append_prepared(session, prepared, owner, changes=changes)


def _summary(event: Event) -> Summary:
    if event.erased:
        return Summary(event.position, event.position, event.position, 0, "", event.subject)
    data = event.data
    return Summary(event.position, data["first"], data["last"], data["level"], data["text"], event.subject)


def _other_traces(conversation: Conversation) -> list[ContextTrace]:
    """Traces of the ranges that appear in no entry and in no section."""
    found = [
        ContextTrace(one.first, one.last, "summary", Shown.SUMMARISED, "the summary is empty", 0)
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
                "the summaries were empty, or belonged to too many subjects to be merged",
                0,
            )
        )
    if conversation.unread:
        first, last = conversation.unread[0], conversation.unread[-1]
        found.append(ContextTrace(first, last, "entries", Shown.LEFT_OUT, "too many entries for one pass", 0))
    return found
