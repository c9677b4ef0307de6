"""Child processes that sync memory files, or record progress with git commits."""

from __future__ import annotations

import os
from collections.abc import Callable

import duramen
from duramen.testing.crash import die_at

PrintLine = Callable[[str], None]


def sync_files(
    print_line: PrintLine, address: str, root: str, git: bool = False, die: tuple[str, int] | None = None
) -> None:
    """Sync a folder once. `die` is a crash point and the number of the visit."""
    with duramen.open(address, embedder="none") as dm, dm.files(root, git=git) as files:
        if die is not None:
            die_at(*die)
        print_line("ready")
        files.sync()


def remember_and_sync(print_line: PrintLine, address: str, root: str, name: str, count: int) -> None:
    """Remember facts and sync the folder after each. No file may be skipped."""
    with duramen.open(address, embedder="none") as dm, dm.files(root) as files:
        for number in range(count):
            dm.memory.remember(f"{name} closes at {number}")
            assert files.sync().skipped == ()
            print_line(str(number))


def complete_with_git(
    print_line: PrintLine,
    address: str,
    path: str,
    step: str,
    environment: dict[str, str],
    die: tuple[str, int] | None = None,
) -> None:
    """Begin a goal, unless it has begun, and complete a step. Prints the number of steps that were complete before."""
    os.environ.clear()
    os.environ.update(environment)
    if die is not None:
        die_at(*die)
    with duramen.open(address) as dm:
        progress = dm.session("s").progress.keep_in(path, git=True)
        print_line(str(len(progress.completed)))
        progress.begin("Ship it", next_action="work")
        progress.complete(step, next_action="more work")
