"""A transaction for a step's own rows and its outcome."""

from __future__ import annotations

from typing import Any

import psycopg

from ...errors import InvalidInput, StoreUnavailable
from ...ports import Batch, Record, Stored
from .append import Appender, is_stored
from .connection import LOST, Connection, explain, translated
from .pool import Pool
from .sql import Q


class PostgresTransaction:
    """Implements `Transaction` on a connection of the pool."""

    def __init__(self, pool: Pool, appender: Appender, shown: str) -> None:
        self._pool = pool
        self._appender = appender
        self._shown = shown
        self._stored: tuple[tuple[str, str], list[Record]] | None = None
        with translated(shown):
            self._connection: Connection | None = pool.take()
        try:
            with translated(shown):
                self._connection.execute(Q.begin)
        except BaseException:
            self._give_back()
            raise

    @property
    def connection(self) -> Any:
        return self._connection

    @property
    def lost(self) -> bool:
        return self._connection is not None and self._connection.closed

    def append(self, request: Batch) -> Stored:
        assert self._connection is not None
        self._expect_open()
        with translated(self._shown), self._connection.pipeline():
            done = self._appender.settle(self._connection, request, [], relaxed=False)
        self._stored = ((request.workspace, request.session), done.records)
        return done

    def commit(self) -> None:
        assert self._connection is not None
        try:
            self._expect_open()
            # Restore the settings that the step may have changed. Do it before the commit, because a failure after the
            # commit would look like a failed commit.
            with self._connection.pipeline():
                self._pool.restore(self._connection)
                self._connection.execute(Q.commit, prepare=False)
        except LOST as error:
            self._give_back()
            if not self._is_stored():
                raise explain(error, self._shown) from error
        except psycopg.Error as error:
            self.roll_back()
            raise explain(error, self._shown) from error
        else:
            self._give_back()

    def _expect_open(self) -> None:
        assert self._connection is not None
        status = self._connection.info.transaction_status
        if status == psycopg.pq.TransactionStatus.IDLE:
            raise InvalidInput("the step ended the transaction itself", hint="leave COMMIT and ROLLBACK to duramen")
        if status == psycopg.pq.TransactionStatus.INERROR:
            raise InvalidInput(
                "a statement of the step failed, but the step continued",
                hint="raise the error from the step, or execute the statement inside a savepoint",
            )

    def _is_stored(self) -> bool:
        """Whether a commit whose answer was lost has stored its events. A commit that is still running holds the lock
        on the session's row, so this waits for it."""
        if self._stored is None:
            raise StoreUnavailable(
                f"the connection to PostgreSQL at {self._shown} was lost during a commit, so the outcome is unknown",
                hint="check whether your rows were stored, then try again",
            )
        place, records = self._stored
        with translated(self._shown), self._pool.connection() as connection, connection.transaction():
            connection.execute(Q.lock_session, place)
            return is_stored(connection, place, records)

    def roll_back(self) -> None:
        if self._connection is None:
            return
        try:
            # Do not use a pipeline: the driver must see the rollback to drop its prepared statements.
            self._connection.execute(Q.roll_back)
            self._pool.restore(self._connection)
        except psycopg.Error:
            self._connection.close()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._pool.give_back(connection)
