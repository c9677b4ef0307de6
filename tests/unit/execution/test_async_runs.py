"""Async tasks on both handles: branches run, wait and fail independently, and resume with their own results."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

import duramen
from duramen import AsyncDuramen, Duramen, RunStatus
from duramen.errors import InvalidInput, RunParked, StepTimeout
from duramen.execution.engine.run_journal import RunJournal
from duramen.journal.encoder import Prepared
from duramen.testing.clock import FakeClock

calls: Counter[str] = Counter()
threads: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _clear_calls() -> None:
    calls.clear()
    threads.clear()


def run_async(body: Callable[[AsyncDuramen, FakeClock], Awaitable[None]]) -> None:
    """Run a body with a handle on an event loop, for at most ten seconds. Waits park at once."""

    async def main() -> None:
        clock = FakeClock()
        dm = await duramen.aopen("memory:", clock=clock)
        dm._engine.patience = 0
        try:
            await asyncio.wait_for(body(dm, clock), 10)
        finally:
            await dm.close()

    asyncio.run(main())


def open_blocking(clock: FakeClock | None = None) -> Duramen:
    """A blocking handle whose waits park at once."""
    dm = duramen.open("memory:", clock=clock or FakeClock())
    dm._core._engine.patience = 0
    return dm


@duramen.step
async def fetch(name: Any, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    calls[f"fetch {name}"] += 1
    return f"<{name}>"


@duramen.step
async def save(text: str) -> str:
    calls[f"save {text}"] += 1
    return f"saved {text}"


@duramen.step
def note(text: str) -> str:
    calls[f"note {text}"] += 1
    threads[text] = threading.current_thread().name
    return text.upper()


async def wait_for_signal(name: str = "go") -> Any:
    return await duramen.receive(name)


# -- branches


@duramen.task
async def three_at_once() -> list[str]:
    return list(await asyncio.gather(fetch("a", 0.03), fetch("b", 0.02), fetch("c", 0.01)))


@pytest.mark.promise("X2", "X3")
def test_gathered_steps_run_concurrently_and_replay_in_order() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        assert await dm.run(three_at_once, id="r") == ["<a>", "<b>", "<c>"]
        assert await dm.replay("r") == ["<a>", "<b>", "<c>"]
        assert await dm.run(three_at_once, id="r") == ["<a>", "<b>", "<c>"]

    run_async(body)
    assert set(calls.values()) == {1}


@duramen.task
async def one_branch_waits() -> list[Any]:
    return list(await asyncio.gather(fetch("a", 0.02), fetch("b"), wait_for_signal()))


@pytest.mark.promise("X3", "X15")
def test_outcomes_of_other_branches_are_stored_while_one_waits() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        with pytest.raises(RunParked, match="signal 'go'"):
            await dm.run(one_branch_waits, id="r")
        assert (await dm.run_info("r")).status is RunStatus.WAITING
        assert calls == {"fetch a": 1, "fetch b": 1}
        await dm.signal("r", "go", 7)
        assert await dm.resume("r") == ["<a>", "<b>", 7]

    run_async(body)
    assert calls == {"fetch a": 1, "fetch b": 1}


@pytest.mark.promise("X3", "X15")
def test_outcomes_of_other_branches_are_stored_on_the_blocking_handle() -> None:
    with open_blocking() as dm:
        with pytest.raises(RunParked, match="signal 'go'"):
            dm.run(one_branch_waits, id="r")
        info = dm.run_info("r")
        assert (info.status, info.in_doubt) == (RunStatus.WAITING, [])
        dm.signal("r", "go", 7)
        assert dm.resume("r") == ["<a>", "<b>", 7]
    assert calls == {"fetch a": 1, "fetch b": 1}


@duramen.task
async def grouped() -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in (fetch("a", 0.02), fetch("b"), wait_for_signal())]
    return [task.result() for task in tasks]


@pytest.mark.promise("X3", "X15")
@pytest.mark.parametrize("by_worker", [False, True])
def test_a_task_group_can_wait_like_gather(by_worker: bool) -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        await dm.start(grouped, id="r")
        if by_worker:
            assert await dm.work([grouped], until_idle=True) == 1
        else:
            with pytest.raises(RunParked, match="signal 'go'"):
                await dm.resume("r")
        info = await dm.run_info("r")
        assert (info.status, info.in_doubt) == (RunStatus.WAITING, [])
        await dm.signal("r", "go", 7)
        assert await dm.resume("r") == ["<a>", "<b>", 7]

    run_async(body)
    assert calls == {"fetch a": 1, "fetch b": 1}


@duramen.task
async def work_while_waiting() -> list[Any]:
    async def work() -> list[str]:
        return [await save(await fetch(name)) for name in "abc"]

    return list(await asyncio.gather(wait_for_signal(), work()))


@pytest.mark.promise("X15")
def test_other_branches_continue_while_one_waits() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        with pytest.raises(RunParked):
            await dm.run(work_while_waiting, id="r")
        assert len(calls) == 6
        await dm.signal("r", "go", 7)
        assert await dm.resume("r") == [7, ["saved <a>", "saved <b>", "saved <c>"]]

    run_async(body)
    assert set(calls.values()) == {1}


@duramen.task
async def two_pipelines(slow: float, fast: float) -> list[Any]:
    async def pipeline(name: str, seconds: float) -> list[str]:
        return [name, await save(await fetch(name, seconds))]

    both = await asyncio.gather(pipeline("a", slow), pipeline("b", fast))
    await duramen.receive("go")
    return list(both)


@pytest.mark.promise("X2", "X3", "X20")
def test_replay_gives_each_branch_its_own_results_at_any_speed() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        await dm.start(two_pipelines, 0.05, 0.0, id="r")
        with pytest.raises(RunParked):
            await dm.resume("r")
        await dm.signal("r", "go")
        assert await dm.resume("r") == [["a", "saved <a>"], ["b", "saved <b>"]]

    run_async(body)
    assert set(calls.values()) == {1}


@duramen.task
async def one_branch_fails() -> str:
    async def fail() -> None:
        await fetch("a")
        raise ValueError("no")

    try:
        await asyncio.gather(fail(), fetch("b", 0.02))
    except ValueError:
        await duramen.receive("go")
    return await fetch("c")


@pytest.mark.promise("X3")
def test_a_caught_branch_failure_does_not_discard_other_outcomes() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        with pytest.raises(RunParked):
            await dm.run(one_branch_fails, id="r")
        await dm.signal("r", "go")
        assert await dm.resume("r") == "<c>"

    run_async(body)
    assert calls == {"fetch a": 1, "fetch b": 1, "fetch c": 1}


@duramen.task
async def two_questions() -> list[Any]:
    return list(await asyncio.gather(duramen.ask("first?"), duramen.ask("second?")))


@pytest.mark.promise("X15")
def test_two_open_questions_get_two_answers() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        with pytest.raises(RunParked):
            await dm.run(two_questions, id="r")
        await dm.answer("r", "one")
        await dm.answer("r", "two")
        assert await dm.resume("r") == ["one", "two"]

    run_async(body)


@duramen.task
async def concurrent_sleeps() -> str:
    async def nap(seconds: float, name: str) -> str:
        await duramen.sleep(seconds)
        return await fetch(name)

    return "".join(await asyncio.gather(nap(10, "a"), nap(20, "b")))


@pytest.mark.promise("X14")
def test_concurrent_sleeps_end_at_their_own_times() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        await dm.start(concurrent_sleeps, id="r")
        for seconds, expected in ((9, {}), (2, {"fetch a": 1}), (8, {"fetch a": 1}), (2, {"fetch a": 1, "fetch b": 1})):
            await dm.work([concurrent_sleeps], until_idle=True)
            clock.advance(seconds)
            await dm.work([concurrent_sleeps], until_idle=True)
            assert calls == expected
        assert await dm.handle("r").result(0) == "<a><b>"

    run_async(body)


# -- cancelling and timeouts


@duramen.task
async def cancel_own_step() -> str:
    try:
        await asyncio.wait_for(fetch("slow", 5), 0.02)
    except TimeoutError:
        return "timed out"
    return "done"


@pytest.mark.promise("X4")
@pytest.mark.parametrize("on_loop", [True, False])
def test_cancelling_a_step_from_task_code_is_refused_with_a_hint(on_loop: bool) -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        with pytest.raises(InvalidInput, match=r"code cancelled step.*\n.*timeout="):
            await dm.run(cancel_own_step, id="r")
        info = await dm.run_info("r")
        assert (info.status, info.in_doubt) == (RunStatus.CRASHED, ["fetch#1"])

    if on_loop:
        run_async(body)
        return
    with open_blocking() as dm:
        with pytest.raises(InvalidInput, match="code cancelled step"):
            dm.run(cancel_own_step, id="r")
        assert dm.run_info("r").in_doubt == ["fetch#1"]


@duramen.step(timeout=0.03)
async def too_slow(seconds: float) -> str:
    calls["too_slow"] += 1
    await asyncio.sleep(seconds)
    return "in time"


@duramen.step(timeout=0.03, retry=duramen.Retry(attempts=3, first=60))
async def slow_at_first() -> str:
    calls["slow_at_first"] += 1
    if calls["slow_at_first"] < 3:
        await asyncio.sleep(5)
    return "third time"


@duramen.task
async def with_timeouts() -> list[str]:
    caught = "nothing"
    try:
        await too_slow(5)
    except StepTimeout as error:
        caught = error.step
    return [await too_slow(0), caught, await slow_at_first()]


@pytest.mark.promise("X12")
def test_a_timed_out_step_is_retried_later() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        await dm.start(with_timeouts, id="r")
        for _ in range(3):
            await dm.work([with_timeouts], until_idle=True)
            clock.advance(200)
        assert await dm.handle("r").result(0) == ["in time", "too_slow", "third time"]
        assert await dm.replay("r") == ["in time", "too_slow", "third time"]

    run_async(body)
    assert calls == {"too_slow": 2, "slow_at_first": 3}


def test_a_run_can_be_resumed_after_its_caller_was_cancelled() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        await dm.start(abandoned, id="r")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(dm.resume("r"), 0.05)
        info = await dm.run_info("r")
        assert (info.status, info.in_doubt, calls["first"]) == (RunStatus.CRASHED, ["sometimes_slow#1"], 1)
        assert await dm.resume("r") == "second"

    run_async(body)


@duramen.step
async def sometimes_slow() -> str:
    calls["first"] += 1
    await asyncio.sleep(5 if calls["first"] == 1 else 0)
    return "second"


@duramen.task
async def abandoned() -> str:
    return await sometimes_slow()


@pytest.fixture
def slow_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storing an outcome takes 0.1 s."""
    append = RunJournal._append

    async def slowly(self: RunJournal, events: Sequence[Prepared], **options: Any) -> None:
        if any(event.draft.type == "step.done" for event in events):
            await asyncio.sleep(0.1)
        await append(self, events, **options)

    monkeypatch.setattr(RunJournal, "_append", slowly)


@duramen.task
async def give_up(what: str) -> str:
    """Gives up while the outcome is being stored."""
    try:
        async with asyncio.timeout(0.05):
            value = await (fetch("x") if what == "step" else duramen.receive("go"))
    except TimeoutError:
        value = "timed out"
    return value + await fetch("after")


@pytest.mark.promise("X29")
@pytest.mark.usefixtures("slow_outcomes")
@pytest.mark.parametrize("what", ["step", "signal"])
def test_cancelling_while_an_outcome_is_stored_has_no_effect(what: str) -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        await dm.start(give_up, what, id="r")
        await dm.signal("r", "go", "<x>")
        assert await dm.resume("r") == "<x><after>"
        assert await dm.replay("r") == "<x><after>"
        done = [event.data["step"] async for event in dm.session("r").events(types="step.done")]
        assert done == ["fetch#1" if what == "step" else "@signal go#1", f"fetch#{1 + (what == 'step')}"]

    run_async(body)
    assert calls["fetch after"] == 1


@pytest.mark.promise("X29")
@pytest.mark.usefixtures("slow_outcomes")
def test_a_step_that_finishes_while_its_caller_is_cancelled_is_recorded() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        await dm.start(give_up, "step", id="r")
        for _ in range(2):  # the first outcome, then the second
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(dm.resume("r"), 0.02)
            info = await dm.run_info("r")
            assert (info.status, info.in_doubt) == (RunStatus.CRASHED, [])
        assert await dm.resume("r") == "<x><after>"

    run_async(body)
    assert calls == {"fetch x": 1, "fetch after": 1}


# -- plain steps, threads and handles


@duramen.task
async def mixed() -> list[Any]:
    first = note("plain")
    second = await fetch("async", 0.01)
    third, fourth = await asyncio.gather(fetch("a", 0.01), note_in_branch())
    return [first, second, third, fourth]


async def note_in_branch() -> str:
    return note("branch")


@pytest.mark.promise("X3")
def test_plain_steps_in_an_async_task_run_on_its_loop() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        assert await dm.run(mixed, id="r") == ["PLAIN", "<async>", "<a>", "BRANCH"]
        assert await dm.replay("r") == ["PLAIN", "<async>", "<a>", "BRANCH"]
        assert threads == dict.fromkeys(["plain", "branch"], threading.current_thread().name)

    run_async(body)
    assert set(calls.values()) == {1}


@pytest.mark.promise("X3")
def test_async_tasks_run_on_the_blocking_handle() -> None:
    with open_blocking() as dm:
        assert dm.run(mixed, id="r") == ["PLAIN", "<async>", "<a>", "BRANCH"]
        dm.start(three_at_once, id="s")
        assert dm.work([three_at_once], until_idle=True) == 1
        assert dm.handle("s").result(0) == ["<a>", "<b>", "<c>"]
        assert dm.replay("r") == ["PLAIN", "<async>", "<a>", "BRANCH"]
    assert calls["note plain"] == calls["fetch async"] == 1


def test_the_blocking_handle_refuses_async_tasks_inside_a_running_loop() -> None:
    with open_blocking() as dm:

        async def inside() -> None:
            dm.run(mixed, id="r")

        with pytest.raises(InvalidInput, match="aopen"):
            asyncio.run(inside())
        assert dm.run(mixed, id="r") == ["PLAIN", "<async>", "<a>", "BRANCH"]


@duramen.task
def plain_task(name: str) -> str:
    return note(name)


@pytest.mark.promise("X17")
def test_plain_tasks_are_executed_on_threads_not_on_the_loop() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        handles = [await dm.start(plain_task, f"n{number}", id=f"r{number}") for number in range(5)]
        assert await dm.work([plain_task], until_idle=True) == 5
        assert [await handle.result(0) for handle in handles] == [f"N{number}" for number in range(5)]
        assert threading.current_thread().name not in threads.values()

    run_async(body)
    assert set(calls.values()) == {1}


@duramen.task
async def many_steps(number: int) -> int:
    for index in range(3):
        await fetch(f"{number}.{index}", 0.001)
    return number


@pytest.mark.promise("X16", "X17")
@pytest.mark.parametrize("address", ["memory:", "agent.db"])
def test_64_concurrent_runs_in_one_loop_execute_each_step_once(
    address: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        async with await duramen.aopen(address) as one, await duramen.aopen(address) as other:
            serving = [one, other] if address != "memory:" else [one]
            handles = [await one.start(many_steps, number, id=f"r{number}") for number in range(64)]
            executed = await asyncio.gather(*(dm.work([many_steps], until_idle=True) for dm in serving))
            assert [await handle.result(10) for handle in handles] == list(range(64))
            assert sum(executed) == 64

    asyncio.run(asyncio.wait_for(main(), 30))
    assert len(calls) == 192
    assert set(calls.values()) == {1}


# -- where steps can be called


@duramen.task
def call_from_a_thread() -> str:
    import contextvars

    caught: list[BaseException] = []
    context = contextvars.copy_context()

    def body() -> None:
        try:
            context.run(note, "elsewhere")
        except InvalidInput as error:
            caught.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return str(caught[0])


def test_a_step_called_from_another_thread_is_refused_in_a_plain_task() -> None:
    with open_blocking() as dm:
        assert "asyncio.gather" in dm.run(call_from_a_thread)
    assert not calls


@duramen.task
async def call_from_to_thread() -> str:
    return await asyncio.to_thread(note, "elsewhere")


def test_a_step_called_from_another_thread_is_refused_in_an_async_task() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        with pytest.raises(InvalidInput, match="from another thread"):
            await dm.run(call_from_to_thread)

    run_async(body)
    assert not calls


@pytest.mark.parametrize("declare", [duramen.step, duramen.task])
def test_generator_steps_and_tasks_are_refused_at_declaration(declare: Any) -> None:
    def plain() -> Any:
        yield 1

    async def asynchronous() -> Any:
        yield 1

    for function in (plain, asynchronous):
        with pytest.raises(InvalidInput, match=r"duramen\.emit"):
            declare(function)


def test_an_async_step_in_a_plain_task_is_refused() -> None:
    @duramen.task
    def wrong() -> Any:
        return fetch("a")

    with open_blocking() as dm, pytest.raises(InvalidInput, match="make the task async"):
        dm.run(wrong)


@duramen.step
async def outer() -> list[str]:
    return [note("inner"), await fetch("inner"), *await asyncio.gather(fetch("x"), fetch("y"))]


@duramen.task
async def nested() -> list[str]:
    return await outer()


@pytest.mark.promise("X3")
def test_a_step_called_inside_a_step_is_not_journaled() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        assert await dm.run(nested, id="r") == ["INNER", "<inner>", "<x>", "<y>"]
        assert [one.step for one in (await dm.run_info("r")).steps] == ["outer#1"]
        assert await outer() == ["INNER", "<inner>", "<x>", "<y>"]

    run_async(body)
    assert set(calls.values()) == {2}


# -- keyed steps


@duramen.step
async def tool(name: str, *, key: str) -> list[str]:
    calls[f"tool {name}"] += 1
    return [name, key]


@duramen.task
async def tools(order: list[str]) -> list[Any]:
    results = [await tool.keyed(f"call#{name}")(name) for name in order]
    return [*results, await wait_for_signal()]


@pytest.mark.promise("X3")
def test_a_keyed_step_runs_once_per_key() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        with pytest.raises(RunParked):
            await dm.run(tools, ["a", "b", "a"], id="r")
        await dm.signal("r", "go")
        expected = [["a", "call#a"], ["b", "call#b"], ["a", "call#a"], None]
        assert await dm.resume("r") == expected
        assert await dm.replay("r") == expected

    run_async(body)
    assert calls == {"tool a": 1, "tool b": 1}


@duramen.task
async def same_key_at_once() -> list[Any]:
    return list(await asyncio.gather(counted.keyed("k")(), counted.keyed("k")(), counted.keyed("other")()))


@duramen.step
async def counted() -> int:
    await asyncio.sleep(0.01)
    calls["counted"] += 1
    return calls["counted"]


@pytest.mark.promise("X3")
def test_two_branches_with_the_same_key_run_the_step_once() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        one, two, other = await dm.run(same_key_at_once, id="r")
        assert one == two != other
        assert await dm.replay("r") == [one, two, other]

    run_async(body)
    assert calls == {"counted": 2}


@duramen.step
async def fails_at_first() -> int:
    calls["fails_at_first"] += 1
    if calls["fails_at_first"] == 1:
        raise ValueError("not yet")
    return calls["fails_at_first"]


@duramen.task
async def retry_by_hand() -> list[int]:
    failures = 0
    for _ in range(3):
        try:
            return [await fails_at_first.keyed("k")(), failures]
        except ValueError:
            failures += 1
    return [0, failures]


@pytest.mark.promise("X21")
def test_a_keyed_step_that_failed_replays_identically() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        assert await dm.run(retry_by_hand, id="r") == await dm.replay("r")

    run_async(body)


# -- children


@duramen.task
async def child(name: str) -> str:
    return await save(await fetch(name) + str(await duramen.receive("go", timeout=50, default="-")))


@duramen.task
async def family() -> list[str]:
    handle = await child.start("b")
    first = await asyncio.gather(child("a"), fetch("own"))
    return [*first, await handle.result()]


@pytest.mark.promise("X26")
def test_inline_and_started_children_return_their_results_once() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        tasks = [family, child]
        await dm.start(family, id="r")
        await dm.work(tasks, until_idle=True)
        assert calls == {"fetch a": 1, "fetch b": 1, "fetch own": 1}
        one = next(info.id for info in await dm.runs(task="child") if info.id.endswith("s") or "-1s-" in info.id)
        await dm.signal(one, "go", "!")
        clock.advance(51)
        for _ in range(3):
            await dm.work(tasks, until_idle=True)
        assert await dm.handle("r").result(0) == ["saved <a>-", "<own>", "saved <b>!"]
        assert await dm.replay("r", family) == ["saved <a>-", "<own>", "saved <b>!"]

    run_async(body)
    assert set(calls.values()) == {1}


# -- shared state


@pytest.mark.promise("M1")
def test_concurrent_state_updates_lose_nothing() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        async def add() -> None:
            for _ in range(5):
                await dm.state("count").update(lambda value: value + 1, default=0)

        await asyncio.gather(*(add() for _ in range(8)))
        assert await dm.state("count").get() == duramen.Versioned(40, 40)
        assert [await dm.state("count").at(version) for version in (1, 20, 40)] == [1, 20, 40]

    run_async(body)


@pytest.mark.promise("M1", "M3")
def test_a_stale_state_update_is_refused_or_merged() -> None:
    async def body(dm: AsyncDuramen, clock: FakeClock) -> None:
        state = dm.state("plan")
        await state.set(["base"], expected=0)
        seen = await state.get()
        await state.set(["base", "theirs"], expected=seen.version, key="theirs")
        with pytest.raises(duramen.errors.StateConflict) as caught:
            await state.set(["base", "mine"], expected=seen.version)
        assert (caught.value.expected, caught.value.actual) == (1, 2)
        assert await state.set(["base", "theirs"], expected=seen.version, key="theirs") == 2
        merged = await state.merge(["base", "mine"], seen, lambda base, theirs, mine: [*theirs, *mine[len(base) :]])
        assert merged == (["base", "theirs", "mine"], 3)
        assert await state.get() == merged

    run_async(body)
