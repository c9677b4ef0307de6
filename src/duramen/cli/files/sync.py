"""What `duramen sync`, `import` and `export --format` do, with progress bars on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ...api._sync.duramen import Duramen
from ...errors import InvalidInput
from ...files.folder.git import GitMode
from ...files.sync.folder_reader import ProgressCallback
from ...files.sync.report import FileEdit, FilesSynced, SkippedFile
from ..actor import cli_actor
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..terminal_text import visible

_SHOWN = 20
"""Up to this many paths are listed. For more, only their number is printed."""


@contextmanager
def shown() -> Iterator[ProgressCallback]:
    """A progress bar for each phase, on a terminal only."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=PlainConsole(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as progress:
        bars: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done, total=total)

        yield show


def sync_once(dm: Duramen, folder: str, git: GitMode, deletions: bool, as_json: bool) -> bool:
    """Sync and print what was done. Returns False if files were skipped."""
    with dm.files(folder, git=git) as files:
        with shown() as show:
            done = files.sync(deletions=deletions, progress=show)
        _print_report(done, as_json)
    return not done.skipped


def watch_folder(dm: Duramen, folder: str, git: GitMode, timeout: float | None, as_json: bool) -> None:
    """Sync whenever files or memories change, and print each time what was done."""
    with dm.files(folder, git=git) as files:
        if not as_json:
            PlainConsole(stderr=True).print_line(f"Watching {visible(files.root)}. Stop with Ctrl-C.")
        for done in files.watch(timeout=timeout):
            _print_report(done, as_json)


def _print_report(done: FilesSynced, as_json: bool) -> None:
    if as_json:
        use_utf8_stdout()
        print_json(_fields(done), flush=True)
        return
    console = PlainConsole()
    for one in done.edits:
        console.print_line(f"{one.what:<10}", (visible(one.path), "cyan"), _what(one))
    for one in done.conflicts:
        console.print_line(
            ("conflict  ", "yellow"), (visible(one.path), "cyan"), ": it changed on both sides; both versions are kept"
        )
    for verb, paths in (("wrote", done.written), ("removed", done.removed)):
        for path in paths[:_SHOWN] if len(paths) <= _SHOWN else ():
            console.print_line(f"{verb:<10}", visible(path))
        if len(paths) > _SHOWN:
            console.print_line(f"{verb:<10}{len(paths):,} files")
    if done.commits:
        commits = "1 commit" if len(done.commits) == 1 else f"{len(done.commits):,} commits"
        console.print_line(f"committed {commits}, the last is {done.commits[-1][:10]}")
    if not done.changed:
        console.print_line("Files and memories agree.")
    print_skipped(done.skipped)


def _what(one: FileEdit) -> str:
    return f"  {visible(one.event)}" if one.event else ""


def print_skipped(skipped: Sequence[SkippedFile]) -> None:
    """Print to standard error which files were skipped, and why."""
    console = PlainConsole(stderr=True)
    for one in skipped:
        line = "" if one.line is None else f", line {one.line}"
        console.print_line(
            ("skipped   ", "bold yellow"), (f"{visible(one.path)}{line}", "cyan"), f": {visible(one.reason)}"
        )


def _fields(done: FilesSynced) -> dict[str, Any]:
    return {
        "written": list(done.written),
        "removed": list(done.removed),
        "edits": [_edit_fields(one) for one in done.edits],
        "conflicts": [_edit_fields(one) for one in done.conflicts],
        "skipped": skipped_fields(done.skipped),
        "commits": list(done.commits),
    }


def _edit_fields(one: FileEdit) -> dict[str, Any]:
    return {"path": one.path, "what": one.what, "memory": one.memory, "event": one.event}


def skipped_fields(skipped: Sequence[SkippedFile]) -> list[dict[str, Any]]:
    """Skipped files as JSON."""
    return [{"path": one.path, "line": one.line, "reason": one.reason} for one in skipped]


def import_files(dm: Duramen, path: str, format: str, subject: str | None, trusted: bool, as_json: bool) -> bool:
    """Import and print what was done. Returns False if notes were skipped."""
    with shown() as show:
        done = dm.memory.import_from(path, format, subject=subject, actor=cli_actor(), trusted=trusted, progress=show)
    if as_json:
        use_utf8_stdout()
        fields = {"added": list(done.added), "proposed": list(done.proposed), "known": done.known}
        print_json({**fields, "skipped": skipped_fields(done.skipped)})
    else:
        PlainConsole().print_line(
            f"{len(done.added):,} remembered, {len(done.proposed):,} proposed, {done.known:,} already known, "
            f"{len(done.skipped):,} skipped."
        )
        if done.proposed:
            PlainConsole(stderr=True).print_line("Decide on what is proposed with `duramen proposals list`.")
        print_skipped(done.skipped)
    return not done.skipped


def export_files(dm: Duramen, format: str, output: str, subject: str | None) -> None:
    """Write memories to a folder in another program's format."""
    if output == "-":
        raise InvalidInput("memories can only be exported to a folder", hint="give the folder with --output")
    with shown() as show:
        done = dm.memory.export_to(output, format, subject=subject, everyone=subject is None, progress=show)
    PlainConsole().print_line(
        f"Exported {done.memories:,} memories: {len(done.written):,} files new or changed in ",
        (visible(output), "cyan"),
    )
