"""Drafts: temporary files that become the real ones by a rename, and what is left of them when a writer is killed.

A draft is locked as long as its writer lives, so that nobody takes it for a leftover. The system frees the lock when
the writer dies, and the next sweep removes the file.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from filelock import lock_descriptor

from ...crash_points import reach
from .paths import KNOWLEDGE_FOLDERS

_DRAFT = re.compile(r"\..{1,120}\.[0-9a-f]{8}\.duramen-draft", re.DOTALL)
_SHOWN = 40
_SYNCERS = 8


def is_draft(name: str) -> bool:
    """Whether a file of this name is a draft of ours."""
    return _DRAFT.fullmatch(name) is not None


@dataclass(slots=True)
class Draft:
    """A file that is being written beside the one that it will replace."""

    beside: int
    target: str
    name: str
    handle: int
    published: bool = False

    def write(self, data: bytes) -> None:
        """All of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.handle, rest) :]
        reach("files.drafted")

    def sync(self) -> None:
        """Make the content durable. Before the rename: else a power cut could leave the new name without content."""
        os.fsync(self.handle)

    def publish(self) -> None:
        """Give it the real name. A link that lies there is replaced, not followed. Durable once the folder is."""
        os.rename(self.name, self.target, src_dir_fd=self.beside, dst_dir_fd=self.beside)
        self.published = True
        reach("files.published")


def sync_all(drafts: Sequence[Draft]) -> None:
    """Make the content of all of them durable. Some at a time: file systems share one write of their journal among
    those who wait for it."""
    if len(drafts) <= _SYNCERS:
        for draft in drafts:
            draft.sync()
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_SYNCERS) as audience:
        list(audience.map(lambda draft: draft.sync(), drafts))


@contextmanager
def draft_beside(beside: int, target: str, mode: int) -> Iterator[Draft]:
    """A new draft for a file of this folder. Gone at the end unless it was published."""
    draft = _begun(beside, target)
    try:
        os.fchmod(draft.handle, mode & 0o777)
        yield draft
    finally:
        if not draft.published:
            with suppress(OSError):
                os.unlink(draft.name, dir_fd=beside)
        os.close(draft.handle)


def _begun(beside: int, target: str) -> Draft:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f".{target[:_SHOWN]}.{secrets.token_hex(4)}.duramen-draft"
        try:
            handle = os.open(name, flags, 0o600, dir_fd=beside)
        except FileExistsError:
            continue
        try:
            if lock_descriptor(handle, blocking=False) and os.fstat(handle).st_nlink:
                return Draft(beside, target, name, handle)
        except OSError:  # a file system without locks; nobody sweeps there
            return Draft(beside, target, name, handle)
        os.close(handle)  # somebody who swept was faster than the lock and has removed it


def sweep_folder(root: int, own: str) -> int:
    """Remove the drafts of dead writers from all folders of the layout, and say how many."""
    knowledge = [("workspace", own, "knowledge", folder) for folder in KNOWLEDGE_FOLDERS]
    shared = [(), ("preference",), ("identity",), ("memory",)]
    return sum(_swept(root, way) for way in (*shared, ("workspace", own), ("workspace", own, "runtime"), *knowledge))


def _swept(root: int, way: tuple[str, ...]) -> int:
    handle = os.dup(root)
    try:
        for name in way:
            above, handle = handle, os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(above)
        return sum(_removed(handle, name) for name in os.listdir(handle) if is_draft(name))
    except OSError:  # not there, or a link: nothing of ours is in it
        return 0
    finally:
        os.close(handle)


def _removed(beside: int, name: str) -> bool:
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=beside, follow_symlinks=False).st_mode):
            return False
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=beside)
    except OSError:
        return False
    try:
        if not lock_descriptor(handle, blocking=False):
            return False
        os.unlink(name, dir_fd=beside)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)
