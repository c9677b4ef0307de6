"""Events as people read them: `duramen show`, and the lines of `duramen tail`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import NamedTuple

from ...api._sync.session import Session
from ...api.options import ReadOptions
from ...journal.events import Event
from ..json_format import event_fields, iso_time, json_text, plain
from ..screen import Cell, Column, Screen, Sheet, cell, expect_json, print_json
from ..terminal_text import visible

ERASED = "(erased)"
"""Stands for the data of an event whose subject was erased; no JSON begins like this."""
_COLUMNS = (
    Column("#", least=4, most=12, right=True),
    Column("time", least=12, most=12),
    Column("type", least=12, most=24, style="cyan"),
    Column("actor", least=5, most=20, style="green"),
    Column("cause", least=5, most=16),
    Column("key", least=5, most=20),
    Column("subject", least=7, most=20),
    Column("data", least=16, rest=True),
)
_OF_SEVERAL = (Column("session", least=12, most=24), *_COLUMNS[:5], _COLUMNS[-1])


class Seen(NamedTuple):
    """An event, and the session it was read from: a fork shows its parent's events as its own."""

    session: str
    event: Event


def show(session: Session, options: ReadOptions, *, as_json: bool, full: bool) -> None:
    """Print events of a session: who did what, when, and which event caused it."""
    pages = session.pages(**options)
    if as_json:
        expect_json()
        for event in chain.from_iterable(pages):
            print_json(event_fields(session.id, event))
        return
    screen = Screen()
    timeline = Timeline(screen)
    any_event = False
    for page in pages:
        any_event = True
        if full:
            for event in page:
                _print_whole(screen, event)
        else:
            timeline.add([Seen(session.id, event) for event in page])
    if not any_event:
        Screen(stderr=True).say("No events match.")


class Timeline:
    """Events line by line under one head, a line of its own for each new day. `several`: of many sessions, whose
    ids take the room of key and subject."""

    def __init__(self, screen: Screen, *, several: bool = False) -> None:
        self._screen = screen
        self._several = several
        self._sheet = Sheet(screen, _OF_SEVERAL if several else _COLUMNS)
        self._begun = False
        self._day = ""

    def add(self, seen: Sequence[Seen]) -> None:
        """Print events; the first of them decide the widths."""
        if not self._begun:
            self._sheet.begin(self._rows(seen))
            self._begun = True
        for day, events in groupby(seen, key=lambda one: iso_time(one.event.time)[:10]):
            if day != self._day:
                self._day = day
                self._screen.say((f"{day} UTC", "bold blue"))
            self._sheet.add(self._rows(events))

    def _rows(self, seen: Iterable[Seen]) -> list[list[Cell]]:
        room = self._sheet.rest_width() if self._begun else 0
        return [self._row(session, event, room) for session, event in seen]

    def _row(self, session: str, event: Event, room: int) -> list[Cell]:
        told = [event.position, iso_time(event.time)[11:23], event.type, event.actor, event.cause]
        told = [session, *told] if self._several else [*told, event.key, event.subject]
        return [*map(cell, told), _preview(event, room)]


def _preview(event: Event, room: int) -> Cell:
    """The beginning of the data; cut here already, as the whole may be many megabytes."""
    if event.erased:
        return Cell(ERASED, style="red")
    return Cell("" if event.data is None else json_text(plain(event.data))[: 4 * room + 4])


def _print_whole(screen: Screen, event: Event) -> None:
    screen.say((f"#{event.position}", "bold"), f"  {iso_time(event.time)}  ", (visible(event.type), "cyan"))
    for name in ("actor", "cause", "key", "subject"):
        value = getattr(event, name)
        if value is not None:
            screen.say(f"    {name:<8}{visible(str(value))}")
    screen.say(f"    hash    {event.hash.hex()}")
    if event.erased:
        screen.say("    ", (ERASED, "red"))
    elif event.data is not None:
        screen.say("    " + json_text(plain(event.data), indent=2).replace("\n", "\n    "))
    screen.print()
