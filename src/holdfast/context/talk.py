"""What a conversation is made of: messages, tool calls with results, decisions with reasons, errors with resolutions.

Each is an event whose type begins with `TALK`. A unit is what stands or falls together in a context window: a tool call
and its result, an error and its resolution, or one of the others alone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InvalidInput
from ..journal.events import Draft, Event

ROLES = ("user", "assistant", "system")


class Kind(enum.StrEnum):
    """The kinds of conversation events."""

    MESSAGE = "talk.message"
    """Somebody said something."""
    CALL = "talk.called"
    """The model asked for a tool."""
    RESULT = "talk.returned"
    """What the tool gave back."""
    DECISION = "talk.decided"
    """What was decided, and why."""
    ERROR = "talk.erred"
    """What went wrong."""
    RESOLUTION = "talk.resolved"
    """How it was put right."""


class Priority(enum.IntEnum):
    """What goes first when there is no room: the lowest."""

    LOW = 1
    NORMAL = 2
    HIGH = 3
    ALWAYS = 4


_DEFAULTS = {
    Kind.MESSAGE: Priority.NORMAL,
    Kind.CALL: Priority.LOW,
    Kind.DECISION: Priority.HIGH,
    Kind.ERROR: Priority.NORMAL,
}


@dataclass(frozen=True, slots=True)
class Unit:
    """An entry of a conversation, with what belongs to it. `answer` is a call's result or an error's resolution, once
    there is one; `answered` is where that lies."""

    position: int
    kind: Kind
    data: dict[str, Any]
    priority: Priority
    subject: str | None = None
    answer: dict[str, Any] | None = None
    answered: int | None = None

    @property
    def last(self) -> int:
        """The position of its last event."""
        return self.answered or self.position


def message(role: str, content: Any, name: str | None, priority: str | None) -> Draft:
    """Somebody said something."""
    if role not in ROLES:
        hint = "roles are user, assistant and system; a tool's output goes to session.tool_result(…)"
        raise InvalidInput(f"{role!r} is no role", hint=hint)
    if not isinstance(content, (str, list)) or not content:
        raise InvalidInput("a message needs content", hint="give text, or a list of content blocks")
    if isinstance(content, list):
        _check_blocks(content)
    data = {"role": role, "content": content}
    if name is not None:
        data["name"] = _text("name", name)
    return _draft(Kind.MESSAGE, data, priority, role)


def call(tool: str, arguments: Any, id: str, priority: str | None) -> Draft:
    """The model asked for a tool."""
    return _draft(Kind.CALL, {"id": _text("id", id), "tool": _text("tool", tool), "arguments": arguments}, priority)


def result(id: str, output: Any, error: bool) -> Draft:
    """What a tool gave back."""
    return _draft(Kind.RESULT, {"id": _text("id", id), "output": output, "error": bool(error)}, None)


def decision(decided: str, reason: str, priority: str | None) -> Draft:
    """What was decided, and why."""
    data = {"decision": _text("decision", decided), "reason": _text("reason", reason)}
    return _draft(Kind.DECISION, data, priority)


def error(what: str, priority: str | None) -> Draft:
    """What went wrong."""
    return _draft(Kind.ERROR, {"error": _text("error", what)}, priority, "assistant")


def resolution(of: int, how: str) -> Draft:
    """How an error was put right."""
    return replace_cause(_draft(Kind.RESOLUTION, {"of": of, "resolution": _text("resolution", how)}, None), of)


def replace_cause(draft: Draft, cause: int) -> Draft:
    """The same draft with a cause."""
    return Draft(draft.type, draft.data, draft.actor, cause)


def _draft(kind: Kind, data: dict[str, Any], priority: str | None, actor: str | None = "assistant") -> Draft:
    if priority is not None:
        try:
            data["priority"] = Priority[priority.upper()].name.lower()
        except (KeyError, AttributeError):
            known = ", ".join(one.name.lower() for one in Priority)
            raise InvalidInput(f"{priority!r} is no priority", hint=f"known are: {known}") from None
    return Draft(kind.value, data, "tool" if kind is Kind.RESULT else actor)


def _text(what: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{value!r} cannot be the {what}", hint="give a text that is not empty")
    return value


def _check_blocks(blocks: list[Any]) -> None:
    for block in blocks:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise InvalidInput(
                "a content block is a dict with a type",
                hint='such as {"type": "text", "text": "…"}; tool calls go to session.tool_call(…)',
            )
        if block["type"] in ("tool_use", "tool_result", "tool_call"):
            raise InvalidInput(
                f"{block['type']} blocks are not part of a message",
                hint="use session.tool_call(…) and session.tool_result(…): they stand and fall together",
            )


def units(events: Iterable[Event]) -> list[Unit]:
    """The entries of a conversation in their order, answers joined to what they answer. What was erased, and what is
    shaped otherwise than these functions make it, is left out."""
    found: dict[int, Unit] = {}
    calls: dict[str, int] = {}
    for event in events:
        if event.erased or not isinstance(event.data, dict):
            continue
        kind = _kind(event.type)
        if kind is Kind.RESULT:
            _answer(found, calls.get(str(event.data.get("id"))), event)
        elif kind is Kind.RESOLUTION:
            of = event.data.get("of")
            _answer(found, of if isinstance(of, int) else None, event)
        elif kind is not None:
            unit = Unit(event.position, kind, event.data, _priority(kind, event.data), event.subject)
            found[event.position] = unit
            if kind is Kind.CALL:
                calls[str(event.data.get("id"))] = event.position
    return list(found.values())


def _kind(type: str) -> Kind | None:
    try:
        return Kind(type)
    except ValueError:
        return None


def _answer(found: dict[int, Unit], position: int | None, event: Event) -> None:
    """Join an answer; one to something that lies before these events stands alone as what it is."""
    asked = found.get(position) if position is not None else None
    if asked is None:
        kind = Kind(event.type)
        found[event.position] = Unit(event.position, kind, event.data, Priority.LOW, event.subject)
    elif asked.answer is None:
        found[asked.position] = replace(asked, answer=event.data, answered=event.position)


def _priority(kind: Kind, data: dict[str, Any]) -> Priority:
    given = data.get("priority")
    if isinstance(given, str) and given.upper() in Priority.__members__:
        return Priority[given.upper()]
    if kind is Kind.MESSAGE and data.get("role") == "system":
        return Priority.ALWAYS
    return _DEFAULTS.get(kind, Priority.LOW)
