"""Named points in the code where tests can kill the process.

Production code calls `reach(name)`. It does nothing unless `duramen.testing.crash` has set a listener.
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
    "files.intended",
    "files.temp_written",
    "files.published",
    "files.written",
    "files.uncommitted",
    "files.saved",
    "outlet.applied",
    "outlet.advanced",
)
"""All points. Those of one operation are in the order in which it reaches them."""

_listener: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Call the listener, if there is one, with the point that was reached."""
    if _listener is not None:
        _listener(point)


def listen(listener: Callable[[str], None] | None) -> None:
    """Call `listener` at every point from now on. None removes it."""
    global _listener
    _listener = listener
