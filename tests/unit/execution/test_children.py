"""Runs that start other runs, on a fake clock."""

from __future__ import annotations

from typing import Any

import pytest
from programs.side_effects import Open, SideEffects, run_until_killed

import duramen
from duramen import RunStatus
from duramen.testing.clock import FakeClock


@pytest.mark.promise("X18")
def test_a_task_spans_five_sessions_and_survives_a_kill(open_one: Open, clock: FakeClock, effects: SideEffects) -> None:
    @duramen.step
    def work(part: int, day: int) -> str:
        return effects.do(f"part {part} day {day}")

    @duramen.task
    def part(number: int) -> list[str]:
        done = []
        for day in range(3):
            done.append(work(number, day))
            duramen.sleep(24 * 3600)
        return done

    @duramen.task
    def project() -> list[list[str]]:
        return [part(number) for number in range(4)]

    dm = open_one()
    dm.start(project, id="r")
    effects.die = "after part 1 day 1"
    restarts = 0
    for _ in range(40):
        dm = open_one()
        try:
            dm.work([project, part], until_idle=True)
        except BaseException:  # noqa: BLE001 - the simulated kill
            restarts += 1
        clock.advance(24 * 3600 + 1)
        if dm.run_info("r").status is RunStatus.DONE:
            break
    assert dm.resume("r") == [[f"part {part} day {day} done" for day in range(3)] for part in range(4)]
    assert len({one.session for one in dm.runs()}) == 5
    assert all(effects.times(what) == 1 for what, _ in effects.done if what != "part 1 day 1")


@pytest.mark.promise("X26")
def test_a_child_result_is_delivered_once_and_its_failure_is_raised(open_one: Open, effects: SideEffects) -> None:
    @duramen.step
    def act(what: str) -> str:
        return effects.do(what)

    @duramen.task
    def child(what: str) -> str:
        if what == "bad":
            raise ValueError("a child failed")
        return act(what)

    @duramen.task
    def parent() -> list[str]:
        results = [child("good")]
        try:
            child("bad")
        except ValueError as error:
            results.append(str(error))
        results.append(act("after"))
        return results

    dm = open_one()
    effects.die = "after good"
    run_until_killed(dm, parent, id="r")
    statuses = {one.id: one.status for one in dm.runs()}
    assert len(statuses) == 2
    effects.die = "before after"
    run_until_killed(open_one(), parent, id="r")
    assert open_one().run(parent, id="r") == ["good done", "a child failed", "after done"]
    assert effects.times("good") == 2, "a step in doubt reruns under the same key"
    children = dm.runs(parent="r")
    assert sorted(one.status for one in children) == [RunStatus.DONE, RunStatus.FAILED]


@pytest.mark.promise("X26")
def test_a_parent_can_start_children_and_wait_for_them(open_one: Open) -> None:
    @duramen.task
    def square(number: int) -> int:
        return number * number

    @duramen.task
    def total(numbers: list[int]) -> int:
        children = [square.start(number) for number in numbers]
        return sum(child.result() for child in children)

    dm = open_one()
    dm.start(total, [1, 2, 3], id="r")
    dm.work([total, square], until_idle=True)
    assert dm.resume("r") == 14
    children = dm.runs(task="square")
    assert [one.parent for one in children] == ["r"] * 3
    opening = next(iter(dm.session(children[0].id).events()))
    assert str(opening.cause).startswith("r#"), "a child names the event of its parent that started it"


def test_cancelling_a_parent_cancels_its_children(open_one: Open) -> None:
    @duramen.task
    def wait() -> Any:
        return duramen.receive("go")

    @duramen.task
    def family() -> Any:
        started = wait.start()
        wait()
        return started.result()

    dm = open_one()
    dm.start(family, id="r")
    dm.work([family, wait], until_idle=True)
    dm.cancel("r", "enough")
    dm.work([family, wait], until_idle=True)
    assert {one.status for one in dm.runs()} == {RunStatus.CANCELLED}


@pytest.mark.promise("M2")
def test_a_brief_fits_its_budget_and_names_its_source_events(open_one: Open, effects: SideEffects) -> None:
    briefs: list[Any] = []

    @duramen.step
    def search(what: str) -> str:
        effects.do(what)
        return what * 50

    @duramen.step
    def note() -> str:
        return "not in the brief"

    @duramen.task
    def child(question: str, context: Any) -> int:
        briefs.append(context)
        return len(context["items"])

    @duramen.task
    def parent() -> list[int]:
        search("a")
        search("b")
        note()
        everything = child("What do we know?", duramen.brief("search"))
        newest = child("And lately?", duramen.brief("search", budget=90))
        effects.do("done")
        return [everything, newest]

    effects.die = "before done"
    dm = open_one()
    run_until_killed(dm, parent, id="r")
    assert open_one().run(parent, id="r") == [2, 1]
    assert [item["step"] for item in briefs[0]["items"]] == ["search#1", "search#2"]
    assert (briefs[1]["items"][0]["outcome"], briefs[1]["left_out"]) == ("b" * 50, 1)
    source, _, position = briefs[1]["items"][0]["from"].partition("#")
    event = next(iter(dm.session(source).events(start=int(position), limit=1)))
    assert (event.type, event.data["step"]) == ("step.done", "search#2")
    assert len(briefs) == 2
