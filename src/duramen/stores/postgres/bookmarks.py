"""Bookmarks and chunks: changed with an append."""

from __future__ import annotations

from typing import Any

from ...ports import BookmarkChanges
from ..common.bookmark_rows import bookmark_columns, chunk_columns, placed, refuse_conflict
from .projection import Target
from .sql import Q


class BookmarkProjection:
    """Writes `BookmarkChanges`. The appender has locked the session's row, so no other process changes its
    bookmarks."""

    def ask(self, target: Target, change: BookmarkChanges) -> tuple[Any, Any]:
        """Read the newest bookmark and the end of the chunk log, if the change depends on them."""
        execute, place = target.connection.execute, (target.workspace, target.session)
        newest = None if change.after is None else execute(Q.newest_bookmark, (*place, change.after[0]))
        end = None if change.chunk_log is None else execute(Q.chunk_log_end, (*place, change.chunk_log[0]))
        return newest, end

    def read(self, target: Target, change: BookmarkChanges, asked: tuple[Any, Any]) -> None:
        """Raise `CheckpointConflict` or `ChunkLogMoved` if another writer was first."""

        def newest(name: str) -> str | None:
            found = asked[0].fetchone()
            return found[0] if found else None

        def end(chunk_log: int) -> int:
            found = asked[1].fetchone()
            return found[0] if found else 0

        refuse_conflict(target.session, change, newest, end)

    def write(self, target: Target, change: BookmarkChanges, answer: None) -> None:
        """Write in the order that `BookmarkChanges` states."""
        execute, many = target.connection.execute, target.connection.cursor().executemany
        place = (target.workspace, target.session)
        if change.chunks:
            many(Q.add_chunk, [chunk_columns(place, chunk) for chunk in change.chunks])
        if change.removed:
            many(Q.remove_bookmark, [(*place, *which) for which in change.removed])
        for bookmark in placed(change, target.records):
            execute(Q.write_bookmark, bookmark_columns(place, bookmark))
        for bookmark in change.rewritten:
            columns = bookmark_columns(place, bookmark)
            execute(Q.rewrite_bookmark, (*columns[5:], *columns[:5]))
        if change.only_chunk_logs is not None:
            execute(Q.cut_chunk_logs, (*place, list(change.only_chunk_logs)))
        if change.stripped:
            many(Q.erase_payload, [(digest, *place, position) for position, digest in change.stripped])
