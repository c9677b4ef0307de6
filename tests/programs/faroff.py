"""The world outside a run, and the end of a process, for tests of runs in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from duramen import Duramen

Open = Callable[[], Duramen]


class Killed(BaseException):
    """Stands for the end of the process: nothing in the task or the library handles it."""


class Far:
    """The world outside: what was done to it, under which key; and when to die."""

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
    """An error of a user's own, with facts."""

    def __init__(self, flight: str, code: int) -> None:
        super().__init__(f"{flight} cannot be booked")
        self.flight = flight
        self.code = code


def types(dm: Duramen, session: str) -> list[str]:
    return [event.type for event in dm.session(session).events()]


def killed(dm: Duramen, task: Any, *args: Any, id: str) -> None:
    """Run a task that is to die."""
    with pytest.raises(Killed):
        dm.run(task, *args, id=id)
