"""A run while it is executed: which step comes next, what it waits for, what there is to undo."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...errors import DeadlineExceeded, InvalidInput, StepsChanged
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
    """What a task's code meets when it calls a step. Without a fence the run can only be replayed."""

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
        """Resolved when a branch begins to wait, for the supervisor of the branches."""
        self.suspended_in_plain_step = False
        self.unwinding = False
        self.unwound = False
        """All branches were ended in order to wait; not because the task has ended while some of them did."""
        self.stopping = False
        self.held = 0
        """Branches that wait to be unwound."""
        self.active = 0
        """Steps that are under way."""
        self.activity = 0
        """Counts up whenever a step begins or ends."""
        self.under_way: dict[str, asyncio.Future[None]] = {}
        """Keyed steps that are under way, for other branches that call them."""
        self.children: list[str] = []
        self.state: TaskState | None = None
        self._thread = 0
        self._undoable_count = 0
        self._unmatched: dict[str | None, dict[str, None]] = {}
        for name in history.steps:
            if not name.startswith("@patch"):
                self._unmatched.setdefault(branch_of(name), {})[name] = None

    def enter(self) -> None:
        """The task begins, in this thread."""
        self._thread = get_ident()
        if not self.plain:
            self.loop = asyncio.get_running_loop()
            self.journal.use_loop(self.loop)
            count_branches(self.loop)

    def deliver(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Work for the task's code: its result in a plain task, something to await in an async one."""
        return drive(work) if self.plain else work

    # -- recording

    async def record(self, kind: str, data: dict[str, Any], *, synced: bool = False) -> Any:
        """Commit an outcome before the task's code continues. Returns its data as reading gives it back."""
        event = self.journal.encode(kind, data)
        await self.commit([event], synced=synced)
        return event.data

    async def commit(self, events: Sequence[Prepared], *, synced: bool) -> None:
        """Commit events that end with an outcome. A cancellation that arrives meanwhile comes too late: the task's code
        gets what was recorded, as it will after a restart. While the run is unwound, the cancellation is raised."""
        try:
            await self.journal.write(events, synced=synced)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.unwinding or self.journal.broken is not None or task is None:
                raise
            task.uncancel()

    # -- matching steps with the journal

    def identify(self, name: str, key: str | None = None) -> str:
        """What this call is known by: its name and number on its branch, or its name and the caller's key."""
        if get_ident() != self._thread:
            raise InvalidInput(
                f"a step of run {self.row.run!r} was called from another thread",
                hint="call steps from the task's own thread; in an async task, use asyncio.gather",
            )
        if key is not None:
            return f"{name}:{key}"
        return f"{name}#{self.branch.number(name)}"

    @property
    def branch(self) -> Branch:
        """The line of code that calls."""
        if self.plain:
            return self.trunk
        task = asyncio.current_task()
        return (self.branches.get(task) if task is not None else None) or BRANCH.get() or self.trunk

    def key_of(self, identity: str) -> str:
        """The idempotency key of a step: the same in every attempt and process, another in every run."""
        return blake2b(f"{self.history.root}/{identity}".encode(), digest_size=16).hexdigest()

    async def match_or_stop(self, identity: str) -> StepRecord | None:
        """`match`; if the run was stopped here, stop."""
        record, stopped = self.match(identity)
        if stopped:
            await self.stop(working=False)
        return record

    def match(self, identity: str) -> tuple[StepRecord | None, bool]:
        """What the journal knows of the step that the code has come to, and whether the run was stopped here. Raises
        `StepsChanged` if the journal knows another step at this place."""
        if self.journal.broken is not None:
            raise self.journal.broken
        record = self.history.steps.get(identity)
        if record is None and not self._unmatched and self.history.cancelling is None:
            return None, False  # a new step, and all recorded ones were matched
        branch = branch_of(identity)
        left = self._unmatched.get(branch, {})
        ordered = branch is not None and branch not in self.history.overlapped
        expected = next(iter(left), identity) if ordered else identity
        if expected != identity and (record is None or identity in left):
            if expected.startswith("@undo") and not identity.startswith("@undo"):
                return None, True  # cancelled here, and partly undone
            changed = StepsChanged(self.row.run, identity, self.unmatched_steps())
            self.journal.break_off(changed)
            raise changed
        left.pop(identity, None)
        if not left:
            self._unmatched.pop(branch, None)
        return record, record is None and self.history.cancelling is not None and not self.undoing

    def unmatched_steps(self) -> list[str]:
        """Steps that the journal holds and the code did not come to. Undoing comes last."""
        return [name for names in self._unmatched.values() for name in names if not name.startswith("@undo")]

    @property
    def replaying(self) -> bool:
        """Whether the journal still knows what comes next on this branch."""
        return bool(self._unmatched.get(self.branch.path.rstrip("."), {}))

    # -- calling a step

    def call(self, step: Step[..., Any], key: str | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call of a step in the task's code."""
        if step.kind is Kind.ASYNC and self.plain:
            raise InvalidInput(
                f"the async step {step.name!r} was called in the plain task {self.task.name!r}",
                hint="make the task async as well",
            )
        identity = self.identify(step.name, key)
        if step.takes_key:
            kwargs = {**kwargs, "key": key if key is not None else self.key_of(identity)}
        work = StepRunner(self, step, identity, args, kwargs, keyed=key is not None).execute()
        # A plain step in an async task blocks its loop, as any plain function does.
        return drive(work) if self.plain or step.kind is Kind.PLAIN else work

    def call_child(self, task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call of another task in the task's code: a run of its own, executed here."""
        from ..waits.children import call_child

        return self.deliver(call_child(self, task, self.identify(f"@run {task.name}"), args, kwargs))

    def start_child(self, task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A child run for workers to take up."""
        from ..waits.children import start_child

        return self.deliver(start_child(self, task, self.identify(f"@start {task.name}"), args, kwargs))

    def replayed(self, record: StepRecord) -> Any:
        """The outcome of a step that has one."""
        if record.state is State.FAILED and record.error is not None:
            raise error_from_data(record.error)
        return record.value

    def add_undoable(self, step: Step[..., Any], identity: str, value: Any, position: int | None) -> None:
        """A step is done: remember how to undo it, if it says how. `position`: of its outcome, from an earlier
        execution."""
        if step.undo is not None:
            self._undoable_count += 1
            self.undoable.append((position or 2**62 + self._undoable_count, step, identity, value))

    # -- waiting and ending

    def has_interrupts(self) -> bool:
        """Whether there may be a reason not to continue, for `check_interrupts` to look at."""
        return (
            self.history.cancelling is not None
            or self.deadline is not None
            or self.unwinding
            or self.suspended_in_plain_step
            or bool(self.suspensions)
        )

    async def check_interrupts(self) -> None:
        """Between steps: a run that is stopped or over its deadline begins nothing new."""
        if self.undoing:
            return
        if self.unwinding:
            raise RunInterrupted if self.plain else asyncio.CancelledError
        if self.suspensions and self.plain:
            raise self.suspensions[-1]  # the task's code caught what should have unwound it
        if self.suspended_in_plain_step:
            await self._hold()
        if self.history.cancelling is not None:
            await self.stop()
        if self.deadline is not None and self.now() >= self.deadline:
            raise DeadlineExceeded(
                f"run {self.row.run!r} is past its deadline", hint="give it a longer one, or start it again"
            )

    async def stop(self, *, working: bool = True) -> None:
        """Do not continue. In an async task, a branch waits until all of them have come to a step."""
        self.stopping = True
        if self.plain or is_driven():
            self._notify_supervisor()
            raise RunStopped
        await self._hold(working=working)

    async def _hold(self, *, working: bool = True) -> None:
        """Wait to be unwound, inside a step or not."""
        self.active -= working
        self.held += 1
        self._notify_supervisor()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.active += working
            self.held -= 1

    async def wait_for(self, due: int | None, waiting: str, *, external: bool) -> None:
        """Wait for a time, or for something to happen. A plain task is unwound. A branch of an async one waits here
        while the others continue, and returns when there may be news; once all of them wait, all are unwound."""
        await self.check_interrupts()
        suspension = RunSuspended(due, waiting, external)
        self.suspensions.append(suspension)
        if self.plain or self.readonly:
            raise suspension
        if is_driven():  # a plain step in an async task: code in between may catch this, so it is kept
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
        """Wait for a time: in place if it is short."""
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
        """A step is under way, as long as the block lasts."""
        self.active += 1
        self.activity += 1
        try:
            yield
        finally:
            self.active -= 1
            self.activity += 1

    @property
    def is_suspended(self) -> bool:
        """Whether the task was unwound in order to wait, whatever its code made of that."""
        return bool(self.suspensions) and (self.plain or self.suspended_in_plain_step or self.unwound)

    @property
    def all_waiting(self) -> bool:
        """Whether every line of code waits for sure. One that awaits others, or anything else, looks like one that will
        continue."""
        return self.suspended_in_plain_step or self.waiting > len(self.tasks)

    @property
    def waiting(self) -> int:
        """How many lines of code wait."""
        return len(self.journal.waiters) + self.held

    @property
    def idle(self) -> bool:
        """Whether no branch is inside a step."""
        return self.active == 0
