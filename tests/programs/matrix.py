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

import duramen
from duramen import crash_points as crashpoints
from duramen.api._sync.duramen import Duramen
from duramen.errors import RunError

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


@duramen.step
def plain(me: str, value: Any) -> Any:
    with acting(me):
        return {"value": value}


@duramen.step(in_doubt="rerun")
def book(me: str, ref: str, *, key: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/book", {"ref": ref}, key=key)


def cancel_booking(booking: Any, *, key: str) -> None:
    written(f"begin undo {booking}")


@duramen.step(undo=cancel_booking)
def book_undoably(me: str, ref: str, *, key: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/book", {"ref": ref}, key=key)


@duramen.step(irreversible=True, in_doubt="rerun")
def pay(me: str, ref: str, *, key: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/book", {"ref": ref}, key=key)


def was_mailed(me: str, ref: str) -> Any:
    return call(world.port, "GET", f"/mail/{ref}")


@duramen.step(check=was_mailed)
def mail(me: str, ref: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/mail", {"ref": ref})


@duramen.step(check=was_mailed, irreversible=True)
def sign(me: str, ref: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/mail", {"ref": ref})


@duramen.step(retry=duramen.Retry(attempts=3, first=0.002, jitter=0.0, on=(OSError,)))
def flaky(me: str, ref: str) -> Any:
    with acting(me):
        return call(world.port, "POST", "/flaky", {"ref": ref})


@duramen.step(retry=duramen.Retry(attempts=5, first=0.002))
def enrol(me: str, ref: str) -> int:
    """A row of the user's own, in the store's transaction; and everything else that a step may say besides."""
    with acting(me):
        insert(duramen.transaction(), ref)
        duramen.remember(f"{ref} is enrolled")
        duramen.emit(f"enrolled {ref}")
        return 1


def insert(connection: Any, ref: str) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS enrolled (ref TEXT)")
    mark = "?" if type(connection).__module__.startswith("apsw") else "%s"
    connection.execute(f"INSERT INTO enrolled VALUES ({mark})", (ref,))


@duramen.step
def crawl(me: str, ref: str) -> list[int]:
    with acting(me):
        duramen.remember(f"{ref} is read")  # before the reports, which are durable at once: it must wait for the end
        first = duramen.reported(0)
        for page in range(first + 1, PAGES + 1):
            written(f"page {page}")
            duramen.report(page)
        return list(range(1, PAGES + 1))


@duramen.step
def stream(me: str) -> str:
    with acting(me):
        for word in ("one", "two", "three"):
            duramen.emit(word)
        return "one two three"


@duramen.step
def learn(me: str, ref: str) -> None:
    with acting(me):
        duramen.remember(f"{ref} likes aisles")
        duramen.remember(f"{ref} hates queues", kind="dislike")


@duramen.step(timeout=30)
def timed(me: str, ref: str, *, key: str) -> Any:
    with acting(me):
        duramen.remember(f"{ref} was in time")
        duramen.emit("in time")
        return call(world.port, "POST", "/book", {"ref": ref}, key=key)


@duramen.step
def tool(me: str, value: int) -> int:
    with acting(me):
        return value * value


@duramen.task
def transfer(ref: str) -> Any:
    """The child."""
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
    gone = duramen.receive("go")
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
    return [plan, new, flight, hotel, confirmed, signed, steady, enrolled, pages, words, gone, taxi, late, tools, again,
            car, mailed, row, paid]  # fmt: skip


@duramen.task
def doze(ref: str) -> Any:
    """A run that is unwound twice."""
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


# -- roles


def go(dm: Duramen, run: str) -> Any:
    """Start the trip, or go on with it; what it waits for is sent beforehand."""
    dm.start(trip, run, id=run)
    with suppress(RunError):  # it has ended, and nobody was told
        dm.signal(run, "go", {"by": "train"}, key="go")
    return dm.run(trip, run, id=run)


def travel(say: Say, address: str, run: str, port: int, log: str, patience: float = 5.0) -> None:
    """Run the trip to its end and say its result."""
    world.port, world.log = port, log
    with duramen.open(address) as dm:
        dm._core._engine.patience = patience
        say(json.dumps(go(dm, run)))


def sleep_through(say: Say, address: str, run: str, port: int, log: str) -> None:
    """Run the task that sleeps, without any patience."""
    world.port, world.log = port, log
    with duramen.open(address) as dm:
        dm._core._engine.patience = 0.0
        say(json.dumps(dm.run(doze, run, id=run)))


def serve_slowly(say: Say, address: str, run: str, port: int, log: str, stop_at: str | None, lease: float) -> None:
    """A worker; with `stop_at`, it stops itself there, as a machine does that is suspended. Says what it logs."""
    world.port, world.log = port, log
    logging.getLogger("duramen").addHandler(_Saying(say))
    with duramen.open(address) as dm:
        dm._core._engine.lease_seconds = lease
        if stop_at is not None:
            crashpoints.listen(_stopping_at(say, *stop_at.split(":")))
        say("serving")
        dm.work([errand], until_idle=stop_at is not None)
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


@duramen.task
def errand(ref: str) -> Any:
    """A shorter way: nothing in it harms the far side if a worker wakes up in the middle of it."""
    first = book("book#1", f"{ref}/flight")
    enrolled = enrol("enrol#1", f"{ref}/first")
    learn("learn#1", ref)
    return [first, enrolled, book("book#2", f"{ref}/hotel")]


# -- a process that dies as soon as a step has returned


@duramen.step(name="refuse")
def refused(me: str) -> None:
    with acting(me):
        raise ValueError("no seat is free")


@duramen.step(name="plain_async")
async def plain_async(me: str, value: Any) -> Any:
    with acting(me):
        return {"value": value}


def die_once() -> None:
    """SIGKILL, in the first process of a run."""
    with suppress(FileExistsError):
        os.close(os.open(f"{world.log}.died", os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)


@duramen.task
def return_and_die(kind: str) -> Any:
    """One step; the process dies before the code after it does anything."""
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
    """Run the task to its end, or die right after its step."""
    world.log = log
    with duramen.open(address) as dm:
        task = return_and_die_async if kind == "async" else return_and_die
        say(json.dumps(dm.run(task, kind, id=run)))
