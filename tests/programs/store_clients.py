"""Functions that use a store in a child process. Each prints lines of JSON or single words with `say`."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import duramen
from duramen import crash_points as crashpoints
from duramen.errors import DuramenError, PositionConflict
from duramen.testing.crash import die_at

from .append_audit import write_one
from .child_processes import Gate, pass_gate
from .seeds import seeded

Say = Callable[[str], None]


def open_first(say: Say, addresses: list[str], gate: str, count: int) -> None:
    """For each address, fork processes that open it at nearly the same moment. Prints the positions they wrote."""
    for address in addresses:
        closed = Gate(Path(gate))
        children = [_forked(lambda: _open_and_write(say, address, closed)) for _ in range(count)]  # noqa: B023
        time.sleep(0.005)  # most of them wait at the gate now
        closed.open()
        for child in children:
            os.waitpid(child, 0)


def _open_and_write(say: Say, address: str, gate: Gate) -> None:
    gate.open()  # releases this process's lock on the gate
    pass_gate(gate.path)
    time.sleep(seeded(os.getpid()).uniform(0, 0.002))
    with duramen.open(address) as store:
        say(str(store.session("a").append("opened").position))


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the test reads the traceback
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(0)
    return child


def use_keys(say: Say, address: str, gate: str, keys: list[str]) -> None:
    """Append under keys that other processes use too. Prints the returned events."""
    with duramen.open(address) as store:
        session = store.session("a")
        pass_gate(gate)
        for key in keys:
            event = session.append("booked", {"by": os.getpid(), "key": key}, key=key)
            say(json.dumps([key, event.position, event.hash.hex(), event.data]))


def append_at_positions(say: Say, address: str, gate: str, positions: int) -> None:
    """Append at each expected position while other processes do the same. Prints own positions and conflicts."""
    with duramen.open(address) as store:
        session = store.session("a")
        pass_gate(gate)
        for position in range(positions):
            try:
                session.append("won", os.getpid(), expected=position)
                say(json.dumps(position + 1))
            except PositionConflict as lost:
                say(json.dumps([lost.expected, lost.actual]))


def append_for(say: Say, address: str, gate: str, seconds: float) -> None:
    """Append as often as possible for some seconds. Prints how often."""
    with duramen.open(address) as store:
        session = store.session(f"of-{os.getpid()}")
        say("ready")
        pass_gate(gate)
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            session.append("wrote", count)
            count += 1
        say(str(count))


def append_in_orders(say: Say, address: str, gate: str, orders: list[list[str]], rounds: int) -> None:
    """Threads of one handle append to the same sessions, each thread in another order."""
    with duramen.open(address) as store:

        def work(order: list[str]) -> None:
            for number in range(rounds):
                for session in order:
                    store.session(session).append("wrote", number)

        pass_gate(gate)
        with ThreadPoolExecutor(len(orders)) as pool:
            list(pool.map(work, orders))


def follow(say: Say, address: str, session: str, after: int, last: int) -> None:
    """Print each event that is followed, up to the last one."""
    with duramen.open(address) as store:
        for event in store.session(session).follow(after=after):
            say(json.dumps([event.position, event.data["n"]]))
            if event.position == last:
                return


def append_slowly(say: Say, address: str, session: str, count: int) -> None:
    """Append events, some in batches, with pauses."""
    chance = seeded("slow appends", count)
    with duramen.open(address) as store:
        number = 0
        while number < count:
            size = min(chance.choice([1, 1, 1, 40]), count - number)
            drafts = [duramen.Draft("note", {"n": number + index + 1}) for index in range(size)]
            store.session(session).append_all(drafts)
            number += size
            if chance.random() < 0.05:
                time.sleep(0.03)  # followers start to wait, and the next append must wake them


def erase(say: Say, address: str, subject: str) -> None:
    """Erase a subject. Prints the number of erased payloads."""
    with duramen.open(address) as store:
        say(str(store.erase(subject).payloads))


def hold_read_transaction(say: Say, path: str) -> None:
    """Hold a read transaction open, like another program."""
    connection = sqlite3.connect(path)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM duramen_events").fetchall()
    say("reading")
    threading.Event().wait()


def stop_in_append(say: Say, address: str, session: str) -> None:
    """Stop the process inside an append, with all locks held, until it gets SIGCONT."""

    def stop(point: str) -> None:
        if point == "append.inserted":
            say("holding")
            os.kill(os.getpid(), signal.SIGSTOP)

    with duramen.open(address) as store:
        crashpoints.listen(stop)
        store.session(session).append("held", "by " + session)  # the first append of a session takes more locks
    say("done")


def fork_and_die(say: Say, address: str, session: str) -> None:
    """Fork with an open handle, then get killed inside an append. Prints the id of the forked child, which sleeps."""
    store = duramen.open(address)
    store.session("before").append("note")
    child = os.fork()
    if child == 0:
        signal.alarm(120)  # ends a child that the test did not kill
        threading.Event().wait()
    say(str(child))
    die_at("append.inserted")
    store.session(session).append("held")


def reopen_after_fork(say: Say, address: str) -> None:
    """Fork with an open handle. The child opens its own handle and writes, and the parent closes the first handle
    meanwhile. The child is killed at the end."""
    store = duramen.open(address)
    write_one(store.session("a"), "parent", 0, say)
    closed, child_wrote = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(closed[1])
        try:
            own = duramen.open(address)
        except duramen.errors.ForkedHandle:
            say("refused")
            os._exit(0)
        for number in range(10):
            if number == 5:
                os.write(child_wrote[1], b"5")
                os.read(closed[0], 1)
            write_one(own.session("a"), "child", number, say)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(child_wrote[1])
    os.read(child_wrote[0], 1)
    store.close()
    os.write(closed[1], b"x")
    os.waitpid(child, 0)


def close_and_fork(say: Say, address: str) -> None:
    """Close a handle, fork, and write through new ones in child and parent."""
    store = duramen.open(address)
    say(str(store.session("a").append("note").position))
    store.close()
    child = os.fork()
    if child == 0:
        with suppress(DuramenError), duramen.open(address) as own:
            say(str(own.session("a").append("note").position))
        os._exit(0)
    os.waitpid(child, 0)
    with duramen.open(address) as again:
        say(str(again.session("a").append("note").position))


def append_after_gate(say: Say, address: str, gate: str, idle: str) -> None:
    """Append when the gate opens, get interrupted, then wait until the second gate opens."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with duramen.open(address) as store:
        say("ready")
        pass_gate(gate)
        say("appending")
        try:
            store.session("waiter").append("wrote")
            say("stored")
        except KeyboardInterrupt:
            say("interrupted")
        pass_gate(idle)


def append_to_stalled_store(say: Say, address: str, gate: str, threads: int, timeout: float) -> None:
    """Threads append at once to a store that does not answer. Prints the outcome and the wait of each."""
    with duramen.open(address, timeout=timeout) as store:
        store.session("a").append("before")
        say("ready")
        pass_gate(gate)

        def work(_: int) -> tuple[str, float]:
            begun = time.monotonic()
            try:
                store.session("a").append("wrote")
                outcome = "stored"
            except DuramenError as error:
                outcome = type(error).__name__
            return outcome, time.monotonic() - begun

        with ThreadPoolExecutor(threads) as pool:
            say(json.dumps(list(pool.map(work, range(threads)))))
        threading.Event().wait()


def append_under_interrupts(say: Say, address: str, by: str, rounds: int, threads: int) -> None:
    """Interrupt the main thread repeatedly while it appends. Other threads must not be affected."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = seeded("interrupts", rounds)
    store = duramen.open(address, timeout=10)
    ending = threading.Event()
    other_threads = [
        threading.Thread(target=_append_until, args=(say, store, index, ending)) for index in range(threads)
    ]
    for other_thread in other_threads:
        other_thread.start()
    session, numbers = store.session("a"), itertools.count()
    if by == "point":
        crashpoints.listen(lambda _: _interrupt_main(chance))
    for _ in range(rounds):
        with suppress(KeyboardInterrupt):
            if by == "signal":
                threading.Timer(chance.uniform(0.0001, 0.004), os.kill, (os.getpid(), signal.SIGINT)).start()
            for _ in range(300):
                write_one(session, "main", next(numbers), lambda _: None)
    crashpoints.listen(None)
    ending.set()
    for other_thread in other_threads:
        other_thread.join()
    write_one(session, "main", next(numbers), say)
    store.close()


def _interrupt_main(chance: random.Random) -> None:
    if threading.current_thread() is threading.main_thread() and chance.random() < 0.3:
        raise KeyboardInterrupt


def _append_until(say: Say, store: duramen.Duramen, index: int, ending: threading.Event) -> None:
    number = 0
    while not ending.is_set():
        try:
            write_one(store.session("a"), f"n{index}", number, say)
        except DuramenError:
            pass  # the leader was interrupted, so the append may or may not be stored
        except BaseException as error:  # noqa: BLE001 - no other error may occur
            os.write(2, f"thread {index} got {error!r}\n".encode())
            os._exit(3)
        number += 1
