"""`duramen memory show` and `history`: one memory and its versions."""

from __future__ import annotations

import datetime as dt

from ...api._sync.duramen import Duramen
from ...errors import InvalidInput, UnknownMemory
from ...memory.catalog.records import Memory
from ...memory.knowledge.policies import Policies
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..durations import utc_second
from ..json_format import json_text, json_value
from ..table import Column, Table, cell
from ..terminal_text import visible
from .list_memories import SHORT_ID, memory_fields, memory_line

_MIN_PREFIX = 4


def find_memory(dm: Duramen, id: str) -> Memory:
    """The memory whose id is, or begins with, `id`. Raises `UnknownMemory`."""
    try:
        return dm.memory.get(id)
    except UnknownMemory:
        matching = (
            [one for one in dm.memory.list(everyone=True) if one.id.startswith(id)] if len(id) >= _MIN_PREFIX else []
        )
        if not matching:
            raise
    if len(matching) > 1:
        shown = ", ".join(one.id[: SHORT_ID + 4] for one in matching[:5])
        raise InvalidInput(f"{len(matching)} memories begin with {id!r}", hint=f"give more characters: {shown}")
    return matching[0]


def show_memory(dm: Duramen, id: str, as_json: bool) -> None:
    """Print one memory."""
    memory = find_memory(dm, id)
    if as_json:
        use_utf8_stdout()
        print_json(memory_fields(memory))
        return
    console = PlainConsole()
    console.print_line((visible(memory.id), "bold cyan"), f"  {visible(memory.kind)}")
    for name, value in _details(memory):
        if value:
            console.print_line(f"  {name:<12}", visible(str(value)))
    console.print_line("")
    for line in memory.content.split("\n"):
        console.print_line(f"  {visible(line)}")


def _details(memory: Memory) -> list[tuple[str, object]]:
    ended = None if memory.ended is None else f"{utc_second(memory.ended)} UTC"
    ending = f"{ended}, replaced by {memory.successor}" if ended and memory.successor else ended
    metadata = ", ".join(
        f"{name}: {json_text(json_value(value))}" for name, value in memory.metadata.items() if name != "imported"
    )
    return [
        ("title", memory.title),
        ("about", memory.subject),
        ("key", memory.key),
        ("said by", memory.speaker),
        ("recorded", f"{utc_second(memory.recorded)} UTC"),
        ("confirmed", _confirmed(memory)),
        ("recalled", memory.recalled and f"{memory.recalled} times"),
        ("valid until", memory.valid_to and f"{utc_second(memory.valid_to)} UTC"),
        ("expires", memory.expires and f"{utc_second(memory.expires)} UTC"),
        ("ended", ending),
        ("freshness", Policies().freshness(memory, dt.datetime.now(dt.UTC)) or None),
        ("source", memory.source),
        ("metadata", metadata),
    ]


def _confirmed(memory: Memory) -> str:
    times = "" if memory.times == 1 else f", stated {memory.times} times"
    return f"{utc_second(memory.confirmed)} UTC{times}"


_COLUMNS = (
    Column("recorded (UTC)", min_width=19),
    Column("ended (UTC)", min_width=19),
    Column("by", min_width=5, max_width=24),
    Column("source", min_width=10, max_width=28),
    Column("says", min_width=12, fill=True),
)


def show_history(dm: Duramen, id: str, as_json: bool) -> None:
    """Print every version of a memory, oldest first."""
    versions = dm.memory.history(find_memory(dm, id).id)
    if as_json:
        use_utf8_stdout()
        for one in versions:
            print_json({**memory_fields(one), "actor": _actor(dm, one)})
        return
    rows = [
        [
            cell(value)
            for value in (utc_second(one.recorded), _ended(one), _actor(dm, one), one.source, memory_line(one))
        ]
        for one in versions
    ]
    table = Table(PlainConsole(), _COLUMNS)
    table.begin(rows)
    table.add(rows)


def _ended(memory: Memory) -> str | None:
    return None if memory.ended is None else utc_second(memory.ended)


def _actor(dm: Duramen, memory: Memory) -> str | None:
    session, _, position = memory.source.rpartition("#")
    event = next(dm.session(session).events(start=int(position), limit=1), None)
    return None if event is None else event.actor
