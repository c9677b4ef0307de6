"""Bookmarks and chunks as the stores read and write them: checked, and refused where somebody else was first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import CheckpointConflict
from ...ports import Beside, Bookmark, Chunk, ChunkLogMoved, Record
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


def placed(beside: Beside, records: Sequence[Record]) -> list[Bookmark]:
    """The bookmarks of an append at the positions and times that its events got."""
    events = [records[one.position] for one in beside.bookmarks]
    return [
        one._replace(position=event.position, time=event.time)
        for one, event in zip(beside.bookmarks, events, strict=True)
    ]


def refuse_second(session: str, beside: Beside, newest: Callable[[str], str | None], end: Callable[[int], int]) -> None:
    """Raise if somebody else set a bookmark or went on with the chunk_log first. `newest` gives the id of the newest
    bookmark under a name, `end` where a chunk_log ends."""
    if beside.after is not None:
        name, expected = beside.after
        found = newest(name)
        if found != expected:
            raise CheckpointConflict(session, name, expected, found)
    if beside.chunk_log is not None and end(beside.chunk_log[0]) != beside.chunk_log[1]:
        raise ChunkLogMoved(
            f"chunk_log {beside.chunk_log[0]} of session {session!r} does not end at {beside.chunk_log[1]}"
        )
