"""Prints errors to standard error: what happened, and on the next line what to do."""

from __future__ import annotations

import os

from ..errors import (
    DuramenError,
    KeyMissing,
    NotAStore,
    StoreUnavailable,
    UnknownMemory,
    UnknownProposal,
    UnknownRun,
    UnknownSession,
    WrongKey,
)
from .console import PlainConsole
from .terminal_text import visible

FAILED = 2
"""The exit code when a command failed."""

_KEY_HINT = "set DURAMEN_KEY in the environment to the key of this store"
_CLI_HINTS: dict[type[DuramenError], str] = {
    KeyMissing: _KEY_HINT,
    WrongKey: _KEY_HINT,
    UnknownSession: "list the sessions with `duramen sessions`, or choose another workspace with --workspace",
    UnknownRun: "list the runs with `duramen runs`, or choose another workspace with --workspace",
    UnknownMemory: "list the memories with `duramen memory list`; it may have been forgotten",
    UnknownProposal: "list the proposals with `duramen proposals list`",
}
"""Hints that replace those of the library, which are written for programs."""
_MORE_HINTS: dict[type[DuramenError], str] = {
    NotAStore: "check --store; for an encrypted file, set DURAMEN_FILE_KEY in the environment",
    StoreUnavailable: "check --store, or DURAMEN_STORE in the environment",
}
"""Hints that are printed after those of the library."""


def print_error(message: str, hint: str = "") -> None:
    """Print an error and a hint."""
    console = PlainConsole(stderr=True)
    console.print_line(("Error: ", "bold red"), (_one_line(message), "red"))
    if hint:
        console.print_line(("Hint: ", "bold"), _one_line(hint))


def print_exception(error: Exception) -> None:
    """Print what an exception means, without a traceback."""
    if isinstance(error, DuramenError):
        hint = _CLI_HINTS.get(type(error), error.hint)
        more = _MORE_HINTS.get(type(error))
        print_error(error.message, with_cli_hint(hint, more) if more else hint)
    elif isinstance(error, OSError):
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        print_error(f"{where}{error.strerror or error}")
    else:
        print_error(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in duramen: please report it with the traceback that DURAMEN_DEBUG=1 shows",
        )


def with_cli_hint(hint: str, cli_hint: str) -> str:
    """A hint of the library, followed by what to do on the command line."""
    return f"{hint}; on the command line: {cli_hint}" if hint else cli_hint


def _one_line(text: str) -> str:
    return " ".join(visible(line.strip()) for line in text.splitlines())
