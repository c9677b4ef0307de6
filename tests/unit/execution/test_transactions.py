"""Rows that commit with the outcome of a step, and shared state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs.side_effects import Killed, SideEffects, run_until_killed

import duramen
from duramen import Duramen, Retry
from duramen import crash_points as crashpoints
from duramen.errors import InvalidInput, StateConflict, StoreError
from duramen.stores.sqlite.append import Appender


@pytest.fixture
def dm(address: str) -> Iterator[Duramen]:
    with duramen.open(address) as opened:
        opened.run(set_up, id="set-up")
        yield opened


@duramen.step
def create() -> None:
    duramen.transaction().execute("CREATE TABLE accounts (name text PRIMARY KEY, amount integer)")


@duramen.task
def set_up() -> None:
    create()


def insert(name: str, amount: int) -> Any:
    connection = duramen.transaction()
    connection.execute(f"INSERT INTO accounts VALUES ('{name}', {amount})")
    return connection


@duramen.step
def count() -> int:
    row = duramen.transaction().execute("SELECT count(*) FROM accounts").fetchone()
    return int(row[0])


@duramen.task
def rows() -> int:
    return count()


@pytest.mark.promise("X10", "X11")
@pytest.mark.parametrize("point", ["step.intended", "step.acted", "step.transacted", "step.recorded", None])
def test_rows_memory_and_outcome_commit_together(dm: Duramen, effects: SideEffects, point: str | None) -> None:
    @duramen.step
    def pay() -> str:
        insert("ada", 5)
        duramen.remember("Ada has paid")
        return effects.do("pay")

    @duramen.task
    def job() -> str:
        return pay()

    def die(reached: str) -> None:
        if reached == point:
            crashpoints.listen(None)
            raise Killed

    if point is not None:
        crashpoints.listen(die)
        try:
            run_until_killed(dm, job, id="r")
        finally:
            crashpoints.listen(None)
        events = [event.type for event in dm.session("r").events()]
        committed = point == "step.recorded"
        assert (dm.run(rows), events.count("step.done"), events.count("memory.added")) == (committed,) * 3
    assert dm.run(job, id="r") == "pay done"
    assert dm.run(rows) == 1
    assert [event.data["content"] for event in dm.session("r").events(types="memory.added")] == ["Ada has paid"]


def test_a_failed_attempt_leaves_no_rows(dm: Duramen, effects: SideEffects) -> None:
    @duramen.step(retry=Retry(attempts=2, first=0))
    def pay() -> None:
        insert("ada", 5)
        effects.do("try")
        if effects.times("try") == 1:
            raise TimeoutError("half way")

    @duramen.task
    def job() -> None:
        pay()

    dm.run(job, id="r")
    assert dm.run(rows) == 1
    assert effects.times("try") == 2


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_step_must_not_end_the_transaction(dm: Duramen, end: str) -> None:
    @duramen.step
    def pay() -> None:
        insert("ada", 5).execute(end)

    @duramen.task
    def job() -> None:
        pay()

    with pytest.raises(InvalidInput, match="ended the transaction"):
        dm.run(job, id="r")


def test_other_writes_during_a_transaction_are_refused(dm: Duramen) -> None:
    refused = []

    @duramen.step
    def pay() -> None:
        insert("ada", 5)
        for use in (lambda: dm.session("other").append("note"), lambda: duramen.report(1)):
            try:
                use()
            except InvalidInput as error:
                refused.append(error.message)

    @duramen.step(timeout=5)
    def slow() -> None:
        duramen.transaction()

    @duramen.task
    def job() -> None:
        pay()
        slow()

    with pytest.raises(InvalidInput, match="cannot use a transaction"):
        dm.run(job, id="r")
    assert len(refused) == (2 if dm._core._journal.store.name == "sqlite" else 1)
    assert dm.run(rows) == 1
    with pytest.raises(InvalidInput, match="outside a step"):
        duramen.transaction()


def test_transactions_of_concurrent_runs_are_serialized(dm: Duramen) -> None:
    @duramen.step
    def add() -> None:
        connection = duramen.transaction()
        if dm._core._journal.store.name == "postgres":
            connection.execute("LOCK TABLE accounts")
        current = connection.execute("SELECT coalesce(max(amount), 0) FROM accounts").fetchone()[0]
        connection.execute(f"INSERT INTO accounts VALUES ('n{current}', {current + 1})")

    @duramen.task
    def job() -> None:
        for _ in range(5):
            add()

    for number in range(6):
        dm.start(job, id=f"r{number}")
    dm.work([job], until_idle=True, concurrency=6)
    assert {one.status for one in dm.runs(task="job")} == {"done"}
    assert dm.run(rows) == 30


@pytest.mark.promise("X10", "J8")
def test_a_commit_that_sqlite_rolled_back_leaves_no_gap(tmp_path: Path) -> None:
    refusals = [True]

    @duramen.step
    def pay() -> None:
        connection = insert("ada", 5)
        connection.set_commit_hook(lambda: bool(refusals) and refusals.pop())  # once, like a full disk

    @duramen.task
    def job() -> None:
        pay()

    with duramen.open(tmp_path / "agent.db") as dm:
        dm.run(set_up, id="set-up")
        with pytest.raises(StoreError):
            dm.run(job, id="r")
        dm.run(job, id="r")
        assert dm.run(rows) == 1
        assert dm.verify().ok


@pytest.mark.promise("J2")
def test_an_interrupt_at_begin_leaves_no_open_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Appender) -> None:
        raise KeyboardInterrupt

    with duramen.open(tmp_path / "agent.db") as dm, duramen.open(tmp_path / "agent.db") as other:
        dm.session("s").append("note", 1)
        with monkeypatch.context() as patched:
            patched.setattr(Appender, "refresh", interrupt)
            with pytest.raises(KeyboardInterrupt):
                dm._core._journal.store.begin()
        dm.session("s").append("note", 2)
        assert [event.data for event in other.session("s").events()] == [1, 2]


# -- shared state


@pytest.mark.promise("M1", "M3")
def test_a_stale_update_raises_a_conflict(dm: Duramen) -> None:
    plan = dm.state("plan")
    assert plan.get("none yet") == ("none yet", 0)
    assert plan.set({"city": "NYC"}, expected=0, actor="one") == 1
    value, version = plan.get()
    plan.set({"city": "LAX"}, expected=version, actor="two")
    with pytest.raises(StateConflict) as conflict:
        plan.set({"city": "SFO"}, expected=version, actor="one")
    assert (conflict.value.expected, conflict.value.actual) == (1, 2)
    assert plan.get() == ({"city": "LAX"}, 2)
    assert plan.at(1) == value
    assert plan.set({"city": "LAX"}, expected=2, key="once") == plan.set({"city": "LAX"}, expected=2, key="once")
    assert [event.actor for event in dm.session("state:plan").events()][:2] == ["one", "two"]


@pytest.mark.promise("M1")
def test_concurrent_updates_lose_nothing(dm: Duramen) -> None:
    def agent() -> None:
        for _ in range(10):
            dm.state("count").update(lambda value: value + 1, default=0)

    run_in_threads([agent] * 4)
    assert dm.state("count").get().value == 40


@pytest.mark.promise("M1")
def test_merge_combines_two_versions(dm: Duramen) -> None:
    todo = dm.state("todo")
    todo.set({"a"}, expected=0)
    base = todo.get()
    todo.set({"a", "b"}, expected=base.version)
    merged = todo.merge({"a", "c"}, base, lambda old, theirs, mine: theirs | mine)
    assert merged.value == {"a", "b", "c"} == todo.get().value
    assert todo.merge({"x"}, todo.get(), lambda *_: pytest.fail("there is nothing to merge")).value == {"x"}


def run_in_threads(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
