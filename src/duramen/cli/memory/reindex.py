"""`duramen reindex`: computes all vectors again."""

from __future__ import annotations

import sys

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..console import PlainConsole
from ..open_store import open_writable
from .model_files import install_at_first_use


def reindex_memories(store: str, workspace: str, embedder: str | None) -> None:
    """Compute every vector again, with a progress bar."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    done = 0
    install_at_first_use(embedder)
    with (
        open_writable(store, workspace, embedder=embedder) as dm,
        Progress(
            *columns, console=PlainConsole(stderr=True), transient=True, disable=not sys.stderr.isatty()
        ) as progress,
    ):
        bar = progress.add_task("Computing vectors", total=None)
        for done, left in dm.memory.reindex():
            progress.update(bar, completed=done, total=done + left)
    PlainConsole().print_line(f"{done:,} vectors computed. Searches use them from now on.")
