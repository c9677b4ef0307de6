"""Loads the embedder of a workspace on first use, and checks that it made the stored vectors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from ...errors import EmbedderFailed, EmbedderMismatch, StoreReadOnly, WeightsUnavailable
from ...ports import Embedder, EmbedderIdentity, Store
from ...runtime import run_alongside, run_blocking
from .index_entry import Vector

EmbedderLoader = Callable[[bool], Embedder | None]
"""Returns the embedder, or None if there is none. It downloads missing files only if the argument is True."""
_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(EmbedderIdentity).decode


class Prefetch(Protocol):
    """Work on a search that runs while its question is embedded."""

    async def during_embedding(self) -> None:
        """Do the work that needs no vector, while the question is embedded."""
        ...

    def after_embedding(self, vector: Vector) -> None:
        """Do the work that needs the vector, on the thread that computed it. Blocks. `during_embedding` may still
        run."""
        ...


class WorkspaceEmbedder:
    """Embeds the texts and questions of a workspace, and knows the generation of its vectors."""

    def __init__(self, store: Store, workspace: str, load: EmbedderLoader) -> None:
        self._store = store
        self._workspace = workspace
        self._load = load
        self._loading = threading.Lock()
        self._loaded = False
        self._embedder: Embedder | None = None
        self._failure: EmbedderFailed | None = None
        self._fetched = False
        self._idle_slots = threading.Semaphore(max(1, (os.cpu_count() or 1) // 2))
        """How many questions may run a prefetch at the same time."""

    def embedder(self) -> Embedder | None:
        """The embedder; None if there is none. The first call loads it. Blocks. Raises `EmbedderFailed`."""
        with self._loading:
            if not self._loaded:
                self._try_load(fetch=False)
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        return self._embedder

    def fetch_weights(self) -> None:
        """Download missing files of the embedder. Tries once per handle. Recalls do not wait for it."""
        with suppress(EmbedderFailed):
            self.embedder()
        if isinstance(self._failure, WeightsUnavailable) and not self._fetched:
            self._fetched = True
            self._try_load(fetch=True)

    def _try_load(self, *, fetch: bool) -> None:
        try:
            self._embedder, self._failure = self._load(fetch), None
        except EmbedderFailed as error:
            self._failure = error
        self._loaded = True

    @property
    def dims(self) -> int:
        """The length of a vector; 0 while there is no embedder."""
        return 0 if self._embedder is None else self._embedder.dims

    async def generation(self) -> int:
        """The active generation of vectors; 0 without an embedder. If there is none, it is created. Raises
        `EmbedderMismatch` if another embedder made it."""
        embedder = await run_blocking(self.embedder)
        if embedder is None:
            return 0
        identity = _pack(embedder.identity)
        there = await self._store.generations(self._workspace)
        active = next((one for one in there if one.active), None)
        if active is None:
            try:
                active = await self._store.add_generation(self._workspace, identity, active=True)
            except StoreReadOnly:
                return 0
        if active.identity != identity:
            raise EmbedderMismatch(_description(active.identity), _description(identity))
        return active.number

    async def next_generation(self) -> int:
        """The generation of this embedder, active or not; 0 without an embedder. If there is none, it is created."""
        embedder = await run_blocking(self.embedder)
        if embedder is None:
            return 0
        made = await self._store.add_generation(self._workspace, _pack(embedder.identity), active=True)
        return made.number

    async def activate(self, generation: int) -> None:
        """Make a generation the active one and drop the others."""
        await self._store.activate(self._workspace, generation)

    def embed(self, texts: Sequence[str]) -> Vector | None:
        """One row for each text; None if there is no embedder. Blocks. Raises `EmbedderFailed`."""
        embedder = self.embedder()
        return None if embedder is None else embedder.embed(texts)

    async def embed_question(self, text: str, prefetch: Prefetch | None) -> Vector | None:
        """The vector of a question; None if there is no embedder. The `prefetch` runs during the embedding, unless many
        questions are asked at once, because no processor is idle then. Raises `EmbedderFailed`, and any error of
        `prefetch`."""
        embedder = await run_blocking(self.embedder)
        if embedder is None:
            return None
        if prefetch is None or not self._idle_slots.acquire(blocking=False):
            return await run_blocking(lambda: embedder.embed([text])[0])

        def work() -> Vector:
            vector: Vector = embedder.embed([text])[0]
            prefetch.after_embedding(vector)
            return vector

        try:
            vector, _ = await run_alongside(work, prefetch.during_embedding())
            return vector
        finally:
            self._idle_slots.release()


def _description(identity: bytes) -> str:
    try:
        known = _unpack(identity)
    except msgspec.DecodeError:
        return "an embedder of a later version"
    sum_ = f", {known.checksum[:8]}" if known.checksum else ""
    return f"{known.name} ({known.dims} dimensions{sum_})"
