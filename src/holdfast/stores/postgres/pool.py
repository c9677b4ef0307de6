"""The connections of one store: psycopg's pool, made anew when an interrupt has robbed it of its places."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from .connection import LOST, Connection, PostgresSettings, configure, connect

_PATIENCE = 1.0
"""Seconds without a connection after which it is asked whether the pool is to blame."""


class Pool:
    """At most `pool_size` connections, opened as they are needed.

    An exception that a signal handler raises inside psycopg's pool can take a place from it for ever. Who holds a
    connection is therefore known here too, weakly: a pool that has nothing to give although a place is free and the
    server answers is replaced.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._size = max(2, settings.pool_size)
        self._given: WeakKeyDictionary[Connection, ConnectionPool[Connection]] = WeakKeyDictionary()
        self._renewing = threading.Lock()
        self._closed = False
        self._pool = self._open()

    def _open(self) -> ConnectionPool[Connection]:
        settings = self._settings
        pool: ConnectionPool[Connection] = ConnectionPool(
            settings.url,
            min_size=1,
            max_size=self._size,
            timeout=settings.timeout,
            reconnect_timeout=settings.timeout,
            max_idle=60.0,
            kwargs={"autocommit": True, "application_name": "holdfast"},
            configure=lambda connection: configure(connection, settings),
            open=False,
            name="holdfast",
        )
        pool.open(wait=False)
        return pool

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for a while; one that is no longer in order is not given again."""
        connection = self.take()
        try:
            with connection:
                yield connection
        finally:
            self.give_back(connection)

    def take(self) -> Connection:
        """A connection that must be given back."""
        until = time.monotonic() + self._settings.timeout
        while True:
            pool = self._pool
            try:
                connection = pool.getconn(max(0.001, min(_PATIENCE, until - time.monotonic())))
            except PoolTimeout:
                if time.monotonic() >= until:
                    raise
                self._renew(pool)
            except PoolClosed:
                if self._closed or pool is self._pool:
                    raise
            else:
                self._given[connection] = pool
                return connection

    def give_back(self, connection: Connection) -> None:
        self._given.pop(connection).putconn(connection)

    def _renew(self, pool: ConnectionPool[Connection]) -> None:
        """Another pool in place of one that has lost its places. Not for a server that is away, or a pool in use."""
        with self._renewing:
            if self._closed or pool is not self._pool or len(self._given) >= self._size:
                return
            try:
                connect(self._settings).close()
            except LOST:
                return
            self._pool = self._open()
        threading.Thread(target=pool.close, kwargs={"timeout": 5}, name="holdfast-old-pool", daemon=True).start()

    def close(self) -> None:
        self._closed = True
        self._pool.close(timeout=5)
