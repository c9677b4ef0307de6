"""Workers: executing and taking over runs, queues with limits, and schedules."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from programs.child_processes import until
from programs.side_effects import Open, SideEffects, close_all

import duramen
from duramen import Duramen, Queue, RunStatus, Schedule
from duramen.errors import InvalidInput, LeaseLost
from duramen.runtime import drive
from duramen.testing.clock import FakeClock


@pytest.fixture
def open_one(address: str, clock: FakeClock) -> Iterator[Open]:
    """Opens handles, as new processes would. The in-memory store cannot have several."""
    opened: list[Duramen] = []

    def open_one() -> Duramen:
        opened.append(duramen.open(address, clock=clock))
        opened[-1]._core._engine.patience = 0
        return opened[-1]

    yield open_one
    close_all(opened)


@duramen.task
def echo(value: int) -> int:
    return value


@contextmanager
def working(handles: list[Duramen], *tasks: Any, **options: Any) -> Iterator[None]:
    """A worker of each handle, on its own thread. They are stopped at the end of the block."""
    threads = [threading.Thread(target=dm.work, args=(tasks,), kwargs=options, daemon=True) for dm in handles]
    for thread in threads:
        thread.start()
    until(lambda: all(dm._core._workers for dm in handles), "the workers")
    yield
    for dm in handles:
        dm.stop_working()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_a_worker_executes_runs_started_by_any_process(open_one: Open) -> None:
    with working([open_one()], echo):
        other = open_one()
        handles = [other.start(echo, number) for number in range(20)]
        assert [handle.result(timeout=60) for handle in handles] == list(range(20))


def test_workers_and_callers_are_woken_without_polling(open_one: Open) -> None:
    """With polling once a second, twenty round trips would take twenty seconds."""
    dm = open_one()
    with working([open_one()], echo):
        began = time.monotonic()
        for number in range(20):
            assert dm.start(echo, number).result(timeout=60) == number
        assert time.monotonic() - began < 20


def test_a_worker_ignores_unknown_tasks_versions_and_queues(open_one: Open) -> None:
    @duramen.task
    def unknown() -> None: ...

    @duramen.task(name="echo", version="2")
    def newer(value: int) -> int:
        return -value

    dm = open_one()
    dm.start(unknown, id="a")
    dm.start(newer, 3, id="b")
    dm.start(echo, 4, id="c", queue="not served")
    assert dm.work([echo], until_idle=True) == 0
    assert dm.work([newer], until_idle=True) == 1
    assert dm.resume("b") == -3
    with pytest.raises(InvalidInput, match="not a task"):
        dm.work([len])  # type: ignore[list-item]


def test_runs_start_by_priority_then_age_and_after_their_delay(
    open_one: Open, clock: FakeClock, effects: SideEffects
) -> None:
    @duramen.task
    def act(what: str) -> None:
        effects.do(what)

    dm = open_one()
    for what, priority in (("old", 0), ("urgent", 5), ("new", 0)):
        dm.start(act, what, priority=priority)
        clock.advance(1)
    dm.start(act, "later", delay=60)
    dm.work([act], until_idle=True, concurrency=1)
    assert [what for what, _ in effects.done] == ["urgent", "old", "new"]
    clock.advance(60)
    dm.work([act], until_idle=True)
    assert effects.times("later") == 1


@pytest.mark.promise("X16")
def test_after_a_takeover_only_the_new_owner_can_write(open_one: Open, clock: FakeClock, effects: SideEffects) -> None:
    stopped, resume = threading.Event(), threading.Event()

    @duramen.step
    def act(what: str) -> str:
        effects.do(what)
        if what == "first" and effects.times("first") == 1:
            stopped.set()
            resume.wait(60)
        return what

    @duramen.task
    def job() -> list[str]:
        return [act("first"), act("second")]

    sleepy, other = open_one(), open_one()
    sleepy._core._engine.heartbeat._renew = lambda run, now: None  # type: ignore[method-assign]
    lost: list[BaseException] = []

    def run() -> None:
        try:
            sleepy.run(job, id="r")
        except LeaseLost as error:
            lost.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    stopped.wait(60)
    assert other.run_info("r").status is RunStatus.RUNNING
    assert other.work([job], until_idle=True) == 0, "no other worker executes it while the lease is valid"
    clock.advance(31)
    assert other.work([job], until_idle=True) == 1
    before = [event.hash for event in other.session("r").events()]
    resume.set()
    thread.join(60)
    assert lost, "the old owner gets an error"
    assert [event.hash for event in other.session("r").events()] == before, "the old owner wrote nothing"
    assert other.resume("r") == ["first", "second"]


def test_a_lease_is_renewed_while_a_step_runs(open_one: Open, clock: FakeClock) -> None:
    dm = open_one()
    dm._core._engine.lease_seconds = 0.3

    def expiry() -> int:
        lease = drive(dm._core._journal.store.lease("default", "r"))
        return lease.expires if lease else 0

    @duramen.step
    def slow() -> str:
        before = expiry()

        def renewed() -> bool:
            clock.advance(0.001)
            return expiry() > before

        until(renewed, "a renewal")
        return "renewed"

    @duramen.task
    def job() -> str:
        return slow()

    assert dm.run(job, id="r") == "renewed"


# -- queues


@pytest.mark.promise("X28")
@pytest.mark.parametrize("per_key", [False, True])
def test_a_queue_limits_concurrency_across_workers(open_one: Open, per_key: bool) -> None:
    active: dict[str, int] = {}
    most: dict[str, int] = {}
    mutex = threading.Lock()

    @duramen.step
    def work(key: str) -> None:
        with mutex:
            active[key] = active.get(key, 0) + 1
            most[key] = max(most.get(key, 0), active[key])
            most["all"] = max(most.get("all", 0), sum(active.values()))
        if per_key:  # wait until runs of other keys are active too
            until(lambda: most["all"] > 2, "runs of several keys at a time")
        else:
            time.sleep(0.02)
        with mutex:
            active[key] -= 1

    @duramen.task
    def job(key: str) -> None:
        work(key)

    queue = Queue("mail", concurrency=2, per_key=per_key)
    dm = open_one()
    handles = [dm.start(job, key, queue="mail", queue_key=key) for key in ["a", "b", "c"] * 4]
    with working([open_one(), open_one()], job, queues=[queue]):
        for handle in handles:
            handle.result(timeout=120)
    assert most["all"] <= (6 if per_key else 2)
    assert max(most[key] for key in "abc") <= 2
    if per_key:
        assert most["all"] > 2, "keys do not block each other"


@pytest.mark.promise("X28")
def test_a_queue_limits_the_rate_of_starts(open_one: Open, clock: FakeClock) -> None:
    dm, other = open_one(), open_one()
    queue = Queue("calls", rate=(3, 60))
    for number in range(8):
        dm.start(echo, number, queue="calls")
    assert dm.work([echo], queues=[queue], until_idle=True) == 3
    assert other.work([echo], queues=[queue], until_idle=True) == 0
    clock.advance(61)
    assert other.work([echo], queues=[queue], until_idle=True) == 3
    clock.advance(61)
    assert dm.work([echo], queues=[queue], until_idle=True) == 2


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"rate": (0, 1)}, {"rate": (1, 0)}, {"name": ""}])
def test_invalid_queues_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Queue(**({"name": "q"} | options))  # type: ignore[arg-type]


# -- schedules


@pytest.mark.promise("X24")
@pytest.mark.parametrize(("missed", "expected"), [("one", 1), ("all", 5), ("skip", 0)])
def test_missed_ticks_follow_the_policy(open_one: Open, clock: FakeClock, missed: str, expected: int) -> None:
    nightly = Schedule("nightly", echo, every=3600, args=[1], missed=missed)  # type: ignore[arg-type]
    dm = open_one()
    assert dm.work([], schedules=[nightly], until_idle=True) == 0
    clock.advance(3601)
    assert dm.work([], schedules=[nightly], until_idle=True) == 1
    assert open_one().work([], schedules=[nightly], until_idle=True) == 0, "a restart does not double the tick"
    clock.advance(5 * 3600 + 600)
    assert open_one().work([], schedules=[nightly], until_idle=True) == expected
    runs = {one.id for one in dm.runs(task="echo")}
    assert len(runs) == 1 + expected
    ticks = [event.data["tick"] for event in dm.session("schedule:nightly").events()]
    assert [(tick - ticks[0]) // 3_600_000_000 for tick in ticks] == [0, 1, 6], (
        "the journal records each tick that was handled"
    )
    assert all(run.startswith("nightly@") for run in runs)


@pytest.mark.promise("X24")
def test_many_workers_fire_each_tick_once(open_one: Open, clock: FakeClock) -> None:
    minutely = Schedule("minutely", echo, cron="* * * * *", args=[7], missed="all")
    workers = [open_one() for _ in range(3)]
    for dm in workers:
        dm.work([], schedules=[minutely], until_idle=True)
    for _ in range(5):
        clock.advance(60)
        threads = [
            threading.Thread(target=lambda dm=dm: dm.work([], schedules=[minutely], until_idle=True)) for dm in workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(workers[0].runs()) == 5
    assert {one.status for one in workers[0].runs()} == {RunStatus.DONE}


def test_cron_uses_its_time_zone() -> None:
    summer = Schedule("s", echo, cron="30 2 * * *", tz="Europe/Berlin")
    ticks = summer.after(1_774_738_800_000_000)  # 2026-03-29 00:00 in Berlin, the night of a clock change
    first, second = next(ticks), next(ticks)
    assert (second - first) // 3_600_000_000 in (23, 24, 25)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cron": "x"},
        {"every": 0},
        {"cron": "* * * * *", "every": 1},
        {"every": 1, "missed": "some"},
        {"every": 1, "tz": "Mars"},
    ],
)
def test_invalid_schedules_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Schedule("s", echo, **options)  # type: ignore[arg-type]
