"""Memories as files that people read and edit."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...journal.journal import Journal
from ...runtime import Lock, run_blocking

if TYPE_CHECKING:
    from ...files.sync.report import FilesSynced, SkippedFile
    from ...memory.memory_service import MemoryService


class AsyncFiles:
    """The memories of a workspace as markdown files in a folder: an outlet, and an inlet for what people change."""

    def __init__(self, journal: Journal, service: MemoryService, root: str | os.PathLike[str], commits: bool) -> None:
        from ...files.sync.folder_sync import FolderSync, checked_root

        self._journal = journal
        self._folder_sync = FolderSync(journal, service, checked_root(root), commits)
        self._lock = Lock()

    @property
    def root(self) -> str:
        """The folder."""
        return self._folder_sync.folder.root

    async def sync(
        self, *, deletions: bool = False, progress: Callable[[str, int, int], None] | None = None
    ) -> FilesSynced:
        """Journal what people edited, added and deleted since the last time, as changes by "human"; then write what
        the store knows, only where it changed, each file whole and synced. If it is stopped, the next sync continues.
        Where many files are missing at once they are held back, as a disk may not be mounted: `deletions` says that
        people deleted them. `progress` is called with what is done ("Reading", "Writing"), how much, and of how much."""
        acquired = await self._lock.acquire(60.0)
        try:
            return await self._folder_sync.sync(progress, deletions)
        finally:
            if acquired:
                self._lock.release()

    async def watch(self, seconds: float = 1.0, *, timeout: float | None = None) -> AsyncGenerator[FilesSynced, None]:
        """Sync whenever the store or a file changes, and at least once a minute, until `timeout` seconds have passed.
        Files are checked every `seconds`. Yields a report when something was done, or when `skipped` differs."""
        from ...files.folder.watcher import Watcher

        ends = None if timeout is None else time.monotonic() + timeout
        skipped: tuple[SkippedFile, ...] = ()
        with Watcher(self.root) as watcher:
            while True:
                mark = await self._journal.store.mark()
                done = await self.sync()
                if done.changed or done.skipped != skipped:
                    skipped = done.skipped
                    yield done
                while True:
                    wait = seconds if ends is None else min(seconds, ends - time.monotonic())
                    if wait <= 0:
                        return
                    waited = await self._journal.store.changed(mark, wait)
                    if waited < wait or skipped or await run_blocking(watcher.changed):
                        break

    def instructions(self) -> str:
        """What AGENTS.md says, for a system prompt; empty if there is none. It is read, and never written."""
        return self._folder_sync.instructions()

    def close(self) -> None:
        """Let go of the folder. Closing twice does nothing."""
        self._folder_sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
