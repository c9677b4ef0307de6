"""`duramen reindex`: make the vectors of a store anew, with another embedder."""

from __future__ import annotations

import sys

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..runs.actions import writable
from ..screen import Screen
from .model_files import install_at_first_use


def reindex(store: str, workspace: str, embedder: str | None) -> None:
    """Make every vector anew, with a bar, and say what was done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    done = 0
    install_at_first_use(embedder)
    with (
        writable(store, workspace, embedder=embedder) as dm,
        Progress(*columns, console=Screen(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress,
    ):
        bar = progress.add_task("Making vectors", total=None)
        for done, left in dm.memory.reindex():
            progress.update(bar, completed=done, total=done + left)
    Screen().say(f"{done:,} vectors made; all memories are searched by them from now on.")
