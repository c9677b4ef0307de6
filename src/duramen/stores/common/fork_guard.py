"""Handles belong to the process that opened them.

A forked child must neither use nor close its parent's connections: closing alone could touch a file or say
goodbye on a shared socket. So the child keeps them, unused, and its calls are refused.
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakSet

from ...errors import ForkedHandle

_open: WeakSet[Any] = WeakSet()
_left_behind: list[Any] = []
inherited: list[str] = []
"""Files that the parent had open in SQLite when it forked."""


def watch(store: Any) -> None:
    """In every child of this process, keep the store's connections alive and call its `disown`."""
    _open.add(store)


def unwatch(store: Any) -> None:
    """The store was closed: children have nothing to do with it."""
    _open.discard(store)


def forked() -> ForkedHandle:
    """The error for a child that uses a handle of its parent."""
    return ForkedHandle("this handle was opened by the parent process", hint="open the store again after fork()")


def refuse_inherited(path: str) -> None:
    """Raise `ForkedHandle` for a file that the parent had open. SQLite keeps what it knows of a file's locks in
    the process; a child inherits that knowledge but not the locks, and would write without them."""
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
