"""Landmarks and parts as the stores read and write them: checked, and refused where somebody else was first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import CheckpointConflict
from ...ports import Beside, Landmark, Part, Record, StrandMoved
from .row_checksum import checksum


def landmark_columns(place: Sequence[Any], landmark: Landmark) -> tuple[Any, ...]:
    """The columns of a landmark's row: where it belongs, its fields, its checksum."""
    return (*place, *landmark[:-1], checksum(*place, *_comparable(landmark)))


def _comparable(landmark: Landmark) -> tuple[Any, ...]:
    name, id_, position, time, expires, pinned, owner, form, _ = landmark
    return name, id_, position, time, expires, int(pinned), owner, form  # SQLite has no booleans


def read_landmark(place: Sequence[Any], row: Sequence[Any]) -> Landmark:
    """A landmark from its columns and its checksum. Damage is said, not raised: others must still be found."""
    name, id_, position, time, expires, pinned, owner, form, check = row
    landmark = Landmark(name, id_, position, time, expires, bool(pinned), owner, form)
    try:
        intact = checksum(*place, *_comparable(landmark)) == check
    except (TypeError, ValueError, OverflowError):
        intact = False  # a value of another type than was stored
    return landmark if intact else landmark._replace(intact=False)


def part_columns(place: Sequence[Any], part: Part) -> tuple[Any, ...]:
    """The columns of a part's row."""
    return (*place, *part, checksum(*place, *part))


def checked_part(place: Sequence[Any], row: Sequence[Any]) -> Part:
    """A part from its columns and its checksum; one that does not match has an empty body."""
    fields = row[:-1]
    part = Part._make(fields)
    return part if checksum(*place, *fields) == row[-1] else part._replace(body=b"")


def placed(beside: Beside, records: Sequence[Record]) -> list[Landmark]:
    """The landmarks of an append at the positions and times that its events got."""
    events = [records[one.position] for one in beside.landmarks]
    return [
        one._replace(position=event.position, time=event.time)
        for one, event in zip(beside.landmarks, events, strict=True)
    ]


def refuse_second(session: str, beside: Beside, newest: Callable[[str], str | None], end: Callable[[int], int]) -> None:
    """Raise if somebody else set a landmark or went on with the strand first. `newest` gives the id of the newest
    landmark under a name, `end` where a strand ends."""
    if beside.after is not None:
        name, expected = beside.after
        found = newest(name)
        if found != expected:
            raise CheckpointConflict(session, name, expected, found)
    if beside.strand is not None and end(beside.strand[0]) != beside.strand[1]:
        raise StrandMoved(f"strand {beside.strand[0]} of session {session!r} does not end at {beside.strand[1]}")
