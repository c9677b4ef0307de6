"""`duramen run …`: show, resume or change one run."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, RunArgument, Store, Tasks, Workspace

run = typer.Typer(no_args_is_help=True, help="Show, resume or change one run.")


@run.command()
def show(run: RunArgument, store: Store = "duramen.db", workspace: Workspace = "default", json: Json = False) -> None:
    """Show a run: its status, what it waits for, and each step with its intent and outcome."""
    from ..open_store import open_readonly
    from .show_run import show_run

    with open_readonly(store, workspace) as dm:
        show_run(dm, run, json)


@run.command()
def resume(run: RunArgument, tasks: Tasks, store: Store = "duramen.db", workspace: Workspace = "default") -> None:
    """Resume a run in this process and print its result as JSON. Writes to the store.

    The command waits while the run sleeps or another process executes it.
    The exit code is 1 if the run failed, and 3 if it waits for a person or a
    signal.
    """
    from .execute import resume_run

    resume_run(store, workspace, run, tasks)


@run.command()
def cancel(
    run: RunArgument,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason. It is journaled.")] = None,
) -> None:
    """Cancel a run: stop it at its next step and undo what it did. Writes to the store."""
    from ..open_store import open_writable
    from .actions import cancel_run

    with open_writable(store, workspace) as dm:
        cancel_run(dm, run, reason)


@run.command()
def fork(
    run: RunArgument,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The id of the new run.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    at: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="POSITION", help="The last shared event. Default: the last one before the end of the run."
        ),
    ] = None,
) -> None:
    """Create a run that shares the events of a run up to a position and continues from there. Writes to the store."""
    from ..open_store import open_writable
    from .actions import fork_run

    with open_writable(store, workspace) as dm:
        fork_run(dm, run, new, at)


@run.command()
def settle(
    run: RunArgument,
    verdict: Annotated[
        str,
        typer.Argument(
            metavar="done|retry|abort",
            help="done: the step happened. retry: execute it again. abort: let the run fail.",
        ),
    ],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    value: Annotated[str | None, typer.Option(metavar="JSON", help="The result of the step, with done.")] = None,
    step: Annotated[
        str | None, typer.Option(metavar="NAME", help="The step to settle. Required if several are in doubt.")
    ] = None,
) -> None:
    """Decide about a step in doubt: whether it happened, is executed again, or fails the run. Writes to the store."""
    from ..open_store import open_writable
    from .actions import parse_json, settle_step

    if value is not None and verdict != "done":
        raise typer.BadParameter("can only be used with done", param_hint="--value")
    result = parse_json(value, "--value")
    with open_writable(store, workspace) as dm:
        settle_step(dm, run, verdict, result, step)


@run.command(context_settings={"ignore_unknown_options": True})  # so that -5 can be an answer
def answer(
    run: RunArgument,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The answer, such as true or '\"aisle\"'.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    question: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The question to answer. Default: the first open one.")
    ] = None,
) -> None:
    """Answer a question that a run has asked. Writes to the store."""
    from ..open_store import open_writable
    from .actions import answer_run, parse_json

    given = parse_json(value, "the answer")
    with open_writable(store, workspace) as dm:
        answer_run(dm, run, given, question)
