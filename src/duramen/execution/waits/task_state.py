"""A task's own state, checkpointed while it runs: after each subtask, before irreversible steps, and now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import InvalidInput
from .current_run import STEP, current

if TYPE_CHECKING:
    from ..engine.run_context import RunContext
    from ..steps.definitions import Step

T = TypeVar("T")


def checkpointed(state: T, *, every: int = 10) -> T:
    """Have this task's own state stored as checkpoints of its session: after each child run, before each irreversible
    step, and every so many steps. It is given back as it is, to be changed in place. After a restart the task's code
    makes it again, step by step from the journal; the checkpoints are for others: people who look, a session
    that continues from here, a fork."""
    run = current()
    if run is None:
        inside = STEP.get() is not None
        raise InvalidInput(
            f"duramen.checkpointed() was called {'inside a step' if inside else 'outside a run'}",
            hint="call it in a task's own code, and the task with dm.run(…)",
        )
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise InvalidInput(f"{every!r} cannot be `every`", hint="give a number of steps from 1")
    run.state = TaskState(state, every)
    return state


class TaskState:
    """The state that a task keeps, and how many steps were done since it was last stored."""

    def __init__(self, state: Any, every: int) -> None:
        self._state = state
        self._every = every
        self._steps = 0
        self._since = 0

    async def before_step(self, run: RunContext, step: Step[..., Any], identity: str) -> None:
        """A step is about to act."""
        if step.irreversible:
            await self._store(run, "irreversible", identity)
        elif self._since >= self._every:
            await self._store(run, "periodic", identity)
        self._steps += 1
        self._since += 1

    async def after_child(self, run: RunContext) -> None:
        """A child run has ended, and its result was delivered."""
        self._steps += 1
        await self._store(run, "subtask", None)

    async def _store(self, run: RunContext, kind: str, following: str | None) -> None:
        """Store it after what was done, under the run's fence: only its owner can."""
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
