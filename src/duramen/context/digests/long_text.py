"""A long text to look into: its edges, and the lines in which a needle lies, without a look at every line."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from ..compaction.trim import plain

_REACH = 200
"""Bytes on either side of a find that count as its line; a line of megabytes is looked at in pieces."""
_EDGE = 16384
"""Characters at the beginning and at the end that are looked at line by line."""
_LONGEST = 2000
"""Characters of one line at an edge that are looked at."""
_END = 56
"""Characters of a longer last line that are looked at: its end is what there is to see."""


class Line(NamedTuple):
    """A line, or as much of it as is near a find. `start` and `end` are bytes into the text."""

    start: int
    end: int
    text: str


class LongText:
    """A text as it came. Finds ignore the case of Latin letters."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def raw(self) -> bytes:
        """The text as bytes, in which finds are quick and offsets survive a change of case."""
        return self.text.encode("utf-8", "surrogatepass")

    @cached_property
    def lower(self) -> bytes:
        """The same with Latin letters in lower case."""
        return self.raw.lower()

    @cached_property
    def lines(self) -> int:
        """How many lines there are."""
        return self.text.count("\n") + (bool(self.text) and not self.text.endswith("\n"))

    @property
    def size(self) -> str:
        """Characters and lines, in words."""
        return f"{counted(len(self.text), 'character')}, {counted(self.lines, 'line')}"

    @cached_property
    def head(self) -> list[str]:
        """The first lines as they are; not one that goes on beyond the edge, unless it is the only one."""
        lines = self.text[:_EDGE].split("\n")
        return lines[:-1] if len(lines) > 1 and len(self.text) > _EDGE else lines

    @cached_property
    def first(self) -> list[str]:
        """The first lines that say something, readable."""
        return _readable([line[:_LONGEST] for line in self.head])

    @cached_property
    def last(self) -> list[str]:
        """The last lines that say something, readable, the very last one first."""
        lines = self.text[-_EDGE:].split("\n")
        if len(lines) > 1 and len(self.text) > _EDGE:
            lines = lines[1:]
        return _readable([line if len(line) <= _LONGEST else line[-_END:] for line in reversed(lines)])

    def find(self, needle: bytes, *, front: int = 100, back: int = 20, exact: bool = False) -> list[Line]:
        """The lines that hold the needle (in lower case, unless `exact`): the first `front` and the last `back`."""
        body = self.raw if exact else self.lower
        found: list[Line] = []
        at = body.find(needle) if front else -1
        while at >= 0 and len(found) < front:
            found.append(self._line(at))
            at = body.find(needle, found[-1].end)
        seen = found[-1].end if found else 0
        if at < 0 and front:
            return found
        return found + self._backwards(body, needle, back, seen)

    def _backwards(self, body: bytes, needle: bytes, back: int, seen: int) -> list[Line]:
        found: list[Line] = []
        end = len(body)
        while len(found) < back and (at := body.rfind(needle, seen, end)) >= 0:
            found.append(self._line(at))
            end = min(at, max(found[-1].start, seen))
        return found[::-1]

    def find_distinct(self, needle: bytes, *, most: int, look: int) -> tuple[list[Line], int]:
        """The first line of each kind among the next `look` lines with the needle, at most so many, and how many lines
        were looked at. Lines that differ in digits only are of one kind."""
        found: dict[bytes, Line] = {}
        looked = 0
        at = self.lower.find(needle)
        while at >= 0 and looked < look and len(found) < most:
            start, end = self._span(at)
            kind = self.lower[start:end].translate(None, b"0123456789")
            if kind not in found:
                found[kind] = self._decoded(start, end)
            looked += 1
            at = self.lower.find(needle, end)
        return list(found.values()), looked

    def _line(self, at: int) -> Line:
        return self._decoded(*self._span(at))

    def _span(self, at: int) -> tuple[int, int]:
        reach = max(0, at - _REACH)
        start = self.raw.rfind(b"\n", reach, at) + 1 or reach
        end = self.raw.find(b"\n", at, at + _REACH)
        return start, min(len(self.raw), at + _REACH) if end < 0 else end

    def _decoded(self, start: int, end: int) -> Line:
        # A character that the reach cuts in two is left out.
        return Line(start, end, self.raw[start:end].decode("utf-8", "ignore"))

    def after(self, line: Line, most: int) -> list[Line]:
        """The lines that follow, at most so many."""
        lines: list[Line] = []
        end = line.end
        while len(lines) < most and end < len(self.raw):
            start = end + (self.raw[end : end + 1] == b"\n")
            end = self.raw.find(b"\n", start, start + _REACH)
            end = min(len(self.raw), start + _REACH) if end < 0 else end
            lines.append(self._decoded(start, end))
        return lines


def counted(number: int, thing: str) -> str:
    """A number of things: "1 line", "1,204 lines"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def shown(line: str) -> str:
    """A line as a terminal would have left it: what was written over by a carriage return is gone."""
    return plain(line.rstrip("\r").rpartition("\r")[2])


def _readable(lines: list[str]) -> list[str]:
    return [text for line in lines if any(map(str.isalnum, text := shown(line)))]
