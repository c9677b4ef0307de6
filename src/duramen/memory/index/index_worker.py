"""Vectors that follow in the background: in batches, by a thread of their own, from what the store says is still
without. A kill loses nothing but the batch under way, which the next process makes again."""

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
"""Seconds that whoever makes vectors waits for another thread's batch: both would take the same memories, and embed
them twice."""
_FLUSH_EVERY = 2.0
"""Seconds between two times that recalls are noted in the store."""
_GATHER_TIME = 0.02
"""Seconds between a wish and its work: what is remembered in a row wakes the thread once, not once each, and shares
batches. A thread that wakes for each takes the interpreter from the one that remembers."""
_READY_BATCH = 500
_MAINTAIN_EVERY = 60.0
_LOOK_EVERY = 5.0
"""Seconds after which it is looked for memories of other processes that are still without a vector."""


class IndexWorker:
    """Makes index_entries of the memories of a workspace."""

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
        """There is something to do now."""
        if not self._wake.is_set():
            self._wake.set()
        self.start()

    def start(self) -> None:
        """There may be something to do; it is looked at soon."""
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stopping.is_set():
                    self._thread = threading.Thread(target=self._work, name="duramen-memory", daemon=True)
                    self._thread.start()

    def _work(self) -> None:
        flushed = 0.0
        while not self._stopping.wait(_GATHER_TIME):
            self._wake.clear()
            with suppress(DuramenError):  # said by the next recall; tried again at the next look
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
        """Make index_entries for a while; how many there were."""
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
        """Give a store that searches by itself what it lacks for that, a batch; how many there were. There are some
        where index_entries are older than its tables."""
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
        """Let the store look after its indexes, beside everything else: a large one takes minutes."""
        retriever = self._journal.store.retriever
        if retriever is None or time.monotonic() < self._next_maintenance or self._stopping.is_set():
            return
        if self._maintenance is None or not self._maintenance.is_alive():
            self._next_maintenance = time.monotonic() + _MAINTAIN_EVERY
            self._maintenance = threading.Thread(
                target=self._maintain_now, args=(retriever,), name="duramen-tending", daemon=True
            )
            self._maintenance.start()

    def _maintain_now(self, retriever: Retriever) -> None:
        with suppress(DuramenError):
            generation = drive(self._embedder.generation())
            if generation:
                drive(retriever.maintain_indexes(self._journal.workspace, generation, code_bits(self._embedder.dims)))

    async def reindex(self) -> AsyncGenerator[tuple[int, int], None]:
        """Make every vector anew with this handle's embedder, while the old ones are searched, and search the new ones
        at the end. Says how many are done and how many are left. Stopped anywhere, the next call goes on."""
        generation, done = await self._embedder.next_generation(), 0
        if not generation:
            raise InvalidInput("without an embedder there are no vectors to make", hint="open with embedder=…")
        store, workspace = self._journal.store, self._journal.workspace
        yield 0, await store.count_unindexed(workspace, generation)
        async with aclosing(self._builder.build_batches(generation)) as batches:
            async for made in batches:
                if generation not in {one.number for one in await store.generations(workspace)}:
                    raise StoreBusy("another process moved the store elsewhere meanwhile", hint="let one of them do it")
                done += made
                yield done, await store.count_unindexed(workspace, generation)
        if store.retriever is not None:  # before it is searched: without an index it would be slow until it has one
            await store.retriever.maintain_indexes(workspace, generation, code_bits(self._embedder.dims))
        await self._embedder.activate(generation)
        reach("memory.reindexed")

    async def index_new(self, *, wait: bool) -> None:
        """Index new memories: now if the caller waits for it, else in the background. Raises `EmbedderFailed`."""
        if not wait:
            self.wake()
            return
        try:
            await self.catch_up()
        except EmbedderFailed as failure:
            failure.add_note("The memory is stored, and found by its words; its vector follows.")
            raise

    async def catch_up(self) -> None:
        """Make all index_entries that are missing, now."""
        while await self.build_some():
            pass
        while await self.make_searchable():
            pass

    async def write_segments(self) -> None:
        """Pack what came to rest, now."""
        generation = await self._embedder.generation()
        if not generation or not await self._segment_lock.acquire(_LOCK_TIMEOUT):
            return
        try:
            await self._segment_writer.write_segments(generation)
        finally:
            self._segment_lock.release()

    async def count_waiting(self, generation: int | None = None) -> int:
        """How many memories have no vector yet, of a generation that was just read or of the one that is searched."""
        if generation is None:
            generation = await self._embedder.generation()
        return await self._journal.store.count_unindexed(self._journal.workspace, generation) if generation else 0

    def add_recalls(self, numbers: list[int], now: int) -> None:
        """These were recalled. It is stored soon, with others."""
        with self._recalls_lock:
            for number in numbers:
                count, _ = self._recalls.get(number, (0, 0))
                self._recalls[number] = (count + 1, now)

    async def flush_recalls(self) -> None:
        """Store what was noted."""
        with self._recalls_lock:
            recalls, self._recalls = self._recalls, {}
        if recalls:
            rows = [(number, count, time) for number, (count, time) in sorted(recalls.items())]
            try:
                await self._journal.store.note_recalls(self._journal.workspace, rows)
            except StoreReadOnly:
                pass  # they count in this process, and nowhere else
            except BaseException:
                self._restore_recalls(recalls)
                raise

    def _restore_recalls(self, recalls: dict[int, tuple[int, int]]) -> None:
        """What could not be stored waits for the next time."""
        with self._recalls_lock:
            for number, (count, time) in recalls.items():
                since, last = self._recalls.get(number, (0, 0))
                self._recalls[number] = (count + since, max(time, last))

    def stop(self) -> None:
        """End the thread, and store what was noted."""
        self._stopping.set()
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)
        with suppress(DuramenError):
            drive(self.flush_recalls())
