"""The record of a turn that rules read, and the finding that they return."""

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
        """The command line that was run, if that is what the tool does."""
        given = self.arguments
        if isinstance(given, Mapping):
            for name in ("command", "cmd", "script", "commandline"):
                if isinstance(given.get(name), str):
                    return " ".join(given[name].split())
        return " ".join(given.split()) if isinstance(given, str) and self.tool in ("bash", "shell", "sh") else None


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn: what the user said, the tool calls, and what the assistant answered; `position` is where it began."""

    user: str
    calls: tuple[ToolCall, ...] = ()
    assistant: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in a turn: kept or not, and why. `evidence` are the words it rests on. A procedure has a name and
    steps; `worked` says whether it worked, None if that is not known."""

    keep: bool
    kind: str
    content: str
    reason: str
    evidence: str
    position: int
    name: str = ""
    steps: tuple[str, ...] = field(default=())
    worked: bool | None = None
