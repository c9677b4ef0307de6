"""The commands and their options. What they do lies beside, imported when a command runs: `--help` is quick."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from .. import __version__

app = typer.Typer(
    name="holdfast",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Store = Annotated[
    str,
    typer.Option("--store", "-s", envvar="HOLDFAST_STORE", help="A SQLite file, or a postgresql:// URL."),
]
Workspace = Annotated[
    str,
    typer.Option("--workspace", "-w", envvar="HOLDFAST_WORKSPACE", help="The tenant whose sessions to look at."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on each line.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many.")]
Timeout = Annotated[float | None, typer.Option(min=0, help="End after so many seconds without an event.")]
OneSession = Annotated[str, typer.Argument(metavar="SESSION", help="The id of a session.")]
OrAll = Annotated[str | None, typer.Argument(metavar="SESSION", help="The id of a session; all, if not given.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def holdfast(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Look into the journal of an AI agent: what it did, when, who asked, and whether anybody tampered with it.

    Nothing here can change a store.

    Keys come from the environment only: HOLDFAST_KEY (sealed payloads), HOLDFAST_FILE_KEY (encrypted SQLite file).
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def sessions(
    store: Store = "holdfast.db",
    workspace: Workspace = "default",
    limit: Limit = None,
    json: Json = False,
) -> None:
    """List the sessions: how many events, since when, forked from what, and how each stands."""
    from .reaching import opened
    from .sessions import list_sessions

    with opened(store, workspace) as hf:
        list_sessions(hf, limit, json)


@app.command()
def show(
    session: OneSession,
    store: Store = "holdfast.db",
    workspace: Workspace = "default",
    start: Annotated[int, typer.Option(min=1, help="The first position.")] = 1,
    stop: Annotated[int | None, typer.Option(min=1, help="The last position.")] = None,
    type: Annotated[list[str] | None, typer.Option("--type", "-t", help="Only such events. Repeatable.")] = None,
    backwards: Annotated[bool, typer.Option("--backwards", "-b", help="Newest first.")] = False,
    limit: Limit = None,
    full: Annotated[bool, typer.Option("--full", "-f", help="The whole data of each event, and its hash.")] = False,
    json: Json = False,
) -> None:
    """Show the events of a session: the audit trail. Times are UTC; "cause" is the event that led to this one."""
    from ..aio import ReadOptions
    from .reaching import existing, opened
    from .timeline import show as show_events

    options = ReadOptions(start=start, stop=stop, types=type or None, backwards=backwards, limit=limit)
    with opened(store, workspace) as hf:
        show_events(existing(hf, session), options, as_json=json, full=full)


@app.command()
def tail(
    session: OrAll = None,
    store: Store = "holdfast.db",
    workspace: Workspace = "default",
    after: Annotated[int | None, typer.Option(min=0, help="Begin after this position.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Begin with so many of the last.")] = 10,
    timeout: Timeout = None,
    json: Json = False,
) -> None:
    """Follow a session, or all of them, as events are journaled by any process. Ctrl-C ends it."""
    if session is None and after is not None:
        raise typer.BadParameter("positions count in one session: name it", param_hint="--after")
    try:
        from .reaching import existing, opened
        from .tailing import printer, tail_session, tail_workspace

        with opened(store, workspace) as hf:
            if session is None:
                tail_workspace(hf, lines, timeout, printer(several=True, as_json=json))
            else:
                found = existing(hf, session)
                tail_session(found, after, lines, timeout, printer(several=False, as_json=json))
    except KeyboardInterrupt:
        raise typer.Exit from None  # the way to end it, so no failure


@app.command()
def verify(
    session: OrAll = None,
    store: Store = "holdfast.db",
    workspace: Workspace = "default",
    json: Json = False,
) -> None:
    """Check every event against the hash chain, every blob, and the database. Exit code 1 if there is damage."""
    from .verifying import verify as find_damage

    if not find_damage(store, workspace, session, json):
        raise typer.Exit(1)


@app.command()
def export(
    session: OrAll = None,
    store: Store = "holdfast.db",
    workspace: Workspace = "default",
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="A file; - is standard output.")] = "-",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write events as JSON Lines, unsealed. A file appears whole or not at all."""
    from .exporting import check_target
    from .exporting import export as export_events
    from .reaching import opened

    target = check_target(output, store, force)
    with opened(store, workspace) as hf:
        export_events(hf, session, target, force)


def main() -> None:
    """Run a command. Whatever goes wrong is a message and an exit code, never a traceback."""
    sys.setrecursionlimit(5000)  # data as deep as the journal takes it must also be shown
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a narrow locale must not stop the show
    try:
        try:
            app(prog_name="holdfast")
        finally:
            _flush()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:  # the last frame: nothing above it could do better
        if os.environ.get("HOLDFAST_DEBUG"):
            raise
        from .complaining import FAILED, complain_about

        complain_about(error)
        raise SystemExit(FAILED) from None


def _flush() -> None:
    """Write what is buffered while a failure can still be told."""
    try:
        sys.stdout.flush()
    except OSError as error:
        from .screen import leave_quietly, silence

        if isinstance(error, BrokenPipeError):
            leave_quietly()
        silence()
        raise


if __name__ == "__main__":
    main()
