"""`duramen sync` and `duramen import`: memories as files, and other people's files."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, Store, Workspace


def sync(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", envvar="DURAMEN_FILES", help="Where the files lie; it is made.")
    ] = "memory",
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    git: Annotated[bool, typer.Option("--git", help="Commit each change to git there.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on as files or memories change. Ctrl-C ends it.")] = False,
    deletions: Annotated[
        bool, typer.Option("--deletions", help="Many files are missing at once: treat them as deleted.")
    ] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="With --watch: end after so many seconds.")] = None,
    json: Json = False,
) -> None:
    """Keep memories as markdown files: take in what people changed, write what is remembered. Writes.

    Exit code 1 if files were left alone, which people must look at; each is named with the reason.
    """
    if timeout is not None and not watch:
        raise typer.BadParameter("only --watch goes on for a time", param_hint="--timeout")
    if deletions and watch:
        raise typer.BadParameter("it is said once, without --watch", param_hint="--deletions")
    from ..open_store import open_writable
    from .sync import sync_once, watch_folder

    try:
        with open_writable(store, workspace) as dm:
            if watch:
                watch_folder(dm, folder, git, timeout, json)
            elif not sync_once(dm, folder, git, deletions, json):
                raise typer.Exit(1)
    except KeyboardInterrupt:
        if not watch:
            raise
        raise typer.Exit from None  # the way to end it, so no failure


def import_(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder, or a file.")],
    format: Annotated[str, typer.Option("--format", "-f", help="claude, openclaw, basic-memory or jsonl.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    subject: Annotated[str | None, typer.Option(help="The person whom all of it is about.")] = None,
    json: Json = False,
) -> None:
    """Remember what stands in memory files of Claude Code, OpenClaw, Basic Memory, or in JSON Lines. Writes.

    Doing it again changes nothing. Exit code 1 if something was left out; each is named with line and reason.
    """
    from ..open_store import open_writable
    from .sync import import_files

    with open_writable(store, workspace) as dm:
        if not import_files(dm, path, format, subject, json):
            raise typer.Exit(1)
