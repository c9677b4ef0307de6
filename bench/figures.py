"""Medians and ratios, and the output of the benchmarks as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Rates = dict[str, list[float]]
"""The measurements of each system, one per round."""
Figures = Mapping[str, float | None]
"""Figures by name. None if a figure was not measured."""


def rate(count: int, work: Callable[[], Any]) -> float:
    """Operations per second of `work`, which executes `count` of them."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def median(values: list[float]) -> float | None:
    """The median; None if nothing was measured."""
    return statistics.median(values) if values else None


def ratio(rates: Rates, one: str, other: str) -> float | None:
    """The ratio of two medians; None if one was not measured."""
    above, below = median(rates[one]), median(rates[other])
    return None if above is None or below is None else above / below


def print_figures(title: str, figures: Figures, measurements: Mapping[str, Rates], notes: Iterable[str] = ()) -> None:
    """Print a table of the figures, the medians of the measurements behind them, and notes.

    A key of `measurements` is a label with `{}` for the name of the system.
    """
    table = Table(title=title)
    table.add_column("figure")
    table.add_column("measured", justify="right")
    for name, value in figures.items():
        table.add_row(name, "null" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}")
    for label, rates in measurements.items():
        for name, values in rates.items():
            if values:
                table.add_row(f"[dim]{label.format(name)}", f"[dim]{statistics.median(values):,.0f}")
    Console().print(table)
    for note in notes:
        print(note)


def figures_json(figures: Figures) -> str:
    """The figures as one JSON object. `a.1` and `a.4` become an object `a`."""
    nested: dict[str, Any] = {}
    for name, value in figures.items():
        key, _, inner = name.partition(".")
        rounded = None if value is None else round(value, 4)
        if inner:
            nested.setdefault(key, {})[inner] = rounded
        else:
            nested[key] = rounded
    return json.dumps(nested)


def argument_parser(description: str, rounds: int) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark that measures peers."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"number of rounds (default: {rounds})")
    home = Path(__file__).parents[1] / ".venv" / "peers"
    parser.add_argument("--peers", metavar="FOLDER", type=Path, default=home, help="virtual environment of the peers")
    parser.add_argument("--no-peers", action="store_true", help="do not install or measure peers")
    return parser
