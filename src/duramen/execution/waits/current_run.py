"""The run that the calling code belongs to: set while a task is executed, inherited by its coroutines."""

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
    """The run that the calling code belongs to. None outside a run, and None inside a step, where calls of other steps
    and tasks are ordinary function calls."""
    return RUN.get() if STEP.get() is None else None
