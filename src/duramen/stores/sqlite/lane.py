"""The short way of plain events: one statement, one sync, no queue.

Order of locks and retry rule are those of `writing`. Whatever is not as usual is left to the long way: another thread
is writing or waits to, another process has the lock, the head is not known here, the lease is not as it must be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import apsw

from ...crash_points import reach
from ...ports import Append, Appended, Head, Link, Plain
from ..common.group_commit import GroupCommit
from .connection import explain
from .sql import Q
from .writer import BROKEN, Writing

if TYPE_CHECKING:
    from .store import SqliteStore

_FREE = (Q.add_plain_event, Q.add_two_plain_events)
_OWNED = (Q.add_owned_event, Q.add_two_owned_events)
_head: Callable[[tuple[int, bytes]], Head] = partial(tuple.__new__, Head)
"""`Head._make`, in one call."""


class SqliteLane:
    """See `ports.Lane`."""

    def __init__(
        self,
        store: SqliteStore,
        group: GroupCommit[Append, Appended],
        writing: Writing,
        owned: tuple[str, str, int | None],
        link: Link,
    ) -> None:
        self._store = store
        self._group = group
        self._writing = writing
        self._owned = owned
        self._session = owned[:2]
        self._link = link
        self._inserts = _FREE if owned[2] is None else _OWNED
        self._execute = writing.connection.cursor().execute

    def append(self, now: int, events: Sequence[Plain]) -> Head | None:
        writing, group = self._writing, self._group
        if group.leading or group.in_lane or writing.held_by is not None or self._store.refusal is not None:
            return None
        if writing.room.is_due:
            return None  # the long way makes room in the log
        try:
            group.in_lane = True
            reach("append.begun")
            with writing.mutex:
                try:
                    writing.lock.take_now()
                    last = self._insert(now, events)
                    writing.room.committed()
                except BaseException:
                    writing.appender.forget()  # interrupted, perhaps after the commit: what is remembered may be old
                    raise
                finally:
                    writing.lock.leave()
        except BlockingIOError:
            return None  # another process writes, and there is a queue
        except BROKEN as error:
            raise explain(error, writing.path) from error
        finally:
            group.in_lane = False
        if last is not None:
            reach("append.committed")
            writing.notifier.notify()
        return last

    def _insert(self, now: int, events: Sequence[Plain]) -> Head | None:
        """Where the session stands then, if the statement finds the session's end and its lease as they must be."""
        appender, link = self._writing.appender, self._link
        sid = appender.sids.get(self._session)
        if sid is None:
            return None
        position, stored = appender.heads[sid]
        values: list[Any] = [*self._owned, now, sid]
        for kind, payload in events:
            position += 1
            stored = link(stored, position, now, kind, payload)
            values += (position, kind, payload, stored)
        try:
            self._execute(self._inserts[len(events) - 1], values)
        except apsw.ConstraintError:
            appender.forget()  # another process was faster, or the lease is lost: the long way says so
            return None
        head = appender.heads[sid] = _head((position, stored))
        return head
