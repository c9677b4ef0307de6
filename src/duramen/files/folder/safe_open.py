"""Opens files relative to an open folder, one name at a time, and never through a link."""

from __future__ import annotations

import errno
import os
import stat

from ...errors import BoundaryRefused, InvalidInput

MAX_BYTES = 8 * 1024 * 1024
"""The size limit of a memory file."""
TRIES = 20
"""Attempts if another process removes the folder again and again."""
_LINK = "it is a symbolic link, or not a folder"


def step_into(above: int, name: str, path: str, *, make: bool) -> int | None:
    """Open a folder inside an open one, never through a link. If it is missing, create it with `make`, or return None.
    Raises `BoundaryRefused` for a link or anything else that is not a folder."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(TRIES):
        try:
            return os.open(name, flags, dir_fd=above)
        except FileNotFoundError:
            if not make:
                return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise BoundaryRefused(path, f"{name}: {_LINK}", hint="replace it by a real folder") from None
            raise
        try:
            os.mkdir(name, 0o700, dir_fd=above)
            os.fsync(above)
        except FileExistsError:
            continue
    raise BoundaryRefused(path, f"{name}: it is removed again and again", hint="find the program that removes it")


def look_at(folder_fd: int, path: str) -> os.stat_result | None:
    """The `stat` result of a file in its open folder; `path` is for messages, and its last part is the name. None if
    there is no file. Raises `BoundaryRefused` for a link or anything else that is not a regular file."""
    try:
        found = os.stat(_name(path), dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return _expect_own(found, path)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _expect_own(found: os.stat_result, path: str) -> os.stat_result:
    if stat.S_ISLNK(found.st_mode):
        raise BoundaryRefused(path, "it is a symbolic link", hint="replace it by a real file")
    if not stat.S_ISREG(found.st_mode):
        raise BoundaryRefused(path, "it is not a file", hint="move it away")
    if found.st_nlink > 1:
        raise BoundaryRefused(path, "it is a hard link: the same file has another name", hint="replace it by a copy")
    return found


def content_of(folder_fd: int, path: str) -> bytes | None:
    """The bytes of a file in its open folder. None if there is no file. Raises `BoundaryRefused` for a link or anything
    else that is not a regular file, even if the file was replaced just before it is opened."""
    if look_at(folder_fd, path) is None:
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(_name(path), flags, dir_fd=folder_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise BoundaryRefused(path, "it is a link, or not a file", hint="replace it by a real file") from None
        raise
    with open(handle, "rb") as file:
        _expect_own(os.fstat(handle), path)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise BoundaryRefused(path, f"it has more than {MAX_BYTES:,} bytes", hint="store long texts elsewhere")
    return data


def encoded(path: str, text: str) -> bytes:
    """The text as UTF-8. Raises `InvalidInput` for lone surrogates and for text above `MAX_BYTES`."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{path}: the text has a lone surrogate, which UTF-8 cannot encode", hint="replace that character"
        ) from error
    if len(data) > MAX_BYTES:
        raise InvalidInput(
            f"{path}: a memory file may have at most {MAX_BYTES:,} bytes",
            hint="store long texts elsewhere and refer to them",
        )
    return data
