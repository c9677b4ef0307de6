"""Landmarks and parts: set and removed with an append. The session's row is locked: nobody else sets any meanwhile."""

from __future__ import annotations

from ...ports import Beside, Record
from ..common.bookmark_rows import landmark_columns, part_columns, placed, refuse_second
from .connection import Connection
from .leases import Place
from .sql import Q


def check_beside(connection: Connection, place: Place, beside: Beside) -> None:
    """Raise if somebody else was first."""

    def newest(name: str) -> str | None:
        found = connection.execute(Q.newest_landmark, (*place, name)).fetchone()
        return found[0] if found else None

    def end(strand: int) -> int:
        found = connection.execute(Q.strand_end, (*place, strand)).fetchone()
        return found[0] if found else 0

    refuse_second(place[1], beside, newest, end)


def write_beside(connection: Connection, place: Place, beside: Beside, records: list[Record]) -> None:
    """Store and remove what lies beside an append."""
    many = connection.cursor().executemany
    if beside.parts:
        many(Q.add_part, [part_columns(place, part) for part in beside.parts])
    if beside.removed:
        many(Q.remove_landmark, [(*place, *which) for which in beside.removed])
    for landmark in placed(beside, records):
        connection.execute(Q.write_landmark, landmark_columns(place, landmark))
    for landmark in beside.rewritten:
        columns = landmark_columns(place, landmark)
        connection.execute(Q.rewrite_landmark, (*columns[5:], *columns[:5]))
    if beside.only_strands is not None:
        connection.execute(Q.cut_strands, (*place, list(beside.only_strands)))
    if beside.stripped:
        many(Q.erase_payload, [(digest, *place, position) for position, digest in beside.stripped])
