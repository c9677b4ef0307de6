"""The actor of events that commands append."""

from __future__ import annotations

import getpass
import os


def cli_actor() -> str:
    """`cli:` and the name of the user who runs the command."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError, ImportError):  # a user without a name, as in many containers
        return f"cli:{os.getuid()}" if hasattr(os, "getuid") else "cli"
