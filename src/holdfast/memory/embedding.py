"""The embedder of a workspace: loaded when it is first needed, checked against the vectors that are stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec

from ..errors import EmbedderFailed, EmbedderMismatch
from ..ports import Embedder, EmbedderIdentity, Generation, Store
from ..runtime import aside
from .traces import Vector

Load = Callable[[], Embedder | None]
_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(EmbedderIdentity).decode


class Embedding:
    """One embedder for one workspace. `load` gives it, or None if there shall be none."""

    def __init__(self, store: Store, workspace: str, load: Load) -> None:
        self._store = store
        self._workspace = workspace
        self._load = load
        self._loading = threading.Lock()
        self._loaded = False
        self._embedder: Embedder | None = None
        self._failure: EmbedderFailed | None = None
        self._generation: Generation | None = None

    def embedder(self) -> Embedder | None:
        """The embedder, loaded now if it was not; None if there is none. Blocks. Raises `EmbedderFailed`."""
        with self._loading:
            if not self._loaded:
                try:
                    self._embedder = self._load()
                except EmbedderFailed as error:
                    self._failure = error
                self._loaded = True
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        return self._embedder

    @property
    def dims(self) -> int:
        """The length of a vector; 0 while there is no embedder."""
        return 0 if self._embedder is None else self._embedder.dims

    async def generation(self) -> int:
        """The generation of vectors that this embedder makes and searches; 0 if there is none. Raises
        `EmbedderMismatch` if another one made those that are searched."""
        if self._generation is not None:
            return self._generation.number
        embedder = await aside(self.embedder)
        if embedder is None:
            return 0
        identity = _pack(embedder.identity)
        there = await self._store.generations(self._workspace)
        active = next((one for one in there if one.active), None)
        if active is None:
            active = await self._store.add_generation(self._workspace, identity, active=True)
        if active.identity != identity:
            raise EmbedderMismatch(_shown(active.identity), _shown(identity))
        self._generation = active
        return active.number

    async def embed(self, texts: Sequence[str]) -> Vector | None:
        """One row for each text; None if there is no embedder. Raises `EmbedderFailed`."""
        embedder = await aside(self.embedder)
        return None if embedder is None else await aside(lambda: embedder.embed(texts))


def _shown(identity: bytes) -> str:
    try:
        known = _unpack(identity)
    except msgspec.DecodeError:
        return "an embedder of a later version"
    sum_ = f", {known.checksum[:8]}" if known.checksum else ""
    return f"{known.name} ({known.dims} dimensions{sum_})"
