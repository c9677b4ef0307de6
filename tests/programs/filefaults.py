"""Errors of the file system, where the code that keeps memory files calls it: the call of a name that is counted."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CALLS = ("open", "write", "fsync", "rename", "unlink", "mkdir", "scandir", "stat", "fstat", "read", "lseek", "link")
_OURS = ("/duramen/files/", "/filelock/")


@contextmanager
def failing(name: str, number: int, code: int) -> Iterator[list[int]]:
    """Let the call of that number fail once, counted from 1; 0 lets none fail. Gives a list with the count."""
    real, count = getattr(os, name), [0]

    def call(*given: Any, **named: Any) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        if any(part in caller for part in _OURS):
            count[0] += 1
            if count[0] == number:
                raise OSError(code, os.strerror(code))
        return real(*given, **named)

    setattr(os, name, call)
    try:
        yield count
    finally:
        setattr(os, name, real)


FULL, BROKEN, READ_ONLY, DENIED = errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES
