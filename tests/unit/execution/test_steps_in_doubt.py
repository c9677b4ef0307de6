"""Steps in doubt and how doubt is settled. Invalid definitions and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from programs.side_effects import SideEffects, run_until_killed

import duramen
from duramen import CannotTell, Duramen, Happened, Retry, RunStatus
from duramen.errors import (
    InvalidInput,
    RunActive,
    RunError,
    RunParked,
    StepInDoubt,
    StepTimeout,
    UnknownRun,
    UnknownTask,
)


# -- steps in doubt
@pytest.mark.promise("X4", "X5")
def test_a_check_that_finds_the_effect_settles_doubt_without_a_rerun(dm: Duramen, effects: SideEffects) -> None:
    def find(what: str, *, key: str) -> str | None:
        return next((f"{what} found" for done, used in effects.done if used == key), None)

    @duramen.step(check=find)
    def book(what: str, *, key: str) -> str:
        return effects.do(what, key)

    @duramen.task
    def trip() -> str:
        return book("flight")

    effects.die = "after flight"
    run_until_killed(dm, trip, id="r")
    assert dm.run_info("r").in_doubt == ["book#1"]
    assert dm.run(trip, id="r") == "flight found"
    assert effects.times("flight") == 1
    settled = next(iter(dm.session("r").events(types="step.settled"))).data
    assert settled == {"step": "book#1", "by": "check", "verdict": "happened", "value": "flight found"}
    assert dm.run_info("r").in_doubt == []


@pytest.mark.promise("X6")
@pytest.mark.parametrize("checked", [True, False])
def test_a_step_that_did_not_happen_reruns_under_the_same_key(dm: Duramen, effects: SideEffects, checked: bool) -> None:
    keys = []

    def find(what: str, *, key: str) -> None:
        keys.append(key)

    @duramen.step(check=find if checked else None)
    def book(what: str, *, key: str) -> str:
        keys.append(key)
        return effects.do(what, key)

    @duramen.task
    def trip() -> str:
        return book("flight")

    effects.die = "before flight"
    run_until_killed(dm, trip, id="r")
    assert dm.run(trip, id="r") == "flight done"
    assert len(keys) == (3 if checked else 2)
    assert len(set(keys)) == 1
    dm.run(trip, id="other")
    assert keys[-1] != keys[0], "another run uses other keys"


@pytest.mark.promise("X7")
@pytest.mark.parametrize("verdict", ["done", "retry", "abort"])
def test_a_step_with_in_doubt_ask_parks_until_a_person_decides(dm: Duramen, effects: SideEffects, verdict: Any) -> None:
    @duramen.step(in_doubt="ask")
    def pay() -> str:
        return effects.do("pay")

    @duramen.task
    def shop() -> str:
        return f"paid: {pay()}"

    effects.die = "after pay"
    run_until_killed(dm, shop, id="r")
    with pytest.raises(RunParked, match="pay#1 is in doubt"):
        dm.run(shop, id="r")
    with pytest.raises(RunParked):
        dm.resume("r")
    info = dm.run_info("r")
    assert (info.status, info.in_doubt) == (RunStatus.WAITING, ["pay#1"])
    assert effects.times("pay") == 1
    dm.settle("r", verdict, "by hand" if verdict == "done" else None, actor="ada")
    if verdict == "abort":
        with pytest.raises(StepInDoubt, match="aborted"):
            dm.resume("r")
        with pytest.raises(StepInDoubt, match="aborted"):
            dm.resume("r")
    else:
        assert dm.resume("r") == ("paid: by hand" if verdict == "done" else "paid: pay done")
    assert effects.times("pay") == (2 if verdict == "retry" else 1)
    assert [event.actor for event in dm.session("r").events(types="step.settled")][-1] == "ada"
    with pytest.raises(RunError):
        dm.settle("r", "retry")


def test_a_step_with_in_doubt_fail_raises(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step(in_doubt="fail")
    def pay() -> str:
        return effects.do("pay")

    @duramen.task
    def shop() -> str:
        try:
            return pay()
        except StepInDoubt as doubt:
            return f"{doubt.step} is in doubt"

    effects.die = "after pay"
    run_until_killed(dm, shop, id="r")
    assert dm.run(shop, id="r") == "pay#1 is in doubt"
    assert dm.run(shop, id="r") == "pay#1 is in doubt"
    assert effects.times("pay") == 1


@pytest.mark.parametrize("answer", [CannotTell("the line is dead"), OSError("no route"), True])
def test_a_check_that_cannot_tell_parks_the_run(dm: Duramen, effects: SideEffects, answer: Any) -> None:
    def find() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    @duramen.step(check=find)
    def pay() -> str:
        return effects.do("pay")

    @duramen.task
    def shop() -> str:
        return pay()

    effects.die = "after pay"
    dm._core._engine.patience = 5
    run_until_killed(dm, shop, id="r")
    if answer is True:
        with pytest.raises(InvalidInput, match="returned True"):
            dm.run(shop, id="r")
        assert dm.run_info("r").in_doubt == ["pay#1"], "the run can continue once the check is fixed"
        return
    with pytest.raises(RunParked, match=r"dead|no route"):
        dm.run(shop, id="r")
    dm.settle("r", "done", "found by phone")
    assert dm.resume("r") == "found by phone"
    assert effects.times("pay") == 1


def test_a_check_can_find_the_result_none(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step(check=lambda: Happened(None))
    def pay() -> None:
        effects.do("pay")

    @duramen.task
    def shop() -> str:
        return f"{pay()}"

    effects.die = "after pay"
    run_until_killed(dm, shop, id="r")
    assert dm.run(shop, id="r") == "None"
    assert effects.times("pay") == 1


def test_a_failed_attempt_is_checked_before_the_next_attempt(dm: Duramen, effects: SideEffects) -> None:
    def find() -> str | None:
        return "sent after all" if effects.times("send") else None

    @duramen.step(check=find, retry=Retry(attempts=3, first=0))
    def send() -> str:
        effects.do("send")
        raise TimeoutError("no answer")

    @duramen.task
    def job() -> str:
        return send()

    assert dm.run(job, id="r") == "sent after all"
    assert effects.times("send") == 1


@pytest.mark.parametrize("in_doubt", ["rerun", "ask"])
def test_a_timed_out_step_is_in_doubt(dm: Duramen, effects: SideEffects, in_doubt: Any) -> None:
    import threading

    never = threading.Event()

    @duramen.step(timeout=0.05, in_doubt=in_doubt)
    def slow() -> None:
        effects.do("slow")
        never.wait(20)

    @duramen.task
    def job() -> None:
        slow()

    with pytest.raises(StepTimeout if in_doubt == "rerun" else RunParked):
        dm.run(job, id="r")
    never.set()
    assert effects.times("slow") == 1


# -- invalid definitions and calls
@pytest.mark.promise("X9")
def test_an_irreversible_step_without_key_or_check_is_refused() -> None:
    with pytest.raises(InvalidInput, match="neither a key nor a check") as refused:

        @duramen.step(irreversible=True)
        def launch() -> None: ...

    assert "check=" in refused.value.hint

    @duramen.step(irreversible=True)
    def launch_with_key(*, key: str) -> None: ...

    assert launch_with_key.in_doubt == "ask"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"in_doubt": "maybe"}, "in_doubt"),
        ({"timeout": 0}, "timeout"),
        ({"retry": 0}, "attempts"),
        ({"name": "a#b"}, "step"),
        ({"check": 3}, "check"),
    ],
)
def test_invalid_step_options_are_refused_at_declaration(options: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        duramen.step(**options)(lambda: None)


def test_generators_and_classes_cannot_be_steps_or_tasks() -> None:
    def generator() -> Iterator[int]:
        yield 1

    for make in (duramen.step, duramen.task):
        with pytest.raises(InvalidInput, match="generator"):
            make(generator)
        with pytest.raises(InvalidInput):
            make(SideEffects)


def test_wrong_runs_tasks_and_options_raise_named_errors(dm: Duramen) -> None:
    @duramen.task
    def one() -> int:
        return 1

    @duramen.task
    def two() -> int:
        return 2

    assert dm.run(one, id="r") == 1
    with pytest.raises(InvalidInput, match="belongs to task 'one'"):
        dm.run(two, id="r")
    for call in (dm.resume, dm.run_info, lambda run: dm.signal(run, "x"), lambda run: dm.cancel(run)):
        with pytest.raises(UnknownRun):
            call("unknown")
    with pytest.raises(InvalidInput, match="not a task"):
        dm.run(len, "abc")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="unknown option"):
        dm.start(one, colour="red")  # type: ignore[call-arg]
    for function in (duramen.sleep, duramen.ask, duramen.receive):
        with pytest.raises(InvalidInput, match="outside a run"):
            function(1 if function is duramen.sleep else "x")
    with pytest.raises(InvalidInput, match="outside a step"):
        duramen.emit("x")


@pytest.mark.promise("X27")
def test_a_session_has_one_open_run_at_a_time(dm: Duramen) -> None:
    @duramen.task
    def wait() -> Any:
        return duramen.receive("go")

    dm.session("chat").append("user.said", "hello")
    with pytest.raises(RunParked):
        dm.run(wait, id="first", session="chat")
    with pytest.raises(RunActive, match="first"):
        dm.run(wait, id="second", session="chat")
    dm.signal("first", "go", 1)
    assert dm.resume("first") == 1
    dm.start(wait, id="second", session="chat")
    dm.signal("second", "go", 2)
    assert dm.resume("second") == 2
    assert dm.resume("first") == 1, "each run has its own result"


def test_resuming_an_unknown_task_names_it_and_changes_nothing(dm: Duramen) -> None:
    @duramen.task(name="gone", version="1")
    def old() -> Any:
        return duramen.receive("go")

    with pytest.raises(RunParked):
        dm.run(old, id="r")
    from duramen.execution.steps.definitions import _known

    del _known["gone", "1"]
    with pytest.raises(UnknownTask, match="'gone' in version '1'"):
        dm.resume("r")

    @duramen.task(name="gone", version="2")
    def new() -> Any:
        return duramen.receive("go")

    with pytest.raises(UnknownTask):
        dm.resume("r", new)
    dm.signal("r", "go", 5)
    assert dm.resume("r", old) == 5, "a task with the old version can finish old runs"
