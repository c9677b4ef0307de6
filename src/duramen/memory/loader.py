"""Loads the memory service on first use: its imports are slow, and many handles never need it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..journal.journal import Journal
from ..ports import Embedder, Model

if TYPE_CHECKING:
    from .knowledge.policies import KindPolicy
    from .memory_service import MemoryService


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Memory settings of a workspace.

    `embedder` returns the embedder. It downloads the embedder's files only if its argument is True. If `model` is set,
    it reads the conversation after every `model_every` turns.
    """

    embedder: Callable[[bool], Embedder | None] = lambda fetch: None
    suspicious: str = "flag"
    policies: Mapping[str, KindPolicy] | None = None
    write_back: bool = True
    model: Model | None = None
    model_every: int = 5


class MemoryLoader:
    """Loads the memory service of one handle. Thread-safe."""

    def __init__(self, journal: Journal, settings: MemorySettings) -> None:
        self._journal = journal
        self.settings = settings
        self._loaded: MemoryService | None = None
        self._lock = threading.Lock()

    def load(self) -> MemoryService:
        """The memory service. The first call creates it."""
        if self._loaded is None:
            from .knowledge.model_reader import ModelReaderSettings
            from .knowledge.policies import Policies
            from .memory_service import MemoryService

            chosen = self.settings
            reader = (
                None
                if chosen.model is None
                else ModelReaderSettings(chosen.model, chosen.model_every, chosen.suspicious)
            )
            with self._lock:
                if self._loaded is None:
                    self._loaded = MemoryService(self._journal, chosen.embedder, Policies(chosen.policies), reader)
        return self._loaded

    def forget(self) -> None:
        """Drop this process's caches of memories, because a subject was erased."""
        if self._loaded is not None:
            self._loaded.search.clear()

    def close(self) -> None:
        """Stop the background work. Blocks until it has stopped."""
        if self._loaded is not None:
            self._loaded.write_back.stop()
            self._loaded.index_worker.stop()
