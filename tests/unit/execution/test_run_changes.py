"""Runs whose code changes, and runs that are cancelled and undone, replayed or forked."""

from __future__ import annotations

from typing import Any

import pytest
from programs.side_effects import BookingError, SideEffects, event_types, run_until_killed

import duramen
from duramen import Duramen, RunStatus
from duramen.errors import RunCancelled, RunParked, StepsChanged


# -- changed code
@pytest.mark.promise("X20")
@pytest.mark.parametrize("change", ["insert", "remove", "swap", "extend"])
def test_changed_steps_raise_an_error_that_names_them(dm: Duramen, effects: SideEffects, change: str) -> None:
    @duramen.step
    def a() -> str:
        return effects.do("a")

    @duramen.step
    def b() -> str:
        return effects.do("b")

    @duramen.step
    def c() -> str:
        return effects.do("c")

    orders = {"insert": [a, c, b], "remove": [b], "swap": [b, a], "extend": [a, b, c]}
    current = [a, b]

    @duramen.task
    def job() -> list[str]:
        results = [step() for step in current]
        duramen.receive("go")
        return results

    with pytest.raises(RunParked):
        dm.run(job, id="r")
    dm.signal("r", "go")
    current[:] = orders[change]
    with pytest.raises(StepsChanged) as changed:
        dm.resume("r")
    assert changed.value.wanted in ("b#1", "c#1")
    assert effects.times("c") == 0, "no new step ran"
    current[:] = [a, b]
    assert dm.resume("r") == ["a done", "b done"], "the old code can continue"
    assert (effects.times("a"), effects.times("b")) == (1, 1)


def test_a_changed_task_body_is_reported_and_a_changed_comment_is_not(dm: Duramen, caplog: Any) -> None:
    def define(source: str) -> Any:
        space: dict[str, Any] = {"duramen": duramen}
        exec(source, space)
        return duramen.task(name="changing")(space["body"])

    first = define("def body():\n    return duramen.receive('go')\n")
    with pytest.raises(RunParked):
        dm.run(first, id="r")
    same = define("def body():\n    # a comment\n\n    return duramen.receive('go')\n")
    with pytest.raises(RunParked):
        dm.resume("r", same)
    assert not caplog.records
    other = define("def body():\n    return [duramen.receive('go')]\n")
    dm.signal("r", "go", 1)
    assert dm.resume("r", other) == [1]
    assert "changed" in caplog.text
    assert event_types(dm, "r").count("run.changed") == 1


def test_patched_is_false_for_runs_started_before_the_patch(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def a() -> str:
        return effects.do("a")

    @duramen.step
    def extra() -> str:
        return effects.do("extra")

    new_code = [False]

    @duramen.task
    def job() -> list[str]:
        results = []
        if new_code[0] and duramen.patched("extra-first"):
            results.append(extra())
        results.append(a())
        duramen.receive("go")
        return results

    with pytest.raises(RunParked):
        dm.run(job, id="old")
    new_code[0] = True
    with pytest.raises(RunParked):
        dm.run(job, id="new")
    for run in ("old", "new"):
        dm.signal(run, "go")
    assert dm.resume("old") == ["a done"]
    assert dm.resume("new") == ["extra done", "a done"]
    assert effects.times("extra") == 1


# -- cancelling and undoing
@pytest.mark.promise("X23")
def test_a_cancelled_run_stops_at_the_next_step_and_undoes_in_reverse(dm: Duramen, effects: SideEffects) -> None:
    def undo(value: str) -> None:
        effects.do(f"undo {value}")

    @duramen.step(undo=undo)
    def act(what: str) -> str:
        effects.do(what)
        if what == "b":
            dm.cancel("r", "enough")
        return what

    @duramen.task
    def job() -> None:
        for what in "abc":
            act(what)

    with pytest.raises(RunCancelled, match="enough"):
        dm.run(job, id="r")
    assert [what for what, _ in effects.done] == ["a", "b", "undo b", "undo a"]
    assert dm.run_info("r").status is RunStatus.CANCELLED
    dm.cancel("r")
    with pytest.raises(RunCancelled):
        dm.resume("r")


@pytest.mark.promise("X23")
@pytest.mark.parametrize("die", ["before undo b", "after undo b", "before undo a", "after undo a"])
def test_undoing_survives_a_kill(dm: Duramen, effects: SideEffects, die: str) -> None:
    def find(value: str) -> str | None:
        return "undone" if effects.times(f"undo {value}") else None

    @duramen.step(check=find)
    def undo(value: str) -> str:
        effects.do(f"undo {value}")
        return "undone"

    @duramen.step(undo=undo)
    def act(what: str) -> str:
        effects.do(what)
        return what

    @duramen.task
    def job() -> None:
        act("a")
        act("b")
        raise BookingError("LH400", 17)

    effects.die = die
    run_until_killed(dm, job, id="r")
    with pytest.raises(BookingError):
        dm.run(job, id="r")
    assert [what for what, _ in effects.done] == ["a", "b", "undo b", "undo a"]


def test_cancelling_a_run_that_is_not_executing_ends_it_at_once(dm: Duramen) -> None:
    @duramen.task
    def wait() -> Any:
        return duramen.receive("go")

    dm.start(wait, id="queued")
    dm.cancel("queued")
    with pytest.raises(RunParked):
        dm.run(wait, id="parked")
    dm.cancel("parked", "no longer needed")
    assert {one.status for one in dm.runs()} == {RunStatus.CANCELLED}


# -- replays and forks
@pytest.mark.promise("X21")
def test_a_replay_executes_no_step_and_writes_nothing(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def act(what: str) -> str:
        return effects.do(what)

    @duramen.task
    def job() -> list[str]:
        results = [act("a")]
        duramen.sleep(0)
        results.append(duramen.receive("go"))
        results.append(act("b"))
        return results

    dm.start(job, id="r")
    dm.signal("r", "go", "on")
    assert dm.resume("r") == ["a done", "on", "b done"]
    before = event_types(dm, "r")
    assert dm.replay("r") == ["a done", "on", "b done"]
    assert (event_types(dm, "r"), len(effects.done)) == (before, 2)
    with pytest.raises(StepsChanged, match="act#2"):
        dm.replay("r", at=[event.position for event in dm.session("r").events(types="step.done")][-2])


@pytest.mark.promise("X22")
def test_a_fork_continues_from_any_event_and_leaves_the_original_unchanged(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step
    def act(what: str, *, key: str) -> str:
        return effects.do(what, key)

    @duramen.task
    def job() -> list[str]:
        return [act(what) for what in "abc"]

    dm.run(job, id="r")
    original = list(dm.session("r").events())
    keys = dict(effects.done)
    for event in original[:-1]:
        effects.done.clear()
        fork = dm.fork_run("r", f"fork-{event.position}", at=event.position)
        assert dm.resume(fork.id) == ["a done", "b done", "c done"]
        known = [one.data["step"] for one in original[: event.position] if one.type == "step.done"]
        assert len(effects.done) == 3 - len(known), "steps done before the fork are not repeated"
        assert not set(dict(effects.done).values()) & set(keys.values()), "a fork uses its own keys"
        assert "step.settled" not in event_types(dm, fork.id), "an intent of the original is not in doubt in the fork"
    assert list(dm.session("r").events()) == original
    assert [event.type for event in dm.session("r").at(3).events()] == event_types(dm, "r")[:3]


def test_a_failed_run_can_be_retried_as_a_fork(dm: Duramen, effects: SideEffects) -> None:
    broken = [True]

    @duramen.step
    def a() -> str:
        return effects.do("a")

    @duramen.step
    def b() -> str:
        if broken[0]:
            raise BookingError("LH400", 17)
        return effects.do("b")

    @duramen.task
    def job() -> list[str]:
        return [a(), b()]

    with pytest.raises(BookingError):
        dm.run(job, id="r")
    broken[0] = False
    failed = next(iter(dm.session("r").events(types="step.failed"))).position
    assert dm.resume(dm.fork_run("r", "again", at=failed - 1).id) == ["a done", "b done"]
    assert effects.times("a") == 1
