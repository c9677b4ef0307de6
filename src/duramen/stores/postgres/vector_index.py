"""Indexes over codes, one per generation of a large workspace, with the extension `vector`.

One process at a time creates and drops them, outside of a transaction and without blocking writers. An index that is
incomplete, because the process was killed, is dropped and created again. Without the extension, or the right to create
it, there is no index: the search then compares all codes, or runs in memory.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import sql

from ...crash_points import reach
from .connection import Connection, PostgresSettings, connect, translated
from .searchable import DRAWN, DRAWS, S, completed

LARGE = 50_000
"""A generation with at least this many memories gets an index."""
_BYTES = 450
"""The approximate memory for one code while the index is built. With less memory the build takes many times as long."""
_MOST_MEMORY = 2**30
_REFUSED = (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile)


class VectorIndex:
    """Creates and drops the indexes."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._closed = False
        self.refused = ""
        """Why an index cannot be created. Empty if no reason is known."""

    def schema_of_index(self, connection: Connection, workspace: str, generation: int) -> str | None:
        """The quoted schema of the extension, if the generation has a complete index, else None."""
        there: dict[str, bool] = dict(
            connection.execute(S.list_near_indexes, (_name(workspace, generation),)).fetchall()
        )
        return self._schema(connection) if there.get(_name(workspace, generation)) else None

    def _schema(self, connection: Connection) -> str | None:
        row = connection.execute(S.find_extension).fetchone()
        return sql.Identifier(row[0]).as_string(connection) if row is not None and row[1] else None

    def maintain_indexes(self, workspace: str, generations: list[int], generation: int, bits: int) -> None:
        """Create the index of a generation if it needs one, and drop incomplete indexes and those of other generations.
        Does nothing if another process is doing it."""
        with self._lock:
            if self._closed or self.refused or self._settings.readonly:
                return
        with translated(self._settings.shown):
            connection = connect(self._settings)
            with self._lock:
                self._connections.add(connection)
            try:
                with connection:
                    if not self._closed and connection.execute(S.lock_tending, (workspace,)).fetchone() == (True,):
                        connection.execute("SET lock_timeout = 0")  # wait for writers without a limit
                        self._maintain(connection, workspace, generations, generation, bits)
            except _REFUSED as error:
                self.refused = str(error).strip().split("\n")[0]
            except psycopg.errors.QueryCanceled:
                if not self._closed:
                    raise  # after `close`, the next store that is opened continues
            finally:
                with self._lock:
                    self._connections.discard(connection)

    def _maintain(
        self, connection: Connection, workspace: str, generations: list[int], generation: int, bits: int
    ) -> None:
        wanted = {_name(workspace, one) for one in generations}
        there: dict[str, bool] = dict(connection.execute(S.list_near_indexes, (_prefix(workspace),)).fetchall())
        for name, complete in there.items():
            if name not in wanted or not complete:
                connection.execute(completed(S.drop_near_index, {"NAME": name}).encode())
        name = _name(workspace, generation)
        if generation not in generations or there.get(name):
            return
        values = {"workspace": workspace, "generation": generation}
        counted: Any = connection.execute(completed(S.count_drawn, {"AUDIENCES": "true"}).encode(), values).fetchone()
        size = counted[0] * DRAWS // DRAWN
        if size < LARGE:
            return
        schema = self._schema(connection) or self._installed(connection)
        if schema is None:
            self.refused = "the extension vector (0.8 or later) is not available"
            return
        self._make(connection, name, schema, (workspace, generation, bits, size))

    def _installed(self, connection: Connection) -> str | None:
        if connection.execute(S.offers_extension).fetchone() is None:
            return None
        connection.execute(S.make_extension)
        return self._schema(connection)

    @staticmethod
    def _make(connection: Connection, name: str, schema: str, what: tuple[str, int, int, int]) -> None:
        workspace, generation, bits, size = what
        room = min(_MOST_MEMORY, size * _BYTES) // 1024
        connection.execute("SELECT set_config('maintenance_work_mem', %s, false)", (f"{max(65_536, room)}kB",))
        fragments = {"NAME": name, "SCHEMA": schema, "DIMS": str(bits), "GENERATION": str(generation)}
        fragments["WORKSPACE"] = sql.Literal(workspace).as_string(connection)
        query = completed(S.make_near_index, fragments)
        reach("memory.index_begun")
        connection.execute(query.encode())
        reach("memory.index_made")

    def close(self) -> None:
        """Cancel the maintenance that is running."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        for connection in connections:
            with suppress(psycopg.Error):
                connection.cancel()


def _prefix(workspace: str) -> str:
    return f"near_{blake2b(workspace.encode(), digest_size=6).hexdigest()}_"


def _name(workspace: str, generation: int) -> str:
    return f"{_prefix(workspace)}{generation}"
