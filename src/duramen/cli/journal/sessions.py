"""`duramen sessions`: the sessions of a workspace and their status."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ...api._sync.duramen import Duramen
from ...errors import JournalDamaged
from ...ports import SessionRow
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..json_format import iso_time
from ..table import Cell, Column, Table, cell
from ..terminal_text import visible

_COLUMNS = (
    Column("session", min_width=12, max_width=48, style="cyan"),
    Column("events", min_width=6, align_right=True),
    Column("first (UTC)", min_width=19),
    Column("last (UTC)", min_width=19),
    Column("fork of", min_width=7, max_width=32),
    Column("status", min_width=10),
)
_STYLES = {"live": "green", "parked": "yellow", "crashed": "bold red", "damaged": "bold red"}
_BATCH = 200


def list_sessions(dm: Duramen, limit: int | None, as_json: bool) -> None:
    """Print the sessions of the workspace by id."""
    rows = islice(dm.sessions(), limit)
    if as_json:
        use_utf8_stdout()
        for row in rows:
            print_json(_fields(row, _status(dm, row.session)))
        return
    console = PlainConsole()
    table = Table(console, _COLUMNS)
    batch = _rows(dm, islice(rows, _BATCH))
    if not batch:
        _print_no_sessions(dm)
        return
    table.begin(batch)
    while batch:
        table.add(batch)
        batch = _rows(dm, islice(rows, _BATCH))


def _status(dm: Duramen, session: str) -> str:
    """The status of a session. A damaged session must not stop the list."""
    try:
        return dm.session(session).status()
    except JournalDamaged:
        return "damaged"


def _fields(row: SessionRow, status: str) -> dict[str, Any]:
    return {
        "session": row.session,
        "events": row.head,
        "first": iso_time(row.created),
        "last": iso_time(row.updated),
        "fork_of": None if row.parent is None else {"session": row.parent, "at": row.fork_at},
        "status": status,
    }


def _rows(dm: Duramen, rows: Iterable[SessionRow]) -> list[list[Cell]]:
    return [_row(row, _status(dm, row.session)) for row in rows]


def _row(row: SessionRow, status: str) -> list[Cell]:
    fork_of = None if row.parent is None else f"{row.parent}#{row.fork_at}"
    values = (row.session, row.head, _utc_second(row.created), _utc_second(row.updated), fork_of)
    return [*map(cell, values), cell(status, _STYLES.get(status, ""))]


def _utc_second(micros: int) -> str:
    return iso_time(micros)[:19].replace("T", " ")


def _print_no_sessions(dm: Duramen) -> None:
    console = PlainConsole(stderr=True)
    console.print_line(f"There are no sessions in workspace {visible(dm.workspace)}.")
    others = dm.workspaces()
    if others:
        names = visible(", ".join(others[:20]))
        console.print_line(("Hint: ", "bold"), "choose one of these with --workspace: ", names)
