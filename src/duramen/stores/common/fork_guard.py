"""A handle belongs to the process that opened it.

A forked child must not use the connections of its parent, and must not close them: closing could change a file or end
the session on a shared socket. The child keeps the connections unused, and its calls raise `ForkedHandle`.
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakSet

from ...errors import ForkedHandle

_open: WeakSet[Any] = WeakSet()
_left_behind: list[Any] = []
inherited: list[str] = []
"""SQLite files that the parent process had open when it forked."""


def watch(store: Any) -> None:
    """In every forked child, keep the store's connections alive and call its `disown`."""
    _open.add(store)


def unwatch(store: Any) -> None:
    """Undo `watch` after the store was closed."""
    _open.discard(store)


def forked() -> ForkedHandle:
    """The error for a child process that uses a handle of its parent."""
    return ForkedHandle("this handle was opened by the parent process", hint="open the store again after fork()")


def refuse_inherited(path: str) -> None:
    """Raise `ForkedHandle` for a file that the parent process had open. SQLite keeps the state of its file locks in
    process memory. A forked child inherits this state but not the locks, so it would write without locks."""
    for other in inherited:
        if os.path.exists(other) and os.path.exists(path) and os.path.samefile(other, path):
            raise ForkedHandle(
                f"the parent process had {path} open when it forked; this process cannot open it safely",
                hint="fork before opening, close before forking, or start a new process (subprocess, spawn)",
            )


def _in_child() -> None:
    for store in list(_open):
        _left_behind.append(store)
        store.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
