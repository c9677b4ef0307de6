"""Reads a folder into notes, and writes notes to a folder. Links are never followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from ...errors import BoundaryRefused, FileError, FileMalformed, InvalidInput
from ...private_files import make_folders
from ..folder.safe_open import content_of, encoded, step_into
from ..folder.temp_file import temp_file_for
from .note import Format, Imported, Note, is_safe

_SUFFIXES = (".md", ".jsonl", ".ndjson")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC if os.name == "posix" else os.O_RDONLY
MAX_FILES = 100_000
MAX_DEPTH = 40
"""The deepest folder that is read, because each level holds an open file."""


def import_folder(format: Format, root: str | os.PathLike[str]) -> Imported:
    """The notes in a folder or a single file. Files that cannot be read are returned as problems. Raises `InvalidInput`
    if the path does not exist or has too many files."""
    found = _Reading(os.fspath(root))
    found.read_all()
    read = format.read(found.texts)
    problems = sorted((*found.problems, *read.problems), key=lambda each: (each.path, each.line))
    return Imported(read.notes, tuple(problems))


def export_folder(
    format: Format, notes: Iterable[Note], root: str | os.PathLike[str], shown: Callable[[int, int], None] | None = None
) -> tuple[str, ...]:
    """Write notes to a folder, which is created if it does not exist. Returns the paths that are new or changed. Other
    files stay. `shown` is called with the number of files done and the total."""
    texts = format.write(notes)
    for path in texts:
        if not is_safe(path):
            raise BoundaryRefused(path, "on some systems it is not inside the folder", hint="rename the note")
    changed = []
    try:
        make_folders(root)
        with _opened(os.open(root, _FOLDER)) as folder_fd:
            for number, (path, text) in enumerate(texts.items(), 1):
                changed += [path] if _written(folder_fd, path, text) else []
                if shown is not None:
                    shown(number, len(texts))
    except OSError as error:
        raise FileError(
            f"cannot write to {os.fspath(root)}: {error.strerror}",
            hint="check the permissions of the folder and the free disk space",
        ) from error
    return tuple(changed)


class _Reading:
    """Reads the files that a format may contain. Each folder is opened relative to its parent and each file relative to
    its folder, never through a link. So an attacker who replaces one of them during the import gains nothing."""

    def __init__(self, base: str) -> None:
        self._base = base
        self.texts: dict[str, str] = {}
        self.problems: list[FileMalformed] = []

    def read_all(self) -> None:
        """Read the base. Raises `InvalidInput` if it does not exist or has too many files, and `FileError` if it cannot
        be opened."""
        if os.open not in os.supports_dir_fd:
            raise FileError("this operating system cannot open files relative to a folder", hint="use Linux or macOS")
        above, name = os.path.split(os.path.abspath(self._base))
        try:
            if os.path.isdir(self._base):
                with _opened(os.open(self._base, _FOLDER)) as folder_fd:
                    self._read_folder(folder_fd, "", 0)
            else:
                with _opened(os.open(above, _FOLDER)) as folder_fd:
                    os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
                    self._read_file(folder_fd, name)
        except FileNotFoundError:
            raise InvalidInput(f"{self._base} does not exist", hint="give a folder, or a .jsonl file") from None
        except OSError as error:
            hint = "check the permissions of the folder"
            raise FileError(f"cannot read {self._base}: {error.strerror}", hint=hint) from error

    def _read_folder(self, folder_fd: int, path: str, depth: int) -> None:
        with os.scandir(folder_fd) as found:
            entries = sorted((one for one in found if not one.name.startswith(".")), key=lambda one: one.name)
        folders = [one.name for one in entries if _is_folder(one)]
        for entry in entries:
            if entry.name.endswith(_SUFFIXES) and not entry.is_dir(follow_symlinks=False):
                self._read_file(folder_fd, f"{path}{entry.name}")
        for name in folders:
            self._descend(folder_fd, name, f"{path}{name}", depth + 1)

    def _descend(self, above: int, name: str, path: str, depth: int) -> None:
        with self._reporting(path):
            if depth > MAX_DEPTH:
                raise BoundaryRefused(path, f"it is more than {MAX_DEPTH} folders deep", hint="import it on its own")
            below = step_into(above, name, path, make=False)
            if below is not None:
                with _opened(below) as folder_fd:
                    self._read_folder(folder_fd, f"{path}/", depth)

    def _read_file(self, folder_fd: int, path: str) -> None:
        if len(self.texts) + len(self.problems) >= MAX_FILES:
            raise InvalidInput(f"{self._base} has more than {MAX_FILES:,} files", hint="import a part of it at a time")
        with self._reporting(path):
            data = content_of(folder_fd, path)
            if data is not None:
                self.texts[path] = data.decode("utf-8")

    @contextmanager
    def _reporting(self, path: str) -> Iterator[None]:
        """Record a file or folder that cannot be read, so that the import continues with the others."""
        try:
            yield
        except BoundaryRefused as error:
            self.problems.append(FileMalformed(path, 1, error.reason, hint=error.hint))
        except OSError as error:
            reason = f"it cannot be read: {error.strerror}"
            self.problems.append(FileMalformed(path, 1, reason, hint="check the permissions of the file"))
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            self.problems.append(FileMalformed(path, line, "not UTF-8", hint="save the file as UTF-8"))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether this is a folder, or a link to one, which is reported."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


@contextmanager
def _opened(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


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
