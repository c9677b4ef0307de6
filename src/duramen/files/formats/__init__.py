"""The text of memory files, and the file formats of other programs.

memory_file.py    one memory as one markdown file, the format of duramen: start here
index_file.py     the lines of MEMORY.md
frontmatter.py    the YAML fields at the top of a file
list_items.py     numbered and bulleted lists

Formats of other programs are read into `Note` and written from it:

note.py           `Note` and the `Format` protocol
note_folder.py    reads a folder into notes, and writes notes to a folder
markdown_page.py  front matter and text, shared by the next two
claude_code.py    Claude Code's memory folders: an index with links, files with name, description and type
basic_memory.py   Basic Memory's notes with observations and relations
openclaw.py       OpenClaw's MEMORY.md and daily logs
json_lines.py     one JSON object per line

A format converts texts to notes and back, without I/O. Unchanged notes are written back byte for byte; JSON lines keep
their values, but not their spelling.
"""

from __future__ import annotations

from .note import Format, Imported, Note

__all__ = ["FORMATS", "Format", "Imported", "Note", "format_named"]

FORMATS = ("claude", "openclaw", "basic-memory", "jsonl")
"""The names of the formats."""


def format_named(name: str) -> Format:
    """The format with this name. Raises `InvalidInput` if there is none."""
    from ...errors import InvalidInput, shown
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
    if not isinstance(name, str) or name not in found:
        raise InvalidInput(f"there is no format {shown(name)}", hint=f"valid formats: {', '.join(FORMATS)}")
    return found[name]
