"""One step: settle doubt, write the intent, act, record what came of it, try again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...crash_points import reach
from ...errors import DuramenError, InvalidInput, StepInDoubt, StepsChanged, StepTimeout, StoreError, StoreUnavailable
from ...journal.encoder import Prepared
from ...journal.events import Draft
from ...journal.lanes import Plain, jot
from ...ports import Transaction
from ...runtime import is_driven
from ..engine.control_flow import Stop
from ..engine.history import State, StepRecord
from ..waits.current_run import STEP
from .definitions import Happened, Kind, Step
from .faults import retry_after
from .settle import Settling
from .step_scope import StepScope, within

if TYPE_CHECKING:
    from ..engine.run_context import RunContext


_SIMPLE = (int, float, bool)
_LARGE = 2**53
"""Numbers up to here need no second look before they are stored."""


def is_simple(value: Any) -> bool:
    """Whether a value is what reading will give back of it, and holds no credential."""
    return value is None or (type(value) in _SIMPLE and -_LARGE < value < _LARGE)


async def perform(
    run: RunContext, step: Step[..., Any], identity: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """The outcome of a step: from the journal, or by doing it."""
    waiting = run.under_way.get(identity)
    if waiting is not None:  # under a key of the caller's, on another branch
        await waiting
    record, stopped = run.look(identity)
    if stopped:
        await run.stop(working=False)
    if record is not None and record.finished:
        if record.state is State.DONE and waiting is None:
            run.finished(step, identity, record.value, record.finished_at)
        return run.replayed(record)
    keyed = "#" not in identity.removeprefix(step.name)[:1]
    done = asyncio.get_running_loop().create_future() if keyed and not run.plain and not is_driven() else None
    if done is not None:
        run.under_way[identity] = done
    try:
        with run.working():
            if run.work is not None:
                await run.work.before(run, step, identity)
            return await Performance(StepScope(run, step, identity), args, kwargs, keyed).go(record)
    except asyncio.CancelledError:
        if not run.unwinding:
            run.broken = run.broken or InvalidInput(
                f"step {identity!r} was cancelled by the code around it, so whether it happened is open",
                hint="declare timeout= on the step instead of cancelling it from outside",
            )
        raise
    finally:
        if done is not None:
            del run.under_way[identity]
            done.set_result(None)


class Performance(Settling):
    """A step on its way from intent to outcome."""

    async def go(self, record: StepRecord | None) -> Any:
        """Do what is left to do."""
        run, scope, attempt = self._run, self._scope, 1
        if run.readonly:
            raise StepsChanged(run.row.run, self._identity, ["its end"])
        if record is not None:
            attempt, scope.outputs, scope.progress = record.attempt, record.outputs, record.progress
            if run.history.aborted == self._identity:
                aborted = StepInDoubt(run.row.run, self._identity, "a person aborted it")
                self._note_failure(aborted, 1, None)
                raise aborted
            if record.state is State.PARKED:
                await self._park("nothing can tell whether it happened")
            if record.state is State.STARTED:
                found = await self._settle("the process ended inside it", StepInDoubt)
                if found is not None:
                    return found.value
            elif record.state is State.RETRYING:
                await run.pause_until(record.due or 0, f"{self._identity} to be tried again")
        await self._intend(attempt)
        return await self._go_on(attempt)

    async def _go_on(self, attempt: int) -> Any:
        """Act, now that the intent is written, as often as it takes."""
        while True:
            scope = self._scope
            try:
                value = await self._act()
                reach("step.acted")
                return await self._done(value)
            except Exception as error:  # noqa: BLE001 - raised again unless it is retried
                scope.end()
                outcome = await self._after(error, attempt)
            finally:
                scope.end()
            if isinstance(outcome, Happened):
                return outcome.value
            attempt = outcome
            await self._intend(attempt)

    async def _after(self, error: Exception, attempt: int) -> Happened | int:
        if self._recorded:
            raise error
        if self._scope.lost:
            self._run.broken = self._run.broken or _store_trouble(error)
            raise self._run.broken from error
        outcome = await self._failed(error, attempt)
        self._scope = self._scope.again()
        return outcome

    async def after_straight(self, error: Exception) -> Any:
        """What comes of a first attempt that failed."""
        self._scope.end()
        outcome = await self._after(error, 1)
        if isinstance(outcome, Happened):
            return outcome.value
        await self._intend(outcome)
        return await self._go_on(outcome)

    async def ended(self, value: Any) -> Any:
        """Record what the step gave."""
        try:
            return await self._done(value)
        finally:
            self._scope.end()

    async def _intend(self, attempt: int) -> None:
        run = self._run
        if run.gated():
            await run.gate()
        data: dict[str, Any] = {"step": self._identity}
        if attempt > 1:
            data["attempt"] = attempt
        run.add(jot("step.started", data))
        await run.flush()
        reach("step.intended")
        await self.intended()

    async def intended(self) -> None:
        """The intent is written: go on, or say that the step was not begun after all."""
        run = self._run
        if run.gated():
            try:
                await run.gate()  # what came in while the intent was written counts too
            except BaseException:
                run.note("step.skipped", {"step": self._identity})
                raise

    async def _act(self) -> Any:
        step = self._step
        token = STEP.set(self._scope)
        try:
            if step.kind is Kind.ASYNC:
                return await self._act_async()
            if step.timeout is not None:
                return within(step.timeout, step.name, lambda: step.function(*self._args, **self._kwargs))
            return step.function(*self._args, **self._kwargs)
        finally:
            STEP.reset(token)

    async def _act_async(self) -> Any:
        step = self._step
        work: Any = step.function(*self._args, **self._kwargs)
        if step.timeout is None:
            return await work
        bounded = asyncio.timeout(step.timeout)
        try:
            async with bounded:
                return await work
        except TimeoutError as error:
            if bounded.expired():
                raise StepTimeout(step.name, step.timeout) from error
            raise

    # -- outcomes

    async def _done(self, value: Any) -> Any:
        scope = self._scope
        result = self._record(value)
        if scope.transaction is not None:
            await self._commit(scope.transaction)
        elif self._step.costly:
            await self._run.flush()  # doubt about this one would cost a person's time
        reach("step.recorded")
        return result

    def _record(self, value: Any) -> Any:
        """Note the outcome; what reading will give back of it is the step's result."""
        run, scope = self._run, self._scope
        self._recorded = True
        data = {"step": self._identity, "value": value} if value is not None else {"step": self._identity}
        outcome: Prepared | Plain
        try:
            if is_simple(value):
                outcome, result = jot("step.done", data), value
            else:
                outcome = run.prepare(Draft("step.done", data))
                result = outcome.data["value"]
            attached = [run.prepare(draft) for draft in scope.attached]
        except DuramenError as error:  # the result cannot be stored: the step happened, but nobody can use it
            self._note_failure(error, 1, None)
            raise
        run.add(*attached, outcome)
        self._remember(State.DONE, result)
        run.finished(self._step, self._identity, result, None)
        return result

    async def _commit(self, transaction: Transaction) -> None:
        """The user's rows and the outcome, together or not at all."""
        try:
            await self._run.flush(within=transaction)
            reach("step.transacted")
            transaction.commit()
        except BaseException as error:
            transaction.roll_back()
            self._run.broken = self._run.broken or error
            raise

    async def _failed(self, error: Exception, attempt: int) -> Happened | int:
        """What comes after a failed attempt: the number of the next one, once it is time; or that it happened after
        all. Raises the error if it is final."""
        run, step = self._run, self._step
        if run.broken is not None:
            raise run.broken
        due, following = self._next_attempt(error, attempt)
        timed_out = isinstance(error, StepTimeout)
        if timed_out or (step.check is not None and due is not None):
            found = await self._settle(f"it ended with {type(error).__name__}", lambda *_: error)
            if found is not None:
                return found
        self._note_failure(error, attempt, due, limited=due is not None and following == attempt)
        if due is None:
            if step.costly:
                await run.flush()
            raise error
        await run.flush()
        await run.pause_until(due, f"{self._identity} to be tried again")
        return following

    def _next_attempt(self, error: Exception, attempt: int) -> tuple[int | None, int]:
        run, retry = self._run, self._step.retry
        asked = retry_after(error, run.now())
        if asked is not None:
            return run.now() + int(asked * 1e6), attempt  # being told to wait is not a failure
        if retry is None or attempt >= retry.attempts or not isinstance(error, retry.on):
            return None, attempt
        chance = int.from_bytes(run.journal.ids.random(4), "big") / 2**32
        return run.now() + int(retry.pause(attempt, chance) * 1e6), attempt + 1


def _store_trouble(error: Exception) -> StoreError:
    """What took the step's transaction away. The run goes on with this step once the store is back."""
    if isinstance(error, StoreError):
        return error
    return StoreUnavailable(f"the connection was lost inside a step: {error}", hint="resume the run")


async def compensate(run: RunContext) -> list[str]:
    """Undo the steps that are done, the last one first, each once. Returns those whose undoing failed."""
    run.undoing = True
    failed = []
    for _, step, identity, value in sorted(run.undoable, key=lambda one: -one[0]):
        assert step.undo is not None
        undo = step.undo
        which = f"@undo {identity}"
        kwargs = {"key": run.key_of(which)} if undo.takes_key else {}
        try:
            await perform(run, undo, which, (value,), kwargs)
        except Stop:
            raise
        except Exception as error:  # the others must be undone all the same
            if run.broken is not None:
                raise run.broken from error
            failed.append(identity)
    return failed
