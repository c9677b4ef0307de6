"""Landmarks and parts as the stores read and write them: checked, and refused where somebody else was first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import CheckpointConflict
from ..ports import Beside, Landmark, Record, StrandMoved
from .rowcheck import checksum, expect_intact


def landmark_columns(place: Sequence[Any], landmark: Landmark) -> tuple[Any, ...]:
    """The columns of a landmark's row: where it belongs, its fields, its checksum."""
    return (*place, *landmark, checksum(*place, *_comparable(landmark)))


def _comparable(landmark: Landmark) -> tuple[Any, ...]:
    return landmark._replace(pinned=int(landmark.pinned))  # type: ignore[arg-type]  # SQLite has no booleans


def checked_landmark(place: Sequence[Any], row: Sequence[Any]) -> Landmark:
    """A landmark from its columns and its checksum."""
    name, id_, position, time, expires, pinned, owner, form, check = row
    landmark = Landmark(name, id_, position, time, expires, bool(pinned), owner, form)
    expect_intact(f"landmark {name} {id_}", check, *place, *_comparable(landmark))
    return landmark


def placed(beside: Beside, records: Sequence[Record]) -> Iterable[Landmark]:
    """The landmarks of an append at the positions that its events got."""
    return [one._replace(position=records[one.position].position) for one in beside.landmarks]


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
