"""Bookmarks and chunks: set and removed with an append. The session's row is locked: nobody else sets any meanwhile."""

from __future__ import annotations

from ...ports import Beside, Record
from ..common.bookmark_rows import bookmark_columns, chunk_columns, placed, refuse_second
from .connection import Connection
from .leases import Place
from .sql import Q


def check_beside(connection: Connection, place: Place, beside: Beside) -> None:
    """Raise if somebody else was first."""

    def newest(name: str) -> str | None:
        found = connection.execute(Q.newest_bookmark, (*place, name)).fetchone()
        return found[0] if found else None

    def end(chunk_log: int) -> int:
        found = connection.execute(Q.chunk_log_end, (*place, chunk_log)).fetchone()
        return found[0] if found else 0

    refuse_second(place[1], beside, newest, end)


def write_beside(connection: Connection, place: Place, beside: Beside, records: list[Record]) -> None:
    """Store and remove what lies beside an append."""
    many = connection.cursor().executemany
    if beside.chunks:
        many(Q.add_chunk, [chunk_columns(place, chunk) for chunk in beside.chunks])
    if beside.removed:
        many(Q.remove_bookmark, [(*place, *which) for which in beside.removed])
    for bookmark in placed(beside, records):
        connection.execute(Q.write_bookmark, bookmark_columns(place, bookmark))
    for bookmark in beside.rewritten:
        columns = bookmark_columns(place, bookmark)
        connection.execute(Q.rewrite_bookmark, (*columns[5:], *columns[:5]))
    if beside.only_chunk_logs is not None:
        connection.execute(Q.cut_chunk_logs, (*place, list(beside.only_chunk_logs)))
    if beside.stripped:
        many(Q.erase_payload, [(digest, *place, position) for position, digest in beside.stripped])
