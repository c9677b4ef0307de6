"""The run that the calling code is part of: set while a task is executed, inherited by its coroutines."""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING


class Branch:
    """One line of a task's code: the task itself, or a coroutine that it runs beside. Steps are counted along it, so
    that they are known again however quickly the others are."""

    __slots__ = ("branches", "counts", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self.branches = 0

    def number(self, name: str) -> str:
        """The number of the next call of a step."""
        self.counts[name] += 1
        return f"{self.path}{self.counts[name]}"

    def fork(self) -> Branch:
        """A new line beside this one."""
        self.branches += 1
        return Branch(f"{self.path}{self.branches}.")


def branch_of(identity: str) -> str | None:
    """The path of the line that a step was called on; None if it has a key of its own."""
    _, counted, number = identity.rpartition("#")
    return number.rpartition(".")[0] if counted else None


if TYPE_CHECKING:
    from .context import RunContext
    from .stepping import StepScope

RUN: ContextVar[RunContext | None] = ContextVar("holdfast.run", default=None)
STEP: ContextVar[StepScope | None] = ContextVar("holdfast.step", default=None)
BRANCH: ContextVar[Branch | None] = ContextVar("holdfast.branch", default=None)


def current() -> RunContext | None:
    """The run whose task called, unless it is one of its steps: inside a step everything just runs."""
    return RUN.get() if STEP.get() is None else None
