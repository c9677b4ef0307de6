"""Reports whether files of a folder changed, so that a watch need not list the whole folder every second.

Only `files.watch()` uses it. A sync does not rely on it: each sync lists the folder and compares every file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_AT_LEAST_EVERY = 60.0
"""Seconds after which a change is assumed, even if the system reported none."""
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs", "zfs", "overlay"}
"""File systems on which Linux reports every change. On a network share, changes by other machines are not reported."""
_OCTAL = re.compile(r"\\([0-7]{3})")


class Watcher:
    """Reports whether a folder may have changed since the last call. Use it as a context manager."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._changes: Generator[set[Any], None, None] | None = None
        self._reported = 0.0

    def __enter__(self) -> Self:
        if _is_local(self._root):
            import watchfiles

            # With a step and a timeout of 1 ms, each next() returns at once with the changes collected so far.
            self._changes = watchfiles.watch(
                self._root,
                watch_filter=self._is_relevant,
                debounce=20,
                step=1,
                rust_timeout=1,
                yield_on_timeout=True,
                raise_interrupt=True,
            )
            self.changed()  # starts the watch
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._changes is not None:
            self._changes.close()
            self._changes = None

    def changed(self) -> bool:
        """Whether anything may have changed since the last call. True if the system cannot report changes."""
        now = time.monotonic()
        if self._changes is None:
            return True
        try:
            reported = bool(next(self._changes, True))
        except (OSError, RuntimeError):  # the system has no watches left, or the folder was removed
            self._changes = None
            return True
        if reported or now - self._reported > _AT_LEAST_EVERY:
            self._reported = now
            return True
        return False

    def _is_relevant(self, change: object, path: str) -> bool:
        """Ignore names that begin with a dot: the manifest, the lock, temporary files, and files of git."""
        return not any(name.startswith(".") for name in Path(path).relative_to(self._root).parts)


def _is_local(root: str) -> bool:
    """Whether the folder is on a local file system. False if that is unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return False
    longest, kind = "", ""
    for mount in mounts.splitlines():
        fields, _, about = mount.partition(" - ")
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields.split(" ")[4])
        if len(point) >= len(longest) and Path(root).is_relative_to(point):
            longest, kind = point, about.split(" ")[0]
    return kind in _LOCAL
