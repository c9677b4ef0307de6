"""Temporary files, which are renamed to their real names, and a sweep that removes those of killed writers.

A temporary file is locked while its writer runs. The system releases the lock when the writer ends, and the next sweep
removes the file.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from filelock import lock_descriptor

from ...crash_points import reach
from .paths import KNOWLEDGE_FOLDERS

_TEMP_NAME = re.compile(r"\..{1,120}\.[0-9a-f]{8}\.duramen-tmp", re.DOTALL)
_SHOWN = 40
_SYNCERS = 8


def is_temp_file(name: str) -> bool:
    """Whether this is the name of a temporary file of duramen."""
    return _TEMP_NAME.fullmatch(name) is not None


@dataclass(slots=True)
class TempFile:
    """A file that is written in the same folder as the file that it will replace."""

    folder_fd: int
    target: str
    name: str
    handle: int
    published: bool = False

    def write(self, data: bytes) -> None:
        """Write all of the data."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.handle, rest) :]
        reach("files.temp_written")

    def sync(self) -> None:
        """Make the content durable. Call it before `publish`: otherwise a power loss could leave an empty file."""
        os.fsync(self.handle)

    def publish(self) -> None:
        """Rename the file to its real name. An existing link is replaced, not followed. Durable after a sync of the
        folder."""
        os.rename(self.name, self.target, src_dir_fd=self.folder_fd, dst_dir_fd=self.folder_fd)
        self.published = True
        reach("files.published")


def sync_all(temp_files: Sequence[TempFile]) -> None:
    """Make the content of all files durable. Several are synced at the same time, because the file system combines
    concurrent syncs into one write of its journal."""
    if len(temp_files) <= _SYNCERS:
        for temp in temp_files:
            temp.sync()
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_SYNCERS) as syncers:
        list(syncers.map(lambda temp: temp.sync(), temp_files))


@contextmanager
def temp_file_for(folder_fd: int, target: str, mode: int) -> Iterator[TempFile]:
    """A new temporary file for a file of this folder. It is removed at the end unless it was published."""
    temp = _open_temp_file(folder_fd, target)
    try:
        os.fchmod(temp.handle, mode & 0o777)
        yield temp
    finally:
        if not temp.published:
            with suppress(OSError):
                os.unlink(temp.name, dir_fd=folder_fd)
        os.close(temp.handle)


def _open_temp_file(folder_fd: int, target: str) -> TempFile:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f".{target[:_SHOWN]}.{secrets.token_hex(4)}.duramen-tmp"
        try:
            handle = os.open(name, flags, 0o600, dir_fd=folder_fd)
        except FileExistsError:
            continue
        try:
            if lock_descriptor(handle, blocking=False) and os.fstat(handle).st_nlink:
                return TempFile(folder_fd, target, name, handle)
        except OSError:  # on a file system without locks the sweep removes nothing
            return TempFile(folder_fd, target, name, handle)
        os.close(handle)  # a sweep was faster than the lock and has removed it


def sweep_folder(root: int, own: str) -> int:
    """Remove the temporary files of dead writers from all folders of the layout. Returns how many."""
    knowledge = [("workspace", own, "knowledge", folder) for folder in KNOWLEDGE_FOLDERS]
    shared = [(), ("preference",), ("identity",), ("memory",)]
    return sum(
        _sweep_one(root, way) for way in (*shared, ("workspace", own), ("workspace", own, "runtime"), *knowledge)
    )


def _sweep_one(root: int, way: tuple[str, ...]) -> int:
    handle = os.dup(root)
    try:
        for name in way:
            above, handle = handle, os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(above)
        return sum(_remove_if_dead(handle, name) for name in os.listdir(handle) if is_temp_file(name))
    except OSError:  # the folder is missing or a link, so it contains no temporary files of duramen
        return 0
    finally:
        os.close(handle)


def _remove_if_dead(folder_fd: int, name: str) -> bool:
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
            return False
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder_fd)
    except OSError:
        return False
    try:
        if not lock_descriptor(handle, blocking=False):
            return False
        os.unlink(name, dir_fd=folder_fd)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)
