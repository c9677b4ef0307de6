"""PROGRESS.md: a progress record as text that people read and edit, and the file that holds it.

`render` writes five sections and `parse` reads them back exactly. Start with these two.

**Escapes.** Ordinary text is written unchanged. `render` puts a backslash before a line only where `parse` would
misread it: a line that looks like one of the five headings or like a git conflict marker; in a goal, blocker or next
action also any other heading of level 1 or 2 outside a closed code fence; and a text that consists only of a keyword
such as None. The lines of a step are indented under its number instead.

**Hand edits.** `parse` is lenient: sections in any order, at any level, in any case, under short names; missing
sections; any kind of list; CRLF; a byte order mark. Nothing is dropped: text that does not fit the record is moved to
the end of the context, and a note reports it.

- Under Completed Steps, an item without a box is completed. An unticked item is not: the first becomes the next action
  if there is none, or if the current one has been ticked; the others go to the context as a list.
- None, N/A, a dash or an empty section mean "nothing". Finished or Done as the next action means that the goal is
  finished.
- A heading that is not one of the five, at the section's level or above, starts a section of the user's own. It ends at
  the next of the five.
- Contradictions raise an error with the line: two different goals, a goal without a next action, a git conflict.

**The file** is always replaced atomically. A process that is killed while it writes leaves the old file or the new
one, and possibly a temporary file that the next write removes.
"""

from __future__ import annotations

import enum
import glob
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from filelock import lock_descriptor

from ...errors import DuramenError, InvalidInput
from .record import Progress, same_step, without_blank_lines_around

MAX_BYTES = 1024 * 1024
"""The size limit of a progress file."""
_TEMPORARY = ".duramen-part"


class Section(enum.StrEnum):
    """The five sections. The value is the heading that `render` writes."""

    GOAL = "Current Goal"
    STEPS = "Completed Steps"
    BLOCKER = "Current Blocker"
    NEXT = "Next Action"
    CONTEXT = "Context"


_LEVEL = 2
"""The level of the headings that `render` writes."""
_EXACT = {f"{'#' * _LEVEL} {section}": section for section in Section}
_NAMES = {section.casefold(): section for section in Section} | {
    "goal": Section.GOAL,
    "completed": Section.STEPS,
    "blocker": Section.BLOCKER,
    "blockers": Section.BLOCKER,
    "current blockers": Section.BLOCKER,
    "next actions": Section.NEXT,
}
_TITLES = {"progress", "progress.md"}
_NOTHING = {"", "none", "none yet", "nothing", "nothing yet", "n/a", "no blocker", "no blockers", "not blocked"}
_FINISHED = {"finished", "done", "all done", "complete", "completed", "none finished", "nothing finished"}
_HEADING = re.compile(r"(#{1,6})[ \t]+\S")
_CONFLICT = re.compile(r"(<{7}|>{7})( |$)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_AROUND_WORDS = re.compile(r"[\s()\[\]*_.!:,\u2013\u2014-]+")
_ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])(?:[ \t]+|$)(?:\[([ xX✓✔~/-]?)\](?:[ \t]+|$))?(.*)")
_TICKED = (None, "x", "X", "✓", "✔")


# -- from a record to text


def render(progress: Progress) -> str:
    """The file's text. `parse` returns the same record."""
    bodies = {
        Section.GOAL: _rendered_text(progress.goal),
        Section.STEPS: _rendered_steps(progress.completed),
        Section.BLOCKER: _rendered_text(progress.blocker),
        Section.NEXT: "Finished" if progress.finished else _rendered_text(progress.next_action),
        Section.CONTEXT: _escaped(progress.context, headings=False),
    }
    sections = [f"{'#' * _LEVEL} {section}\n{body}".rstrip("\n") for section, body in bodies.items()]
    return "\n\n".join(["# Progress", *sections]) + "\n"


def _rendered_text(text: str | None) -> str:
    if not text:
        return "None"
    return f"\\{text}" if _is_keyword(text) else _escaped(text, headings=True)


def _rendered_steps(steps: tuple[str, ...]) -> str:
    return "\n".join(_list_item(f"{number}. ", "[x] ", step) for number, step in enumerate(steps, 1)) or "None"


def _list_item(mark: str, box: str, text: str) -> str:
    first, *others = text.split("\n")
    return "\n".join([f"{mark}{box}{first}", *(line and " " * len(mark) + line for line in others)])


# -- from text to a record


class ParsedProgress(NamedTuple):
    """The record in a file, and notes on what `parse` moved to another place: "line 7: …"."""

    progress: Progress
    notes: tuple[str, ...]


class _FoundSection(NamedTuple):
    section: Section | None
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
        return not self.text or (self.box is None and _words(self.text) in _NOTHING)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()


def parse(text: str, where: str = "PROGRESS.md") -> ParsedProgress:
    """Parse the text of a file. Raises `InvalidInput` with `where` and the line for contradictions."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    builder = _RecordBuilder(where)
    for number, line in enumerate(lines, 1):
        if _CONFLICT.match(line):
            raise builder.error(number, "git conflict marker", "keep one side and remove the markers")
    for found in _split_sections(lines):
        builder.add(found)
    return builder.record()


def _split_sections(lines: list[str]) -> Iterator[_FoundSection]:
    """Split first at the exact headings, then at other spellings of them that are not code."""
    chunk: list[str] = []
    for number, line in enumerate(lines):
        if _exact_section(line):
            yield from _split_chunk(number - len(chunk), chunk)
            chunk = []
        chunk.append(line)
    yield from _split_chunk(len(lines) - len(chunk), chunk)


def _split_chunk(before: int, chunk: list[str]) -> Iterator[_FoundSection]:
    code = _code_lines(chunk)
    current = _FoundSection(None, before + 1, _LEVEL, [])
    for number, line in enumerate(chunk):
        section = _exact_section(line) or (_section(line) if number not in code else None)
        if section is None:
            current.body.append(line)
            continue
        if number:
            yield current
        current = _FoundSection(section, before + number + 1, len(line) - len(line.lstrip("#")), [])
    yield current


class _RecordBuilder:
    """Collects the sections of one file and builds the record from them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._notes: list[tuple[int, str]] = []
        self._lines: dict[Section, int] = {}
        self._texts: dict[Section, str] = {}
        self._items: list[_Item] = []
        self._context: list[str] = []
        self._moved: list[str] = []

    def error(self, line: int, what: str, hint: str) -> InvalidInput:
        return InvalidInput(f"{self._where}, line {line}: {what}", hint=hint)

    def add(self, found: _FoundSection) -> None:
        if found.section is None:
            self._add_preamble(found.body)
            return
        first = self._lines.setdefault(found.section, found.line)
        if found.section is Section.CONTEXT:
            self._context.append(_unescaped(found.body, headings=False))
            return
        body = self._without_own_sections(found)
        if found.section is Section.STEPS:
            self._add_steps(found.line + 1, body)
            return
        text = _unescaped(body, headings=True).strip()
        before = self._texts.get(found.section, "")
        if before and text and before != text:
            raise self.error(
                found.line,
                f"{found.section} differs from the one in line {first}",
                "keep one of them; put a backslash before a heading that is part of a text",
            )
        self._texts[found.section] = before or text

    def _add_preamble(self, body: list[str]) -> None:
        start = next((number for number, line in enumerate(body) if line.strip()), len(body))
        if start < len(body) and body[start].startswith("#") and _heading_words(body[start]) in _TITLES:
            start += 1
        self._context.append(_unescaped(body[start:], headings=False))
        if self._context[0].strip():
            self._note(start + 1, "text before the first section: moved to the context")

    def _without_own_sections(self, found: _FoundSection) -> list[str]:
        """The body up to the first heading of the user's own. The rest is moved to the context."""
        code = _code_lines(found.body)
        for number, line in enumerate(found.body):
            if number not in code and 0 < _heading_level(line) <= found.level:
                self._move(found.line + 1 + number, found.body[number:], "a section that is not one of the five")
                return found.body[:number]
        return found.body

    def _add_steps(self, start: int, body: list[str]) -> None:
        items, stray = _checklist(start, body)
        self._items += (item for item in items if not item.empty)
        for line, lines in stray:
            if _words("\n".join(lines)) not in _NOTHING:
                self._move(line, lines, "not a step")

    def _move(self, line: int, lines: list[str], what: str) -> None:
        self._moved.append(_unescaped(lines, headings=False))
        self._note(line, f"{what}: moved to the context")

    def _note(self, line: int, what: str) -> None:
        self._notes.append((line, what))

    def record(self) -> ParsedProgress:
        """The record. Raises `InvalidInput` for contradictions."""
        done = [item.text for item in self._items if item.ticked]
        goal, blocker = self._value(Section.GOAL), self._value(Section.BLOCKER)
        finished = _words(self._texts.get(Section.NEXT, "")) in _FINISHED
        following = self._next_action({same_step(step) for step in done}, finished)
        pieces = [without_blank_lines_around(piece) for piece in (*self._context, *self._moved)]
        context = "\n\n".join(piece for piece in pieces if piece)
        if not self._lines and context:
            raise self.error(1, "no section of a progress file found", f"start with the heading ## {Section.GOAL}")
        if finished and blocker:
            raise self.error(
                self._lines[Section.BLOCKER], "finished and blocked at the same time", "remove one of them"
            )
        if goal and not finished and following is None:
            hint = f"write the next action under ## {Section.NEXT}, or Finished"
            raise self.error(self._lines.get(Section.NEXT, self._lines[Section.GOAL]), "there is no next action", hint)
        if self._lines and goal is None:
            self._note(self._lines.get(Section.GOAL, 1), "there is no goal")
        notes = tuple(f"line {line}: {what}" for line, what in sorted(self._notes))
        return ParsedProgress(Progress(goal or "", tuple(done), blocker, following, context, finished), notes)

    def _value(self, section: Section) -> str | None:
        text = self._texts.get(section, "")
        if _is_keyword(text) and text.startswith("\\"):
            return text[1:]
        nothing = _NOTHING | _FINISHED if section is Section.NEXT else _NOTHING
        return None if _words(text) in nothing else text

    def _next_action(self, done: set[str], finished: bool) -> str | None:
        """The next action, or the first unticked step. Moves the other unticked steps to the context."""
        following = self._value(Section.NEXT)
        unticked = [item for item in self._items if not item.ticked and same_step(item.text) not in done]
        stale = following is not None and same_step(following) in done
        if (following is None or stale) and unticked and not finished:
            self._note(unticked[0].line, "the first unticked step became the next action")
            following = unticked.pop(0).text
        elif stale:
            raise self.error(
                self._lines[Section.NEXT],
                "the next action is already completed",
                "write another next action, or Finished",
            )
        others = [item for item in unticked if same_step(item.text) != same_step(following or "")]
        for item in others:
            self._note(item.line, "unticked step: moved to the context")
        self._moved.append("\n".join(_list_item("- ", "[ ] ", item.text) for item in others))
        return following


def _checklist(start: int, body: list[str]) -> tuple[list[_Item], list[tuple[int, list[str]]]]:
    """The items of a list, and the blocks between them that are not items, with their line numbers."""
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
        elif inside and not after_blank and not _heading_level(line):
            items[-1].lines.append(line)  # a lazy continuation line, as in Markdown
        elif not inside and stray:
            stray[-1][1].append(line)
        elif not blank:
            inside = False
            stray.append((number, [line]))
        after_blank = blank
    return items, stray


def _depth(line: str) -> int:
    return 4 if line.startswith("\t") else len(line) - len(line.lstrip(" "))


def _outdented(line: str, width: int) -> str:
    if line.startswith("\t"):
        return line[1:]
    return line[min(width, len(line) - len(line.lstrip(" "))) :]


# -- the meaning of a line, for both directions


def _heading_level(line: str) -> int:
    """The level of a heading line. 0 if the line is not a heading."""
    found = _HEADING.match(line)
    return len(found[1]) if found else 0


def _heading_words(line: str) -> str:
    """A heading's words in lower case, without emphasis and colon."""
    return " ".join(line.strip("# \t*_:").casefold().split())


def _exact_section(line: str) -> Section | None:
    """The section that this line begins, spelled as `render` writes it. It also counts inside a code fence, so that an
    unclosed fence does not hide the rest of the file."""
    return _EXACT.get(line.rstrip())


def _section(line: str) -> Section | None:
    """The section that this line begins, in any spelling. A single word directly after the # is a hashtag."""
    name = _heading_words(line)
    return _NAMES.get(name) if _heading_level(line) or (line.startswith("#") and " " in name) else None


def _code_lines(lines: list[str]) -> set[int]:
    """The numbers of the lines in closed code fences. A fence that is never closed is ordinary text."""
    inside: set[int] = set()
    unclosed: dict[str, int] = {}
    number = 0
    while number < len(lines):
        opened = _opening_fence(lines[number])
        if opened and len(opened) < unclosed.get(opened[0], len(opened) + 1):
            end = _closing_line(lines, number + 1, opened)
            if end is None:
                unclosed[opened[0]] = len(opened)  # a later fence of this length is not closed either: do not search
            else:
                inside.update(range(number, end + 1))
                number = end
        number += 1
    return inside


def _opening_fence(line: str) -> str:
    found = _FENCE.match(line)
    return found[1] if found and not (found[1][0] == "`" and "`" in found[2]) else ""


def _closing_line(lines: list[str], start: int, fence: str) -> int | None:
    for number in range(start, len(lines)):
        found = _FENCE.match(lines[number])
        if found and found[1].startswith(fence) and not found[2].strip():
            return number
    return None


def _escaped(text: str, *, headings: bool) -> str:
    """The text as it is written in the file. `headings`: other headings of level 1 and 2 are escaped as well."""
    lines = text.split("\n")
    special = _special_lines(lines, headings)
    return "\n".join(f"\\{line}" if number in special else line for number, line in enumerate(lines))


def _unescaped(lines: list[str], *, headings: bool) -> str:
    """The text of lines from the file, without escapes."""
    special = _special_lines(lines, headings)
    return "\n".join(line.removeprefix("\\") if number in special else line for number, line in enumerate(lines))


def _special_lines(lines: list[str], headings: bool) -> set[int]:
    """The lines that need a backslash to be read as text, whether they already have one or not."""
    code, found = _code_lines(lines), set()
    for number, line in enumerate(lines):
        bare = line.lstrip("\\")
        heading = _section(bare) or (headings and 0 < _heading_level(bare) <= _LEVEL)
        if _exact_section(bare) or _CONFLICT.match(bare) or (heading and number not in code):
            found.add(number)
    return found


def _words(text: str) -> str:
    """The text in lower case, without punctuation and emphasis."""
    return _AROUND_WORDS.sub(" ", text.casefold()).strip()


def _is_keyword(text: str) -> bool:
    """Whether the text, without leading backslashes, means "nothing" or "finished"."""
    return _words(text.lstrip("\\")) in _NOTHING | _FINISHED


# -- the file


def read_file(path: str | os.PathLike[str]) -> str:
    """The text of the file. Raises `InvalidInput` if it is missing, too large or not UTF-8."""
    with _os_errors(path, "read"):
        _expect_file(path)
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    _expect_small(path, len(data))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"{os.fspath(path)}, line {line}: not UTF-8", hint="save the file as UTF-8, or remove it"
        ) from error


def write_file(path: str | os.PathLike[str], text: str) -> bool:
    """Replace the content of the file, durably and atomically. Returns False, without a write, if it is the same.

    Keeps the mode of an existing file, and its owner where that is allowed. A symbolic link is followed: its target is
    replaced and the link stays.
    """
    data = _encoded(path, text)
    target = Path(os.path.realpath(path))
    with _os_errors(path, "write"):
        _expect_file(target)
        _remove_leftovers(target)
        with suppress(FileNotFoundError):
            if target.read_bytes() == data:
                return False
        with _temporary_file(target, data) as temporary:
            os.replace(temporary, target)
        _sync_folder(target.parent)
    return True


def create_file(path: str | os.PathLike[str], text: str) -> bool:
    """Write the file if it does not exist. Of several concurrent callers, exactly one gets True, and its whole text is
    in the file."""
    data = _encoded(path, text)
    target = Path(os.path.realpath(path))
    with _os_errors(path, "write"):
        _expect_file(target)
        _remove_leftovers(target)
        if target.exists():
            return False
        with _temporary_file(target, data) as temporary:
            try:
                _publish_new(temporary, target)
            except FileExistsError:
                return False
        _sync_folder(target.parent)
    return True


def _publish_new(temporary: str, target: Path) -> None:
    """Give the file its name. Unlike a rename, this fails if the name exists."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_CREAT | os.O_EXCL))
        os.replace(temporary, target)


@contextmanager
def _temporary_file(target: Path, data: bytes) -> Iterator[str]:
    """A temporary file next to the target that contains the data, with the target's mode and owner. It stays locked
    while it is in use, so that `_remove_leftovers` of another process skips it. Removed at the end."""
    try:
        old = target.stat()
    except FileNotFoundError:
        old = None
    handle, name = _open_temporary(target, 0o600 if old else 0o666)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            if old and os.name == "posix":
                with suppress(PermissionError):
                    os.fchown(handle, old.st_uid, old.st_gid)
                os.fchmod(handle, stat.S_IMODE(old.st_mode))
            os.fsync(handle)
            if os.name != "posix":
                file.close()  # Windows cannot rename an open file
            yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _open_temporary(target: Path, mode: int) -> tuple[int, str]:
    while True:
        name = f"{target.parent}/.{target.name[:100]}.{secrets.token_hex(4)}{_TEMPORARY}"
        handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        try:
            if lock_descriptor(handle, blocking=False) and os.fstat(handle).st_nlink:
                return handle, name
        except OSError:  # a file system without locks: `_remove_leftovers` removes nothing there
            return handle, name
        os.close(handle)  # `_remove_leftovers` of another process was faster than the lock


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of killed writers. These files are no longer locked."""
    for left in target.parent.glob(f".{glob.escape(target.name[:100])}.{'[0-9a-f]' * 8}{_TEMPORARY}"):
        with suppress(OSError):
            handle = os.open(left, os.O_RDWR)
            try:
                if lock_descriptor(handle, blocking=False):
                    os.unlink(left)
            finally:
                os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _encoded(path: str | os.PathLike[str], text: str) -> bytes:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "the text has a lone surrogate, which UTF-8 cannot encode",
            hint="write the text that render() returns, which replaces such characters",
        ) from error
    _expect_small(path, len(data))
    return data


def _expect_small(path: str | os.PathLike[str], size: int) -> None:
    if size > MAX_BYTES:
        raise InvalidInput(
            f"{os.fspath(path)}: a progress file may have at most {MAX_BYTES:,} bytes",
            hint="store long texts elsewhere and refer to them in the context",
        )


def _expect_file(path: str | os.PathLike[str]) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InvalidInput(f"{os.fspath(path)} is not a file", hint="give the path of a file, such as PROGRESS.md")


@contextmanager
def _os_errors(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Translate errors of the operating system."""
    try:
        yield
    except FileNotFoundError as error:
        missing = path if what == "read" else os.path.dirname(path) or os.curdir
        raise InvalidInput(f"{os.fspath(missing)} does not exist", hint="create it, or give another path") from error
    except OSError as error:
        raise DuramenError(
            f"cannot {what} {os.fspath(path)}: {error.strerror}",
            hint="check the permissions of the folder and the free disk space; the journal is not affected",
        ) from error
