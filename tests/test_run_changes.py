"""What happens to a run: its code changes, it is cancelled and undone, forked, replayed."""

from __future__ import annotations

from typing import Any

import pytest
from programs.faroff import BookingError, Far, killed, types

import holdfast
from holdfast import Holdfast, RunStatus
from holdfast.errors import (
    RunCancelled,
    RunParked,
    StepsChanged,
)


# -- changed code
@pytest.mark.promise("X20")
@pytest.mark.parametrize("change", ["insert", "remove", "swap", "extend"])
def test_changed_steps_are_noticed_and_named(hf: Holdfast, far: Far, change: str) -> None:
    @holdfast.step
    def a() -> str:
        return far.do("a")

    @holdfast.step
    def b() -> str:
        return far.do("b")

    @holdfast.step
    def c() -> str:
        return far.do("c")

    orders = {"insert": [a, c, b], "remove": [b], "swap": [b, a], "extend": [a, b, c]}
    current = [a, b]

    @holdfast.task
    def job() -> list[str]:
        got = [step() for step in current]
        holdfast.receive("go")
        return got

    with pytest.raises(RunParked):
        hf.run(job, id="r")
    hf.signal("r", "go")
    current[:] = orders[change]
    with pytest.raises(StepsChanged) as changed:
        hf.resume("r")
    assert changed.value.wanted in ("b#1", "c#1")
    assert far.times("c") == 0, "nothing new ran"
    current[:] = [a, b]
    assert hf.resume("r") == ["a done", "b done"], "with the old code it goes on"
    assert (far.times("a"), far.times("b")) == (1, 1)


def test_a_changed_body_is_reported_and_a_comment_is_not(hf: Holdfast, caplog: Any) -> None:
    def define(source: str) -> Any:
        space: dict[str, Any] = {"holdfast": holdfast}
        exec(source, space)
        return holdfast.task(name="changing")(space["body"])

    first = define("def body():\n    return holdfast.receive('go')\n")
    with pytest.raises(RunParked):
        hf.run(first, id="r")
    same = define("def body():\n    # a comment\n\n    return holdfast.receive('go')\n")
    with pytest.raises(RunParked):
        hf.resume("r", same)
    assert not caplog.records
    other = define("def body():\n    return [holdfast.receive('go')]\n")
    hf.signal("r", "go", 1)
    assert hf.resume("r", other) == [1]
    assert "changed" in caplog.text
    assert types(hf, "r").count("run.changed") == 1


def test_patched_takes_old_runs_the_old_way(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def a() -> str:
        return far.do("a")

    @holdfast.step
    def extra() -> str:
        return far.do("extra")

    new_code = [False]

    @holdfast.task
    def job() -> list[str]:
        got = []
        if new_code[0] and holdfast.patched("extra-first"):
            got.append(extra())
        got.append(a())
        holdfast.receive("go")
        return got

    for run in ("old",):
        with pytest.raises(RunParked):
            hf.run(job, id=run)
    new_code[0] = True
    with pytest.raises(RunParked):
        hf.run(job, id="new")
    for run in ("old", "new"):
        hf.signal(run, "go")
    assert hf.resume("old") == ["a done"]
    assert hf.resume("new") == ["extra done", "a done"]
    assert far.times("extra") == 1


# -- cancelling and undoing
@pytest.mark.promise("X23")
def test_a_cancelled_run_stops_at_the_next_step_and_undoes_in_reverse(hf: Holdfast, far: Far) -> None:
    def undo(value: str) -> None:
        far.do(f"undo {value}")

    @holdfast.step(undo=undo)
    def act(what: str) -> str:
        far.do(what)
        if what == "b":
            hf.cancel("r", "enough")
        return what

    @holdfast.task
    def job() -> None:
        for what in "abc":
            act(what)

    with pytest.raises(RunCancelled, match="enough"):
        hf.run(job, id="r")
    assert [what for what, _ in far.done] == ["a", "b", "undo b", "undo a"]
    assert hf.run_info("r").status is RunStatus.CANCELLED
    hf.cancel("r")
    with pytest.raises(RunCancelled):
        hf.resume("r")


@pytest.mark.promise("X23")
@pytest.mark.parametrize("die", ["before undo b", "after undo b", "before undo a", "after undo a"])
def test_undoing_survives_a_kill(hf: Holdfast, far: Far, die: str) -> None:
    def find(value: str) -> str | None:
        return "undone" if far.times(f"undo {value}") else None

    @holdfast.step(check=find)
    def undo(value: str) -> str:
        far.do(f"undo {value}")
        return "undone"

    @holdfast.step(undo=undo)
    def act(what: str) -> str:
        far.do(what)
        return what

    @holdfast.task
    def job() -> None:
        act("a")
        act("b")
        raise BookingError("LH400", 17)

    far.die = die
    killed(hf, job, id="r")
    with pytest.raises(BookingError):
        hf.run(job, id="r")
    assert [what for what, _ in far.done] == ["a", "b", "undo b", "undo a"]


def test_a_cancelled_run_that_nobody_executes_ends_at_once(hf: Holdfast) -> None:
    @holdfast.task
    def wait() -> Any:
        return holdfast.receive("go")

    hf.start(wait, id="queued")
    hf.cancel("queued")
    with pytest.raises(RunParked):
        hf.run(wait, id="parked")
    hf.cancel("parked", "no longer needed")
    assert {one.status for one in hf.runs()} == {RunStatus.CANCELLED}


# -- the time machine
@pytest.mark.promise("X21")
def test_a_replay_touches_nothing(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def act(what: str) -> str:
        return far.do(what)

    @holdfast.task
    def job() -> list[str]:
        got = [act("a")]
        holdfast.sleep(0)
        got.append(holdfast.receive("go"))
        got.append(act("b"))
        return got

    hf.start(job, id="r")
    hf.signal("r", "go", "on")
    assert hf.resume("r") == ["a done", "on", "b done"]
    before = types(hf, "r")
    assert hf.replay("r") == ["a done", "on", "b done"]
    assert (types(hf, "r"), len(far.done)) == (before, 2)
    with pytest.raises(StepsChanged, match="act#2"):
        hf.replay("r", at=[event.position for event in hf.session("r").events(types="step.done")][-2])


@pytest.mark.promise("X22")
def test_a_fork_goes_on_from_any_event_and_leaves_the_original_alone(hf: Holdfast, far: Far) -> None:
    @holdfast.step
    def act(what: str, *, key: str) -> str:
        return far.do(what, key)

    @holdfast.task
    def job() -> list[str]:
        return [act(what) for what in "abc"]

    hf.run(job, id="r")
    original = list(hf.session("r").events())
    keys = dict(far.done)
    for event in original[:-1]:
        far.done.clear()
        fork = hf.fork_run("r", f"fork-{event.position}", at=event.position)
        assert hf.resume(fork.id) == ["a done", "b done", "c done"]
        known = [one.data["step"] for one in original[: event.position] if one.type == "step.done"]
        assert len(far.done) == 3 - len(known), "what was done before the fork is not done again"
        assert not set(dict(far.done).values()) & set(keys.values()), "a fork acts under keys of its own"
        assert "step.settled" not in types(hf, fork.id), "what the original began is no doubt of the fork's"
    assert list(hf.session("r").events()) == original
    assert [event.type for event in hf.session("r").at(3).events()] == types(hf, "r")[:3]


def test_a_failed_run_can_be_tried_again_as_a_fork(hf: Holdfast, far: Far) -> None:
    broken = [True]

    @holdfast.step
    def a() -> str:
        return far.do("a")

    @holdfast.step
    def b() -> str:
        if broken[0]:
            raise BookingError("LH400", 17)
        return far.do("b")

    @holdfast.task
    def job() -> list[str]:
        return [a(), b()]

    with pytest.raises(BookingError):
        hf.run(job, id="r")
    broken[0] = False
    failed = next(iter(hf.session("r").events(types="step.failed"))).position
    assert hf.resume(hf.fork_run("r", "again", at=failed - 1).id) == ["a done", "b done"]
    assert far.times("a") == 1
