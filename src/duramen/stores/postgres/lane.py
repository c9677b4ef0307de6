"""The short way of an owner's plain events: the prepared statement, its values as the wire takes them, no group.

Locks are those of `append_few`, whose statement this is without what plain events do not have. A lost connection leaves
the outcome open; it is settled as for every other append.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus, Format
from psycopg_pool import PoolTimeout

from ...crash_points import reach
from ...ports import Append, Appended, Head, Link, Plain, Record
from ..common.group_commit import GroupCommit
from .append import Appender
from .connection import LOST, Connection
from .pool import Pool
from .sql import Q

if TYPE_CHECKING:
    from .store import PostgresStore

_EVENT = 4
_FIRST = 9
"""How many values an event has, and the number of the first of them."""
_ROW = "($%d::bigint, $%d::text, $%d::bytea, $%d::bytea)"
_ROWS = [_ROW % tuple(range(start, start + _EVENT)) for start in (_FIRST, _FIRST + _EVENT)]
_STATEMENTS = [Q.append_owned.replace("ROWS", ", ".join(_ROWS[:size])).encode() for size in (1, 2)]
_NAMES = [b"duramen_owned_1", b"duramen_owned_2"]
_HEADER = [Format.TEXT] * 5 + [Format.BINARY, Format.TEXT, Format.BINARY]
_FORMATS = [_HEADER + [Format.TEXT, Format.TEXT, Format.BINARY, Format.BINARY] * size for size in (1, 2)]
_prepared: WeakSet[Connection] = WeakSet()


class PostgresLane:
    """See `ports.Lane`."""

    def __init__(
        self,
        store: PostgresStore,
        group: GroupCommit[Append, Appended],
        appender: Appender,
        owned: tuple[str, str, int],
        link: Link,
    ) -> None:
        self._store = store
        self._pool: Pool = store.pool
        self._group = group
        self._appender = appender
        self._place, self._fence = owned[:2], owned[2]
        self._owned = [str(chunk).encode() for chunk in owned]
        self._link = link

    def append(self, now: int, events: Sequence[Plain]) -> Head | None:
        group, heads = self._group, self._appender.heads
        head = heads.get(self._place)
        if head is None or group.leading or group.in_lane or self._store.refusal is not None:
            return None
        try:
            group.in_lane = True
            reach("append.begun")
            last = self._store_after(head, now, events)
            reach("append.committed")
        except LOST:
            return self._settle(head, now, events)
        except (psycopg.Error, PoolTimeout):
            last = None
        finally:
            group.in_lane = False
        if last is None:
            heads.pop(self._place, None)
            return None
        heads[self._place] = last
        return last

    def _store_after(self, head: Head, now: int, events: Sequence[Plain]) -> Head | None:
        """Where the session stands now, if it stood and was leased as it must be."""
        position, stored = head
        rows: list[bytes] = []
        for kind, payload in events:
            position += 1
            stored = self._link(stored, position, now, kind, payload)
            rows += (b"%d" % position, kind.encode(), payload, stored)
        values = [*self._owned, b"%d" % now, b"%d" % head.position, head.hash, b"%d" % position, stored, *rows]
        connection = self._pool.take()
        try:
            moved = _execute(connection, len(events) - 1, values)
        finally:
            self._pool.give_back(connection)
        return Head(position, stored) if moved else None

    def _settle(self, head: Head, now: int, events: Sequence[Plain]) -> Head:
        """The connection was lost, and whether it happened is open: find out, or do it."""
        place = self._placing(now, events)
        workspace, session = self._place
        request = Append(workspace, session, len(events), place, fence=self._fence, now=now)
        done = self._store.append_slowly(self._appender, request, place(head))
        return Head(done.records[-1].position, done.records[-1].hash)

    def _placing(self, now: int, events: Sequence[Plain]) -> Callable[[Head], list[Record]]:
        def place(head: Head) -> list[Record]:
            position, stored = head
            records = []
            for kind, payload in events:
                position += 1
                stored = self._link(stored, position, now, kind, payload)
                records.append(Record(position, kind, now, None, None, None, None, payload, None, stored))
            return records

        return place


def _execute(connection: Connection, which: int, values: list[bytes]) -> bool:
    """Whether the statement moved the session."""
    pgconn = connection.pgconn
    if connection not in _prepared:
        for name, statement in zip(_NAMES, _STATEMENTS, strict=True):
            pgconn.send_prepare(name, statement)
            with suppress(psycopg.errors.DuplicatePreparedStatement):
                _result(connection)
        _prepared.add(connection)
    try:
        pgconn.send_query_prepared(_NAMES[which], values, _FORMATS[which])
        return bool(_result(connection).ntuples)
    except psycopg.Error:
        _prepared.discard(connection)  # somebody may have removed what was prepared
        raise


def _result(connection: Connection) -> Any:
    found = connection.wait(generators.execute(connection.pgconn))[-1]
    if found.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise psycopg.errors.error_from_result(found)
    return found
