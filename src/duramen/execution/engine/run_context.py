"""The state of a run during an execution: the next step, its waits, the steps to undo."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...errors import DeadlineExceeded, InvalidInput, StepsChanged, shown
from ...journal.encoder import Prepared
from ...journal.owners import Owner
from ...ports import RunRow
from ...runtime import drive, is_driven
from ..steps.branches import Branch, branch_of, count_branches
from ..steps.definitions import Kind, Step, Task
from ..steps.error_data import error_from_data
from ..steps.step_runner import StepRunner
from ..waits.current_run import BRANCH
from .control_flow import RunInterrupted, RunStopped, RunSuspended
from .history import History, State, StepRecord
from .run_journal import RunJournal, resolve

if TYPE_CHECKING:
    from ..waits.task_state import TaskState
    from .engine import Engine


class RunContext:
    """The run that a task's code belongs to. Without a fence the run can only be replayed."""

    def __init__(
        self, engine: Engine, row: RunRow, history: History, task: Task[Any, Any], fence: int | None, owner: Owner
    ) -> None:
        self.engine = engine
        self.journal = RunJournal(engine.journal, row, history, fence, owner)
        self.now = engine.journal.clock.now
        """The time, in microseconds."""
        self.row = row
        self.history = history
        self.task = task
        self.plain = task.kind is Kind.PLAIN
        """Whether the task is a plain function."""
        self.readonly = fence is None
        self.deadline: int | None = history.input.get("deadline")
        self.suspensions: list[RunSuspended] = []
        self.undoing = False
        self.undoable: list[tuple[int, Step[..., Any], str, Any]] = []
        self.trunk = Branch()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.branches: WeakKeyDictionary[asyncio.Task[Any], Branch] = WeakKeyDictionary()
        self.state_changed: asyncio.Future[None] | None = None
        """Resolved when a branch begins to wait. The supervisor of the branches waits for it."""
        self.suspended_in_plain_step = False
        self.unwinding = False
        self.unwound = False
        """The supervisor ended the branches because all of them wait, and not because the task ended."""
        self.stopping = False
        self.held = 0
        """Number of branches that wait to be cancelled."""
        self.active = 0
        """Number of steps in progress."""
        self.activity = 0
        """Incremented whenever a step begins or ends."""
        self.under_way: dict[str, asyncio.Future[None]] = {}
        """Keyed steps in progress. Other branches that call the same step wait for the future."""
        self.children: list[str] = []
        self.state: TaskState | None = None
        self._thread = 0
        self._undoable_count = 0
        self._unmatched: dict[str | None, dict[str, None]] = {}
        for name in history.steps:
            if not name.startswith("@patch"):
                self._unmatched.setdefault(branch_of(name), {})[name] = None

    def enter(self) -> None:
        """Note that the task begins on this thread; for an async task, on this event loop."""
        self._thread = get_ident()
        if not self.plain:
            self.loop = asyncio.get_running_loop()
            self.journal.use_loop(self.loop)
            count_branches(self.loop)

    def deliver(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine and return its result in a plain task; return it to be awaited in an async task."""
        return drive(work) if self.plain else work

    # -- recording

    async def record(self, kind: str, data: dict[str, Any], *, synced: bool = False) -> Any:
        """Commit an outcome. Returns its data as a later read will return it."""
        event = self.journal.encode(kind, data)
        await self.commit([event], synced=synced)
        return event.data

    async def commit(self, events: Sequence[Prepared], *, synced: bool) -> None:
        """Commit events that end with an outcome.

        A cancellation that arrives during the write is dropped: the task's code gets the recorded outcome, as it would
        after a restart. While the run is being unwound, the cancellation is raised.
        """
        try:
            await self.journal.write(events, synced=synced)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.unwinding or self.journal.broken is not None or task is None:
                raise
            task.uncancel()

    # -- matching steps with the journal

    def identify(self, name: str, key: str | None = None) -> str:
        """The identity of this call: its name and its number on the branch, or its name and the caller's key.

        Raises `InvalidInput` on a thread other than the task's own.
        """
        if get_ident() != self._thread:
            raise InvalidInput(
                f"a step of run {shown(self.row.run)} was called from another thread",
                hint="call steps from the task's own thread; in an async task, use asyncio.gather",
            )
        if key is not None:
            return self.journal.stored_name(f"{name}:{key}")
        return f"{self.journal.stored_name(name)}#{self.branch.number(name)}"

    @property
    def branch(self) -> Branch:
        """The branch that the calling code belongs to."""
        if self.plain:
            return self.trunk
        task = asyncio.current_task()
        return (self.branches.get(task) if task is not None else None) or BRANCH.get() or self.trunk

    def key_of(self, identity: str) -> str:
        """The idempotency key of a step: the same in every attempt and process, different in every run and fork."""
        return blake2b(f"{self.history.root}/{identity}".encode(), digest_size=16).hexdigest()

    async def match_or_stop(self, identity: str) -> StepRecord | None:
        """The journaled record of the step, as from `match`. Stops the run if it was cancelled before this step."""
        record, stopped = self.match(identity)
        if stopped:
            await self.stop(working=False)
        return record

    def match(self, identity: str) -> tuple[StepRecord | None, bool]:
        """The journaled record of the step that the code has reached, and whether the run was cancelled before it.
        Raises `StepsChanged` if the journal has another step at this place."""
        if self.journal.broken is not None:
            raise self.journal.broken
        record = self.history.steps.get(identity)
        if record is None and not self._unmatched and self.history.cancelling is None:
            return None, False  # a new step, and all recorded steps were matched
        branch = branch_of(identity)
        left = self._unmatched.get(branch, {})
        ordered = branch is not None and branch not in self.history.overlapped
        expected = next(iter(left), identity) if ordered else identity
        if expected != identity and (record is None or identity in left):
            if expected.startswith("@undo") and not identity.startswith("@undo"):
                return None, True  # the run was cancelled here and partly undone
            changed = StepsChanged(self.row.run, identity, self.unmatched_steps())
            self.journal.break_off(changed)
            raise changed
        left.pop(identity, None)
        if not left:
            self._unmatched.pop(branch, None)
        return record, record is None and self.history.cancelling is not None and not self.undoing

    def unmatched_steps(self) -> list[str]:
        """Journaled steps that the code has not reached, except undo steps."""
        return [name for names in self._unmatched.values() for name in names if not name.startswith("@undo")]

    @property
    def replaying(self) -> bool:
        """Whether the journal holds steps that this branch has not reached yet."""
        return bool(self._unmatched.get(self.branch.path.rstrip("."), {}))

    # -- calling a step

    def call(self, step: Step[..., Any], key: str | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a step. Returns its result, or a coroutine if the step is async."""
        if step.kind is Kind.ASYNC and self.plain:
            raise InvalidInput(
                f"the async step {shown(step.name)} was called in the plain task {shown(self.task.name)}",
                hint="make the task async too",
            )
        identity = self.identify(step.name, key)
        if step.takes_key:
            kwargs = {**kwargs, "key": key if key is not None else self.key_of(identity)}
        work = StepRunner(self, step, identity, args, kwargs, keyed=key is not None).execute()
        # A plain step in an async task blocks the event loop, as any plain function does.
        return drive(work) if self.plain or step.kind is Kind.PLAIN else work

    def call_child(self, task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call another task as a child run that is executed in this process."""
        from ..waits.children import call_child

        return self.deliver(call_child(self, task, self.identify(f"@run {task.name}"), args, kwargs))

    def start_child(self, task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Start a child run that a worker executes."""
        from ..waits.children import start_child

        return self.deliver(start_child(self, task, self.identify(f"@start {task.name}"), args, kwargs))

    def replayed(self, record: StepRecord) -> Any:
        """Return the result of a finished step, or raise its error."""
        if record.state is State.FAILED and record.error is not None:
            raise error_from_data(record.error)
        return record.value

    def add_undoable(self, step: Step[..., Any], identity: str, value: Any, position: int | None) -> None:
        """Note that a finished step can be undone, if it declares an undo function. `position` is the position of its
        outcome if an earlier execution recorded it."""
        if step.undo is not None:
            self._undoable_count += 1
            self.undoable.append((position or 2**62 + self._undoable_count, step, identity, value))

    # -- waiting and ending

    def has_interrupts(self) -> bool:
        """Whether `check_interrupts` may have something to do. Cheap, so that most steps can skip that call."""
        return (
            self.history.cancelling is not None
            or self.deadline is not None
            or self.unwinding
            or self.suspended_in_plain_step
            or bool(self.suspensions)
        )

    async def check_interrupts(self) -> None:
        """Leave the task's code if the run must not begin another step: it was cancelled, suspended or interrupted.
        Raises `DeadlineExceeded` if it is past its deadline."""
        if self.undoing:
            return
        if self.unwinding:
            raise RunInterrupted if self.plain else asyncio.CancelledError
        if self.suspensions and self.plain:
            raise self.suspensions[-1]  # the task's code caught the exception: raise it again
        if self.suspended_in_plain_step:
            await self._hold()
        if self.history.cancelling is not None:
            await self.stop()
        if self.deadline is not None and self.now() >= self.deadline:
            raise DeadlineExceeded(
                f"run {shown(self.row.run)} is past its deadline",
                hint="declare a longer deadline, or start a new run",
            )

    async def stop(self, *, working: bool = True) -> None:
        """Stop the run. A plain task is left at once. A branch of an async task waits here until all branches have
        reached a step."""
        self.stopping = True
        if self.plain or is_driven():
            self._notify_supervisor()
            raise RunStopped
        await self._hold(working=working)

    async def _hold(self, *, working: bool = True) -> None:
        """Wait to be cancelled by the supervisor. `working`: the branch is counted in `active`."""
        self.active -= working
        self.held += 1
        self._notify_supervisor()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.active += working
            self.held -= 1

    async def wait_for(self, due: int | None, waiting: str, *, external: bool) -> None:
        """Wait until the time `due` or for an external event.

        A plain task is suspended by `RunSuspended`. A branch of an async task waits here while other branches continue,
        and returns when there may be news. When all branches wait, the supervisor suspends the run.
        """
        await self.check_interrupts()
        suspension = RunSuspended(due, waiting, external)
        self.suspensions.append(suspension)
        if self.plain or self.readonly:
            raise suspension
        if is_driven():  # a plain step in an async task: the code around it may catch this, so set a flag too
            self.suspended_in_plain_step = True
            self._notify_supervisor()
            raise suspension
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        self.journal.waiters.append(news)
        timer = None if due is None else loop.call_later(max(0.0, (due - self.now()) / 1e6), resolve, news)
        self.active -= 1
        self._notify_supervisor()
        try:
            await news
        finally:
            self.active += 1
            self.journal.waiters.remove(news)
            if timer is not None:
                timer.cancel()
            if not self.unwinding:
                self.suspensions.remove(suspension)

    def _notify_supervisor(self) -> None:
        if self.state_changed is not None:
            resolve(self.state_changed)

    async def pause_until(self, due: int, waiting: str) -> None:
        """Wait until the time `due`. A wait within the engine's patience keeps the thread; a longer one suspends the
        run."""
        while due > self.now():
            if due - self.now() > self.engine.patience * 1e6 or self.readonly:
                await self.wait_for(due, waiting, external=False)
                continue
            seconds = min((due - self.now()) / 1e6, 0.2)
            if is_driven():
                time.sleep(max(0.0, seconds))
            else:
                await asyncio.sleep(max(0.0, seconds))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the block as a step in progress."""
        self.active += 1
        self.activity += 1
        try:
            yield
        finally:
            self.active -= 1
            self.activity += 1

    @property
    def is_suspended(self) -> bool:
        """Whether the task was suspended, even if its code caught the exception."""
        return bool(self.suspensions) and (self.plain or self.suspended_in_plain_step or self.unwound)

    @property
    def all_waiting(self) -> bool:
        """Whether all branches certainly wait. A branch that awaits another branch, or anything outside duramen, is
        not counted: it may continue."""
        return self.suspended_in_plain_step or self.waiting > len(self.tasks)

    @property
    def waiting(self) -> int:
        """How many branches wait."""
        return len(self.journal.waiters) + self.held

    @property
    def idle(self) -> bool:
        """Whether no branch is inside a step."""
        return self.active == 0
