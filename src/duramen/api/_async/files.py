"""Memories as files that people read and edit."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...journal.events import check_flag, check_function, check_seconds
from ...journal.journal import Journal
from ...runtime import Lock, run_blocking

if TYPE_CHECKING:
    from ...files.folder.git import GitMode
    from ...files.sync.report import FilesSynced, SkippedFile
    from ...memory.memory_service import MemoryService


class AsyncFiles:
    """The memories of a workspace as markdown files in a folder. Edits by people are journaled."""

    def __init__(
        self, journal: Journal, service: MemoryService, root: str | os.PathLike[str], commits: GitMode
    ) -> None:
        from ...files.folder.git import checked_mode
        from ...files.sync.folder_sync import FolderSync, checked_root

        self._journal = journal
        self._folder_sync = FolderSync(journal, service, checked_root(root), checked_mode(commits))
        self._lock = Lock()

    @property
    def root(self) -> str:
        """The absolute path of the folder."""
        return self._folder_sync.folder.root

    async def sync(
        self, *, deletions: bool = False, progress: Callable[[str, int, int], None] | None = None
    ) -> FilesSynced:
        """Journal what people changed in the files, then write what changed in the store. Returns what was done.

        Edits, additions and deletions are journaled with the actor "human". Files are replaced atomically. If a sync
        is interrupted, the next one continues.

        Args:
            deletions: accept that many files are missing at once. By default their memories are kept, because the
                disk may not be mounted.
            progress: called with the phase ("Reading" or "Writing"), the number of files done, and the total.
        """
        check_flag("deletions", deletions)
        if progress is not None:
            check_function("progress", progress)
        acquired = await self._lock.acquire(60.0)
        try:
            return await self._folder_sync.sync(progress, deletions)
        finally:
            if acquired:
                self._lock.release()

    async def watch(self, seconds: float = 1.0, *, timeout: float | None = None) -> AsyncGenerator[FilesSynced, None]:
        """Sync whenever the store or a file changes, and at least once a minute.

        Yields a report for each sync that changed something, and when the skipped files change.

        Args:
            seconds: how often the files are checked.
            timeout: stop after this many seconds. Default: never.
        """
        from ...files.folder.watcher import Watcher

        check_seconds("seconds", seconds, above=True)
        ends = None if timeout is None else time.monotonic() + check_seconds("timeout", timeout)
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
        """Return the text of AGENTS.md in the folder, for a system prompt; "" if there is none. duramen never writes
        this file."""
        return self._folder_sync.instructions()

    def close(self) -> None:
        """Release the folder. Closing twice does nothing."""
        self._folder_sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
