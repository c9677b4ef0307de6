"""Steps that may have happened, and how that is settled; what is refused at definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from programs.faroff import Far, killed

import holdfast
from holdfast import CannotTell, Happened, Holdfast, Retry, RunStatus
from holdfast.errors import (
    InvalidInput,
    RunActive,
    RunError,
    RunParked,
    StepInDoubt,
    StepTimeout,
    UnknownRun,
    UnknownTask,
)


# -- doubt
@pytest.mark.promise("X4", "X5")
def test_a_check_that_finds_it_settles_doubt_without_running_again(hf: Holdfast, far: Far) -> None:
    def find(what: str, *, key: str) -> str | None:
        return next((f"{what} found" for done, used in far.done if used == key), None)

    @holdfast.step(check=find)
    def book(what: str, *, key: str) -> str:
        return far.do(what, key)

    @holdfast.task
    def trip() -> str:
        return book("flight")

    far.die = "after flight"
    killed(hf, trip, id="r")
    assert hf.run_info("r").in_doubt == ["book#1"]
    assert hf.run(trip, id="r") == "flight found"
    assert far.times("flight") == 1
    settled = next(iter(hf.session("r").events(types="step.settled"))).data
    assert settled == {"step": "book#1", "by": "check", "verdict": "happened", "value": "flight found"}
    assert hf.run_info("r").in_doubt == []


@pytest.mark.promise("X6")
@pytest.mark.parametrize("checked", [True, False])
def test_what_did_not_happen_runs_again_under_the_same_key(hf: Holdfast, far: Far, checked: bool) -> None:
    keys = []

    def find(what: str, *, key: str) -> None:
        keys.append(key)

    @holdfast.step(check=find if checked else None)
    def book(what: str, *, key: str) -> str:
        keys.append(key)
        return far.do(what, key)

    @holdfast.task
    def trip() -> str:
        return book("flight")

    far.die = "before flight"
    killed(hf, trip, id="r")
    assert hf.run(trip, id="r") == "flight done"
    assert len(keys) == (3 if checked else 2)
    assert len(set(keys)) == 1
    hf.run(trip, id="other")
    assert keys[-1] != keys[0], "another run has keys of its own"


@pytest.mark.promise("X7")
@pytest.mark.parametrize("verdict", ["done", "retry", "abort"])
def test_a_step_that_must_not_repeat_parks_for_a_person(hf: Holdfast, far: Far, verdict: Any) -> None:
    @holdfast.step(in_doubt="ask")
    def pay() -> str:
        return far.do("pay")

    @holdfast.task
    def shop() -> str:
        return f"paid: {pay()}"

    far.die = "after pay"
    killed(hf, shop, id="r")
    with pytest.raises(RunParked, match="pay#1 is in doubt"):
        hf.run(shop, id="r")
    with pytest.raises(RunParked):
        hf.resume("r")
    info = hf.run_info("r")
    assert (info.status, info.in_doubt) == (RunStatus.WAITING, ["pay#1"])
    assert far.times("pay") == 1
    hf.settle("r", verdict, "by hand" if verdict == "done" else None, actor="ada")
    if verdict == "abort":
        with pytest.raises(StepInDoubt, match="aborted"):
            hf.resume("r")
        with pytest.raises(StepInDoubt, match="aborted"):
            hf.resume("r")
    else:
        assert hf.resume("r") == ("paid: by hand" if verdict == "done" else "paid: pay done")
    assert far.times("pay") == (2 if verdict == "retry" else 1)
    assert [event.actor for event in hf.session("r").events(types="step.settled")][-1] == "ada"
    with pytest.raises(RunError):
        hf.settle("r", "retry")


def test_in_doubt_fail_fails(hf: Holdfast, far: Far) -> None:
    @holdfast.step(in_doubt="fail")
    def pay() -> str:
        return far.do("pay")

    @holdfast.task
    def shop() -> str:
        try:
            return pay()
        except StepInDoubt as doubt:
            return f"no idea about {doubt.step}"

    far.die = "after pay"
    killed(hf, shop, id="r")
    assert hf.run(shop, id="r") == "no idea about pay#1"
    assert hf.run(shop, id="r") == "no idea about pay#1"
    assert far.times("pay") == 1


@pytest.mark.parametrize("answer", [CannotTell("the line is dead"), OSError("no route"), True])
def test_a_check_that_cannot_tell_parks(hf: Holdfast, far: Far, answer: Any) -> None:
    def find() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    @holdfast.step(check=find)
    def pay() -> str:
        return far.do("pay")

    @holdfast.task
    def shop() -> str:
        return pay()

    far.die = "after pay"
    hf._core._engine.patience = 5
    killed(hf, shop, id="r")
    if answer is True:
        with pytest.raises(InvalidInput, match="returned True"):
            hf.run(shop, id="r")
        assert hf.run_info("r").in_doubt == ["pay#1"], "it can go on once the check is mended"
        return
    with pytest.raises(RunParked, match=r"dead|no route"):
        hf.run(shop, id="r")
    hf.settle("r", "done", "found by phone")
    assert hf.resume("r") == "found by phone"
    assert far.times("pay") == 1


def test_a_check_can_find_a_result_that_is_nothing(hf: Holdfast, far: Far) -> None:
    @holdfast.step(check=lambda: Happened(None))
    def pay() -> None:
        far.do("pay")

    @holdfast.task
    def shop() -> str:
        return f"{pay()}"

    far.die = "after pay"
    killed(hf, shop, id="r")
    assert hf.run(shop, id="r") == "None"
    assert far.times("pay") == 1


def test_a_failed_attempt_is_checked_before_the_next(hf: Holdfast, far: Far) -> None:
    def find() -> str | None:
        return "sent after all" if far.times("send") else None

    @holdfast.step(check=find, retry=Retry(attempts=3, first=0))
    def send() -> str:
        far.do("send")
        raise TimeoutError("no answer")

    @holdfast.task
    def job() -> str:
        return send()

    assert hf.run(job, id="r") == "sent after all"
    assert far.times("send") == 1


@pytest.mark.parametrize("in_doubt", ["rerun", "ask"])
def test_a_timeout_leaves_doubt(hf: Holdfast, far: Far, in_doubt: Any) -> None:
    import threading

    never = threading.Event()

    @holdfast.step(timeout=0.05, in_doubt=in_doubt)
    def slow() -> None:
        far.do("slow")
        never.wait(20)

    @holdfast.task
    def job() -> None:
        slow()

    with pytest.raises(StepTimeout if in_doubt == "rerun" else RunParked):
        hf.run(job, id="r")
    never.set()
    assert far.times("slow") == 1


# -- what is refused, and when
@pytest.mark.promise("X9")
def test_an_irreversible_step_without_key_or_check_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match="neither a key nor a check") as refused:

        @holdfast.step(irreversible=True)
        def launch() -> None: ...

    assert "check=" in refused.value.hint

    @holdfast.step(irreversible=True)
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
def test_nonsense_is_refused_at_definition(options: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        holdfast.step(**options)(lambda: None)


def test_generators_and_classes_are_refused() -> None:
    def generator() -> Iterator[int]:
        yield 1

    for make in (holdfast.step, holdfast.task):
        with pytest.raises(InvalidInput, match="generator"):
            make(generator)
        with pytest.raises(InvalidInput):
            make(Far)


def test_wrong_ids_and_tasks_have_names(hf: Holdfast) -> None:
    @holdfast.task
    def one() -> int:
        return 1

    @holdfast.task
    def two() -> int:
        return 2

    assert hf.run(one, id="r") == 1
    with pytest.raises(InvalidInput, match="of task 'one'"):
        hf.run(two, id="r")
    for call in (hf.resume, hf.run_info, lambda run: hf.signal(run, "x"), lambda run: hf.cancel(run)):
        with pytest.raises(UnknownRun):
            call("nobody")
    with pytest.raises(InvalidInput, match="no task"):
        hf.run(len, "abc")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="no option"):
        hf.start(one, colour="red")  # type: ignore[call-arg]
    for function in (holdfast.sleep, holdfast.ask, holdfast.receive):
        with pytest.raises(InvalidInput, match="outside a run"):
            function(1 if function is holdfast.sleep else "x")
    with pytest.raises(InvalidInput, match="outside a step"):
        holdfast.emit("x")


@pytest.mark.promise("X27")
def test_one_run_at_a_time_in_a_session(hf: Holdfast) -> None:
    @holdfast.task
    def wait() -> Any:
        return holdfast.receive("go")

    hf.session("chat").append("user.said", "hello")
    with pytest.raises(RunParked):
        hf.run(wait, id="first", session="chat")
    with pytest.raises(RunActive, match="first"):
        hf.run(wait, id="second", session="chat")
    hf.signal("first", "go", 1)
    assert hf.resume("first") == 1
    hf.start(wait, id="second", session="chat")
    hf.signal("second", "go", 2)
    assert hf.resume("second") == 2
    assert hf.resume("first") == 1, "the first one's result is not the second one's"


def test_an_unknown_task_is_named_and_the_run_stays(hf: Holdfast) -> None:
    @holdfast.task(name="gone", version="1")
    def old() -> Any:
        return holdfast.receive("go")

    with pytest.raises(RunParked):
        hf.run(old, id="r")
    from holdfast.execution.definitions import _known

    del _known["gone", "1"]
    with pytest.raises(UnknownTask, match="'gone' in version '1'"):
        hf.resume("r")

    @holdfast.task(name="gone", version="2")
    def new() -> Any:
        return holdfast.receive("go")

    with pytest.raises(UnknownTask):
        hf.resume("r", new)
    hf.signal("r", "go", 5)
    assert hf.resume("r", old) == 5, "the declared version lets old runs finish"
