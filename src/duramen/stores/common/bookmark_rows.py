"""Bookmarks and chunks as the stores read and write them: checked, and refused where another writer was first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import CheckpointConflict
from ...ports import Bookmark, BookmarkChanges, Chunk, ChunkLogMoved, Record
from .row_checksum import checksum


def bookmark_columns(place: Sequence[Any], bookmark: Bookmark) -> tuple[Any, ...]:
    """The columns of a bookmark's row: where it belongs, its fields, its checksum."""
    return (*place, *bookmark[:-1], checksum(*place, *_comparable(bookmark)))


def _comparable(bookmark: Bookmark) -> tuple[Any, ...]:
    name, id_, position, time, expires, pinned, owner, manifest, _ = bookmark
    return name, id_, position, time, expires, int(pinned), owner, manifest  # SQLite has no booleans


def read_bookmark(place: Sequence[Any], row: Sequence[Any]) -> Bookmark:
    """A bookmark from its columns and its checksum. Damage is said, not raised: others must still be found."""
    name, id_, position, time, expires, pinned, owner, manifest, check = row
    bookmark = Bookmark(name, id_, position, time, expires, bool(pinned), owner, manifest)
    try:
        intact = checksum(*place, *_comparable(bookmark)) == check
    except (TypeError, ValueError, OverflowError):
        intact = False  # a value of another type than was stored
    return bookmark if intact else bookmark._replace(intact=False)


def chunk_columns(place: Sequence[Any], chunk: Chunk) -> tuple[Any, ...]:
    """The columns of a chunk's row."""
    return (*place, *chunk, checksum(*place, *chunk))


def checked_chunk(place: Sequence[Any], row: Sequence[Any]) -> Chunk:
    """A chunk from its columns and its checksum; one that does not match has an empty body."""
    fields = row[:-1]
    chunk = Chunk._make(fields)
    return chunk if checksum(*place, *fields) == row[-1] else chunk._replace(body=b"")


def placed(change: BookmarkChanges, records: Sequence[Record]) -> list[Bookmark]:
    """The bookmarks of a batch at the positions and times that its events got."""
    events = [records[one.position] for one in change.bookmarks]
    return [
        one._replace(position=event.position, time=event.time)
        for one, event in zip(change.bookmarks, events, strict=True)
    ]


def refuse_conflict(
    session: str, change: BookmarkChanges, newest: Callable[[str], str | None], end: Callable[[int], int]
) -> None:
    """Raise if another writer set a bookmark or extended the chunk log first. `newest` gives the id of the newest
    bookmark under a name, `end` where a chunk log ends."""
    if change.after is not None:
        name, expected = change.after
        found = newest(name)
        if found != expected:
            raise CheckpointConflict(session, name, expected, found)
    if change.chunk_log is not None and end(change.chunk_log[0]) != change.chunk_log[1]:
        raise ChunkLogMoved(
            f"chunk log {change.chunk_log[0]} of session {session!r} does not end at {change.chunk_log[1]}"
        )
