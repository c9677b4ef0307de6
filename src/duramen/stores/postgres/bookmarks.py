"""Bookmarks and chunks: set and removed with an append. The session's row is locked: nobody else sets any meanwhile."""

from __future__ import annotations

from ...ports import BookmarkChanges, Record
from ..common.bookmark_rows import bookmark_columns, chunk_columns, placed, refuse_conflict
from .connection import Connection
from .leases import Place
from .sql import Q


def check_bookmarks(connection: Connection, place: Place, change: BookmarkChanges) -> None:
    """Raise if somebody else was first."""

    def newest(name: str) -> str | None:
        found = connection.execute(Q.newest_bookmark, (*place, name)).fetchone()
        return found[0] if found else None

    def end(chunk_log: int) -> int:
        found = connection.execute(Q.chunk_log_end, (*place, chunk_log)).fetchone()
        return found[0] if found else 0

    refuse_conflict(place[1], change, newest, end)


def write_bookmarks(connection: Connection, place: Place, change: BookmarkChanges, records: list[Record]) -> None:
    """Store and remove what lies beside an append."""
    many = connection.cursor().executemany
    if change.chunks:
        many(Q.add_chunk, [chunk_columns(place, chunk) for chunk in change.chunks])
    if change.removed:
        many(Q.remove_bookmark, [(*place, *which) for which in change.removed])
    for bookmark in placed(change, records):
        connection.execute(Q.write_bookmark, bookmark_columns(place, bookmark))
    for bookmark in change.rewritten:
        columns = bookmark_columns(place, bookmark)
        connection.execute(Q.rewrite_bookmark, (*columns[5:], *columns[:5]))
    if change.only_chunk_logs is not None:
        connection.execute(Q.cut_chunk_logs, (*place, list(change.only_chunk_logs)))
    if change.stripped:
        many(Q.erase_payload, [(digest, *place, position) for position, digest in change.stripped])
