"""Outlets: whatever is killed when, they hold every event once and in order."""

from __future__ import annotations

import random
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

import duramen


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


def _fill(address: str, count: int) -> list[tuple[str, int]]:
    """Append so many events to three sessions; returns which, in order."""
    stored = []
    with duramen.open(address) as store:
        while count:
            size = min(count, 50)
            session = store.session(f"s{count % 3}")
            events = session.append_all([duramen.Draft("note", {"left": count - index}) for index in range(size)])
            stored += [(event.session, event.position) for event in events]
            count -= size
    return stored


def _bring_up_to_date(address: str, outlet: FileOutlet, count: int) -> None:
    """Deliver until the outlet holds so many: a transaction in another database may hold PostgreSQL's feed back."""
    with duramen.open(address) as store:
        until(lambda: store.deliver(outlet) or len(outlet.held()) >= count, "the feed to be free")
        assert store.deliver(outlet) == 0


@pytest.mark.promise("J4")
@pytest.mark.parametrize("point", ["outlet.applied", "outlet.advanced"])
def test_a_kill_at_any_point_of_a_delivery_leaves_each_event_once(
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
    _bring_up_to_date(address, outlet, len(expected))
    assert outlet.held() == expected


@pytest.mark.promise("J4")
def test_a_kill_in_the_middle_of_a_delivery_leaves_each_event_once(
    address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    chance = random.Random(6)
    outlet = FileOutlet(tmp_path / "outlet")
    expected: list[tuple[str, int]] = []
    for _ in range(8):
        expected += _fill(address, chance.randrange(1, 120))
        given = {"address": address, "path": str(tmp_path / "outlet"), "die_after": chance.randrange(1, 60)}
        assert processes.start("file_outlet:deliver", **given).wait() in (0, -signal.SIGKILL)
        assert outlet.held() == expected[: len(outlet.held())]
    _bring_up_to_date(address, outlet, len(expected))
    assert outlet.held() == expected


@pytest.mark.promise("J4", "J5")
def test_an_outlet_fed_while_others_write_sees_each_session_in_order(
    address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    duramen.open(address).close()
    given = {"address": address, "first": 0, "count": 100, "sessions": ["a", "b"], "threads": 2}
    writers = [processes.start("writer:write", writer=f"w{index}", **given) for index in range(3)]
    count = 3 * 2 * (100 + 20 * 2)
    reader = processes.start("file_outlet:deliver_until", address=address, path=str(tmp_path / "outlet"), count=count)
    for writer in writers:
        writer.finish()
    reader.finish()
    held = FileOutlet(tmp_path / "outlet").held()
    assert len(held) == count
    for name in ("a", "b"):
        positions = [position for session, position in held if session == name]
        assert positions == list(range(1, len(positions) + 1)), "the feed and the session disagree"
    AppendAudit(address).check([writer.output for writer in writers], unsure=0)
    with duramen.open(address) as store:
        assert store.verify().ok


@pytest.mark.promise("J4")
def test_a_tombstone_comes_after_what_was_written_before_it(postgres_url: str) -> None:
    outlet = Heard()
    with duramen.open(postgres_url) as store, psycopg.connect(postgres_url) as blocker:
        for name in ("a", "b"):
            store.session(name).append("note", "about alice", subject="alice")
        blocker.execute("SELECT 1 FROM duramen.sessions WHERE session = 'a' FOR UPDATE")
        erasing = threading.Thread(target=store.erase, args=("alice",))
        erasing.start()
        until(lambda: _someone_waits(postgres_url), "the erasure to wait for session a")
        store.session("b").append("note", "meanwhile")
        blocker.rollback()
        erasing.join()
        assert store.verify().ok
        until(lambda: store.deliver(outlet) or len(outlet.seen) == 5, "the feed to be free")
    assert [position for session, position in outlet.seen if session == "b"] == [1, 2, 3]


def _someone_waits(url: str) -> bool:
    with psycopg.connect(url) as connection:
        query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return connection.execute(query).fetchone() is not None


@pytest.mark.promise("J4")
def test_a_delivery_whose_answer_is_lost_is_counted(postgres_url: str) -> None:
    outlet = Heard()
    with CuttingProxy(postgres_url) as proxy, duramen.open(proxy.url) as store:
        for number in range(7):
            store.session("a").append("note", number)
        proxy.cut_after(b"COMMIT")
        counted = 0
        while not outlet.seen:
            counted = store.deliver(outlet)
        assert proxy.cuts == 1
        assert counted == len(outlet.seen)
    assert outlet.seen == [("a", position) for position in range(1, 8)]


class Heard:
    """An outlet that remembers."""

    name = "heard"

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def apply(self, events: Sequence[Any]) -> None:
        self.seen += [(event.session, event.position) for event in events]
