"""Write-back: stores what is worth remembering from a finished turn, in the background, exactly once.

One process at a time, under a lease, reads the feed of all sessions from a durable cursor. The memories of a turn are
appended with the turn's idempotency key and the lease's fence, so a process that was killed or lost its lease repeats
nothing. A turn that fails is tried again. After `_MAX_ATTEMPTS` it is skipped, and the error is journaled.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ...crash_points import reach
from ...errors import DuramenError, JournalDamaged, LeaseLost, StoreReadOnly
from ...journal.events import Draft
from ...journal.journal import Journal
from ...journal.owners import Owner
from ...journal.reader import PAGE
from ...ports import FeedItem, LeaseRow, MemoryChanges, SubjectGone
from ...runtime import Lock, drive
from ..catalog.memory_event import memory_row
from ..extraction.admission import assess_sentences
from ..extraction.rules.rule_set import apply_rules
from ..extraction.rules.turn_reader import RecentTurns, recent_turns
from ..extraction.rules.turns import PROCEDURE, Finding
from ..index.index_worker import IndexWorker
from .model_reader import ModelReader
from .procedures import Procedures
from .promotion import DONE, LEASE, SESSION, decision_notes, idempotency_key, learn_procedure, memory_draft
from .proposals import ProposalDraft, Proposals

GIVEN_UP = "writeback.given_up"
_OUTLET = "duramen.writeback"
_TRIGGERS = frozenset({"memory.considered", "run.finished", "run.failed"})
_MAX_ATTEMPTS = 5
_LOCK_TIMEOUT = 30.0
"""Seconds to wait for another thread of this handle, so that its work is done when `catch_up` returns."""
_LOOK_EVERY = 5.0
"""Seconds between two checks for turns of other processes and for failed turns."""


class _Turn(NamedTuple):
    """The session and the position where a turn ended."""

    session: str
    position: int


class WriteBack:
    """Writes back the finished turns of a workspace."""

    def __init__(
        self,
        journal: Journal,
        procedures: Procedures,
        proposals: Proposals,
        index_worker: IndexWorker,
        model_reader: ModelReader | None = None,
    ) -> None:
        self._journal = journal
        self._procedures = procedures
        self._proposals = proposals
        self._index_worker = index_worker
        self._model_reader = model_reader
        self._owner = journal.ids.random(8).hex()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._lock = Lock()
        self._attempts: dict[_Turn, int] = {}

    # -- in the background

    def wake(self) -> None:
        """Tell the thread that a turn has ended. Starts it if necessary."""
        self._wake.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stopping:
                    self._thread = threading.Thread(target=self._work, name="duramen-writeback", daemon=True)
                    self._thread.start()

    def _work(self) -> None:
        while True:
            self._wake.clear()
            if self._stopping:  # checked after `clear`, which may have removed the wake-up of `stop`
                return
            with suppress(DuramenError):  # the store is unavailable or read-only: try again later
                while not self._stopping and drive(self.process_page()):
                    pass
            self._wake.wait(_LOOK_EVERY)

    def stop(self) -> None:
        """Stop the thread. Another process, or the next one, does the remaining work."""
        self._stopping = True
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)

    # -- page by page

    async def catch_up(self) -> int:
        """Process the rest of the feed now. Returns the number of turns."""
        done = 0
        while True:
            made = await self.process_page()
            if made is None:
                return done
            done += made

    async def process_page(self) -> int | None:
        """Process one page of the feed. Returns its number of turns; None if the feed has no more, another process has
        the lease, or the store is read-only."""
        taken = await self._lock.acquire(_LOCK_TIMEOUT)
        try:
            return await self._process_page_locked()
        finally:
            if taken:
                self._lock.release()

    async def _process_page_locked(self) -> int | None:
        store, workspace, now = self._journal.store, self._journal.workspace, self._journal.clock.now
        try:
            lease = await store.acquire(workspace, SESSION, self._owner, now(), now() + LEASE)
        except StoreReadOnly:
            return None
        if lease is None:
            return None
        try:
            before = await store.cursor(workspace, _OUTLET)
            items = await self._journal.safe_feed(before, PAGE)
            if not items:
                return None
            done = await self._page(items, before, lease)
        except LeaseLost:
            return None
        finally:
            with suppress(DuramenError):
                await store.release(workspace, SESSION, lease.fence)
        return done

    async def _page(self, items: Sequence[FeedItem], before: int, lease: LeaseRow) -> int:
        store, workspace, done = self._journal.store, self._journal.workspace, 0
        for item in items:
            if item.record.type in _TRIGGERS and item.session != SESSION:
                now = self._journal.clock.now()
                await store.renew(workspace, SESSION, lease.fence, now, now + LEASE)
                await self._try(_Turn(item.session, item.record.position), lease.fence)
                done += 1
        reach("writeback.done")
        await store.advance(workspace, _OUTLET, before, items[-1].cursor)
        return done

    async def _try(self, turn: _Turn, fence: int) -> None:
        """Write back a turn. An error is raised, so that the turn is tried again later. The last attempt, and any
        attempt that cannot succeed later, journals the error instead."""
        try:
            await self.write_turn(turn.session, turn.position, fence)
            if self._model_reader is not None:
                await self._model_reader.read(turn.session, turn.position, fence)
        except LeaseLost:
            raise
        except Exception as error:
            self._attempts[turn] = self._attempts.get(turn, 0) + 1
            passes = isinstance(error, DuramenError) and not isinstance(error, JournalDamaged)
            if self._attempts[turn] < _MAX_ATTEMPTS and passes:
                raise
            note = {"turn": f"{turn.session}#{turn.position}", "error": f"{type(error).__name__}: {error}"[:500]}
            await self._journal.append(SESSION, [Draft(GIVEN_UP, note, "duramen")], fence=fence)
        self._attempts.pop(turn, None)

    async def write_turn(self, session: str, position: int, fence: int | None = None) -> list[Finding]:
        """Write back the last turn of a session up to a position. Returns its findings; empty if it was done before."""
        taken, owner = await self._read(session, position)
        if owner is None or not taken.turns:
            return []
        key = idempotency_key("turn", session, str(taken.turns[-1].position))
        if await self._journal.store.find(self._journal.workspace, SESSION, key) is not None:
            return []
        reach("writeback.read")
        try:
            return await self._write(session, taken, owner, key, fence)
        except SubjectGone:
            self._journal.forget_owners()  # the subject was erased meanwhile: there is nothing to write back
            return []

    async def read_with_model(self, session: str, position: int) -> int:
        """Let the model read the unread part of a session, even if it is short. Returns the number of candidates; 0 if
        another process has the lease, the store is read-only, or there is no model."""
        if self._model_reader is None:
            return 0
        taken = await self._lock.acquire(_LOCK_TIMEOUT)
        try:
            # The lock excludes this handle's own thread. The lease excludes only other processes.
            return await self._read_with_model(session, position) if taken else 0
        finally:
            if taken:
                self._lock.release()

    async def _read_with_model(self, session: str, position: int) -> int:
        assert self._model_reader is not None
        store, workspace, now = self._journal.store, self._journal.workspace, self._journal.clock.now()
        lease = None
        try:
            lease = await store.acquire(workspace, SESSION, self._owner, now, now + LEASE)
            return 0 if lease is None else await self._model_reader.read(session, position, lease.fence, now=True)
        except (StoreReadOnly, LeaseLost):
            return 0
        finally:
            if lease is not None:
                with suppress(DuramenError):
                    await store.release(workspace, SESSION, lease.fence)

    async def _read(self, session: str, position: int) -> tuple[RecentTurns, Owner | None]:
        """The last turns and their owner; None instead of the owner if the subject was erased.

        The turns are read again after the owner is known. If the subject was erased before that, there is nothing to
        read. If it is erased later, every append with this owner fails. So a new subject with the same name never gets
        the memories of the erased one.
        """
        taken = await recent_turns(self._journal, session, position)
        if taken.subject is None:
            return taken, await self._journal.owner(None)
        row = await self._journal.store.subject(self._journal.workspace, taken.subject)
        owner = None if row is None else await self._journal.bookmarks.owner_of(row.ref)
        return await recent_turns(self._journal, session, position), owner

    async def _write(
        self, session: str, taken: RecentTurns, owner: Owner, key: str, fence: int | None
    ) -> list[Finding]:
        await self._propose(session, taken, owner)
        found = apply_rules(taken.turns)
        for one in found:
            await learn_procedure(self._procedures, one, session, owner, key)
        if found:
            await self._keep(found, session, taken, owner, key, fence)
            self._index_worker.wake()
        return found

    async def _propose(self, session: str, taken: RecentTurns, owner: Owner) -> None:
        """Propose to users what they said about themselves. What `session.turn` already proposed is not proposed
        again."""
        last = taken.turns[-1]
        for one in assess_sentences(last.user):
            if one.keep:
                details = {"confidence": one.confidence} | ({} if one.key is None else {"key": one.key})
                source = f"{session}#{last.position}"
                draft = ProposalDraft(one.content, one.kind, details, one.sentence, one.reason, source)
                await self._proposals.make(draft, owner.name, "duramen", owner=owner)

    async def _keep(
        self, found: list[Finding], session: str, taken: RecentTurns, owner: Owner, key: str, fence: int | None
    ) -> None:
        """Append the findings to keep and all decisions in one append, exactly once."""
        where = f"{session}#{taken.turns[-1].position}"
        drafts = [Draft(DONE, {"turn": where, "decided": decision_notes(found)}, "duramen", where)]
        drafts += [memory_draft(one, session) for one in found if one.keep and one.kind != PROCEDURE]
        prepared = [self._journal.prepare(draft, owner) for draft in drafts]
        rows = [memory_row(SESSION, index, one.data, owner) for index, one in enumerate(prepared) if index]
        await self._journal.append_prepared(
            SESSION, prepared, owner, key=key, fence=fence, changes=(MemoryChanges(memories=rows),)
        )
