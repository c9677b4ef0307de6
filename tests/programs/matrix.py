"""A task of 25 steps of all kinds, and the children that run it. Each step writes down when it begins and ends."""

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

import holdfast
from holdfast import crashpoints
from holdfast.errors import RunError
from holdfast.sync import Holdfast

from .effects import call

Say = Callable[[str], None]
PAGES = 4


@dataclass
class World:
    """Where this process acts: the far side's port, and the file in which steps write down what they do."""

    port: int = 0
    log: str = os.devnull


world = World()


def written(what: str) -> None:
    """One line in one system call: it is out, or it is not."""
    file = os.open(world.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{time.time_ns() // 1000} {what}\n".encode())
    os.close(file)


class acting:
    """Around what a step does."""

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        written(f"begin {self._step}")

    def __exit__(self, kind: Any, *_: object) -> None:
        written(f"{'end' if kind is None else 'fail'} {self._step}")


# -- the steps; `me` is the journal's name of the call, for the log


@holdfast.step
def plain(me: str, value: Any) -> Any:
    with acting(me):
        return {"value": value}


@holdfast.step(in_doubt="rerun")
def book(me: str, ref: str, *, key: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/book", {"ref": ref}, key=key)


def cancel_booking(booking: Any, *, key: str) -> None:
    written(f"begin undo {booking}")


@holdfast.step(undo=cancel_booking)
def book_undoably(me: str, ref: str, *, key: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/book", {"ref": ref}, key=key)


@holdfast.step(irreversible=True, in_doubt="rerun")
def pay(me: str, ref: str, *, key: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/book", {"ref": ref}, key=key)


def was_mailed(me: str, ref: str) -> Any:
    return call(world.port, "GET", f"/mail/{ref}")


@holdfast.step(check=was_mailed)
def mail(me: str, ref: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/mail", {"ref": ref})


@holdfast.step(check=was_mailed, irreversible=True)
def sign(me: str, ref: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/mail", {"ref": ref})


@holdfast.step(retry=holdfast.Retry(attempts=3, first=0.002, jitter=0.0, on=(OSError,)))
def flaky(me: str, ref: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/flaky", {"ref": ref})


@holdfast.step(retry=holdfast.Retry(attempts=5, first=0.002))
def enrol(me: str, ref: str) -> int:
    """A row of the user's own, in the store's transaction; and everything else that a step may say besides."""
    with acting(me):
        insert(holdfast.transaction(), ref)
        holdfast.remember(f"{ref} is enrolled")
        holdfast.emit(f"enrolled {ref}")
        return 1


def insert(connection: Any, ref: str) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS enrolled (ref TEXT)")
    mark = "?" if type(connection).__module__.startswith("apsw") else "%s"
    connection.execute(f"INSERT INTO enrolled VALUES ({mark})", (ref,))


@holdfast.step
def crawl(me: str, ref: str) -> list[int]:
    with acting(me):
        holdfast.remember(f"{ref} is read")  # before the reports, which are durable at once: it must wait for the end
        first = holdfast.reported(0)
        for page in range(first + 1, PAGES + 1):
            written(f"page {page}")
            holdfast.report(page)
        return list(range(1, PAGES + 1))


@holdfast.step
def stream(me: str) -> str:
    with acting(me):
        for word in ("one", "two", "three"):
            holdfast.emit(word)
        return "one two three"


@holdfast.step
def learn(me: str, ref: str) -> None:
    with acting(me):
        holdfast.remember(f"{ref} likes aisles")
        holdfast.remember(f"{ref} hates queues", kind="dislike")


@holdfast.step(timeout=30)
def timed(me: str, ref: str, *, key: str) -> Any:
    with acting(me):
        holdfast.remember(f"{ref} was in time")
        holdfast.emit("in time")
        return call(world.port, "POST", "/book", {"ref": ref}, key=key)


@holdfast.step
def tool(me: str, value: int) -> int:
    with acting(me):
        return value * value


@holdfast.task
def transfer(ref: str) -> Any:
    """The child."""
    taxi = book("child:book#1", f"{ref}/taxi")
    return [taxi, mail("child:mail#1", f"{ref}/taxi")]


@holdfast.task
def trip(ref: str) -> Any:
    plan = plain("plain#1", "plan")
    new = holdfast.patched("new way")
    flight = book("book#1", f"{ref}/flight")
    hotel = book_undoably("book_undoably#1", f"{ref}/hotel")
    confirmed = mail("mail#1", f"{ref}/confirmation")
    signed = sign("sign#1", f"{ref}/contract")
    steady = flaky("flaky#1", ref)
    enrolled = enrol("enrol#1", f"{ref}/first")
    pages = crawl("crawl#1", ref)
    words = stream("stream#1")
    learn("learn#1", ref)
    holdfast.sleep(0.01)
    gone = holdfast.receive("go")
    taxi = transfer(ref)
    late = timed("timed#1", f"{ref}/timed")
    tools = [tool.keyed("call-7")("tool:call-7", 7), tool.keyed("call-3")("tool:call-3", 3)]
    again = tool.keyed("call-7")("tool:call-7", 7)
    holdfast.remember(f"{ref} was halfway")
    enrolled += enrol("enrol#2", f"{ref}/second")
    car = book("book#2", f"{ref}/car")
    mailed = mail("mail#2", f"{ref}/invoice")
    row = [plain(f"plain#{number}", number) for number in range(2, 5)]
    paid = pay("pay#1", f"{ref}/payment")
    return [plan, new, flight, hotel, confirmed, signed, steady, enrolled, pages, words, gone, taxi, late, tools, again,
            car, mailed, row, paid]  # fmt: skip


@holdfast.task
def doze(ref: str) -> Any:
    """A run that is unwound twice."""
    first = book("book#1", f"{ref}/flight")
    holdfast.sleep(0.5)
    second = mail("mail#1", f"{ref}/confirmation")
    holdfast.sleep(0.5)
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


# -- roles


def go(hf: Holdfast, run: str) -> Any:
    """Start the trip, or go on with it; what it waits for is sent beforehand."""
    hf.start(trip, run, id=run)
    with suppress(RunError):  # it has ended, and nobody was told
        hf.signal(run, "go", {"by": "train"}, key="go")
    return hf.run(trip, run, id=run)


def travel(say: Say, address: str, run: str, port: int, log: str, patience: float = 5.0) -> None:
    """Run the trip to its end and say its result."""
    world.port, world.log = port, log
    with holdfast.open(address) as hf:
        hf._core._engine.patience = patience
        say(json.dumps(go(hf, run)))


def sleep_through(say: Say, address: str, run: str, port: int, log: str) -> None:
    """Run the task that sleeps, without any patience."""
    world.port, world.log = port, log
    with holdfast.open(address) as hf:
        hf._core._engine.patience = 0.0
        say(json.dumps(hf.run(doze, run, id=run)))


def serve_slowly(say: Say, address: str, run: str, port: int, log: str, stop_at: str | None, lease: float) -> None:
    """A worker; with `stop_at`, it stops itself there, as a machine does that is suspended. Says what it logs."""
    world.port, world.log = port, log
    logging.getLogger("holdfast").addHandler(_Saying(say))
    with holdfast.open(address) as hf:
        hf._core._engine.lease_seconds = lease
        if stop_at is not None:
            crashpoints.listen(_stopping_at(say, *stop_at.split(":")))
        say("serving")
        hf.serve([errand], until_idle=stop_at is not None)
    say("served")


def _stopping_at(say: Say, point: str, visit: str) -> Callable[[str], None]:
    left = int(visit)

    def stop(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if left == 0 and reached == point:
            say("stopping")
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # here, and not a little later

    return stop


class _Saying(logging.Handler):
    def __init__(self, say: Say) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(f"log {record.getMessage()}".replace("\n", " "))


@holdfast.task
def errand(ref: str) -> Any:
    """A shorter way: nothing in it harms the far side if a worker wakes up in the middle of it."""
    first = book("book#1", f"{ref}/flight")
    enrolled = enrol("enrol#1", f"{ref}/first")
    learn("learn#1", ref)
    return [first, enrolled, book("book#2", f"{ref}/hotel")]
