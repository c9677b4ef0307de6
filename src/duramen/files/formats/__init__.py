"""The text of memory files. Start with memory_file.py, our own format.

memory_file    one memory as one markdown file
index_file     the lines of MEMORY.md
frontmatter    the YAML fields at the top of a file
list_items     numbered and bulleted lists

Formats of other programs are read into `Note` and written from it:

note           `Note` and the `Format` protocol
note_folder    from a folder to texts, and back
markdown_page  front matter and text, shared by the next two
claude_code    Claude Code's memory folders: an index with links, files with name, description and type
basic_memory   Basic Memory's notes with observations and relations
openclaw       OpenClaw's MEMORY.md and daily logs
json_lines     one JSON object per line

A format is pure: from texts under their paths to notes, and back. What was read and not changed is written again byte by
byte; JSON value by value.
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
