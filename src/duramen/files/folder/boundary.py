"""The folder of the memory files. `place` checks every path, and every file is opened relative to an open folder.

The operating system never gets a whole path. Each folder on the way is opened relative to its parent, never through a
link. Files are created, read, renamed and removed by name relative to an open folder. An attacker who replaces a folder
or a file by a link during an operation gains nothing, because an open folder stays the same.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import NamedTuple, Self

from ...errors import BoundaryRefused, FileChanged, FileError, FileMalformed, shown
from ...private_files import make_folders
from .names import fold, folder_name
from .paths import Place, place
from .safe_open import MAX_BYTES, TRIES, content_of, encoded, look_at, step_into
from .temp_file import TempFile, is_temp_file, sweep_folder, sync_all, temp_file_for
from .walk import Refusal, Signature, Walked, signature_of, walk

__all__ = ["MAX_BYTES", "UNSEEN", "Folder", "Refusal", "Signature", "Walked", "Written"]

_AT_ONCE = 128
"""Files of a batch that are open at the same time."""


class _Unseen:
    def __repr__(self) -> str:
        return "UNSEEN"


UNSEEN = _Unseen()
"""The writer has not read the file and overwrites any content."""
_Seen = Signature | _Unseen | None


class Written(NamedTuple):
    """The result of a batch. `changed`: paths with new content. `refused`: paths that the boundary checks refused.
    `edited`: paths that were not written, because someone edited them in the meantime."""

    changed: tuple[str, ...]
    refused: tuple[Refusal, ...]
    edited: tuple[str, ...] = ()


class Folder:
    """The files of one workspace, and the files that all workspaces share, under one root.

    The root is created if it does not exist. Its path may contain links, but nothing below it may be a link. Use a
    `Folder` in one thread at a time. Several processes may have the same root open.
    """

    def __init__(self, root: str | os.PathLike[str], workspace: str = "default") -> None:
        if os.open not in os.supports_dir_fd:
            raise FileError("this operating system cannot open files relative to a folder", hint="use Linux or macOS")
        self.root = os.path.realpath(root)
        self.workspace = workspace
        self.own = folder_name(workspace)
        with _trouble(self.root, "open"):
            make_folders(self.root)
            self._root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the root. May be called more than once."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def place(self, path: str) -> Place:
        """The place of a path in the layout. Raises `BoundaryRefused` for any other path."""
        return place(path, self.workspace)

    def read(self, path: str) -> str | None:
        """The text of the file with unchanged line ends. None if there is no file. Raises `BoundaryRefused` for a link
        or anything else that is not a regular file, and `FileMalformed` for text that is not UTF-8."""
        data = self.read_bytes(path)
        try:
            return None if data is None else data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise FileMalformed(path, line, "not UTF-8", hint="save the file as UTF-8") from error

    def read_bytes(self, path: str) -> bytes | None:
        """The bytes of the file. None if there is no file."""
        where = self.place(path)
        with _trouble(path, "read"), self._open(where, make=False) as folder_fd:
            return None if folder_fd is None else content_of(folder_fd, where.path)

    def signature(self, path: str) -> Signature | None:
        """The signature of the file, which changes when the file is edited. None if there is no file."""
        where = self.place(path)
        with _trouble(path, "read"), self._open(where, make=False) as folder_fd:
            found = None if folder_fd is None else look_at(folder_fd, where.path)
        return found and signature_of(found)

    def folder_inode(self, path: str) -> int:
        """The inode of a file's folder: it changes if the folder is replaced. 0 if there is no folder."""
        where = self.place(path)
        with _trouble(path, "read"), self._open(where, make=False) as folder_fd:
            return 0 if folder_fd is None else os.fstat(folder_fd).st_ino

    def expect_there(self) -> None:
        """Raise `FileError` if the root was removed or replaced, for example because its disk was unmounted."""
        with _trouble(self.root, "find"):
            here, there = os.fstat(self._root), os.stat(self.root)
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise FileError(f"{self.root} was replaced by another folder", hint="check the path, and open it again")

    def write(self, path: str, text: str, *, seen: _Seen = UNSEEN) -> bool:
        """Replace the content of the file, durably and atomically. Returns False, without a write, if it is the same.

        `seen` is the signature that the caller knows (None: no file). Raises `FileChanged` if it differs now.
        """
        where, data = self._writable(path), encoded(path, text)
        with _trouble(path, "write"), ExitStack() as open_files:
            folders = _Folders(self, open_files)
            temp = self._write_temp_file(folders, where, data, seen)
            if temp is None:
                return False
            temp.sync()
            _expect(where, look_at(temp.folder_fd, where.path), seen)  # the sync took time
            temp.publish()
            os.fsync(temp.folder_fd)
        return True

    def write_all(self, texts: Mapping[str, str], *, seen: Mapping[str, Signature | None] | None = None) -> Written:
        """Write many files, each atomically. All are durable on return.

        A file that the boundary checks refuse, or whose signature differs from `seen`, is reported in the result; the
        others are written. Raises `BoundaryRefused` for a path outside the layout, before anything is written.
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
        """Remove the file durably, and the folders that become empty. Returns False if there was no file."""
        where = self._writable(path)
        with _trouble(path, "remove"), self._open(where, make=False) as folder_fd:
            found = None if folder_fd is None else look_at(folder_fd, where.path)
            _expect(where, found, seen)
            if folder_fd is None or found is None:
                return False
            os.unlink(where.name, dir_fd=folder_fd)
            os.fsync(folder_fd)
        self._remove_empty(where.folders)
        return True

    def walk(self) -> Walked:
        """All files of this workspace and all shared files with their signatures, and the refused ones. Files outside
        the layout are ignored."""
        with _trouble(self.root, "list"):
            return walk(self.handle(), self.workspace)

    def sweep(self) -> int:
        """Remove the temporary files of killed writers. Returns how many. Files of running writers stay."""
        with _trouble(self.root, "clean up"):
            return sweep_folder(self.handle(), self.own)

    def handle(self) -> int:
        """The file descriptor of the root. Raises `FileError` after `close`."""
        if self._root < 0:
            raise FileError(f"{self.root} was closed", hint="open it again")
        return self._root

    # -- inside

    def _writable(self, path: str) -> Place:
        where = self.place(path)
        if not where.writable:
            raise BoundaryRefused(path, "duramen never writes this file", hint="edit AGENTS.md yourself")
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
                        _expect(where, look_at(temp.folder_fd, where.path), batch.seen(where))
                        temp.publish()
                        batch.changed.append(where.path)

    def _write_temp_file(self, folders: _Folders, where: Place, data: bytes, seen: _Seen) -> TempFile | None:
        """A temporary file with the data. None if the file already has this content."""
        for _ in range(TRIES):
            folder_fd = folders.of(where)
            old = look_at(folder_fd, where.path)
            _expect(where, old, seen)
            if old is None:
                folders.expect_free(where)
            elif old.st_size == len(data) and content_of(folder_fd, where.path) == data:
                return None
            mode = 0o600 if old is None else stat.S_IMODE(old.st_mode)
            try:
                temp = folders.open_files.enter_context(temp_file_for(folder_fd, where.name, mode))
            except FileNotFoundError:  # the folder was empty, and another process removed it
                folders.forget(where)
                continue
            temp.write(data)
            folders.note(where)
            return temp
        raise FileError(
            f"cannot write {where.path}: its folder is removed again and again", hint="find the program that removes it"
        )

    @contextmanager
    def _open(self, where: Place, *, make: bool) -> Iterator[int | None]:
        """The open folder of a place. None if the folder does not exist."""
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
        """Remove the empty folders of this path, starting with the innermost."""
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
    """Collects the results for the files of a batch."""

    def __init__(self, seen: Mapping[str, Signature | None]) -> None:
        self._seen = seen
        self.changed: list[str] = []
        self.refused: list[Refusal] = []
        self.edited: list[str] = []

    def seen(self, where: Place) -> _Seen:
        """The signature that the writer knows."""
        return self._seen.get(where.path, UNSEEN)

    @contextmanager
    def reporting(self, where: Place) -> Iterator[None]:
        """Record a refused or edited file, so that the batch continues with the others."""
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
        """Use another exit stack for the files that are opened from now on. Returns self."""
        self.open_files = open_files
        return self

    def of(self, where: Place) -> int:
        """The open folder of a place. It is created if it does not exist."""
        if where.folders not in self._handles:
            handle = self._folder._opened(where.folders, where.path, make=True)
            assert handle is not None
            self._open_folders.callback(os.close, handle)
            self._handles[where.folders] = handle
        return self._handles[where.folders]

    def forget(self, where: Place) -> None:
        """Forget a folder that was removed."""
        self._handles.pop(where.folders, None)
        self._names.pop(where.folders, None)

    def expect_free(self, where: Place) -> None:
        """Raise `BoundaryRefused` if a file has the same name apart from case or Unicode form."""
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
                where.path, f"some systems treat it and {shown(other)} as the same name", hint="rename one of them"
            )

    def note(self, where: Place) -> None:
        """Record the name of a file that will be created."""
        if where.folders in self._names:
            self._names[where.folders].add(fold(where.name))
            self._noted.setdefault(where.folders, []).append(where.name)

    def sync(self) -> None:
        """Make the new names durable."""
        for handle in self._handles.values():
            os.fsync(handle)


def _folded(names: list[str]) -> set[str]:
    """The folded names. ASCII names are folded in one call, because a folder may contain many thousands."""
    joined = "\0".join(names)
    return set(joined.lower().split("\0")) if joined.isascii() else {fold(name) for name in names}


def _expect(where: Place, found: os.stat_result | None, seen: _Seen) -> None:
    if not isinstance(seen, _Unseen) and seen != (found and signature_of(found)):
        raise FileChanged(where.path)


@contextmanager
def _trouble(path: str, what: str) -> Iterator[None]:
    """Translate an `OSError` to a `FileError` with a hint."""
    try:
        yield
    except OSError as error:
        raise FileError(
            f"cannot {what} {path}: {error.strerror}",
            hint="check the permissions of the folder and the free disk space; the journal is not affected",
        ) from error
