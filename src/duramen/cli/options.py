"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Store = Annotated[
    str,
    typer.Option(
        "--store", "-s", metavar="ADDRESS", envvar="DURAMEN_STORE", help="A SQLite file or a postgresql:// URL."
    ),
]
Workspace = Annotated[
    str,
    typer.Option("--workspace", "-w", metavar="NAME", envvar="DURAMEN_WORKSPACE", help="The workspace (tenant)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on each line.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="Show at most N entries.")]
Timeout = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Exit after this many seconds without an event.")
]
WatchTimeout = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="With --watch: exit after this many seconds.")
]
SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="The id of a session.")]
OptionalSession = Annotated[
    str | None, typer.Argument(metavar="SESSION", help="The id of a session. Default: all sessions.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.")]
Tasks = Annotated[
    list[str],
    typer.Option(
        "--tasks", "-t", metavar="MODULE[:NAME]", help="The task, or a list or module that has it. Repeatable."
    ),
]
