"""Landmarks and parts: set and removed with an append."""

from __future__ import annotations

from typing import Any

import apsw

from ...ports import Beside, Record
from ..landmarkrows import landmark_columns, part_columns, placed, refuse_second
from .sql import Q


def check_beside(connection: apsw.Connection, session: str, sid: int, beside: Beside) -> None:
    """Raise if somebody else was first."""

    def newest(name: str) -> str | None:
        found: Any = connection.execute(Q.newest_landmark, (sid, name)).fetchone()
        return found[0] if found else None

    def end(strand: int) -> int:
        found: Any = connection.execute(Q.strand_end, (sid, strand)).fetchone()
        return found[0] if found else 0

    refuse_second(session, beside, newest, end)


def write_beside(connection: apsw.Connection, sid: int, beside: Beside, records: list[Record]) -> None:
    """Store and remove what lies beside an append."""
    for part in beside.parts:
        connection.execute(Q.add_part, part_columns((sid,), part))
    for name, id_ in beside.removed:
        connection.execute(Q.remove_landmark, (sid, name, id_))
    for landmark in placed(beside, records):
        connection.execute(Q.write_landmark, landmark_columns((sid,), landmark))
    for landmark in beside.rewritten:
        columns = landmark_columns((sid,), landmark)
        connection.execute(Q.rewrite_landmark, (*columns[4:], *columns[:4]))
    if beside.only_strands is not None:
        for (strand,) in connection.execute(Q.all_strands, (sid,)).fetchall():
            if strand not in beside.only_strands:
                connection.execute(Q.cut_strand, (sid, strand))
    for position, digest in beside.stripped:
        connection.execute(Q.strip_payload, (digest, sid, position))
