"""What is raised through a task's code in order to leave it. Not errors: the task must not catch them."""

from __future__ import annotations


class Suspend(BaseException):
    """The run cannot go on now: unwind the task. `due`: when it can by itself; `outside`: it needs somebody."""

    def __init__(self, due: int | None, waiting: str, outside: bool) -> None:
        super().__init__(waiting)
        self.due = due
        self.waiting = waiting
        self.outside = outside


class Stop(BaseException):
    """The run was cancelled: unwind the task, then undo."""


class Left(BaseException):
    """Whoever waited for the run has gone: unwind the task; it goes on another time."""
