"""Landmarks and parts: set and removed with an append."""

from __future__ import annotations

from typing import Any

import apsw

from ...ports import Beside, Record
from ..landmarkrows import landmark_columns, part_columns, placed, refuse_second
from .sql import Q


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
    landmarks = placed(beside, records)
    for landmark in landmarks:
        connection.execute(Q.write_landmark, landmark_columns((sid,), landmark))
        marks.newest[sid, landmark.name] = landmark.id
    if len({landmark.name for landmark in landmarks}) < len(landmarks):  # which of those is the newest is for SQLite
        for landmark in landmarks:
            marks.newest.pop((sid, landmark.name), None)
