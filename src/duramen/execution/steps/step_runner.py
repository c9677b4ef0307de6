"""One call of a step: settle doubt, write the intent, act, record what came of it, try again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...crash_points import reach
from ...errors import DuramenError, InvalidInput, StepInDoubt, StepsChanged, StepTimeout, StoreError, StoreUnavailable
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
    """A call of a step in a run. The intent is synced before the function is called; the outcome is committed before
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
        """Known by a key of the caller's, so that another call of this execution can mean the same step."""
        self.scope = StepScope(run, step, identity)

    async def execute(self) -> Any:
        """The outcome of the step: from the journal, or by doing it."""
        run, identity = self.run, self.identity
        other = run.under_way.get(identity) if self.keyed else None
        if other is not None:  # another branch is inside the same step
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
                        f"step {identity!r} was cancelled by the code around it, so whether it happened is open",
                        hint="declare timeout= on the step instead of cancelling it from outside",
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
        """Settle what an earlier execution left; then try, as often as it takes."""
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
        """Continue a step of an earlier execution. None: it may be run."""
        run, self.scope.outputs, self.scope.progress = self.run, record.outputs, record.progress
        if run.history.aborted == self.identity:
            aborted = StepInDoubt(run.row.run, self.identity, "a person aborted it")
            await self.record_failure(aborted)
            raise aborted
        if record.state is State.PARKED:
            await park(self, "nothing can tell whether it happened")
        if record.state is State.STARTED:
            return await settle_doubt(self, "the process ended inside it", StepInDoubt)
        if record.state is State.RETRYING:
            await run.pause_until(record.due or 0, f"{self.identity} to be tried again")
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
                await run.check_interrupts()  # what came in while the intent was written counts too
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
        """Commit the outcome with what the step attached to it. The step's result is what reading will give back."""
        run, scope = self.run, self.scope
        data = {"step": self.identity} if value is None else {"step": self.identity, "value": value}
        try:
            outcome = run.journal.encode("step.done", data)
            events = [*(run.journal.encode(*attached) for attached in scope.attached), outcome]
        except DuramenError as error:  # the result cannot be stored: the step happened, but its result is of no use
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
        """The user's rows and the outcome, together or not at all."""
        try:
            await self.run.journal.write(events, synced=True, within=transaction)
            reach("step.transacted")
            transaction.commit()
        except BaseException as error:
            transaction.roll_back()
            self.run.journal.break_off(error)
            raise

    def record_done(self, value: Any) -> None:
        """The outcome is committed: remember how to undo it."""
        self._update_history(State.DONE, value)
        self.run.add_undoable(self.step, self.identity, value, None)

    async def record_failure(
        self, error: Exception, attempt: int = 1, due: int | None = None, *, limited: bool = False
    ) -> None:
        """Commit that an attempt failed; for good, unless it is `due` to be tried again. `limited`: the far side asked
        to wait, which does not count as an attempt."""
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
        """Let a second call under the same key find the outcome, and doubt that was settled be doubt no longer."""
        steps = self.run.history.steps
        if self.keyed or self.identity in steps:
            position = self.run.journal.position
            steps[self.identity] = StepRecord(self.identity, state, position, 0, value=value, error=error)

    async def _after_failure(self, error: Exception, attempt: int) -> Happened | int:
        """What comes after a failed attempt: the number of the next one, once it is time; or that it happened after
        all. Raises the error if it is final."""
        run, step = self.run, self.step
        if self.scope.lost:
            run.journal.break_off(_store_trouble(error))
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
        await run.pause_until(due, f"{self.identity} to be tried again")
        return following

    def _next_attempt(self, error: Exception, attempt: int) -> tuple[int | None, int]:
        """When to try again (None: never), and the number of that attempt."""
        run, retry = self.run, self.step.retry
        asked = retry_after(error, run.now())
        if asked is not None:
            return run.now() + int(asked * 1e6), attempt  # being asked to wait is not a failure
        if retry is None or attempt >= retry.attempts or not isinstance(error, retry.on):
            return None, attempt
        chance = int.from_bytes(run.engine.journal.ids.random(4), "big") / 2**32
        return run.now() + int(retry.pause(attempt, chance) * 1e6), attempt + 1


def _store_trouble(error: Exception) -> StoreError:
    """What took the step's transaction away. The run continues with this step once the store is back."""
    if isinstance(error, StoreError):
        return error
    return StoreUnavailable(f"the connection was lost inside a step: {error}", hint="resume the run")


async def compensate(run: RunContext) -> list[str]:
    """Undo the steps that are done, the last one first, each once. Returns those whose undoing failed."""
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
        except Exception as error:  # the others must be undone all the same
            if run.journal.broken is not None:
                raise run.journal.broken from error
            failed.append(identity)
    return failed
