"""Processes that checkpoint states, keep progress and go on from another session: as agents do, and to be killed; and
what a failing disk does to what they leave."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import apsw
import psycopg

import duramen

from .child_processes import pass_gate

Say = Callable[[str], None]


def state_of(number: int) -> dict[str, Any]:
    """State `number` of an agent: a list that grows and is trimmed, values that change together."""
    talk = [{"turn": turn, "text": f"turn {turn} " * 40} for turn in range(max(0, number - 10), number + 1)]
    return {"n": number, "talk": talk, "deep": {"n": (number,), "config": f"{number // 3} " * 50}}


def checkpoint_states(say: Say, address: str, first: int, count: int) -> None:
    """Checkpoint one state after the other; say the number of each that is stored."""
    with duramen.open(address) as dm:
        session = dm.session("s")
        for number in range(first, first + count):
            session.checkpoint(state_of(number), next=[number + 1], config={"n": number}, step=number)
            say(str(number))


def complete_steps(say: Say, address: str, path: str | None, steps: list[str], gate: str | None = None) -> None:
    """Set out for a goal, unless that is done, and complete steps; with a file, if one is given."""
    with duramen.open(address) as dm:
        progress = dm.session("s").progress
        kept = progress.keep_in(path) if path is not None else progress
        if gate is not None:
            say("ready")
            pass_gate(gate)
        kept.begin("Ship it", next_action="the next one")
        for step in steps:
            kept.complete(step)
            say(step)


def go_on(say: Say, address: str, new: str, old: str, gate: str | None = None) -> None:
    """Say something in a session that continues another; say what the model sees."""
    with duramen.open(address) as dm:
        session = dm.session(new, continues=old)
        if gate is not None:
            say("ready")
            pass_gate(gate)
        session.say("user", "Go on, please.")
        say(repr(session.context().memory))


def damage_bookmark(dm: duramen.Duramen, address: str, name: str) -> None:
    """Flip a bit of the newest bookmark under a name."""
    if address == "memory:":
        bookmarks = _space(dm).bookmarks
        place, newest = max(
            ((place, one) for place, one in bookmarks.items() if place[1] == name), key=lambda one: one[1].position
        )
        bookmarks[place] = newest._replace(manifest=_flipped(newest.manifest))
        return
    _change(address, "bookmarks", "manifest", f"name = '{name}'", "position")


def damage_last_chunk(dm: duramen.Duramen, address: str) -> None:
    """Flip a bit of the bodies that were stored last."""
    if address == "memory:":
        chunks = _space(dm).chunks
        place, last = max(chunks.items(), key=lambda one: one[1].start)
        chunks[place] = last._replace(body=_flipped(last.body))
        return
    _change(address, "chunks", "body", "1 = 1", "start")


def damage_event(dm: duramen.Duramen, address: str, type: str) -> None:
    """Flip a bit of the payload of the first event of a type."""
    if address == "memory:":
        for session in _space(dm).sessions.values():
            for index, record in enumerate(session.records):
                if record.type == type:
                    session.records[index] = record._replace(payload=_flipped(record.payload or b""))
                    return
    _change(address, "events", "payload", f"type = '{type}'", "-position")


def _space(dm: duramen.Duramen) -> Any:
    return dm._core._journal.store._spaces["default"]  # type: ignore[attr-defined]


def _change(address: str, table: str, column: str, which: str, by: str) -> None:
    """Flip a bit in the row that is the last by some order."""
    postgres = address.startswith("postgresql:")
    table, mark = (f"duramen.{table}", "%s") if postgres else (f"duramen_{table}", "?")
    where = f"{which} AND {by} = (SELECT max({by}) FROM {table} WHERE {which})"
    opened: Any = psycopg.connect(address, autocommit=True) if postgres else apsw.Connection(address)
    with closing(opened) as connection:
        body = next(iter(connection.execute(f"SELECT {column} FROM {table} WHERE {where}")))[0]
        connection.execute(f"UPDATE {table} SET {column} = {mark} WHERE {where}", (_flipped(body),))


def _flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])
