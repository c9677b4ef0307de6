"""One step: settle doubt, write the intent, act, record what came of it, try again."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, NoReturn

from ..crashpoints import reach
from ..errors import HoldfastError, InvalidInput, StepInDoubt, StepsChanged, StepTimeout
from ..journal.events import Draft
from ..ports import Transaction
from ..runtime import drive, is_driven
from .ambient import STEP
from .context import RunContext, Stop
from .definitions import CannotTell, Happened, Kind, Step
from .faults import refuse_bool, retry_after, to_data
from .history import State, StepRecord

_CHECKS = 3
_SIMPLE = (int, float, bool)
_LARGE = 2**53
"""Numbers up to here need no second look before they are stored."""


class StepScope:
    """A step while it acts: what the functions that can be called inside it need."""

    def __init__(self, run: RunContext, step: Step[..., Any], identity: str) -> None:
        self.run = run
        self.step = step
        self.identity = identity
        self.attached: list[Draft] = []
        self.emitted = 0
        self.outputs = 0
        self.progress: Any = None
        self.transaction: Transaction | None = None
        self.over = False

    def again(self) -> StepScope:
        """The scope of a new attempt: it streams from the beginning, and what was streamed before is not repeated."""
        following = StepScope(self.run, self.step, self.identity)
        following.outputs, following.progress = max(self.outputs, self.emitted), self.progress
        return following

    def expect_open(self) -> None:
        """An attempt that ran out of time may still act; what it says no longer counts."""
        if self.over:
            raise StepTimeout(self.step.name, self.step.timeout or 0)

    def begin(self) -> Any:
        """The store's connection, in a transaction that ends with the step."""
        if self.step.kind is Kind.ASYNC or self.step.timeout is not None:
            raise InvalidInput(
                f"the step {self.step.name!r} cannot have a transaction",
                hint="only a plain step without timeout can: the store waits for it",
            )
        if self.transaction is None:
            self.run.keep_quiet(True)
            self.transaction = self.run.journal.store.begin()
        return self.transaction.connection

    def end(self) -> None:
        """The end of the transaction, if there is one still: nothing of it happened."""
        if self.transaction is not None:
            self.transaction.roll_back()
        self.over = True
        self.run.keep_quiet(False)


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
            return await Performance(run, step, identity, args, kwargs, keyed).go(record)
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


class Performance:
    """A step on its way from intent to outcome."""

    def __init__(
        self,
        run: RunContext,
        step: Step[..., Any],
        identity: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        keyed: bool,
    ) -> None:
        self._run = run
        self._keyed = keyed
        self._step = step
        self._identity = identity
        self._args = args
        self._kwargs = kwargs
        self._scope = StepScope(run, step, identity)
        self._recorded = False

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
        outcome = await self._failed(error, attempt)
        self._scope = self._scope.again()
        return outcome

    def go_quickly(self) -> Any:
        """`go` for a plain step that the journal does not know, in a plain task where nothing stands in the way: the
        same in fewer calls. Most steps are like this, and after a sync every call is a cold one."""
        run, step, scope = self._run, self._step, self._scope
        run.add([run.journal.note("step.started", {"step": self._identity})])
        drive(run.flush())
        if run.gated:
            drive(self._intended())
        reach("step.intended")
        token = STEP.set(scope)
        try:
            value = step.function(*self._args, **self._kwargs)
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
            return drive(self._after_quickly(failure))
        if step.costly or scope.transaction is not None:
            return drive(self._ended_quickly(value))
        result = self._record(value)
        reach("step.recorded")
        return result

    async def _after_quickly(self, error: Exception) -> Any:
        self._scope.end()
        outcome = await self._after(error, 1)
        if isinstance(outcome, Happened):
            return outcome.value
        await self._intend(outcome)
        return await self._go_on(outcome)

    async def _ended_quickly(self, value: Any) -> Any:
        try:
            return await self._done(value)
        finally:
            self._scope.end()

    async def _intend(self, attempt: int) -> None:
        run = self._run
        if run.gated:
            await run.gate()
        data: dict[str, Any] = {"step": self._identity}
        if attempt > 1:
            data["attempt"] = attempt
        run.add([run.journal.note("step.started", data)])
        await run.flush()
        await self._intended()

    async def _intended(self) -> None:
        run = self._run
        reach("step.intended")
        if run.gated:
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
                return _within(step.timeout, step.name, lambda: step.function(*self._args, **self._kwargs))
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
        try:
            simple = value is None or (type(value) in _SIMPLE and -_LARGE < value < _LARGE)
            prepared = run.journal.note("step.done", data) if simple else run.prepare(Draft("step.done", data))
            attached = [run.prepare(draft) for draft in scope.attached]
        except HoldfastError as error:  # the result cannot be stored: the step happened, but nobody can use it
            self._note_failure(error, 1, None)
            raise
        run.add([*attached, prepared])
        result = prepared.data.get("value")
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

    def _remember(self, state: State, value: Any = None, error: dict[str, Any] | None = None) -> None:
        """Let a second call under the same key of the caller's find the outcome."""
        if self._keyed:
            record = StepRecord(self._identity, state, self._run.position, 0, value=value, error=error)
            self._run.history.steps[self._identity] = record

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

    # -- doubt

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
                except InvalidInput:
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


def _within(seconds: float, name: str, work: Callable[[], Any]) -> Any:
    """Run plain work on a thread of its own for so long. It cannot be stopped: what it does later is lost."""
    outcome: list[tuple[bool, Any]] = []
    context = copy_context()

    def body() -> None:
        try:
            outcome.append((True, context.run(work)))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            outcome.append((False, error))

    thread = threading.Thread(target=body, name=f"holdfast-step-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise StepTimeout(name, seconds)
    worked, value = outcome[0]
    if worked:
        return value
    raise value


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
