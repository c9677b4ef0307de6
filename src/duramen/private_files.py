"""Creates files and folders that only their owner can use, whatever the umask of the process."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def create_file(path: str) -> None:
    """Create an empty file if there is none, for a library that would use the umask. An existing file keeps its mode.
    If the file cannot be created, nothing happens: the library reports it when it opens the file."""
    with suppress(OSError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))


def make_folders(path: str | os.PathLike[str]) -> None:
    """Create a folder and its missing parents. Existing folders keep their mode. Raises `OSError`. (The mode of
    `os.makedirs` applies to the last folder only.)"""
    folder = os.path.abspath(path)
    if os.path.isdir(folder):
        return
    make_folders(os.path.dirname(folder))
    try:
        os.mkdir(folder, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
