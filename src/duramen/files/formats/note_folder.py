"""Reads a folder into notes, and writes notes to a folder. Links are never followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress

from ...errors import BoundaryRefused, FileError, FileMalformed, InvalidInput
from ..folder.safe_open import MAX_BYTES, encoded, step_into
from ..folder.temp_file import temp_file_for
from .note import Format, Imported, Note, is_safe

_SUFFIXES = (".md", ".jsonl", ".ndjson")
MAX_FILES = 100_000


def import_folder(format: Format, root: str | os.PathLike[str]) -> Imported:
    """The notes in a folder or a single file. Files that cannot be read are returned as problems. Raises `InvalidInput`
    if the path does not exist or has too many files."""
    files: dict[str, str] = {}
    problems: list[FileMalformed] = []
    for path, full in _found(root):
        try:
            files[path] = _text(path, full)
        except FileMalformed as problem:
            problems.append(problem)
    read = format.read(files)
    return Imported(read.notes, tuple(sorted((*problems, *read.problems), key=lambda each: (each.path, each.line))))


def export_folder(
    format: Format, notes: Iterable[Note], root: str | os.PathLike[str], shown: Callable[[int, int], None] | None = None
) -> tuple[str, ...]:
    """Write notes to a folder, which is created if it does not exist. Returns the paths that are new or changed. Other
    files stay. `shown` is called with the number of files done and the total."""
    texts = format.write(notes)
    for path in texts:
        if not is_safe(path):
            raise BoundaryRefused(path, "on some systems it is not inside the folder", hint="rename the note")
    os.makedirs(root, exist_ok=True)
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        changed = []
        for number, (path, text) in enumerate(texts.items(), 1):
            changed += [path] if _written(handle, path, text) else []
            if shown is not None:
                shown(number, len(texts))
        return tuple(changed)
    except OSError as error:
        raise FileError(
            f"cannot write to {os.fspath(root)}: {error.strerror}",
            hint="check the permissions of the folder and the free disk space",
        ) from error
    finally:
        os.close(handle)


def _found(root: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """The files that a format may contain, as pairs of the path relative to the root and the full path."""
    base = os.fspath(root)
    if os.path.isfile(base):
        return [(os.path.basename(base), base)]
    if not os.path.isdir(base):
        raise InvalidInput(f"{base} does not exist", hint="give a folder, or a .jsonl file")
    found: list[tuple[str, str]] = []
    for folder, below, names in os.walk(base):
        below[:] = sorted(name for name in below if not name.startswith("."))
        inner = os.path.relpath(folder, base).replace(os.sep, "/")
        for name in sorted(names):
            if name.endswith(_SUFFIXES) and not name.startswith("."):
                found.append((name if inner == "." else f"{inner}/{name}", os.path.join(folder, name)))
        if len(found) > MAX_FILES:
            raise InvalidInput(f"{base} has more than {MAX_FILES:,} files", hint="import a part of it at a time")
    return found


def _text(path: str, full: str) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK if os.name == "posix" else os.O_RDONLY
    try:
        if not stat.S_ISREG(os.lstat(full).st_mode):
            raise FileMalformed(path, 1, "it is a link, or not a file", hint="replace it by a real file")
        with open(os.open(full, flags), "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise FileMalformed(path, 1, f"it has more than {MAX_BYTES:,} bytes", hint="split the file")
        return data.decode("utf-8")
    except OSError as error:
        raise FileMalformed(
            path, 1, f"it cannot be read: {error.strerror}", hint="check the permissions of the file"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise FileMalformed(path, line, "not UTF-8", hint="save the file as UTF-8") from error


def _written(root: int, path: str, text: str) -> bool:
    *folders, name = path.split("/")
    data = encoded(path, text)
    handle = os.dup(root)
    try:
        for folder in folders:
            below = step_into(handle, folder, path, make=True)
            assert below is not None
            handle, above = below, handle
            os.close(above)
        if _holds(handle, name, data):
            return False
        with temp_file_for(handle, name, 0o600) as temp:
            temp.write(data)
            temp.sync()
            temp.publish()
        os.fsync(handle)
        return True
    finally:
        os.close(handle)


def _holds(folder_fd: int, name: str, data: bytes) -> bool:
    with (
        suppress(OSError),
        open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder_fd), "rb") as file,
    ):
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(data) + 1) == data
    return False
