"""The connection pool of a store: psycopg's pool, with repair after interrupts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from weakref import WeakKeyDictionary

from psycopg.errors import InvalidSqlStatementName
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from .connection import LOST, Connection, PostgresSettings, configure, connect
from .sql import Q

_PATIENCE = 1.0
"""After this many seconds without a connection, check whether the pool is broken."""
_LONGEST_PROBE = 5.0
_BETWEEN = 1000
"""A returned connection goes back to psycopg's pool at least every so many returns."""


class Pool:
    """At most `pool_size` connections, opened as they are needed.

    If a signal handler raises inside psycopg's pool, the pool can permanently lose a slot. So this class also tracks
    which connections are in use, by weak references. If psycopg's pool times out although not all connections are in
    use and the server answers, it is replaced.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._size = max(2, settings.pool_size)
        self._given: WeakKeyDictionary[Connection, ConnectionPool[Connection]] = WeakKeyDictionary()
        self._probing, self._replacing = threading.Lock(), threading.Lock()
        self._closed = False
        self._spare: list[Connection] = []
        """At most one returned, idle connection. The next caller gets it without the overhead of psycopg's pool."""
        self._asking: list[None] = []
        """One item per thread that waits for psycopg's pool. Returned connections go there while it is not empty."""
        self._returns = 0
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
            kwargs={"autocommit": True, "application_name": "duramen"},
            configure=lambda connection: configure(connection, settings),
            open=False,
            name="duramen",
        )
        pool.open(wait=False)
        return pool

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for the duration of the block. A broken connection is not used again."""
        connection = self.take()
        try:
            with connection:
                yield connection
        except InvalidSqlStatementName:
            connection.close()  # driver and server disagree about the prepared statements
            raise
        finally:
            self.give_back(connection)

    def take(self) -> Connection:
        """A connection. The caller must return it with `give_back`. Raises `PoolTimeout`."""
        try:
            return self._spare.pop()
        except IndexError:
            self._asking.append(None)
        try:
            # Announce the wait first, then check again. `give_back` does the opposite, so no connection is missed.
            return self._spare.pop() if self._spare else self._take_out()
        except IndexError:
            return self._take_out()
        finally:
            self._asking.pop()

    def _take_out(self) -> Connection:
        until = time.monotonic() + self._settings.timeout
        patience, doubted = _PATIENCE, None
        while True:
            pool = self._pool
            try:
                connection = pool.getconn(max(0.001, min(patience, until - time.monotonic())))
            except PoolTimeout:
                if time.monotonic() >= until:
                    raise
                if doubted is pool:
                    self._replace(pool)
                elif (took := self._probe()) is not None:
                    # The server answers, but may be slow. Give the pool one more chance.
                    patience, doubted = max(_PATIENCE, 3 * took), pool
            except PoolClosed:
                if self._closed or pool is self._pool:
                    raise
            else:
                self._given[connection] = pool
                return connection

    def restore(self, connection: Connection) -> None:
        """Undo what user code may have changed on a connection: its role, its workspace and its commit settings."""
        connection.execute(Q.reset_role)
        connection.execute(Q.reset_settings)
        configure(connection, self._settings)

    def give_back(self, connection: Connection) -> None:
        """Return a connection. From time to time it goes back to psycopg's pool, which closes old connections."""
        self._returns += 1
        idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        if idle and not self._spare and not self._closed and self._returns % _BETWEEN:
            self._spare.append(connection)
            if not self._asking and not self._closed:
                return
            try:
                connection = self._spare.pop()
            except IndexError:
                return  # another thread has taken it
        self._put_in(connection)

    def _put_in(self, connection: Connection) -> None:
        self._given.pop(connection).putconn(connection)

    def _probe(self) -> float | None:
        """How many seconds the server takes to accept a connection. None if it does not, if all connections are in use,
        or if another thread is probing."""
        if len(self._given) >= self._size or not self._probing.acquire(blocking=False):
            return None
        began = time.monotonic()
        try:
            connect(replace(self._settings, timeout=min(self._settings.timeout, _LONGEST_PROBE))).close()
        except LOST:
            return None
        finally:
            self._probing.release()
        return time.monotonic() - began

    def _replace(self, pool: ConnectionPool[Connection]) -> None:
        """Replace a pool that has lost its slots."""
        with self._replacing:
            if self._closed or pool is not self._pool or len(self._given) >= self._size:
                return
            self._pool = self._open()
        threading.Thread(target=pool.close, kwargs={"timeout": 5}, name="duramen-old-pool", daemon=True).start()

    def close(self) -> None:
        self._closed = True
        while self._spare:
            self._put_in(self._spare.pop())
        self._pool.close(timeout=5)
