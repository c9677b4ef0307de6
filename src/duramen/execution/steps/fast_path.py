"""The straight way of a step: plain, new, in a plain task where nothing stands in the way. Most steps are like this.

It does what `stepping` does, in as few calls as can be: a sync leaves the processor's caches cold, and after one every
call counts. What turns out not to be plain is handed over to `stepping` where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...crash_points import reach
from ...journal.lanes import jot
from ...runtime import drive
from ..waits.current_run import STEP
from .definitions import Step
from .step_runner import Performance, is_simple
from .step_scope import StepScope

if TYPE_CHECKING:
    from ..engine.run_context import RunContext


def go_straight(
    run: RunContext, step: Step[..., Any], identity: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Intent, effect, outcome."""
    run.write_now(jot("step.started", {"step": identity}))
    scope = StepScope(run, step, identity)
    if run.gated():
        drive(Performance(scope, args, kwargs, keyed=False).intended())
    reach("step.intended")
    token = STEP.set(scope)
    try:
        value = step.function(*args, **kwargs)
        reach("step.acted")
    except Exception as error:  # noqa: BLE001 - looked at where all failures are
        failure: Exception | None = error
    except BaseException:
        scope.end()
        raise
    else:
        failure = None
    finally:
        STEP.reset(token)
    if failure is not None:
        return drive(Performance(scope, args, kwargs, keyed=False).after_straight(failure))
    if not is_simple(value) or step.elaborate or scope.attached or scope.transaction is not None:
        return drive(Performance(scope, args, kwargs, keyed=False).ended(value))
    run.add(jot("step.done", {"step": identity} if value is None else {"step": identity, "value": value}))
    reach("step.recorded")
    return value
