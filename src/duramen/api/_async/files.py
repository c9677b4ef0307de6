"""Memories as files that people read and edit."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...journal.journal import Journal
from ...runtime import Lock

if TYPE_CHECKING:
    from ...files.sync.report import FilesSynced, Left
    from ...memory.memory_service import MemoryService


class AsyncFiles:
    """The memories of a workspace as markdown files in a folder: an outlet, and an inlet for what people change."""

    def __init__(self, journal: Journal, service: MemoryService, root: str | os.PathLike[str], commits: bool) -> None:
        from ...files.sync.folder_sync import Syncing, checked_root

        self._journal = journal
        self._syncing = Syncing(journal, service, checked_root(root), commits)
        self._lock = Lock()

    @property
    def root(self) -> str:
        """The folder."""
        return self._syncing.folder.root

    async def sync(
        self, *, deletions: bool = False, progress: Callable[[str, int, int], None] | None = None
    ) -> FilesSynced:
        """Journal what people edited, added and deleted since the last time, as changes by "human"; then write what
        the store knows, only where it changed, each file whole and synced. If it is stopped, the next sync continues.
        Where many files are missing at once they are held back, as a disk may not be mounted: `deletions` says that
        people deleted them. `progress` is called with what is done ("Reading", "Writing"), how much, and of how much."""
        acquired = await self._lock.acquire(60.0)
        try:
            return await self._syncing.sync(progress, deletions)
        finally:
            if acquired:
                self._lock.release()

    async def watch(self, seconds: float = 1.0, *, timeout: float | None = None) -> AsyncGenerator[FilesSynced, None]:
        """Sync again and again, as the store changes and at least every `seconds`, until `timeout` of them are over;
        gives what was done, when anything was, or when other files are left alone than before."""
        ends = None if timeout is None else time.monotonic() + timeout
        left: tuple[Left, ...] = ()
        while True:
            mark = await self._journal.store.mark()
            done = await self.sync()
            if done.changed or done.left != left:
                left = done.left
                yield done
            wait = seconds if ends is None else min(seconds, ends - time.monotonic())
            if wait <= 0:
                return
            await self._journal.store.changed(mark, wait)

    def instructions(self) -> str:
        """What AGENTS.md says, for a system prompt; empty if there is none. It is read, and never written."""
        return self._syncing.instructions()

    def close(self) -> None:
        """Let go of the folder. Closing twice does nothing."""
        self._syncing.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
