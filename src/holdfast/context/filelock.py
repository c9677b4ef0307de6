"""One at a time over a file that several processes keep: who reads, writes and notes it does all of that alone."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ..runtime import is_driven

try:
    import fcntl
except ImportError:  # no such locks on this system: the file is still written whole, and read again before that
    fcntl = None  # type: ignore[assignment]

_PATIENCE = 10.0
_PAUSE = 0.002


@asynccontextmanager
async def alone_in_folder(path: str) -> AsyncGenerator[None, None]:
    """Inside, nobody else who asks for it works on files of this folder. Whoever waited too long goes on without."""
    folder = os.path.dirname(path)
    if fcntl is None or not os.path.isdir(folder):
        yield
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


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
