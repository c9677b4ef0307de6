"""The commands and their options. A command imports its code when it runs, so that `--help` is fast."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from .files.commands import import_, sync
from .memory.commands import memory, proposals
from .memory.model_commands import model
from .options import Json, Limit, OptionalSession, RunArgument, SessionArgument, Store, Tasks, Timeout, Workspace
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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Inspect the journal of an AI agent: what it did, when, who asked, what it remembers, and whether the history
    was changed.

    These write to a store: worker, signal, reindex, sync, import, memory add, edit, forget and confirm, proposals accept
    and dismiss, run resume, cancel, fork, settle and answer.

    All others open it readonly. No command creates a store; `model` opens none.

    Keys come from the environment only: DURAMEN_KEY (sealed payloads), DURAMEN_FILE_KEY (encrypted SQLite file).
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
    """List the sessions: number of events, first and last activity, fork, status."""
    from .journal.sessions import list_sessions
    from .open_store import open_readonly

    with open_readonly(store, workspace) as dm:
        list_sessions(dm, limit, json)


@app.command()
def show(
    session: SessionArgument,
    store: Store = "duramen.db",
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
    after: Annotated[int | None, typer.Option(min=0, help="Begin after this position.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Begin with so many of the last.")] = 10,
    timeout: Timeout = None,
    json: Json = False,
) -> None:
    """Follow a session, or all of them, as events are journaled by any process. Ctrl-C ends it."""
    if session is None and after is not None:
        raise typer.BadParameter("positions count in one session: name it", param_hint="--after")
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
        raise typer.Exit from None  # the usual way to end it, not a failure


@app.command()
def reindex(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    embedder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help='"minilm", "openai:NAME@URL", …; else DURAMEN_EMBEDDER, else minilm.'),
    ] = None,
) -> None:
    """Compute the vectors of all memories again, with this or another embedder. Writes to the store.

    Searches use the old vectors until the new ones are complete. Ctrl-C or a kill loses nothing: the next call
    continues.
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
    """Check every event against the hash chain, every blob, and the database. Exit code 1 if there is damage."""
    from .journal.verify import verify_store

    if not verify_store(store, workspace, session, json):
        raise typer.Exit(1)


@app.command()
def export(
    session: OptionalSession = None,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="A file; - is standard output.")] = "-",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    format: Annotated[
        str, typer.Option("--format", "-f", help="events; or memories as claude, openclaw, basic-memory, jsonl.")
    ] = "events",
    subject: Annotated[str | None, typer.Option(help="With memories: about this person and about no person.")] = None,
) -> None:
    """Write events as JSON Lines, unsealed; a file appears whole or not at all. With --format, memories to a folder."""
    from .journal.export import check_target, export_events
    from .open_store import open_readonly

    if format != "events":
        if session is not None:
            raise typer.BadParameter("memories are the workspace's", param_hint="SESSION")
        from .files.sync import export_files

        with open_readonly(store, workspace) as dm:
            export_files(dm, format, output, subject)
        return
    if subject is not None:
        raise typer.BadParameter("only memories are chosen by person", param_hint="--subject")
    target = check_target(output, store, force)
    with open_readonly(store, workspace) as dm:
        export_events(dm, session, target, force)


@app.command()
def runs(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    status: Annotated[list[str] | None, typer.Option(help="Only such runs. Repeatable.")] = None,
    task: Annotated[str | None, typer.Option(help="Only runs of this task.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only runs in this queue.")] = None,
    parent: Annotated[str | None, typer.Option(metavar="RUN", help="Only children of this run.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many.")] = 100,
    watch: Annotated[bool, typer.Option("--watch", help="Show changes until Ctrl-C.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="With --watch: end after so many seconds.")] = None,
    json: Json = False,
) -> None:
    """List the runs, newest first: the status of each and what it waits for."""
    if timeout is not None and not watch:
        raise typer.BadParameter("only --watch goes on for a time", param_hint="--timeout")
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
        raise typer.Exit from None  # the usual way to end it, not a failure


@app.command()
def signal(
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that the run receives it by.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    data: Annotated[str | None, typer.Option(metavar="JSON", help="The payload of the signal.")] = None,
    key: Annotated[str | None, typer.Option(help="A signal that is sent again under the same key counts once.")] = None,
) -> None:
    """Send a signal to an open run. It is kept until the run receives it. Writes."""
    from .open_store import open_writable
    from .runs.actions import parse_json, send_signal

    payload = parse_json(data, "--data")
    with open_writable(store, workspace) as dm:
        send_signal(dm, run, name, payload, key)


@app.command()
def worker(
    tasks: Annotated[
        list[str], typer.Argument(metavar="MODULE[:NAME]...", help="A task, a list of them, or a module with them.")
    ],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Runs at the same time.")] = 8,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is due any more.")] = False,
) -> None:
    """Execute runs of these tasks as they come due, until Ctrl-C or SIGTERM. Writes.

    A list may also hold queues and schedules. A module stands for all tasks, queues and schedules in it. Modules in the
    current directory can be imported.
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
    at: Annotated[int | None, typer.Option(min=1, help="Use the events up to this position.")] = None,
) -> None:
    """Call a run's task again with all outcomes from the journal and print its result as JSON. No step is executed.

    Exit code 1 if the run failed, 3 if the journal ends before the task does.
    """
    from .runs.execute import replay_run

    replay_run(store, workspace, run, tasks, at)


def main() -> None:
    """Run a command. A failure gives a message and an exit code, no traceback."""
    sys.setrecursionlimit(5000)  # data as deep as the journal accepts must also be shown
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a narrow locale must not stop the output
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
