"""The run that the calling code is part of: set while a task is executed, inherited by its coroutines."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.run_context import RunContext
    from ..steps.branches import Branch
    from ..steps.step_scope import StepScope

RUN: ContextVar[RunContext | None] = ContextVar("duramen.run", default=None)
STEP: ContextVar[StepScope | None] = ContextVar("duramen.step", default=None)
BRANCH: ContextVar[Branch | None] = ContextVar("duramen.branch", default=None)


def current() -> RunContext | None:
    """The run whose task called, unless it is one of its steps: inside a step everything just runs."""
    return RUN.get() if STEP.get() is None else None
