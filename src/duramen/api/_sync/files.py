"""Memories as files, blocking: the same code, stepped by hand. See `duramen.aio_files`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...runtime import drive, drive_iterator
from .._async.files import AsyncFiles

if TYPE_CHECKING:
    from ...files.sync.report import FilesSynced


class Files:
    """The memories of a workspace as markdown files in a folder. A sync writes them, and reads what people changed."""

    def __init__(self, core: AsyncFiles) -> None:
        self._core = core

    @property
    def root(self) -> str:
        """The folder."""
        return self._core.root

    def sync(self, *, deletions: bool = False, progress: Callable[[str, int, int], None] | None = None) -> FilesSynced:
        """Journal what people edited, added and deleted since the last time, as changes by "human"; then write what
        the store knows, only where it changed, each file whole and synced. Stopped anywhere, the next sync goes on.
        Where many files are missing at once they are held back, as a disk may not be mounted: `deletions` says that
        somebody deleted them. `progress` is told what is done ("Reading", "Writing"), how much, and of how much."""
        return drive(self._core.sync(deletions=deletions, progress=progress))

    def watch(self, seconds: float = 1.0, *, timeout: float | None = None) -> Iterator[FilesSynced]:
        """Sync whenever the store or a file changes, and at least once a minute, until `timeout` seconds have passed.
        Files are checked every `seconds`. Yields a report when something was done, or when `left` differs."""
        return drive_iterator(self._core.watch(seconds, timeout=timeout))

    def instructions(self) -> str:
        """What AGENTS.md says, for a system prompt; empty if there is none. It is read, and never written."""
        return self._core.instructions()

    def close(self) -> None:
        """Let go of the folder. Closing twice does nothing."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
