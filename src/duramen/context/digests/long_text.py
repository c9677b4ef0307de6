"""Fast access to a long text: its first and last lines, and the lines that contain a string."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from ..compaction.trim import plain

_REACH = 200
"""At most this many bytes on each side of a match count as its line. A longer line is read in parts."""
_EDGE = 16384
"""Characters at the beginning and at the end that are split into lines."""
_LONGEST = 2000
"""Characters that are read of one line at the beginning."""
_END = 56
"""Characters that are read of a long line at the end: the last ones."""


class Line(NamedTuple):
    """A line, or the part of a long line near a match. `start` and `end` are byte offsets into the text."""

    start: int
    end: int
    text: str


class LongText:
    """An unchanged text. Searches ignore the case of ASCII letters, unless `exact`."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def raw(self) -> bytes:
        """The text as bytes. Searches in bytes are fast, and `lower` has the same offsets."""
        return self.text.encode("utf-8", "surrogatepass")

    @cached_property
    def lower(self) -> bytes:
        """`raw` with ASCII letters in lower case."""
        return self.raw.lower()

    @cached_property
    def lines(self) -> int:
        """The number of lines."""
        return self.text.count("\n") + (bool(self.text) and not self.text.endswith("\n"))

    @property
    def size(self) -> str:
        """The number of characters and lines as text."""
        return f"{counted(len(self.text), 'character')}, {counted(self.lines, 'line')}"

    @cached_property
    def head(self) -> list[str]:
        """The first lines, unchanged. A line that is cut off at the edge is left out, unless it is the only one."""
        lines = self.text[:_EDGE].split("\n")
        return lines[:-1] if len(lines) > 1 and len(self.text) > _EDGE else lines

    @cached_property
    def first(self) -> list[str]:
        """The first lines that contain letters or digits, without control characters."""
        return _readable([line[:_LONGEST] for line in self.head])

    @cached_property
    def last(self) -> list[str]:
        """The last lines that contain letters or digits, without control characters, the last line first."""
        lines = self.text[-_EDGE:].split("\n")
        if len(lines) > 1 and len(self.text) > _EDGE:
            lines = lines[1:]
        return _readable([line if len(line) <= _LONGEST else line[-_END:] for line in reversed(lines)])

    def find(self, needle: bytes, *, front: int = 100, back: int = 20, exact: bool = False) -> list[Line]:
        """The first `front` and the last `back` lines with the needle, which is in lower case unless `exact`."""
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
        """At most `most` distinct lines among the first `look` lines with the needle, and how many lines were read.
        Lines that differ only in digits count as equal."""
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
        # A character that is cut in two is left out.
        return Line(start, end, self.raw[start:end].decode("utf-8", "ignore"))

    def after(self, line: Line, most: int) -> list[Line]:
        """At most `most` lines that follow a line."""
        lines: list[Line] = []
        end = line.end
        while len(lines) < most and end < len(self.raw):
            start = end + (self.raw[end : end + 1] == b"\n")
            end = self.raw.find(b"\n", start, start + _REACH)
            end = min(len(self.raw), start + _REACH) if end < 0 else end
            lines.append(self._decoded(start, end))
        return lines


def counted(number: int, thing: str) -> str:
    """A number with its noun: "1 line", "1,204 lines"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def shown(line: str) -> str:
    """A line as a terminal shows it: without control characters and without text that a carriage return overwrote."""
    return plain(line.rstrip("\r").rpartition("\r")[2])


def _readable(lines: list[str]) -> list[str]:
    return [text for line in lines if any(map(str.isalnum, text := shown(line)))]
