"""Child processes that checkpoint states, record progress and continue sessions. Also: damage to stored rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import apsw
import psycopg

import duramen

from .child_processes import pass_gate

PrintLine = Callable[[str], None]


def state_of(number: int) -> dict[str, Any]:
    """State `number` of an agent: a list that grows and is trimmed, and values that change."""
    talk = [{"turn": turn, "text": f"turn {turn} " * 40} for turn in range(max(0, number - 10), number + 1)]
    return {"n": number, "talk": talk, "deep": {"n": (number,), "config": f"{number // 3} " * 50}}


def checkpoint_states(print_line: PrintLine, address: str, first: int, count: int) -> None:
    """Checkpoint states one after the other. Prints the number of each stored state."""
    with duramen.open(address) as dm:
        session = dm.session("s")
        for number in range(first, first + count):
            session.checkpoint(state_of(number), next=[number + 1], config={"n": number}, step=number)
            print_line(str(number))


def complete_steps(
    print_line: PrintLine, address: str, path: str | None, steps: list[str], gate: str | None = None
) -> None:
    """Begin a goal, unless it has begun, and complete steps. With a path, keep a progress file. Prints each step."""
    with duramen.open(address) as dm:
        progress = dm.session("s").progress
        if path is not None:
            progress = progress.keep_in(path)
        if gate is not None:
            print_line("ready")
            pass_gate(gate)
        progress.begin("Ship it", next_action="the next one")
        for step in steps:
            progress.complete(step)
            print_line(step)


def continue_session(print_line: PrintLine, address: str, new: str, old: str, gate: str | None = None) -> None:
    """Add a message to a session that continues another. Prints the memory part of the context."""
    with duramen.open(address) as dm:
        session = dm.session(new, continues=old)
        if gate is not None:
            print_line("ready")
            pass_gate(gate)
        session.say("user", "Please continue.")
        print_line(repr(session.context().memory))


def damage_bookmark(dm: duramen.Duramen, address: str, name: str) -> None:
    """Flip a bit of the newest bookmark with a name."""
    if address == "memory:":
        bookmarks = _workspace(dm).bookmarks
        key, newest = max(
            ((key, one) for key, one in bookmarks.items() if key[1] == name), key=lambda one: one[1].position
        )
        bookmarks[key] = newest._replace(manifest=_flipped(newest.manifest))
        return
    _flip_stored_bit(address, "bookmarks", "manifest", f"name = '{name}'", "position")


def damage_last_chunk(dm: duramen.Duramen, address: str) -> None:
    """Flip a bit of the last stored chunk."""
    if address == "memory:":
        chunks = _workspace(dm).chunks
        key, last = max(chunks.items(), key=lambda one: one[1].start)
        chunks[key] = last._replace(body=_flipped(last.body))
        return
    _flip_stored_bit(address, "chunks", "body", "1 = 1", "start")


def damage_event(dm: duramen.Duramen, address: str, type: str) -> None:
    """Flip a bit of the payload of the first event of a type."""
    if address == "memory:":
        for session in _workspace(dm).sessions.values():
            for index, record in enumerate(session.records):
                if record.type == type:
                    session.records[index] = record._replace(payload=_flipped(record.payload or b""))
                    return
    _flip_stored_bit(address, "events", "payload", f"type = '{type}'", "-position")


def _workspace(dm: duramen.Duramen) -> Any:
    return dm._core._journal.store._spaces["default"]  # type: ignore[attr-defined]


def _flip_stored_bit(address: str, table: str, column: str, which: str, by: str) -> None:
    """Flip a bit in the matching row with the highest value of `by`."""
    postgres = address.startswith("postgresql:")
    table, mark = (f"duramen.{table}", "%s") if postgres else (f"duramen_{table}", "?")
    where = f"{which} AND {by} = (SELECT max({by}) FROM {table} WHERE {which})"
    opened: Any = psycopg.connect(address, autocommit=True) if postgres else apsw.Connection(address)
    with closing(opened) as connection:
        body = next(iter(connection.execute(f"SELECT {column} FROM {table} WHERE {where}")))[0]
        connection.execute(f"UPDATE {table} SET {column} = {mark} WHERE {where}", (_flipped(body),))


def _flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])
