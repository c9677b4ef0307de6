"""The background thread that indexes new memories in batches.

It asks the store for memories without an index entry. A kill loses only the current batch, which the next process
computes again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from ...crash_points import reach
from ...errors import DuramenError, EmbedderFailed, InvalidInput, StoreBusy, StoreReadOnly
from ...journal.journal import Journal
from ...ports import Retriever, SearchFields
from ...runtime import Lock, drive
from ..catalog.texts import MemoryTexts
from .index_builder import IndexBuilder
from .index_codec import IndexCodec
from .index_entry import code_bits, code_of, search_fields
from .segment_writer import SegmentWriter
from .workspace_embedder import WorkspaceEmbedder

_LOCK_TIMEOUT = 30.0
"""Seconds to wait for another thread's batch. Without the lock, both threads would embed the same memories."""
_FLUSH_EVERY = 2.0
"""Seconds between two writes of recall counts."""
_GATHER_TIME = 0.02
"""Seconds between a wake-up and the work. Memories that are stored in quick succession then wake the thread once and
share batches. A wake-up for each memory would slow down the writer, because both need the interpreter lock."""
_READY_BATCH = 500
_MAINTAIN_EVERY = 60.0
_LOOK_EVERY = 5.0
"""Seconds between two checks for unindexed memories of other processes."""


class IndexWorker:
    """Indexes the memories of a workspace, in the background or on request."""

    def __init__(self, journal: Journal, texts: MemoryTexts, codec: IndexCodec, embedder: WorkspaceEmbedder) -> None:
        self._journal = journal
        self._codec = codec
        self._embedder = embedder
        self._builder = IndexBuilder(journal, texts, codec, embedder)
        self._segment_writer = SegmentWriter(journal, codec, embedder)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._build_lock, self._segment_lock = Lock(), Lock()
        self._recalls: dict[int, tuple[int, int]] = {}
        self._recalls_lock = threading.Lock()
        self._maintenance: threading.Thread | None = None
        self._next_maintenance = 0.0

    def wake(self) -> None:
        """Tell the thread that new memories wait to be indexed. Starts it if necessary."""
        if not self._wake.is_set():
            self._wake.set()
        self.start()

    def start(self) -> None:
        """Start the thread, unless it runs or was stopped."""
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stopping.is_set():
                    self._thread = threading.Thread(target=self._work, name="duramen-memory", daemon=True)
                    self._thread.start()

    def _work(self) -> None:
        flushed = 0.0
        while not self._stopping.wait(_GATHER_TIME):
            self._wake.clear()
            if self._stopping.is_set():  # checked after `clear`, which may have removed the wake-up of `stop`
                return
            with suppress(DuramenError):  # the next recall reports the error; the next round tries again
                if time.monotonic() - flushed > _FLUSH_EVERY:
                    drive(self.flush_recalls())
                    flushed = time.monotonic()
                self._embedder.fetch_weights()
                while not self._stopping.is_set() and drive(self.build_some()):
                    pass
                if not self._stopping.is_set():
                    drive(self.write_segments())
                while not self._stopping.is_set() and drive(self.make_searchable()):
                    pass
                self._maintain_indexes()
            self._wake.wait(_LOOK_EVERY)

    async def build_some(self) -> int:
        """Make index entries for a few seconds at most. Returns how many memories were indexed."""
        generation = await self._embedder.generation()
        if not generation:
            return 0
        taken = await self._build_lock.acquire(_LOCK_TIMEOUT)
        try:
            return await self._builder.build_some(generation, self._stopping.is_set)
        finally:
            if taken:
                self._build_lock.release()

    async def make_searchable(self) -> int:
        """Write one batch of missing search fields to a store that can search by itself. Returns how many. Fields are
        missing if the index entries are older than the store's search tables."""
        retriever, workspace = self._journal.store.retriever, self._journal.workspace
        generation = 0 if retriever is None else await self._embedder.generation()
        if retriever is None or not generation:
            return 0
        changes = await retriever.unsearchable(workspace, generation, _READY_BATCH)
        opened = await self._codec.open_entries(changes, self._embedder.dims, generation)
        ready: list[tuple[int, SearchFields | None]] = []
        for change in changes:
            owner, entry = await self._journal.bookmarks.owner_of(change.row.owner), opened.get(change.row.number)
            sealed = owner is None or owner.data_key is not None
            if sealed or entry is None:
                ready.append((change.row.number, None))
            else:
                code = None if entry.vector is None else code_of(entry.vector)
                ready.append((change.row.number, search_fields(entry.stats, code)))
        reach("memory.readying")
        await retriever.make_searchable(workspace, generation, ready)
        return len(changes)

    def _maintain_indexes(self) -> None:
        """Let the store maintain its indexes on a separate thread, because a large index takes minutes."""
        retriever = self._journal.store.retriever
        if retriever is None or time.monotonic() < self._next_maintenance or self._stopping.is_set():
            return
        if self._maintenance is None or not self._maintenance.is_alive():
            self._next_maintenance = time.monotonic() + _MAINTAIN_EVERY
            self._maintenance = threading.Thread(
                target=self._maintain_now, args=(retriever,), name="duramen-maintenance", daemon=True
            )
            self._maintenance.start()

    def _maintain_now(self, retriever: Retriever) -> None:
        with suppress(DuramenError):
            generation = drive(self._embedder.generation())
            if generation:
                drive(retriever.maintain_indexes(self._journal.workspace, generation, code_bits(self._embedder.dims)))

    async def reindex(self) -> AsyncGenerator[tuple[int, int], None]:
        """Compute every vector again with this handle's embedder. Searches use the old vectors until all are done.
        Yields how many are done and how many are left. If it is interrupted, the next call continues. Raises
        `InvalidInput` without an embedder, and `StoreBusy` if another process reindexes at the same time."""
        generation, done = await self._embedder.next_generation(), 0
        if not generation:
            raise InvalidInput("reindex needs an embedder, and this handle has none", hint="open with embedder=…")
        store, workspace = self._journal.store, self._journal.workspace
        yield 0, await store.count_unindexed(workspace, generation)
        async with aclosing(self._builder.build_batches(generation)) as batches:
            async for made in batches:
                if generation not in {one.number for one in await store.generations(workspace)}:
                    raise StoreBusy(
                        "another process moved the store to another embedder meanwhile",
                        hint="run reindex in one process only",
                    )
                done += made
                yield done, await store.count_unindexed(workspace, generation)
        if store.retriever is not None:  # before the switch: without an index, searches would be slow
            await store.retriever.maintain_indexes(workspace, generation, code_bits(self._embedder.dims))
        await self._embedder.activate(generation)
        reach("memory.reindexed")

    async def index_new(self, *, wait: bool) -> None:
        """Index new memories, now (`wait`) or in the background. With `wait`, raises `EmbedderFailed`."""
        if not wait:
            self.wake()
            return
        try:
            await self.catch_up()
        except EmbedderFailed as failure:
            failure.add_note("The memory is stored and can be found by its words. Its vector is made later.")
            raise

    async def catch_up(self) -> None:
        """Make all missing index entries now."""
        while await self.build_some():
            pass
        while await self.make_searchable():
            pass

    async def write_segments(self) -> None:
        """Pack index entries into segments now."""
        generation = await self._embedder.generation()
        if not generation or not await self._segment_lock.acquire(_LOCK_TIMEOUT):
            return
        try:
            await self._segment_writer.write_segments(generation)
        finally:
            self._segment_lock.release()

    async def count_waiting(self, generation: int | None = None) -> int:
        """How many memories have no vector in a generation. By default, in the active one."""
        if generation is None:
            generation = await self._embedder.generation()
        return await self._journal.store.count_unindexed(self._journal.workspace, generation) if generation else 0

    def add_recalls(self, numbers: list[int], now: int) -> None:
        """Count one recall for each of these memories. The counts are stored later, in batches."""
        with self._recalls_lock:
            for number in numbers:
                count, _ = self._recalls.get(number, (0, 0))
                self._recalls[number] = (count + 1, now)

    async def flush_recalls(self) -> None:
        """Store the recall counts."""
        with self._recalls_lock:
            recalls, self._recalls = self._recalls, {}
        if recalls:
            rows = [(number, count, time) for number, (count, time) in sorted(recalls.items())]
            try:
                await self._journal.store.note_recalls(self._journal.workspace, rows)
            except StoreReadOnly:
                pass  # the counts stay in this process
            except BaseException:
                self._restore_recalls(recalls)
                raise

    def _restore_recalls(self, recalls: dict[int, tuple[int, int]]) -> None:
        """Add recall counts that could not be stored to the next flush."""
        with self._recalls_lock:
            for number, (count, time) in recalls.items():
                since, last = self._recalls.get(number, (0, 0))
                self._recalls[number] = (count + since, max(time, last))

    def stop(self) -> None:
        """Stop the thread and store the recall counts."""
        self._stopping.set()
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)
        with suppress(DuramenError):
            drive(self.flush_recalls())
