"""A task of 25 steps of all kinds, and functions that run it in child processes. Each step logs its begin and end."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import duramen
from duramen import crash_points as crashpoints
from duramen.api._sync.duramen import Duramen
from duramen.errors import RunError

from .effect_server import call

Say = Callable[[str], None]
"""Prints a line."""
PAGES = 4


@dataclass
class Environment:
    """The port of the effect server, and the log file of the steps."""

    port: int = 0
    log: str = os.devnull


environment = Environment()


def log_line(text: str) -> None:
    """Append a line with one system call: it is written completely or not at all."""
    file = os.open(environment.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{time.time_ns() // 1000} {text}\n".encode())
    os.close(file)


class logged:
    """Logs begin and end of a step."""

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        log_line(f"begin {self._step}")

    def __exit__(self, kind: Any, *_: object) -> None:
        log_line(f"{'end' if kind is None else 'fail'} {self._step}")


# -- the steps; `name` is the name of the call in the journal, for the log


@duramen.step
def plain(name: str, value: Any) -> Any:
    with logged(name):
        return {"value": value}


@duramen.step(in_doubt="rerun")
def book(name: str, ref: str, *, key: str) -> Any:
    with logged(name):
        return call(environment.port, "POST", "/book", {"ref": ref}, key=key)


def cancel_booking(booking: Any, *, key: str) -> None:
    log_line(f"begin undo {booking}")


@duramen.step(undo=cancel_booking)
def book_undoably(name: str, ref: str, *, key: str) -> Any:
    with logged(name):
        return call(environment.port, "POST", "/book", {"ref": ref}, key=key)


@duramen.step(irreversible=True, in_doubt="rerun")
def pay(name: str, ref: str, *, key: str) -> Any:
    with logged(name):
        return call(environment.port, "POST", "/book", {"ref": ref}, key=key)


def was_mailed(name: str, ref: str) -> Any:
    return call(environment.port, "GET", f"/mail/{ref}")


@duramen.step(check=was_mailed)
def mail(name: str, ref: str) -> Any:
    with logged(name):
        return call(environment.port, "POST", "/mail", {"ref": ref})


@duramen.step(check=was_mailed, irreversible=True)
def sign(name: str, ref: str) -> Any:
    with logged(name):
        return call(environment.port, "POST", "/mail", {"ref": ref})


@duramen.step(retry=duramen.Retry(attempts=3, first=0.002, jitter=0.0, on=(OSError,)))
def flaky(name: str, ref: str) -> Any:
    with logged(name):
        return call(environment.port, "POST", "/flaky", {"ref": ref})


@duramen.step(retry=duramen.Retry(attempts=5, first=0.002))
def enrol(name: str, ref: str) -> int:
    """A row of a user table in the transaction of the store, a memory and an output."""
    with logged(name):
        insert(duramen.transaction(), ref)
        duramen.remember(f"{ref} is enrolled")
        duramen.emit(f"enrolled {ref}")
        return 1


def insert(connection: Any, ref: str) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS enrolled (ref TEXT)")
    mark = "?" if type(connection).__module__.startswith("apsw") else "%s"
    connection.execute(f"INSERT INTO enrolled VALUES ({mark})", (ref,))


@duramen.step
def crawl(name: str, ref: str) -> list[int]:
    with logged(name):
        duramen.remember(f"{ref} is read")  # stored with the outcome, unlike the reports, which are stored at once
        first = duramen.reported(0)
        for page in range(first + 1, PAGES + 1):
            log_line(f"page {page}")
            duramen.report(page)
        return list(range(1, PAGES + 1))


@duramen.step
def stream(name: str) -> str:
    with logged(name):
        for word in ("one", "two", "three"):
            duramen.emit(word)
        return "one two three"


@duramen.step
def learn(name: str, ref: str) -> None:
    with logged(name):
        duramen.remember(f"{ref} likes aisles")
        duramen.remember(f"{ref} hates queues", kind="dislike")


@duramen.step(timeout=30)
def timed(name: str, ref: str, *, key: str) -> Any:
    with logged(name):
        duramen.remember(f"{ref} was in time")
        duramen.emit("in time")
        return call(environment.port, "POST", "/book", {"ref": ref}, key=key)


@duramen.step
def tool(name: str, value: int) -> int:
    with logged(name):
        return value * value


@duramen.task
def transfer(ref: str) -> Any:
    """The child run."""
    taxi = book("child:book#1", f"{ref}/taxi")
    return [taxi, mail("child:mail#1", f"{ref}/taxi")]


@duramen.task
def trip(ref: str) -> Any:
    plan = plain("plain#1", "plan")
    new = duramen.patched("new way")
    flight = book("book#1", f"{ref}/flight")
    hotel = book_undoably("book_undoably#1", f"{ref}/hotel")
    confirmed = mail("mail#1", f"{ref}/confirmation")
    signed = sign("sign#1", f"{ref}/contract")
    steady = flaky("flaky#1", ref)
    enrolled = enrol("enrol#1", f"{ref}/first")
    pages = crawl("crawl#1", ref)
    words = stream("stream#1")
    learn("learn#1", ref)
    duramen.sleep(0.01)
    go = duramen.receive("go")
    taxi = transfer(ref)
    late = timed("timed#1", f"{ref}/timed")
    tools = [tool.keyed("call-7")("tool:call-7", 7), tool.keyed("call-3")("tool:call-3", 3)]
    again = tool.keyed("call-7")("tool:call-7", 7)
    duramen.remember(f"{ref} was halfway")
    enrolled += enrol("enrol#2", f"{ref}/second")
    car = book("book#2", f"{ref}/car")
    mailed = mail("mail#2", f"{ref}/invoice")
    row = [plain(f"plain#{number}", number) for number in range(2, 5)]
    paid = pay("pay#1", f"{ref}/payment")
    return [plan, new, flight, hotel, confirmed, signed, steady, enrolled, pages, words, go, taxi, late, tools, again,
            car, mailed, row, paid]  # fmt: skip


@duramen.task
def sleeper(ref: str) -> Any:
    """A task that parks twice."""
    first = book("book#1", f"{ref}/flight")
    duramen.sleep(0.5)
    second = mail("mail#1", f"{ref}/confirmation")
    duramen.sleep(0.5)
    return [first, second, enrol("enrol#1", f"{ref}/first")]


BOOKED = ("flight", "hotel", "taxi", "timed", "car", "payment")
MAILED = ("confirmation", "contract", "taxi", "invoice")
STREAMED = {
    "enrol#1": ["enrolled {}/first"],
    "stream#1": ["one", "two", "three"],
    "timed#1": ["in time"],
    "enrol#2": ["enrolled {}/second"],
}
RESULT = [
    {"value": "plan"}, True, {"seat": 1}, {"seat": 1}, {"sent": True}, {"sent": True}, "steady", 2,
    [1, 2, 3, 4], "one two three", {"by": "train"}, [{"seat": 1}, {"sent": True}], {"seat": 1}, [49, 9], 49,
    {"seat": 1}, {"sent": True}, [{"value": 2}, {"value": 3}, {"value": 4}], {"seat": 1},
]  # fmt: skip


# -- functions for child processes


def start_trip(dm: Duramen, run: str) -> Any:
    """Start or resume the trip. Its signal is sent first."""
    dm.start(trip, run, id=run)
    with suppress(RunError):  # it has ended
        dm.signal(run, "go", {"by": "train"}, key="go")
    return dm.run(trip, run, id=run)


def run_trip(say: Say, address: str, run: str, port: int, log: str, patience: float = 5.0) -> None:
    """Run the trip to its end and print its result."""
    environment.port, environment.log = port, log
    with duramen.open(address) as dm:
        dm._core._engine.patience = patience
        say(json.dumps(start_trip(dm, run)))


def run_sleeper(say: Say, address: str, run: str, port: int, log: str) -> None:
    """Run the task that sleeps. It parks at once."""
    environment.port, environment.log = port, log
    with duramen.open(address) as dm:
        dm._core._engine.patience = 0.0
        say(json.dumps(dm.run(sleeper, run, id=run)))


def work_with_lease(say: Say, address: str, run: str, port: int, log: str, stop_at: str | None, lease: float) -> None:
    """A worker that prints its log. With `stop_at`, it stops itself at that crash point, like a suspended machine."""
    environment.port, environment.log = port, log
    logging.getLogger("duramen").addHandler(_LogPrinter(say))
    with duramen.open(address) as dm:
        dm._core._engine.lease_seconds = lease
        if stop_at is not None:
            crashpoints.listen(_stop_at(say, *stop_at.split(":")))
        say("working")
        dm.work([errand], until_idle=stop_at is not None)
    say("stopped")


def _stop_at(say: Say, point: str, visit: str) -> Callable[[str], None]:
    left = int(visit)

    def stop(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if left == 0 and reached == point:
            say("stopping")
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # stops at exactly this instruction

    return stop


class _LogPrinter(logging.Handler):
    def __init__(self, say: Say) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(f"log {record.getMessage()}".replace("\n", " "))


@duramen.task
def errand(ref: str) -> Any:
    """A shorter task. A stopped worker may continue inside any of its steps without harm."""
    first = book("book#1", f"{ref}/flight")
    enrolled = enrol("enrol#1", f"{ref}/first")
    learn("learn#1", ref)
    return [first, enrolled, book("book#2", f"{ref}/hotel")]


# -- a process that is killed as soon as a step has returned


@duramen.step(name="refuse")
def refused(me: str) -> None:
    with logged(me):
        raise ValueError("no seat is free")


@duramen.step(name="plain_async")
async def plain_async(me: str, value: Any) -> Any:
    with logged(me):
        return {"value": value}


def die_once() -> None:
    """Kill the first process of a run. Later processes continue."""
    with suppress(FileExistsError):
        os.close(os.open(f"{environment.log}.died", os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)


@duramen.task
def return_and_die(kind: str) -> Any:
    """Run one step. The first process is killed as soon as the step has returned."""
    try:
        value = {"plain": lambda: plain("plain#1", 1), "keyed": lambda: tool.keyed("k")("tool:k", 7)}.get(
            kind, lambda: refused("refuse#1")
        )()
    except ValueError as error:
        value = str(error)
    die_once()
    return value


@duramen.task
async def return_and_die_async(kind: str) -> Any:
    value = await plain_async("plain_async#1", 1)
    die_once()
    return value


def run_and_die(say: Say, address: str, run: str, kind: str, log: str) -> None:
    """Run the task to its end. The first process is killed right after the step."""
    environment.log = log
    with duramen.open(address) as dm:
        task = return_and_die_async if kind == "async" else return_and_die
        say(json.dumps(dm.run(task, kind, id=run)))
