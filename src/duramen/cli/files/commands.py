"""`duramen sync` and `duramen import`: memories as files, and memory files of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..options import Json, Store, WatchTimeout, Workspace

if TYPE_CHECKING:
    from ...files.folder.git import GitMode


def sync(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", envvar="DURAMEN_FILES", help="The folder. It is created if missing.")
    ] = "memory",
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    git: Annotated[bool, typer.Option("--git", help="Commit each change in the folder to git.")] = False,
    git_trusted: Annotated[
        bool,
        typer.Option("--git-trusted", help="Like --git, and run the hooks, filters and signing of the repository."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Sync again whenever files or memories change. Stop with Ctrl-C.")
    ] = False,
    deletions: Annotated[
        bool,
        typer.Option("--deletions", help="Treat missing files as deleted, even if many are missing at once."),
    ] = False,
    timeout: WatchTimeout = None,
    json: Json = False,
) -> None:
    """Sync memories with markdown files: journal the edits of people, then write changed memories.

    Writes to the store.

    The exit code is 1 if files were skipped. Each skipped file is listed
    with the reason.
    """
    if timeout is not None and not watch:
        raise typer.BadParameter("needs --watch", param_hint="--timeout")
    if deletions and watch:
        raise typer.BadParameter("cannot be used with --watch", param_hint="--deletions")
    from ..open_store import open_writable
    from .sync import sync_once, watch_folder

    commits: GitMode = "trusted" if git_trusted else git
    try:
        with open_writable(store, workspace) as dm:
            if watch:
                watch_folder(dm, folder, commits, timeout, json)
            elif not sync_once(dm, folder, commits, deletions, json):
                raise typer.Exit(1)
    except KeyboardInterrupt:
        if not watch:
            raise
        raise typer.Exit from None  # Ctrl-C is the normal end of --watch


def import_(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder or a file.")],
    format: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help="claude, openclaw, basic-memory or jsonl.")
    ],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    subject: Annotated[
        str | None, typer.Option(metavar="PERSON", help="The person that the memories are about.")
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Save preferences and identity at once, without proposals.")
    ] = False,
    json: Json = False,
) -> None:
    """Import memory files of Claude Code, OpenClaw or Basic Memory, or JSON Lines. Writes to the store.

    Preferences and identity become proposals. See `duramen proposals`.
    Importing the same files again changes nothing. The exit code is 1 if
    notes were skipped. Each one is listed with its line and the reason.
    """
    from ..open_store import open_writable
    from .sync import import_files

    with open_writable(store, workspace) as dm:
        if not import_files(dm, path, format, subject, trusted, json):
            raise typer.Exit(1)
