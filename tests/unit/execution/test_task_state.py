"""A task's own state is checkpointed by itself: after subtasks, before irreversible steps, and periodically."""

from __future__ import annotations

from typing import Any

import pytest

import duramen
from duramen.errors import InvalidInput


@duramen.step
def look(number: int) -> int:
    return number


@duramen.step(irreversible=True)
def pay(amount: int, *, key: str) -> str:
    return f"paid {amount}"


@duramen.task
def part(number: int) -> int:
    return look(number)


@duramen.task
def errand(steps: int) -> int:
    state = duramen.checkpointed({"seen": [], "paid": None}, every=4)
    for number in range(steps):
        state["seen"].append(look(number))
    state["seen"].append(part(100))
    state["paid"] = pay(7)
    return len(state["seen"])


@pytest.mark.promise("C1")
def test_the_log_of_a_long_run_shows_all_three_kinds(dm: duramen.Duramen) -> None:
    assert dm.run(errand, 10, id="r", session="s") == 11
    session = dm.session("s")
    kinds = [checkpoint.kind for checkpoint in session.checkpoints()]
    assert kinds == ["irreversible", "subtask", "periodic", "periodic"]

    stored = [session.state(id=checkpoint.id) for checkpoint in session.checkpoints()]
    last = stored[0]
    assert last is not None
    assert (last.values, last.next, last.step) == ({"seen": [*range(10), 100], "paid": None}, "pay#1", 11)
    assert [len(one.values["seen"]) for one in stored if one is not None] == [11, 10, 8, 4]


def test_a_checkpoint_lies_behind_what_it_counts_and_before_what_comes_next(dm: duramen.Duramen) -> None:
    dm.run(errand, 0, id="r", session="s")
    told = [(event.type, (event.data or {}).get("step")) for event in dm.session("s").events()]
    at = told.index(("step.started", "pay#1"))
    assert told[at - 1][0] == "checkpoint"
    assert told[at - 2][0] in ("checkpoint", "step.done")


def test_a_run_that_goes_on_does_not_store_again_what_it_went_through(open_one: Any) -> None:
    asked: list[int] = []

    @duramen.step
    def fragile(number: int) -> int:
        asked.append(number)
        if number == 6 and asked.count(6) == 1:
            raise KeyboardInterrupt
        return number

    @duramen.task
    def goes_on() -> int:
        state = duramen.checkpointed({"n": 0}, every=2)
        for number in range(8):
            state["n"] += fragile(number)
        return int(state["n"])

    first = open_one()
    with pytest.raises(KeyboardInterrupt):
        first.run(goes_on, id="r", session="s")
    before = [one.id for one in first.session("s").checkpoints()]
    assert first.run(goes_on, id="r", session="s") == sum(range(8))
    after = [one.id for one in first.session("s").checkpoints()]
    assert after[-len(before) :] == before
    assert len(before) == 3
    assert len(after) == 3  # two steps are left: none of the earlier checkpoints is made a second time


def test_a_replay_stores_nothing(dm: duramen.Duramen) -> None:
    dm.run(errand, 5, id="r", session="s")
    before = dm.session("s").head().position
    assert dm.replay("r", errand) == 6
    assert dm.session("s").head().position == before


def test_it_is_for_tasks_only(dm: duramen.Duramen) -> None:
    with pytest.raises(InvalidInput, match="outside a run"):
        duramen.checkpointed({})

    @duramen.task
    def wrong() -> None:
        duramen.checkpointed({}, every=0)

    with pytest.raises(InvalidInput, match="every"):
        dm.run(wrong, id="w")
