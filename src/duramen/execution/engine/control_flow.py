"""Exceptions that leave a task's code. They are not errors, so `except Exception` does not catch them."""

from __future__ import annotations


class RunSuspended(BaseException):
    """The run has to wait, so its task's code is left.

    due         time in microseconds when the run continues by itself; None if there is none
    waiting     what the run waits for, in words
    external    the run waits for an answer, a signal or a verdict
    """

    def __init__(self, due: int | None, waiting: str, external: bool) -> None:
        super().__init__(waiting)
        self.due = due
        self.waiting = waiting
        self.external = external


class RunStopped(BaseException):
    """The run was cancelled. Its task's code is left, then its steps are undone."""


class RunInterrupted(BaseException):
    """The caller that waited for the run was cancelled. The run stays open and can continue later."""
