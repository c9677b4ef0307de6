"""`duramen tail`: events as they are journaled, by any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...api._sync.duramen import Duramen
from ...api._sync.session import Session
from ...ports import SessionRow
from ..json_format import event_fields
from ..screen import Screen, expect_json, print_json
from .timeline import Seen, Timeline

POLL = 0.5
"""Seconds between two looks at the catalog of a workspace."""
Show = Callable[[Sequence[Seen]], None]


def printer(*, several: bool, as_json: bool) -> Show:
    """What prints events the moment they are given."""
    if not as_json:
        return Timeline(Screen(), several=several).add
    expect_json()

    def show(seen: Sequence[Seen]) -> None:
        for session, event in seen:
            print_json(event_fields(session, event), now=True)

    return show


def tail_session(session: Session, after: int | None, lines: int, timeout: float | None, show: Show) -> None:
    """Show the last events of a session, or those after a position, then follow it."""
    if after is None:
        latest = [Seen(session.id, event) for event in session.events(backwards=True, limit=lines)][::-1]
        if latest:
            show(latest)
        after = latest[-1].event.position if latest else session.head().position
    for event in session.follow(after, timeout=timeout):
        show([Seen(session.id, event)])


def tail_workspace(dm: Duramen, lines: int, timeout: float | None, show: Show) -> None:
    """Show the last events of all sessions, then what is new, session by session in the order of their ids."""
    rows = list(dm.sessions())
    heads = {row.session: row.head for row in rows}
    latest = _latest(dm, rows, lines)
    if latest:
        show(latest)
    idle = 0.0
    while timeout is None or idle < timeout:
        moved = False
        for seen in _moved(dm, heads):
            show([seen])
            moved = True
        idle = 0.0 if moved else idle + POLL
        time.sleep(POLL)


def _latest(dm: Duramen, rows: Iterable[SessionRow], lines: int) -> list[Seen]:
    """The newest events of the workspace by time, up to where its sessions stood when they were listed."""
    if not lines:
        return []
    found = [
        Seen(row.session, event)
        for row in sorted(rows, key=lambda row: row.updated)[-lines:]
        for event in dm.session(row.session).events(start=row.fork_at + 1, stop=row.head, backwards=True, limit=lines)
    ]
    return sorted(found, key=lambda seen: (seen.event.time, seen.session, seen.event.position))[-lines:]


def _moved(dm: Duramen, heads: dict[str, int]) -> Iterator[Seen]:
    """Events that were not there at the last look. A new fork's shared events are not new."""
    for row in dm.sessions():
        known = heads.get(row.session, row.fork_at)
        if row.head > known:
            for event in dm.session(row.session).events(start=known + 1, stop=row.head):
                yield Seen(row.session, event)
        heads[row.session] = row.head
