"""`duramen export`: events as JSON Lines, to a file whole or not at all, or to standard output."""

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
from ..json_format import event_fields, json_text
from ..open_store import existing
from ..screen import Screen, expect_json, leave_quietly

Write = Callable[[str], object]


class Stretch(NamedTuple):
    """A session up to where it stood when the export began."""

    session: str
    head: int


def stretches(dm: Duramen, session: str | None) -> list[Stretch]:
    """What there is to export: one session, or the whole workspace."""
    if session is not None:
        return [Stretch(session, existing(dm, session).head().position)]
    return [Stretch(row.session, row.head) for row in dm.sessions()]


def export(dm: Duramen, session: str | None, target: Path | None, force: bool) -> None:
    """Write every event as one line, each session in order."""
    wanted = stretches(dm, session)
    expect_json()
    # A bar on the terminal that also gets the lines would tear them.
    shown = sys.stderr.isatty() and (target is not None or not sys.stdout.isatty())
    with _progress(shown) as progress, _writing(target, force) as write:
        task = progress.add_task("Exporting", total=sum(one.head for one in wanted))
        for one in wanted:
            for page in dm.session(one.session).pages(stop=one.head):
                for event in page:
                    write(json_text(event_fields(one.session, event)) + "\n")
                progress.advance(task, len(page))


def _progress(shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Screen(stderr=True), transient=True, disable=not shown)


@contextmanager
def _writing(target: Path | None, force: bool) -> Iterator[Write]:
    if target is None:
        try:
            yield sys.stdout.write
            sys.stdout.flush()
        except BrokenPipeError:
            leave_quietly()
    else:
        with _atomic(target, force) as write:
            yield write


@contextmanager
def _atomic(target: Path, force: bool) -> Iterator[Write]:
    """Write beside the target and move it there at the end: a crash leaves the old file, or none, never half of one.
    Readable by its owner only: an export is not sealed."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part")
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        _move(name, target, force)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
    _sync_folder(target.parent)


def _move(name: str, target: Path, force: bool) -> None:
    if force:
        os.replace(name, target)
        return
    try:
        os.link(name, target)  # unlike a rename, this fails if somebody made the file meanwhile
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # a file system without hard links
        os.replace(name, target)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_target(output: str, store: str, force: bool) -> Path | None:
    """Where to write; None is standard output. Refuses what is there, unless forced, and the store always."""
    if output == "-":
        return None
    target = Path(os.path.realpath(output))
    if any(_same(target, part) for part in _files_of(store)):
        raise DuramenError(f"{output} belongs to the store itself", hint="export to another file")
    if target.exists():
        if not target.is_file():
            raise DuramenError(f"{output} is not a file", hint="give --output the path of a file")
        if not force:
            raise _exists(target)
    if not target.parent.is_dir():
        raise DuramenError(f"there is no directory {target.parent}", hint="create it first")
    return target


def _exists(target: Path) -> DuramenError:
    return DuramenError(f"{target} exists already", hint="choose another name, or replace it with --force")


def _files_of(store: str) -> Iterator[str]:
    path = store.rpartition("://")[2]
    for base in (path, path.removeprefix("/")):  # sqlite:///agent.db is relative, file:///agent.db is not
        for suffix in ("", "-wal", "-shm", "-lock"):
            yield base + suffix


def _same(target: Path, other: str) -> bool:
    try:
        return target.samefile(other)
    except OSError:
        return False
