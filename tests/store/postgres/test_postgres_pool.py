"""The connection pool: its limit, its timeouts, and its repair."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from psycopg_pool import PoolTimeout

import duramen
import duramen.stores.postgres.connection as connection_module
import duramen.stores.postgres.pool as pool_module
from duramen import Draft
from duramen.stores.postgres.connection import Connection, PostgresSettings
from duramen.stores.postgres.pool import Pool


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_PATIENCE", 0.5)


@pytest.fixture
def pool(postgres_url: str) -> Iterator[Pool]:
    created = Pool(PostgresSettings(postgres_url, pool_size=3, timeout=6))
    yield created
    created.close()


@pytest.mark.promise("J5")
def test_slots_lost_by_an_interrupt_are_recovered(pool: Pool) -> None:
    with pool.connection() as held:
        for _ in range(2):
            pool._pool.getconn()  # never returned, as after an interrupt
        gc.collect()
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert held.execute("SELECT 2").fetchone() == (2,)
    with pool.connection() as one, pool.connection() as two, pool.connection() as three:
        assert [each.execute("SELECT 3").fetchone() for each in (one, two, three)] == [(3,)] * 3


def test_take_waits_for_a_pool_that_is_in_use(pool: Pool) -> None:
    inner = pool._pool
    taken = [pool.take() for _ in range(3)]
    threading.Timer(2.5 * pool_module._PATIENCE, lambda: pool.give_back(taken.pop())).start()
    with pool.connection() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    for each in taken:
        pool.give_back(each)
    assert pool._pool is inner


def test_take_times_out_if_all_connections_stay_in_use(postgres_url: str) -> None:
    pool = Pool(PostgresSettings(postgres_url, pool_size=2, timeout=1.2))
    taken = [pool.take() for _ in range(2)]
    began = time.monotonic()
    with pytest.raises(PoolTimeout):
        pool.take()
    assert time.monotonic() - began >= 1.2
    for each in taken:
        pool.give_back(each)
    pool.close()


def test_a_slow_connect_does_not_replace_the_pool(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    configure = pool_module.configure

    def configure_slowly(connection: Connection, settings: PostgresSettings) -> None:
        time.sleep(0.65)
        configure(connection, settings)

    for module in (pool_module, connection_module):
        monkeypatch.setattr(module, "configure", configure_slowly)
    pool = Pool(PostgresSettings(postgres_url, pool_size=3, timeout=20))
    inner = pool._pool
    with pool.connection() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert pool._pool is inner
    pool.close()


def test_take_times_out_if_the_server_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        pool = Pool(PostgresSettings(f"postgresql://nobody@127.0.0.1:{port}/none", pool_size=4, timeout=1))
        durations: list[float] = []

        def take() -> None:
            began = time.monotonic()
            with pytest.raises(PoolTimeout):
                pool.take()
            durations.append(time.monotonic() - began)

        threads = [threading.Thread(target=take) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(durations) == 6
        assert max(durations) < 2 * 1 + 4, "the threads probed the server one after another"
    pool.close()  # after the listener, or it would wait for connects that never end


def test_statements_that_the_server_deallocated_are_prepared_again(postgres_url: str) -> None:
    with duramen.open(postgres_url, pool_size=2) as dm:
        session = dm.session("s")
        session.append("note", 1)
        session.append("note", 2)
        pool = dm._core._journal.store.pool  # type: ignore[attr-defined]
        with pool.connection() as one, pool.connection() as two:
            for connection in (one, two):
                connection.pgconn.exec_(b"DEALLOCATE ALL")  # without the knowledge of the driver
        session.append("note", 3)
        session.append_all([Draft("note", 4), Draft("note", 5)])
        assert [event.data for event in session.events()] == [1, 2, 3, 4, 5]
