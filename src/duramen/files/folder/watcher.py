"""What changed in the folder since the last look, as the system tells it; where it does not, everything is looked at.

Linux tells of each change in a folder that is watched (inotify). That holds for disks of this machine alone: of a share
others may change files unseen. So it is used where the file system is known to be local, and now and then everything is
looked at all the same. It saves the look, never a check: what is written or removed is compared with what was seen.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Container
from contextlib import suppress

from ...errors import BoundaryRefused, FileError
from .boundary import Folder, Signature, Walked
from .paths import KNOWLEDGE_FOLDERS, place
from .walk import LEAVES

_EVERY = 60.0
"""Seconds after which everything is looked at, whatever was told."""
_CHANGED = 0x002 | 0x004 | 0x008 | 0x040 | 0x080 | 0x100 | 0x200  # modify, attrib, close_write, moved, create, delete
_SELF = 0x400 | 0x800  # delete_self, move_self
_LOST = 0x2000 | 0x4000 | 0x8000 | _SELF  # unmount, overflow, ignored
_FOLDER = 0x40000000
_OPTIONS = 0x01000000 | 0x02000000  # only a folder, never through a link
_EVENT = struct.Struct("iIII")
_LOCAL = {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0x2FC12FC1, 0x794C7630}
"""ext2 to 4, XFS, Btrfs, tmpfs, F2FS, ZFS, overlays."""


class Lookout:
    """Looks at a folder again and again."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._files: dict[str, Signature] = {}
        self._alarm = _Alarm.of(folder)
        self._looked = 0.0

    def look(self, known: Container[str]) -> Walked:
        """Every file that is there. `known` are the leaves that we have written: news of others means a whole look."""
        touched = self._told(known)
        if touched is None:
            return self._whole()
        for path in touched:
            try:
                signature = self._folder.signature(path)
            except BoundaryRefused:
                return self._whole()
            if signature is None:
                self._files.pop(path, None)
            else:
                self._files[path] = signature
        return Walked(self._files, (), frozenset(touched))

    def _told(self, known: Container[str]) -> set[str] | None:
        if self._alarm is None or not self._looked or time.monotonic() - self._looked > _EVERY:
            return None
        told = self._alarm.told()
        if told is None:
            return None
        touched = set()
        for path in told:
            try:
                is_leaf = place(path, self._folder.workspace).area in LEAVES
            except BoundaryRefused:
                if path.endswith(".md") and not path.rpartition("/")[2].startswith("."):
                    return None
                continue
            if is_leaf and path not in self._files and path not in known:
                return None
            touched.add(path)
        return touched

    def _whole(self) -> Walked:
        now = time.monotonic()
        if self._alarm is not None:
            self._alarm.arm()  # first: what changes during the look is told by the next
        found = self._folder.walk()
        self._files = dict(found.files)
        self._looked = 0.0 if found.refused else now  # what is refused stays in view
        return Walked(self._files, found.refused)

    def forget(self) -> None:
        """Look at everything the next time."""
        self._looked = 0.0

    def close(self) -> None:
        """Let go of it."""
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None


class _Alarm:
    """The system's word on changes in the folders of the layout."""

    def __init__(self, libc: ctypes.CDLL, handle: int, root: int, folders: tuple[str, ...]) -> None:
        self._libc = libc
        self._handle = handle
        self._root = root
        self._folders = folders
        self._watched: dict[int, str] = {}

    @classmethod
    def of(cls, folder: Folder) -> _Alarm | None:
        """An alarm for a folder; None where the system has none, or where it would not tell all."""
        if not sys.platform.startswith("linux"):
            return None
        own = f"workspace/{folder.own}"
        folders = ("", "preference", "identity", "memory", "workspace", own, f"{own}/runtime", f"{own}/knowledge")
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            about = ctypes.create_string_buffer(512)
            root = folder.handle()
            if libc.fstatfs(root, about) or ctypes.c_long.from_buffer(about).value not in _LOCAL:
                return None
            handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):
            return None
        knowledge = tuple(f"{own}/knowledge/{name}" for name in KNOWLEDGE_FOLDERS)
        return None if handle < 0 else cls(libc, handle, root, folders + knowledge)

    def arm(self) -> None:
        """Watch all folders that are there, and forget what was told before."""
        self.told()
        for folder in self._folders:
            path = os.fsencode(f"/proc/self/fd/{self._root}/{folder}")
            number = self._libc.inotify_add_watch(self._handle, path, _CHANGED | _SELF | _OPTIONS)
            if number >= 0:
                self._watched[number] = folder

    def told(self) -> set[str] | None:
        """The paths that were touched since the last call; None if more may have been, or folders came or went."""
        touched: set[str] | None = set()
        with suppress(BlockingIOError):
            while data := self._heard():
                at = 0
                while at < len(data):
                    number, mask, _, length = _EVENT.unpack_from(data, at)
                    name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
                    at += _EVENT.size + length
                    folder = self._watched.get(number)
                    if mask & _LOST or folder is None or (mask & _FOLDER and not name.startswith(".")):
                        touched = None
                    elif touched is not None:
                        touched.add(f"{folder}/{name}" if folder else name)
        return touched

    def _heard(self) -> bytes:
        try:
            return os.read(self._handle, 1 << 16)
        except BlockingIOError:
            raise
        except OSError as error:
            hint = "open the folder again"
            raise FileError(f"the system does not tell what changed: {error.strerror}", hint=hint) from error

    def close(self) -> None:
        """Stop."""
        os.close(self._handle)
