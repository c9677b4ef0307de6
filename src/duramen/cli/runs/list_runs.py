"""`duramen runs`: which runs there are and how each stands, once or as it changes."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from rich.live import Live
from rich.text import Text

from ...api._sync.duramen import Duramen
from ...api.options import RunFilter
from ...execution.engine.run_info import RunInfo
from ..durations import between, iso, to_second
from ..screen import Cell, Column, Screen, Sheet, cell, expect_json, print_json
from ..terminal_text import visible

POLL = 0.5
"""Seconds between two looks."""
STYLES = {
    "queued": "",
    "running": "green",
    "crashed": "bold red",
    "sleeping": "blue",
    "waiting": "yellow",
    "done": "dim",
    "failed": "red",
    "cancelled": "magenta",
}
_COLUMNS = {
    "run": Column("run", least=12, most=40, style="cyan"),
    "task": Column("task", least=6, most=24),
    "status": Column("status", least=9),
    "created": Column("created (UTC)", least=19),
    "took": Column("took", least=8, right=True),
    "queue": Column("queue", least=5, most=20),
    "parent": Column("parent", least=8, most=32),
    "waits for": Column("waits for", least=16, rest=True),
}
_MAY_BE_EMPTY = ("queue", "parent")
_AROUND = 3
"""Lines of a terminal that the rows of a watched list leave free."""


def filters(status: list[str] | None, task: str | None, queue: str | None, parent: str | None, limit: int) -> RunFilter:
    """The options of the command as the library takes them."""
    wanted = RunFilter(limit=limit)
    if status:
        wanted["status"] = status
    if task is not None:
        wanted["task"] = task
    if queue is not None:
        wanted["queue"] = queue
    if parent is not None:
        wanted["parent"] = parent
    return wanted


def list_runs(dm: Duramen, wanted: RunFilter, as_json: bool) -> None:
    """Print runs, newest first."""
    limit = wanted.get("limit", 100)
    wanted["limit"] = limit + 1  # whether there are more
    found = dm.runs(**wanted)
    shown = found[:limit]
    if as_json:
        expect_json()
        for info in shown:
            print_json(run_fields(info))
    elif shown:
        _draw(Screen(), shown)
    screen = Screen(stderr=True)
    if len(found) > limit:
        screen.say(("Hint: ", "bold"), "there are more; --limit shows them")
    elif not found:
        _say_empty(dm, screen)


def watch_runs(dm: Duramen, wanted: RunFilter, timeout: float | None, as_json: bool) -> None:
    """Print runs as they change: on a terminal in place, else each change on its own."""
    if as_json:
        expect_json()
    screen = Screen()
    in_place = screen.is_terminal and not as_json
    live = Live(console=screen, auto_refresh=False) if in_place else None
    end = None if timeout is None else time.monotonic() + timeout
    before: dict[str, RunInfo] = {}
    with live or nullcontext():
        first = True
        while True:
            found = dm.runs(**wanted)
            changed = [one for one in found if before.get(one.id) != one]
            if live is not None:
                live.update(_picture(screen, found), refresh=True)
            elif as_json:
                for info in changed:
                    print_json(run_fields(info), now=True)
            elif changed or first or len(before) != len(found):
                _draw_again(screen, found, first)
            before, first = {one.id: one for one in found}, False
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(POLL if end is None else max(0.0, min(POLL, end - time.monotonic())))


def _draw_again(screen: Screen, found: Sequence[RunInfo], first: bool) -> None:
    if not first:
        screen.print()
    if found:
        _draw(screen, found)
    else:
        screen.say("No runs.")
    screen.file.flush()


def _picture(screen: Screen, found: Sequence[RunInfo]) -> Text:
    """The list as it stands, as high as the terminal."""
    room = max(1, screen.height - _AROUND)
    canvas = Screen()
    with canvas.capture() as captured:
        if found:
            _draw(canvas, found[:room])
        more = f" of {len(found):,}" if len(found) > room else ""
        now = to_second(dt.datetime.now(dt.UTC))
        canvas.say((f"{min(len(found), room):,}{more} run{'' if len(found) == 1 else 's'} at {now} UTC", "dim"))
    return Text.from_ansi(captured.get().rstrip("\n"))


def _draw(screen: Screen, found: Sequence[RunInfo]) -> None:
    now = dt.datetime.now(dt.UTC)
    rows = [_cells(info, now) for info in found]
    names = [name for name in _COLUMNS if name not in _MAY_BE_EMPTY or any(row[name].text for row in rows)]
    sheet = Sheet(screen, [_COLUMNS[name] for name in names])
    chosen = [[row[name] for name in names] for row in rows]
    sheet.begin(chosen)
    sheet.add(chosen)


def _cells(info: RunInfo, now: dt.datetime) -> dict[str, Cell]:
    task = info.task if info.version is None else f"{info.task} {info.version}"
    return {
        "run": cell(info.id),
        "task": cell(task),
        "status": cell(info.status, STYLES.get(info.status, "")),
        "created": cell(to_second(info.created)),
        "took": cell(None if info.started is None else between(info.started, info.ended or now)),
        "queue": cell(info.queue if info.queue_key is None else f"{info.queue}/{info.queue_key}"),
        "parent": cell(info.parent),
        "waits for": cell(waits_for(info)),
    }


def waits_for(info: RunInfo) -> str | None:
    """What a run waits for, and until when at the latest."""
    if info.wake is None or info.status not in ("sleeping", "waiting") or info.waiting is None:
        return info.waiting
    until = to_second(info.wake)
    today = to_second(dt.datetime.now(dt.UTC))[:10]
    return f"{info.waiting} until {until.removeprefix(today).strip()}"


def run_fields(info: RunInfo) -> dict[str, Any]:
    """A run as a JSON object."""
    return {
        "run": info.id,
        "session": info.session,
        "task": info.task,
        "version": info.version,
        "status": info.status.value,
        "waiting": info.waiting,
        "wake": iso(info.wake),
        "created": iso(info.created),
        "started": iso(info.started),
        "updated": iso(info.updated),
        "ended": iso(info.ended),
        "parent": info.parent,
        "queue": info.queue,
        "queue_key": info.queue_key,
        "priority": info.priority,
        "owner": info.owner,
    }


def _say_empty(dm: Duramen, screen: Screen) -> None:
    screen.say(f"No runs match in workspace {visible(dm.workspace)}.")
    others = [name for name in dm.workspaces() if name != dm.workspace]
    if others:
        screen.say(("Hint: ", "bold"), "choose another with --workspace: ", visible(", ".join(others[:20])))
