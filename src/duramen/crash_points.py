"""Named places where a process may die, so that tests can make it die there.

Production code calls `reach(name)`; it does nothing until `duramen.testing.crash` arms it.
"""

from __future__ import annotations

from collections.abc import Callable

POINTS: tuple[str, ...] = (
    "append.encoded",
    "append.begun",
    "append.inserted",
    "append.committed",
    "erase.begun",
    "erase.removed",
    "erase.committed",
    "run.started",
    "run.claimed",
    "step.intended",
    "step.acted",
    "step.settled",
    "step.transacted",
    "step.recorded",
    "run.parked",
    "run.ended",
    "checkpoint.encoded",
    "checkpoints.dropping",
    "context.summarised",
    "memory.embedded",
    "memory.indexed",
    "memory.packing",
    "memory.packed",
    "memory.reindexed",
    "memory.forgetting",
    "writeback.read",
    "writeback.answered",
    "writeback.proposed",
    "memory.readying",
    "memory.index_begun",
    "memory.index_made",
    "writeback.done",
    "files.read_in",
    "files.temp_written",
    "files.published",
    "files.written",
    "files.uncommitted",
    "outlet.applied",
    "outlet.advanced",
)
"""Every point there is, in the order in which an operation passes them."""

_listener: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Tell the armed listener, if any, that execution got to `point`."""
    if _listener is not None:
        _listener(point)


def listen(listener: Callable[[str], None] | None) -> None:
    """Call `listener` at every point from now on; None disarms."""
    global _listener
    _listener = listener
