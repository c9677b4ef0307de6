"""Processes and servers are killed at random moments and at every crash point. No acknowledged event is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs.append_audit import AppendAudit, verified
from programs.child_processes import ChildProcess, ChildProcesses, Gate
from programs.cutting_proxy import CuttingProxy
from programs.paths import TESTS
from programs.seeds import seeded

import duramen
from duramen.errors import StoreBusy
from duramen.testing.crash import CRASH_VARIABLE
from duramen.testing.postgres import PostgresServer

APPEND_POINTS = ["append.encoded", "append.begun", "append.inserted", "append.committed"]
ERASE_POINTS = ["erase.begun", "erase.removed", "erase.committed"]
RANDOM_KILLS = {True: 100, False: 15}
VISITS = {True: range(1, 11), False: (1, 2, 5, 10)}
"""Both with and without `--everything`."""


@pytest.fixture(scope="module")
def server_to_kill() -> Iterator[PostgresServer]:
    """A PostgreSQL server that tests may kill."""
    with PostgresServer.start() as server:
        yield server


def _writer(
    processes: ChildProcesses, address: str, name: str, crash: tuple[str, int] | None = None, threads: int = 1
) -> ChildProcess:
    options = {"writer": name, "first": 0, "count": 1000, "sessions": ["a", "b"], "threads": threads}
    return processes.start("writer:write", address=address, crash=crash, **options)


@pytest.mark.promise("J1", "J2", "J5", "J14")
def test_writers_killed_at_random_moments_lose_nothing(
    address: str, processes: ChildProcesses, everything: bool
) -> None:
    chance = seeded("writers")
    audit = AppendAudit(address)
    for number in range(RANDOM_KILLS[everything]):
        threads = chance.choice([1, 1, 3])
        if number % 5 == 4:  # so that kills also hit opening and closing
            options = {"address": address, "count": 1000, "sessions": ["a", "b"]}
            child = processes.start("writer:append_with_new_handles", writer=f"w{number}", **options)
        else:
            child = _writer(processes, address, f"w{number}", threads=threads)
        child.wait_for_lines(chance.choice([0, 1, 5, 15]))
        time.sleep(chance.uniform(0, 0.01))  # so that the kill can hit any instruction
        assert child.kill() == -signal.SIGKILL
        audit.check([child.output], unsure=threads)
    assert audit.acknowledged > RANDOM_KILLS[everything]
    assert verified(address) == audit.events


@pytest.mark.promise("J1", "J2", "J5", "J14")
@pytest.mark.parametrize("point", APPEND_POINTS)
def test_a_kill_at_every_point_of_an_append_loses_nothing(
    address: str, processes: ChildProcesses, point: str, everything: bool
) -> None:
    audit = AppendAudit(address)
    for visit in VISITS[everything]:
        before = audit.events
        child = _writer(processes, address, f"w{visit}", crash=(point, visit))
        assert child.wait() == -signal.SIGKILL, child.errors()
        # A kill before the commit leaves nothing. A kill after it leaves an append that was not acknowledged.
        audit.check([child.output], unsure=1 if point == "append.committed" else 0)
        assert audit.events > before or visit == 1
    assert verified(address) == audit.events


@pytest.mark.promise("J2", "J5")
def test_a_kill_during_a_commit_group_loses_nothing(address: str, processes: ChildProcesses) -> None:
    audit = AppendAudit(address)
    for visit, point in enumerate(["append.begun", "append.committed"] * 4, start=1):
        child = _writer(processes, address, f"w{visit}", crash=(point, visit * 4), threads=6)
        assert child.wait() == -signal.SIGKILL, child.errors()
        audit.check([child.output], unsure=6)
    assert verified(address) == audit.events


@pytest.mark.promise("J2", "J5", "J14")
def test_other_writers_continue_when_one_is_killed(address: str, processes: ChildProcesses) -> None:
    chance = seeded("victims")
    audit = AppendAudit(address)
    duramen.open(address).close()
    for number in range(5):
        options = {"address": address, "first": 0, "count": 40, "sessions": ["a"]}
        children = [processes.start("writer:write", writer=f"w{number}.{index}", **options) for index in range(3)]
        victim = children.pop(chance.randrange(3))
        victim.wait_for_lines(chance.randrange(1, 20))
        victim.kill()
        for child in children:
            assert len(child.finish()) == 40
        audit.check([victim.output, *(child.output for child in children)], unsure=1)
    assert verified(address) == audit.events


@pytest.mark.promise("J2", "J14")
def test_a_killed_program_is_continued_by_the_next_one(address: str) -> None:
    program = TESTS / "programs" / "writer.py"
    command = [sys.executable, str(program), address, "program"]
    env = os.environ | {CRASH_VARIABLE: "append.committed:6"}
    killed = subprocess.run([*command, "0", "20", "a", "b"], env=env, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(killed.stdout.splitlines()) == 5
    done = subprocess.run([*command, "6", "14", "a", "b"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with duramen.open(address) as store:
        numbers = [event.data["n"] for name in ("a", "b") for event in store.session(name).events()]
    assert sorted(set(numbers)) == list(range(20))


@pytest.mark.promise("J1", "J2")
def test_a_copy_of_the_file_and_its_log_holds_every_event(tmp_path: Path, processes: ChildProcesses) -> None:
    child = _writer(processes, str(tmp_path / "agent.db"), "w")
    child.wait_for_lines(30)
    child.kill()
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    for name in ("agent.db", "agent.db-wal"):
        shutil.copy(tmp_path / name, elsewhere)
    audit = AppendAudit(str(elsewhere / "agent.db"))
    audit.check([child.output], unsure=1)
    assert audit.acknowledged >= 30


@pytest.mark.promise("J2", "J5")
@pytest.mark.parametrize("point", ERASE_POINTS)
def test_a_killed_erasure_leaves_all_or_nothing(address: str, processes: ChildProcesses, point: str) -> None:
    for number in range(2):
        subject, secret = f"person {number}", f"secret {number} of the person"
        with duramen.open(address) as store:
            for index in range(4):
                store.session(f"s{index % 2}").append("note", secret, subject=subject)
                store.session(f"s{index % 2}").append("note", "about no subject")
        child = processes.start("store_clients:erase", address=address, crash=(point, 1), subject=subject)
        assert child.wait() == -signal.SIGKILL, child.errors()
        with duramen.open(address) as store:
            events = [event for name in ("s0", "s1") for event in store.session(name).events()]
            tombstones = sum(event.type == "subject.erased" for event in events)
            left = [event.data for event in events if event.subject == subject]
            assert len(left) == (0 if point == "erase.committed" else 4)
            assert set(left) <= {secret}
            assert tombstones == 2 * (number + 1 if point == "erase.committed" else number)
            assert sum(event.data == "about no subject" for event in events) == 4 * (number + 1)
            assert store.verify().ok
            assert store.erase(subject).payloads == len(left)
            assert store.verify().ok


@pytest.mark.promise("G3")
def test_erasing_again_after_a_kill_removes_every_byte(tmp_path: Path, processes: ChildProcesses) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as store:
        store.session("a").append("note", "the planted secret", subject="alice")
        child = processes.start("store_clients:erase", address=str(path), crash=("erase.committed", 1), subject="alice")
        assert child.wait() == -signal.SIGKILL, child.errors()
        store.erase("alice")
        left = [file.name for file in tmp_path.glob("agent.db*") if b"the planted" in file.read_bytes()]
    assert left == []


@pytest.mark.promise("G3")
def test_an_erasure_blocked_by_a_reader_times_out_and_succeeds_later(tmp_path: Path, processes: ChildProcesses) -> None:
    path, timeout = tmp_path / "agent.db", 1.0
    with duramen.open(path, timeout=timeout) as store:
        store.session("a").append("note", "the planted secret", subject="alice")
        reader = processes.start("store_clients:hold_read_transaction", path=str(path))
        reader.wait_for_lines(1)
        begun = time.monotonic()
        with pytest.raises(StoreBusy):
            store.erase("alice")
        assert time.monotonic() - begun < 5 * timeout + 1
        reader.kill()
        store.erase("alice")
        assert b"the planted" not in (tmp_path / "agent.db-wal").read_bytes()


@pytest.mark.promise("J2")
def test_the_lock_of_a_killed_writer_is_free_while_its_child_lives(address: str, processes: ChildProcesses) -> None:
    child = processes.start("store_clients:fork_and_die", address=address, session="held")
    status = child.wait()
    grandchild = int(child.lines()[0])
    try:
        assert status == -signal.SIGKILL, child.errors()
        with duramen.open(address, timeout=5) as store:
            assert store.session("held").append("note").position == 1
    finally:
        os.kill(grandchild, signal.SIGKILL)


@pytest.mark.promise("J2", "J5", "B2")
def test_a_server_crash_loses_and_duplicates_nothing(
    server_to_kill: PostgresServer, processes: ChildProcesses, everything: bool
) -> None:
    address = server_to_kill.create_database("crashing")
    duramen.open(address).close()
    options = {"address": address, "first": 0, "count": 100_000, "sessions": ["a", "b", "c"], "threads": 2}
    children = [processes.start("writer:write", writer=f"w{index}", **options) for index in range(3)]
    audit = AppendAudit(address)
    lines = 20
    for _ in range(8 if everything else 1):
        for child in children:
            child.wait_for_lines(lines)
        server_to_kill.kill_immediate()
        server_to_kill.start_again()
        lines = max(len(child.lines()) for child in children) + 40
    for child in children:
        child.wait_for_lines(lines)  # the writers reconnected
        assert child.kill() == -signal.SIGKILL, child.errors()
    audit.check([child.output for child in children], unsure=6)
    assert verified(address) == audit.events


@pytest.mark.promise("J2", "B2")
def test_a_follower_sees_every_event_across_a_server_crash(server_to_kill: PostgresServer) -> None:
    address = server_to_kill.create_database("followed")
    with duramen.open(address) as store, duramen.open(address) as other:
        session = store.session("a")
        session.append("note", 1)
        following = session.follow()
        assert next(following).data == 1
        other.session("a").append("note", 2)
        assert next(following).data == 2
        server_to_kill.kill_immediate()
        server_to_kill.start_again()
        other.session("a").append("note", 3)
        assert next(following).data == 3
        following.close()


@pytest.mark.promise("B2")
def test_appends_to_a_stopped_server_fail_within_the_timeout(
    server_to_kill: PostgresServer, processes: ChildProcesses, tmp_path: Path
) -> None:
    address, gate = server_to_kill.create_database("down"), Gate(tmp_path / "gate")
    child = processes.start(
        "store_clients:append_to_stalled_store", address=address, gate=gate.path, threads=10, timeout=1.0
    )
    child.wait_for_lines(1)
    server_to_kill.kill_immediate()
    gate.open()
    try:
        outcomes = child.wait_for_lines(2)[1]
    finally:
        server_to_kill.start_again()
    _check_waits(outcomes, "StoreUnavailable", timeout=1.0)


@pytest.mark.promise("J2", "J5", "J7")
@pytest.mark.parametrize("kind", ["small", "large", "batch", "new session"])
def test_an_append_whose_answer_is_lost_is_stored_once(postgres_url: str, kind: str) -> None:
    with CuttingProxy(postgres_url) as proxy, duramen.open(proxy.url) as store:
        session = store.session("a")
        session.append("note", "before")
        session.append_all([duramen.Draft("note", "in"), duramen.Draft("note", "between")])
        if kind == "small":
            proxy.cut_after(b"")
            returned = [session.append("note", "cut")]
        elif kind == "batch":
            proxy.cut_after(b"")
            returned = session.append_all([duramen.Draft("note", "cut"), duramen.Draft("note", "short")])
        elif kind == "large":
            proxy.cut_after(b"COMMIT")
            returned = [session.append("note", "cut " * 10_000)]
        else:
            session = store.session("b")
            proxy.cut_after(b"COMMIT")
            returned = [session.append("note", "cut")]
        assert proxy.cuts == 1
        assert list(session.events())[-len(returned) :] == returned
        assert session.append("note", "after").position == returned[-1].position + 1
        assert store.verify().ok


@pytest.mark.promise("J2")
def test_writes_whose_answer_is_lost_return_their_result(postgres_url: str) -> None:
    with CuttingProxy(postgres_url) as proxy, duramen.open(proxy.url) as store:
        session = store.session("a")
        session.append("note", "about alice", subject="alice")
        proxy.cut_after(b"COMMIT")
        lease = session.lease("me")
        assert lease is not None
        session.append("note", "mine", fence=lease.fence)
        proxy.cut_after(b"COMMIT")
        fork = session.fork("b")
        assert fork.head().position == 2
        proxy.cut_after(b"COMMIT")
        assert store.erase("alice").payloads == 1
        assert proxy.cuts == 3


def _check_waits(line: str, error: str, timeout: float) -> None:
    """Check that all appends failed, and that they did not wait for each other's timeouts."""
    outcomes = json.loads(line)
    assert {outcome for outcome, _ in outcomes} == {error}
    assert max(seconds for _, seconds in outcomes) < timeout * len(outcomes) / 2
