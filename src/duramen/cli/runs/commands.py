"""`duramen run …`: one run, looked at, gone on with, or told something."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, OneRun, Store, Tasks, Workspace

run = typer.Typer(no_args_is_help=True, help="Look at one run, go on with it, or tell it something.")


@run.command()
def show(run: OneRun, store: Store = "duramen.db", workspace: Workspace = "default", json: Json = False) -> None:
    """Show a run: how it stands, what it waits for, and each step from its intent to its outcome."""
    from ..open_store import opened
    from .show_run import show_run

    with opened(store, workspace) as dm:
        show_run(dm, run, json)


@run.command()
def resume(run: OneRun, tasks: Tasks, store: Store = "duramen.db", workspace: Workspace = "default") -> None:
    """Go on with a run here and print its result as JSON. Writes.

    Waits while the run sleeps or somebody else executes it. Exit code 1 if it failed, 3 if it needs somebody.
    """
    from .execute import resume as go_on

    go_on(store, workspace, run, tasks)


@run.command()
def cancel(
    run: OneRun,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    reason: Annotated[str | None, typer.Option(help="Why; it is journaled.")] = None,
) -> None:
    """Stop a run at its next step and let what it did be undone. Writes."""
    from .actions import cancel as stop
    from .actions import writable

    with writable(store, workspace) as dm:
        stop(dm, run, reason)


@run.command()
def fork(
    run: OneRun,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The id of the new run.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    at: Annotated[
        int | None, typer.Option(min=1, help="The last event to share; before its end, if not given.")
    ] = None,
) -> None:
    """Make a new run that shares another's events up to a position and goes on from there. Writes."""
    from .actions import fork as branch
    from .actions import writable

    with writable(store, workspace) as dm:
        branch(dm, run, new, at)


@run.command()
def settle(
    run: OneRun,
    verdict: Annotated[str, typer.Argument(metavar="done|retry|abort", help="What became of the step.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    value: Annotated[str | None, typer.Option(metavar="JSON", help="The step's result, with done.")] = None,
    step: Annotated[str | None, typer.Option(metavar="NAME", help="Which step, if several are in doubt.")] = None,
) -> None:
    """Say what became of a step in doubt: it is done, it shall be tried again, or the run shall fail. Writes."""
    from .actions import json_given, writable
    from .actions import settle as say

    if value is not None and verdict != "done":
        raise typer.BadParameter("only a step that is done has a result", param_hint="--value")
    result = json_given(value, "--value")
    with writable(store, workspace) as dm:
        say(dm, run, verdict, result, step)


@run.command(context_settings={"ignore_unknown_options": True})  # -5 is an answer
def answer(
    run: OneRun,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The answer, such as true or '\"aisle\"'.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    question: Annotated[str | None, typer.Option(metavar="TEXT", help="Which question, if it asked several.")] = None,
) -> None:
    """Answer the question that a run has asked. Writes."""
    from .actions import answer as reply
    from .actions import json_given, writable

    given = json_given(value, "the answer")
    with writable(store, workspace) as dm:
        reply(dm, run, given, question)
