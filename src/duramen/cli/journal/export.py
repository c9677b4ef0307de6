"""`duramen export`: events as JSON Lines, to standard output or atomically to a file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ...api._sync.duramen import Duramen
from ...errors import DuramenError
from ..console import PlainConsole, exit_on_closed_pipe, use_utf8_stdout
from ..json_format import event_fields, json_text
from ..open_store import existing_session

WriteText = Callable[[str], object]


class ExportRange(NamedTuple):
    """A session up to its last event when the export began."""

    session: str
    head: int


def export_ranges(dm: Duramen, session: str | None) -> list[ExportRange]:
    """The events to export: those of one session, or of the whole workspace."""
    if session is not None:
        return [ExportRange(session, existing_session(dm, session).head().position)]
    return [ExportRange(row.session, row.head) for row in dm.sessions()]


def export_events(dm: Duramen, session: str | None, target: Path | None, force: bool) -> None:
    """Write each event on one line, the sessions one after the other."""
    ranges = export_ranges(dm, session)
    use_utf8_stdout()
    # No progress bar on a terminal that also gets the lines: it would break them.
    shown = sys.stderr.isatty() and (target is not None or not sys.stdout.isatty())
    with _progress(shown) as progress, _open_target(target, force) as write:
        task = progress.add_task("Exporting", total=sum(one.head for one in ranges))
        for one in ranges:
            for page in dm.session(one.session).pages(stop=one.head):
                for event in page:
                    write(json_text(event_fields(one.session, event)) + "\n")
                progress.advance(task, len(page))


def _progress(shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=PlainConsole(stderr=True), transient=True, disable=not shown)


@contextmanager
def _open_target(target: Path | None, force: bool) -> Iterator[WriteText]:
    if target is None:
        try:
            yield sys.stdout.write
            sys.stdout.flush()
        except BrokenPipeError:
            exit_on_closed_pipe()
    else:
        with _atomic_file(target, force) as write:
            yield write


@contextmanager
def _atomic_file(target: Path, force: bool) -> Iterator[WriteText]:
    """Write a temporary file and move it to the target at the end, so that a crash leaves no partial file. Only its
    owner can read the file, because an export is not sealed."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part")
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        _publish(name, target, force)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
    _sync_folder(target.parent)


def _publish(name: str, target: Path, force: bool) -> None:
    if force:
        os.replace(name, target)
        return
    try:
        os.link(name, target)  # unlike a rename, this fails if the file exists
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # a file system without hard links
        os.replace(name, target)


def _sync_folder(folder: Path) -> None:
    """Make the directory entry durable."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_target(output: str, store: str, force: bool) -> Path | None:
    """The file to write; None for standard output. Refuses files of the store and, without `force`, existing files."""
    if output == "-":
        return None
    target = Path(os.path.realpath(output))
    if any(_same_file(target, part) for part in _store_files(store)):
        raise DuramenError(f"{output} belongs to the store", hint="export to another file")
    if target.exists():
        if not target.is_file():
            raise DuramenError(f"{output} is not a file", hint="give --output the path of a file")
        if not force:
            raise _exists(target)
    if not target.parent.is_dir():
        raise DuramenError(f"the directory {target.parent} does not exist", hint="create it first")
    return target


def _exists(target: Path) -> DuramenError:
    return DuramenError(f"{target} already exists", hint="choose another name, or replace it with --force")


def _store_files(store: str) -> Iterator[str]:
    path = store.rpartition("://")[2]
    for base in (path, path.removeprefix("/")):  # sqlite:///agent.db is relative, file:///agent.db is not
        for suffix in ("", "-wal", "-shm", "-lock"):
            yield base + suffix


def _same_file(target: Path, other: str) -> bool:
    try:
        return target.samefile(other)
    except OSError:
        return False
