"""The records of the rules: the turn that they read, and the finding that they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FACT, PROCEDURE, BLOCKER = "fact", "procedure", "blocker"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call and its outcome."""

    tool: str
    arguments: Any
    ok: bool
    output: str

    @property
    def command(self) -> str | None:
        """The command line of a tool that runs commands; None for other tools."""
        given = self.arguments
        if isinstance(given, Mapping):
            for name in ("command", "cmd", "script", "commandline"):
                if isinstance(given.get(name), str):
                    return " ".join(given[name].split())
        return " ".join(given.split()) if isinstance(given, str) and self.tool in ("bash", "shell", "sh") else None


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn: the user's message, the tool calls, and the assistant's answer. `position` is where it began."""

    user: str
    calls: tuple[ToolCall, ...] = ()
    assistant: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in a turn, whether it is kept, and why. `evidence` is the text it is based on. A procedure has
    a name, steps, and whether it `worked` (None if that is not known)."""

    keep: bool
    kind: str
    content: str
    reason: str
    evidence: str
    position: int
    name: str = ""
    steps: tuple[str, ...] = field(default=())
    worked: bool | None = None
