"""Lists the files of the layout. Each folder is listed once, and each file is examined once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import BoundaryRefused, shown
from .names import fold, folder_name
from .paths import KNOWLEDGE_FOLDERS, Area, place

MEMORY_AREAS = (Area.KNOWLEDGE, Area.PREFERENCE, Area.IDENTITY)
"""The areas that contain memories."""


class Signature(NamedTuple):
    """Detects a changed file without reading it.

    On some systems file times have a resolution of a few milliseconds. A second edit within that time that keeps the
    length may not change the signature, unless the editor replaces the file, as most do.
    """

    size: int
    mtime: int
    inode: int
    ctime: int


class Refusal(NamedTuple):
    """A path that is not read or written, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Walked:
    """The files of the layout with their signatures, and the refused files."""

    files: Mapping[str, Signature]
    refused: tuple[Refusal, ...]


def signature_of(found: os.stat_result) -> Signature:
    """The signature of a file from its `stat` result."""
    return Signature(found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)


def walk(root: int, workspace: str) -> Walked:
    """List the folders of the layout under an open root."""
    own = f"workspace/{folder_name(workspace)}"
    folders = ["", "preference", "identity", "memory", own, f"{own}/runtime"]
    folders += [f"{own}/knowledge/{name}" for name in KNOWLEDGE_FOLDERS]
    files: dict[str, Signature] = {}
    refused: dict[str, str] = {}
    for folder in folders:
        taken: dict[str, str] = {}
        for path, entry in _entries(root, folder, refused):
            reason = _trouble(path, entry, workspace, taken)
            if reason is None:
                continue
            if reason:
                refused[path] = reason
            else:
                files[path] = signature_of(entry.stat(follow_symlinks=False))
    return Walked(files, tuple(Refusal(path, reason) for path, reason in sorted(refused.items())))


def _entries(root: int, folder: str, refused: dict[str, str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    handle = os.dup(root)
    try:
        way = ""
        for name in folder.split("/") if folder else ():
            way = f"{way}/{name}".lstrip("/")
            try:
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            except FileNotFoundError:
                return
            except OSError:
                refused[way] = "it is a symbolic link, or not a folder"
                return
            os.close(handle)
            handle = below
        with os.scandir(handle) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
            for entry in found:
                yield f"{folder}/{entry.name}" if folder else entry.name, entry
    finally:
        os.close(handle)


def _trouble(path: str, entry: os.DirEntry[str], workspace: str, taken: dict[str, str]) -> str | None:
    """Why an entry is refused. Empty if it is accepted, None if it is outside the layout."""
    try:
        if entry.is_dir(follow_symlinks=False):
            return None
        try:
            place(path, workspace)
        except BoundaryRefused as error:
            known = "/" in path and path.endswith(".md") and not entry.name.startswith(".")
            return error.reason if known else None
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # removed in the meantime
        return None
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a file"
    if found.st_nlink > 1:
        return "it is a hard link: the same file has another name"
    other = taken.setdefault(fold(entry.name), entry.name)
    return "" if other == entry.name else f"some systems treat it and {shown(other)} as the same name"
