"""A fair lock between the processes that write one SQLite file.

SQLite's own busy handler sleeps and tries again, so one busy writer can block the others for seconds. A lock file next
to the database makes them wait in a queue of the kernel instead. The longest waiting process is next, and the kernel
releases the lock of a killed process at once.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any

from ...errors import StoreBusy
from ...private_files import FILE_MODE

try:
    import fcntl
except ImportError:  # this system has no flock: only SQLite's busy handler is used
    fcntl = None  # type: ignore[assignment]


class WriteLock:
    """Held while a transaction writes. It is not reentrant. Only one thread uses it at a time."""

    def __init__(self, path: str, timeout: float) -> None:
        self._timeout = timeout
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE) if fcntl else -1

    def __enter__(self) -> None:
        try:
            try:
                if self._file >= 0:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._queue()
        except BaseException:
            self.__exit__()  # an interrupt must not leave it locked
            raise

    def __exit__(self, *_: Any) -> None:
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _queue(self) -> None:
        """Wait in the kernel's queue, in another thread, because flock has no timeout."""
        waiting = _Waiting(self._file)
        granted = False
        try:
            granted = waiting.granted.wait(self._timeout)
        finally:
            if not granted and not waiting.give_up():
                self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)  # the waiting thread owns the old one
            else:
                granted = True
        if not granted:
            raise StoreBusy(
                f"another process has held the write lock for {self._timeout:g} s",
                hint="check for a stopped writer, or pass a longer timeout to open()",
            )

    def close(self) -> None:
        """Close the file. This releases the lock, unless a forked process still has the file open."""
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1


class NoLock:
    """Used where no other process can write, or nothing is written."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


class _Waiting:
    """A thread that waits for the lock. If the wait was abandoned, it closes the file, which releases the lock."""

    def __init__(self, file: int) -> None:
        self.granted = threading.Event()
        self._file = file
        self._mutex = threading.Lock()
        self._abandoned = False
        threading.Thread(target=self._wait, name="duramen-write-lock", daemon=True).start()

    def _wait(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._mutex:
            self.granted.set()
            if self._abandoned:
                os.close(self._file)

    def give_up(self) -> bool:
        """Abandon the wait. Returns True if the lock was granted at the last moment."""
        with self._mutex:
            self._abandoned = not self.granted.is_set()
            return self.granted.is_set()
