"""Resolves a step in doubt: by its check, by its `in_doubt` declaration, or by a person."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ...crash_points import reach
from ...errors import InvalidInput, message_of
from ..waits.current_run import STEP
from .definitions import CannotTell, Happened, Step
from .error_data import refuse_bool
from .step_scope import StepScope

if TYPE_CHECKING:
    from .step_runner import StepRunner

_CHECKS = 3
"""How often a failing check is called before a person is asked."""


async def settle_doubt(runner: StepRunner, why: str, failure: Callable[[str, str, str], Exception]) -> Happened | None:
    """Find out whether a step happened. Returns None if the step may be run.

    `failure` makes the error for a step with `in_doubt="fail"`, from the run, the step and the reason.
    """
    check = runner.step.check
    if check is None:
        await _settle_by_declaration(runner, why, failure)
        return None
    answer = await _ask_check(runner, check)
    if isinstance(answer, CannotTell):
        await _record_verdict(runner, "check", "cannot tell", why=answer.reason)
        await park(runner, answer.reason)
    if answer is None:
        await _record_verdict(runner, "check", "did not happen")
        return None
    value = answer.value if isinstance(answer, Happened) else answer
    reach("step.settled")
    found = (await _record_verdict(runner, "check", "happened", value=value)).get("value")
    runner.record_done(found)
    return Happened(found)


async def park(runner: StepRunner, why: str) -> NoReturn:
    """Suspend the run until a person decides whether the step happened."""
    while True:  # a verdict can only arrive while the run is not executed
        await runner.run.wait_for(None, f"step {runner.identity} is in doubt: {why}", external=True)


async def _settle_by_declaration(runner: StepRunner, why: str, failure: Callable[[str, str, str], Exception]) -> None:
    if runner.step.in_doubt == "rerun":
        await _record_verdict(runner, "declaration", "rerun")
    elif runner.step.in_doubt == "ask":
        await _record_verdict(runner, "declaration", "cannot tell")
        await park(runner, why)
    else:
        error = failure(runner.run.row.run, runner.identity, why)
        await runner.record_failure(error)
        raise error


async def _record_verdict(runner: StepRunner, by: str, verdict: str, **details: Any) -> Any:
    data = {"step": runner.identity, "by": by, "verdict": verdict, **details}
    return await runner.run.record("step.settled", data, synced=runner.step.costly)


async def _ask_check(runner: StepRunner, check: Callable[..., Any]) -> Any:
    """Call the check and return its answer. A check that keeps failing counts as `CannotTell`."""
    run, step = runner.run, runner.step
    function = check.function if isinstance(check, Step) else check
    takes_key = "key" in inspect.signature(function).parameters
    kwargs = dict(runner.kwargs)
    key = kwargs.pop("key", None) if step.takes_key else None
    if takes_key:
        kwargs["key"] = key or run.key_of(runner.identity)
    token = STEP.set(StepScope(run, step, runner.identity))
    try:
        for attempt in range(1, _CHECKS + 1):
            try:
                answer = function(*runner.args, **kwargs)
                answer = await answer if inspect.isawaitable(answer) else answer
                refuse_bool(answer, step.name)
            except InvalidInput as error:
                run.journal.break_off(error)  # the check must be corrected; the step stays in doubt
                raise
            except Exception as error:  # noqa: BLE001 - any error leaves the step in doubt
                if attempt == _CHECKS:
                    return CannotTell(f"its check failed with {type(error).__name__}: {message_of(error)}")
                await run.pause_until(run.now() + attempt * 200_000, "its check")
            else:
                return answer
    finally:
        STEP.reset(token)
