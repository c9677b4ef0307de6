"""The folder `.duramen`, in which a sync stores its state, and the lock of the sync.

The folder is opened once for a sync, and its files are opened relative to it, never through a link. Someone else who
can write to the folder of memory files cannot make a sync write to another place.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from filelock import lock_descriptor

from ...errors import FileError
from ...private_files import FILE_MODE
from ...runtime import pause
from ..folder.boundary import Folder
from ..folder.safe_open import step_into

FOLDER = ".duramen"
_LOCK_POLL = 0.1
"""Seconds between two attempts to take the sync lock."""
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class StateFolder:
    """The open folder. The caller holds the sync lock, so there is one writer."""

    def __init__(self, handle: int, path: str) -> None:
        self._handle = handle
        self._path = path

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises `OSError`."""
        with open(self._open(name, os.O_RDONLY), "rb") as file:
            return file.read()

    def stat(self, name: str) -> os.stat_result | None:
        """The `stat` result of a file. None if there is none."""
        with suppress(OSError):
            return os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        return None

    def append(self, name: str, data: bytes) -> None:
        """Append to a file durably. Raises `FileError`, also for a hard link, whose other name may be elsewhere."""
        with _trouble(f"{self._path}/{name}", "write"):
            handle = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with open(handle, "ab") as file:
                if os.fstat(handle).st_nlink > 1:
                    raise FileError(f"{self._path}/{name} is a hard link", hint="remove it, and sync again")
                self._write(file.fileno(), data)

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file atomically and durably. Raises `FileError`."""
        new = f"{name}.new"
        with _trouble(f"{self._path}/{name}", "write"):
            self._unlink(new)
            handle = self._open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                self._write(handle, data)
            finally:
                os.close(handle)
            os.replace(new, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
            os.fsync(self._handle)

    def remove(self, name: str) -> None:
        """Remove a file, and what a killed `replace` left of it. Raises `FileError`."""
        with _trouble(f"{self._path}/{name}", "remove"):
            self._unlink(name)
            self._unlink(f"{name}.new")

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | _SAFE, FILE_MODE, dir_fd=self._handle)

    def _write(self, handle: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)

    def _unlink(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._handle)


@asynccontextmanager
async def sync_lock(folder: Folder) -> AsyncGenerator[StateFolder, None]:
    """Hold the sync lock of a folder, which excludes other processes, threads and tasks. Waits without a limit.

    The system releases the lock when the process of its holder ends. On a file system without locks nothing is
    excluded. Raises `BoundaryRefused` if `.duramen` is a link.
    """
    path = f"{folder.root}/{FOLDER}"
    with _trouble(path, "use"):
        handle = step_into(folder.handle(), FOLDER, path, make=True)
    assert handle is not None
    try:
        with _trouble(f"{path}/lock", "use"):
            lock = os.open("lock", os.O_RDWR | os.O_CREAT | _SAFE, FILE_MODE, dir_fd=handle)
        try:
            while not _try_lock(lock):
                await pause(_LOCK_POLL)
            yield StateFolder(handle, path)
        finally:
            os.close(lock)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:  # a file system without locks
        return True


@contextmanager
def _trouble(path: str, what: str) -> Iterator[None]:
    """Translate an `OSError` to a `FileError` with a hint."""
    try:
        yield
    except OSError as error:
        raise FileError(
            f"cannot {what} {path}: {error.strerror}", hint="check its permissions and the free disk space"
        ) from error
