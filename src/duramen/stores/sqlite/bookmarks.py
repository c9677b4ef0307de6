"""Bookmarks and chunks: set and removed with an append."""

from __future__ import annotations

from typing import Any

import apsw

from ...ports import Beside, Record
from ..common.bookmark_rows import bookmark_columns, chunk_columns, refuse_second
from ..common.row_checksum import checksum
from .sql import Q

_COLUMNS = 10
_MOST_ROWS = 8
_ROW = Q.write_bookmark[Q.write_bookmark.rindex("(") :]
_WRITES = [Q.write_bookmark + f", {_ROW}" * more for more in range(_MOST_ROWS)]
"""The statement for one bookmark, for two, three, …: a checkpoint and the writes before it are one call to SQLite."""


class Marks:
    """What the writing connection knows of sessions as long as nobody else writes: the newest bookmark under a name,
    and where a chunk_log ends."""

    def __init__(self) -> None:
        self.newest: dict[tuple[int, str], str | None] = {}
        self.ends: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.newest) + len(self.ends)

    def clear(self) -> None:
        """Somebody else wrote, or may have."""
        self.newest.clear()
        self.ends.clear()


def check_beside(connection: apsw.Connection, session: str, sid: int, beside: Beside, marks: Marks) -> None:
    """Raise if somebody else was first. A session that is not there yet (-1) has no bookmarks and no chunk_logs."""

    def newest(name: str) -> str | None:
        if sid < 0:
            return None
        if (sid, name) not in marks.newest:
            found: Any = connection.execute(Q.newest_bookmark, (sid, name)).fetchone()
            marks.newest[sid, name] = found[0] if found else None
        return marks.newest[sid, name]

    def end(chunk_log: int) -> int:
        if sid < 0:
            return 0
        if (sid, chunk_log) not in marks.ends:
            found: Any = connection.execute(Q.chunk_log_end, (sid, chunk_log)).fetchone()
            marks.ends[sid, chunk_log] = found[0] if found else 0
        return marks.ends[sid, chunk_log]

    refuse_second(session, beside, newest, end)


def write_beside(connection: apsw.Connection, sid: int, beside: Beside, records: list[Record], marks: Marks) -> None:
    """Store and remove what lies beside an append."""
    for chunk in beside.chunks:
        connection.execute(Q.add_chunk, chunk_columns((sid,), chunk))
        marks.ends[sid, chunk.chunk_log] = chunk.start + max(chunk.count, 1)
    if beside.removed or beside.only_chunk_logs is not None:
        marks.clear()
    for name, id_ in beside.removed:
        connection.execute(Q.remove_bookmark, (sid, name, id_))
    _set_bookmarks(connection, sid, beside, records, marks)
    for bookmark in beside.rewritten:
        columns = bookmark_columns((sid,), bookmark)
        connection.execute(Q.rewrite_bookmark, (*columns[4:], *columns[:4]))
    if beside.only_chunk_logs is not None:
        for (chunk_log,) in connection.execute(Q.all_chunk_logs, (sid,)).fetchall():
            if chunk_log not in beside.only_chunk_logs:
                connection.execute(Q.cut_chunk_log, (sid, chunk_log))
    for position, digest in beside.stripped:
        connection.execute(Q.strip_payload, (digest, sid, position))


def _set_bookmarks(connection: apsw.Connection, sid: int, beside: Beside, records: list[Record], marks: Marks) -> None:
    values: list[Any] = []
    for name, id_, index, _, expires, pinned, owner, manifest, _ in beside.bookmarks:
        record = records[index]
        fields = (sid, name, id_, record.position, record.time, expires, int(pinned), owner, manifest)
        values += (*fields, checksum(*fields))
        if not name.startswith("+"):  # of those nobody asks for the newest
            marks.newest[sid, name] = id_
    most = _MOST_ROWS * _COLUMNS
    for start in range(0, len(values), most):
        rows = values[start : start + most]
        connection.execute(_WRITES[len(rows) // _COLUMNS - 1], rows)
    if len({one.name for one in beside.bookmarks}) < len(beside.bookmarks):  # SQLite knows which of those is the newest
        for one in beside.bookmarks:
            marks.newest.pop((sid, one.name), None)
