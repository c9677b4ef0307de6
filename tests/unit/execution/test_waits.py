"""Sleeping, signals, questions, rate limits and deadlines, on a fake clock."""

from __future__ import annotations

import datetime as dt
import threading
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest
from programs.side_effects import Open, SideEffects, event_types

import duramen
from duramen import RateLimited, Retry, RunStatus
from duramen.errors import DeadlineExceeded, InvalidInput, NoAnswer, RunError, RunParked
from duramen.testing.clock import FakeClock

WEEK = 7 * 24 * 3600.0


@duramen.task
def nap(seconds: float) -> str:
    duramen.sleep(seconds)
    return "awake"


@pytest.mark.promise("X14", "C7")
def test_a_run_sleeping_for_a_week_uses_no_thread_and_wakes_once(open_one: Open, clock: FakeClock) -> None:
    dm = open_one()
    dm.start(nap, WEEK, id="r")
    assert dm.work([nap], until_idle=True) == 1
    assert not [one for one in threading.enumerate() if one.name == "duramen-run"]
    info = dm.run_info("r")
    assert (info.status, info.waiting) == (RunStatus.SLEEPING, "the end of its sleep")
    assert info.wake == dt.datetime.fromtimestamp(clock.now() / 1e6, dt.UTC) + dt.timedelta(weeks=1)
    clock.advance(WEEK - 1)
    assert open_one().work([nap], until_idle=True) == 0
    clock.advance(3 * WEEK)  # no worker ran when it was due
    late = open_one()
    assert late.work([nap], until_idle=True) == 1
    assert late.work([nap], until_idle=True) == 0
    assert late.resume("r") == "awake"
    assert event_types(late, "r").count("run.resumed") == 1


def test_a_short_sleep_does_not_park_the_run(open_one: Open) -> None:
    dm = open_one()
    dm._core._engine.patience = 5
    dm._core._journal.clock = _SystemClock()
    assert dm.run(nap, 0.01, id="r") == "awake"
    assert event_types(dm, "r") == ["run.started", "step.started", "step.done", "run.finished"]


class _SystemClock:
    def now(self) -> int:
        return int(dt.datetime.now(dt.UTC).timestamp() * 1e6)


def test_sleep_until_requires_a_time_zone(open_one: Open, clock: FakeClock) -> None:
    when = dt.datetime.fromtimestamp(clock.now() / 1e6, dt.UTC) + dt.timedelta(hours=1)

    @duramen.task
    def wait(when: dt.datetime) -> str:
        duramen.sleep_until(when)
        return "awake"

    dm = open_one()
    dm.start(wait, when, id="r")
    dm.work([wait], until_idle=True)
    assert dm.run_info("r").wake == when
    clock.advance(3600)
    assert dm.resume("r") == "awake"
    dm.start(wait, when.replace(tzinfo=None), id="naive")
    with pytest.raises(InvalidInput, match="zone"):
        dm.resume("naive")


# -- signals and questions


@duramen.task
def listener(count: int, timeout: float | None = None) -> list[Any]:
    return [duramen.receive("news", timeout=timeout, default="nothing") for _ in range(count)]


@pytest.mark.promise("X15")
def test_signals_are_received_once_and_in_order(open_one: Open) -> None:
    dm = open_one()
    dm.start(listener, 3, id="r")
    dm.signal("r", "news", 1)
    dm.signal("r", "other", "not for it")
    dm.signal("r", "news", 2, key="same")
    dm.signal("r", "news", 2, key="same")
    dm.work([listener], until_idle=True)
    assert dm.run_info("r").status is RunStatus.WAITING
    later = open_one()
    later.signal("r", "news", 3)
    assert later.work([listener], until_idle=True) == 1
    assert later.resume("r") == [1, 2, 3]
    with pytest.raises(RunError, match="has ended"):
        later.signal("r", "news", 4)


def test_a_signal_sent_while_the_run_parks_is_not_lost(open_one: Open) -> None:
    dm = open_one()
    engine = dm._core._engine
    dm.start(listener, 1, id="r")
    write = engine.journal.append_prepared

    async def late(session: str, prepared: Any, *args: Any, **options: Any) -> Any:
        if any(one.draft.type == "run.parked" for one in prepared):
            engine.journal.append_prepared = write  # type: ignore[method-assign]
            await dm._core.signal("r", "news", "just in time")
        return await write(session, prepared, *args, **options)

    engine.journal.append_prepared = late  # type: ignore[method-assign]
    dm.work([listener], until_idle=True)
    assert dm.run_info("r").status is RunStatus.DONE, "the worker executed it again"
    assert dm.resume("r") == ["just in time"]


def test_receive_times_out(open_one: Open, clock: FakeClock) -> None:
    dm = open_one()
    with pytest.raises(RunParked):
        dm.run(listener, 1, 60, id="r")
    clock.advance(61)
    assert open_one().resume("r") == ["nothing"]

    @duramen.task
    def strict() -> str:
        try:
            return str(duramen.receive("news", timeout=1))
        except NoAnswer:
            return "gave up"

    with pytest.raises(RunParked):
        dm.run(strict, id="s")
    clock.advance(2)
    assert open_one().resume("s") == "gave up"


@pytest.mark.promise("X15")
@pytest.mark.parametrize("answer", [True, False])
def test_a_question_can_be_answered_after_a_restart(open_one: Open, effects: SideEffects, answer: bool) -> None:
    @duramen.step
    def book(flight: str) -> str:
        return effects.do(flight)

    @duramen.task
    def trip() -> str:
        if not duramen.ask("Book it?", {"flight": "LH400"}):
            return "cancelled"
        if not duramen.ask("Really?"):
            return "not really"
        return book("LH400")

    dm = open_one()
    with pytest.raises(RunParked, match="Book it"):
        dm.run(trip, id="r")
    question = dm.run_info("r").steps[-1]
    assert question.details == {"question": "Book it?", "payload": {"flight": "LH400"}}
    later = open_one()
    later.answer("r", answer, actor="ada")
    with pytest.raises(RunError, match="no open question"):
        later.answer("r", not answer)  # a second click must not answer the next question
    if answer:
        with pytest.raises(RunParked, match="Really"):
            later.resume("r")
        later.answer("r", True)
    assert later.resume("r") == ("LH400 done" if answer else "cancelled")
    assert effects.times("LH400") == answer
    with pytest.raises(RunError):
        later.answer("r", True)


def test_an_unanswered_question_returns_its_default(open_one: Open, clock: FakeClock) -> None:
    @duramen.task
    def polite() -> Any:
        return duramen.ask("Tea?", timeout=3600, default="coffee")

    dm = open_one()
    with pytest.raises(RunParked):
        dm.run(polite, id="r")
    clock.advance(3601)
    assert dm.work([polite], until_idle=True) == 1
    assert dm.resume("r") == "coffee"


# -- retries, rate limits, deadlines


class TooMany(Exception):
    """A rate limit as HTTP clients raise it."""

    def __init__(self, after: str) -> None:
        super().__init__("429 Too Many Requests")
        self.response = SimpleNamespace(status_code=429, headers={"retry-after": after})


@pytest.mark.promise("X13")
@pytest.mark.parametrize("how", ["error", "header", "date"])
def test_a_rate_limit_is_a_durable_timer_not_a_failure(
    open_one: Open, clock: FakeClock, effects: SideEffects, how: str
) -> None:
    later = dt.datetime.fromtimestamp(clock.now() / 1e6, dt.UTC) + dt.timedelta(seconds=90)
    errors = {"error": RateLimited(90), "header": TooMany("90"), "date": TooMany(format_datetime(later, usegmt=True))}

    @duramen.step
    def call() -> str:
        if effects.times("call") < 2:
            effects.do("call")
            raise errors[how]
        return effects.do("call")

    @duramen.task
    def job() -> str:
        return call()

    dm = open_one()
    dm.start(job, id="r")
    dm.work([job], until_idle=True)
    assert dm.run_info("r").status is RunStatus.SLEEPING
    clock.advance(80)
    assert open_one().work([job], until_idle=True) == 0
    clock.advance(11)
    assert open_one().work([job], until_idle=True) == 1
    clock.advance(91)
    assert open_one().resume("r") == "call done"
    assert effects.times("call") == 3


@pytest.mark.promise("X12", "X13")
def test_rate_limits_do_not_count_as_attempts_after_a_restart(
    open_one: Open, clock: FakeClock, effects: SideEffects
) -> None:
    @duramen.step(retry=Retry(attempts=2, first=10, jitter=0))
    def call() -> str:
        effects.do("call")
        if effects.times("call") <= 2:
            raise RateLimited(30)
        if effects.times("call") == 3:
            raise TimeoutError("the first real failure")
        return "answered"

    @duramen.task
    def job() -> str:
        return call()

    open_one().start(job, id="r")
    for _ in range(4):
        assert open_one().work([job], until_idle=True) == 1
        clock.advance(31)
    assert open_one().resume("r", job) == "answered"


def test_two_concurrent_answers_give_one_answer(open_one: Open) -> None:
    @duramen.task
    def curious() -> list[Any]:
        return [duramen.ask("First?"), duramen.ask("Second?")]

    dm = open_one()
    with pytest.raises(RunParked):
        dm.run(curious, id="r")
    engine = dm._core._engine
    history = engine.history

    async def slow(row: Any, at: int | None = None) -> Any:
        known = await history(row, at)
        engine.history = history  # type: ignore[method-assign]
        await dm._core.answer("r", "theirs")  # another person answers after this call has read the history
        return known

    engine.history = slow  # type: ignore[method-assign]
    dm.answer("r", "mine")
    assert [event.data["payload"] for event in dm.session("r").events(types="signal.sent")] == ["theirs"]
    with pytest.raises(RunParked, match="Second"):
        dm.resume("r", curious)


@pytest.mark.promise("X12")
def test_attempts_and_pauses_survive_a_restart(open_one: Open, clock: FakeClock, effects: SideEffects) -> None:
    @duramen.step(retry=Retry(attempts=3, first=10, factor=2, jitter=0))
    def flaky() -> None:
        effects.do("flaky")
        raise TimeoutError("slow")

    @duramen.task
    def job() -> None:
        flaky()

    dm = open_one()
    dm.start(job, id="r")
    for pause in (10, 20):
        assert open_one().work([job], until_idle=True) == 1
        clock.advance(pause - 1)
        assert open_one().work([job], until_idle=True) == 0
        clock.advance(2)
    assert open_one().work([job], until_idle=True) == 1
    assert effects.times("flaky") == 3
    with pytest.raises(TimeoutError):
        dm.resume("r")


def test_a_deadline_ends_a_run_that_sleeps_too_long(open_one: Open, clock: FakeClock) -> None:
    @duramen.task(deadline=60)
    def late() -> None:
        duramen.sleep(WEEK)

    dm = open_one()
    dm.start(late, id="r")
    dm.work([late], until_idle=True)
    assert dm.run_info("r").status is RunStatus.SLEEPING
    clock.advance(61)
    assert dm.work([late], until_idle=True) == 1
    assert dm.run_info("r").status is RunStatus.FAILED
    with pytest.raises(DeadlineExceeded):
        dm.resume("r")
