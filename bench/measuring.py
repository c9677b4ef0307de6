"""What the benchmarks share: ratios of medians, a table with what must be reached, a JSON object at the end."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Rates = dict[str, list[float]]
"""What was measured, round by round, under the name of who did it."""
Must = tuple[str, float] | None
"""">=" or "<=" and a bound; None for a figure that is only told."""


def rate(count: int, work: Callable[[], Any]) -> float:
    """Operations a second of `work`, which does `count` of them."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def middle(values: list[float]) -> float | None:
    """The median; None if nothing was measured."""
    return statistics.median(values) if values else None


def ratio(rates: Rates, one: str, other: str) -> float | None:
    """Of medians; None if one was not measured."""
    above, below = middle(rates[one]), middle(rates[other])
    return None if above is None or below is None else above / below


def show(
    title: str, figures: dict[str, float | None], must: dict[str, Must], behind: dict[str, Rates], notes: Iterable[str]
) -> None:
    """A table of the figures, with the medians behind them dimmed; then what there is to say."""
    table = Table(title=title)
    for column in ("figure", "measured", "must reach", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, value in figures.items():
        bound = must[name]
        wanted = "" if bound is None else f"{bound[0]} {bound[1]:,g}"
        table.add_row(name, "null" if value is None else f"{value:,.4g}", wanted, verdict(value, bound))
    for label, rates in behind.items():
        for name, values in rates.items():
            if values:
                table.add_row(f"[dim]{label.format(name)}", f"[dim]{statistics.median(values):,.0f}", "", "")
    Console().print(table)
    for note in notes:
        print(note)


def verdict(value: float | None, must: Must) -> str:
    """Whether it is reached."""
    if value is None or must is None:
        return ""
    sign, bound = must
    return "[green]yes" if (value >= bound if sign == ">=" else value <= bound) else "[red]no"


def as_json(figures: dict[str, float | None]) -> str:
    """`a.1` and `a.4` become an object `a`."""
    nested: dict[str, Any] = {}
    for name, value in figures.items():
        key, _, inner = name.partition(".")
        rounded = None if value is None else round(value, 4)
        if inner:
            nested.setdefault(key, {})[inner] = rounded
        else:
            nested[key] = rounded
    return json.dumps(nested)


def arguments(description: str, rounds: int) -> argparse.ArgumentParser:
    """What every benchmark with peers takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"how often each is measured ({rounds})")
    home = Path(__file__).parents[1] / ".venv" / "peers"
    parser.add_argument("--peers", metavar="FOLDER", type=Path, default=home, help="where they are, or shall be")
    parser.add_argument("--no-peers", action="store_true", help="install and measure none of them")
    return parser
