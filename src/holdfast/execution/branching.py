"""Lines of a task's code that run beside each other, so that steps are known again however quickly each of them is."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import copy_context
from typing import Any

from .ambient import BRANCH, RUN, STEP


class Branch:
    """One line of a task's code: the task itself, or a coroutine that it runs beside. Steps are counted along it, so
    that they are known again however quickly the others are."""

    __slots__ = ("branches", "counts", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self.branches = 0

    def number(self, name: str) -> str:
        """The number of the next call of a step."""
        self.counts[name] += 1
        return f"{self.path}{self.counts[name]}"

    def fork(self) -> Branch:
        """A new line beside this one."""
        self.branches += 1
        return Branch(f"{self.path}{self.branches}.")


def branch_of(identity: str) -> str | None:
    """The path of the line that a step was called on; None if it has a key of its own."""
    _, counted, number = identity.rpartition("#")
    return number.rpartition(".")[0] if counted else None


def count_branches(loop: asyncio.AbstractEventLoop) -> None:
    """Let every coroutine that a run's code starts beside itself have a branch of its own, numbered in the order in
    which they are started. Other tasks of the loop are made as before."""
    before = loop.get_task_factory()
    if getattr(before, "counts_branches", False):
        return

    def make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        run = RUN.get()
        beside = run is not None and run.loop is loop and STEP.get() is None
        if beside and run is not None:
            context = options.pop("context", None) or copy_context()
            context.run(BRANCH.set, (BRANCH.get() or run.trunk).fork())
            options["context"] = context
        task = asyncio.Task(work, loop=loop, **options) if before is None else before(loop, work, **options)
        if beside and run is not None and isinstance(task, asyncio.Task):
            run.tasks.add(task)
            task.add_done_callback(run.tasks.discard)
        return task

    make.counts_branches = True  # type: ignore[attr-defined]
    loop.set_task_factory(make)
