"""What the lines of PROGRESS.md mean, and which of them need a backslash to mean only themselves.

Shared by the two directions, `render` and `parse`: a line is escaped exactly where the other would misread it.
"""

from __future__ import annotations

import enum
import re


class Part(enum.StrEnum):
    """The sections, under the headings that they are written with."""

    GOAL = "Current Goal"
    STEPS = "Completed Steps"
    BLOCKER = "Current Blocker"
    NEXT = "Next Action"
    CONTEXT = "Context"


LEVEL = 2
"""The headings' level as we write them."""
EXACT = {f"{'#' * LEVEL} {part}": part for part in Part}
_NAMES = {part.casefold(): part for part in Part} | {
    "goal": Part.GOAL,
    "completed": Part.STEPS,
    "blocker": Part.BLOCKER,
    "blockers": Part.BLOCKER,
    "current blockers": Part.BLOCKER,
    "next actions": Part.NEXT,
}
_HEADING = re.compile(r"(#{1,6})[ \t]+\S")
_CONFLICT = re.compile(r"(<{7}|>{7})( |$)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_AROUND_WORDS = re.compile(r"[\s()\[\]*_.!:,\u2013\u2014-]+")
NOTHING = {"", "none", "none yet", "nothing", "nothing yet", "n/a", "no blocker", "no blockers", "not blocked"}
FINISHED = {"finished", "done", "all done", "complete", "completed", "none finished", "nothing finished"}


def level(line: str) -> int:
    """The level of the heading that the line is, or 0."""
    found = _HEADING.match(line)
    return len(found[1]) if found else 0


def title(line: str) -> str:
    """A heading's words, without emphasis and colon, in lower case."""
    return " ".join(line.strip("# \t*_:").casefold().split())


def exact_section(line: str) -> Part | None:
    """The section that begins with this line as we write it. It counts in a code fence too: a fence that was never
    closed must not swallow the rest of the file."""
    return EXACT.get(line.rstrip())


def section(line: str) -> Part | None:
    """The section that begins with this line as somebody may write it. One word right behind the # is a hashtag."""
    name = title(line)
    return _NAMES.get(name) if level(line) or (line.startswith("#") and " " in name) else None


def is_conflict(line: str) -> bool:
    """Whether git left this line where it could not merge."""
    return _CONFLICT.match(line) is not None


def code(lines: list[str]) -> set[int]:
    """Which lines are in closed code fences. A fence that is never closed is just text."""
    inside: set[int] = set()
    unclosed: dict[str, int] = {}
    number = 0
    while number < len(lines):
        opened = _opened(lines[number])
        if opened and len(opened) < unclosed.get(opened[0], len(opened) + 1):
            end = _closed(lines, number + 1, opened)
            if end is None:
                unclosed[opened[0]] = len(opened)  # nor is one of this length further down: do not look again
            else:
                inside.update(range(number, end + 1))
                number = end
        number += 1
    return inside


def _opened(line: str) -> str:
    found = _FENCE.match(line)
    return found[1] if found and not (found[1][0] == "`" and "`" in found[2]) else ""


def _closed(lines: list[str], start: int, fence: str) -> int | None:
    for number in range(start, len(lines)):
        found = _FENCE.match(lines[number])
        if found and found[1].startswith(fence) and not found[2].strip():
            return number
    return None


def escaped(text: str, *, headings: bool) -> str:
    """The text as it stands in the file. `headings` says that it ends at a heading of the user's own."""
    lines = text.split("\n")
    special = _special(lines, headings)
    return "\n".join(f"\\{line}" if number in special else line for number, line in enumerate(lines))


def unescaped(lines: list[str], *, headings: bool) -> str:
    """The text that these lines of the file stand for."""
    special = _special(lines, headings)
    return "\n".join(line.removeprefix("\\") if number in special else line for number, line in enumerate(lines))


def _special(lines: list[str], headings: bool) -> set[int]:
    """The lines that are something else without a backslash before them, whether they have one yet or not."""
    hidden, found = code(lines), set()
    for number, line in enumerate(lines):
        bare = line.lstrip("\\")
        heading = section(bare) or (headings and 0 < level(bare) <= LEVEL)
        if exact_section(bare) or is_conflict(bare) or (heading and number not in hidden):
            found.add(number)
    return found


def words(text: str) -> str:
    """The text without the marks around its words, in lower case."""
    return _AROUND_WORDS.sub(" ", text.casefold()).strip()


def is_word(text: str) -> bool:
    """Whether the text, or what is left of it after its backslashes, says that there is nothing, or no more."""
    return words(text.lstrip("\\")) in NOTHING | FINISHED
