"""Checkpoints of a task's own state: after each child run, before irreversible steps, and every few steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import InvalidInput, shown
from .current_run import STEP, current

if TYPE_CHECKING:
    from ..engine.run_context import RunContext
    from ..steps.definitions import Step

T = TypeVar("T")


def checkpointed(state: T, *, every: int = 10) -> T:
    """Store checkpoints of this task's own state in its session: after each child run, before each irreversible step,
    and every `every` steps. Returns `state` itself, to be changed in place.

    A resumed run does not load these checkpoints: its code rebuilds the state from the journaled steps. They are for
    inspection, for forks, and for a session that continues from here.
    """
    run = current()
    if run is None:
        inside = STEP.get() is not None
        raise InvalidInput(
            f"duramen.checkpointed() was called {'inside a step' if inside else 'outside a run'}",
            hint="call it in the code of a task that was started with dm.run(…)",
        )
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise InvalidInput(f"`every` cannot be {shown(every)}", hint="give a number of steps of at least 1")
    run.state = TaskState(state, every)
    return state


class TaskState:
    """The state of a task, and the number of steps since its last checkpoint."""

    def __init__(self, state: Any, every: int) -> None:
        self._state = state
        self._every = every
        self._steps = 0
        self._since = 0

    async def before_step(self, run: RunContext, step: Step[..., Any], identity: str) -> None:
        """Store a checkpoint before this step if one is due."""
        if step.irreversible:
            await self._store(run, "irreversible", identity)
        elif self._since >= self._every:
            await self._store(run, "periodic", identity)
        self._steps += 1
        self._since += 1

    async def after_child(self, run: RunContext) -> None:
        """Store a checkpoint after the outcome of a child run was recorded."""
        self._steps += 1
        await self._store(run, "subtask", None)

    async def _store(self, run: RunContext, kind: str, following: str | None) -> None:
        """Store a checkpoint under the run's fence, so that only the owner of the lease can."""
        if run.readonly:
            return
        await run.engine.states.save(
            run.row.session,
            self._state,
            next=following,
            step=self._steps,
            kind=kind,
            fence=run.journal.fence,
            subject=run.journal.owner.name or None,
        )
        self._since = 0
