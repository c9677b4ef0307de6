"""Opens files relative to an open folder, one name at a time, and never through a link."""

from __future__ import annotations

import errno
import os
import stat

from ...errors import BoundaryRefused, InvalidInput
from .paths import Place

MAX_BYTES = 8 * 1024 * 1024
"""More than this is no memory file."""
TRIES = 20
"""Times that a folder may vanish before we give up."""
_LINK = "a symbolic link, or something else than a folder, is in the way"


def step_into(above: int, name: str, path: str, *, make: bool) -> int | None:
    """Open a folder inside an open one, never through a link. A missing one is created with `make`, else None."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(TRIES):
        try:
            return os.open(name, flags, dir_fd=above)
        except FileNotFoundError:
            if not make:
                return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise BoundaryRefused(path, f"{name}: {_LINK}", hint="put a real folder there") from None
            raise
        try:
            os.mkdir(name, 0o700, dir_fd=above)
            os.fsync(above)
        except FileExistsError:
            continue
    raise BoundaryRefused(path, f"{name}: it comes and goes", hint="see who removes it")


def look_at(folder_fd: int, where: Place) -> os.stat_result | None:
    """What is at the place; None if nothing is. Raises for links and for what is not a file."""
    try:
        found = os.stat(where.name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return _expect_own(found, where)


def _expect_own(found: os.stat_result, where: Place) -> os.stat_result:
    if stat.S_ISLNK(found.st_mode):
        raise BoundaryRefused(where.path, "it is a symbolic link", hint="put a real file there")
    if not stat.S_ISREG(found.st_mode):
        raise BoundaryRefused(where.path, "it is not a file", hint="move it away")
    if found.st_nlink > 1:
        raise BoundaryRefused(where.path, "it is a hard link: the same file has another name", hint="put a copy there")
    return found


def content_of(folder_fd: int, where: Place) -> bytes | None:
    """The bytes of the file at the place; None if nothing is there. Raises for links and for what is not a file, also
    if it becomes one between the look at it and the opening."""
    if look_at(folder_fd, where) is None:
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(where.name, flags, dir_fd=folder_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise BoundaryRefused(where.path, "it became a link, or no file", hint="put a real file there") from None
        raise
    with open(handle, "rb") as file:
        _expect_own(os.fstat(handle), where)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise BoundaryRefused(where.path, f"it has more than {MAX_BYTES:,} bytes", hint="keep long texts elsewhere")
    return data


def encoded(path: str, text: str) -> bytes:
    """The text's bytes. Raises `InvalidInput` for what no file may hold."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{path}: half a surrogate pair cannot be written", hint="replace it") from error
    if len(data) > MAX_BYTES:
        raise InvalidInput(
            f"{path}: a memory file has {MAX_BYTES:,} bytes at most", hint="keep long texts elsewhere and say where"
        )
    return data
