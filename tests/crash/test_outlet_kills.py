"""Outlets hold every event once and in order, also after kills and lost connections."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from programs.append_audit import AppendAudit
from programs.child_processes import ChildProcesses, until
from programs.cutting_proxy import CuttingProxy
from programs.file_outlet import FileOutlet
from programs.seeds import seeded

import duramen


def _fill(address: str, count: int) -> list[tuple[str, int]]:
    """Append `count` events to three sessions. Returns session and position of each, in order."""
    stored = []
    with duramen.open(address) as store:
        while count:
            size = min(count, 50)
            session = store.session(f"s{count % 3}")
            events = session.append_all([duramen.Draft("note", {"left": count - index}) for index in range(size)])
            stored += [(event.session, event.position) for event in events]
            count -= size
    return stored


def _deliver_all(address: str, outlet: FileOutlet, count: int) -> None:
    """Deliver until the outlet holds `count` events. Transactions in other databases can delay PostgreSQL's feed."""
    with duramen.open(address) as store:
        until(lambda: store.deliver(outlet) or len(outlet.held()) >= count, "the feed")
        assert store.deliver(outlet) == 0


@pytest.mark.promise("J4")
@pytest.mark.parametrize("point", ["outlet.applied", "outlet.advanced"])
def test_a_kill_at_a_crash_point_of_a_delivery_leaves_each_event_once(
    address: str, processes: ChildProcesses, tmp_path: Path, point: str
) -> None:
    expected = _fill(address, 1200)
    outlet = FileOutlet(tmp_path / "outlet")
    for visit in (1, 2, 1, 1):
        child = processes.start(
            "file_outlet:deliver", address=address, path=str(tmp_path / "outlet"), crash=(point, visit)
        )
        child.wait()
        assert outlet.held() == expected[: len(outlet.held())]
        expected += _fill(address, 100)
    _deliver_all(address, outlet, len(expected))
    assert outlet.held() == expected


@pytest.mark.promise("J4")
def test_a_kill_while_an_outlet_applies_events_leaves_each_event_once(
    address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    chance = seeded("delivery")
    outlet = FileOutlet(tmp_path / "outlet")
    expected: list[tuple[str, int]] = []
    for _ in range(8):
        expected += _fill(address, chance.randrange(1, 120))
        options = {"address": address, "path": str(tmp_path / "outlet"), "die_after": chance.randrange(1, 60)}
        assert processes.start("file_outlet:deliver", **options).wait() in (0, -signal.SIGKILL)
        assert outlet.held() == expected[: len(outlet.held())]
    _deliver_all(address, outlet, len(expected))
    assert outlet.held() == expected


@pytest.mark.promise("J4", "J5")
def test_an_outlet_sees_each_session_in_order_during_concurrent_writes(
    address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    duramen.open(address).close()
    options = {"address": address, "first": 0, "count": 100, "sessions": ["a", "b"], "threads": 2}
    writers = [processes.start("writer:write", writer=f"w{index}", **options) for index in range(3)]
    count = 3 * 2 * (100 + 20 * 2)
    reader = processes.start("file_outlet:deliver_until", address=address, path=str(tmp_path / "outlet"), count=count)
    for writer in writers:
        writer.finish()
    reader.finish()
    held = FileOutlet(tmp_path / "outlet").held()
    assert len(held) == count
    for name in ("a", "b"):
        positions = [position for session, position in held if session == name]
        assert positions == list(range(1, len(positions) + 1)), "the feed has another order than the session"
    AppendAudit(address).check([writer.output for writer in writers], unsure=0)
    with duramen.open(address) as store:
        assert store.verify().ok


@pytest.mark.promise("J4")
def test_a_tombstone_is_delivered_after_the_events_written_before_it(postgres_url: str) -> None:
    outlet = RecordingOutlet()
    with duramen.open(postgres_url) as store, psycopg.connect(postgres_url) as blocker:
        for name in ("a", "b"):
            store.session(name).append("note", "about alice", subject="alice")
        blocker.execute("SELECT 1 FROM duramen.sessions WHERE session = 'a' FOR UPDATE")
        erasing = threading.Thread(target=store.erase, args=("alice",))
        erasing.start()
        until(lambda: _is_waiting_for_a_lock(postgres_url), "the erasure to wait for session a")
        store.session("b").append("note", "meanwhile")
        blocker.rollback()
        erasing.join()
        assert store.verify().ok
        until(lambda: store.deliver(outlet) or len(outlet.events) == 5, "the feed")
    assert [position for session, position in outlet.events if session == "b"] == [1, 2, 3]


def _is_waiting_for_a_lock(url: str) -> bool:
    with psycopg.connect(url) as connection:
        query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return connection.execute(query).fetchone() is not None


@pytest.mark.promise("J4")
def test_a_delivery_whose_commit_answer_is_lost_is_counted(postgres_url: str) -> None:
    outlet = RecordingOutlet()
    with CuttingProxy(postgres_url) as proxy, duramen.open(proxy.url) as store:
        for number in range(7):
            store.session("a").append("note", number)
        proxy.cut_after(b"COMMIT")
        counted = 0
        while not outlet.events:
            counted = store.deliver(outlet)
        assert proxy.cuts == 1
        assert counted == len(outlet.events)
    assert outlet.events == [("a", position) for position in range(1, 8)]


class RecordingOutlet:
    """Records the events that it gets."""

    name = "recording"

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def apply(self, events: Sequence[Any]) -> None:
        self.events += [(event.session, event.position) for event in events]
