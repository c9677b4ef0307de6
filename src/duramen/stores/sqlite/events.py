"""The part of the store for events: append, read, follow, feed. Also the blobs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import apsw

from ...ports import Batch, Blob, FeedItem, Head, Record, Stored
from ...runtime import Notifier, is_driven, waiting_thread
from ..common.group_commit import GroupCommit
from ..common.row_checksum import checksum, expect_intact
from .access import Access
from .rows import column, find_session, head_of, read_records
from .sql import Q


class Mark(NamedTuple):
    """The state that a follower saw: a notifier with its count of notices, and the data version of the file."""

    notifier: Notifier
    notices: int
    version: int


class Events:
    """Implements the methods of `Store` for events and blobs."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.group: GroupCommit[Batch, Stored] = GroupCommit(access.writer.flush)

    async def append(self, batch: Batch) -> Stored:
        self._access.check_writable()
        if not self._access.runtime.looping:
            return self.group.commit(batch)
        if is_driven():
            return self.group.commit_blocking(batch)
        return await self.group.commit_looping(batch)

    async def head(self, workspace: str, session: str) -> Head | None:
        def work(connection: apsw.Connection) -> Head | None:
            row = find_session(connection, workspace, session)
            return None if row is None else head_of(connection, row)

        return await self._access.read(work)

    async def read(self, workspace: str, session: str, start: int, stop: int) -> list[Record]:
        def work(connection: apsw.Connection) -> list[Record]:
            row = find_session(connection, workspace, session)
            return [] if row is None else read_records(connection, row[0], start, stop)

        return await self._access.read(work)

    async def find(self, workspace: str, session: str, key: str) -> int | None:
        def work(connection: apsw.Connection) -> int | None:
            row = find_session(connection, workspace, session)
            found: Any = row and connection.execute(Q.find_key, (row[0], key)).fetchone()
            return found[0] if found else None

        return await self._access.read(work)

    async def pick(self, workspace: str, session: str, positions: Sequence[int]) -> list[FeedItem]:
        def work(connection: apsw.Connection) -> list[FeedItem]:
            row = find_session(connection, workspace, session)
            if row is None:
                return []
            found: Any = connection.execute(Q.pick_events, (row[0], json.dumps(sorted(set(positions)))))
            return [FeedItem(0, session, previous, Record(*rest)) for previous, *rest in found]

        return await self._access.read(work)

    async def talk(self, workspace: str, session: str, first: int, last: int, limit: int) -> list[int]:
        def work(connection: apsw.Connection) -> list[int]:
            row = find_session(connection, workspace, session)
            return [] if row is None else column(connection, Q.read_talk, (row[0], first, last, limit))

        return await self._access.read(work)

    async def feed(self, workspace: str, after: int, limit: int) -> list[FeedItem]:
        def work(connection: apsw.Connection) -> list[FeedItem]:
            rows: Any = connection.execute(Q.read_feed, (after, workspace, limit))
            return [FeedItem(seq, session, prev, Record(*rest)) for seq, session, prev, *rest in rows]

        return await self._access.read(work)

    async def cursor(self, workspace: str, outlet: str) -> int:
        return await self._access.read(lambda connection: _cursor_of(connection, workspace, outlet))

    async def advance(self, workspace: str, outlet: str, before: int, after: int) -> bool:
        def work(connection: apsw.Connection) -> bool:
            found = _cursor_of(connection, workspace, outlet)
            if found != before:
                return found == after
            check = checksum(workspace, outlet, after)
            connection.execute(Q.write_cursor, (workspace, outlet, after, check))
            return True

        return await self._access.write(work)

    async def blob(self, workspace: str, address: bytes) -> bytes | None:
        def work(connection: apsw.Connection) -> bytes | None:
            row: Any = connection.execute(Q.read_blob, (workspace, address)).fetchone()
            return row[0] if row else None

        return await self._access.read(work)

    async def blobs(self, workspace: str, after: bytes, limit: int) -> list[Blob]:
        def work(connection: apsw.Connection) -> list[Blob]:
            rows: Any = connection.execute(Q.list_blobs, (workspace, after, limit))
            return [Blob(*row) for row in rows]

        return await self._access.read(work)

    async def missing_blobs(self, workspace: str, addresses: Sequence[bytes]) -> set[bytes]:
        def work(connection: apsw.Connection) -> set[bytes]:
            return {
                address
                for address in addresses
                if connection.execute(Q.has_blob, (workspace, address)).fetchone() is None
            }

        return await self._access.read(work)

    async def mark(self, *, runs: bool = False) -> Mark:
        self._access.check()
        notifier = self._access.runs_notifier if runs else self._access.notifier
        return Mark(notifier, notifier.notices, self._access.data_version())

    async def changed(self, mark: Mark, timeout: float) -> float:
        # Writers in this process notify. Other processes change the data version. Reading it takes microseconds, so it
        # is polled often at first, then every 20 ms.
        started, pause = time.monotonic(), 0.001
        while (waited := time.monotonic() - started) < timeout:
            if await self._access.runtime.wait(mark.notifier, mark.notices, min(pause, timeout - waited)):
                break
            self._access.check()
            if self._access.data_version() != mark.version:
                break
            pause = min(pause * 1.5, 0.02)
        return time.monotonic() - started

    async def sync(self) -> None:
        newest: list[int | None] = await self._access.read(lambda connection: column(connection, Q.newest_event))
        if newest in ([], [None]):
            return
        if self._access.settings.readonly or self._access.writer.held_by == waiting_thread():
            await self._access.runtime.run(self._sync_log)
        else:
            await self._access.write(lambda connection: connection.execute(Q.mark_synced))

    def _sync_log(self) -> None:
        """Sync the write-ahead log directly. Used if the handle is read-only, or has a transaction open."""
        with suppress(OSError):  # there is no log: all data is in the database file
            log = os.open(self._access.settings.file + "-wal", os.O_RDONLY)
            try:
                os.fsync(log)
            finally:
                os.close(log)


def _cursor_of(connection: apsw.Connection, workspace: str, outlet: str) -> int:
    """The cursor of an outlet."""
    row: Any = connection.execute(Q.read_cursor, (workspace, outlet)).fetchone()
    if row is None:
        return 0
    expect_intact(f"the cursor of {outlet!r}", row[1], workspace, outlet, row[0])
    return int(row[0])
