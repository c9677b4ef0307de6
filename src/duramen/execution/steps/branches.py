"""Concurrent branches of a task's code. Each branch numbers its own steps, so timing does not affect the numbers."""

from __future__ import annotations

import asyncio
import sys
from contextvars import copy_context
from typing import Any

from ...errors import InvalidInput
from ..waits.current_run import BRANCH, RUN, STEP


class Branch:
    """The main code of a task, or a coroutine that it runs concurrently. Steps are numbered per branch, so that they
    get the same numbers after a restart."""

    __slots__ = ("branches", "counts", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.counts: dict[str, int] = {}
        self.branches = 0

    def number(self, name: str) -> str:
        """The number of the next call of the step `name`, with the path of this branch."""
        count = self.counts[name] = self.counts.get(name, 0) + 1
        return f"{self.path}{count}"

    def fork(self) -> Branch:
        """Create the next sub-branch."""
        self.branches += 1
        return Branch(f"{self.path}{self.branches}.")


def branch_of(identity: str) -> str | None:
    """The path of the branch that called a step; None if the step was called with a key."""
    if ":" in identity.partition("#")[0] and not identity.startswith("@"):
        return None  # name:key, where the key may contain # and dots
    _, counted, number = identity.rpartition("#")
    return number.rpartition(".")[0] if counted else None


def count_branches(loop: asyncio.AbstractEventLoop) -> None:
    """Install a task factory that gives every asyncio task of a run its own branch, numbered in start order. Other
    tasks on the loop are created as before."""
    before = loop.get_task_factory()
    if getattr(before, "counts_branches", False):
        return

    def make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        run = RUN.get()
        branch = None
        if run is not None and run.loop is loop and STEP.get() is None:
            _refuse_sets()
            branch = run.branch.fork()
            if options.get("context") is None:
                # An eager task runs before the factory returns it, so it finds its branch in the context. A context
                # that the caller passed may be shared with other tasks and is left unchanged.
                options["context"] = copy_context()
                options["context"].run(BRANCH.set, branch)
        task = asyncio.Task(work, loop=loop, **options) if before is None else before(loop, work, **options)
        if branch is not None and run is not None and isinstance(task, asyncio.Task):
            run.branches[task] = branch
            run.tasks.add(task)
            task.add_done_callback(run.tasks.discard)
        return task

    make.counts_branches = True  # type: ignore[attr-defined]
    loop.set_task_factory(make)


def _refuse_sets() -> None:
    """Refuse `asyncio.as_completed` with coroutines: it starts them in the order of a set, which varies."""
    frame = sys._getframe(2)
    for _ in range(6):
        if frame.f_code.co_name in _UNORDERED and frame.f_globals.get("__name__") == "asyncio.tasks":
            raise InvalidInput(
                "asyncio.as_completed() would start the branches of a run in random order",
                hint="start them yourself: as_completed([asyncio.create_task(one) for one in coroutines])",
            )
        if frame.f_back is None:
            return
        frame = frame.f_back


_UNORDERED = ("as_completed", "_AsCompletedIterator")
