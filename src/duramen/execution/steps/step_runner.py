"""Executes one step call: resolve doubt, write the intent, call the function, record the outcome, retry."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...crash_points import reach
from ...errors import (
    DuramenError,
    InvalidInput,
    StepInDoubt,
    StepsChanged,
    StepTimeout,
    StoreError,
    StoreUnavailable,
    shown,
)
from ...journal.encoder import Prepared
from ...ports import Transaction
from ...runtime import is_driven
from ..engine.control_flow import RunStopped
from ..engine.history import State, StepRecord
from ..waits.current_run import STEP
from .definitions import Happened, Kind, Step
from .error_data import error_to_data, retry_after
from .settle import park, settle_doubt
from .step_scope import StepScope, run_within

if TYPE_CHECKING:
    from ..engine.run_context import RunContext


class StepRunner:
    """One call of a step in a run. The intent is synced before the function is called. The outcome is committed before
    the caller gets it."""

    __slots__ = ("args", "identity", "keyed", "kwargs", "run", "scope", "step")

    def __init__(
        self,
        run: RunContext,
        step: Step[..., Any],
        identity: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        keyed: bool,
    ) -> None:
        self.run = run
        self.step = step
        self.identity = identity
        self.args = args
        self.kwargs = kwargs
        self.keyed = keyed
        """Whether the caller gave the key. Then another call in this execution may mean the same step."""
        self.scope = StepScope(run, step, identity)

    async def execute(self) -> Any:
        """Return the step's result, or raise its error: from the journal, or by calling the function."""
        run, identity = self.run, self.identity
        other = run.under_way.get(identity) if self.keyed else None
        if other is not None:  # another branch executes the same step
            await other
        record, stopped = run.match(identity)
        if stopped:
            await run.stop(working=False)
        if record is not None and record.finished:
            if record.state is State.DONE and other is None:
                run.add_undoable(self.step, identity, record.value, record.finished_at)
            return run.replayed(record)
        if run.readonly:
            raise StepsChanged(run.row.run, identity, ["its end"])
        ended = None
        if self.keyed and not run.plain and not is_driven():
            ended = run.under_way[identity] = asyncio.get_running_loop().create_future()
        run.active += 1
        run.activity += 1
        try:
            if run.state is not None:
                await run.state.before_step(run, self.step, identity)
            return await self._perform(record)
        except asyncio.CancelledError:
            if not run.unwinding:
                run.journal.break_off(
                    InvalidInput(
                        f"the task's code cancelled step {shown(identity)} while it ran, so the step is in doubt",
                        hint="declare timeout= on the step instead of cancelling it",
                    )
                )
            raise
        finally:
            run.active -= 1
            run.activity += 1
            if ended is not None:
                del run.under_way[identity]
                ended.set_result(None)

    async def _perform(self, record: StepRecord | None) -> Any:
        """Resolve the state that an earlier execution left, then call the function until it succeeds or fails
        finally."""
        attempt = 1
        if record is not None:
            attempt = record.attempt
            happened = await self._continue(record)
            if happened is not None:
                return happened.value
        while True:
            await self._write_intent(attempt)
            try:
                value = await self._act()
                reach("step.acted")
            except Exception as error:  # noqa: BLE001 - raised again unless it is retried
                self.scope.end()
                after = await self._after_failure(error, attempt)
                if isinstance(after, Happened):
                    return after.value
                attempt, self.scope = after, self.scope.next_attempt()
            except BaseException:
                self.scope.end()
                raise
            else:
                try:
                    return await self._record_outcome(value)
                finally:
                    self.scope.end()

    async def _continue(self, record: StepRecord) -> Happened | None:
        """Continue a step that an earlier execution began. Returns None if the step may be run."""
        run, self.scope.outputs, self.scope.progress = self.run, record.outputs, record.progress
        if run.history.aborted == self.identity:
            aborted = StepInDoubt(run.row.run, self.identity, "a person aborted it")
            await self.record_failure(aborted)
            raise aborted
        if record.state is State.PARKED:
            await park(self, "a person has to decide whether it happened")
        if record.state is State.STARTED:
            return await settle_doubt(self, "the process ended inside it", StepInDoubt)
        if record.state is State.RETRYING:
            await run.pause_until(record.due or 0, f"the next attempt of {self.identity}")
        return None

    async def _write_intent(self, attempt: int) -> None:
        run = self.run
        if run.has_interrupts():
            await run.check_interrupts()
        data: dict[str, Any] = {"step": self.identity}
        if attempt > 1:
            data["attempt"] = attempt
        await run.journal.write([run.journal.encode("step.started", data)], synced=True)
        reach("step.intended")
        if run.has_interrupts():
            try:
                await run.check_interrupts()  # an event may have arrived while the intent was written
            except BaseException:
                await run.record("step.skipped", {"step": self.identity})
                raise

    async def _act(self) -> Any:
        step = self.step
        token = STEP.set(self.scope)
        try:
            if step.kind is Kind.ASYNC:
                return await self._act_async()
            if step.timeout is not None:
                return run_within(step.timeout, step.name, lambda: step.function(*self.args, **self.kwargs))
            return step.function(*self.args, **self.kwargs)
        finally:
            STEP.reset(token)

    async def _act_async(self) -> Any:
        step = self.step
        work: Any = step.function(*self.args, **self.kwargs)
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

    async def _record_outcome(self, value: Any) -> Any:
        """Commit the outcome and the events attached to it. Returns the step's result as a later read returns it."""
        run, scope = self.run, self.scope
        data = {"step": self.identity} if value is None else {"step": self.identity, "value": value}
        try:
            outcome = run.journal.encode("step.done", data)
            events = [*(run.journal.encode(*attached) for attached in scope.attached), outcome]
        except DuramenError as error:  # the step happened, but its result cannot be stored
            await self.record_failure(error)
            raise
        if scope.transaction is None:
            await run.commit(events, synced=self.step.costly)
        else:
            await self._commit_transaction(scope.transaction, events)
        result = outcome.data.get("value")
        self.record_done(result)
        reach("step.recorded")
        return result

    async def _commit_transaction(self, transaction: Transaction, events: Sequence[Prepared]) -> None:
        """Commit the user's rows and the outcome together."""
        try:
            await self.run.journal.write(events, synced=True, within=transaction)
            reach("step.transacted")
            transaction.commit()
        except BaseException as error:
            transaction.roll_back()
            self.run.journal.break_off(error)
            raise

    def record_done(self, value: Any) -> None:
        """Update the history after the outcome was committed, and note how to undo the step."""
        self._update_history(State.DONE, value)
        self.run.add_undoable(self.step, self.identity, value, None)

    async def record_failure(
        self, error: Exception, attempt: int = 1, due: int | None = None, *, limited: bool = False
    ) -> None:
        """Commit that an attempt failed. The failure is final unless `due` says when to retry. `limited`: the remote
        service asked to wait, which does not count as an attempt."""
        data: dict[str, Any] = {"step": self.identity, "error": error_to_data(error)}
        if attempt > 1:
            data["attempt"] = attempt
        if due is not None:
            data["due"] = due
        if limited:
            data["limited"] = True
        await self.run.record("step.failed", data, synced=self.step.costly)
        if due is None:
            self._update_history(State.FAILED, error=data["error"])

    def _update_history(self, state: State, value: Any = None, error: dict[str, Any] | None = None) -> None:
        """Update the step's record, so that another call with the same key finds the outcome and the step is no
        longer in doubt."""
        steps = self.run.history.steps
        if self.keyed or self.identity in steps:
            position = self.run.journal.position
            steps[self.identity] = StepRecord(self.identity, state, position, 0, value=value, error=error)

    async def _after_failure(self, error: Exception, attempt: int) -> Happened | int:
        """Handle a failed attempt. Waits and returns the number of the next attempt, or returns `Happened` if the
        check finds that the step happened. Raises the error if it is final."""
        run, step = self.run, self.step
        if self.scope.lost:
            run.journal.break_off(_as_store_error(error))
        if run.journal.broken is not None:
            raise run.journal.broken from (None if error is run.journal.broken else error)
        due, following = self._next_attempt(error, attempt)
        if isinstance(error, StepTimeout) or (step.check is not None and due is not None):
            happened = await settle_doubt(self, f"it ended with {type(error).__name__}", lambda *_: error)
            if happened is not None:
                return happened
        await self.record_failure(error, attempt, due, limited=due is not None and following == attempt)
        if due is None:
            raise error
        await run.pause_until(due, f"the next attempt of {self.identity}")
        return following

    def _next_attempt(self, error: Exception, attempt: int) -> tuple[int | None, int]:
        """When to retry, or None if the error is final; and the number of that attempt."""
        run, retry = self.run, self.step.retry
        asked = retry_after(error, run.now())
        if asked is not None:
            return run.now() + int(asked * 1e6), attempt  # a request to wait does not count as an attempt
        if retry is None or attempt >= retry.attempts or not isinstance(error, retry.on):
            return None, attempt
        chance = int.from_bytes(run.engine.journal.ids.random(4), "big") / 2**32
        return run.now() + int(retry.pause(attempt, chance) * 1e6), attempt + 1


def _as_store_error(error: Exception) -> StoreError:
    """The store error that ended the step's transaction. The run can continue with this step later."""
    if isinstance(error, StoreError):
        return error
    return StoreUnavailable(
        f"the connection to the store was lost inside a step: {error}",
        hint="resume the run once the store is available",
    )


async def compensate(run: RunContext) -> list[str]:
    """Undo the finished steps, the last one first, each once. Returns the steps whose undo function failed."""
    run.undoing = True
    failed = []
    for _, step, identity, value in sorted(run.undoable, key=lambda one: -one[0]):
        assert step.undo is not None
        which = f"@undo {identity}"
        kwargs = {"key": run.key_of(which)} if step.undo.takes_key else {}
        try:
            await StepRunner(run, step.undo, which, (value,), kwargs, keyed=False).execute()
        except RunStopped:
            raise
        except Exception as error:  # continue with the other steps
            if run.journal.broken is not None:
                raise run.journal.broken from error
            failed.append(identity)
    return failed
