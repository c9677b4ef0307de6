"""A wrong argument is refused with a named error at the call, and all other runs continue."""

from __future__ import annotations

import enum
from typing import Any

import pytest

import duramen
from duramen import Duramen, Queue, Retry, Schedule
from duramen.errors import DuramenError, InvalidInput


class Name(enum.StrEnum):
    RUN = "enum-run"
    QUEUE = "enum-queue"


@duramen.task
def double(value: int = 21) -> int:
    return 2 * value


@duramen.task
def wait_for_signal() -> Any:
    return duramen.receive("go")


def expect_refused(call: Any, *args: Any, **options: Any) -> None:
    with pytest.raises(DuramenError) as raised:
        call(*args, **options)
    assert len(raised.value.message) <= 300
    assert raised.value.hint


def expect_alive(dm: Duramen) -> None:
    """A healthy run in the same workspace is listed and executed."""
    number = len(dm.runs(limit=1000))
    run = dm.start(double, number, id=f"healthy {number}")
    assert dm.work([double], until_idle=True, queues=[Queue("q")]) == 1
    assert run.result(timeout=1) == 2 * number
    assert len(dm.runs(limit=1000)) == number + 1


START: list[Any] = [
    {"queue": "q", "queue_key": 42},
    {"queue": "q", "queue_key": b"k"},
    {"queue": "q", "queue_key": ""},
    {"queue": 7},
    {"queue": b"q"},
    {"queue": True},
    {"queue": ""},
    {"queue": "a\0b"},
    {"queue": "\ud800"},
    {"queue": "q" * 1_000_000},
    {"priority": "5"},
    {"priority": 2.0},
    {"priority": True},
    {"priority": None},
    {"priority": 2**63},
    {"delay": "1"},
    {"delay": True},
    {"delay": float("nan")},
    {"delay": float("inf")},
    {"delay": -1},
    {"delay": 10**400},
    {"id": 7},
    {"id": ""},
    {"session": 7},
    {"session": ""},
    {"subject": 7},
    {"subject": ""},
    {"kwargs": [1]},
    {"kwargs": {1: 2}},
    {"kwargs": None},
]

RUN: list[Any] = [{"id": 7}, {"id": ""}, {"session": b"s"}, {"session": ""}, {"subject": 1.5}]

IDS: list[Any] = [None, 7, True, 1.5, b"r", "", "a\0", "\ud800", "x" * 1_000_000, ["r"], object()]

NAMES: list[Any] = [7, True, b"go", "", "a\0", "\ud800", "x" * 1_000_000, ["go"], object()]

WORK: list[Any] = [
    {"queues": 5},
    {"queues": ["q"]},
    {"queues": "q"},
    {"schedules": [double]},
    {"schedules": None},
    {"until_idle": "yes"},
    {"concurrency": "8"},
]


@pytest.mark.promise("X34")
def test_a_wrong_option_of_start_hurts_nobody(dm: Duramen) -> None:
    for options in START:
        expect_refused(dm.start, double, **options)
        expect_alive(dm)
        assert dm.verify().ok


@pytest.mark.promise("X34")
def test_a_wrong_option_of_run_hurts_nobody(dm: Duramen) -> None:
    for options in RUN:
        expect_refused(dm.run, double, 1, **options)
        expect_alive(dm)


@pytest.mark.promise("X34")
def test_a_wrong_id_is_refused_by_every_call(dm: Duramen) -> None:
    for id in IDS:
        for call in (dm.run_info, dm.cancel, dm.resume, dm.replay):
            expect_refused(call, id)
        expect_refused(dm.signal, id, "go")
        expect_refused(dm.answer, id, 1)
        expect_refused(dm.settle, id, "done")
        expect_refused(dm.fork_run, id, "new")
        expect_refused(dm.handle(id).result, timeout=0)
        expect_refused(dm.handle(id).signal, "go")
        expect_alive(dm)


@pytest.mark.promise("X34")
def test_a_wrong_argument_of_signal_hurts_nobody(dm: Duramen) -> None:
    dm.start(wait_for_signal, id="w")
    for wrong in NAMES:
        expect_refused(dm.signal, "w", wrong)
        expect_refused(dm.signal, "w", "go", actor=wrong)
        expect_refused(dm.signal, "w", "go", key=wrong)
        expect_refused(dm.signal, "w", "go", object())
        expect_refused(dm.replay, "w", wrong)
        expect_refused(dm.resume, "w", wrong)
        expect_alive(dm)
    dm.signal("w", "go", "now")
    assert dm.resume("w") == "now"


@pytest.mark.promise("X34")
@pytest.mark.parametrize(
    "make",
    [
        lambda: Queue(7),  # type: ignore[arg-type]
        lambda: Queue("q", concurrency="2"),  # type: ignore[arg-type]
        lambda: Queue("q", concurrency=True),
        lambda: Queue("q", concurrency=1.5),  # type: ignore[arg-type]
        lambda: Queue("q", rate=5),  # type: ignore[arg-type]
        lambda: Queue("q", rate=("1", 2)),  # type: ignore[arg-type]
        lambda: Queue("q", rate=(1, float("nan"))),
        lambda: Queue("q", per_key="yes"),  # type: ignore[arg-type]
        lambda: Schedule("s", double, every="1"),  # type: ignore[arg-type]
        lambda: Schedule("s", len, every=1),  # type: ignore[arg-type]
        lambda: Schedule("s", double, every=1, queue=7),  # type: ignore[arg-type]
        lambda: Schedule("s", double, every=1, args=5),  # type: ignore[arg-type]
        lambda: Schedule("s", double, every=1, kwargs=[1]),  # type: ignore[arg-type]
        lambda: Schedule("s", double, every=1, grace="x"),  # type: ignore[arg-type]
        lambda: Schedule("s", double, cron=5),  # type: ignore[arg-type]
        lambda: Schedule("s", double, cron="* * * * *", tz=5),  # type: ignore[arg-type]
        lambda: Retry(attempts="3"),  # type: ignore[arg-type]
        lambda: Retry(first="1"),  # type: ignore[arg-type]
        lambda: Retry(jitter=float("nan")),
        lambda: Retry(on=5),  # type: ignore[arg-type]
        lambda: duramen.step(retry="3")(len),  # type: ignore[call-overload]
        lambda: duramen.step(timeout="3")(len),  # type: ignore[call-overload]
        lambda: duramen.step(irreversible="no")(len),  # type: ignore[call-overload]
        lambda: duramen.step(name=5)(len),  # type: ignore[call-overload]
        lambda: duramen.task(deadline="3")(len),  # type: ignore[call-overload]
        lambda: duramen.task(name="")(len),
    ],
)
def test_a_wrong_limit_or_policy_is_refused(make: Any) -> None:
    expect_refused(make)


@pytest.mark.promise("X34")
def test_a_wrong_option_of_work_is_refused(dm: Duramen) -> None:
    for options in WORK:
        expect_refused(dm.work, [double], **{"until_idle": True, **options})
        expect_refused(dm.work, None, until_idle=True)
        expect_alive(dm)


@pytest.mark.promise("X34")
def test_members_of_an_enum_are_names(dm: Duramen) -> None:
    """A subclass of str is stored as plain text."""
    run = dm.start(double, 4, id=Name.RUN, queue=Name.QUEUE, queue_key=Name.RUN)
    assert dm.work([double], queues=[Queue(Name.QUEUE)], until_idle=True) == 1
    assert run.result(timeout=1) == 8
    info = dm.run_info(Name.RUN)
    assert (info.id, info.queue, info.queue_key) == ("enum-run", "enum-queue", "enum-run")
    assert type(info.queue) is str
    assert dm.verify().ok


def test_report_after_transaction_changes_nothing(dm: Duramen) -> None:
    """A refused `report` is not returned by `reported`."""
    seen: list[Any] = []

    @duramen.step
    def write() -> None:
        try:
            duramen.transaction()
        except InvalidInput:  # the in-memory store has no transactions
            return
        with pytest.raises(InvalidInput, match="after transaction"):
            duramen.report("half")
        seen.append(duramen.reported("nothing"))

    @duramen.task
    def work() -> None:
        write()

    dm.run(work)
    assert seen in (["nothing"], [])
