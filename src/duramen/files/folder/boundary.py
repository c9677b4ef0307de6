"""The folder that memory files live in. `place` checks every path; every file is opened relative to an open folder.

No path is ever given to the system as a whole. Each folder on the way is opened from the one before, never through a
link, and files are made, read, renamed and removed by their bare names relative to an open folder. An attacker who swaps a
folder or a file for a link in the middle of an operation gains nothing: what is open stays what it was.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import NamedTuple, Self

from ...errors import BoundaryRefused, FileChanged, FileError, FileMalformed
from .names import fold, folder_name
from .paths import Place, place
from .safe_open import MAX_BYTES, TRIES, content_of, encoded, look_at, step_into
from .temp_file import TempFile, is_temp_file, sweep_folder, sync_all, temp_file_for
from .walk import Refusal, Signature, Walked, signature_of, walk

__all__ = ["MAX_BYTES", "UNSEEN", "Folder", "Refusal", "Signature", "Walked", "Written"]

_AT_ONCE = 128
"""Files of a batch that are open at a time."""


class _Unseen:
    def __repr__(self) -> str:
        return "UNSEEN"


UNSEEN = _Unseen()
"""The writer has not looked at the file and does not care what is there."""
_Seen = Signature | _Unseen | None


class Written(NamedTuple):
    """What a batch did: the paths whose content is new, those that could not be written for the boundary's sake, and
    those that were left alone because they were edited meanwhile."""

    changed: tuple[str, ...]
    refused: tuple[Refusal, ...]
    edited: tuple[str, ...] = ()


class Folder:
    """The files of one workspace, and those that all of them share, under one root.

    The root itself may be reached through links; nothing below it may. It is made if it is not there. Use it in one
    thread at a time; several processes may have the same root open.
    """

    def __init__(self, root: str | os.PathLike[str], workspace: str = "default") -> None:
        if os.open not in os.supports_dir_fd:
            raise FileError(
                "memory files need a system that opens files relative to a folder", hint="use Linux or macOS"
            )
        self.root = os.path.realpath(root)
        self.workspace = workspace
        self.own = folder_name(workspace)
        with _trouble(self.root, "open"):
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            self._root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the root. May be called again."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def place(self, path: str) -> Place:
        """What lies at this path. Raises `BoundaryRefused` for whatever is not exactly a path of the layout."""
        return place(path, self.workspace)

    def read(self, path: str) -> str | None:
        """The file's text, its line ends as they are; None if there is no file. Raises `BoundaryRefused` for links and
        for what is not a file, `FileMalformed` for what is not UTF-8."""
        data = self.read_bytes(path)
        try:
            return None if data is None else data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise FileMalformed(path, line, "this is not UTF-8", hint="save the file as UTF-8") from error

    def read_bytes(self, path: str) -> bytes | None:
        """The file's bytes; None if there is no file."""
        where = self.place(path)
        with _trouble(path, "read"), self._open(where, make=False) as folder_fd:
            return None if folder_fd is None else content_of(folder_fd, where)

    def signature(self, path: str) -> Signature | None:
        """What tells whether the file was changed since; None if there is no file."""
        where = self.place(path)
        with _trouble(path, "read"), self._open(where, make=False) as folder_fd:
            found = None if folder_fd is None else look_at(folder_fd, where)
        return found and signature_of(found)

    def folder_inode(self, path: str) -> int:
        """The inode of a file's folder: it changes if the folder is replaced. 0 if there is no folder."""
        where = self.place(path)
        with _trouble(path, "read"), self._open(where, make=False) as folder_fd:
            return 0 if folder_fd is None else os.fstat(folder_fd).st_ino

    def expect_there(self) -> None:
        """Raise `FileError` if the root is gone, or another one has its name: its disk may be away."""
        with _trouble(self.root, "find"):
            here, there = os.fstat(self._root), os.stat(self.root)
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise FileError(f"{self.root} is another folder by now", hint="see which one is meant, and open it again")

    def write(self, path: str, text: str, *, seen: _Seen = UNSEEN) -> bool:
        """Make this the file's content, durably and all at once; False if it was so already, and nothing is touched.

        `seen` is the signature that the caller knows (None: no file). Raises `FileChanged` if it differs now.
        """
        where, data = self._writable(path), encoded(path, text)
        with _trouble(path, "write"), ExitStack() as open_files:
            folders = _Folders(self, open_files)
            temp = self._write_temp_file(folders, where, data, seen)
            if temp is None:
                return False
            temp.sync()
            _expect(where, look_at(temp.folder_fd, where), seen)  # that took a while
            temp.publish()
            os.fsync(temp.folder_fd)
        return True

    def write_all(self, texts: Mapping[str, str], *, seen: Mapping[str, Signature | None] | None = None) -> Written:
        """Write many files, each all at once, and durable together when this returns.

        A file that cannot be written for the boundary's sake, or that is not as it was `seen` any more, is reported and
        the rest goes on; a path that is none of the layout's raises first.
        """
        wanted = [(self._writable(path), encoded(path, text)) for path, text in texts.items()]
        batch = _Batch(seen or {})
        with ExitStack() as open_folders:
            folders = _Folders(self, open_folders)
            for start in range(0, len(wanted), _AT_ONCE):
                self._write_some(folders, wanted[start : start + _AT_ONCE], batch)
            with _trouble(self.root, "write"):
                folders.sync()
        return Written(tuple(batch.changed), tuple(batch.refused), tuple(batch.edited))

    def remove(self, path: str, *, seen: _Seen = UNSEEN) -> bool:
        """Remove the file, durably, and the folders that are empty then; False if there was none."""
        where = self._writable(path)
        with _trouble(path, "remove"), self._open(where, make=False) as folder_fd:
            found = None if folder_fd is None else look_at(folder_fd, where)
            _expect(where, found, seen)
            if folder_fd is None or found is None:
                return False
            os.unlink(where.name, dir_fd=folder_fd)
            os.fsync(folder_fd)
        self._remove_empty(where.folders)
        return True

    def walk(self) -> Walked:
        """Every file of the layout that is there, of this workspace and of all, with its signature, and what is there
        but is refused. What the layout does not know is passed over."""
        with _trouble(self.root, "look through"):
            return walk(self.handle(), self.workspace)

    def sweep(self) -> int:
        """Remove what killed writers left behind, and say how many files that were. Those of live ones stay."""
        with _trouble(self.root, "tidy up"):
            return sweep_folder(self.handle(), self.own)

    def handle(self) -> int:
        """The open root."""
        if self._root < 0:
            raise FileError(f"{self.root} was closed", hint="open it again")
        return self._root

    # -- inside

    def _writable(self, path: str) -> Place:
        where = self.place(path)
        if not where.writable:
            raise BoundaryRefused(path, "it is read, never written", hint="edit AGENTS.md yourself")
        return where

    def _write_some(self, folders: _Folders, wanted: list[tuple[Place, bytes]], batch: _Batch) -> None:
        with ExitStack() as open_files:
            temp_files: list[tuple[Place, TempFile]] = []
            for where, data in wanted:
                with batch.reporting(where), _trouble(where.path, "write"):
                    temp = self._write_temp_file(folders.sharing(open_files), where, data, batch.seen(where))
                    if temp is not None:
                        temp_files.append((where, temp))
            with _trouble(self.root, "write"):
                sync_all([temp for _, temp in temp_files])
                for where, temp in temp_files:
                    with batch.reporting(where):
                        _expect(where, look_at(temp.folder_fd, where), batch.seen(where))
                        temp.publish()
                        batch.changed.append(where.path)

    def _write_temp_file(self, folders: _Folders, where: Place, data: bytes, seen: _Seen) -> TempFile | None:
        """A temporary file with the data; None if the file already has this content."""
        for _ in range(TRIES):
            folder_fd = folders.of(where)
            old = look_at(folder_fd, where)
            _expect(where, old, seen)
            if old is None:
                folders.expect_free(where)
            elif old.st_size == len(data) and content_of(folder_fd, where) == data:
                return None
            mode = 0o600 if old is None else stat.S_IMODE(old.st_mode)
            try:
                temp = folders.open_files.enter_context(temp_file_for(folder_fd, where.name, mode))
            except FileNotFoundError:  # the folder was empty, and was removed meanwhile
                folders.forget(where)
                continue
            temp.write(data)
            folders.note(where)
            return temp
        raise FileError(f"cannot write {where.path}: its folder vanishes again and again", hint="see who removes it")

    @contextmanager
    def _open(self, where: Place, *, make: bool) -> Iterator[int | None]:
        """The folder of a place, open; None if it is not there."""
        handle = self._opened(where.folders, where.path, make=make)
        try:
            yield handle
        finally:
            if handle is not None:
                os.close(handle)

    def _opened(self, folders: tuple[str, ...], path: str, *, make: bool) -> int | None:
        handle = os.dup(self.handle())
        try:
            for name in folders:
                below = step_into(handle, name, path, make=make)
                if below is None:
                    os.close(handle)
                    return None
                handle, above = below, handle
                os.close(above)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _remove_empty(self, folders: tuple[str, ...]) -> None:
        """Remove the folders of this way that are empty, from the innermost. One that got a file meanwhile stays."""
        for depth in range(len(folders) - 1, -1, -1):
            above = self._opened(folders[:depth], "/".join(folders), make=False)
            if above is None:
                return
            try:
                os.rmdir(folders[depth], dir_fd=above)
                os.fsync(above)
            except OSError:
                return
            finally:
                os.close(above)


class _Batch:
    """What became of the files of a batch."""

    def __init__(self, seen: Mapping[str, Signature | None]) -> None:
        self._seen = seen
        self.changed: list[str] = []
        self.refused: list[Refusal] = []
        self.edited: list[str] = []

    def seen(self, where: Place) -> _Seen:
        """How the writer has seen the file."""
        return self._seen.get(where.path, UNSEEN)

    @contextmanager
    def reporting(self, where: Place) -> Iterator[None]:
        """A file that is refused does not stop the others."""
        try:
            yield
        except BoundaryRefused as error:
            self.refused.append(Refusal(error.path, error.reason))
        except FileChanged:
            self.edited.append(where.path)


class _Folders:
    """The folders that a batch writes to, each opened once, and the names in them."""

    def __init__(self, folder: Folder, open_files: ExitStack) -> None:
        self._folder = folder
        self._handles: dict[tuple[str, ...], int] = {}
        self._names: dict[tuple[str, ...], set[str]] = {}
        self._noted: dict[tuple[str, ...], list[str]] = {}
        self._open_folders = open_files
        self.open_files = open_files

    def sharing(self, open_files: ExitStack) -> _Folders:
        """The same, with the files that are opened from now on to be closed by another."""
        self.open_files = open_files
        return self

    def of(self, where: Place) -> int:
        """The folder of a place, made if need be."""
        if where.folders not in self._handles:
            handle = self._folder._opened(where.folders, where.path, make=True)
            assert handle is not None
            self._open_folders.callback(os.close, handle)
            self._handles[where.folders] = handle
        return self._handles[where.folders]

    def forget(self, where: Place) -> None:
        """The folder is not there any more."""
        self._handles.pop(where.folders, None)
        self._names.pop(where.folders, None)

    def expect_free(self, where: Place) -> None:
        """No other file may have this name on a system where case, or the form of accents, does not count."""
        if where.folders not in self._names:
            self._names[where.folders] = _folded(os.listdir(self.of(where)))
        if fold(where.name) not in self._names[where.folders]:
            return
        names = [*os.listdir(self.of(where)), *self._noted.get(where.folders, ())]
        alike = (
            name for name in names if fold(name) == fold(where.name) and name != where.name and not is_temp_file(name)
        )
        if other := next(alike, None):
            raise BoundaryRefused(
                where.path, f"{other!r} is there, and some systems do not tell the two apart", hint="rename one of them"
            )

    def note(self, where: Place) -> None:
        """There will be a file of this name."""
        if where.folders in self._names:
            self._names[where.folders].add(fold(where.name))
            self._noted.setdefault(where.folders, []).append(where.name)

    def sync(self) -> None:
        """Make the names durable."""
        for handle in self._handles.values():
            os.fsync(handle)


def _folded(names: list[str]) -> set[str]:
    """What is left of the names where case does not count. All at once: a folder may hold many thousand."""
    joined = "\0".join(names)
    return set(joined.lower().split("\0")) if joined.isascii() else {fold(name) for name in names}


def _expect(where: Place, found: os.stat_result | None, seen: _Seen) -> None:
    if not isinstance(seen, _Unseen) and seen != (found and signature_of(found)):
        raise FileChanged(where.path)


@contextmanager
def _trouble(path: str, what: str) -> Iterator[None]:
    """What the system says, as an error that tells what to do."""
    try:
        yield
    except OSError as error:
        raise FileError(
            f"cannot {what} {path}: {error.strerror}",
            hint="look at the folder's rights and the room on the disk; what is journaled is safe",
        ) from error
