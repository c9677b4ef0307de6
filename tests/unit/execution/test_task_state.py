"""Automatic checkpoints of a task's state: after subtasks, before irreversible steps, and periodically."""

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
def test_a_long_run_has_checkpoints_of_all_three_kinds(dm: duramen.Duramen) -> None:
    assert dm.run(errand, 10, id="r", session="s") == 11
    session = dm.session("s")
    kinds = [checkpoint.kind for checkpoint in session.checkpoints()]
    assert kinds == ["irreversible", "subtask", "periodic", "periodic"]

    stored = [session.state(id=checkpoint.id) for checkpoint in session.checkpoints()]
    last = stored[0]
    assert last is not None
    assert (last.values, last.next, last.step) == ({"seen": [*range(10), 100], "paid": None}, "pay#1", 11)
    assert [len(one.values["seen"]) for one in stored if one is not None] == [11, 10, 8, 4]


def test_a_checkpoint_is_stored_right_before_an_irreversible_step(dm: duramen.Duramen) -> None:
    dm.run(errand, 0, id="r", session="s")
    events = [(event.type, (event.data or {}).get("step")) for event in dm.session("s").events()]
    at = events.index(("step.started", "pay#1"))
    assert events[at - 1][0] == "checkpoint"
    assert events[at - 2][0] in ("checkpoint", "step.done")


def test_a_resumed_run_does_not_repeat_its_checkpoints(open_one: Any) -> None:
    calls: list[int] = []

    @duramen.step
    def fragile(number: int) -> int:
        calls.append(number)
        if number == 6 and calls.count(6) == 1:
            raise KeyboardInterrupt
        return number

    @duramen.task
    def add_up() -> int:
        state = duramen.checkpointed({"n": 0}, every=2)
        for number in range(8):
            state["n"] += fragile(number)
        return int(state["n"])

    first = open_one()
    with pytest.raises(KeyboardInterrupt):
        first.run(add_up, id="r", session="s")
    before = [one.id for one in first.session("s").checkpoints()]
    assert first.run(add_up, id="r", session="s") == sum(range(8))
    after = [one.id for one in first.session("s").checkpoints()]
    assert after[-len(before) :] == before
    assert len(before) == 3
    assert len(after) == 3  # two steps were left, and no earlier checkpoint is repeated


def test_a_replay_stores_no_checkpoint(dm: duramen.Duramen) -> None:
    dm.run(errand, 5, id="r", session="s")
    before = dm.session("s").head().position
    assert dm.replay("r", errand) == 6
    assert dm.session("s").head().position == before


def test_checkpointed_needs_a_run_and_a_valid_interval(dm: duramen.Duramen) -> None:
    with pytest.raises(InvalidInput, match="outside a run"):
        duramen.checkpointed({})

    @duramen.task
    def wrong() -> None:
        duramen.checkpointed({}, every=0)

    with pytest.raises(InvalidInput, match="every"):
        dm.run(wrong, id="w")
