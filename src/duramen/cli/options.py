"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Store = Annotated[
    str,
    typer.Option("--store", "-s", envvar="DURAMEN_STORE", help="A SQLite file, or a postgresql:// URL."),
]
Workspace = Annotated[
    str,
    typer.Option("--workspace", "-w", envvar="DURAMEN_WORKSPACE", help="The tenant whose sessions and runs to use."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on each line.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Show at most this many.")]
Timeout = Annotated[float | None, typer.Option(min=0, help="End after this many seconds without an event.")]
SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="The id of a session.")]
OptionalSession = Annotated[
    str | None, typer.Argument(metavar="SESSION", help="The id of a session; all sessions if not given.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.")]
Tasks = Annotated[
    list[str],
    typer.Option(
        "--tasks", "-t", metavar="MODULE[:NAME]", help="Where the run's task is: a task, a list, a module. Repeatable."
    ),
]
