"""Runs and steps: what is journaled when, what runs again and what does not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from programs.faroff import BookingError, Far, Killed, killed, types

import holdfast
from holdfast import Holdfast, Retry, RunStatus
from holdfast.errors import (
    RunFailed,
    RunParked,
    UnknownType,
)


# -- the way of a step
@pytest.mark.promise("X1")
def test_intent_effect_outcome_in_this_order(hf: Holdfast) -> None:
    seen: list[list[str]] = []

    @holdfast.step
    def look() -> int:
        seen.append(types(hf, "r"))
        return 7

    @holdfast.task
    def once() -> int:
        return look() + 1

    assert hf.run(once, id="r") == 8
    assert seen == [["run.started", "step.started"]], "the intent is durable when the step acts"
    assert types(hf, "r") == ["run.started", "step.started", "step.done", "run.finished"]


@pytest.mark.promise("X2", "X3")
def test_a_killed_run_goes_on_at_the_step_that_it_died_in(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def act(number: int) -> str:
        return far.do(f"step {number}")

    @holdfast.task
    def many() -> list[str]:
        return [act(number) for number in range(25)]

    far.die = "before step 18"
    killed(hf, many, id="r")
    assert hf.run_info("r").status is RunStatus.CRASHED
    assert hf.run(many, id="r") == [f"step {number} done" for number in range(25)]
    assert [what for what, _ in far.done] == [f"step {number}" for number in range(25)], "each once, in order"


def test_a_finished_run_gives_its_result_again_and_calls_nothing(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def act() -> str:
        return far.do("it")

    @holdfast.task
    def job() -> dict[str, Any]:
        return {"said": act(), "pair": (1, 2)}

    first = hf.run(job, id="r")
    assert hf.run(job, id="r") == first == {"said": "it done", "pair": (1, 2)}
    assert hf.resume("r") == first
    assert far.times("it") == 1
    assert hf.runs(status="done")[0].id == "r"


def test_steps_and_tasks_just_run_outside(far: Far) -> None:
    @holdfast.step
    def act(what: str, *, key: str) -> str:
        return far.do(what, key)

    @holdfast.task
    def job() -> str:
        return act("it")

    assert job() == "it done"
    assert len(far.done[0][1]) == 32, "a key was made up"
    assert act("that", key="mine") == "that done"
    assert far.done[1] == ("that", "mine")


def test_the_result_of_a_step_is_what_a_restart_would_give(hf: Holdfast) -> None:
    results = []

    @holdfast.step
    def give() -> Any:
        return {"list": [1, 2], "tuple": (3,), "set": {4}}

    @holdfast.task
    def job() -> None:
        value = give()
        results.append(copy.deepcopy(value))
        value["list"].append("changed later")
        holdfast.receive("go")

    with pytest.raises(RunParked):
        hf.run(job, id="r")
    hf.signal("r", "go")
    hf.resume("r")
    assert results[1] == {"list": [1, 2], "tuple": (3,), "set": {4}}
    assert results[0]["tuple"] == (3,)


def test_a_result_that_cannot_be_stored_fails_the_step_by_name(hf: Holdfast) -> None:
    @holdfast.step
    def odd() -> Any:
        return object()

    @holdfast.task
    def job() -> None:
        odd()

    with pytest.raises(UnknownType, match=r"object at \$\.value"):
        hf.run(job, id="r")
    assert hf.run_info("r").status is RunStatus.FAILED


def test_two_calls_of_a_step_are_two_steps_and_a_key_makes_them_one(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def act(what: str, *, key: str) -> str:
        return far.do(what, key)

    @holdfast.task
    def job() -> list[str]:
        return [act("a"), act("a"), act.keyed("call-1")("b"), act.keyed("call-1")("b"), act("c", key="call-2")]

    hf.run(job, id="r")
    assert [what for what, _ in far.done] == ["a", "a", "b", "c"]
    keys = [key for _, key in far.done]
    assert keys[0] != keys[1]
    assert keys[2:] == ["call-1", "call-2"]


def test_a_step_inside_a_step_belongs_to_it(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def inner() -> str:
        return far.do("inner")

    @holdfast.step
    def outer() -> str:
        return inner()

    @holdfast.task
    def job() -> str:
        return outer()

    assert hf.run(job, id="r") == "inner done"
    assert [one.step for one in hf.run_info("r").steps] == ["outer#1"]


# -- failures
def test_a_failed_step_fails_in_the_same_way_after_a_restart(hf: Holdfast, far: Far) -> None:
    caught: list[Any] = []

    @holdfast.step
    def book() -> None:
        far.do("book")
        raise BookingError("LH400", 17)

    @holdfast.task
    def job() -> str:
        try:
            book()
        except BookingError as error:
            caught.append((str(error), error.flight, error.code))
        return holdfast.receive("go")

    with pytest.raises(RunParked):
        hf.run(job, id="r")
    hf.signal("r", "go", "on")
    assert hf.resume("r") == "on"
    assert caught == [("LH400 cannot be booked", "LH400", 17)] * 2
    assert far.times("book") == 1


def test_a_failed_run_stays_failed_and_says_why(hf: Holdfast) -> None:
    @holdfast.task
    def job() -> None:
        raise BookingError("LH400", 17)

    with pytest.raises(BookingError):
        hf.run(job, id="r")
    with pytest.raises(BookingError, match="LH400 cannot"):
        hf.run(job, id="r")
    assert hf.run_info("r").status is RunStatus.FAILED


def test_an_error_of_a_class_that_is_gone_has_a_stand_in(hf: Holdfast) -> None:
    def make() -> type[Exception]:
        class Local(Exception):
            pass

        return Local

    local = make()

    @holdfast.task
    def job() -> None:
        raise local("no seats")

    with pytest.raises(local):
        hf.run(job, id="r")
    with pytest.raises(RunFailed, match="no seats") as failed:
        hf.run(job, id="r")
    assert "Local" in failed.value.kind


@pytest.mark.promise("X12")
def test_failures_are_retried_alone_with_growing_pauses(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def before() -> None:
        far.do("before")

    @holdfast.step(retry=Retry(attempts=3, first=0.001, jitter=0))
    def flaky() -> str:
        far.do("flaky")
        if far.times("flaky") < 3:
            raise TimeoutError("slow")
        return "at last"

    @holdfast.task
    def job() -> str:
        before()
        return flaky()

    hf._core._engine.patience = 5
    assert hf.run(job, id="r") == "at last"
    assert (far.times("before"), far.times("flaky")) == (1, 3)
    failed = [event.data for event in hf.session("r").events(types="step.failed")]
    assert [one.get("attempt", 1) for one in failed] == [1, 2]
    assert all(one["error"]["type"] == "TimeoutError" for one in failed)


def test_only_declared_errors_are_retried(hf: Holdfast, far: Far) -> None:
    @holdfast.step(retry=Retry(attempts=5, first=0, on=(TimeoutError,)))
    def wrong() -> None:
        far.do("wrong")
        raise ValueError("never right")

    @holdfast.task
    def job() -> None:
        wrong()

    with pytest.raises(ValueError, match="never right"):
        hf.run(job, id="r")
    assert far.times("wrong") == 1


@pytest.mark.promise("X25")
def test_a_provider_can_be_swapped_in_the_middle(hf: Holdfast, far: Far) -> None:
    @holdfast.step(retry=Retry(attempts=2, first=0))
    def first_model(prompt: str) -> str:
        far.do("first")
        raise ConnectionError("overloaded")

    @holdfast.step
    def second_model(prompt: str) -> str:
        return far.do("second")

    @holdfast.task
    def agent(prompt: str) -> str:
        try:
            return first_model(prompt)
        except ConnectionError:
            return second_model(prompt)

    far.die = "before second"
    killed(hf, agent, "hello", id="r")
    assert hf.run(agent, "hello", id="r") == "second done"
    assert (far.times("first"), far.times("second")) == (2, 1)


# -- memory, progress, output
@pytest.mark.promise("X11")
@pytest.mark.parametrize("die", ["before act", "after act", "after later", None])
def test_what_a_step_remembers_is_there_once_if_it_is_done(hf: Holdfast, far: Far, die: str | None) -> None:
    @holdfast.step
    def act() -> None:
        holdfast.remember("Prefers aisle seats", kind="preference")
        far.do("act")

    @holdfast.step
    def later() -> None:
        far.do("later")

    @holdfast.task
    def job() -> None:
        act()
        later()

    def memories() -> list[str]:
        return [event.data["content"] for event in hf.session("r").events(types="memory.added")]

    far.die = die
    if die is not None:
        killed(hf, job, id="r")
        done = [one.step for one in hf.run_info("r").steps if one.finished]
        assert len(memories()) == ("act#1" in done)
    hf.run(job, id="r")
    assert memories() == ["Prefers aisle seats"]


@pytest.mark.promise("X19")
def test_a_long_step_goes_on_from_what_it_reported(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def long() -> int:
        start = holdfast.reported(0)
        for number in range(start, 6):
            far.do(f"part {number}")
            holdfast.report(number + 1)
        return 6

    @holdfast.task
    def job() -> int:
        return long()

    far.die = "after part 3"
    killed(hf, job, id="r")
    assert hf.run(job, id="r") == 6
    parts = [what for what, _ in far.done]
    assert parts == [f"part {number}" for number in (0, 1, 2, 3, 3, 4, 5)], "one interval was lost, no more"


def test_streamed_output_is_not_repeated_when_the_step_is(hf: Holdfast, far: Far) -> None:
    @holdfast.step(retry=Retry(attempts=2, first=0))
    def stream() -> None:
        for number in range(5):
            holdfast.emit(f"chunk {number}")
            if number == 2:
                far.do("half")
                if far.times("half") <= 2:
                    raise (Killed() if far.times("half") == 1 else TimeoutError("cut"))

    @holdfast.task
    def job() -> None:
        stream()

    killed(hf, job, id="r")
    hf._core._engine.patience = 5
    hf.run(job, id="r")
    outputs = [event.data["value"] for event in hf.session("r").events(types="step.output")]
    assert outputs == [f"chunk {number}" for number in range(5)]
