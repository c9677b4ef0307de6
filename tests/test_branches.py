"""Async tasks with several branches, and code that stands in the way of being unwound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from programs.faroff import BookingError, Far, Killed, killed

import holdfast
from holdfast import AsyncHoldfast, Holdfast, Retry, RunStatus
from holdfast.errors import DeadlineExceeded, InvalidInput, RunCancelled, RunParked


@pytest.fixture
def looped(tmp_path: Path) -> Callable[[Callable[[AsyncHoldfast], Awaitable[Any]]], Any]:
    """Runs a coroutine with a handle on one file; again, as a new process would."""

    def run(body: Callable[[AsyncHoldfast], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            async with await holdfast.aopen(tmp_path / "agent.db") as hf:
                return await asyncio.wait_for(body(hf), 60)

        return asyncio.run(whole())

    return run


Looped = Callable[[Callable[[AsyncHoldfast], Awaitable[Any]]], Any]


def test_plain_and_async_steps_side_by_side(looped: Looped) -> None:
    @holdfast.step
    def plain(number: int) -> int:
        return number

    @holdfast.step
    async def other(number: int) -> int:
        await asyncio.sleep(0.001)
        return number

    @holdfast.task
    async def job() -> int:
        async def branch() -> int:
            return sum([plain(number) + await other(number) for number in range(20)])

        return sum(await asyncio.gather(*(branch() for _ in range(6))))

    assert looped(lambda hf: hf.run(job, id="r")) == 6 * 2 * 190


@pytest.mark.promise("X23")
def test_an_async_run_can_be_cancelled_in_the_middle(looped: Looped, far: Far) -> None:
    @holdfast.step(undo=lambda value: far.do(f"undo {value}"))
    async def act(number: int) -> int:
        await asyncio.sleep(0.01)
        far.do(f"act {number}")
        return number

    @holdfast.task
    async def job() -> None:
        for number in range(1000):
            await act(number)

    async def body(hf: AsyncHoldfast) -> None:
        running = asyncio.create_task(hf.run(job, id="r"))
        while len(far.done) < 3:
            await asyncio.sleep(0.005)
        await hf.cancel("r", "enough")
        with pytest.raises(RunCancelled, match="enough"):
            await running
        assert (await hf.run_info("r")).status is RunStatus.CANCELLED

    looped(body)
    acts = [what for what, _ in far.done if what.startswith("act")]
    undone = [what for what, _ in far.done if what.startswith("undo")]
    assert [f"undo {what}" for what in reversed(acts)] == [f"undo act {what.split()[1]}" for what in undone]


@pytest.mark.promise("X3")
def test_what_another_process_did_between_start_and_claim_is_not_done_again(tmp_path: Path, far: Far) -> None:
    @holdfast.step
    def charge() -> str:
        return far.do("charge")

    @holdfast.task
    def job() -> Any:
        charge()
        return holdfast.receive("go")

    with holdfast.open(tmp_path / "a.db") as one, holdfast.open(tmp_path / "a.db") as other:
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
    assert far.times("charge") == 1


def test_a_child_in_place_does_not_shift_the_branches_after_it(looped: Looped, far: Far) -> None:
    @holdfast.step
    async def inner() -> None:
        await asyncio.sleep(0.05)

    @holdfast.task
    async def child() -> None:
        await inner()

    @holdfast.step
    async def charge(who: str) -> str:
        return far.do(who)

    async def branch(who: str) -> str:
        return await charge(who)

    @holdfast.task
    async def parent() -> list[str]:
        await child()
        got = await asyncio.gather(branch("a"), branch("b"))
        await holdfast.receive("go")
        return list(got)

    async def first(hf: AsyncHoldfast) -> None:
        with pytest.raises(RunParked):
            await hf.run(parent, id="p")
        await hf.signal("p", "go")

    looped(first)
    assert looped(lambda hf: hf.run(parent, id="p")) == ["a done", "b done"]
    assert sorted(what for what, _ in far.done) == ["a", "b"]


def test_as_completed_is_refused_for_coroutines_and_works_with_tasks(looped: Looped) -> None:
    @holdfast.step
    async def price(city: str) -> str:
        return f"price of {city}"

    async def look(city: str) -> tuple[str, str]:
        return city, await price(city)

    cities = ("rome", "oslo", "bern", "lima")

    @holdfast.task
    async def refused() -> None:
        works = [look(city) for city in cities]
        try:
            for one in asyncio.as_completed(works):
                await one
        finally:
            for work in works:
                work.close()

    @holdfast.task
    async def ordered() -> list[Any]:
        tasks = [asyncio.create_task(look(city)) for city in cities]
        found = sorted([await one for one in asyncio.as_completed(tasks)])
        await holdfast.receive("go")
        return found

    async def body(hf: AsyncHoldfast) -> Any:
        with pytest.raises(InvalidInput, match="no order"):
            await hf.run(refused, id="refused")
        with pytest.raises(RunParked):
            await hf.run(ordered, id="r")
        await hf.signal("r", "go")
        return await hf.resume("r", ordered)

    assert looped(body) == sorted((city, f"price of {city}") for city in cities)


@pytest.mark.parametrize("how", ["gather", "group", "background"])
def test_a_plain_step_that_waits_in_a_branch_parks_the_run(looped: Looped, far: Far, how: str) -> None:
    @holdfast.step(retry=Retry(attempts=2, first=3600))
    def flaky() -> None:
        far.do("flaky")
        raise OSError("down")

    async def branch() -> None:
        flaky()

    @holdfast.task
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

    async def body(hf: AsyncHoldfast) -> None:
        await hf.start(job, id="r")
        await hf.serve([job], until_idle=True)
        info = await hf.run_info("r")
        assert (info.status, info.waiting) == (RunStatus.SLEEPING, "flaky#1.1 to be tried again")

    looped(body)
    assert far.times("flaky") == 1


@pytest.mark.promise("X23")
def test_a_branch_that_is_behind_after_a_restart_is_undone_too(looped: Looped, far: Far) -> None:
    def refund(value: str) -> None:
        far.do("refund")

    @holdfast.step(undo=refund)
    async def charge() -> str:
        return far.do("charge")

    @holdfast.step
    async def fails() -> None:
        await asyncio.sleep(0.2)
        raise BookingError("LH400", 17)

    async def behind() -> None:
        await asyncio.sleep(0.05)  # an await that is no step, and takes its time again
        await charge()

    @holdfast.task
    async def job() -> None:
        await asyncio.gather(behind(), fails())

    async def dying(hf: AsyncHoldfast) -> None:
        with pytest.raises(Killed):
            await hf.run(job, id="r")

    async def again(hf: AsyncHoldfast) -> None:
        with pytest.raises(BookingError):
            await hf.run(job, id="r")

    far.die = "before refund"
    looped(dying)
    looped(again)
    assert [what for what, _ in far.done] == ["charge", "refund"]


def test_a_plain_run_whose_waiter_left_stays_owned_until_its_step_has_ended(looped: Looped) -> None:
    calls: list[float] = []

    @holdfast.step
    def slow() -> int:
        calls.append(time.monotonic())
        time.sleep(0.5)
        return 1

    @holdfast.task
    def job() -> str:
        slow()
        return "ok"

    async def body(hf: AsyncHoldfast) -> str:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hf.run(job, id="r"), 0.1)
        return str(await hf.run(job, id="r"))

    assert looped(body) == "ok"
    assert len(calls) == 1


@pytest.mark.parametrize("how", ["finally", "wrapped", "swallowed"])
def test_code_that_gets_in_the_way_of_a_wait_changes_nothing(hf: Holdfast, far: Far, how: str) -> None:
    @holdfast.step(undo=lambda value: far.do("undo"))
    def charge() -> str:
        return far.do("charge")

    @holdfast.task
    def job() -> Any:
        charge()
        try:
            return holdfast.ask("ok?")
        except BaseException as error:
            if how == "wrapped":
                raise RuntimeError("wrapped") from error
            if how == "swallowed":
                return "partial"
            raise
        finally:
            if how == "finally" and far.times("late") == 0:
                far.do("late")
                raise KeyError("clean-up that fails")

    with pytest.raises(RunParked):
        hf.run(job, id="answered")
    with pytest.raises(RunParked):
        hf.run(job, id="cancelled")
    assert far.times("undo") == 0
    hf.answer("answered", "yes")
    assert hf.resume("answered", job) == "yes"
    hf.cancel("cancelled")
    with pytest.raises(RunCancelled):
        hf.resume("cancelled", job)
    assert far.times("undo") == 1


def test_a_task_that_cancels_itself_has_failed(looped: Looped) -> None:
    @holdfast.task
    async def job() -> None:
        helper = asyncio.create_task(asyncio.sleep(10))
        helper.cancel()
        await helper

    async def body(hf: AsyncHoldfast) -> RunStatus:
        await hf.start(job, id="r")
        await hf.serve([job], until_idle=True)
        return (await hf.run_info("r")).status

    assert looped(body) is RunStatus.FAILED


def test_a_run_that_failed_and_was_killed_while_undoing_has_failed(hf: Holdfast, far: Far) -> None:
    @holdfast.step(undo=lambda value: far.do("undo a"))
    def a() -> str:
        return far.do("a")

    @holdfast.step
    def b() -> str:
        time.sleep(0.8)
        return far.do("b")

    @holdfast.task(deadline=0.6)
    def job() -> None:
        a()
        b()
        b()

    far.die = "before undo a"
    killed(hf, job, id="r")
    with pytest.raises(DeadlineExceeded):
        hf.run(job, id="r")
    assert hf.run_info("r").status is RunStatus.FAILED
    assert [what for what, _ in far.done] == ["a", "b", "undo a"]


def test_a_branch_gets_on_while_another_waits(looped: Looped, far: Far) -> None:
    @holdfast.step
    async def work() -> str:
        return far.do("work")

    async def waits() -> Any:
        return await holdfast.receive("go")

    async def works() -> str:
        await asyncio.to_thread(time.sleep, 0.1)  # an await that is no step
        return await work()

    @holdfast.task
    async def job() -> list[Any]:
        return list(await asyncio.gather(waits(), works()))

    async def body(hf: AsyncHoldfast) -> Any:
        with pytest.raises(RunParked):
            await hf.run(job, id="r")
        assert far.times("work") == 1
        await hf.signal("r", "go", "on")
        return await hf.resume("r", job)

    assert looped(body) == ["on", "work done"]
    assert far.times("work") == 1


@pytest.mark.parametrize("end", ["returns", "fails"])
def test_a_task_that_ends_while_a_branch_of_it_waits_has_ended(looped: Looped, end: str) -> None:
    async def waits() -> Any:
        return await holdfast.receive("never")

    @holdfast.step
    async def fails() -> None:
        await asyncio.sleep(0.05)
        raise BookingError("LH400", 17)

    @holdfast.task
    async def job() -> str:
        if end == "fails":
            await asyncio.gather(waits(), fails())
        beside = asyncio.create_task(waits())
        await asyncio.sleep(0.05)
        return f"done: {beside.done()}"

    async def body(hf: AsyncHoldfast) -> Any:
        if end == "returns":
            assert await hf.run(job, id="r") == "done: False"
        else:
            with pytest.raises(BookingError):
                await hf.run(job, id="r")
        return (await hf.run_info("r")).status

    assert looped(body) is (RunStatus.DONE if end == "returns" else RunStatus.FAILED)


def test_tasks_nest_deeper_than_an_id_is_long(hf: Holdfast) -> None:
    @holdfast.task
    def explore_a_folder(depth: int) -> int:
        return 0 if depth == 0 else 1 + explore_a_folder(depth - 1)

    assert hf.run(explore_a_folder, 40, id="r") == 40


def test_keys_may_look_like_numbers_and_come_in_any_order(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def act(what: str) -> str:
        return far.do(what)

    order = ["order#3", "order#1"]

    @holdfast.task
    def job() -> list[str]:
        got = [act.keyed(key)(key) for key in order]
        holdfast.receive("go")
        return got

    with pytest.raises(RunParked):
        hf.run(job, id="r")
    hf.signal("r", "go")
    order.reverse()
    assert hf.resume("r", job) == ["order#1 done", "order#3 done"]
    assert len(far.done) == 2


def test_what_is_done_is_written_when_the_code_leaves_in_its_own_way(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def act() -> str:
        return far.do("act")

    @holdfast.task
    def job() -> str:
        said = act()
        if far.times("interrupt") == 0:
            far.do("interrupt")
            raise KeyboardInterrupt
        return said

    with pytest.raises(KeyboardInterrupt):
        hf.run(job, id="r")
    assert hf.run(job, id="r") == "act done"
    assert far.times("act") == 1


def test_a_blocking_wait_for_a_sleeping_run_does_not_execute_it_again_and_again(tmp_path: Path) -> None:
    @holdfast.task
    def nap() -> str:
        holdfast.sleep(2.5)
        return "awake"

    with holdfast.open(tmp_path / "a.db") as hf:
        hf._core._engine.patience = 0
        assert hf.run(nap, id="r") == "awake"
        assert [event.type for event in hf.session("r").events()].count("run.parked") == 1


def test_ids_of_holdfasts_own_sessions_are_refused(hf: Holdfast) -> None:
    @holdfast.task
    def job() -> int:
        return 1

    for name in ("state:plan", "schedule:nightly"):
        with pytest.raises(InvalidInput, match="cannot be a run"):
            hf.run(job, id=name)
