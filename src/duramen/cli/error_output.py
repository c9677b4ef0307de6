"""Errors as the user of a command sees them: what happened, and on a line of its own what to do."""

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
from .screen import Screen
from .terminal_text import visible

FAILED = 2
"""The exit code when a command could not do what it was asked."""

_KEY = "DURAMEN_KEY in the environment"
_HERE: dict[type[DuramenError], str] = {
    KeyMissing: _KEY,
    WrongKey: _KEY,
    NotAStore: "--store, and for an encrypted file DURAMEN_FILE_KEY in the environment",
    StoreUnavailable: "--store, or DURAMEN_STORE in the environment",
    UnknownSession: "--workspace chooses another workspace",
    UnknownMemory: "duramen memory list",
    UnknownProposal: "duramen proposals list",
}
"""The library's hints speak to a program; this is where the same is said on the command line."""


def complain(message: str, hint: str = "") -> None:
    """Say on standard error what went wrong."""
    screen = Screen(stderr=True)
    screen.say(("Error: ", "bold red"), (_one_line(message), "red"))
    if hint:
        screen.say(("Hint: ", "bold"), _one_line(hint))


def complain_about(error: Exception) -> None:
    """Say what an exception means; never a traceback."""
    if isinstance(error, DuramenError):
        here = _HERE.get(type(error))
        complain(error.message, f"{error.hint} (here: {here})" if here else error.hint)
    elif isinstance(error, OSError):
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        complain(f"{where}{error.strerror or error}")
    else:
        complain(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in duramen: please report it, with DURAMEN_DEBUG=1 set for the details",
        )


def _one_line(text: str) -> str:
    return " ".join(visible(line.strip()) for line in text.splitlines())
