"""Recognises tables in text: columns, number of rows, first row."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from ..compaction.trim import plain
from .documents import TextFormat
from .long_text import LongText, counted, shown
from .sketch import Piece, Slot

_LOOK = 24
"""Lines that are read to recognise the columns."""
_NAME = 48
"""The longest name of a column, in characters."""
_RULES = " \t\r|+:=─━═┼┿╪├┤┌┐└┘┬┴╭╮╰╯┏┓┗┛┡┩┳┻╇╈-"
_BARS = re.compile(r"[|│┃]")
_GAP = re.compile(r"\s{2,}|\t+")
_DELIMITED = ((",", "CSV table"), ("\t", "TSV table"), (";", "CSV table"))


def table(output: LongText) -> TextFormat | None:
    """The table in a text. None if the text is not a table."""
    if output.lines < 3:
        return None
    return _delimited(output) or _barred(output) or _aligned(output)


def _table_format(
    name: str, columns: Sequence[str], rows: int, first: Sequence[str], *, named: bool = True
) -> TextFormat:
    size = f"{counted(rows, 'row')}, {counted(len(columns), 'column')}"
    pieces = [Piece(Slot.SHAPE, ", ".join(map(plain, columns)), 0.4, "columns: ")] if named else []
    pieces.append(Piece(Slot.EXAMPLE, ", ".join(map(plain, first)), 0.35, "first row: "))
    return TextFormat(f"{name}, {size}", pieces, prose=True)


def _delimited(output: LongText) -> TextFormat | None:
    head = [line + "\n" for line in output.head[: _LOOK * 2] if line.strip()]
    for delimiter, name in _DELIMITED:
        try:
            rows = list(csv.reader(head, delimiter=delimiter))[:_LOOK]
        except csv.Error:
            continue
        if len(rows) > 1 and _is_even(rows, delimiter):
            named = _names_columns(rows[0])
            if named or len(rows[0]) > 2:
                count = _records(output.text) - named
                return _table_format(name, rows[0], count, rows[int(named)], named=named)
    return None


def _is_even(rows: list[list[str]], delimiter: str) -> bool:
    width = len(rows[0])
    # The last row may be cut off.
    if width < 2 or any(len(row) != width for row in rows[:-1]):
        return False
    cells = [cell for row in rows for cell in row]
    # Prose has commas too, but followed by spaces, and between long phrases.
    loose = sum(cell.startswith(" ") for cell in cells)
    return sum(map(len, cells)) <= _NAME * len(cells) and (delimiter != "," or loose * 2 < len(cells))


def _names_columns(row: Sequence[str]) -> bool:
    cells = [cell.strip() for cell in row]
    fit = all(cell and len(cell) <= _NAME and not cell[0].isdigit() and cell[0] not in "-+[{<(" for cell in cells)
    return fit and len(set(cells)) == len(cells)


def _records(text: str) -> int:
    """The number of rows. Line breaks inside quotation marks do not count."""
    if '"' not in text:
        return text.rstrip().count("\n") + 1
    outside = text.rstrip().split('"')[::2]
    return "".join(outside).count("\n") + 1


def _barred(output: LongText) -> TextFormat | None:
    """A table of Markdown, psql or box characters: columns between bars, with a rule below the header."""
    lines = [line.rstrip() for line in output.head if line.strip()]
    at = next((at for at, line in enumerate(lines[:6]) if _BARS.search(line) and line.strip(_RULES)), None)
    if at is None or at + 2 >= len(lines) or lines[at + 1].strip(_RULES):
        return None
    row = next((line for line in lines[at + 2 :] if line.strip(_RULES)), "")
    columns, first = _cells(lines[at]), _cells(row)
    if len(columns) < 2 or len(first) != len(columns):
        return None
    # In a box, the header may have other bars than the rows.
    bar = _BARS.findall(row)[0]
    return _table_format("table", columns, _barred_lines(output, bar) - (bar in lines[at]), first)


def _barred_lines(output: LongText, bar: str) -> int:
    lines = output.text.split("\n")
    rules = sum(1 for line in output.head if bar in line and not line.strip(_RULES))
    if rules > 1:  # there are rules between the rows
        return sum(1 for line in lines if bar in line and line.strip(_RULES))
    return sum(bar in line for line in lines) - rules


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _BARS.split(shown(line).strip("|│┃ "))]


def _aligned(output: LongText) -> TextFormat | None:
    """A table with columns of fixed width, each aligned with its name."""
    lines = [line.rstrip().expandtabs() for line in output.head[:_LOOK] if line.strip()]
    if len(lines) < 3:
        return None
    columns = _GAP.split(lines[0].strip())
    if len(columns) < 3 or not _names_columns(columns):
        return None
    starts = [match.end() for match in _GAP.finditer(lines[0]) if match.start()]
    below = [line for line in lines[1:] if line.strip(_RULES)]
    fits = sum(all(line[at - 1 : at].isspace() and not line[at : at + 1].isspace() for at in starts) for line in below)
    if not below or fits * 5 < len(below) * 4:
        return None
    first = [below[0][start:end] for start, end in zip([0, *starts], [*starts, None], strict=True)]
    rules = sum(1 for line in lines if not line.strip(_RULES))
    return _table_format("table", columns, output.lines - 1 - rules, [cell.strip() for cell in first])
