"""The short way of plain steps: the same journal as by the long one, and left wherever something is unusual."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from duramen.stores.sqlite.logroom import LogRoom

import duramen
from duramen import Duramen
from duramen import crash_points as crashpoints
from duramen.errors import InvalidInput, LeaseLost, StoreClosed
from duramen.journal.chain import linking
from duramen.journal.lanes import PlainLane
from duramen.ports import Head, Lane, LeaseRow
from duramen.runtime import drive
from duramen.testing.clock import FakeClock

WORKSPACE = "default"
EVENTS = [("step.done", b"\0\x01"), ("step.started", b"\0\x02")]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """The stores that have lanes."""
    return str(request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "agent.db")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What every append by a lane gave: None where the long way was taken."""
    seen: list[int | None] = []
    append = PlainLane.append

    def watched(self: PlainLane, *given: Any) -> Head | None:
        head = append(self, *given)
        seen.append(None if head is None else head.position)
        return head

    monkeypatch.setattr(PlainLane, "append", watched)
    monkeypatch.setattr(LogRoom, "committed", lambda self: None)  # once in a while the long way makes room in the log
    return seen


@pytest.fixture
def listening() -> Iterator[Callable[[Callable[[str], None]], None]]:
    yield crashpoints.listen
    crashpoints.listen(None)


@duramen.step
def add(number: int) -> int:
    return number + 1


@duramen.step
def nothing() -> None:
    """Returns nothing."""


@duramen.task
def count(steps: int) -> int:
    total = 0
    for _ in range(steps):
        total = add(total)
        nothing()
    return total


def history(dm: Duramen, session: str = "r") -> list[tuple[Any, ...]]:
    return [(one.position, one.type, one.time, one.data, one.hash) for one in dm.session(session).events()]


@pytest.mark.promise("X1")
def test_the_short_way_leaves_the_same_journal_as_the_long_one(address: str, taken: list[int | None]) -> None:
    with duramen.open(address, clock=FakeClock()) as dm:
        assert dm.run(count, 5, id="r") == 5
        assert taken == [2, *range(4, 21, 2)], "an intent alone, then outcomes each with the next intent"
        assert dm.verify().ok
        short = history(dm)
    with duramen.open("memory:", clock=FakeClock()) as dm:
        assert dm.run(count, 5, id="r") == 5
        assert history(dm) == short, "down to the hashes"


@duramen.step
def secret() -> dict[str, str]:
    return {"password": "hunter2-hunter2"}


@duramen.step
def large() -> str:
    return "x" * 100_000


@duramen.step
def huge() -> int:
    return 2**70


@duramen.step
def memorable() -> int:
    duramen.remember("likes tea")
    return 1


@duramen.step
def talkative() -> int:
    for piece in range(3):
        duramen.emit(piece)
    return 1


@duramen.step(undo=lambda value: None)
def undoable() -> int:
    return 1


@duramen.step
def failing() -> int:
    raise ValueError("no")


@duramen.step(in_doubt="ask")
def costly() -> int:
    return 1


UNUSUAL: list[Any] = [secret, large, huge, memorable, talkative, undoable, failing, costly]


@duramen.task
def of_all_sorts(which: int) -> Any:
    add(1)
    try:
        found = UNUSUAL[which]()
    except ValueError as error:
        found = str(error)
    return found, add(2)


@pytest.mark.promise("X1", "X2")
@pytest.mark.parametrize("which", range(len(UNUSUAL)), ids=[step.name for step in UNUSUAL])
def test_an_unusual_step_gets_the_same_journal_on_either_way(address: str, which: int) -> None:
    with duramen.open(address, clock=FakeClock()) as dm, duramen.open("memory:", clock=FakeClock()) as long:
        assert dm.run(of_all_sorts, which, id="r") == long.run(of_all_sorts, which, id="r")
        assert history(dm) == history(long)
        assert dm.verify().ok
        assert "hunter2" not in str(history(dm))
        assert [one.content for one in dm.memory.list()] == [one.content for one in long.memory.list()]


@pytest.mark.parametrize("how", ["about somebody", "sealed"])
def test_what_is_hashed_under_a_salt_or_sealed_never_takes_the_short_way(
    address: str, how: str, taken: list[int | None]
) -> None:
    with duramen.open(address, key=b"k" * 32 if how == "sealed" else None) as dm:
        assert dm.run(count, 3, id="r", subject="ann" if how == "about somebody" else None) == 3
        assert dm.verify().ok
    assert taken == []


def test_a_lone_event_is_the_same_by_the_short_way(address: str, taken: list[int | None]) -> None:
    said = [{"text": "hello"}, {"password": "hunter2-hunter2"}, "x" * 100_000, None]
    with duramen.open(address, clock=FakeClock()) as dm, duramen.open("memory:", clock=FakeClock()) as long:
        for data in said:
            assert dm.session("r").append("said", data) == long.session("r").append("said", data)
        by_somebody = dm.session("r").append("said", 1, actor="ann", cause=2)
        assert (by_somebody.actor, by_somebody.cause, by_somebody.position) == ("ann", 2, 5)
        assert dm.verify().ok
        if "postgresql" not in address:
            assert taken == [None, 2, 4], "the first makes the session; what lies apart or has an actor is not plain"


# -- what a lane refuses


def opened(dm: Duramen, *, fence: int | None = None) -> tuple[Lane, LeaseRow]:
    """A lane to a session with one event, and its lease."""
    store = dm._core._journal.store
    dm.session("s").append("began")
    now = dm._core._journal.clock.now()
    lease = drive(store.acquire(WORKSPACE, "s", "me", now, now + 10_000_000))
    assert lease is not None
    lane = store.lane(WORKSPACE, "s", lease.fence if fence is None else fence, linking(WORKSPACE, "s"))
    assert lane is not None
    return lane, lease


@pytest.mark.promise("X16")
def test_a_lane_writes_under_its_fence_only(address: str) -> None:
    clock = FakeClock()
    with duramen.open(address, clock=clock) as dm:
        lane, _ = opened(dm)
        assert lane.append(clock.now(), EVENTS) == dm.session("s").head()
        stale, _ = opened(dm, fence=1)  # the lease was taken again: its fence is 2 now
        assert stale.append(clock.now(), EVENTS) is None
        current, lease = opened(dm)
        assert lease.fence == 3
        clock.advance(11)
        assert current.append(clock.now(), EVENTS[:1]) is None, "it has run out"
        assert [one.type for one in dm.session("s").events()].count("step.done") == 1
        assert dm.verify().ok


@pytest.mark.promise("X16")
def test_a_run_that_lost_its_lease_is_told_so(address: str) -> None:
    clock = FakeClock()

    @duramen.step
    def take_over() -> int:
        clock.advance(60)
        with duramen.open(address, clock=clock) as other:
            now = clock.now()
            assert drive(other._core._journal.store.acquire(WORKSPACE, "r", "other", now, now + 10**9)) is not None
        return 1

    @duramen.task
    def robbed() -> int:
        return add(take_over())

    with duramen.open(address, clock=clock) as dm:
        with pytest.raises(LeaseLost):
            dm.run(robbed, id="r")
        assert [one.type for one in dm.session("r").events()] == ["run.started", "step.started"]


def test_a_session_that_another_process_moved_takes_the_long_way_once(address: str) -> None:
    clock = FakeClock()
    with duramen.open(address, clock=clock) as dm, duramen.open(address, clock=clock) as other:
        lane, _ = opened(dm)
        other.session("s").append("signal.sent")
        assert lane.append(clock.now(), EVENTS) is None
        dm.session("s").append("by the long way")
        assert lane.append(clock.now(), EVENTS) == dm.session("s").head()
        assert dm.session("s").head().position == 5
        assert dm.verify().ok


def test_signals_from_others_are_taken_in_by_the_short_way(address: str) -> None:
    @duramen.step
    def be_told(dm: Duramen) -> int:
        dm.signal("r", "news", 7)
        return 1

    @duramen.task
    def hear() -> Any:
        told[0]()
        add(1)
        return duramen.receive("news")

    with duramen.open(address) as dm, duramen.open(address) as other:
        told = [lambda: be_told(other)]
        assert dm.run(hear, id="r") == 7


def test_a_closed_store_says_so_by_the_long_way(address: str) -> None:
    clock = FakeClock()
    with duramen.open(address, clock=clock) as dm:
        lane, _ = opened(dm)
    assert lane.append(clock.now(), EVENTS) is None
    for session in ("s", "new"):
        with pytest.raises(StoreClosed):
            dm.session(session).append("too late")


def test_nothing_slips_into_the_transaction_of_a_step(address: str) -> None:
    @duramen.step
    def write_beside(dm: Duramen) -> int:
        duramen.transaction()
        if "postgresql" not in address:  # there, others write meanwhile
            with pytest.raises(InvalidInput):
                dm.session("s").append("beside")
        raise ValueError("rolled back")

    @duramen.task
    def tempted() -> int:
        step[0]()
        return 1

    with duramen.open(address) as dm:
        dm.session("s").append("before")
        dm.session("s").append("before")
        step = [lambda: write_beside(dm)]
        with pytest.raises(ValueError, match="rolled back"):
            dm.run(tempted, id="r")
        assert [one.type for one in dm.session("s").events()] == ["before", "before"]


def test_who_comes_while_a_lane_writes_joins_the_group(
    address: str, taken: list[int | None], listening: Callable[[Callable[[str], None]], None]
) -> None:
    held, go_on = threading.Event(), threading.Event()
    first = threading.get_ident()
    runs: dict[str, int] = {}

    @duramen.step
    def hold_the_next() -> int:
        def listener(point: str) -> None:
            if point == "append.begun" and threading.get_ident() != first and not held.is_set():
                held.set()
                assert go_on.wait(30)

        listening(listener)
        return 1

    @duramen.task
    def slow() -> int:
        return add(hold_the_next())

    with duramen.open(address) as dm:
        # The groups of PostgreSQL are by session: the same one for both, or they would not meet.
        beside = next(name for name in map(str, range(100)) if together(dm, "slow", name))
        thread = threading.Thread(target=lambda: runs.update(slow=dm.run(slow, id="slow")))
        thread.start()
        assert held.wait(30)
        before = len(taken)
        runs["beside"] = dm.run(count, 3, id=beside)
        assert taken[before:] == [None] * 6, "nobody waits for a lane to be free"
        go_on.set()
        thread.join(30)
        assert runs == {"slow": 2, "beside": 3}
        assert dm.verify().ok


def together(dm: Duramen, one: str, other: str) -> bool:
    store: Any = dm._core._journal.store
    return store.name == "sqlite" or store._lane_of(WORKSPACE, one) == store._lane_of(WORKSPACE, other)


def test_an_event_loop_writes_for_all_and_has_no_lane(address: str, taken: list[int | None]) -> None:
    import asyncio

    async def main() -> None:
        async with await duramen.aopen(address) as dm:
            assert await dm.run(count, 3, id="r") == 3

    asyncio.run(main())
    assert taken == []
