"""Kills the process with SIGKILL at a named crash point, without clean-up.

In the process to kill, call `die_at("append.committed", 3)`. Or set DURAMEN_CRASH_AT=append.committed:3 in its
environment and call `arm_from_environment()`.
"""

from __future__ import annotations

import os
import signal

from ..crash_points import POINTS, listen
from ..errors import InvalidInput

CRASH_VARIABLE = "DURAMEN_CRASH_AT"


def die_at(point: str, visit: int = 1) -> None:
    """Kill this process with SIGKILL when it reaches `point` for the `visit`-th time."""
    if point not in POINTS:
        raise InvalidInput(f"there is no crash point {point!r}", hint=f"use one of {', '.join(POINTS)}")
    visits = 0

    def listener(reached: str) -> None:
        nonlocal visits
        visits += reached == point
        if visits == visit and reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(listener)


def arm_from_environment() -> None:
    """Call `die_at` with the value of DURAMEN_CRASH_AT ("point" or "point:visit"), if it is set."""
    wanted = os.environ.get(CRASH_VARIABLE, "")
    if wanted:
        point, _, visit = wanted.partition(":")
        die_at(point, int(visit or 1))


def disarm() -> None:
    """Remove the crash point."""
    listen(None)
