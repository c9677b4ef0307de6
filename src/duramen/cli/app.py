"""The commands and their options.

A command imports its code when it runs, so that `--help` is fast. The help shows the first paragraph of a docstring
rewrapped and the others with their line breaks, so their lines have at most 78 characters.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from .files.commands import import_, sync
from .memory.commands import memory, proposals
from .memory.model_commands import model
from .options import (
    Json,
    Limit,
    OptionalSession,
    RunArgument,
    SessionArgument,
    Store,
    Tasks,
    Timeout,
    WatchTimeout,
    Workspace,
)
from .runs.commands import run

app = typer.Typer(
    name="duramen",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(run, name="run")
app.add_typer(memory, name="memory")
app.add_typer(proposals, name="proposals")
app.command("sync")(sync)
app.command("import")(import_)
app.add_typer(model, name="model")


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"duramen {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def duramen(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Inspect the journal of an AI agent: what it did, when, who asked, what it remembers, and whether the history
    was changed.

    These write to the store: worker, signal, reindex, sync, import,
    memory add, edit, forget and confirm, proposals accept and dismiss,
    run resume, cancel, fork, settle and answer.

    The other commands open the store readonly, and `model` opens no store.
    No command creates a store.

    Keys are read from the environment only: DURAMEN_KEY for sealed payloads,
    DURAMEN_FILE_KEY for an encrypted SQLite file.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def sessions(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    limit: Limit = None,
    json: Json = False,
) -> None:
    """List the sessions: number of events, first and last event, fork, status."""
    from .journal.sessions import list_sessions
    from .open_store import open_readonly

    with open_readonly(store, workspace) as dm:
        list_sessions(dm, limit, json)


@app.command()
def show(
    session: SessionArgument,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    start: Annotated[int, typer.Option(min=1, metavar="POSITION", help="The first position to show.")] = 1,
    stop: Annotated[int | None, typer.Option(min=1, metavar="POSITION", help="The last position to show.")] = None,
    type: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", metavar="TYPE", help="Show only events of this type. Repeatable."),
    ] = None,
    backwards: Annotated[bool, typer.Option("--backwards", "-b", help="Newest first.")] = False,
    limit: Limit = None,
    full: Annotated[bool, typer.Option("--full", "-f", help="Show all data of each event, and its hash.")] = False,
    json: Json = False,
) -> None:
    """Show the events of a session. Times are in UTC. The cause is the position of the event that led to this one."""
    from ..api.options import ReadOptions
    from .journal.timeline import show_events
    from .open_store import existing_session, open_readonly

    options = ReadOptions(start=start, stop=stop, types=type or None, backwards=backwards, limit=limit)
    with open_readonly(store, workspace) as dm:
        show_events(existing_session(dm, session), options, as_json=json, full=full)


@app.command()
def tail(
    session: OptionalSession = None,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    after: Annotated[int | None, typer.Option(min=0, metavar="POSITION", help="Begin after this position.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="N", help="Begin with the last N events.")] = 10,
    timeout: Timeout = None,
    json: Json = False,
) -> None:
    """Show new events of one session, or of all sessions, as any process appends them. Stop with Ctrl-C."""
    if session is None and after is not None:
        raise typer.BadParameter("needs a SESSION: each session has its own positions", param_hint="--after")
    try:
        from .journal.tail import event_printer, tail_session, tail_workspace
        from .open_store import existing_session, open_readonly

        with open_readonly(store, workspace) as dm:
            if session is None:
                tail_workspace(dm, lines, timeout, event_printer(several=True, as_json=json))
            else:
                found = existing_session(dm, session)
                tail_session(found, after, lines, timeout, event_printer(several=False, as_json=json))
    except KeyboardInterrupt:
        raise typer.Exit from None  # Ctrl-C is the normal end of this command


@app.command()
def reindex(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    embedder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="minilm or openai:NAME@URL. Default: DURAMEN_EMBEDDER, or minilm.", show_default=False
        ),
    ] = None,
) -> None:
    """Compute the vectors of all memories again, for instance with another embedder. Writes to the store.

    Searches use the old vectors until the new ones are complete.
    If the command is interrupted, run it again: it continues.
    """
    from .memory.reindex import reindex_memories

    reindex_memories(store, workspace, embedder)


@app.command()
def verify(
    session: OptionalSession = None,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    json: Json = False,
) -> None:
    """Check every event against the hash chain, every blob, and the database. The exit code is 1 if there is damage."""
    from .journal.verify import verify_store

    if not verify_store(store, workspace, session, json):
        raise typer.Exit(1)


@app.command()
def export(
    session: OptionalSession = None,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="PATH", help="A file, or - for standard output. For memories, a folder."
        ),
    ] = "-",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    format: Annotated[
        str,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help="events, or memories as claude, openclaw, basic-memory or jsonl."
        ),
    ] = "events",
    subject: Annotated[
        str | None,
        typer.Option(metavar="PERSON", help="Export only memories about this person and memories about no person."),
    ] = None,
) -> None:
    """Export events as JSON Lines, or memories as files of another program.

    Exported data is not sealed. A file of events is written completely or
    not at all, and only its owner can read it.
    """
    from .journal.export import check_target, export_events
    from .open_store import open_readonly

    if format != "events":
        if session is not None:
            raise typer.BadParameter("cannot be used with memories: they belong to the workspace", param_hint="SESSION")
        from .files.sync import export_files

        with open_readonly(store, workspace) as dm:
            export_files(dm, format, output, subject)
        return
    if subject is not None:
        raise typer.BadParameter("needs --format with a format of memories", param_hint="--subject")
    target = check_target(output, store, force)
    with open_readonly(store, workspace) as dm:
        export_events(dm, session, target, force)


@app.command()
def runs(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    status: Annotated[
        list[str] | None, typer.Option(metavar="STATUS", help="List only runs with this status. Repeatable.")
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="List only runs of this task.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="List only runs in this queue.")] = None,
    parent: Annotated[str | None, typer.Option(metavar="RUN", help="List only runs that this run started.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, metavar="N", help="List at most N runs.")] = 100,
    watch: Annotated[bool, typer.Option("--watch", help="Update the list until Ctrl-C.")] = False,
    timeout: WatchTimeout = None,
    json: Json = False,
) -> None:
    """List the runs, newest first, with their status and what they wait for."""
    if timeout is not None and not watch:
        raise typer.BadParameter("needs --watch", param_hint="--timeout")
    try:
        from .open_store import open_readonly
        from .runs.list_runs import list_runs, run_filter, watch_runs

        wanted = run_filter(status, task, queue, parent, limit)
        with open_readonly(store, workspace) as dm:
            if watch:
                watch_runs(dm, wanted, timeout, json)
            else:
                list_runs(dm, wanted, json)
    except KeyboardInterrupt:
        if not watch:
            raise
        raise typer.Exit from None  # Ctrl-C is the normal end of --watch


@app.command()
def signal(
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the signal that the run waits for.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    data: Annotated[str | None, typer.Option(metavar="JSON", help="The payload of the signal.")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Idempotency key: signals with the same key count once.")
    ] = None,
) -> None:
    """Send a signal to an open run. It is stored until the run receives it. Writes to the store."""
    from .open_store import open_writable
    from .runs.actions import parse_json, send_signal

    payload = parse_json(data, "--data")
    with open_writable(store, workspace) as dm:
        send_signal(dm, run, name, payload, key)


@app.command()
def worker(
    tasks: Annotated[
        list[str],
        typer.Argument(metavar="MODULE[:NAME]...", help="A task, a list of tasks, or a module that has tasks."),
    ],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, metavar="N", help="Execute up to N runs at the same time.")
    ] = 8,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when no run is due.")] = False,
) -> None:
    """Execute runs of these tasks as they come due, until Ctrl-C or SIGTERM. Writes to the store.

    A list may also hold queues and schedules. A module without a name means
    all tasks, queues and schedules in it. Modules are also searched in the
    current directory.
    """
    from .open_store import open_writable
    from .runs.task_lookup import load_declarations
    from .runs.worker import work

    declarations = load_declarations(tasks)
    with open_writable(store, workspace, keep_unknown=False) as dm:
        work(dm, declarations, concurrency, until_idle)


@app.command()
def replay(
    run: RunArgument,
    tasks: Tasks,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    at: Annotated[
        int | None, typer.Option(min=1, metavar="POSITION", help="Use only the events up to this position.")
    ] = None,
) -> None:
    """Call the task of a run again with all outcomes from the journal, and print its result as JSON.

    No step is executed.

    The exit code is 1 if the run failed, and 3 if the journal ends before
    the task does.
    """
    from .runs.execute import replay_run

    replay_run(store, workspace, run, tasks, at)


def main() -> None:
    """Run a command. A failure prints a message and sets the exit code; it prints no traceback."""
    sys.setrecursionlimit(5000)  # to show data as deep as the journal accepts
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # so that no locale stops the output
    try:
        try:
            app(prog_name="duramen")
        finally:
            _flush()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:  # the outermost frame: nothing above it handles errors
        if os.environ.get("DURAMEN_DEBUG"):
            raise
        from .error_output import FAILED, print_exception

        print_exception(error)
        raise SystemExit(FAILED) from None


def _flush() -> None:
    """Flush standard output while an error can still be reported."""
    try:
        sys.stdout.flush()
    except OSError as error:
        from .console import discard_stdout, exit_on_closed_pipe

        if isinstance(error, BrokenPipeError):
            exit_on_closed_pipe()
        discard_stdout()
        raise


if __name__ == "__main__":
    main()
