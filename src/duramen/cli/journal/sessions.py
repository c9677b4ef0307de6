"""`duramen sessions`: what a workspace holds, and how each session stands."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ...api._sync.duramen import Duramen
from ...errors import JournalDamaged
from ...ports import SessionRow
from ..json_format import iso_time
from ..screen import Cell, Column, Screen, Sheet, cell, expect_json, print_json
from ..terminal_text import visible

_COLUMNS = (
    Column("session", least=12, most=48, style="cyan"),
    Column("events", least=6, right=True),
    Column("first (UTC)", least=19),
    Column("last (UTC)", least=19),
    Column("fork of", least=7, most=32),
    Column("standing", least=10),
)
_STYLES = {"live": "green", "parked": "yellow", "crashed": "bold red", "damaged": "bold red"}
_BATCH = 200


def list_sessions(dm: Duramen, limit: int | None, as_json: bool) -> None:
    """Print the sessions of the workspace by id."""
    rows = islice(dm.sessions(), limit)
    if as_json:
        expect_json()
        for row in rows:
            print_json(_fields(row, _standing(dm, row.session)))
        return
    screen = Screen()
    sheet = Sheet(screen, _COLUMNS)
    batch = _cells(dm, islice(rows, _BATCH))
    if not batch:
        _say_empty(dm)
        return
    sheet.begin(batch)
    while batch:
        sheet.add(batch)
        batch = _cells(dm, islice(rows, _BATCH))


def _standing(dm: Duramen, session: str) -> str:
    """How a session stands; one that cannot be read must not keep the others from being listed."""
    try:
        return dm.session(session).status()
    except JournalDamaged:
        return "damaged"


def _fields(row: SessionRow, standing: str) -> dict[str, Any]:
    return {
        "session": row.session,
        "events": row.head,
        "first": iso_time(row.created),
        "last": iso_time(row.updated),
        "fork_of": None if row.parent is None else {"session": row.parent, "at": row.fork_at},
        "standing": standing,
    }


def _cells(dm: Duramen, rows: Iterable[SessionRow]) -> list[list[Cell]]:
    return [_row(row, _standing(dm, row.session)) for row in rows]


def _row(row: SessionRow, standing: str) -> list[Cell]:
    fork_of = None if row.parent is None else f"{row.parent}#{row.fork_at}"
    values = (row.session, row.head, _second(row.created), _second(row.updated), fork_of)
    return [*map(cell, values), cell(standing, _STYLES.get(standing, ""))]


def _second(micros: int) -> str:
    return iso_time(micros)[:19].replace("T", " ")


def _say_empty(dm: Duramen) -> None:
    screen = Screen(stderr=True)
    screen.say(f"There are no sessions in workspace {visible(dm.workspace)}.")
    others = dm.workspaces()
    if others:
        screen.say(("Hint: ", "bold"), "choose another with --workspace: ", visible(", ".join(others[:20])))
