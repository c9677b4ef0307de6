"""`duramen show`, and the table of events that `duramen tail` also prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import NamedTuple

from ...api._sync.session import Session
from ...api.options import ReadOptions
from ...journal.events import Event
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..json_format import event_fields, iso_time, json_text, json_value
from ..table import Cell, Column, Table, cell
from ..terminal_text import visible

ERASED = "(erased)"
"""Shown instead of the data of an event whose subject was erased. No JSON text begins with "("."""
_COLUMNS = (
    Column("#", min_width=4, max_width=12, align_right=True),
    Column("time", min_width=12, max_width=12),
    Column("type", min_width=12, max_width=24, style="cyan"),
    Column("actor", min_width=5, max_width=20, style="green"),
    Column("cause", min_width=5, max_width=16),
    Column("key", min_width=5, max_width=20),
    Column("subject", min_width=7, max_width=20),
    Column("data", min_width=16, fill=True),
)
_COLUMNS_WITH_SESSION = (Column("session", min_width=12, max_width=24), *_COLUMNS[:5], _COLUMNS[-1])


class SessionEvent(NamedTuple):
    """An event and the session it was read from. A fork also reads the events of its parent."""

    session: str
    event: Event


def show_events(session: Session, options: ReadOptions, *, as_json: bool, full: bool) -> None:
    """Print events of a session: time, type, actor, cause, data."""
    pages = session.pages(**options)
    if as_json:
        use_utf8_stdout()
        for event in chain.from_iterable(pages):
            print_json(event_fields(session.id, event))
        return
    console = PlainConsole()
    timeline = Timeline(console)
    any_event = False
    for page in pages:
        any_event = True
        if full:
            for event in page:
                _print_full(console, event)
        else:
            timeline.add([SessionEvent(session.id, event) for event in page])
    if not any_event:
        PlainConsole(stderr=True).print_line("No events match.")


class Timeline:
    """A table of events with an extra line for each new day. With `several` sessions, their ids replace key and
    subject."""

    def __init__(self, console: PlainConsole, *, several: bool = False) -> None:
        self._console = console
        self._several = several
        self._table = Table(console, _COLUMNS_WITH_SESSION if several else _COLUMNS)
        self._begun = False
        self._day = ""

    def add(self, events: Sequence[SessionEvent]) -> None:
        """Print events. The first ones set the widths of the columns."""
        if not self._begun:
            self._table.begin(self._rows(events))
            self._begun = True
        for day, of_day in groupby(events, key=lambda one: iso_time(one.event.time)[:10]):
            if day != self._day:
                self._day = day
                self._console.print_line((f"{day} UTC", "bold blue"))
            self._table.add(self._rows(of_day))

    def _rows(self, events: Iterable[SessionEvent]) -> list[list[Cell]]:
        room = self._table.fill_width() if self._begun else 0
        return [self._row(session, event, room) for session, event in events]

    def _row(self, session: str, event: Event, room: int) -> list[Cell]:
        values = [event.position, iso_time(event.time)[11:23], event.type, event.actor, event.cause]
        values = [session, *values] if self._several else [*values, event.key, event.subject]
        return [*map(cell, values), _preview(event, room)]


def _preview(event: Event, room: int) -> Cell:
    """The beginning of the data, which may be many megabytes long."""
    if event.erased:
        return Cell(ERASED, style="red")
    return Cell("" if event.data is None else json_text(json_value(event.data))[: 4 * room + 4])


def _print_full(console: PlainConsole, event: Event) -> None:
    console.print_line((f"#{event.position}", "bold"), f"  {iso_time(event.time)}  ", (visible(event.type), "cyan"))
    for name in ("actor", "cause", "key", "subject"):
        value = getattr(event, name)
        if value is not None:
            console.print_line(f"    {name:<8}{visible(str(value))}")
    console.print_line(f"    hash    {event.hash.hex()}")
    if event.erased:
        console.print_line("    ", (ERASED, "red"))
    elif event.data is not None:
        console.print_line("    " + json_text(json_value(event.data), indent=2).replace("\n", "\n    "))
    console.print()
