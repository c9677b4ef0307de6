"""Several processes use one store: order, conflicts, fairness, forks, stopped and interrupted processes."""

from __future__ import annotations

import asyncio
import json
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
from programs.seeds import seeded

import duramen
from duramen.errors import DuramenError, StoreBusy, StoreClosed


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that does not exist yet."""
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


def _json_lines(children: list[ChildProcess]) -> list[Any]:
    return [json.loads(line) for child in children for line in child.finish()]


# -- one order


@pytest.mark.promise("B1", "B2")
def test_processes_can_create_a_store_at_the_same_time(
    fresh_address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    """Repeated for many SQLite files, because the races are short."""
    addresses = [fresh_address] if "://" in fresh_address else [f"{fresh_address}.{index}" for index in range(8)]
    child = processes.start("store_clients:open_first", addresses=addresses, gate=str(tmp_path / "gate"), count=6)
    wrote = [int(line) for line in child.finish()]
    assert sorted(wrote) == sorted([1, 2, 3, 4, 5, 6] * len(addresses)), child.errors()


@pytest.mark.promise("J5", "B2")
def test_appends_of_several_processes_have_one_order(address: str, processes: ChildProcesses) -> None:
    options = {"address": address, "first": 0, "count": 60, "sessions": ["a"], "threads": 2}
    children = [processes.start("writer:write", writer=f"w{index}", **options) for index in range(4)]
    assert [len(child.finish()) for child in children] == [120] * 4
    audit = AppendAudit(address)
    audit.check([child.output for child in children], unsure=0)
    assert audit.acknowledged == 480
    with duramen.open(address) as store:
        events = list(store.session("a").events())
        assert [event.position for event in events] == list(range(1, audit.events + 1))
        assert store.session("a").verify().ok


@pytest.mark.promise("J7", "B2")
def test_a_key_that_several_processes_use_at_once_is_stored_once(
    address: str, processes: ChildProcesses, gate: Gate
) -> None:
    keys = [f"k{index}" for index in range(8)]
    children = [processes.start("store_clients:use_keys", address=address, gate=gate.path, keys=keys) for _ in range(4)]
    gate.open()
    answers: dict[str, set[str]] = {}
    for key, *answer in _json_lines(children):
        answers.setdefault(key, set()).add(json.dumps(answer))
    assert sorted(answers) == sorted(keys)
    assert {len(each) for each in answers.values()} == {1}, "the same key was answered in two ways"
    with duramen.open(address) as store:
        stored = [event.key for event in store.session("a").events()]
    assert sorted(stored) == sorted(keys)


@pytest.mark.promise("J6", "B2")
def test_exactly_one_process_appends_at_each_position(address: str, processes: ChildProcesses, gate: Gate) -> None:
    children = [
        processes.start("store_clients:append_at_positions", address=address, gate=gate.path, positions=40)
        for _ in range(4)
    ]
    gate.open()
    lines = _json_lines(children)
    assert sorted(line for line in lines if isinstance(line, int)) == list(range(1, 41))
    conflicts = [line for line in lines if not isinstance(line, int)]
    assert len(conflicts) == 3 * 40
    assert all(expected < actual for expected, actual in conflicts)


@pytest.mark.promise("J5", "J6")
@pytest.mark.parametrize("how", ["plain", "with a blob", "with a subject", "at a position", "with an erased subject"])
def test_a_handle_sees_what_another_handle_wrote_in_between(address: str, how: str) -> None:
    """A handle caches the heads of sessions. It writes another session last, so that its cache looks current."""
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
        elif how == "with a subject":
            event = one.session("a").append("note", subject="bob")
        elif how == "at a position":
            event = one.session("a").append("note", expected=2)
        else:
            event = one.session("b").append("note", subject="alice")
        assert event.position == (4 if how == "with an erased subject" else 3)
    with duramen.open(address) as fresh:
        assert fresh.verify().ok, fresh.verify().problems


@pytest.mark.promise("J5")
@pytest.mark.parametrize("through", ["another handle", "the same handle"])
def test_reading_during_erasures_finds_no_damage(address: str, through: str) -> None:
    unexpected: list[BaseException] = []
    with duramen.open(address) as store:
        for number in range(60):
            store.session("a").append("note", "text " * (5000 if number % 3 else 1), subject=f"person {number}")
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                with nullcontext(store) if through == "the same handle" else duramen.open(address) as reader:
                    try:
                        list(reader.session("a").events())
                    except DuramenError as error:
                        unexpected.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        for number in range(60):
            store.erase(f"person {number}")
        stop.set()
        thread.join()
    assert unexpected == []


@pytest.mark.promise("J5", "B2")
def test_appends_to_sessions_in_opposite_orders_do_not_deadlock(
    postgres_url: str, processes: ChildProcesses, gate: Gate
) -> None:
    names = [f"s{index}" for index in range(5)]
    orders = [names, names[::-1], names[2:] + names[:2]]
    options = {"address": postgres_url, "gate": gate.path, "orders": orders, "rounds": 15}
    with duramen.open(postgres_url) as store:
        for name in names:
            store.session(name).append("begun")
    children = [processes.start("store_clients:append_in_orders", **options) for _ in range(3)]
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
        barrier = threading.Barrier(2)

        def write(handle: duramen.Duramen, name: str, step: int) -> None:
            for number in range(30):
                parts = [f"{number} {part} ".ljust(20_000, "x") for part in range(4)]
                barrier.wait()
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
    """The number of deadlocks that the server resolved. Close the store first: connections report theirs at the end."""
    with psycopg.connect(url) as connection:
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        row: Any = connection.execute(query).fetchone()
    return int(row[0])


# -- limits and fairness


@pytest.mark.promise("B2")
def test_a_hundred_sessions_share_a_bounded_pool(postgres_url: str) -> None:
    counts_seen: list[int] = []
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
            counts_seen += watching.execute(query, (watching.info.dbname,)).fetchone() or ()
        assert [row.head for row in store.sessions()] == [5] * 100
    assert 1 < max(counts_seen) <= 5 + 1


@pytest.mark.promise("J5")
def test_writers_of_one_file_share_it_fairly(tmp_path: Path, processes: ChildProcesses, gate: Gate) -> None:
    options = {"address": str(tmp_path / "agent.db"), "gate": gate.path, "seconds": 2.0}
    duramen.open(options["address"]).close()
    children = [processes.start("store_clients:append_for", **options) for _ in range(4)]
    for child in children:
        child.wait_for_lines(1)
    gate.open()
    counts = [int(child.finish()[1]) for child in children]
    assert min(counts) > sum(counts) / len(counts) / 10, counts


# -- following


@pytest.mark.promise("J15")
def test_a_follower_that_reconnects_sees_each_event_once(address: str, processes: ChildProcesses) -> None:
    last = 600
    writer = processes.start("store_clients:append_slowly", address=address, session="a", count=last)
    seen: list[list[int]] = []
    choices = seeded("a follower that reconnects")
    while not seen or seen[-1][0] < last:
        after = seen[-1][0] if seen else 0
        client = processes.start("store_clients:follow", address=address, session="a", after=after, last=last)
        if after < last * 2 / 3:
            client.wait_for_lines(choices.randrange(1, 150))
            client.kill()
        else:
            client.finish()
        seen += [json.loads(line) for line in client.lines()]
    writer.finish()
    assert seen == [[number, number] for number in range(1, last + 1)]


@pytest.mark.promise("J15")
def test_events_of_other_sessions_do_not_end_a_follower(address: str) -> None:
    with duramen.open(address) as store:
        seen: list[Any] = []
        ended = threading.Event()

        def follow() -> None:
            for event in store.session("a").follow(timeout=30):
                seen.append(event.data)
                if event.data == "last":
                    break
            ended.set()

        store.session("a").append("note", "first")
        thread = threading.Thread(target=follow)
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
def test_a_forked_child_cannot_use_the_handle_and_its_parent_still_can(address: str) -> None:
    command = [sys.executable, "-m", "programs.fork_with_handle", address]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report["child"].values()) == {"ForkedHandle"}, report["child"]
    assert report["status"] == 0
    assert report["events"] == ["before"] + [f"after {number}" for number in range(20)]
    assert report["sound"]


@pytest.mark.promise("J2")
def test_a_forked_child_that_opens_its_own_handle_loses_nothing(address: str, processes: ChildProcesses) -> None:
    child = processes.start("store_clients:reopen_after_fork", address=address)
    lines = child.finish()
    if "://" not in address:  # SQLite would assume that it holds the locks of its parent
        assert [line for line in lines if "refused" in line]
        return
    assert len(lines) == 11
    audit = AppendAudit(address)
    audit.check([child.output], unsure=0)
    assert audit.acknowledged == 11


@pytest.mark.promise("J14")
def test_a_handle_closed_before_the_fork_does_not_block_the_child(address: str, processes: ChildProcesses) -> None:
    child = processes.start("store_clients:close_and_fork", address=address)
    assert child.finish() == ["1", "2", "3"]


# -- stopped processes


@pytest.mark.promise("J2", "J5")
@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL], ids=["continued", "killed"])
def test_a_stopped_writer_is_reported_until_it_continues_or_dies(
    address: str, processes: ChildProcesses, then: int
) -> None:
    with duramen.open(address, timeout=1.0) as store:
        store.session("b").append("note", 1)
        holder = processes.start("store_clients:stop_in_append", address=address, session="a")
        holder.wait_for_lines(1)
        with pytest.raises(StoreBusy):
            store.session("a").append("note", "too early")
        assert [event.data for event in store.session("b").events()] == [1]  # readers do not wait
        with duramen.open(address, readonly=True) as other:
            assert other.session("b").head().position == 1
        holder.signal(then)
        holder.wait()
        event = until(
            lambda: _unless_busy(lambda: store.session("a").append("note", "after")), "the lock to be released"
        )
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
def test_a_commit_group_that_times_out_waits_only_once(address: str, processes: ChildProcesses, gate: Gate) -> None:
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
    """Blocks appends to session a."""

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
def test_an_interrupted_thread_does_not_affect_the_handle_or_other_threads(
    address: str, processes: ChildProcesses, by: str, threads: int
) -> None:
    child = processes.start(
        "store_clients:append_under_interrupts", address=address, by=by, rounds=150, threads=threads
    )
    lines = child.finish()
    with duramen.open(address, timeout=5) as store:
        events = list(store.session("a").events())
        stored = {(event.data["writer"], event.data["n"]) for event in events if event.data["part"] == 0}
        acknowledged = {(writer, number) for _, writer, number, *_ in map(json.loads, lines)}
        assert acknowledged <= stored
        assert len(events) == len({(event.data["writer"], event.data["n"], event.data["part"]) for event in events})
        store.session("a").append("the lock is free")


@pytest.mark.promise("J5")
@pytest.mark.parametrize("kind", ["plain", "blob", "new session"])
@pytest.mark.parametrize("place", ["alone", "leading", "following"])
def test_a_handle_survives_an_interrupt_at_any_step_of_an_append(
    tmp_path: Path, processes: ChildProcesses, place: str, kind: str
) -> None:
    options = {"address": str(tmp_path / "agent.db"), "place": place, "kind": kind}
    child = processes.start("interrupted_appends:interrupt_every_step", **options)
    steps, wrong = json.loads(child.finish()[0])
    assert wrong == []
    assert steps > 20
    verified(options["address"])


@pytest.mark.promise("J5")
def test_an_interrupted_waiter_does_not_keep_the_lock(tmp_path: Path, processes: ChildProcesses, gate: Gate) -> None:
    address, idle = str(tmp_path / "agent.db"), Gate(tmp_path / "idle")
    waiter = processes.start("store_clients:append_after_gate", address=address, gate=gate.path, idle=idle.path)
    waiter.wait_for_lines(1)
    holder = processes.start("store_clients:stop_in_append", address=address, session="held")
    holder.wait_for_lines(1)
    gate.open()
    waiter.wait_for_lines(2)
    time.sleep(0.2)  # that it waits cannot be observed; it waits until the interrupt
    waiter.signal(signal.SIGINT)
    assert waiter.wait_for_lines(3)[2] == "interrupted"
    holder.kill()
    with duramen.open(address, timeout=5) as store:
        store.session("a").append("note", "the waiter is alive and does not hold the lock")
    idle.open()
    waiter.finish()


# -- cancelling and closing


@pytest.mark.promise("J5")
def test_a_cancelled_append_does_not_affect_other_appends(address: str) -> None:
    choices = seeded("cancelled appends")

    async def append_and_cancel() -> tuple[set[str], set[str]]:
        requested, acknowledged = set(), set()
        async with await duramen.aopen(address) as store:

            async def write(name: str) -> None:
                session = store.session(f"s{len(name) % 3}")
                await session.append("note", name, key=name if choices.random() < 0.3 else None)
                acknowledged.add(name)

            for number in range(40):
                tasks = {f"{number}/{index}": None for index in range(12)}
                running = [asyncio.create_task(write(name)) for name in tasks]
                requested.update(tasks)
                for _ in range(choices.randrange(4)):
                    await asyncio.sleep(0)
                cancelled = [task for task in running if choices.random() < 0.4]
                for task in cancelled:
                    task.cancel()
                for task, outcome in zip(running, await asyncio.gather(*running, return_exceptions=True), strict=True):
                    assert outcome is None or (task in cancelled and isinstance(outcome, asyncio.CancelledError))
        return requested, acknowledged

    requested, acknowledged = asyncio.run(asyncio.wait_for(append_and_cancel(), 60))
    with duramen.open(address) as store:
        stored = [event.data for row in list(store.sessions()) for event in store.session(row.session).events()]
    assert acknowledged <= set(stored) <= requested
    assert len(stored) == len(set(stored))
    verified(address)


@pytest.mark.promise("J2")
def test_each_append_succeeds_or_fails_when_a_loop_closes_the_store(address: str) -> None:
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
        assert seconds < 10, "closing waited for an idle thread"
        acknowledged = [outcome.data for outcome in outcomes if not isinstance(outcome, StoreClosed)]
        with duramen.open(address) as store:
            stored = [event.data for event in store.session("a").events() if event.data[0] == number]
        assert stored == [[number, -1], *acknowledged]


@pytest.mark.promise("J2")
def test_each_append_succeeds_or_fails_when_a_thread_closes_the_store(address: str) -> None:
    acknowledged: list[Any] = []
    unexpected: list[BaseException] = []
    store = duramen.open(address)

    def write(index: int) -> None:
        try:
            for number in range(100_000):
                acknowledged.append(store.session("a").append("note", [index, number]).data)
        except StoreClosed:
            return
        except BaseException as error:  # noqa: BLE001 - asserted below
            unexpected.append(error)

    def follow() -> None:
        try:
            for _ in store.session("a").follow():
                continue
        except StoreClosed:
            return
        except BaseException as error:  # noqa: BLE001 - asserted below
            unexpected.append(error)

    threads = [threading.Thread(target=write, args=(index,)) for index in range(4)]
    threads += [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: len(acknowledged) > 50, "the first appends")
    store.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert unexpected == []
    with duramen.open(address) as again:
        stored = [event.data for event in again.session("a").events()]
    assert sorted(stored) == sorted(acknowledged)


class ClosingLoop(asyncio.SelectorEventLoop):
    """A loop that closes right after a caller has checked that it is open."""

    closing = False

    def call_soon_threadsafe(self, *arguments: Any, **options: Any) -> Any:
        if self.closing:
            raise RuntimeError("Event loop is closed")
        return super().call_soon_threadsafe(*arguments, **options)


@pytest.mark.promise("J5")
@pytest.mark.parametrize("when", ["before the write", "before the answer", "while following"])
def test_a_loop_that_ends_during_an_append_does_not_block_another_loop(address: str, when: str) -> None:
    first = ClosingLoop()
    store = first.run_until_complete(duramen.aopen(address))
    if when == "while following":
        first.run_until_complete(store.session("a").append("note", 0))
        following = store.session("a").follow()
        first.run_until_complete(anext(following))
        task = first.create_task(anext(following))
    else:
        task = first.create_task(store.session("a").append("note", "abandoned"))
    for _ in range(1 if when == "before the write" else 10):
        first.call_soon(first.stop)
        first.run_forever()  # the append has started, and its result is never read
        first.closing = when != "before the write"

    async def on_another() -> list[Any]:
        events = [await asyncio.wait_for(store.session("a").append("note", number), 10) for number in (1, 2)]
        await store.close()
        return [event.data for event in events]

    try:
        assert asyncio.run(on_another()) == [1, 2]
    finally:
        first.closing = False
        task.cancel()
        first.run_until_complete(asyncio.wait([task]))
        first.run_until_complete(first.shutdown_asyncgens())
        first.close()
