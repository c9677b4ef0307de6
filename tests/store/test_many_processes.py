"""Several processes on one store: one order, one winner, fair turns; and some that fork, stop or are interrupted."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from programs.append_audit import AppendAudit, verified
from programs.child_processes import ChildProcess, ChildProcesses, Gate, until
from programs.paths import TESTS

import duramen
from duramen.errors import DuramenError, StoreBusy, StoreClosed


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where nothing was opened yet."""
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def address(fresh_address: str) -> str:
    """An empty store."""
    duramen.open(fresh_address).close()
    return fresh_address


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def _said(children: list[ChildProcess]) -> list[Any]:
    return [json.loads(line) for child in children for line in child.finish()]


# -- one order


@pytest.mark.promise("B1", "B2")
def test_processes_may_open_a_new_store_at_the_same_moment(
    fresh_address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    """On SQLite over many files, because the moments that matter are short."""
    addresses = [fresh_address] if "://" in fresh_address else [f"{fresh_address}.{index}" for index in range(8)]
    child = processes.start("store_clients:open_first", addresses=addresses, gate=str(tmp_path / "gate"), count=6)
    wrote = [int(line) for line in child.finish()]
    assert sorted(wrote) == sorted([1, 2, 3, 4, 5, 6] * len(addresses)), child.errors()


@pytest.mark.promise("J5", "B2")
def test_writers_in_several_processes_make_one_order(address: str, processes: ChildProcesses) -> None:
    given = {"address": address, "first": 0, "count": 60, "sessions": ["a"], "threads": 2}
    children = [processes.start("writer:write", writer=f"w{index}", **given) for index in range(4)]
    assert [len(child.finish()) for child in children] == [120] * 4
    audit = AppendAudit(address)
    audit.check([child.output for child in children], unsure=0)
    assert audit.acknowledged == 480
    with duramen.open(address) as store:
        events = list(store.session("a").events())
        assert [event.position for event in events] == list(range(1, audit.events + 1))
        assert store.session("a").verify().ok


@pytest.mark.promise("J7", "B2")
def test_a_key_used_by_several_processes_at_once_is_stored_once(
    address: str, processes: ChildProcesses, gate: Gate
) -> None:
    keys = [f"k{index}" for index in range(8)]
    children = [processes.start("store_clients:use_keys", address=address, gate=gate.path, keys=keys) for _ in range(4)]
    gate.open()
    answers: dict[str, set[str]] = {}
    for key, *answer in _said(children):
        answers.setdefault(key, set()).add(json.dumps(answer))
    assert sorted(answers) == sorted(keys)
    assert {len(given) for given in answers.values()} == {1}, "the same key was answered in two ways"
    with duramen.open(address) as store:
        stored = [event.key for event in store.session("a").events()]
    assert sorted(stored) == sorted(keys)


@pytest.mark.promise("J6", "B2")
def test_one_process_wins_each_position(address: str, processes: ChildProcesses, gate: Gate) -> None:
    children = [
        processes.start("store_clients:append_at_positions", address=address, gate=gate.path, positions=40)
        for _ in range(4)
    ]
    gate.open()
    said = _said(children)
    assert sorted(line for line in said if isinstance(line, int)) == list(range(1, 41))
    conflicts = [line for line in said if not isinstance(line, int)]
    assert len(conflicts) == 3 * 40
    assert all(expected < actual for expected, actual in conflicts)


@pytest.mark.promise("J5", "J6")
@pytest.mark.parametrize("how", ["plain", "with a blob", "about someone", "at a position", "about someone erased"])
def test_what_another_handle_did_in_between_is_seen(address: str, how: str) -> None:
    """The handle remembers where sessions stand. A third session is written last, so that it may think it is up
    to date."""
    with duramen.open(address) as one, duramen.open(address) as two:
        for name in ("a", "b", "b", "elsewhere"):
            one.session(name).append("note", subject="alice" if name == "elsewhere" else None)
        two.session("a").append("note")
        two.erase("alice")
        one.session("b").append("note")
        if how == "plain":
            event = one.session("a").append("note", "third")
        elif how == "with a blob":
            event = one.session("a").append("note", "third " * 10_000)
        elif how == "about someone":
            event = one.session("a").append("note", subject="bob")
        elif how == "at a position":
            event = one.session("a").append("note", expected=2)
        else:
            event = one.session("b").append("note", subject="alice")
        assert event.position == (4 if how == "about someone erased" else 3)
    with duramen.open(address) as fresh:
        assert fresh.verify().ok, fresh.verify().problems


@pytest.mark.promise("J5")
@pytest.mark.parametrize("through", ["handles of its own", "the same handle"])
def test_reading_during_erasures_finds_no_damage(address: str, through: str) -> None:
    strange: list[BaseException] = []
    with duramen.open(address) as store:
        for number in range(60):
            store.session("a").append("note", "text " * (5000 if number % 3 else 1), subject=f"person {number}")
        ending = threading.Event()

        def read() -> None:
            while not ending.is_set():
                with nullcontext(store) if through == "the same handle" else duramen.open(address) as reader:
                    try:
                        list(reader.session("a").events())
                    except DuramenError as error:
                        strange.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        for number in range(60):
            store.erase(f"person {number}")
        ending.set()
        thread.join()
    assert strange == []


@pytest.mark.promise("J5", "B2")
def test_sessions_in_opposite_orders_do_not_deadlock(postgres_url: str, processes: ChildProcesses, gate: Gate) -> None:
    names = [f"s{index}" for index in range(5)]
    orders = [names, names[::-1], names[2:] + names[:2]]
    given = {"address": postgres_url, "gate": gate.path, "orders": orders, "rounds": 15}
    with duramen.open(postgres_url) as store:
        for name in names:
            store.session(name).append("begun")
    children = [processes.start("store_clients:append_in_orders", **given) for _ in range(3)]
    gate.open()
    for child in children:
        child.finish()
    with duramen.open(postgres_url) as store:
        assert [store.session(name).head().position for name in names] == [1 + 3 * 3 * 15] * 5
    assert _deadlocks(postgres_url) == 0


@pytest.mark.promise("B2")
def test_erasing_does_not_deadlock_with_appends(postgres_url: str) -> None:
    with duramen.open(postgres_url) as store, duramen.open(postgres_url) as other:

        def write(handle: duramen.Duramen, names: list[str]) -> None:
            for number in range(40):
                handle.session(names[number % len(names)]).append("note", number, subject="alice")

        names = ["a", "b", "c"]
        threads = [threading.Thread(target=write, args=(handle, names)) for handle in (store, other) for _ in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            store.erase("alice")
    assert _deadlocks(postgres_url) == 0


@pytest.mark.promise("B2", "J12")
def test_blobs_in_opposite_orders_do_not_deadlock(postgres_url: str) -> None:
    with duramen.open(postgres_url) as store, duramen.open(postgres_url) as other:
        together = threading.Barrier(2)

        def write(handle: duramen.Duramen, name: str, step: int) -> None:
            for number in range(30):
                parts = [f"{number} {part} ".ljust(20_000, "x") for part in range(4)]
                together.wait()
                handle.session(name).append("note", parts[::step])

        threads = [
            threading.Thread(target=write, args=(store, "a", 1)),
            threading.Thread(target=write, args=(other, "b", -1)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row.head for row in store.sessions()] == [30, 30]
    assert _deadlocks(postgres_url) == 0


def _deadlocks(url: str) -> int:
    """How often the server had to break a deadlock. Call it with the store closed: then all have reported."""
    with psycopg.connect(url) as connection:
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        row: Any = connection.execute(query).fetchone()
    return int(row[0])


# -- bounds and fairness


@pytest.mark.promise("B2")
def test_a_hundred_sessions_share_a_bounded_pool(postgres_url: str) -> None:
    counted: list[int] = []
    with duramen.open(postgres_url, pool_size=5) as store, psycopg.connect(postgres_url, autocommit=True) as watching:

        def work(index: int) -> None:
            session = store.session(f"s{index}")
            for number in range(5):
                session.append("note", number)
            assert [event.data for event in session.follow(timeout=0.01)] == [0, 1, 2, 3, 4]

        threads = [threading.Thread(target=work, args=(index,)) for index in range(100)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'duramen' AND datname = %s"
            counted += watching.execute(query, (watching.info.dbname,)).fetchone() or ()
        assert [row.head for row in store.sessions()] == [5] * 100
    assert 1 < max(counted) <= 5 + 1


@pytest.mark.promise("J5")
def test_writers_of_one_file_take_fair_turns(tmp_path: Path, processes: ChildProcesses, gate: Gate) -> None:
    given = {"address": str(tmp_path / "agent.db"), "gate": gate.path, "seconds": 2.0}
    duramen.open(given["address"]).close()
    children = [processes.start("store_clients:append_for", **given) for _ in range(4)]
    for child in children:
        child.wait_for_lines(1)
    gate.open()
    counts = [int(child.finish()[1]) for child in children]
    assert min(counts) > sum(counts) / len(counts) / 10, counts


# -- following


@pytest.mark.promise("J15")
def test_a_client_that_leaves_and_comes_back_sees_all_it_missed_once(address: str, processes: ChildProcesses) -> None:
    last = 600
    writer = processes.start("store_clients:append_slowly", address=address, session="a", count=last)
    seen: list[list[int]] = []
    chance = random.Random(2)
    while not seen or seen[-1][0] < last:
        after = seen[-1][0] if seen else 0
        client = processes.start("store_clients:follow", address=address, session="a", after=after, last=last)
        if after < last * 2 / 3:
            client.wait_for_lines(chance.randrange(1, 150))
            client.kill()
        else:
            client.finish()
        seen += [json.loads(line) for line in client.lines()]
    writer.finish()
    assert seen == [[number, number] for number in range(1, last + 1)]


@pytest.mark.promise("J15")
def test_following_is_not_ended_by_what_happens_elsewhere(address: str) -> None:
    with duramen.open(address) as store:
        seen: list[Any] = []
        ended = threading.Event()

        def listen() -> None:
            for event in store.session("a").follow(timeout=30):
                seen.append(event.data)
                if event.data == "last":
                    break
            ended.set()

        store.session("a").append("note", "first")
        thread = threading.Thread(target=listen)
        thread.start()
        until(lambda: seen, "the first event")
        for number in range(50):
            store.session("b").append("note", number)
            assert not ended.wait(0.005), "30 seconds cannot have passed"
        store.session("a").append("note", "last")
        thread.join()
    assert seen == ["first", "last"]


# -- forks


@pytest.mark.promise("J5")
def test_a_handle_is_refused_in_a_forked_child_and_unharmed_in_its_parent(address: str) -> None:
    command = [sys.executable, "-m", "programs.fork_with_handle", address]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said["child"].values()) == {"ForkedHandle"}, said["child"]
    assert said["status"] == 0
    assert said["events"] == ["before"] + [f"after {number}" for number in range(20)]
    assert said["sound"]


@pytest.mark.promise("J2")
def test_a_forked_child_with_a_handle_of_its_own_loses_nothing(address: str, processes: ChildProcesses) -> None:
    child = processes.start("store_clients:reopen_after_fork", address=address)
    said = child.finish()
    if "://" not in address:  # SQLite would believe that it holds the parent's locks
        assert [line for line in said if "refused" in line]
        return
    assert len(said) == 11
    audit = AppendAudit(address)
    audit.check([child.output], unsure=0)
    assert audit.acknowledged == 11


@pytest.mark.promise("J14")
def test_a_handle_closed_before_the_fork_does_not_stand_in_the_childs_way(
    address: str, processes: ChildProcesses
) -> None:
    child = processes.start("store_clients:close_and_fork", address=address)
    assert child.finish() == ["1", "2", "3"]


# -- stopped processes


@pytest.mark.promise("J2", "J5")
@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL], ids=["continued", "killed"])
def test_a_stopped_writer_is_reported_and_gone_when_it_is(address: str, processes: ChildProcesses, then: int) -> None:
    with duramen.open(address, timeout=1.0) as store:
        store.session("b").append("note", 1)
        holder = processes.start("store_clients:stop_in_append", address=address, session="a")
        holder.wait_for_lines(1)
        with pytest.raises(StoreBusy):
            store.session("a").append("note", "too early")
        assert [event.data for event in store.session("b").events()] == [1]  # readers are not held up
        with duramen.open(address, readonly=True) as other:
            assert other.session("b").head().position == 1
        holder.signal(then)
        holder.wait()
        event = until(lambda: _unless_busy(lambda: store.session("a").append("note", "after")), "the lock to be free")
        held = ["by a"] if then == signal.SIGCONT else []
        assert [event.data for event in store.session("a").events()] == [*held, "after"]
        assert event.position == len(held) + 1
        assert store.verify().ok


@pytest.mark.promise("J2")
def test_a_handle_can_be_closed_while_another_process_holds_the_lock(address: str, processes: ChildProcesses) -> None:
    store = duramen.open(address, timeout=1.0)
    store.session("b").append("note", 1)
    holder = processes.start("store_clients:stop_in_append", address=address, session="a")
    holder.wait_for_lines(1)
    store.close()
    with pytest.raises(StoreClosed):
        store.session("b").append("note", 2)


def _unless_busy(work: Any) -> Any:
    try:
        return work()
    except StoreBusy:
        return None


@pytest.mark.promise("J5")
def test_a_group_that_waits_in_vain_waits_once(address: str, processes: ChildProcesses, gate: Gate) -> None:
    waiting = processes.start(
        "store_clients:append_to_stalled_store", address=address, gate=gate.path, threads=24, timeout=0.5
    )
    waiting.wait_for_lines(1)
    blocker = _block(address, processes)
    gate.open()
    outcomes = json.loads(waiting.wait_for_lines(2)[1])
    blocker.close()
    assert {kind for kind, _ in outcomes} == {"StoreBusy"}
    assert max(seconds for _, seconds in outcomes) < 24 * 0.5 / 2, outcomes


class _Blocker:
    """Keeps session a from being written."""

    def __init__(self, holder: ChildProcess | None, connection: psycopg.Connection[Any] | None) -> None:
        self._holder, self._connection = holder, connection

    def close(self) -> None:
        if self._holder is not None:
            self._holder.kill()
        if self._connection is not None:
            self._connection.close()


def _block(address: str, processes: ChildProcesses) -> _Blocker:
    if "://" not in address:
        holder = processes.start("store_clients:stop_in_append", address=address, session="another")
        holder.wait_for_lines(1)
        return _Blocker(holder, None)
    connection = psycopg.connect(address)
    connection.execute("SELECT 1 FROM duramen.sessions WHERE session = 'a' FOR UPDATE")
    return _Blocker(None, connection)


# -- interrupts


@pytest.mark.promise("J5")
@pytest.mark.parametrize("by", ["point", "signal"])
@pytest.mark.parametrize("threads", [0, 3])
def test_an_interrupted_thread_leaves_the_handle_and_its_neighbours_whole(
    address: str, processes: ChildProcesses, by: str, threads: int
) -> None:
    child = processes.start(
        "store_clients:append_under_interrupts", address=address, by=by, rounds=150, threads=threads
    )
    said = child.finish()
    with duramen.open(address, timeout=5) as store:
        events = list(store.session("a").events())
        stored = {(event.data["writer"], event.data["n"]) for event in events if event.data["part"] == 0}
        told = {(writer, number) for _, writer, number, *_ in map(json.loads, said)}
        assert told <= stored
        assert len(events) == len({(event.data["writer"], event.data["n"], event.data["part"]) for event in events})
        store.session("a").append("the lock is free")


@pytest.mark.promise("J5")
@pytest.mark.parametrize("kind", ["plain", "blob", "new session"])
@pytest.mark.parametrize("place", ["alone", "leading", "following"])
def test_an_interrupt_at_any_step_of_an_append_leaves_the_handle_whole(
    tmp_path: Path, processes: ChildProcesses, place: str, kind: str
) -> None:
    given = {"address": str(tmp_path / "agent.db"), "place": place, "kind": kind}
    child = processes.start("interrupted_appends:interrupt_every_step", **given)
    steps, wrong = json.loads(child.finish()[0])
    assert wrong == []
    assert steps > 20
    verified(given["address"])


@pytest.mark.promise("J5")
def test_an_interrupted_waiter_does_not_keep_the_lock(tmp_path: Path, processes: ChildProcesses, gate: Gate) -> None:
    address, idle = str(tmp_path / "agent.db"), Gate(tmp_path / "idle")
    waiter = processes.start("store_clients:append_after_gate", address=address, gate=gate.path, idle=idle.path)
    waiter.wait_for_lines(1)
    holder = processes.start("store_clients:stop_in_append", address=address, session="held")
    holder.wait_for_lines(1)
    gate.open()
    waiter.wait_for_lines(2)
    time.sleep(0.2)  # nothing tells from outside that it waits; it will do so until it is interrupted
    waiter.signal(signal.SIGINT)
    assert waiter.wait_for_lines(3)[2] == "interrupted"
    holder.kill()
    with duramen.open(address, timeout=5) as store:
        store.session("a").append("note", "the waiter lives, but no longer wants the lock")
    idle.open()
    waiter.finish()


# -- cancelling and closing


@pytest.mark.promise("J5")
def test_a_cancelled_append_does_not_disturb_its_neighbours(address: str) -> None:
    chance = random.Random(5)

    async def whole() -> tuple[set[str], set[str]]:
        asked, told = set(), set()
        async with await duramen.aopen(address) as store:

            async def write(name: str) -> None:
                session = store.session(f"s{len(name) % 3}")
                await session.append("note", name, key=name if chance.random() < 0.3 else None)
                told.add(name)

            for number in range(40):
                tasks = {f"{number}/{index}": None for index in range(12)}
                running = [asyncio.create_task(write(name)) for name in tasks]
                asked.update(tasks)
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                cancelled = [task for task in running if chance.random() < 0.4]
                for task in cancelled:
                    task.cancel()
                for task, outcome in zip(running, await asyncio.gather(*running, return_exceptions=True), strict=True):
                    assert outcome is None or (task in cancelled and isinstance(outcome, asyncio.CancelledError))
        return asked, told

    asked, told = asyncio.run(asyncio.wait_for(whole(), 60))
    with duramen.open(address) as store:
        stored = [event.data for row in list(store.sessions()) for event in store.session(row.session).events()]
    assert told <= set(stored) <= asked
    assert len(stored) == len(set(stored))
    verified(address)


@pytest.mark.promise("J2")
def test_closing_during_appends_on_a_loop_settles_each_of_them(address: str) -> None:
    async def once(number: int) -> tuple[list[Any], float]:
        store = await duramen.aopen(address)
        await store.session("a").append("note", [number, -1])
        begun = time.monotonic()
        appends = [store.session("a").append("note", [number, index]) for index in range(5)]
        *outcomes, closed = await asyncio.gather(*appends, store.close(), return_exceptions=True)
        assert closed is None
        return outcomes, time.monotonic() - begun

    for number in range(8):
        outcomes, seconds = asyncio.run(once(number))
        assert seconds < 10, "closing waited for a thread that had nothing to do"
        told = [outcome.data for outcome in outcomes if not isinstance(outcome, StoreClosed)]
        with duramen.open(address) as store:
            stored = [event.data for event in store.session("a").events() if event.data[0] == number]
        assert stored == [[number, -1], *told]


@pytest.mark.promise("J2")
def test_closing_during_appends_of_threads_settles_each_of_them(address: str) -> None:
    told: list[Any] = []
    strange: list[BaseException] = []
    store = duramen.open(address)

    def write(index: int) -> None:
        try:
            for number in range(100_000):
                told.append(store.session("a").append("note", [index, number]).data)
        except StoreClosed:
            return
        except BaseException as error:  # noqa: BLE001 - shown below
            strange.append(error)

    def follow() -> None:
        try:
            for _ in store.session("a").follow():
                continue
        except StoreClosed:
            return
        except BaseException as error:  # noqa: BLE001 - shown below
            strange.append(error)

    threads = [threading.Thread(target=write, args=(index,)) for index in range(4)]
    threads += [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: len(told) > 50, "the writers to get going")
    store.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert strange == []
    with duramen.open(address) as again:
        stored = [event.data for event in again.session("a").events()]
    assert sorted(stored) == sorted(told)


class LeavingLoop(asyncio.SelectorEventLoop):
    """A loop that closes right after somebody has looked whether it is closed."""

    leaving = False

    def call_soon_threadsafe(self, *given: Any, **options: Any) -> Any:
        if self.leaving:
            raise RuntimeError("Event loop is closed")
        return super().call_soon_threadsafe(*given, **options)


@pytest.mark.promise("J5")
@pytest.mark.parametrize("when", ["before it was written", "before it was told", "while following"])
def test_a_loop_that_ends_in_the_middle_does_not_hold_up_another(address: str, when: str) -> None:
    first = LeavingLoop()
    store = first.run_until_complete(duramen.aopen(address))
    if when == "while following":
        first.run_until_complete(store.session("a").append("note", 0))
        following = store.session("a").follow()
        first.run_until_complete(anext(following))
        task = first.create_task(anext(following))
    else:
        task = first.create_task(store.session("a").append("note", "abandoned"))
    for _ in range(1 if when == "before it was written" else 10):
        first.call_soon(first.stop)
        first.run_forever()  # a turn or some: the append was asked for, and nobody will ever hear of it
        first.leaving = when != "before it was written"

    async def on_another() -> list[Any]:
        events = [await asyncio.wait_for(store.session("a").append("note", number), 10) for number in (1, 2)]
        await store.close()
        return [event.data for event in events]

    try:
        assert asyncio.run(on_another()) == [1, 2]
    finally:
        first.leaving = False
        task.cancel()
        first.run_until_complete(asyncio.wait([task]))
        first.run_until_complete(first.shutdown_asyncgens())
        first.close()
