"""Several writers append to one session: fences, changed heads, signals, open transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import duramen
from duramen import Draft, Duramen
from duramen.errors import InvalidInput, LeaseLost, StoreClosed
from duramen.runtime import drive
from duramen.testing.clock import FakeClock

WORKSPACE = "default"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "agent.db")


def append(dm: Duramen, *kinds: str, fence: int | None = None, synced: bool = True) -> int:
    """Append events to session "s" as a run does. Returns the last position."""
    journal = dm._core._journal

    async def work() -> int:
        owner = await journal.owner(None)
        prepared = [journal.prepare(Draft(kind, {}), owner) for kind in kinds]
        stored = await journal.append_prepared("s", prepared, owner, fence=fence, synced=synced)
        return stored.records[-1].position

    return drive(work())


def acquire(dm: Duramen, clock: FakeClock) -> int:
    """The fence of a new lease on session "s", for ten seconds."""
    now = clock.now()
    lease = drive(dm._core._journal.store.acquire(WORKSPACE, "s", "owner", now, now + 10_000_000))
    assert lease is not None
    return lease.fence


@pytest.mark.promise("X16")
@pytest.mark.parametrize("kinds", [("one",), ("one", "two")])
def test_only_the_current_fence_can_write(address: str, kinds: tuple[str, ...]) -> None:
    clock = FakeClock()
    with duramen.open(address, clock=clock) as dm:
        stale, fence = acquire(dm, clock), acquire(dm, clock)
        append(dm, *kinds, fence=fence)
        append(dm, *kinds, fence=fence, synced=False)
        for bad in (stale, fence + 1):
            with pytest.raises(LeaseLost):
                append(dm, *kinds, fence=bad)
        clock.advance(11)
        with pytest.raises(LeaseLost):
            append(dm, *kinds, fence=fence, synced=False)
        assert dm.session("s").head().position == 2 * len(kinds)
        assert dm.verify().ok


@pytest.mark.promise("J5", "J14")
@pytest.mark.parametrize("synced", [True, False])
def test_two_handles_can_append_in_turn(address: str, synced: bool) -> None:
    with duramen.open(address) as one, duramen.open(address) as two:
        expected = [f"{who}{turn}" for turn in range(10) for who in ("a", "b")]
        for turn in range(10):
            assert append(one, f"a{turn}", synced=synced) == 2 * turn + 1
            assert append(two, f"b{turn}", synced=synced) == 2 * turn + 2
        assert [event.type for event in one.session("s").events()] == expected
        assert one.verify().ok


@duramen.step
def add(number: int) -> int:
    return number + 1


@pytest.mark.promise("X16")
def test_a_run_that_lost_its_lease_raises_lease_lost(address: str) -> None:
    clock = FakeClock()

    @duramen.step
    def take_over() -> int:
        clock.advance(60)
        with duramen.open(address, clock=clock) as other:
            now = clock.now()
            assert drive(other._core._journal.store.acquire(WORKSPACE, "r", "other", now, now + 10**9)) is not None
        return 1

    @duramen.task
    def lose_lease() -> int:
        return add(take_over())

    with duramen.open(address, clock=clock) as dm:
        with pytest.raises(LeaseLost):
            dm.run(lose_lease, id="r")
        assert [one.type for one in dm.session("r").events()] == ["run.started", "step.started"]


@pytest.mark.promise("X15")
def test_a_run_receives_a_signal_that_another_handle_sent_during_a_step(address: str) -> None:
    @duramen.step
    def send(dm: Duramen) -> int:
        dm.signal("r", "news", 7)
        return 1

    @duramen.task
    def receive_news() -> Any:
        sender[0]()
        add(1)
        return duramen.receive("news")

    with duramen.open(address) as dm, duramen.open(address) as other:
        sender = [lambda: send(other)]
        assert dm.run(receive_news, id="r") == 7


def test_a_closed_store_raises_store_closed(address: str) -> None:
    with duramen.open(address) as dm:
        append(dm, "one")
    for session in ("s", "new"):
        with pytest.raises(StoreClosed):
            dm.session(session).append("too late")


@pytest.mark.promise("X10")
def test_the_transaction_of_a_step_contains_no_other_append(address: str) -> None:
    @duramen.step
    def append_elsewhere(dm: Duramen) -> int:
        duramen.transaction()
        if "postgresql" not in address:  # on PostgreSQL, other connections can write meanwhile
            with pytest.raises(InvalidInput):
                dm.session("s").append("elsewhere")
        raise ValueError("rolled back")

    @duramen.task
    def run_step() -> int:
        step[0]()
        return 1

    with duramen.open(address) as dm:
        append(dm, "before", "before")
        step = [lambda: append_elsewhere(dm)]
        with pytest.raises(ValueError, match="rolled back"):
            dm.run(run_step, id="r")
        assert [one.type for one in dm.session("s").events()] == ["before", "before"]
