"""Old checkpoints go when a policy says so, and only those that nobody can need: C6 and C7."""

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
def _nobody_listens() -> Iterator[None]:
    yield
    listen(None)


def save(dm: Duramen, clock: FakeClock, count: int, session: str = "s") -> list[Checkpoint]:
    """Checkpoints of states 0, 1, …, an hour apart, the last one now."""
    made = []
    for number in range(count):
        clock.advance(3600 if number else 0)
        made.append(dm.session(session).checkpoint({"n": number, "log": lines(number)}))
    return made


def lines(count: int) -> list[str]:
    return [f"line {number} " * 20 for number in range(count)]


def left(dm: Duramen, session: str = "s") -> list[int]:
    """The numbers of the states that are listed, each of which can be read whole."""
    found = []
    for one in reversed(list(dm.session(session).checkpoints())):
        state = dm.session(session).state(id=one.id)
        assert state is not None
        assert state.values["log"] == lines(state.values["n"])
        found.append(state.values["n"])
    return found


@pytest.mark.promise("C6")
@pytest.mark.parametrize(
    ("policy", "stay"),
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
def test_old_ones_go_by_policy(clock: FakeClock, policy: dict[str, Any], stay: list[int]) -> None:
    with duramen.open("memory:", clock=clock) as dm:
        made = save(dm, clock, 6)
        assert dm.session("s").expire(**policy) == 6 - len(stay)
        assert left(dm) == stay
        assert dm.session("s").expire(**policy) == 0
        assert [dm.session("s").state(id=one.id) is None for one in made] == [n not in stay for n in range(6)]


@pytest.mark.promise("C6")
def test_what_goes_is_gone_and_what_stays_goes_on(open_one: Open, clock: FakeClock) -> None:
    dm = open_one()
    made = save(dm, clock, 8)
    dm.session("s").pin(made[2].id)
    dm.session("s").pin(made[3].id)
    dm.session("s").pin(made[3].id, False)
    dm.fork("s", "twig", at=made[5].position)
    dm.fork("twig", "twig of twig", at=made[1].position)
    dm.fork("s", "bud", at=0)
    before = dm.session("s").head().position
    assert open_one().session("s").expire() == 4
    dm = open_one()
    assert left(dm) == [1, 2, 5, 7], "a fork of a fork, a pin, a fork, the newest"
    for session, number in (("twig", 5), ("twig of twig", 1), ("s", 7)):
        found = dm.session(session).state()
        assert found is not None
        assert found.values["n"] == number
    assert dm.session("bud").state() is None
    assert dm.session("s").state(at=made[6].position).values["n"] == 5  # type: ignore[union-attr]
    told = [event.data for event in dm.session("s").events(start=before + 1)]
    assert [one["reason"] for one in told] == ["expired"], "it is journaled, once"
    save(dm, clock, 3)
    assert dm.session("s").expire(keep_last=2) == 2
    assert dm.verify().ok


def test_a_fork_expires_only_its_own(open_one: Open, clock: FakeClock) -> None:
    dm = open_one()
    save(dm, clock, 4)
    dm.fork("s", "twig")
    save(dm, clock, 3, "twig")
    assert dm.session("twig").expire() == 2
    assert left(dm) == [0, 1, 2, 3]
    assert left(dm, "twig") == [0, 1, 2, 3, 2]
    assert dm.session("nobody").expire() == 0


@duramen.task
def patient() -> Any:
    return duramen.ask("Shall I go on?")


@duramen.task
def tidy() -> int:
    """Expires while it runs."""
    handle: Duramen = tidy.dm  # type: ignore[attr-defined]
    return handle.session("s").expire()


@pytest.mark.promise("C6", "C7")
@pytest.mark.parametrize("run", ["parked", "queued", "sleeping", "crashed", "live"])
def test_an_unfinished_run_loses_nothing(open_one: Open, clock: FakeClock, effects: SideEffects, run: str) -> None:
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
            dm.run(patient, id="r", session="s")
    elif run == "queued":
        dm.start(patient, id="r", session="s")
    elif run == "sleeping":
        dm.start(sleeps, id="r", session="s")
        dm.work([sleeps], until_idle=True)
    elif run == "crashed":
        effects.die = "before act"
        with pytest.raises(Killed):
            dm.run(dies, id="r", session="s")
    else:
        tidy.dm = dm  # type: ignore[attr-defined]
        assert dm.run(tidy, id="r", session="s") == 0, "asked in the middle of the run"
        assert left(dm) == [0, 1, 2, 3, 4]
        assert dm.session("s").expire() == 4, "and now it has ended"
        return
    expected = {"queued": RunStatus.QUEUED, "sleeping": RunStatus.SLEEPING, "parked": RunStatus.WAITING}
    clock.advance(WEEK)
    assert dm.run_info("r").status is expected.get(run, RunStatus.CRASHED)
    assert open_one().session("s").expire(keep_last=1, older_than=1) == 0
    assert left(open_one()) == [0, 1, 2, 3, 4]
    dm.cancel("r")
    with pytest.raises(RunCancelled):
        dm.resume("r")
    assert open_one().session("s").expire() == 4


@pytest.mark.promise("C7")
def test_nothing_goes_by_itself(open_one: Open, clock: FakeClock) -> None:
    save(open_one(), clock, 4)
    clock.advance(520 * WEEK)
    dm = open_one()
    dm.session("s").checkpoint({"n": 4, "log": lines(4)})
    dm.session("other").checkpoint(1)
    assert left(open_one()) == [0, 1, 2, 3, 4]


def do_meanwhile(what: str, dm: Duramen, made: list[Checkpoint]) -> None:
    if what == "pinned":
        dm.session("s").pin(made[0].id)
    elif what == "started":
        dm.start(patient, id="r", session="s")
    elif what == "another":
        dm.session("s").checkpoint({"n": 0, "log": []})
    else:
        dm.fork("s", "twig", at=made[0].position)
        dm.session("s").append("note")


@pytest.mark.promise("C6")
@pytest.mark.parametrize("what", ["pinned", "started", "another", "forked"])
def test_what_happens_meanwhile_counts(open_one: Open, clock: FakeClock, what: str) -> None:
    dm, other = open_one(), open_one()
    made = save(dm, clock, 4)

    def meanwhile(point: str) -> None:
        if point == "checkpoints.dropping":
            listen(None)
            do_meanwhile(what, other, made)

    listen(meanwhile)
    gone = dm.session("s").expire()
    stay = {"pinned": [0, 3], "started": [0, 1, 2, 3], "another": [0], "forked": [0, 3]}[what]
    assert left(open_one()) == stay
    assert gone == 4 + (what == "another") - len(stay)


@pytest.mark.promise("C6", "J8")
@pytest.mark.parametrize("what", ["row", "chunk"])
def test_with_a_damaged_newest_the_newest_that_can_be_read_stays(
    open_one: Open, any_address: str, clock: FakeClock, what: str
) -> None:
    dm = open_one()
    made = save(dm, clock, 4)
    if what == "row":
        damage_bookmark(dm, any_address, "state")
    else:
        damage_last_chunk(dm, any_address)
    open_one().session("s").expire()
    found = open_one().session("s").state()
    assert found is not None
    assert (found.values["n"], [one.id for one in found.skipped]) in ((2, [made[3].id]), (2, []))
    assert open_one().session("s").state(id=made[0].id) is None


def test_a_time_between_two_is_the_earlier_one_however_much_expired(open_one: Open, clock: FakeClock) -> None:
    made = save(open_one(), clock, 5)
    open_one().session("s").pin(made[1].id)
    open_one().session("s").expire()
    found = open_one().session("s").state(at=made[3].at + dt.timedelta(seconds=1))
    assert found is not None
    assert found.values["n"] == 1
