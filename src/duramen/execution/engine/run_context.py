"""A run while it is executed: which step comes next, what it waits for, what there is to undo."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from hashlib import blake2b
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...errors import DeadlineExceeded, InvalidInput, StepsChanged
from ...journal.owners import Owner
from ...ports import RunRow
from ...runtime import drive, is_driven
from ..steps.branches import Branch, branch_of, count_branches
from ..steps.definitions import Kind, Step, Task
from ..steps.fast_path import go_straight
from ..steps.faults import from_data
from ..steps.step_runner import perform
from ..waits.current_run import BRANCH
from .control_flow import Left, Stop, Suspend
from .history import History, State, StepRecord
from .run_journal import RunJournal, settle

if TYPE_CHECKING:
    from ..waits.task_state import WorkState
    from .engine import Engine


class RunContext(RunJournal):
    """What a task's code meets when it calls a step."""

    def __init__(
        self, engine: Engine, row: RunRow, history: History, task: Task[Any, Any], fence: int | None, owner: Owner
    ) -> None:
        super().__init__(engine, row, history, task, fence, owner)
        self.deadline: int | None = history.input.get("deadline")
        self.suspended: list[Suspend] = []
        self.undoing = False
        self.undoable: list[tuple[int, Step[..., Any], str, Any]] = []
        self.trunk = Branch()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.branches: WeakKeyDictionary[asyncio.Task[Any], Branch] = WeakKeyDictionary()
        self.stirred: asyncio.Future[None] | None = None
        self.driven_wait = False
        self.unwinding = False
        self.unwound = False
        """All branches were ended in order to wait; not because the task has ended while some of them did."""
        self.stopping = False
        self.held = 0
        self.active = 0
        self.activity = 0
        self.under_way: dict[str, asyncio.Future[None]] = {}
        self.children: list[str] = []
        self.work: WorkState | None = None
        self._thread = 0
        self._finished = 0
        self._unvisited: dict[str | None, dict[str, None]] = {}
        for name in history.steps:
            if not name.startswith("@patch"):
                self._unvisited.setdefault(branch_of(name), {})[name] = None

    def enter(self) -> None:
        """The task begins, in this thread."""
        self._thread = get_ident()
        if not self.plain:
            self.loop, self._turn = asyncio.get_running_loop(), asyncio.Lock()
            count_branches(self.loop)

    def deliver(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Work for the task's code: its result in a plain task, something to await in an async one."""
        return drive(work) if self.plain else work

    def _other_thread(self) -> InvalidInput:
        return InvalidInput(
            f"a step of run {self.row.run!r} was called from another thread",
            hint="call steps from the task's own thread; in an async task, use asyncio.gather",
        )

    # -- knowing steps again

    def identify(self, name: str, key: str | None = None) -> str:
        """What this call is known by: its name and number on its branch, or its name and the caller's key."""
        if get_ident() != self._thread:
            raise self._other_thread()
        if key is not None:
            return f"{name}:{key}"
        branch = self.trunk if self.plain else self.branch
        return f"{name}#{branch.number(name)}"

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

    async def visit(self, identity: str) -> StepRecord | None:
        """What the journal knows of the step that the code has come to. Raises `StepsChanged` if it knows others."""
        record, stopped = self.look(identity)
        if stopped:
            await self.stop(working=False)
        return record

    def look(self, identity: str) -> tuple[StepRecord | None, bool]:
        """The same; and whether the run was stopped here."""
        if self.broken is not None:
            raise self.broken
        record = self.history.steps.get(identity)
        if record is None and not self._unvisited and self.history.cancelling is None:
            return None, False  # something new, in a run of which all is known
        branch = branch_of(identity)
        left = self._unvisited.get(branch, {})
        ordered = branch is not None and branch not in self.history.overlapped
        expected = next(iter(left), identity) if ordered else identity
        if expected != identity and (record is None or identity in left):
            if expected.startswith("@undo") and not identity.startswith("@undo"):
                return None, True  # cancelled here, and partly undone
            self.broken = StepsChanged(self.row.run, identity, self.forgotten())
            raise self.broken
        left.pop(identity, None)
        if not left:
            self._unvisited.pop(branch, None)
        return record, record is None and self.history.cancelling is not None and not self.undoing

    def is_new(self, identity: str) -> bool:
        """Whether a step is unknown to a journal of which all is known, and nothing stands in its way."""
        return (
            not self._unvisited
            and identity not in self.history.steps
            and self.broken is None
            and not self.readonly
            and not self.gated()
        )

    def forgotten(self) -> list[str]:
        """Steps that the journal holds and the code did not come to. Undoing comes last."""
        return [name for names in self._unvisited.values() for name in names if not name.startswith("@undo")]

    @property
    def replaying(self) -> bool:
        """Whether the journal still knows what comes next on this branch."""
        return bool(self._unvisited.get(self.branch.path.rstrip("."), {}))

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
        if step.quick and key is None and self.plain and self.work is None and self.is_new(identity):
            return go_straight(self, step, identity, args, kwargs)
        work = perform(self, step, identity, args, kwargs)
        if step.kind is Kind.PLAIN and not self.plain:
            return drive(work)  # a plain function in an async task blocks its loop, as any plain function does
        return self.deliver(work)

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
            raise from_data(record.error)
        return record.value

    # -- waiting and ending

    def gated(self) -> bool:
        """Whether there may be a reason not to go on, for `gate` to look at."""
        return (
            self.history.cancelling is not None
            or self.deadline is not None
            or self.unwinding
            or self.driven_wait
            or bool(self.suspended)
        )

    async def gate(self) -> None:
        """Between steps: a run that is stopped or over its deadline begins nothing new."""
        if self.undoing:
            return
        if self.unwinding:
            raise Left if self.plain else asyncio.CancelledError
        if self.suspended and self.plain:
            raise self.suspended[-1]  # the task's code caught what should have unwound it
        if self.driven_wait:
            await self._hold()
        if self.history.cancelling is not None:
            await self.stop()
        if self.deadline is not None and self.now() >= self.deadline:
            raise DeadlineExceeded(
                f"run {self.row.run!r} is past its deadline", hint="give it a longer one, or start it again"
            )

    async def stop(self, *, working: bool = True) -> None:
        """Go no further. Beside others, a branch waits until all of them have come to a step."""
        self.stopping = True
        if self.plain or is_driven():
            self._stir()
            raise Stop
        await self._hold(working=working)

    async def _hold(self, *, working: bool = True) -> None:
        """Wait to be unwound, inside a step or not."""
        self.active -= working
        self.held += 1
        self._stir()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.active += working
            self.held -= 1

    async def wait_for(self, due: int | None, waiting: str, *, outside: bool) -> None:
        """Wait for a time, or for something to happen. A plain task is unwound. A branch of an async one waits here
        while the others go on, and returns when there may be news; once all of them wait, all are unwound."""
        await self.gate()
        suspension = Suspend(due, waiting, outside)
        self.suspended.append(suspension)
        if self.plain or self.readonly:
            raise suspension
        if is_driven():  # a plain step in an async task: whoever stands in between may catch this, so it is kept
            self.driven_wait = True
            self._stir()
            raise suspension
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        self._waiters.append(news)
        timer = None if due is None else loop.call_later(max(0.0, (due - self.now()) / 1e6), settle, news)
        self.active -= 1
        self._stir()
        try:
            await news
        finally:
            self.active += 1
            self._waiters.remove(news)
            if timer is not None:
                timer.cancel()
            if not self.unwinding:
                self.suspended.remove(suspension)

    def _stir(self) -> None:
        if self.stirred is not None and not self.stirred.done():
            self.stirred.set_result(None)

    async def pause_until(self, due: int, waiting: str) -> None:
        """Wait for a time: in place if it is short."""
        while due > self.now():
            await self.flush()
            if due - self.now() > self.engine.patience * 1e6 or self.readonly:
                await self.wait_for(due, waiting, outside=False)
                continue
            seconds = min((due - self.now()) / 1e6, 0.2)
            if is_driven():
                time.sleep(max(0.0, seconds))
            else:
                await asyncio.sleep(max(0.0, seconds))

    def working(self) -> _Working:
        """A step is under way, as long as the block lasts."""
        return _Working(self)

    @property
    def suspended_for_good(self) -> bool:
        """Whether the task was unwound in order to wait, whatever its code made of that."""
        return bool(self.suspended) and (self.plain or self.driven_wait or self.unwound)

    @property
    def all_wait(self) -> bool:
        """Whether every line of code waits for sure. One that awaits others, or anything else, cannot be told apart
        from one that will go on."""
        return self.driven_wait or self.waiting > len(self.tasks)

    @property
    def waiting(self) -> int:
        """How many lines of code wait."""
        return len(self._waiters) + self.held

    @property
    def quiet(self) -> bool:
        """Whether no branch is inside a step."""
        return self.active == 0

    def finished(self, step: Step[..., Any], identity: str, value: Any, position: int | None) -> None:
        """A step is done: remember how to undo it."""
        if step.undo is not None:
            self._finished += 1
            self.undoable.append((position or 2**62 + self._finished, step, identity, value))


class _Working:
    """Counts the steps that are under way."""

    __slots__ = ("_run",)

    def __init__(self, run: RunContext) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._run.active += 1
        self._run.activity += 1

    def __exit__(self, *_: object) -> None:
        self._run.active -= 1
        self._run.activity += 1
