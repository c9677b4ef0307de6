"""Unsynced commits on a real server that crashes while the client process continues."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import duramen
from duramen import Draft
from duramen.ports import RunChange, RunRow
from duramen.runtime import drive
from duramen.stores.postgres.unsynced import UnsyncedBatches
from duramen.testing.postgres import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that writes its log only for synced commits. A crash loses the unsynced ones."""
    settings = {"fsync": "off", "full_page_writes": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "100MB"}
    with PostgresServer.start(settings={**settings, "autovacuum": "off"}) as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.create_database(f"t{uuid.uuid4().hex}")


def append(dm: duramen.Duramen, session: str, *values: Any, synced: bool = False, **more: Any) -> int:
    """Append a batch and return its last position."""
    journal = dm._core._journal
    owner = drive(journal.owner(None))
    prepared = [journal.prepare(Draft("note", value), owner) for value in values]
    stored = drive(journal.append_prepared(session, prepared, owner, synced=synced, **more))
    return stored.records[-1].position


def crash(server: PostgresServer) -> None:
    server.kill_immediate()
    server.start_again()


def values(dm: duramen.Duramen, session: str) -> list[Any]:
    return [event.data for event in dm.session(session).events()]


def sync(dm: duramen.Duramen) -> None:
    drive(dm._core._journal.store.sync())


@pytest.mark.promise("X29")
def test_a_crash_loses_unsynced_batches_that_are_not_retained(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UnsyncedBatches, "keep", lambda *_: None)
    with duramen.open(url) as dm:
        append(dm, "s", 1, synced=True)
        append(dm, "s", 2)
        assert values(dm, "s") == [1, 2]
        crash(server)
        append(dm, "s", 3, synced=True)
        assert values(dm, "s") == [1, 3], "the server kept an unsynced commit, so these tests show nothing"


@pytest.mark.promise("X29")
def test_lost_batches_are_stored_again_before_the_next_batch(server: PostgresServer, url: str) -> None:
    with duramen.open(url) as dm:
        for turn in range(8):
            session = f"s{turn}"
            append(dm, session, 1, synced=True)
            append(dm, session, 2, 3)
            append(dm, session, 4)
            crash(server)
            assert append(dm, session, 5, synced=True) == 5
            assert values(dm, session) == [1, 2, 3, 4, 5]
        assert dm.verify().ok


@pytest.mark.promise("X29")
def test_restored_batches_follow_what_another_process_appended(server: PostgresServer, url: str) -> None:
    with duramen.open(url) as dm:
        append(dm, "s", 1, synced=True)
        append(dm, "s", 2, expected=1)
        append(dm, "s", 3)
        crash(server)
        with duramen.open(url) as other:
            other.session("s").append("note", "signal")
        append(dm, "s", 4)
        append(dm, "s", 5, synced=True)
        assert values(dm, "s") == [1, "signal", 2, 3, 4, 5]
        crash(server)
        append(dm, "s", 6)
        assert values(dm, "s") == [1, "signal", 2, 3, 4, 5, 6], "a durable batch was stored again"
        assert dm.verify().ok


def test_a_lost_session_is_restored(server: PostgresServer, url: str) -> None:
    with duramen.open(url) as dm:
        append(dm, "s", 1)
        crash(server)
        assert values(dm, "s") == []
        append(dm, "s", 2)
        assert values(dm, "s") == [1, 2]


def test_the_changes_of_a_lost_batch_are_restored(server: PostgresServer, url: str) -> None:
    row = RunRow("r", "s", "t", None, "open", None, 5, 1, None, 1, None, None, None, None, 0, 0, 0)
    with duramen.open(url) as dm:
        append(dm, "s", 1, synced=True)
        append(dm, "s", 2, changes=[RunChange("r", lambda _: row)])
        crash(server)
        store = dm._core._journal.store
        assert drive(store.run("default", "r")) is None
        append(dm, "s", 3, synced=True)
        assert drive(store.run("default", "r")) == row
        assert values(dm, "s") == [1, 2, 3]


def test_a_lost_batch_is_not_restored_under_the_lease_of_another_owner(
    server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with duramen.open(url) as dm:
        lease = dm.session("s").lease("one", seconds=0.5)
        assert lease is not None
        append(dm, "s", 1, synced=True, fence=lease.fence)
        append(dm, "s", 2, fence=lease.fence)
        crash(server)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM duramen.leases")
        with duramen.open(url) as other:
            assert other.session("s").lease("two") is not None
            assert other.session("s").lease("two") is not None  # its fence differs from that of the first owner
        with caplog.at_level(logging.WARNING):
            append(dm, "s", 3, synced=True)
        assert values(dm, "s") == [1, 3]
        assert "cannot be stored again" in caplog.text


def test_sync_restores_lost_batches_and_makes_all_durable(server: PostgresServer, url: str) -> None:
    with duramen.open(url) as dm:
        for session in ("a", "b"):
            append(dm, session, 1, synced=True)
        append(dm, "a", 2)
        sync(dm)
        crash(server)
        assert values(dm, "a") == [1, 2]
        append(dm, "a", 3)
        append(dm, "b", 2)
        crash(server)
        assert values(dm, "b") == [1]
        sync(dm)
        assert (values(dm, "a"), values(dm, "b")) == ([1, 2, 3], [1, 2])
        sync(dm)
        crash(server)
        assert (values(dm, "a"), values(dm, "b")) == ([1, 2, 3], [1, 2])
        assert len(dm._core._journal.store._unsynced) == 0


def test_a_commit_group_is_synced_if_one_of_its_batches_asks_for_it(server: PostgresServer, url: str) -> None:
    with duramen.open(url) as dm:
        for number in range(16):
            append(dm, f"s{number}", 0, synced=True)
        start = threading.Barrier(16)

        def work(number: int) -> None:
            start.wait()
            for turn in range(1, 6):
                append(dm, f"s{number}", turn, synced=turn == 5)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        crash(server)
        assert [values(dm, f"s{number}") for number in range(16)] == [[0, 1, 2, 3, 4, 5]] * 16


def test_followers_get_only_durable_events(server: PostgresServer, url: str) -> None:
    with duramen.open(url) as dm, duramen.open(url) as other:
        append(dm, "s", 1, synced=True)
        append(dm, "s", 2)
        followed = [event.data for event in other.session("s").follow(timeout=0.2)]
        assert followed == [1, 2]
        crash(server)
        assert values(other, "s") == followed


@pytest.mark.promise("J3")
@pytest.mark.parametrize("how", ["follow", "follow some", "deliver"])
def test_events_lost_during_a_read_are_not_delivered(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    class Recorder:
        name = "recorder"

        def apply(self, events: list[duramen.Event]) -> None:
            seen.extend(event.data for event in events)

    seen: list[Any] = []
    with duramen.open(url) as writer, duramen.open(url) as reader:
        append(writer, "s", 1, synced=True)
        append(writer, "s", 2)
        store = reader._core._journal.store
        sync, crashed = store.sync, []

        async def crash_first() -> None:
            if not crashed:
                crashed.append(True)
                crash(server)
                reader.session("s").append("other", 3)
            await sync()

        monkeypatch.setattr(store, "sync", crash_first)
        if how == "deliver":
            reader.deliver(Recorder())
        else:
            types = ["other"] if how == "follow some" else None
            seen += [event.data for event in reader.session("s").follow(timeout=0, types=types)]
        assert seen == ([3] if how == "follow some" else [1, 3])


def test_a_lost_blob_that_another_process_stored_first_is_restored(server: PostgresServer, url: str) -> None:
    large = "x" * 300_000
    with duramen.open(url) as dm:
        append(dm, "s", 1, synced=True)
        with duramen.open(url) as other:
            append(other, "t", large)
            append(dm, "s", large)
            crash(server)
        append(dm, "s", 3, synced=True)
        assert values(dm, "s") == [1, large, 3]
        assert dm.verify().ok


def test_settings_that_a_step_changes_on_its_connection_are_reset(server: PostgresServer, url: str) -> None:
    @duramen.step
    def relax(fail: bool) -> None:
        duramen.transaction().execute("SET synchronous_commit = off")
        if fail:
            raise ValueError

    @duramen.task
    def work(fail: bool) -> None:
        relax(fail)

    with duramen.open(url, pool_size=2) as dm:
        dm.run(work, False)
        with pytest.raises(ValueError):
            dm.run(work, True)
        append(dm, "s", 1, synced=True)
        append(dm, "s", 2, synced=True)
        crash(server)
        assert values(dm, "s") == [1, 2]


def test_batches_that_cannot_be_restored_do_not_block_the_next_sync(server: PostgresServer, url: str) -> None:
    with duramen.open(url) as dm:
        lease = dm.session("s").lease("one")
        assert lease is not None
        append(dm, "s", 1, synced=True, fence=lease.fence)
        append(dm, "s", 2, fence=lease.fence)
        crash(server)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM duramen.leases")
        sync(dm)
        append(dm, "t", 1)
        sync(dm)
        crash(server)
        assert (values(dm, "s"), values(dm, "t")) == ([1], [1])


def test_a_batch_added_while_others_are_restored_is_retained() -> None:
    batches = UnsyncedBatches()
    batch: Any = object()
    batches.keep(("w", "s"), batch, [])
    known = batches.of(("w", "s"))
    batches.keep(("w", "s"), batch, [])
    newer = batches.of(("w", "s"))[-1]
    batches.replace(("w", "s"), known, [])
    assert batches.of(("w", "s")) == (newer,)
    batches.release(("w", "s"), [newer])
    assert len(batches) == 0


def test_batches_restored_by_another_append_are_durable(server: PostgresServer, url: str) -> None:
    with duramen.open(url) as dm:
        store: Any = dm._core._journal.store
        append(dm, "s", 1)
        _, appender = store._group_of("default", "s")
        with store.pool.connection() as connection:
            appender.restore(connection, ("default", "s"))
        crash(server)
        assert values(dm, "s") == [1]
