"""Errors on standard error: what happened, and on the next line what to do."""

from __future__ import annotations

import os

from ..errors import (
    DuramenError,
    KeyMissing,
    NotAStore,
    StoreUnavailable,
    UnknownMemory,
    UnknownProposal,
    UnknownSession,
    WrongKey,
)
from .console import PlainConsole
from .terminal_text import visible

FAILED = 2
"""The exit code when a command failed."""

_KEY_HINT = "DURAMEN_KEY in the environment"
_CLI_HINTS: dict[type[DuramenError], str] = {
    KeyMissing: _KEY_HINT,
    WrongKey: _KEY_HINT,
    NotAStore: "--store, and for an encrypted file DURAMEN_FILE_KEY in the environment",
    StoreUnavailable: "--store, or DURAMEN_STORE in the environment",
    UnknownSession: "--workspace chooses another workspace",
    UnknownMemory: "duramen memory list",
    UnknownProposal: "duramen proposals list",
}
"""The options that correspond to the hints of the library, which are written for programs."""


def print_error(message: str, hint: str = "") -> None:
    """Print an error, and a hint what to do."""
    console = PlainConsole(stderr=True)
    console.print_line(("Error: ", "bold red"), (_one_line(message), "red"))
    if hint:
        console.print_line(("Hint: ", "bold"), _one_line(hint))


def print_exception(error: Exception) -> None:
    """Print what an exception means, without a traceback."""
    if isinstance(error, DuramenError):
        hint = _CLI_HINTS.get(type(error))
        print_error(error.message, f"{error.hint} (here: {hint})" if hint else error.hint)
    elif isinstance(error, OSError):
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        print_error(f"{where}{error.strerror or error}")
    else:
        print_error(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in duramen: please report it, with DURAMEN_DEBUG=1 set for the details",
        )


def _one_line(text: str) -> str:
    return " ".join(visible(line.strip()) for line in text.splitlines())
