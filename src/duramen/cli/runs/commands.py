"""`duramen run …`: show one run, resume it, or change it."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, RunArgument, Store, Tasks, Workspace

run = typer.Typer(no_args_is_help=True, help="Show one run, resume it, or change it.")


@run.command()
def show(run: RunArgument, store: Store = "duramen.db", workspace: Workspace = "default", json: Json = False) -> None:
    """Show a run: its status, what it waits for, and each step from its intent to its outcome."""
    from ..open_store import open_readonly
    from .show_run import show_run

    with open_readonly(store, workspace) as dm:
        show_run(dm, run, json)


@run.command()
def resume(run: RunArgument, tasks: Tasks, store: Store = "duramen.db", workspace: Workspace = "default") -> None:
    """Resume a run in this process and print its result as JSON. Writes.

    Waits while the run sleeps or another process executes it. Exit code 1 if it failed, 3 if it waits for a person.
    """
    from .execute import resume_run

    resume_run(store, workspace, run, tasks)


@run.command()
def cancel(
    run: RunArgument,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    reason: Annotated[str | None, typer.Option(help="Why; it is journaled.")] = None,
) -> None:
    """Stop a run at its next step and undo what it did. Writes."""
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
        typer.Option(min=1, help="The last event to share; if not given, the last one before the run's end."),
    ] = None,
) -> None:
    """Create a run that shares another's events up to a position and continues from there. Writes."""
    from ..open_store import open_writable
    from .actions import fork_run

    with open_writable(store, workspace) as dm:
        fork_run(dm, run, new, at)


@run.command()
def settle(
    run: RunArgument,
    verdict: Annotated[str, typer.Argument(metavar="done|retry|abort", help="What became of the step.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    value: Annotated[str | None, typer.Option(metavar="JSON", help="The step's result, with done.")] = None,
    step: Annotated[str | None, typer.Option(metavar="NAME", help="Which step, if several are in doubt.")] = None,
) -> None:
    """Settle a step in doubt: it is done, it is tried again, or the run fails. Writes."""
    from ..open_store import open_writable
    from .actions import parse_json, settle_step

    if value is not None and verdict != "done":
        raise typer.BadParameter("only a step that is done has a result", param_hint="--value")
    result = parse_json(value, "--value")
    with open_writable(store, workspace) as dm:
        settle_step(dm, run, verdict, result, step)


@run.command(context_settings={"ignore_unknown_options": True})  # -5 is an answer
def answer(
    run: RunArgument,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The answer, such as true or '\"aisle\"'.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    question: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Which question, if the run asked several.")
    ] = None,
) -> None:
    """Answer the question that a run has asked. Writes."""
    from ..open_store import open_writable
    from .actions import answer_run, parse_json

    given = parse_json(value, "the answer")
    with open_writable(store, workspace) as dm:
        answer_run(dm, run, given, question)
