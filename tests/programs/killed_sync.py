"""Syncs the memory files of a store in a child process, which a test kills."""

from __future__ import annotations

from collections.abc import Callable

import duramen


def sync(say: Callable[[object], None], address: str, root: str, git: bool) -> None:
    with duramen.open(address, embedder="none") as dm, dm.files(root, git=git) as files:
        files.sync()
