"""`duramen tail`: new events as any process appends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...api._sync.duramen import Duramen
from ...api._sync.session import Session
from ...ports import SessionRow
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..json_format import event_fields
from .timeline import SessionEvent, Timeline

POLL_SECONDS = 0.5
"""How often the catalog of a workspace is read."""
PrintEvents = Callable[[Sequence[SessionEvent]], None]


def event_printer(*, several: bool, as_json: bool) -> PrintEvents:
    """A function that prints events and flushes the output."""
    if not as_json:
        return Timeline(PlainConsole(), several=several).add
    use_utf8_stdout()

    def print_events(events: Sequence[SessionEvent]) -> None:
        for session, event in events:
            print_json(event_fields(session, event), flush=True)

    return print_events


def tail_session(
    session: Session, after: int | None, lines: int, timeout: float | None, print_events: PrintEvents
) -> None:
    """Print the last events of a session, or those after a position, then follow it."""
    if after is None:
        latest = [SessionEvent(session.id, event) for event in session.events(backwards=True, limit=lines)][::-1]
        if latest:
            print_events(latest)
        after = latest[-1].event.position if latest else session.head().position
    for event in session.follow(after, timeout=timeout):
        print_events([SessionEvent(session.id, event)])


def tail_workspace(dm: Duramen, lines: int, timeout: float | None, print_events: PrintEvents) -> None:
    """Print the last events of all sessions, then new ones, session by session in the order of their ids."""
    rows = list(dm.sessions())
    heads = {row.session: row.head for row in rows}
    latest = _latest(dm, rows, lines)
    if latest:
        print_events(latest)
    idle = 0.0
    while timeout is None or idle < timeout:
        moved = False
        for event in _new_events(dm, heads):
            print_events([event])
            moved = True
        idle = 0.0 if moved else idle + POLL_SECONDS
        time.sleep(POLL_SECONDS)


def _latest(dm: Duramen, rows: Iterable[SessionRow], lines: int) -> list[SessionEvent]:
    """The newest events of the workspace by time, up to the heads in `rows`."""
    if not lines:
        return []
    found = [
        SessionEvent(row.session, event)
        for row in sorted(rows, key=lambda row: row.updated)[-lines:]
        for event in dm.session(row.session).events(start=row.fork_at + 1, stop=row.head, backwards=True, limit=lines)
    ]
    return sorted(found, key=lambda one: (one.event.time, one.session, one.event.position))[-lines:]


def _new_events(dm: Duramen, heads: dict[str, int]) -> Iterator[SessionEvent]:
    """Events after the known heads. Events that a new fork shares with its parent are not new."""
    for row in dm.sessions():
        known = heads.get(row.session, row.fork_at)
        if row.head > known:
            for event in dm.session(row.session).events(start=known + 1, stop=row.head):
                yield SessionEvent(row.session, event)
        heads[row.session] = row.head
