"""What is raised through a task's code in order to leave it. Not errors: `except Exception` does not catch them."""

from __future__ import annotations


class RunSuspended(BaseException):
    """The run has to wait: leave the task's code. `due`: when it continues by itself; `external`: it waits for a
    person, a signal or a verdict."""

    def __init__(self, due: int | None, waiting: str, external: bool) -> None:
        super().__init__(waiting)
        self.due = due
        self.waiting = waiting
        self.external = external


class RunStopped(BaseException):
    """The run was cancelled: leave the task's code, then undo."""


class RunInterrupted(BaseException):
    """The caller that waited for the run was cancelled: leave the task's code; the run continues another time."""
