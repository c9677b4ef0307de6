"""Child processes that save, load and drop checkpoints, and the numbered states that they save."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

import duramen
from duramen.checkpoints.checkpoints import Checkpoints, StoredCheckpoint
from duramen.checkpoints.manifest import BytesField, ListField
from duramen.errors import CheckpointConflict
from duramen.runtime import drive

from .child_processes import pass_gate
from .seeds import seeded

PrintLine = Callable[[str], None]
encode = msgspec.msgpack.encode


def snapshot_texts(values: Sequence[Any], known: list[Any]) -> list[Any]:
    """Snapshots of texts. Texts are immutable, so they are their own snapshots."""
    return list(values)


def texts(values: Sequence[str]) -> ListField:
    """A list field of texts."""
    return ListField(values, str.encode, snapshot_texts)


def fields_of(number: int, writer: str = "") -> dict[str, Any]:
    """State `number`: a list that grows, is trimmed and edited, and a large value that sometimes changes."""
    messages = [f"{writer} says {turn} " + "word " * 30 for turn in range(max(0, number - 15), number + 1)]
    if number % 4 == 3:
        messages[len(messages) // 2] = f"{writer} edited at {number} " + "again " * 20
    config = BytesField(f"{writer} config {number // 5} ".encode() * 30)
    deep = {"count": BytesField(b"%d" % number), "config": config, "empty": texts([])}
    return {"talk": texts(messages), "deep": deep}


def as_loaded(fields: dict[str, Any]) -> dict[str, Any]:
    """The same fields as `load` returns them."""
    return {name: _as_loaded(part) for name, part in fields.items()}


def _as_loaded(part: Any) -> Any:
    if isinstance(part, BytesField):
        return part.body
    return [part.encode(value) for value in part.values] if isinstance(part, ListField) else as_loaded(part)


def checkpoints_of(dm: duramen.Duramen) -> Checkpoints:
    """The checkpoints of a store, with a new cache, as another process would have it."""
    return Checkpoints(dm._core._journal)


def list_checkpoints(checkpoints: Checkpoints, session: str, name: str, **options: Any) -> list[StoredCheckpoint]:
    """All checkpoints that `list` returns."""

    async def collect() -> list[StoredCheckpoint]:
        return [saved async for saved in checkpoints.list(session, name, **options)]

    return drive(collect())


def save_states(
    print_line: PrintLine, address: str, first: int, count: int, session: str = "s", gate: str | None = None
) -> None:
    """Save states one after the other. Prints the number of each saved state."""
    with duramen.open(address) as dm:
        checkpoints = checkpoints_of(dm)
        if gate is not None:
            print_line("ready")
            pass_gate(gate)
        for number in range(first, first + count):
            drive(checkpoints.save(session, "main", fields_of(number), {"n": number}, id=f"c{number}"))
            print_line(str(number))


def save_concurrently(print_line: PrintLine, address: str, writer: str, count: int, gate: str) -> None:
    """Save the states of one writer under a name that other writers use too. Prints the number of each saved state."""
    with duramen.open(address) as dm:
        checkpoints = checkpoints_of(dm)
        pass_gate(gate)
        for number in range(count):
            drive(checkpoints.save("s", "main", fields_of(number, writer), {"n": number}, id=f"{writer}-{number}"))
            print_line(str(number))


def drop_states(print_line: PrintLine, address: str, ids: list[str]) -> None:
    """Drop checkpoints. Prints how many were dropped."""
    with duramen.open(address) as dm:
        print_line(str(drive(checkpoints_of(dm).drop("s", "main", ids, reason="test"))))


def drop_until_killed(print_line: PrintLine, address: str, gate: str) -> None:
    """Drop random checkpoints until killed. Prints the ids before each drop."""
    chance = seeded("drop until killed")
    with duramen.open(address) as dm:
        checkpoints = checkpoints_of(dm)
        pass_gate(gate)
        while True:
            ids = [saved.id for saved in list_checkpoints(checkpoints, "s", "main") if chance.random() < 0.3]
            print_line(json.dumps(ids))
            drive(checkpoints.drop("s", "main", ids, reason="test"))


def append_to_shared_list(print_line: PrintLine, address: str, writer: str, count: int, gate: str) -> None:
    """Append items to a list that other processes append to as well. Each save is based on the newest state."""
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
                    continue  # another process saved first: try again on its state
            print_line(str(number))
