"""PROGRESS.md read back, hand edits included.

Read with good will: sections in any order, at any level, in any case, under short names; missing ones; lists of any
kind; CRLF, a byte order mark. Nothing is thrown away: what has no place in the record goes to the end of the context,
and a note says so.

- Under Completed Steps an item without a box is completed. An unticked one is not: the first becomes the next action
  if there is none, or if the one that is there has been ticked; the others go to the context as a list.
- None, N/A, a dash or nothing at all stand for nothing; Finished or Done as the next action end the work.
- A heading that is not ours, of the section's level or above, begins a section of the user's, up to the next of ours.
- What contradicts itself is refused with its line: two different goals, a goal without a next action, a conflict that
  git left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import InvalidInput
from .lines import (
    FINISHED,
    LEVEL,
    NOTHING,
    Part,
    code,
    exact_section,
    is_conflict,
    is_word,
    level,
    section,
    title,
    unescaped,
    words,
)
from .record import Progress, same_step, without_blank_lines_around

_ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])(?:[ \t]+|$)(?:\[([ xX✓✔~/-]?)\](?:[ \t]+|$))?(.*)")
_TICKED = (None, "x", "X", "✓", "✔")
_TITLES = {"progress", "progress.md"}


class ParsedProgress(NamedTuple):
    """What a file says, and what was moved to another place while reading it: "line 7: …"."""

    progress: Progress
    notes: tuple[str, ...]


class _Section(NamedTuple):
    part: Part | None
    line: int
    level: int
    body: list[str]


class _Item(NamedTuple):
    line: int
    box: str | None
    lines: list[str]

    @property
    def ticked(self) -> bool:
        return self.box in _TICKED

    @property
    def empty(self) -> bool:
        return not self.text or (self.box is None and words(self.text) in NOTHING)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()


def parse(text: str, where: str = "PROGRESS.md") -> ParsedProgress:
    """The record that a file's text stands for, and notes on what had to be moved. Raises `InvalidInput`, with `where`
    and the line, for what cannot be understood."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    reading = _Reading(where)
    for number, line in enumerate(lines, 1):
        if is_conflict(line):
            raise reading.refusal(number, "git left a conflict here", "keep one side and remove the marks")
    for found in _sections(lines):
        reading.take(found)
    return reading.record()


def _sections(lines: list[str]) -> Iterator[_Section]:
    """First apart at the headings as we write them, then at others that mean the same and are not code."""
    chunk: list[str] = []
    for number, line in enumerate(lines):
        if exact_section(line):
            yield from _finer(number - len(chunk), chunk)
            chunk = []
        chunk.append(line)
    yield from _finer(len(lines) - len(chunk), chunk)


def _finer(before: int, chunk: list[str]) -> Iterator[_Section]:
    hidden = code(chunk)
    current = _Section(None, before + 1, LEVEL, [])
    for number, line in enumerate(chunk):
        part = exact_section(line) or (section(line) if number not in hidden else None)
        if part is None:
            current.body.append(line)
            continue
        if number:
            yield current
        current = _Section(part, before + number + 1, len(line) - len(line.lstrip("#")), [])
    yield current


class _Reading:
    """The pieces of one file, taken section by section and put together at the end."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._notes: list[tuple[int, str]] = []
        self._lines: dict[Part, int] = {}
        self._texts: dict[Part, str] = {}
        self._items: list[_Item] = []
        self._context: list[str] = []
        self._moved: list[str] = []

    def refusal(self, line: int, what: str, hint: str) -> InvalidInput:
        return InvalidInput(f"{self._where}, line {line}: {what}", hint=hint)

    def take(self, found: _Section) -> None:
        if found.part is None:
            self._take_preamble(found.body)
            return
        first = self._lines.setdefault(found.part, found.line)
        if found.part is Part.CONTEXT:
            self._context.append(unescaped(found.body, headings=False))
            return
        body = self._without_others(found)
        if found.part is Part.STEPS:
            self._take_steps(found.line + 1, body)
            return
        text = unescaped(body, headings=True).strip()
        before = self._texts.get(found.part, "")
        if before and text and before != text:
            raise self.refusal(
                found.line,
                f"{found.part} does not say the same as in line {first}",
                "keep one of them; a heading that belongs to a text gets a backslash before it",
            )
        self._texts[found.part] = before or text

    def _take_preamble(self, body: list[str]) -> None:
        start = next((number for number, line in enumerate(body) if line.strip()), len(body))
        if start < len(body) and body[start].startswith("#") and title(body[start]) in _TITLES:
            start += 1
        self._context.append(unescaped(body[start:], headings=False))
        if self._context[0].strip():
            self._note(start + 1, "before the first section: kept in the context")

    def _without_others(self, found: _Section) -> list[str]:
        hidden = code(found.body)
        for number, line in enumerate(found.body):
            if number not in hidden and 0 < level(line) <= found.level:
                self._move(found.line + 1 + number, found.body[number:], "a section that is not one of the five")
                return found.body[:number]
        return found.body

    def _take_steps(self, start: int, body: list[str]) -> None:
        items, stray = _checklist(start, body)
        self._items += (item for item in items if not item.empty)
        for line, text in stray:
            if words(text) not in NOTHING:
                self._move(line, text.split("\n"), "no step")

    def _move(self, line: int, lines: list[str], what: str) -> None:
        self._moved.append(unescaped(lines, headings=False))
        self._note(line, f"{what}: kept in the context")

    def _note(self, line: int, what: str) -> None:
        self._notes.append((line, what))

    def record(self) -> ParsedProgress:
        """All of it as a record that may be."""
        done = [item.text for item in self._items if item.ticked]
        goal, blocker = self._value(Part.GOAL), self._value(Part.BLOCKER)
        finished = words(self._texts.get(Part.NEXT, "")) in FINISHED
        following = self._next_action({same_step(step) for step in done}, finished)
        pieces = [without_blank_lines_around(piece) for piece in (*self._context, *self._moved)]
        context = "\n\n".join(piece for piece in pieces if piece)
        if not self._lines and context:
            raise self.refusal(1, "there is no section of a progress file", f"begin one with: ## {Part.GOAL}")
        if finished and blocker:
            raise self.refusal(self._lines[Part.BLOCKER], "finished, and blocked all the same", "decide for one")
        if goal and not finished and following is None:
            hint = f"say under ## {Part.NEXT} what comes next, or Finished"
            raise self.refusal(self._lines.get(Part.NEXT, self._lines[Part.GOAL]), "there is no next action", hint)
        if self._lines and goal is None:
            self._note(self._lines.get(Part.GOAL, 1), "there is no goal")
        notes = tuple(f"line {line}: {what}" for line, what in sorted(self._notes))
        return ParsedProgress(Progress(goal or "", tuple(done), blocker, following, context, finished), notes)

    def _value(self, part: Part) -> str | None:
        text = self._texts.get(part, "")
        if is_word(text) and text.startswith("\\"):
            return text[1:]
        nothing = NOTHING | FINISHED if part is Part.NEXT else NOTHING
        return None if words(text) in nothing else text

    def _next_action(self, done: set[str], finished: bool) -> str | None:
        """What is said to be next, or the first unticked step. The other unticked ones go to the context."""
        following = self._value(Part.NEXT)
        unticked = [item for item in self._items if not item.ticked and same_step(item.text) not in done]
        stale = following is not None and same_step(following) in done
        if (following is None or stale) and unticked and not finished:
            self._note(unticked[0].line, "the first step without a tick is the next action")
            following = unticked.pop(0).text
        elif stale:
            raise self.refusal(
                self._lines[Part.NEXT], "the next action is completed already", "say what comes next, or Finished"
            )
        others = [item for item in unticked if same_step(item.text) != same_step(following or "")]
        for item in others:
            self._note(item.line, "a step without a tick: kept in the context")
        self._moved.append("\n".join(_unticked(item.text) for item in others))
        return following


def _unticked(text: str) -> str:
    first, *others = text.split("\n")
    return "\n".join([f"- [ ] {first}", *(line and f"  {line}" for line in others)])


def _checklist(start: int, body: list[str]) -> tuple[list[_Item], list[tuple[int, str]]]:
    """The items of a list, and the blocks between them that are none."""
    items: list[_Item] = []
    stray: list[tuple[int, list[str]]] = []
    inside, indent, width, after_blank = False, 0, 0, True
    for number, line in enumerate(body, start):
        blank = not line.strip()
        found = _ITEM.match(line)
        if inside and (blank or _depth(line) >= indent + 2):
            items[-1].lines.append(_outdented(line, width))
        elif found:
            inside, indent, width = True, len(found[1]), len(found[1] + found[2]) + 1
            items.append(_Item(number, found[3], [found[4]]))
        elif inside and not after_blank and not level(line):
            items[-1].lines.append(line)  # as Markdown has it: the paragraph goes on
        elif not inside and stray:
            stray[-1][1].append(line)
        elif not blank:
            inside = False
            stray.append((number, [line]))
        after_blank = blank
    return items, [(line, "\n".join(lines)) for line, lines in stray]


def _depth(line: str) -> int:
    return 4 if line.startswith("\t") else len(line) - len(line.lstrip(" "))


def _outdented(line: str, width: int) -> str:
    if line.startswith("\t"):
        return line[1:]
    return line[min(width, len(line) - len(line.lstrip(" "))) :]
