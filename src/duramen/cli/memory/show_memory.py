"""`duramen memory show` and `history`: one memory, and how it came to be what it is."""

from __future__ import annotations

import datetime as dt

from ...api._sync.duramen import Duramen
from ...errors import InvalidInput, UnknownMemory
from ...memory.catalog.records import Memory
from ...memory.knowledge.policies import Policies
from ..durations import to_second
from ..json_format import json_text, plain
from ..screen import Column, Screen, Sheet, cell, expect_json, print_json
from ..terminal_text import visible
from .list_memories import SHORT, fields, says

_LEAST = 4


def found(dm: Duramen, id: str) -> Memory:
    """The memory of an id, or of the beginning of one. Raises `UnknownMemory`."""
    try:
        return dm.memory.get(id)
    except UnknownMemory:
        alike = [one for one in dm.memory.list(everyone=True) if one.id.startswith(id)] if len(id) >= _LEAST else []
        if not alike:
            raise
    if len(alike) > 1:
        shown = ", ".join(one.id[: SHORT + 4] for one in alike[:5])
        raise InvalidInput(f"{id!r} is the beginning of {len(alike)} memories", hint=f"say more of it: {shown}")
    return alike[0]


def show_memory(dm: Duramen, id: str, as_json: bool) -> None:
    """Print one memory."""
    memory = found(dm, id)
    if as_json:
        expect_json()
        print_json(fields(memory))
        return
    screen = Screen()
    screen.say((visible(memory.id), "bold cyan"), f"  {visible(memory.kind)}")
    for name, value in _about(memory):
        if value:
            screen.say(f"  {name:<12}", visible(str(value)))
    screen.say("")
    for line in memory.content.split("\n"):
        screen.say(f"  {visible(line)}")


def _about(memory: Memory) -> list[tuple[str, object]]:
    ended = None if memory.ended is None else f"{to_second(memory.ended)} UTC"
    over = f"{ended}, replaced by {memory.successor}" if ended and memory.successor else ended
    metadata = ", ".join(
        f"{name}: {json_text(plain(value))}" for name, value in memory.metadata.items() if name != "imported"
    )
    return [
        ("title", memory.title),
        ("about", memory.subject),
        ("key", memory.key),
        ("said by", memory.speaker),
        ("recorded", f"{to_second(memory.recorded)} UTC"),
        ("confirmed", _confirmed(memory)),
        ("recalled", memory.recalled and f"{memory.recalled} times"),
        ("holds until", memory.valid_to and f"{to_second(memory.valid_to)} UTC"),
        ("expires", memory.expires and f"{to_second(memory.expires)} UTC"),
        ("ended", over),
        ("freshness", Policies().freshness(memory, dt.datetime.now(dt.UTC)) or None),
        ("source", memory.source),
        ("metadata", metadata),
    ]


def _confirmed(memory: Memory) -> str:
    times = "" if memory.times == 1 else f", said {memory.times} times"
    return f"{to_second(memory.confirmed)} UTC{times}"


_VERSIONS = (
    Column("recorded (UTC)", least=19),
    Column("ended (UTC)", least=19),
    Column("by", least=5, most=24),
    Column("source", least=10, most=28),
    Column("says", least=12, rest=True),
)


def show_history(dm: Duramen, id: str, as_json: bool) -> None:
    """Print every version of a memory, the oldest first."""
    versions = dm.memory.history(found(dm, id).id)
    if as_json:
        expect_json()
        for one in versions:
            print_json({**fields(one), "actor": _actor(dm, one)})
        return
    rows = [
        [cell(value) for value in (to_second(one.recorded), _ended(one), _actor(dm, one), one.source, says(one))]
        for one in versions
    ]
    sheet = Sheet(Screen(), _VERSIONS)
    sheet.begin(rows)
    sheet.add(rows)


def _ended(memory: Memory) -> str | None:
    return None if memory.ended is None else to_second(memory.ended)


def _actor(dm: Duramen, memory: Memory) -> str | None:
    session, _, position = memory.source.rpartition("#")
    event = next(dm.session(session).events(start=int(position), limit=1), None)
    return None if event is None else event.actor
