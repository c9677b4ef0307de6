"""Recorded side effects of steps, and simulated kills, for tests of runs in one process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from duramen import Duramen

Open = Callable[[], Duramen]
"""Opens a handle, as a new process would."""


def close_all(handles: list[Duramen]) -> None:
    """Close handles at the same time. One that listens to PostgreSQL takes up to half a second to close."""
    with ThreadPoolExecutor(max(1, len(handles))) as pool:
        list(pool.map(Duramen.close, handles))


class Killed(BaseException):
    """Simulates the end of the process. Neither tasks nor the library catch it."""


class SideEffects:
    """Records each effect and its key. `die` is "before WHAT" or "after WHAT": the process is killed there, once."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.die: str | None = None

    def do(self, what: str, key: str = "") -> str:
        """Record the effect. Returns "WHAT done", or raises `Killed`."""
        if self.die == f"before {what}":
            self.die = None
            raise Killed
        self.done.append((what, key))
        if self.die == f"after {what}":
            self.die = None
            raise Killed
        return f"{what} done"

    def times(self, what: str) -> int:
        """How often the effect happened."""
        return sum(done == what for done, _ in self.done)


class BookingError(Exception):
    """A user-defined error with attributes."""

    def __init__(self, flight: str, code: int) -> None:
        super().__init__(f"{flight} cannot be booked")
        self.flight = flight
        self.code = code


def event_types(dm: Duramen, session: str) -> list[str]:
    return [event.type for event in dm.session(session).events()]


def run_until_killed(dm: Duramen, task: Any, *args: Any, id: str) -> None:
    """Run a task that raises `Killed`."""
    with pytest.raises(Killed):
        dm.run(task, *args, id=id)
