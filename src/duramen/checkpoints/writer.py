"""Stores states: new data is appended to the chunk log of the session, with an event and a bookmark.

The writer caches how the last states are stored, so that the next write does not read them. If another process has
written meanwhile, the store finds that the chunk log ends elsewhere, and the writer reads again and retries.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..crash_points import reach
from ..errors import DuramenError, StoreError
from ..journal.encoder import Prepared
from ..journal.events import Draft
from ..journal.journal import Journal
from ..journal.owners import Owner
from ..ports import BatchChange, Bookmark, BookmarkChanges, Chunk, ChunkLogMoved, SubjectGone
from ..ports import Stored as StoredBatch
from ..runtime import is_driven
from .chunks import Chunks
from .delta import Delta, DeltaBase, digest_fields, encode_deltas
from .manifest import AssembledState, Manifest, body_ranges
from .write_batcher import EncodedEvent, QueuedWrite, StateWrite, WriteBatcher, WriteResult

_CACHED_BASES = 200
_CACHED_BATCHERS = 1000


class StateWriter:
    """Stores states for all threads and coroutines of a handle."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._chunks = Chunks(journal)
        self._bases: OrderedDict[tuple[str, bytes | None], DeltaBase] = OrderedDict()
        self._generation = 0
        """How often `forget` was called."""
        self._batchers: OrderedDict[str, WriteBatcher] = OrderedDict()
        self._lock = threading.Lock()

    async def store(self, write: StateWrite) -> WriteResult:
        """Store a state; durable on return.

        The states of a session are stored in order, because each one is encoded against the previous one. States that
        wait for the same lock are stored together.
        """
        batcher = self._batcher(write.session)
        queued = batcher.add(write)
        try:
            if write.can_wait:
                await self._encode_early(queued)
                await batcher.wait_to_be_taken(queued)
            while not queued.done:
                locked = await batcher.lock.acquire()
                try:
                    batch = batcher.take_batch(queued)
                    if batch:
                        await self._store_batch(batch)
                finally:
                    if locked:
                        batcher.lock.release()
                if not batch:  # another writer stores it
                    await queued.wait(1.0)
        finally:
            batcher.remove(queued)
        return queued.get()

    async def _encode_early(self, queued: QueuedWrite) -> None:
        """Encode the event while the write waits, to save time for the writer that stores it."""
        write = queued.write
        with suppress(DuramenError):  # raised again when the write is stored
            owner = await self._journal.owner(write.subject)
            digest = digest_fields(write.fields, owner.salt)
            if digest is not None:
                queued.encoded = EncodedEvent(owner, digest, self._prepare(write, digest, owner))

    def _batcher(self, session: str) -> WriteBatcher:
        with self._lock:
            batcher = self._batchers.get(session)
            if batcher is None:
                batcher = self._batchers[session] = WriteBatcher()
                if len(self._batchers) > _CACHED_BATCHERS:
                    self._batchers.popitem(last=False)  # its queued writes continue, and may retry once
            else:
                self._batchers.move_to_end(session)
            return batcher

    async def _store_batch(self, batch: list[QueuedWrite]) -> None:
        """Finish every write of a batch."""
        if len(batch) == 1 or is_driven():
            await self._finish_all(batch)
        else:  # a cancelled write must not cancel the others
            await asyncio.shield(asyncio.ensure_future(self._finish_all(batch)))

    async def _finish_all(self, batch: list[QueuedWrite]) -> None:
        try:
            if len(batch) == 1 or not await self._finished_together(batch):
                for one in batch:
                    await self._finished_together([one])
        finally:
            for one in batch:
                if not one.done:
                    one.finish(_interrupted())

    async def _finished_together(self, batch: list[QueuedWrite]) -> bool:
        """Store a batch in one append. Returns False, with nothing stored, if one of several writes was refused."""
        outcomes: Sequence[WriteResult | Exception]
        try:
            outcomes = await self._append(batch)
        except Exception as error:  # noqa: BLE001 - raised where the caller waits
            if len(batch) > 1 and not isinstance(error, StoreError):
                return False
            outcomes = [error] * len(batch)
        for one, outcome in zip(batch, outcomes, strict=True):
            one.finish(outcome)
        return True

    async def _append(self, batch: list[QueuedWrite]) -> list[WriteResult]:
        writes = [one.write for one in batch]
        session, fence = writes[0].session, writes[0].fence
        stale: tuple[int, int] | None = None
        while True:
            owner = await self._journal.owner(writes[0].subject)
            base, generation = await self._take_base(writes, owner, stale)
            deltas = encode_deltas([(write.name, write.fields) for write in writes], base, owner.salt)
            prepared = [self._prepared(*one, owner) for one in zip(batch, deltas, strict=True)]
            changes = self._changes(writes, deltas, owner)
            _update_base(base, writes, deltas)  # before the append: after the sync it takes three times as long
            reach("checkpoint.encoded")
            try:
                done = await self._journal.append_prepared(session, prepared, owner, fence=fence, changes=changes)
            except ChunkLogMoved:
                stale = (deltas[0].chunk_log, deltas[0].start)
            except SubjectGone:
                self._journal.forget_owners()
            else:
                self._return_base(session, owner, base, generation)
                return _results(done, deltas, prepared)

    def _prepared(self, queued: QueuedWrite, delta: Delta, owner: Owner) -> Prepared:
        encoded = queued.encoded
        if encoded is not None and encoded.digest == delta.digest and encoded.owner == owner:
            return encoded.event
        return self._prepare(queued.write, delta.digest, owner)

    def _prepare(self, write: StateWrite, digest: bytes, owner: Owner) -> Prepared:
        data = {"note": write.note, "digest": digest}
        return self._journal.prepare(Draft(write.kind, data, write.actor), owner, whole=True)

    def _changes(self, writes: list[StateWrite], deltas: list[Delta], owner: Owner) -> Sequence[BatchChange]:
        """The changes that are written with the events: first the bookmark of each state, then further bookmarks."""
        bookmarks = [self._bookmark(write, *one, owner) for write, one in zip(writes, enumerate(deltas), strict=True)]
        for number, write in enumerate(writes):
            bookmarks += [one._replace(position=number, owner=owner.ref) for one in write.also]
        after = next((write.after for write in writes if write.after is not None), None)
        first = deltas[0]
        chunks = self._new_chunks(writes[0].session, first, owner)
        return (BookmarkChanges(bookmarks, chunk_log=(first.chunk_log, first.start), chunks=chunks, after=after),)

    def _bookmark(self, write: StateWrite, number: int, delta: Delta, owner: Owner) -> Bookmark:
        name, id, _, _, expires, pinned, _, _, _ = write.bookmark
        sealed = self._chunks.seal_manifest(write.session, name, id, delta.manifest, owner)
        return Bookmark(name, id, number, 0, expires, pinned, owner.ref, sealed)

    def _new_chunks(self, session: str, delta: Delta, owner: Owner) -> tuple[Chunk, ...]:
        if not delta.bodies:
            return ()
        return (self._chunks.seal_chunk(session, delta.chunk_log, delta.start, delta.bodies, owner),)

    # -- the cache of delta bases

    async def _take_base(
        self, writes: list[StateWrite], owner: Owner, stale: tuple[int, int] | None
    ) -> tuple[DeltaBase, int]:
        """The base of a session and owner, and the generation of the cache.

        If there is no base, or the store refused its chunk log and end (`stale`), it is an empty one with a new chunk
        log. Only the caller uses it until `_return_base`, after everything that was added to it is stored. A writer
        that did not get the lock in time finds no base in the cache and reads the store.
        """
        with self._lock:
            generation, base = self._generation, self._bases.pop((writes[0].session, owner.ref), None)
        if base is None:
            base = await self._read_base(writes, owner)
        if (base.chunk_log, base.end) == stale:
            base = self._new_base()
        return base, generation

    def _return_base(self, session: str, owner: Owner, base: DeltaBase, generation: int) -> None:
        """Cache a base for the next write, unless the cache was emptied since it was taken."""
        with self._lock:
            if self._generation == generation:
                self._bases[session, owner.ref] = base
                while len(self._bases) > _CACHED_BASES:
                    self._bases.popitem(last=False)

    def _new_base(self) -> DeltaBase:
        return DeltaBase(int.from_bytes(self._journal.ids.random(6), "big"), 0)

    async def _read_base(self, writes: list[StateWrite], owner: Owner) -> DeltaBase:
        session = writes[0].session
        for name in dict.fromkeys(name for write in writes for name in write.like):
            newest = await self._journal.bookmarks.newest(session, name)
            if newest is None or newest.session != session or newest.bookmark.owner != owner.ref:
                continue
            try:
                manifest = await self._chunks.open_manifest(session, newest.bookmark, owner)
                state = await self.assemble(session, manifest, owner)
            except ValueError:
                continue  # damaged: not used as a base
            return await self._base_of(session, name, manifest, state.stored)
        return self._new_base()

    async def _base_of(self, session: str, name: str, manifest: Manifest, stored: dict[str, Any]) -> DeltaBase:
        # Another writer may have appended to the chunk log since, or a removal may have cut it. Removed data must not
        # be used as a base.
        end = await self._journal.store.chunk_log_end(self._journal.workspace, session, manifest.chunk_log)
        if any(
            one.chunk_log != manifest.chunk_log or one.last > end for one in (*manifest.ranges(), *manifest.page_ranges)
        ):
            return self._new_base()
        base = DeltaBase(manifest.chunk_log, end)
        base.add(name, stored, body_ranges(stored))
        return base

    async def cache_base(
        self, session: str, name: str, owner: Owner, manifest: Manifest, stored: dict[str, Any]
    ) -> None:
        """Cache how a state that was just read is stored, if nothing is cached, so that the next save does not read
        it."""
        if (session, owner.ref) in self._bases:
            return
        base = await self._base_of(session, name, manifest, stored)
        with self._lock:
            self._bases.setdefault((session, owner.ref), base)
            while len(self._bases) > _CACHED_BASES:
                self._bases.popitem(last=False)

    def forget(self, session: str | None) -> None:
        """Drop the cached data of a session (None: of all sessions)."""
        with self._lock:
            self._generation += 1
            for key in [key for key in self._bases if session is None or key[0] == session]:
                del self._bases[key]

    # -- reading

    async def assemble(self, session: str, manifest: Manifest, owner: Owner) -> AssembledState:
        """The state of a manifest. Raises ValueError if a body is missing or cannot be opened."""
        try:
            bodies = await self._chunks.bodies(session, manifest.ranges(), owner)
            return manifest.assemble(lambda one: [bodies[one[0], index] for index in range(one[1], one[2])], owner.salt)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"one of its chunks is missing or damaged ({error})") from error


def _update_base(base: DeltaBase, writes: list[StateWrite], deltas: list[Delta]) -> None:
    base.end = deltas[0].start + len(deltas[0].bodies)
    for write, delta in zip(writes, deltas, strict=True):
        base.add(write.name, delta.stored, delta.new_bodies.items() if delta is deltas[-1] else ())


def _results(done: StoredBatch, deltas: list[Delta], prepared: list[Prepared]) -> list[WriteResult]:
    return [
        WriteResult(record.position, record.time, delta.digest, event.data["note"])
        for record, delta, event in zip(done.records, deltas, prepared, strict=True)
    ]


def _interrupted() -> StoreError:
    return StoreError(
        "the writer that was storing this state together with its own was interrupted",
        hint="the state may or may not be stored: load the newest one, or save it again with the same id",
    )
