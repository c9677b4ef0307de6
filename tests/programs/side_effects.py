"""Recorded side effects of steps, and simulated kills, for tests of runs in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from duramen import Duramen

Open = Callable[[], Duramen]


class Killed(BaseException):
    """Simulates the end of the process: neither the task nor the library handles it."""


class SideEffects:
    """Records each effect and its key. `die` names an effect before or after which the process is killed."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.die: str | None = None

    def do(self, what: str, key: str = "") -> str:
        if self.die == f"before {what}":
            self.die = None
            raise Killed
        self.done.append((what, key))
        if self.die == f"after {what}":
            self.die = None
            raise Killed
        return f"{what} done"

    def times(self, what: str) -> int:
        return sum(1 for one, _ in self.done if one == what)


class BookingError(Exception):
    """An error of a user with attributes."""

    def __init__(self, flight: str, code: int) -> None:
        super().__init__(f"{flight} cannot be booked")
        self.flight = flight
        self.code = code


def event_types(dm: Duramen, session: str) -> list[str]:
    return [event.type for event in dm.session(session).events()]


def run_until_killed(dm: Duramen, task: Any, *args: Any, id: str) -> None:
    """Run a task that is killed."""
    with pytest.raises(Killed):
        dm.run(task, *args, id=id)
