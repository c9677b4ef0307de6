"""PROGRESS.md: a record of progress as people read and edit it, and the file that holds it.

`render` writes five sections and `parse` reads them back, exactly. Ordinary text stands there as it is. A backslash
comes before what would be read as something else, and only there: a line that looks like one of the five headings or
like a conflict left by git; in a goal, blocker or next action also another heading of the first two levels, unless it
is in a closed code fence; and a text that is nothing but a word with a meaning, such as None. The lines of a step are
indented under its number instead.

A file is replaced as a whole. A process that is killed meanwhile leaves the old file or the new one, and beside it
perhaps a temporary file, which the next write removes.
"""

from __future__ import annotations

import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...errors import DuramenError, InvalidInput
from .lines import LEVEL, Part, escaped, is_word
from .parser import ParsedProgress, parse
from .record import Progress

try:
    import fcntl
except ImportError:  # no such locks on this system, where a file that is open cannot be removed either
    fcntl = None  # type: ignore[assignment]

__all__ = ["MAX_BYTES", "ParsedProgress", "create_file", "parse", "read_file", "render", "write_file"]

MAX_BYTES = 1024 * 1024
"""More than this is no progress file."""
_TEMPORARY = ".duramen-part"


def render(progress: Progress) -> str:
    """The file's text. `parse` gives the same record back."""
    bodies = {
        Part.GOAL: _said(progress.goal),
        Part.STEPS: _numbered(progress.completed),
        Part.BLOCKER: _said(progress.blocker),
        Part.NEXT: "Finished" if progress.finished else _said(progress.next_action),
        Part.CONTEXT: escaped(progress.context, headings=False),
    }
    sections = [f"{'#' * LEVEL} {part}\n{body}".rstrip("\n") for part, body in bodies.items()]
    return "\n\n".join(["# Progress", *sections]) + "\n"


def _said(text: str | None) -> str:
    if not text:
        return "None"
    return f"\\{text}" if is_word(text) else escaped(text, headings=True)


def _numbered(steps: tuple[str, ...]) -> str:
    items = []
    for number, step in enumerate(steps, 1):
        first, *others = step.split("\n")
        indent = " " * len(f"{number}. ")
        items.append("\n".join([f"{number}. [x] {first}", *(line and indent + line for line in others)]))
    return "\n".join(items) or "None"


def read_file(path: str | os.PathLike[str]) -> str:
    """The file's text. Raises `InvalidInput` for what cannot be a progress file."""
    with _trouble(path, "read"):
        _expect_file(path)
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    _expect_small(path, len(data))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"{os.fspath(path)}, line {line}: this is not UTF-8", hint="save the file as UTF-8, or remove it"
        ) from error


def write_file(path: str | os.PathLike[str], text: str) -> bool:
    """Make this the file's content, durably and all at once; False if it was so already, and the file is not touched.

    Keeps the mode of a file that is there, and its owner where that is allowed. A symbolic link is followed: the file
    that it leads to is replaced, the link stays.
    """
    data = _encoded(path, text)
    target = Path(os.path.realpath(path))
    with _trouble(path, "write"):
        _expect_file(target)
        _remove_leftovers(target)
        with suppress(FileNotFoundError):
            if target.read_bytes() == data:
                return False
        with _written_beside(target, data) as temporary:
            os.replace(temporary, target)
        _sync_folder(target.parent)
    return True


def create_file(path: str | os.PathLike[str], text: str) -> bool:
    """Write the file if there is none: of many who try at once, one gets True, and its text is there as a whole."""
    data = _encoded(path, text)
    target = Path(os.path.realpath(path))
    with _trouble(path, "write"):
        _expect_file(target)
        _remove_leftovers(target)
        if target.exists():
            return False
        with _written_beside(target, data) as temporary:
            try:
                _claim(temporary, target)
            except FileExistsError:
                return False
        _sync_folder(target.parent)
    return True


def _claim(temporary: str, target: Path) -> None:
    """Give the file its name. Unlike a rename, this fails if somebody has made one meanwhile."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_CREAT | os.O_EXCL))
        os.replace(temporary, target)


@contextmanager
def _written_beside(target: Path, data: bytes) -> Iterator[str]:
    """The data in a temporary file beside the target, with the target's mode and owner, locked as long as it is in use
    so that nobody takes it for a leftover. Gone at the end."""
    try:
        old = target.stat()
    except FileNotFoundError:
        old = None
    handle, name = _temporary(target, 0o600 if old else 0o666)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            if old and os.name == "posix":
                with suppress(PermissionError):
                    os.fchown(handle, old.st_uid, old.st_gid)
                os.fchmod(handle, stat.S_IMODE(old.st_mode))
            os.fsync(handle)
            if fcntl is None:
                file.close()  # what is open cannot be renamed there
            yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _temporary(target: Path, mode: int) -> tuple[int, str]:
    while True:
        name = f"{target.parent}/.{target.name[:100]}.{secrets.token_hex(4)}{_TEMPORARY}"
        handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        try:
            if _lock(handle) and os.fstat(handle).st_nlink:
                return handle, name
        except OSError:  # a file system without locks; nobody can take it for a leftover there
            return handle, name
        os.close(handle)  # somebody who cleaned up was faster than the lock and has removed it


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files of writers that were killed. Theirs are not locked any more."""
    for left in target.parent.glob(f".{glob.escape(target.name[:100])}.{'[0-9a-f]' * 8}{_TEMPORARY}"):
        with suppress(OSError):
            handle = os.open(left, os.O_RDWR)
            try:
                if _lock(handle):
                    os.unlink(left)
            finally:
                os.close(handle)


def _lock(handle: int) -> bool:
    """Take the lock on an open file, unless somebody has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Make the new name durable too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _encoded(path: str | os.PathLike[str], text: str) -> bytes:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput("half a surrogate pair cannot be written", hint="render() gives text that can") from error
    _expect_small(path, len(data))
    return data


def _expect_small(path: str | os.PathLike[str], size: int) -> None:
    if size > MAX_BYTES:
        raise InvalidInput(
            f"{os.fspath(path)}: a progress file has {MAX_BYTES:,} bytes at most",
            hint="keep long texts elsewhere and say in the context where",
        )


def _expect_file(path: str | os.PathLike[str]) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InvalidInput(f"{os.fspath(path)} is not a file", hint="give the path of a file, such as PROGRESS.md")


@contextmanager
def _trouble(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """What the system says, as an error that tells what to do."""
    try:
        yield
    except FileNotFoundError as error:
        missing = path if what == "read" else os.path.dirname(path) or os.curdir
        raise InvalidInput(f"there is no {os.fspath(missing)}", hint="make it first, or give another path") from error
    except OSError as error:
        raise DuramenError(
            f"cannot {what} {os.fspath(path)}: {error.strerror}",
            hint="look at the folder's rights and the room on the disk; what is journaled is safe",
        ) from error
