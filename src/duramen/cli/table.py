"""Tables that are printed while their rows arrive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from .console import PlainConsole
from .terminal_text import visible

_GAP = 2


class Cell(NamedTuple):
    """A value that is safe to print. An empty `style` means the style of the column."""

    text: str
    style: str = ""


Row = Sequence[Cell]


def cell(value: object, style: str = "") -> Cell:
    """A cell with a journaled value, escaped. None gives an empty cell."""
    return Cell("" if value is None else visible(str(value)), style)


@dataclass(frozen=True, slots=True)
class Column:
    """A column between `min_width` and `max_width` wide, as its first rows need.

    A longer value continues on the next line. A `fill` column takes the remaining width and cuts longer values.
    """

    title: str
    min_width: int = 1
    max_width: int = 24
    style: str = ""
    align_right: bool = False
    fill: bool = False


class Table:
    """A table that prints rows as they arrive and stores none. The first rows set the widths."""

    def __init__(self, console: PlainConsole, columns: Sequence[Column]) -> None:
        self._console = console
        self._columns = columns
        self._wanted: list[int] = []

    def begin(self, rows: Iterable[Row]) -> None:
        """Print the titles. The widths fit these rows."""
        self._wanted = [max(column.min_width, len(column.title)) for column in self._columns]
        for row in rows:
            for index, (column, cell) in enumerate(zip(self._columns, row, strict=True)):
                self._wanted[index] = max(self._wanted[index], min(column.max_width, cell_len(cell.text)))
        self.add([[Cell(column.title, "bold") for column in self._columns]])

    def add(self, rows: Iterable[Row]) -> None:
        """Print rows."""
        text, widths = Text(), self._widths()
        for row in rows:
            self._append_row(text, row, widths)
        self._console.print(text, soft_wrap=True, end="")

    def fill_width(self) -> int:
        """The current width of the last column."""
        return self._widths()[-1]

    def _append_row(self, text: Text, row: Row, widths: list[int]) -> None:
        """Append a row, on as many lines as its longest value needs."""
        lines = [
            _cut(cell.text, width) if column.fill else _folded(cell.text, width)
            for cell, column, width in zip(row, self._columns, widths, strict=True)
        ]
        for number in range(max(map(len, lines))):
            gap = 0  # written before the next part, so that no line ends in blanks
            for index, column in enumerate(self._columns):
                part = lines[index][number] if number < len(lines[index]) else ""
                padding = widths[index] - cell_len(part)
                if part:
                    text.append(" " * (gap + padding * column.align_right))
                    text.append(part, row[index].style or column.style)
                    gap = 0
                gap += _GAP + (padding if not (part and column.align_right) else 0)
            text.append("\n")

    def _widths(self) -> list[int]:
        """The widths for the current terminal. The widest columns shrink until the fill column has room."""
        widths, last = list(self._wanted), self._columns[-1]
        room = self._console.width - _GAP * (len(widths) - 1)
        if last.fill:
            widths[-1] = last.min_width
        while sum(widths) > room:
            spare = [width - max(column.min_width, 4) for width, column in zip(widths, self._columns, strict=True)]
            widest = max(range(len(spare)), key=spare.__getitem__)
            if spare[widest] <= 0:
                break
            widths[widest] -= 1
        if last.fill:
            widths[-1] = max(widths[-1], room - sum(widths[:-1]))
        return widths


def _cut(text: str, width: int) -> list[str]:
    return [text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"]


def _folded(text: str, width: int) -> list[str]:
    return [text] if cell_len(text) <= width else chop_cells(text, width)
