"""Async tasks with several branches, and task code that interferes when a run parks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from programs.side_effects import BookingError, Killed, Open, SideEffects, run_until_killed

import duramen
from duramen import AsyncDuramen, Duramen, Retry, RunStatus
from duramen.errors import DeadlineExceeded, InvalidInput, RunCancelled, RunParked
from duramen.testing.clock import FakeClock


@pytest.fixture
def run_async(tmp_path: Path) -> Callable[[Callable[[AsyncDuramen], Awaitable[Any]]], Any]:
    """Runs a coroutine with a new handle on one file, as a new process would."""

    def run(body: Callable[[AsyncDuramen], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with await duramen.aopen(tmp_path / "agent.db") as dm:
                return await asyncio.wait_for(body(dm), 60)

        return asyncio.run(main())

    return run


RunAsync = Callable[[Callable[[AsyncDuramen], Awaitable[Any]]], Any]


def test_plain_and_async_steps_mix_in_concurrent_branches(run_async: RunAsync) -> None:
    @duramen.step
    def plain(number: int) -> int:
        return number

    @duramen.step
    async def other(number: int) -> int:
        await asyncio.sleep(0.001)
        return number

    @duramen.task
    async def job() -> int:
        async def branch() -> int:
            return sum([plain(number) + await other(number) for number in range(20)])

        return sum(await asyncio.gather(*(branch() for _ in range(6))))

    assert run_async(lambda dm: dm.run(job, id="r")) == 6 * 2 * 190


@pytest.mark.promise("X23")
def test_cancelling_an_async_run_undoes_its_steps_in_reverse(run_async: RunAsync, effects: SideEffects) -> None:
    @duramen.step(undo=lambda value: effects.do(f"undo {value}"))
    async def act(number: int) -> int:
        await asyncio.sleep(0.01)
        effects.do(f"act {number}")
        return number

    @duramen.task
    async def job() -> None:
        for number in range(1000):
            await act(number)

    async def body(dm: AsyncDuramen) -> None:
        running = asyncio.create_task(dm.run(job, id="r"))
        while len(effects.done) < 3:
            await asyncio.sleep(0.005)
        await dm.cancel("r", "enough")
        with pytest.raises(RunCancelled, match="enough"):
            await running
        assert (await dm.run_info("r")).status is RunStatus.CANCELLED

    run_async(body)
    acts = [what for what, _ in effects.done if what.startswith("act")]
    undone = [what for what, _ in effects.done if what.startswith("undo")]
    assert [f"undo {what}" for what in reversed(acts)] == [f"undo act {what.split()[1]}" for what in undone]


@pytest.mark.promise("X3")
def test_steps_of_another_process_between_start_and_claim_are_not_repeated(
    tmp_path: Path, effects: SideEffects
) -> None:
    @duramen.step
    def charge() -> str:
        return effects.do("charge")

    @duramen.task
    def job() -> Any:
        charge()
        return duramen.receive("go")

    with duramen.open(tmp_path / "a.db") as one, duramen.open(tmp_path / "a.db") as other:
        engine = one._core._engine
        attempt = engine.attempt

        async def late(run: str, task: Any, started: Any = None) -> Any:
            engine.attempt = attempt  # type: ignore[method-assign]
            with pytest.raises(RunParked):
                other.run(job, id="r")
            other.signal("r", "go", 7)
            return await attempt(run, task, started)

        engine.attempt = late  # type: ignore[method-assign]
        assert one.run(job, id="r") == 7
    assert effects.times("charge") == 1


def test_an_inline_child_does_not_renumber_later_branches(run_async: RunAsync, effects: SideEffects) -> None:
    @duramen.step
    async def inner() -> None:
        await asyncio.sleep(0.05)

    @duramen.task
    async def child() -> None:
        await inner()

    @duramen.step
    async def charge(who: str) -> str:
        return effects.do(who)

    async def branch(who: str) -> str:
        return await charge(who)

    @duramen.task
    async def parent() -> list[str]:
        await child()
        results = await asyncio.gather(branch("a"), branch("b"))
        await duramen.receive("go")
        return list(results)

    async def first(dm: AsyncDuramen) -> None:
        with pytest.raises(RunParked):
            await dm.run(parent, id="p")
        await dm.signal("p", "go")

    run_async(first)
    assert run_async(lambda dm: dm.run(parent, id="p")) == ["a done", "b done"]
    assert sorted(what for what, _ in effects.done) == ["a", "b"]


def test_as_completed_is_refused_for_coroutines_and_works_with_tasks(run_async: RunAsync) -> None:
    @duramen.step
    async def price(city: str) -> str:
        return f"price of {city}"

    async def look(city: str) -> tuple[str, str]:
        return city, await price(city)

    cities = ("rome", "oslo", "bern", "lima")

    @duramen.task
    async def refused() -> None:
        works = [look(city) for city in cities]
        try:
            for one in asyncio.as_completed(works):
                await one
        finally:
            for work in works:
                work.close()

    @duramen.task
    async def ordered() -> list[Any]:
        tasks = [asyncio.create_task(look(city)) for city in cities]
        prices = sorted([await task for task in asyncio.as_completed(tasks)])
        await duramen.receive("go")
        return prices

    async def body(dm: AsyncDuramen) -> Any:
        with pytest.raises(InvalidInput, match="random order"):
            await dm.run(refused, id="refused")
        with pytest.raises(RunParked):
            await dm.run(ordered, id="r")
        await dm.signal("r", "go")
        return await dm.resume("r", ordered)

    assert run_async(body) == sorted((city, f"price of {city}") for city in cities)


@pytest.mark.parametrize("how", ["gather", "group", "background"])
def test_a_plain_step_that_waits_in_a_branch_parks_the_run(run_async: RunAsync, effects: SideEffects, how: str) -> None:
    @duramen.step(retry=Retry(attempts=2, first=3600))
    def flaky() -> None:
        effects.do("flaky")
        raise OSError("down")

    async def branch() -> None:
        flaky()

    @duramen.task
    async def job() -> None:
        if how == "gather":
            await asyncio.gather(branch(), return_exceptions=True)
        elif how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(branch())
        else:
            task = asyncio.create_task(branch())
            await asyncio.sleep(0.05)
            del task

    async def body(dm: AsyncDuramen) -> None:
        await dm.start(job, id="r")
        await dm.work([job], until_idle=True)
        info = await dm.run_info("r")
        assert (info.status, info.waiting) == (RunStatus.SLEEPING, "the next attempt of flaky#1.1")

    run_async(body)
    assert effects.times("flaky") == 1


@pytest.mark.promise("X23")
def test_a_slower_branch_is_undone_after_a_restart(run_async: RunAsync, effects: SideEffects) -> None:
    def refund(value: str) -> None:
        effects.do("refund")

    @duramen.step(undo=refund)
    async def charge() -> str:
        return effects.do("charge")

    @duramen.step
    async def fails() -> None:
        await asyncio.sleep(0.2)
        raise BookingError("LH400", 17)

    async def slower() -> None:
        await asyncio.sleep(0.05)  # not a step: it takes the same time again
        await charge()

    @duramen.task
    async def job() -> None:
        await asyncio.gather(slower(), fails())

    async def first(dm: AsyncDuramen) -> None:
        with pytest.raises(Killed):
            await dm.run(job, id="r")

    async def again(dm: AsyncDuramen) -> None:
        with pytest.raises(BookingError):
            await dm.run(job, id="r")

    effects.die = "before refund"
    run_async(first)
    run_async(again)
    assert [what for what, _ in effects.done] == ["charge", "refund"]


def test_a_run_whose_caller_timed_out_stays_owned_until_its_step_ends(run_async: RunAsync) -> None:
    calls: list[float] = []

    @duramen.step
    def slow() -> int:
        calls.append(time.monotonic())
        time.sleep(0.5)
        return 1

    @duramen.task
    def job() -> str:
        slow()
        return "ok"

    async def body(dm: AsyncDuramen) -> str:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(dm.run(job, id="r"), 0.1)
        return str(await dm.run(job, id="r"))

    assert run_async(body) == "ok"
    assert len(calls) == 1


@pytest.mark.parametrize("how", ["finally", "wrapped", "swallowed"])
def test_a_wait_survives_task_code_that_catches_or_wraps_it(dm: Duramen, effects: SideEffects, how: str) -> None:
    @duramen.step(undo=lambda value: effects.do("undo"))
    def charge() -> str:
        return effects.do("charge")

    @duramen.task
    def job() -> Any:
        charge()
        try:
            return duramen.ask("ok?")
        except BaseException as error:
            if how == "wrapped":
                raise RuntimeError("wrapped") from error
            if how == "swallowed":
                return "partial"
            raise
        finally:
            if how == "finally" and effects.times("late") == 0:
                effects.do("late")
                raise KeyError("clean-up that fails")

    with pytest.raises(RunParked):
        dm.run(job, id="answered")
    with pytest.raises(RunParked):
        dm.run(job, id="cancelled")
    assert effects.times("undo") == 0
    dm.answer("answered", "yes")
    assert dm.resume("answered", job) == "yes"
    dm.cancel("cancelled")
    with pytest.raises(RunCancelled):
        dm.resume("cancelled", job)
    assert effects.times("undo") == 1


def test_a_task_that_raises_cancelled_error_fails(run_async: RunAsync) -> None:
    @duramen.task
    async def job() -> None:
        helper = asyncio.create_task(asyncio.sleep(10))
        helper.cancel()
        await helper

    async def body(dm: AsyncDuramen) -> RunStatus:
        await dm.start(job, id="r")
        await dm.work([job], until_idle=True)
        return (await dm.run_info("r")).status

    assert run_async(body) is RunStatus.FAILED


def test_a_failed_run_killed_while_undoing_ends_as_failed(
    open_one: Open, clock: FakeClock, effects: SideEffects
) -> None:
    @duramen.step(undo=lambda value: effects.do("undo a"))
    def a() -> str:
        return effects.do("a")

    @duramen.step
    def b() -> str:
        clock.advance(0.8)
        return effects.do("b")

    @duramen.task(deadline=0.6)
    def job() -> None:
        a()
        b()
        b()

    dm = open_one()
    effects.die = "before undo a"
    run_until_killed(dm, job, id="r")
    with pytest.raises(DeadlineExceeded):
        dm.run(job, id="r")
    assert dm.run_info("r").status is RunStatus.FAILED
    assert [what for what, _ in effects.done] == ["a", "b", "undo a"]


def test_a_branch_continues_while_another_waits(run_async: RunAsync, effects: SideEffects) -> None:
    @duramen.step
    async def work() -> str:
        return effects.do("work")

    async def waits() -> Any:
        return await duramen.receive("go")

    async def works() -> str:
        await asyncio.to_thread(time.sleep, 0.1)  # not a step
        return await work()

    @duramen.task
    async def job() -> list[Any]:
        return list(await asyncio.gather(waits(), works()))

    async def body(dm: AsyncDuramen) -> Any:
        with pytest.raises(RunParked):
            await dm.run(job, id="r")
        assert effects.times("work") == 1
        await dm.signal("r", "go", "on")
        return await dm.resume("r", job)

    assert run_async(body) == ["on", "work done"]
    assert effects.times("work") == 1


@pytest.mark.parametrize("end", ["returns", "fails"])
def test_a_task_can_end_while_one_of_its_branches_waits(run_async: RunAsync, end: str) -> None:
    async def waits() -> Any:
        return await duramen.receive("never")

    @duramen.step
    async def fails() -> None:
        await asyncio.sleep(0.05)
        raise BookingError("LH400", 17)

    @duramen.task
    async def job() -> str:
        if end == "fails":
            await asyncio.gather(waits(), fails())
        waiting = asyncio.create_task(waits())
        await asyncio.sleep(0.05)
        return f"done: {waiting.done()}"

    async def body(dm: AsyncDuramen) -> Any:
        if end == "returns":
            assert await dm.run(job, id="r") == "done: False"
        else:
            with pytest.raises(BookingError):
                await dm.run(job, id="r")
        return (await dm.run_info("r")).status

    assert run_async(body) is (RunStatus.DONE if end == "returns" else RunStatus.FAILED)


def test_tasks_can_nest_40_levels_deep(dm: Duramen) -> None:
    @duramen.task
    def explore_a_folder(depth: int) -> int:
        return 0 if depth == 0 else 1 + explore_a_folder(depth - 1)

    assert dm.run(explore_a_folder, 40, id="r") == 40


def test_step_keys_may_contain_numbers_and_change_order(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def act(what: str) -> str:
        return effects.do(what)

    order = ["order#3", "order#1"]

    @duramen.task
    def job() -> list[str]:
        results = [act.keyed(key)(key) for key in order]
        duramen.receive("go")
        return results

    with pytest.raises(RunParked):
        dm.run(job, id="r")
    dm.signal("r", "go")
    order.reverse()
    assert dm.resume("r", job) == ["order#1 done", "order#3 done"]
    assert len(effects.done) == 2


def test_outcomes_are_stored_when_the_task_raises_keyboard_interrupt(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def act() -> str:
        return effects.do("act")

    @duramen.task
    def job() -> str:
        result = act()
        if effects.times("interrupt") == 0:
            effects.do("interrupt")
            raise KeyboardInterrupt
        return result

    with pytest.raises(KeyboardInterrupt):
        dm.run(job, id="r")
    assert dm.run(job, id="r") == "act done"
    assert effects.times("act") == 1


def test_a_blocking_call_executes_a_sleeping_run_only_when_it_wakes(tmp_path: Path) -> None:
    @duramen.task
    def nap() -> str:
        duramen.sleep(1.2)  # longer than the poll interval of one second
        return "awake"

    with duramen.open(tmp_path / "a.db") as dm:
        dm._core._engine.patience = 0
        assert dm.run(nap, id="r") == "awake"
        assert [event.type for event in dm.session("r").events()].count("run.parked") == 1


def test_reserved_session_names_are_refused_as_run_ids(dm: Duramen) -> None:
    @duramen.task
    def job() -> int:
        return 1

    for name in ("state:plan", "schedule:nightly"):
        with pytest.raises(InvalidInput, match="the session of a run cannot be"):
            dm.run(job, id=name)
