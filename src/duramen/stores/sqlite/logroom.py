"""Room at the end of the write-ahead log, made before it is needed.

A commit that extends the log waits for the file system to note its new size, too: on ext4 that is half as long again,
or twice as long, as one that overwrites what is there. SQLite extends it page by page until it begins again at its
start. So zeros are written ahead of it; they are no valid frames, and whoever reads the log stops there.

Only beyond the end of the file, and only inside a transaction that has SQLite's own write lock: nobody else can extend
the log meanwhile, and no frame of anybody is ever overwritten. How much room there is stands in the file itself, so
that all who write it see the same.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_FIRST, _EVERY = 8, 32
"""Commits after which it is looked how much room there is. A process that writes little makes none."""
_WINDOW = 8 * 1024
"""Bytes in which a frame that was written shows: each begins with a number that is not zero, every 4 KiB."""
_LEAST, _MOST = 256 * 1024, 1024 * 1024
"""Bytes written ahead at once: as many as there are, within these. They are synced with the commit that follows."""
_USUAL = 2_000 * (4096 + 24)
"""The size at which SQLite begins the log anew, if no reader is in its way. More room would be of no use."""


class LogRoom:
    """The log of one database as its writing connection sees it. Where no room can be made, only time is lost."""

    def __init__(self) -> None:
        self._file = -1
        self._left = sys.maxsize

    def open(self, log: str) -> None:
        """From now on see to the room in this file, if it is there."""
        if hasattr(os, "pwrite"):
            with suppress(OSError):
                self._file = os.open(log, os.O_RDWR | os.O_CLOEXEC)
                self._left = _FIRST

    @property
    def is_due(self) -> bool:
        """Whether `see_to` shall be called before the next commit."""
        return self._left <= 0

    def committed(self) -> None:
        """Note a commit."""
        self._left -= 1

    def see_to(self) -> None:
        """Write zeros behind the end of the log if there are few. Only with SQLite's write lock."""
        self._left = _EVERY
        try:
            size = os.fstat(self._file).st_size
            if size < _USUAL and self._is_short(size):
                os.pwrite(self._file, bytes(max(_LEAST, min(size, _MOST))), size)
        except OSError:  # the disk is full, perhaps: SQLite will say so, if it needs that room
            self.close()

    def _is_short(self, size: int) -> bool:
        spare = min(size // 2, _MOST // 2)
        return spare < _WINDOW or os.pread(self._file, _WINDOW, size - spare) != bytes(_WINDOW)

    def close(self) -> None:
        """Make no more room. The file may be closed at any time: SQLite has no locks on it."""
        self._left = sys.maxsize
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1
