"""The pool of connections: bounded, and whole again after it was robbed."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest
from psycopg_pool import PoolTimeout

from holdfast.stores.postgres.connection import PostgresSettings
from holdfast.stores.postgres.pool import Pool


@pytest.fixture
def pool(postgres_url: str) -> Iterator[Pool]:
    made = Pool(PostgresSettings(postgres_url, pool_size=3, timeout=6))
    yield made
    made.close()


@pytest.mark.promise("J5")
def test_places_that_an_interrupt_took_come_back(pool: Pool) -> None:
    with pool.connection() as held:
        for _ in range(2):
            pool._pool.getconn()  # nobody gives it back
        gc.collect()
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert held.execute("SELECT 2").fetchone() == (2,)
    with pool.connection() as one, pool.connection() as two, pool.connection() as three:
        assert [each.execute("SELECT 3").fetchone() for each in (one, two, three)] == [(3,)] * 3


def test_a_pool_that_is_in_use_is_waited_for(pool: Pool) -> None:
    inner = pool._pool
    taken = [pool.take() for _ in range(3)]
    threading.Timer(2.5, lambda: pool.give_back(taken.pop())).start()
    with pool.connection() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    for each in taken:
        pool.give_back(each)
    assert pool._pool is inner


def test_a_pool_in_use_for_too_long_is_said(postgres_url: str) -> None:
    pool = Pool(PostgresSettings(postgres_url, pool_size=2, timeout=1.2))
    taken = [pool.take() for _ in range(2)]
    began = time.monotonic()
    with pytest.raises(PoolTimeout):
        pool.take()
    assert time.monotonic() - began >= 1.2
    for each in taken:
        pool.give_back(each)
    pool.close()
