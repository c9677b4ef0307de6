"""Kills the process at a named crash point with SIGKILL, without clean-up.

In the process that is to die: `die_at("append.committed", 3)`, or set DURAMEN_CRASH_AT=append.committed:3
in its environment and call `arm_from_environment()`.
"""

from __future__ import annotations

import os
import signal

from ..crash_points import POINTS, listen
from ..errors import InvalidInput

CRASH_VARIABLE = "DURAMEN_CRASH_AT"


def die_at(point: str, visit: int = 1) -> None:
    """Kill this process with SIGKILL when it gets to `point` for the `visit`-th time."""
    if point not in POINTS:
        raise InvalidInput(f"there is no crash point {point!r}", hint=f"one of {', '.join(POINTS)}")
    visits = 0

    def listener(reached: str) -> None:
        nonlocal visits
        visits += reached == point
        if visits == visit and reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(listener)


def arm_from_environment() -> None:
    """Arm what DURAMEN_CRASH_AT names, if it is set: "point" or "point:visit"."""
    wanted = os.environ.get(CRASH_VARIABLE, "")
    if wanted:
        point, _, visit = wanted.partition(":")
        die_at(point, int(visit or 1))


def disarm() -> None:
    """Remove the crash point."""
    listen(None)
