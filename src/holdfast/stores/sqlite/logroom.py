"""Room at the end of the write-ahead log, made before it is needed.

A commit that extends the log waits for the file system to note its new size, too: on ext4 that is half as long again,
or twice as long, as one that overwrites what is there. SQLite extends it page by page until it begins again at its
start. So zeros are written ahead of it; they are no valid frames, and whoever reads the log stops there.

Only beyond the end of the file, and only inside a transaction that has SQLite's own write lock: nobody else can extend
the log meanwhile, and no frame of anybody is ever overwritten.
"""

from __future__ import annotations

import os
from contextlib import suppress

_EVERY = 8
"""Commits after which the log's size is looked at. A process that writes less makes no room at all."""
_LEAST, _MOST = 256 * 1024, 1024 * 1024
"""Bytes written ahead at once: as many as there are, within these. They are synced with the commit that follows."""


class LogRoom:
    """The log of one database as its writing connection sees it. Where no room can be made, only time is lost."""

    def __init__(self, database: str | None) -> None:
        self._path = None if database is None or not hasattr(os, "pwrite") else f"{database}-wal"
        self._file = -1
        self._left = _EVERY
        self._made = 0
        self.short = False
        """Whether `widen` shall be called in the next transaction."""

    def committed(self) -> None:
        """Note a commit."""
        self._left -= 1
        if not self._left:
            self._left = _EVERY
            self._look()

    def _look(self) -> None:
        if self._path is None:
            return
        try:
            if self._file < 0:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            size = os.fstat(self._file).st_size
        except OSError:
            self.close()
            return
        self._made = min(self._made, size)  # it was cut meanwhile
        self.short = size > self._made

    def widen(self) -> None:
        """Write zeros behind the end of the log. Only with SQLite's write lock."""
        self.short = False
        try:
            size = os.fstat(self._file).st_size
            self._made = size + os.pwrite(self._file, bytes(max(_LEAST, min(size, _MOST))), size)
        except OSError:  # the disk is full, perhaps: SQLite will say so, if it needs that room
            self.close()

    def close(self) -> None:
        """Make no more room. The file may be closed at any time: SQLite has no locks on it."""
        self._path, self.short = None, False
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1
