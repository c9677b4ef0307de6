"""Runs, blocking: the same code, stepped by hand. See `duramen.aio_runs` for what each call promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from ...execution.engine.run_control import Verdict
from ...execution.engine.run_info import RunInfo
from ...execution.steps.definitions import Task
from ...execution.waits.shared_state import AsyncSharedState, Versioned
from ...runtime import drive
from .._async.runs import AsyncRunHandle, AsyncRuns, RunFilter, StartOptions, WorkOptions


class Runs:
    """The part of a handle that executes tasks."""

    _core: AsyncRuns

    def run(
        self,
        task: Task[..., Any],
        /,
        *args: Any,
        id: str | None = None,
        session: str | None = None,
        subject: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Start a run, or resume it, or return its result: whatever its id needs."""
        return drive(self._core.run(task, *args, id=id, session=session, subject=subject, **kwargs))

    def start(self, task: Task[..., Any], /, *args: Any, **options: Unpack[StartOptions]) -> RunHandle:
        """Journal that a run shall begin and return at once; a worker (`work`) takes it up."""
        return RunHandle(drive(self._core.start(task, *args, **options)))

    def resume(self, id: str, task: Task[..., Any] | None = None) -> Any:
        """Go on with a run and return its result."""
        return drive(self._core.resume(id, task))

    def handle(self, id: str) -> RunHandle:
        """A handle on a run by id."""
        return RunHandle(self._core.handle(id))

    def runs(self, **wanted: Unpack[RunFilter]) -> list[RunInfo]:
        """Runs, newest first."""
        return drive(self._core.runs(**wanted))

    def run_info(self, id: str, *, at: int | None = None) -> RunInfo:
        """A run with its steps and what is in doubt."""
        return drive(self._core.run_info(id, at=at))

    def signal(
        self, id: str, name: str, payload: Any = None, *, actor: str | None = None, key: str | None = None
    ) -> None:
        """Send a signal to an open run; it is kept until the run receives it."""
        drive(self._core.signal(id, name, payload, actor=actor, key=key))

    def answer(self, id: str, value: Any, *, question: str | None = None, actor: str | None = None) -> None:
        """Answer the question that a run has asked."""
        drive(self._core.answer(id, value, question=question, actor=actor))

    def settle(
        self, id: str, verdict: Verdict, value: Any = None, *, step: str | None = None, actor: str | None = None
    ) -> None:
        """Say what became of a step in doubt: "done" (with its result), "retry" or "abort"."""
        drive(self._core.settle(id, verdict, value, step=step, actor=actor))

    def cancel(self, id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Stop a run at its next step; what it declared is undone."""
        drive(self._core.cancel(id, reason, actor=actor))

    def fork_run(self, id: str, new: str, *, at: int | None = None) -> RunHandle:
        """A new run that shares another's journal up to a position and goes on from there."""
        return RunHandle(drive(self._core.fork_run(id, new, at=at)))

    def replay(self, id: str, task: Task[..., Any] | None = None, *, at: int | None = None) -> Any:
        """Call a run's task again with all outcomes from the journal: nothing acts, nothing is written."""
        return drive(self._core.replay(id, task, at=at))

    def work(self, tasks: Iterable[Task[..., Any]], **options: Unpack[WorkOptions]) -> int:
        """Take up runs of these tasks, on threads, until `stop_working` is called."""
        return drive(self._core.work(tasks, **options))

    def stop_working(self) -> None:
        """Let every `work` of this handle return once what it executes has ended. Call it from anywhere."""
        self._core.stop_working()

    def state(self, key: str) -> SharedState:
        """State that several agents share."""
        return SharedState(self._core.state(key))


class RunHandle:
    """A run that was started."""

    def __init__(self, core: AsyncRunHandle) -> None:
        self._core = core
        self.id = core.id

    def result(self, timeout: float | None = None) -> Any:
        """Wait for its end, which somebody else brings about; TimeoutError after so many seconds."""
        return drive(self._core.result(timeout))

    def info(self) -> RunInfo:
        """How it stands."""
        return drive(self._core.info())

    def signal(self, name: str, payload: Any = None, *, key: str | None = None) -> None:
        """Send it a signal."""
        drive(self._core.signal(name, payload, key=key))

    def answer(self, value: Any) -> None:
        """Answer its question."""
        drive(self._core.answer(value))

    def cancel(self, reason: str | None = None) -> None:
        """Stop it."""
        drive(self._core.cancel(reason))


class SharedState:
    """One value that several agents change. See `duramen.execution.state`."""

    def __init__(self, core: AsyncSharedState) -> None:
        self._core = core
        self.key = core.key

    def get(self, default: Any = None) -> Versioned:
        """The value as it stands, and its version."""
        return drive(self._core.get(default))

    def at(self, version: int) -> Any:
        """The value as it was at a version."""
        return drive(self._core.at(version))

    def set(self, value: Any, *, expected: int, actor: str | None = None, key: str | None = None) -> int:
        """Replace the value if it still is at the version `expected`; raises `StateConflict`."""
        return drive(self._core.set(value, expected=expected, actor=actor, key=key))

    def update(self, change: Callable[[Any], Any], *, default: Any = None, actor: str | None = None) -> Versioned:
        """Replace the value by what `change` makes of it; if somebody else was first, of theirs."""
        return drive(self._core.update(change, default=default, actor=actor))

    def merge(
        self, mine: Any, base: Versioned, combine: Callable[[Any, Any, Any], Any], *, actor: str | None = None
    ) -> Versioned:
        """Set `mine`, made from `base`; if the value has moved since, `combine(base, theirs, mine)` decides."""
        return drive(self._core.merge(mine, base, combine, actor=actor))
