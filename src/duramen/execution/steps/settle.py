"""A step that may have happened: ask its check, go by its declaration, or leave it to a person."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ...crash_points import reach
from ...errors import InvalidInput
from ..engine.history import State, StepRecord
from ..waits.current_run import STEP
from .definitions import CannotTell, Happened, Step
from .faults import refuse_bool, to_data
from .step_scope import StepScope

_CHECKS = 3
"""How often a check that fails is asked before a person is."""


class Settling:
    """One step of a run and what became of it."""

    def __init__(self, scope: StepScope, args: Sequence[Any], kwargs: dict[str, Any], keyed: bool) -> None:
        self._run = scope.run
        self._keyed = keyed
        self._step: Step[..., Any] = scope.step
        self._identity = scope.identity
        self._args = args
        self._kwargs = kwargs
        self._scope = scope
        self._recorded = False

    async def _settle(self, why: str, failure: Callable[[str, str, str], Exception]) -> Happened | None:
        """Find out whether the step happened. None: it may be run (again)."""
        run, step = self._run, self._step
        if step.check is None:
            await self._by_declaration(why, failure)
            return None
        answer = await self._ask_check(step.check)
        if isinstance(answer, CannotTell):
            await self._give_up(answer.reason)
        if answer is None:
            run.note("step.settled", {"step": self._identity, "by": "check", "verdict": "did not happen"})
            return None
        value = answer.value if isinstance(answer, Happened) else answer
        data = {"step": self._identity, "by": "check", "verdict": "happened", "value": value}
        found = run.note("step.settled", data).data.get("value")
        reach("step.settled")
        self._remember(State.DONE, found)
        run.finished(step, self._identity, found, None)
        return Happened(found)

    async def _by_declaration(self, why: str, failure: Callable[[str, str, str], Exception]) -> None:
        run, step = self._run, self._step
        if step.in_doubt == "rerun":
            run.note("step.settled", {"step": self._identity, "by": "declaration", "verdict": "rerun"})
        elif step.in_doubt == "ask":
            run.note("step.settled", {"step": self._identity, "by": "declaration", "verdict": "cannot tell"})
            await self._park(why)
        else:
            error = failure(run.row.run, self._identity, why)
            self._note_failure(error, 1, None)
            raise error

    async def _ask_check(self, check: Callable[..., Any]) -> Any:
        """The check's answer. One that fails is asked again a few times; then a person has to find out."""
        function = check.function if isinstance(check, Step) else check
        takes_key = "key" in inspect.signature(function).parameters
        kwargs = dict(self._kwargs)
        key = kwargs.pop("key", None) if self._step.takes_key else None
        if takes_key:
            kwargs["key"] = key or self._run.key_of(self._identity)
        token = STEP.set(StepScope(self._run, self._step, self._identity))
        try:
            for attempt in range(1, _CHECKS + 1):
                try:
                    answer = function(*self._args, **kwargs)
                    answer = await answer if inspect.isawaitable(answer) else answer
                    refuse_bool(answer, self._step.name)
                except InvalidInput as error:
                    self._run.broken = self._run.broken or error  # the check is to be mended; the doubt stays
                    raise
                except Exception as error:  # noqa: BLE001 - whatever it is, it leaves the doubt open
                    if attempt == _CHECKS:
                        return CannotTell(f"its check failed with {type(error).__name__}: {error}")
                    await self._run.pause_until(self._run.now() + attempt * 200_000, "its check")
                else:
                    return answer
        finally:
            STEP.reset(token)

    async def _give_up(self, why: str) -> NoReturn:
        self._run.note("step.settled", {"step": self._identity, "by": "check", "verdict": "cannot tell", "why": why})
        await self._park(why)

    async def _park(self, why: str) -> NoReturn:
        while True:  # a person's word comes when nobody executes the run
            await self._run.wait_for(None, f"step {self._identity} is in doubt: {why}", outside=True)

    # -- what is noted

    def _note_failure(self, error: Exception, attempt: int, due: int | None, limited: bool = False) -> None:
        data: dict[str, Any] = {"step": self._identity, "error": to_data(error)}
        if attempt > 1:
            data["attempt"] = attempt
        if due is not None:
            data["due"] = due
        else:
            self._remember(State.FAILED, error=data["error"])
        if limited:
            data["limited"] = True
        self._run.note("step.failed", data)

    def _remember(self, state: State, value: Any = None, error: dict[str, Any] | None = None) -> None:
        """Let a second call under the same key of the caller's find the outcome."""
        if self._keyed:
            record = StepRecord(self._identity, state, self._run.position, 0, value=value, error=error)
            self._run.history.steps[self._identity] = record
