"""Processes that save, load and drop checkpoints; and the states that they save, which follow from a number."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

import duramen
from duramen.checkpoints.checkpoints import Checkpoints, StoredCheckpoint
from duramen.checkpoints.manifest import BytesField, ListField
from duramen.errors import CheckpointConflict
from duramen.runtime import drive

from .child_processes import pass_gate

Say = Callable[[str], None]
encode = msgspec.msgpack.encode


def as_they_are(values: Sequence[Any], known: list[Any]) -> list[Any]:
    """Snapshots of texts, which nothing can change."""
    return list(values)


def texts(values: Sequence[str]) -> ListField:
    """A list of texts as a part of a state."""
    return ListField(values, str.encode, as_they_are)


def fields_of(number: int, writer: str = "") -> dict[str, Any]:
    """State `number` of a writer: a list that grows, is trimmed and edited, a large value that changes at times."""
    talk = [f"{writer} says {turn} " + "word " * 30 for turn in range(max(0, number - 15), number + 1)]
    if number % 4 == 3:
        talk[len(talk) // 2] = f"{writer} edited at {number} " + "again " * 20
    config = BytesField(f"{writer} config {number // 5} ".encode() * 30)
    return {"talk": texts(talk), "deep": {"count": BytesField(b"%d" % number), "config": config, "empty": texts([])}}


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """What loading such a state gives."""
    return {name: _plain(part) for name, part in fields.items()}


def _plain(part: Any) -> Any:
    if isinstance(part, BytesField):
        return part.body
    return [part.encode(value) for value in part.values] if isinstance(part, ListField) else plain(part)


def checkpoints_of(dm: duramen.Duramen) -> Checkpoints:
    """Checkpoints on a handle, with a memory of their own as another process would have."""
    return Checkpoints(dm._core._journal)


def listed(checkpoints: Checkpoints, session: str, name: str, **options: Any) -> list[StoredCheckpoint]:
    """All that `list` gives."""

    async def all_of() -> list[StoredCheckpoint]:
        return [saved async for saved in checkpoints.list(session, name, **options)]

    return drive(all_of())


def save_states(say: Say, address: str, first: int, count: int, session: str = "s", gate: str | None = None) -> None:
    """Save one state after the other; say the number of each that is saved."""
    with duramen.open(address) as dm:
        checkpoints = checkpoints_of(dm)
        if gate is not None:
            say("ready")
            pass_gate(gate)
        for number in range(first, first + count):
            drive(checkpoints.save(session, "main", fields_of(number), {"n": number}, id=f"c{number}"))
            say(str(number))


def save_beside_others(say: Say, address: str, writer: str, count: int, gate: str) -> None:
    """Save states of one's own among those of others, under a common name; say the number of each."""
    with duramen.open(address) as dm:
        checkpoints = checkpoints_of(dm)
        pass_gate(gate)
        for number in range(count):
            drive(checkpoints.save("s", "main", fields_of(number, writer), {"n": number}, id=f"{writer}-{number}"))
            say(str(number))


def drop_states(say: Say, address: str, ids: list[str]) -> None:
    """Drop checkpoints; say how many went."""
    with duramen.open(address) as dm:
        say(str(drive(checkpoints_of(dm).drop("s", "main", ids, reason="test"))))


def drop_for_ever(say: Say, address: str, gate: str) -> None:
    """Drop some of what is there, at random, until killed; say what is to be dropped and when it was."""
    chance = random.Random(5)
    with duramen.open(address) as dm:
        checkpoints = checkpoints_of(dm)
        pass_gate(gate)
        while True:
            ids = [saved.id for saved in listed(checkpoints, "s", "main") if chance.random() < 0.3]
            say(json.dumps(ids))
            drive(checkpoints.drop("s", "main", ids, reason="test"))


def count_up(say: Say, address: str, writer: str, count: int, gate: str) -> None:
    """Add items to a list that others add to as well, each on the newest state."""
    with duramen.open(address) as dm:
        checkpoints = checkpoints_of(dm)
        pass_gate(gate)
        for number in range(count):
            while True:
                newest = drive(checkpoints.load("s", "list"))
                known = newest.fields["all"] if newest is not None and newest.fields is not None else []
                fields = {"all": texts([*(one.decode() for one in known), f"{writer}-{number}"])}
                try:
                    drive(checkpoints.save("s", "list", fields, {}, after=newest.id if newest is not None else None))
                    break
                except CheckpointConflict:
                    continue  # another was first: on top of that
            say(str(number))
