"""One at a time over files that several processes keep. The system frees a lock when its holder dies."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager

from .runtime import is_driven

_PATIENCE = 10.0
_PAUSE = 0.002
_LONG_PAUSE = 0.1


@asynccontextmanager
async def alone_in_folder(path: str) -> AsyncGenerator[None, None]:
    """Inside, nobody else who asks for it works on files of this folder. Whoever waited too long goes on without."""
    folder = os.path.dirname(path)
    if sys.platform == "win32" or not os.path.isdir(folder):
        yield  # folders cannot be locked there: the file is still written whole, and read again before that
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + _PATIENCE
        while not _taken(handle) and time.monotonic() < until:
            if is_driven():
                time.sleep(_PAUSE)
            else:
                await asyncio.sleep(_PAUSE)
        yield
    finally:
        os.close(handle)


@contextmanager
def alone_with(path: str | os.PathLike[str]) -> Iterator[None]:
    """Inside, nobody else who asks for it holds this file, which is made and stays, empty. Waits without end."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        while not _taken(handle):
            time.sleep(_LONG_PAUSE)
        yield
    finally:
        os.close(handle)


@asynccontextmanager
async def alone_with_file(handle: int) -> AsyncGenerator[None, None]:
    """Inside, nobody else who asks for it holds this open file, which is closed at the end. Waits without end."""
    try:
        while not _taken(handle):
            if is_driven():
                time.sleep(_LONG_PAUSE)
            else:
                await asyncio.sleep(_LONG_PAUSE)
        yield
    finally:
        os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _taken(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _taken(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True
