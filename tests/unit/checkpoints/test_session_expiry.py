"""`expire` removes old checkpoints by policy, and only those that no run, fork or pin needs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from programs.session_writers import damage_bookmark, damage_last_chunk
from programs.side_effects import Killed, Open, SideEffects

import duramen
from duramen import Checkpoint, Duramen, RunStatus
from duramen.crash_points import listen
from duramen.errors import RunCancelled, RunParked
from duramen.testing.clock import FakeClock

WEEK = 7 * 24 * 3600.0


@pytest.fixture(autouse=True)
def _reset_crash_points() -> Iterator[None]:
    yield
    listen(None)


def save(dm: Duramen, clock: FakeClock, count: int, session: str = "s") -> list[Checkpoint]:
    """Save states 0, 1, …, one hour apart. The last one is saved now."""
    saved = []
    for number in range(count):
        clock.advance(3600 if number else 0)
        saved.append(dm.session(session).checkpoint({"n": number, "log": lines(number)}))
    return saved


def lines(count: int) -> list[str]:
    return [f"line {number} " * 20 for number in range(count)]


def remaining(dm: Duramen, session: str = "s") -> list[int]:
    """The numbers of the listed states. Checks that each can be read completely."""
    loaded = []
    for one in reversed(list(dm.session(session).checkpoints())):
        state = dm.session(session).state(id=one.id)
        assert state is not None
        assert state.values["log"] == lines(state.values["n"])
        loaded.append(state.values["n"])
    return loaded


@pytest.mark.promise("C6")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, [5]),
        ({"keep_last": 3}, [3, 4, 5]),
        ({"keep_last": 99}, [0, 1, 2, 3, 4, 5]),
        ({"older_than": 0}, [5]),
        ({"older_than": 7200}, [4, 5]),
        ({"older_than": 7201}, [3, 4, 5]),
        ({"keep_last": 4, "older_than": 7200}, [2, 3, 4, 5]),
        ({"older_than": 1e9}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_old_checkpoints_expire_by_policy(clock: FakeClock, policy: dict[str, Any], expected: list[int]) -> None:
    with duramen.open("memory:", clock=clock) as dm:
        saved = save(dm, clock, 6)
        assert dm.session("s").expire(**policy) == 6 - len(expected)
        assert remaining(dm) == expected
        assert dm.session("s").expire(**policy) == 0
        assert [dm.session("s").state(id=one.id) is None for one in saved] == [n not in expected for n in range(6)]


@pytest.mark.promise("C6")
def test_expire_keeps_pins_fork_points_and_the_newest_checkpoint(open_one: Open, clock: FakeClock) -> None:
    dm = open_one()
    saved = save(dm, clock, 8)
    dm.session("s").pin(saved[2].id)
    dm.session("s").pin(saved[3].id)
    dm.session("s").pin(saved[3].id, False)
    dm.fork("s", "fork", at=saved[5].position)
    dm.fork("fork", "nested fork", at=saved[1].position)
    dm.fork("s", "empty fork", at=0)
    before = dm.session("s").head().position
    assert open_one().session("s").expire() == 4
    dm = open_one()
    assert remaining(dm) == [1, 2, 5, 7], "a fork of a fork, a pin, a fork, the newest"
    for session, number in (("fork", 5), ("nested fork", 1), ("s", 7)):
        loaded = dm.session(session).state()
        assert loaded is not None
        assert loaded.values["n"] == number
    assert dm.session("empty fork").state() is None
    assert dm.session("s").state(at=saved[6].position).values["n"] == 5  # type: ignore[union-attr]
    events = [event.data for event in dm.session("s").events(start=before + 1)]
    assert [one["reason"] for one in events] == ["expired"], "the expiry is journaled once"
    save(dm, clock, 3)
    assert dm.session("s").expire(keep_last=2) == 2
    assert dm.verify().ok


def test_a_fork_expires_only_its_own_checkpoints(open_one: Open, clock: FakeClock) -> None:
    dm = open_one()
    save(dm, clock, 4)
    dm.fork("s", "fork")
    save(dm, clock, 3, "fork")
    assert dm.session("fork").expire() == 2
    assert remaining(dm) == [0, 1, 2, 3]
    assert remaining(dm, "fork") == [0, 1, 2, 3, 2]
    assert dm.session("unknown").expire() == 0


@duramen.task
def asks() -> Any:
    return duramen.ask("Continue?")


@duramen.task
def expires_checkpoints() -> int:
    """Expires while it runs."""
    handle: Duramen = expires_checkpoints.dm  # type: ignore[attr-defined]
    return handle.session("s").expire()


@pytest.mark.promise("C6", "C7")
@pytest.mark.parametrize("run", ["parked", "queued", "sleeping", "crashed", "live"])
def test_nothing_expires_while_a_run_is_unfinished(
    open_one: Open, clock: FakeClock, effects: SideEffects, run: str
) -> None:
    @duramen.step
    def act() -> str:
        return effects.do("act")

    @duramen.task
    def dies() -> str:
        return act()

    @duramen.task
    def sleeps() -> None:
        duramen.sleep(3 * WEEK)

    dm = open_one()
    save(dm, clock, 5)
    if run == "parked":
        with pytest.raises(RunParked):
            dm.run(asks, id="r", session="s")
    elif run == "queued":
        dm.start(asks, id="r", session="s")
    elif run == "sleeping":
        dm.start(sleeps, id="r", session="s")
        dm.work([sleeps], until_idle=True)
    elif run == "crashed":
        effects.die = "before act"
        with pytest.raises(Killed):
            dm.run(dies, id="r", session="s")
    else:
        expires_checkpoints.dm = dm  # type: ignore[attr-defined]
        assert dm.run(expires_checkpoints, id="r", session="s") == 0, "the run itself calls expire"
        assert remaining(dm) == [0, 1, 2, 3, 4]
        assert dm.session("s").expire() == 4, "the run has ended"
        return
    expected = {"queued": RunStatus.QUEUED, "sleeping": RunStatus.SLEEPING, "parked": RunStatus.WAITING}
    clock.advance(WEEK)
    assert dm.run_info("r").status is expected.get(run, RunStatus.CRASHED)
    assert open_one().session("s").expire(keep_last=1, older_than=1) == 0
    assert remaining(open_one()) == [0, 1, 2, 3, 4]
    dm.cancel("r")
    with pytest.raises(RunCancelled):
        dm.resume("r")
    assert open_one().session("s").expire() == 4


@pytest.mark.promise("C7")
def test_nothing_expires_without_a_call(open_one: Open, clock: FakeClock) -> None:
    save(open_one(), clock, 4)
    clock.advance(520 * WEEK)
    dm = open_one()
    dm.session("s").checkpoint({"n": 4, "log": lines(4)})
    dm.session("other").checkpoint(1)
    assert remaining(open_one()) == [0, 1, 2, 3, 4]


def make_change(what: str, dm: Duramen, saved: list[Checkpoint]) -> None:
    if what == "pinned":
        dm.session("s").pin(saved[0].id)
    elif what == "started":
        dm.start(asks, id="r", session="s")
    elif what == "another":
        dm.session("s").checkpoint({"n": 0, "log": []})
    else:
        dm.fork("s", "fork", at=saved[0].position)
        dm.session("s").append("note")


@pytest.mark.promise("C6")
@pytest.mark.parametrize("what", ["pinned", "started", "another", "forked"])
def test_expire_respects_concurrent_changes(open_one: Open, clock: FakeClock, what: str) -> None:
    dm, other = open_one(), open_one()
    saved = save(dm, clock, 4)

    def act_concurrently(point: str) -> None:
        if point == "checkpoints.dropping":
            listen(None)
            make_change(what, other, saved)

    listen(act_concurrently)
    expired = dm.session("s").expire()
    expected = {"pinned": [0, 3], "started": [0, 1, 2, 3], "another": [0], "forked": [0, 3]}[what]
    assert remaining(open_one()) == expected
    assert expired == 4 + (what == "another") - len(expected)


@pytest.mark.promise("C6", "J8")
@pytest.mark.parametrize("what", ["row", "chunk"])
def test_expire_keeps_the_newest_readable_checkpoint(
    open_one: Open, any_address: str, clock: FakeClock, what: str
) -> None:
    dm = open_one()
    saved = save(dm, clock, 4)
    if what == "row":
        damage_bookmark(dm, any_address, "state")
    else:
        damage_last_chunk(dm, any_address)
    open_one().session("s").expire()
    loaded = open_one().session("s").state()
    assert loaded is not None
    assert (loaded.values["n"], [one.id for one in loaded.skipped]) in ((2, [saved[3].id]), (2, []))
    assert open_one().session("s").state(id=saved[0].id) is None


def test_loading_by_time_finds_an_older_checkpoint_after_expiry(open_one: Open, clock: FakeClock) -> None:
    saved = save(open_one(), clock, 5)
    open_one().session("s").pin(saved[1].id)
    open_one().session("s").expire()
    loaded = open_one().session("s").state(at=saved[3].at + dt.timedelta(seconds=1))
    assert loaded is not None
    assert loaded.values["n"] == 1
