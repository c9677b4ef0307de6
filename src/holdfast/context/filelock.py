"""One at a time over a file that several processes keep: who reads, writes and notes it does all of that alone."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ..runtime import aside

try:
    import fcntl
except ImportError:  # no such locks on this system: the file is still written whole, and read again before that
    fcntl = None  # type: ignore[assignment]

_PATIENCE = 10.0


@asynccontextmanager
async def alone_in_folder(path: str) -> AsyncGenerator[None, None]:
    """Inside, nobody else who asks for it works on files of this folder. Whoever waited too long goes on without."""
    handle = await aside(lambda: _locked(os.path.dirname(path)))
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _locked(folder: str) -> int | None:
    if fcntl is None or not os.path.isdir(folder):
        return None
    handle = os.open(folder, os.O_RDONLY)
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as busy:
            if not isinstance(busy, BlockingIOError) or time.monotonic() > until:
                return handle
            time.sleep(0.002)
        else:
            return handle
