"""Lists in a file: numbered steps, and evidence with hyphens. Further lines of an item are indented.

`read` returns exactly the items that `listed` wrote. It also accepts lists that people write: other marks, lines that
are not indented, paragraphs without a mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_MARK = re.compile(r"([0-9]{1,9}[.)]|[-*+])(?:[ \t]|$)", re.ASCII)


def listed(items: Iterable[str], *, numbered: bool) -> str:
    """The items as a markdown list."""
    return "\n".join(_item(f"{number}." if numbered else "-", item) for number, item in enumerate(items, 1))


def _item(mark: str, text: str) -> str:
    lines = text.split("\n")
    for at in {0, len(lines) - 1}:
        if _is_trimmed(lines[at], first=at == 0, last=at == len(lines) - 1):
            lines[at] = f"\\{lines[at]}"
    indent = " " * (len(mark) + 1)
    return "\n".join([f"{mark} {lines[0]}", *(line and indent + line for line in lines[1:])])


def _is_trimmed(line: str, *, first: bool, last: bool) -> bool:
    """Whether `read` would lose a part of this line without a backslash before it."""
    bare = line.lstrip("\\")
    return not bare.strip() or (first and bare[0].isspace()) if first or last else False


def read(lines: Iterable[str]) -> tuple[str, ...]:
    """The list items in these lines."""
    found: list[list[str]] = []
    width, paused = 0, True
    for line in lines:
        mark = _MARK.match(line)
        if mark:
            found.append([line[mark.end() :]])
            width, paused = len(mark[1]) + 1, False
        elif not line.strip():
            paused = True
            if found:
                found[-1].append(line[width:])
        elif found and (line[0] in " \t" or not paused):
            found[-1].append(_outdented(line, width))
            paused = False
        else:
            found.append([line])
            width, paused = 0, False
    return tuple(_text(item) for item in found)


def _outdented(line: str, width: int) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return line[min(indent, width) :] if indent else line.removeprefix("\t")


def _text(lines: list[str]) -> str:
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    lines[0] = lines[0].lstrip()
    for at in {0, len(lines) - 1}:
        if lines[at].startswith("\\") and _is_trimmed(lines[at], first=at == 0, last=at == len(lines) - 1):
            lines[at] = lines[at][1:]
    return "\n".join(lines)
