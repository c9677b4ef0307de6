"""File system errors in the calls that the code for memory files makes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CALLS = ("open", "write", "fsync", "rename", "unlink", "mkdir", "scandir", "stat", "fstat", "read", "lseek", "link")
_CALLERS = ("/duramen/files/", "/filelock/")


@contextmanager
def failing_call(name: str, number: int, code: int) -> Iterator[list[int]]:
    """Make call `number` of `os.<name>` fail, counted from 1. With 0, none fails. Yields a list with the call count."""
    real, count = getattr(os, name), [0]

    def call(*args: Any, **options: Any) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        if any(part in caller for part in _CALLERS):
            count[0] += 1
            if count[0] == number:
                raise OSError(code, os.strerror(code))
        return real(*args, **options)

    setattr(os, name, call)
    try:
        yield count
    finally:
        setattr(os, name, real)


DISK_FULL, IO_ERROR, READ_ONLY, DENIED = errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES


def run_command(print_line: Callable[[str], None], name: str, number: int, code: int, arguments: list[str]) -> None:
    """Run the command line with a failing call."""
    from duramen.cli.app import main

    sys.argv[1:] = arguments
    with failing_call(name, number, code):
        main()
