"""Other people's files: what each format gives and takes is a `Note`.

claude         Claude Code's memory folders: an index with links, leaves with name, description and type
openclaw       OpenClaw's MEMORY.md and daily logs
basicmemory    Basic Memory's notes with observations and relations
jsonlines      one JSON object in each line
folders        from a folder to texts, and back

A format is pure: from texts under their paths to notes, and back. What was read and not changed is written as it was,
to the byte; in JSON, value for value.
"""

from __future__ import annotations

from .note import Format, Imported, Note

__all__ = ["FORMATS", "Format", "Imported", "Note", "format_named"]

FORMATS = ("claude", "openclaw", "basic-memory", "jsonl")
"""The names of the formats."""


def format_named(name: str) -> Format:
    """The format of this name. Raises `InvalidInput` if there is none."""
    from ...errors import InvalidInput
    from .basic_memory import BasicMemory
    from .claude_code import Claude
    from .json_lines import JsonLines
    from .openclaw import OpenClaw

    found: dict[str, Format] = {
        "claude": Claude(),
        "openclaw": OpenClaw(),
        "basic-memory": BasicMemory(),
        "jsonl": JsonLines(),
    }
    if name not in found:
        raise InvalidInput(f"there is no format {name!r}", hint=f"one of: {', '.join(FORMATS)}")
    return found[name]
