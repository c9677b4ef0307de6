"""Rows of bookmarks and chunks: their columns, checksums and conflict checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import CheckpointConflict
from ...ports import Bookmark, BookmarkChanges, Chunk, ChunkLogMoved, Record
from .row_checksum import checksum


def bookmark_columns(place: Sequence[Any], bookmark: Bookmark) -> tuple[Any, ...]:
    """The columns of a bookmark's row. `place` is the key of its session."""
    return (*place, *bookmark[:-1], checksum(*place, *_comparable(bookmark)))


def _comparable(bookmark: Bookmark) -> tuple[Any, ...]:
    name, id_, position, time, expires, pinned, owner, manifest, _ = bookmark
    return name, id_, position, time, expires, int(pinned), owner, manifest  # SQLite has no booleans


def read_bookmark(place: Sequence[Any], row: Sequence[Any]) -> Bookmark:
    """A bookmark from its columns. A damaged one is not raised but returned with `intact` False, so that it does not
    hide others."""
    name, id_, position, time, expires, pinned, owner, manifest, check = row
    bookmark = Bookmark(name, id_, position, time, expires, bool(pinned), owner, manifest)
    try:
        intact = checksum(*place, *_comparable(bookmark)) == check
    except (TypeError, ValueError, OverflowError):
        intact = False  # damage changed the type of a value
    return bookmark if intact else bookmark._replace(intact=False)


def chunk_columns(place: Sequence[Any], chunk: Chunk) -> tuple[Any, ...]:
    """The columns of a chunk's row."""
    return (*place, *chunk, checksum(*place, *chunk))


def checked_chunk(place: Sequence[Any], row: Sequence[Any]) -> Chunk:
    """A chunk from its columns. A damaged one gets an empty body."""
    fields = row[:-1]
    chunk = Chunk._make(fields)
    return chunk if checksum(*place, *fields) == row[-1] else chunk._replace(body=b"")


def placed(change: BookmarkChanges, records: Sequence[Record]) -> list[Bookmark]:
    """The bookmarks of a batch with the positions and times of their events."""
    events = [records[one.position] for one in change.bookmarks]
    return [
        one._replace(position=event.position, time=event.time)
        for one, event in zip(change.bookmarks, events, strict=True)
    ]


def refuse_conflict(
    session: str, change: BookmarkChanges, newest: Callable[[str], str | None], end: Callable[[int], int]
) -> None:
    """Raise `CheckpointConflict` or `ChunkLogMoved` if another writer set a bookmark or extended the chunk log first.
    `newest` returns the id of the newest bookmark with a name, `end` the end of a chunk log."""
    if change.after is not None:
        name, expected = change.after
        found = newest(name)
        if found != expected:
            raise CheckpointConflict(session, name, expected, found)
    if change.chunk_log is not None and end(change.chunk_log[0]) != change.chunk_log[1]:
        raise ChunkLogMoved(
            f"chunk log {change.chunk_log[0]} of session {session!r} does not end at {change.chunk_log[1]}"
        )
