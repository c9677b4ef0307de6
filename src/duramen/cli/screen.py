"""Where output goes: tables and lines to standard output, complaints and progress to standard error."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

from .terminal_text import visible

READER_GONE = 141
"""The exit code when whoever read our output left: what a shell reports for any tool in that place."""
_GAP = 2
_WITHOUT_TERMINAL = 120


class Screen(Console):
    """A console that takes text literally: no markup, no emoji codes, no highlighting."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, width=_width())

    def on_broken_pipe(self) -> NoReturn:
        leave_quietly()

    def say(self, *parts: str | tuple[str, str]) -> None:
        """One line of text pieces, each plain or with a style; untrusted pieces come in made visible."""
        self.print(Text.assemble(*parts), soft_wrap=True)


def _width() -> int | None:
    """None where rich finds out by itself: a terminal on any stream, or COLUMNS."""
    asked = "COLUMNS" in os.environ or any(os.isatty(stream) for stream in range(3))
    return None if asked else _WITHOUT_TERMINAL


def leave_quietly() -> NoReturn:
    """End without a word: the reader of our output went away, as `head` does."""
    silence()
    raise SystemExit(READER_GONE)


def silence() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not fail on it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def expect_json() -> None:
    """Make standard output UTF-8 with plain line ends, whatever the locale: that is what JSON Lines are."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")


def print_json(value: Any, *, now: bool = False) -> None:
    """One JSON object on a line; `now` for readers who wait for it."""
    from .json_format import json_text

    try:
        sys.stdout.write(json_text(value) + "\n")
        if now:
            sys.stdout.flush()
    except BrokenPipeError:
        leave_quietly()


class Cell(NamedTuple):
    """A value as it can be shown, in its own style or the column's."""

    text: str
    style: str = ""


Row = Sequence[Cell]


def cell(value: object, style: str = "") -> Cell:
    """A value of the journal, made safe to show; nothing for None."""
    return Cell("" if value is None else visible(str(value)), style)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a sheet: between `least` and `most` wide, as its first rows need. Long values go on in the next
    line, so that nothing is lost; the `rest` column takes the room that is left and cuts."""

    title: str
    least: int = 1
    most: int = 24
    style: str = ""
    right: bool = False
    rest: bool = False


class Sheet:
    """A table that is printed as its rows come. The first rows decide the widths; nothing is kept."""

    def __init__(self, screen: Screen, columns: Sequence[Column]) -> None:
        self._screen = screen
        self._columns = columns
        self._needs: list[int] = []

    def begin(self, rows: Iterable[Row]) -> None:
        """Print the titles, with room for these rows."""
        self._needs = [max(column.least, len(column.title)) for column in self._columns]
        for row in rows:
            for index, (column, cell) in enumerate(zip(self._columns, row, strict=True)):
                self._needs[index] = max(self._needs[index], min(column.most, cell_len(cell.text)))
        self.add([[Cell(column.title, "bold") for column in self._columns]])

    def add(self, rows: Iterable[Row]) -> None:
        """Print rows under the titles."""
        text, widths = Text(), self._widths()
        for row in rows:
            self._write(text, row, widths)
        self._screen.print(text, soft_wrap=True, end="")

    def rest_width(self) -> int:
        """How wide the last column is now."""
        return self._widths()[-1]

    def _write(self, text: Text, row: Row, widths: list[int]) -> None:
        """A row on as many lines as its longest value needs."""
        parts = [
            _cut(cell.text, width) if column.rest else _folded(cell.text, width)
            for cell, column, width in zip(row, self._columns, widths, strict=True)
        ]
        for number in range(max(map(len, parts))):
            gap = 0  # put off until something follows it: no line ends in blanks
            for index, column in enumerate(self._columns):
                part = parts[index][number] if number < len(parts[index]) else ""
                padding = widths[index] - cell_len(part)
                if part:
                    text.append(" " * (gap + padding * column.right))
                    text.append(part, row[index].style or column.style)
                    gap = 0
                gap += _GAP + (padding if not (part and column.right) else 0)
            text.append("\n")

    def _widths(self) -> list[int]:
        """The widths in the terminal as it is now: the widest columns give way until the rest has room."""
        widths, last = list(self._needs), self._columns[-1]
        room = self._screen.width - _GAP * (len(widths) - 1)
        if last.rest:
            widths[-1] = last.least
        while sum(widths) > room:
            spare = [width - max(column.least, 4) for width, column in zip(widths, self._columns, strict=True)]
            widest = max(range(len(spare)), key=spare.__getitem__)
            if spare[widest] <= 0:
                break
            widths[widest] -= 1
        if last.rest:
            widths[-1] = max(widths[-1], room - sum(widths[:-1]))
        return widths


def _cut(text: str, width: int) -> list[str]:
    return [text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"]


def _folded(text: str, width: int) -> list[str]:
    return [text] if cell_len(text) <= width else chop_cells(text, width)
