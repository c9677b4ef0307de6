"""Output of the commands: text and JSON Lines to standard output, errors and progress to standard error."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

PIPE_CLOSED = 141
"""The exit code when the reader of the output closed the pipe, as shells report it (128 + SIGPIPE)."""
_WIDTH_WITHOUT_TERMINAL = 120


class PlainConsole(Console):
    """A console that takes text literally: no markup, no emoji codes, no highlighting."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, width=_width())

    def on_broken_pipe(self) -> NoReturn:
        exit_on_closed_pipe()

    def print_line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line. Each part is a text, or a text and its style. The caller escapes untrusted text."""
        self.print(Text.assemble(*parts), soft_wrap=True)


def _width() -> int | None:
    """The width of the output; None if rich can find it, from a terminal or from COLUMNS."""
    known = "COLUMNS" in os.environ or any(os.isatty(stream) for stream in range(3))
    return None if known else _WIDTH_WITHOUT_TERMINAL


def exit_on_closed_pipe() -> NoReturn:
    """Exit without a message: the reader of the output closed the pipe, as `head` does."""
    discard_stdout()
    raise SystemExit(PIPE_CLOSED)


def discard_stdout() -> None:
    """Redirect standard output to the null device, so that the interpreter does not fail on buffered text at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def use_utf8_stdout() -> None:
    """Set standard output to UTF-8 and "\\n" line ends, as JSON Lines require, for every locale."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")


def print_json(value: Any, *, flush: bool = False) -> None:
    """Print one JSON object on a line. Commands that follow changes set `flush`."""
    from .json_format import json_text

    try:
        sys.stdout.write(json_text(value) + "\n")
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        exit_on_closed_pipe()
