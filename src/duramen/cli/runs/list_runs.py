"""`duramen runs`: the runs of a workspace and their status; `--watch` updates the list."""

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
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..durations import format_elapsed, iso_datetime, utc_second
from ..table import Cell, Column, Table, cell
from ..terminal_text import visible

POLL_SECONDS = 0.5
STATUS_STYLES = {
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
    "run": Column("run", min_width=12, max_width=40, style="cyan"),
    "task": Column("task", min_width=6, max_width=24),
    "status": Column("status", min_width=9),
    "created": Column("created (UTC)", min_width=19),
    "took": Column("took", min_width=8, align_right=True),
    "queue": Column("queue", min_width=5, max_width=20),
    "parent": Column("parent", min_width=8, max_width=32),
    "waits for": Column("waits for", min_width=16, fill=True),
}
_HIDDEN_IF_EMPTY = ("queue", "parent")
_RESERVED_LINES = 3
"""Lines of the terminal that a watched list does not use."""


def run_filter(
    status: list[str] | None, task: str | None, queue: str | None, parent: str | None, limit: int
) -> RunFilter:
    """The options of the command as arguments of `dm.runs`."""
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
    wanted["limit"] = limit + 1  # to know whether there are more
    found = dm.runs(**wanted)
    shown = found[:limit]
    if as_json:
        use_utf8_stdout()
        for info in shown:
            print_json(run_fields(info))
    elif shown:
        _print_table(PlainConsole(), shown)
    console = PlainConsole(stderr=True)
    if len(found) > limit:
        console.print_line(("Hint: ", "bold"), "there are more runs: raise --limit to list them")
    elif not found:
        _print_no_runs(dm, console)


def watch_runs(dm: Duramen, wanted: RunFilter, timeout: float | None, as_json: bool) -> None:
    """Print runs as they change: in place on a terminal, otherwise each change separately."""
    if as_json:
        use_utf8_stdout()
    console = PlainConsole()
    in_place = console.is_terminal and not as_json
    live = Live(console=console, auto_refresh=False) if in_place else None
    end = None if timeout is None else time.monotonic() + timeout
    before: dict[str, RunInfo] = {}
    with live or nullcontext():
        first = True
        while True:
            found = dm.runs(**wanted)
            changed = [one for one in found if before.get(one.id) != one]
            if live is not None:
                live.update(_frame(console, found), refresh=True)
            elif as_json:
                for info in changed:
                    print_json(run_fields(info), flush=True)
            elif changed or first or len(before) != len(found):
                _reprint_table(console, found, first)
            before, first = {one.id: one for one in found}, False
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(POLL_SECONDS if end is None else max(0.0, min(POLL_SECONDS, end - time.monotonic())))


def _reprint_table(console: PlainConsole, found: Sequence[RunInfo], first: bool) -> None:
    if not first:
        console.print()
    if found:
        _print_table(console, found)
    else:
        console.print_line("No runs.")
    console.file.flush()


def _frame(console: PlainConsole, found: Sequence[RunInfo]) -> Text:
    """The current list, cut to the height of the terminal."""
    room = max(1, console.height - _RESERVED_LINES)
    canvas = PlainConsole()
    with canvas.capture() as captured:
        if found:
            _print_table(canvas, found[:room])
        more = f" of {len(found):,}" if len(found) > room else ""
        now = utc_second(dt.datetime.now(dt.UTC))
        canvas.print_line((f"{min(len(found), room):,}{more} run{'' if len(found) == 1 else 's'} at {now} UTC", "dim"))
    return Text.from_ansi(captured.get().rstrip("\n"))


def _print_table(console: PlainConsole, found: Sequence[RunInfo]) -> None:
    now = dt.datetime.now(dt.UTC)
    rows = [_cells(info, now) for info in found]
    names = [name for name in _COLUMNS if name not in _HIDDEN_IF_EMPTY or any(row[name].text for row in rows)]
    table = Table(console, [_COLUMNS[name] for name in names])
    chosen = [[row[name] for name in names] for row in rows]
    table.begin(chosen)
    table.add(chosen)


def _cells(info: RunInfo, now: dt.datetime) -> dict[str, Cell]:
    task = info.task if info.version is None else f"{info.task} {info.version}"
    return {
        "run": cell(info.id),
        "task": cell(task),
        "status": cell(info.status, STATUS_STYLES.get(info.status, "")),
        "created": cell(utc_second(info.created)),
        "took": cell(None if info.started is None else format_elapsed(info.started, info.ended or now)),
        "queue": cell(info.queue if info.queue_key is None else f"{info.queue}/{info.queue_key}"),
        "parent": cell(info.parent),
        "waits for": cell(waits_for(info)),
    }


def waits_for(info: RunInfo) -> str | None:
    """What a run waits for, and until when."""
    if info.wake is None or info.status not in ("sleeping", "waiting") or info.waiting is None:
        return info.waiting
    until = utc_second(info.wake)
    today = utc_second(dt.datetime.now(dt.UTC))[:10]
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
        "wake": iso_datetime(info.wake),
        "created": iso_datetime(info.created),
        "started": iso_datetime(info.started),
        "updated": iso_datetime(info.updated),
        "ended": iso_datetime(info.ended),
        "parent": info.parent,
        "queue": info.queue,
        "queue_key": info.queue_key,
        "priority": info.priority,
        "owner": info.owner,
    }


def _print_no_runs(dm: Duramen, console: PlainConsole) -> None:
    console.print_line(f"No runs match in workspace {visible(dm.workspace)}.")
    others = [name for name in dm.workspaces() if name != dm.workspace]
    if others:
        names = visible(", ".join(others[:20]))
        console.print_line(("Hint: ", "bold"), "choose one of these with --workspace: ", names)
