"""Landmarks and parts: set and removed with an append."""

from __future__ import annotations

from typing import Any

import apsw

from ...ports import Beside, Record
from ..common.bookmark_rows import landmark_columns, part_columns, refuse_second
from ..common.row_checksum import checksum
from .sql import Q

_COLUMNS = 10
_MOST_ROWS = 8
_ROW = Q.write_landmark[Q.write_landmark.rindex("(") :]
_WRITES = [Q.write_landmark + f", {_ROW}" * more for more in range(_MOST_ROWS)]
"""The statement for one landmark, for two, three, …: a checkpoint and the writes before it are one call to SQLite."""


class Marks:
    """What the writing connection knows of sessions as long as nobody else writes: the newest landmark under a name,
    and where a strand ends."""

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
    """Raise if somebody else was first. A session that is not there yet (-1) has no landmarks and no strands."""

    def newest(name: str) -> str | None:
        if sid < 0:
            return None
        if (sid, name) not in marks.newest:
            found: Any = connection.execute(Q.newest_landmark, (sid, name)).fetchone()
            marks.newest[sid, name] = found[0] if found else None
        return marks.newest[sid, name]

    def end(strand: int) -> int:
        if sid < 0:
            return 0
        if (sid, strand) not in marks.ends:
            found: Any = connection.execute(Q.strand_end, (sid, strand)).fetchone()
            marks.ends[sid, strand] = found[0] if found else 0
        return marks.ends[sid, strand]

    refuse_second(session, beside, newest, end)


def write_beside(connection: apsw.Connection, sid: int, beside: Beside, records: list[Record], marks: Marks) -> None:
    """Store and remove what lies beside an append."""
    for part in beside.parts:
        connection.execute(Q.add_part, part_columns((sid,), part))
        marks.ends[sid, part.strand] = part.start + max(part.count, 1)
    if beside.removed or beside.only_strands is not None:
        marks.clear()
    for name, id_ in beside.removed:
        connection.execute(Q.remove_landmark, (sid, name, id_))
    _set_landmarks(connection, sid, beside, records, marks)
    for landmark in beside.rewritten:
        columns = landmark_columns((sid,), landmark)
        connection.execute(Q.rewrite_landmark, (*columns[4:], *columns[:4]))
    if beside.only_strands is not None:
        for (strand,) in connection.execute(Q.all_strands, (sid,)).fetchall():
            if strand not in beside.only_strands:
                connection.execute(Q.cut_strand, (sid, strand))
    for position, digest in beside.stripped:
        connection.execute(Q.strip_payload, (digest, sid, position))


def _set_landmarks(connection: apsw.Connection, sid: int, beside: Beside, records: list[Record], marks: Marks) -> None:
    values: list[Any] = []
    for name, id_, index, _, expires, pinned, owner, form, _ in beside.landmarks:
        record = records[index]
        fields = (sid, name, id_, record.position, record.time, expires, int(pinned), owner, form)
        values += (*fields, checksum(*fields))
        if not name.startswith("+"):  # of those nobody asks for the newest
            marks.newest[sid, name] = id_
    most = _MOST_ROWS * _COLUMNS
    for start in range(0, len(values), most):
        rows = values[start : start + most]
        connection.execute(_WRITES[len(rows) // _COLUMNS - 1], rows)
    if len({one.name for one in beside.landmarks}) < len(beside.landmarks):  # SQLite knows which of those is the newest
        for one in beside.landmarks:
            marks.newest.pop((sid, one.name), None)
