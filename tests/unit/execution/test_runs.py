"""Runs and steps: when events are journaled, and which steps run again after a kill."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from programs.side_effects import BookingError, Killed, SideEffects, event_types, run_until_killed

import duramen
from duramen import Duramen, Retry, RunStatus
from duramen.errors import RunFailed, RunParked, UnknownType


# -- steps
@pytest.mark.promise("X1")
def test_a_step_records_its_intent_before_it_acts_and_its_outcome_after(dm: Duramen) -> None:
    seen: list[list[str]] = []

    @duramen.step
    def look() -> int:
        seen.append(event_types(dm, "r"))
        return 7

    @duramen.task
    def once() -> int:
        return look() + 1

    assert dm.run(once, id="r") == 8
    assert seen == [["run.started", "step.started"]], "the intent is stored before the step acts"
    assert event_types(dm, "r") == ["run.started", "step.started", "step.done", "run.finished"]


@pytest.mark.promise("X2", "X3")
def test_a_killed_run_continues_at_the_step_it_was_killed_in(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def act(number: int) -> str:
        return effects.do(f"step {number}")

    @duramen.task
    def many() -> list[str]:
        return [act(number) for number in range(25)]

    effects.die = "before step 18"
    run_until_killed(dm, many, id="r")
    assert dm.run_info("r").status is RunStatus.CRASHED
    assert dm.run(many, id="r") == [f"step {number} done" for number in range(25)]
    assert [what for what, _ in effects.done] == [f"step {number}" for number in range(25)], (
        "each step ran once, in order"
    )


def test_a_finished_run_returns_its_stored_result(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def act() -> str:
        return effects.do("it")

    @duramen.task
    def job() -> dict[str, Any]:
        return {"outcome": act(), "pair": (1, 2)}

    first = dm.run(job, id="r")
    assert dm.run(job, id="r") == first == {"outcome": "it done", "pair": (1, 2)}
    assert dm.resume("r") == first
    assert effects.times("it") == 1
    assert dm.runs(status="done")[0].id == "r"


def test_steps_and_tasks_outside_a_run_are_plain_functions(effects: SideEffects) -> None:
    @duramen.step
    def act(what: str, *, key: str) -> str:
        return effects.do(what, key)

    @duramen.task
    def job() -> str:
        return act("it")

    assert job() == "it done"
    assert len(effects.done[0][1]) == 32, "a key was generated"
    assert act("that", key="mine") == "that done"
    assert effects.done[1] == ("that", "mine")


def test_a_step_result_is_the_same_before_and_after_a_restart(dm: Duramen) -> None:
    results = []

    @duramen.step
    def give() -> Any:
        return {"list": [1, 2], "tuple": (3,), "set": {4}}

    @duramen.task
    def job() -> None:
        value = give()
        results.append(copy.deepcopy(value))
        value["list"].append("changed later")
        duramen.receive("go")

    with pytest.raises(RunParked):
        dm.run(job, id="r")
    dm.signal("r", "go")
    dm.resume("r")
    assert results[1] == {"list": [1, 2], "tuple": (3,), "set": {4}}
    assert results[0]["tuple"] == (3,)


def test_a_result_that_cannot_be_stored_fails_the_step(dm: Duramen) -> None:
    @duramen.step
    def odd() -> Any:
        return object()

    @duramen.task
    def job() -> None:
        odd()

    with pytest.raises(UnknownType, match=r"object at \$\.value"):
        dm.run(job, id="r")
    assert dm.run_info("r").status is RunStatus.FAILED


def test_each_call_is_its_own_step_unless_calls_share_a_key(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def act(what: str, *, key: str) -> str:
        return effects.do(what, key)

    @duramen.task
    def job() -> list[str]:
        return [act("a"), act("a"), act.keyed("call-1")("b"), act.keyed("call-1")("b"), act("c", key="call-2")]

    dm.run(job, id="r")
    assert [what for what, _ in effects.done] == ["a", "a", "b", "c"]
    keys = [key for _, key in effects.done]
    assert keys[0] != keys[1]
    assert keys[2:] == ["call-1", "call-2"]


def test_a_nested_step_is_part_of_the_outer_step(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def inner() -> str:
        return effects.do("inner")

    @duramen.step
    def outer() -> str:
        return inner()

    @duramen.task
    def job() -> str:
        return outer()

    assert dm.run(job, id="r") == "inner done"
    assert [one.step for one in dm.run_info("r").steps] == ["outer#1"]


# -- failures
def test_a_failed_step_raises_the_same_error_after_a_restart(dm: Duramen, effects: SideEffects) -> None:
    caught: list[Any] = []

    @duramen.step
    def book() -> None:
        effects.do("book")
        raise BookingError("LH400", 17)

    @duramen.task
    def job() -> str:
        try:
            book()
        except BookingError as error:
            caught.append((str(error), error.flight, error.code))
        return duramen.receive("go")

    with pytest.raises(RunParked):
        dm.run(job, id="r")
    dm.signal("r", "go", "on")
    assert dm.resume("r") == "on"
    assert caught == [("LH400 cannot be booked", "LH400", 17)] * 2
    assert effects.times("book") == 1


def test_a_failed_run_raises_its_error_again(dm: Duramen) -> None:
    @duramen.task
    def job() -> None:
        raise BookingError("LH400", 17)

    with pytest.raises(BookingError):
        dm.run(job, id="r")
    with pytest.raises(BookingError, match="LH400 cannot"):
        dm.run(job, id="r")
    assert dm.run_info("r").status is RunStatus.FAILED


def test_an_error_whose_class_is_unknown_is_raised_as_run_failed(dm: Duramen) -> None:
    def make() -> type[Exception]:
        class Local(Exception):
            pass

        return Local

    local = make()

    @duramen.task
    def job() -> None:
        raise local("no seats")

    with pytest.raises(local):
        dm.run(job, id="r")
    with pytest.raises(RunFailed, match="no seats") as failed:
        dm.run(job, id="r")
    assert "Local" in failed.value.kind


@pytest.mark.promise("X12")
def test_a_failed_step_is_retried_without_repeating_earlier_steps(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def before() -> None:
        effects.do("before")

    @duramen.step(retry=Retry(attempts=3, first=0.001, jitter=0))
    def flaky() -> str:
        effects.do("flaky")
        if effects.times("flaky") < 3:
            raise TimeoutError("slow")
        return "done"

    @duramen.task
    def job() -> str:
        before()
        return flaky()

    dm._core._engine.patience = 5
    assert dm.run(job, id="r") == "done"
    assert (effects.times("before"), effects.times("flaky")) == (1, 3)
    failed = [event.data for event in dm.session("r").events(types="step.failed")]
    assert [one.get("attempt", 1) for one in failed] == [1, 2]
    assert all(one["error"]["type"] == "TimeoutError" for one in failed)


def test_only_declared_errors_are_retried(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step(retry=Retry(attempts=5, first=0, on=(TimeoutError,)))
    def wrong() -> None:
        effects.do("wrong")
        raise ValueError("never right")

    @duramen.task
    def job() -> None:
        wrong()

    with pytest.raises(ValueError, match="never right"):
        dm.run(job, id="r")
    assert effects.times("wrong") == 1


@pytest.mark.promise("X25")
def test_a_task_can_fall_back_to_another_provider(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step(retry=Retry(attempts=2, first=0))
    def first_model(prompt: str) -> str:
        effects.do("first")
        raise ConnectionError("overloaded")

    @duramen.step
    def second_model(prompt: str) -> str:
        return effects.do("second")

    @duramen.task
    def agent(prompt: str) -> str:
        try:
            return first_model(prompt)
        except ConnectionError:
            return second_model(prompt)

    effects.die = "before second"
    run_until_killed(dm, agent, "hello", id="r")
    assert dm.run(agent, "hello", id="r") == "second done"
    assert (effects.times("first"), effects.times("second")) == (2, 1)


# -- memory, progress and output
@pytest.mark.promise("X11")
@pytest.mark.parametrize("die", ["before act", "after act", "after later", None])
def test_a_memory_is_stored_once_and_only_if_its_step_is_done(
    dm: Duramen, effects: SideEffects, die: str | None
) -> None:
    @duramen.step
    def act() -> None:
        duramen.remember("Prefers aisle seats", kind="preference")
        effects.do("act")

    @duramen.step
    def later() -> None:
        effects.do("later")

    @duramen.task
    def job() -> None:
        act()
        later()

    def memories() -> list[str]:
        return [event.data["content"] for event in dm.session("r").events(types="memory.added")]

    effects.die = die
    if die is not None:
        run_until_killed(dm, job, id="r")
        done = [one.step for one in dm.run_info("r").steps if one.finished]
        assert len(memories()) == ("act#1" in done)
    dm.run(job, id="r")
    assert memories() == ["Prefers aisle seats"]


@pytest.mark.promise("X19")
def test_a_long_step_continues_from_its_last_report(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def long() -> int:
        start = duramen.reported(0)
        for number in range(start, 6):
            effects.do(f"part {number}")
            duramen.report(number + 1)
        return 6

    @duramen.task
    def job() -> int:
        return long()

    effects.die = "after part 3"
    run_until_killed(dm, job, id="r")
    assert dm.run(job, id="r") == 6
    parts = [what for what, _ in effects.done]
    assert parts == [f"part {number}" for number in (0, 1, 2, 3, 3, 4, 5)], (
        "only the part after the last report is repeated"
    )


def test_streamed_output_is_not_duplicated_when_the_step_reruns(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step(retry=Retry(attempts=2, first=0))
    def stream() -> None:
        for number in range(5):
            duramen.emit(f"chunk {number}")
            if number == 2:
                effects.do("half")
                if effects.times("half") <= 2:
                    raise (Killed() if effects.times("half") == 1 else TimeoutError("cut"))

    @duramen.task
    def job() -> None:
        stream()

    run_until_killed(dm, job, id="r")
    dm._core._engine.patience = 5
    dm.run(job, id="r")
    outputs = [event.data["value"] for event in dm.session("r").events(types="step.output")]
    assert outputs == [f"chunk {number}" for number in range(5)]
