"""`run_alongside`, under `drive` and on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from duramen.runtime import drive, run_alongside

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[drive, asyncio.run])
def run(request: pytest.FixtureRequest) -> Run:
    """Each way to run a coroutine."""
    run: Run = request.param
    return run


def test_run_alongside_overlaps_a_thread_and_a_coroutine(run: Run) -> None:
    begun, met = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        assert met.wait(20)
        return "done"

    async def other() -> str:
        assert begun.wait(20)
        met.set()
        return "done as well"

    assert run(run_alongside(work, other())) == ("done", "done as well")


def test_run_alongside_raises_after_both_have_ended(run: Run) -> None:
    ended: list[str] = []

    def failing() -> None:
        ended.append("work")
        raise ValueError("the work")

    async def other() -> None:
        ended.append("other")

    async def failing_other() -> None:
        ended.append("other")
        raise KeyError("the other")

    with pytest.raises(ValueError, match="the work"):
        run(run_alongside(failing, other()))
    with pytest.raises(KeyError, match="the other"):
        run(run_alongside(lambda: ended.append("work"), failing_other()))
    assert sorted(ended) == ["other", "other", "work", "work"]
