"""Handles belong to the process that opened them.

A forked child must neither use nor close its parent's connections: closing alone could touch a file or say
goodbye on a shared socket. So the child keeps them, unused, and its calls are refused.
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakSet

from ..errors import ForkedHandle

_open: WeakSet[Any] = WeakSet()
_left_behind: list[Any] = []


def watch(store: Any) -> None:
    """Keep the store's connections alive in children, where nobody may close them."""
    _open.add(store)


def refuse_in_child(owner: int) -> None:
    """Raise `ForkedHandle` in any process but the owner's."""
    if os.getpid() != owner:
        raise ForkedHandle("this handle was opened by the parent process", hint="open the store again after fork()")


def _in_child() -> None:
    _left_behind.extend(_open)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
