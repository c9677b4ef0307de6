"""Stores the manifest of a folder: a complete file, and a log of changes.

`manifest` is replaced atomically. `manifest-changes` gets one line for each sync with few changes. Each line names the
manifest to which it belongs. An incomplete last line, which a killed process left, is ignored.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import msgspec
from filelock import lock_descriptor

from ...errors import FileError, InvalidInput
from ...runtime import pause
from ..folder.names import folder_name
from .sync_manifest import FORMAT_VERSION, ManifestState, SyncManifest

FOLDER = ".duramen"
_NAME = "manifest"
_LITTLE = 500
"""Up to this many changes are appended as a line. For more, the whole manifest is written."""
_MOST = 256 * 1024
"""Bytes of appended changes after which the whole manifest is written."""
_LOCK_POLL = 0.1
"""Seconds between two attempts to take the sync lock."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ManifestState).decode


@asynccontextmanager
async def sync_lock(root: str) -> AsyncGenerator[None, None]:
    """Hold the sync lock of the folder, which excludes other processes, threads and tasks. Waits without a limit.

    The system releases the lock when the process of its holder ends. On a file system without locks nothing is
    excluded.
    """
    folder = os.path.join(root, FOLDER)
    with _trouble(folder, "use"):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.path.islink(folder):
            raise FileError(f"{folder} is a symbolic link", hint="replace it by a real folder")
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while not _try_lock(lock):
            await pause(_LOCK_POLL)
        yield
    finally:
        os.close(lock)


def _try_lock(handle: int) -> bool:
    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:  # a file system without locks
        return True


class ManifestFile:
    """Loads and saves the manifest of a folder. The manifest is cached until another process writes it."""

    def __init__(self, root: str, workspace: str) -> None:
        self._root = root
        self._workspace = workspace
        self._path = os.path.join(root, FOLDER, _NAME)
        self._changes = f"{self._path}-changes"
        self._manifest: SyncManifest | None = None
        self._base = ""
        self._seen: tuple[int, ...] = ()

    def load(self) -> SyncManifest:
        """The manifest. Empty if there is none or it cannot be read. The caller owns it until `save`. Raises
        `InvalidInput` if the folder belongs to another workspace."""
        manifest, self._manifest = self._manifest, None
        if manifest is not None and self._signature() == self._seen:
            return manifest
        manifest, self._base = SyncManifest(self._workspace), ""
        try:
            state = _decode(_content(self._path))
        except (OSError, msgspec.DecodeError, ValueError):
            _expect_own(self._root, self._workspace)
            return manifest
        if state.workspace != self._workspace:
            raise _another(self._root, repr(state.workspace))
        if state.form == FORMAT_VERSION:
            manifest.apply(state)
            for line in self._lines(state.base):
                manifest.apply(line)
            manifest.mark_saved()
            self._base = state.base
        return manifest

    def _lines(self, base: str) -> Iterator[ManifestState]:
        with suppress(OSError, msgspec.DecodeError, ValueError):
            for line in _content(self._changes).split(b"\n")[:-1]:
                state = _decode(line)
                if state.base != base or state.form != FORMAT_VERSION:
                    return
                yield state

    def save(self, manifest: SyncManifest) -> None:
        """Store the changes durably."""
        if not self._base or manifest.lost or manifest.size > _LITTLE or self._is_long():
            self._save_whole(manifest)
        elif manifest.size:
            line = _encode(manifest.changes(self._base)) + b"\n"
            with _trouble(self._changes, "write"):
                self._write(self._changes, os.O_APPEND, line)
        manifest.mark_saved()
        self._manifest, self._seen = manifest, self._signature()

    def _save_whole(self, manifest: SyncManifest) -> None:
        base = secrets.token_hex(8)
        new = f"{self._path}.new"  # the sync lock guarantees one writer
        with _trouble(new, "write"):
            self._write(new, os.O_TRUNC, _encode(manifest.whole(base)))
            os.replace(new, self._path)
            with suppress(FileNotFoundError):  # it belongs to the old manifest; if it stays, `load` ignores it
                os.unlink(self._changes)
        self._base = base

    def _write(self, path: str, how: int, data: bytes) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o600)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)

    def _is_long(self) -> bool:
        try:
            return os.stat(self._changes).st_size > _MOST
        except OSError:
            return False

    def _signature(self) -> tuple[int, ...]:
        found: list[int] = []
        for path in (self._path, self._changes):
            with suppress(OSError):
                one = os.stat(path, follow_symlinks=False)
                found += (one.st_size, one.st_mtime_ns, one.st_ino, one.st_ctime_ns)
        return tuple(found)


def _expect_own(root: str, workspace: str) -> None:
    """Raise `InvalidInput` if there is a folder of another workspace. Used when there is no manifest."""
    try:
        others = sorted(set(os.listdir(os.path.join(root, "workspace"))) - {folder_name(workspace)})
    except OSError:
        return
    if others and not others[0].startswith("."):
        raise _another(root, repr(others[0]))


def _another(root: str, workspace: str) -> InvalidInput:
    return InvalidInput(
        f"{root} contains the files of workspace {workspace}",
        hint="use a separate folder for each workspace",
    )


@contextmanager
def _trouble(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"cannot {what} {path}: {error.strerror}", hint="check its permissions and the free disk space"
        ) from error


def _content(path: str) -> bytes:
    with open(path, "rb", opener=_careful) as file:
        return file.read()


def _careful(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
