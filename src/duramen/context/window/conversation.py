"""What a conversation is made of: messages, tool calls with results, decisions with reasons, errors with resolutions.

Each is an event whose type begins with `TALK`. A entry is what stands or falls together in a context window: a tool call
and its result, an error and its resolution, or one of the others alone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...errors import InvalidInput
from ...journal.events import MAX_NAME, Draft, Event
from .content_blocks import are_blocks, is_block

ROLES = ("user", "assistant", "system")
_LONGEST_ID = 200
_PRIVATE = ("thinking", "redacted_thinking", "reasoning")
"""Blocks that are never stored: what a model thinks before it answers."""


class EntryKind(enum.StrEnum):
    """The kinds of conversation events."""

    MESSAGE = "talk.message"
    """A message of the user, the assistant or the system."""
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
    OBSERVATION = "talk.observed"
    """What was noticed without being asked."""


class Priority(enum.IntEnum):
    """What goes first when there is no room: the lowest."""

    LOW = 1
    NORMAL = 2
    HIGH = 3
    ALWAYS = 4


_DEFAULTS = {
    EntryKind.MESSAGE: Priority.NORMAL,
    EntryKind.CALL: Priority.LOW,
    EntryKind.DECISION: Priority.HIGH,
    EntryKind.ERROR: Priority.NORMAL,
    EntryKind.OBSERVATION: Priority.LOW,
}


@dataclass(frozen=True, slots=True)
class ConversationEntry:
    """An entry of a conversation, with what belongs to it. `answer` is a call's result or an error's resolution, once
    there is one; `answer_position` is where that lies, and `answer_subject` the subject of it."""

    position: int
    kind: EntryKind
    data: dict[str, Any]
    priority: Priority
    subject: str | None = None
    answer: dict[str, Any] | None = None
    answer_position: int | None = None
    answer_subject: str | None = None

    @property
    def last(self) -> int:
        """The position of its last event: when it was news."""
        return self.answer_position or self.position

    @property
    def places(self) -> tuple[int, ...]:
        """The positions of its events."""
        return (self.position,) if self.answer_position is None else (self.position, self.answer_position)

    @property
    def is_system_prompt(self) -> bool:
        """Whether the system says it."""
        return self.kind is EntryKind.MESSAGE and self.data["role"] == "system"

    @property
    def is_open(self) -> bool:
        """Whether it is a call that has no result yet."""
        return self.kind is EntryKind.CALL and self.answer is None


def message(role: str, content: Any, name: str | None, priority: str | None) -> Draft:
    """A message of the user, the assistant or the system."""
    if role not in ROLES:
        hint = "roles are user, assistant and system; a tool's output goes to session.tool_result(…)"
        raise InvalidInput(f"{role!r} is no role", hint=hint)
    if isinstance(content, list):
        content = [block for block in content if not (isinstance(block, dict) and block.get("type") in _PRIVATE)]
        _check_blocks(content)
    elif not isinstance(content, str) or not content.strip():
        raise InvalidInput("a message needs content", hint="give text, or a list of content blocks")
    data = {"role": role, "content": content}
    if name is not None:
        data["name"] = _text("name", name)
    return _draft(EntryKind.MESSAGE, data, priority, role)


def call(tool: str, arguments: Any, id: str, priority: str | None) -> Draft:
    """The model asked for a tool."""
    return _draft(EntryKind.CALL, {"id": _id(id), "tool": _text("tool", tool), "arguments": arguments}, priority)


def result(id: str, output: Any, error: bool) -> Draft:
    """What a tool gave back."""
    return _draft(EntryKind.RESULT, {"id": _id(id), "output": output, "error": bool(error)}, None)


def decision(decided: str, reason: str, priority: str | None) -> Draft:
    """What was decided, and why."""
    data = {"decision": _text("decision", decided), "reason": _text("reason", reason)}
    return _draft(EntryKind.DECISION, data, priority)


def error(what: str, priority: str | None) -> Draft:
    """What went wrong."""
    return _draft(EntryKind.ERROR, {"error": _text("error", what)}, priority, "assistant")


def resolution(of: int, how: str) -> Draft:
    """How an error was put right."""
    if not isinstance(of, int) or isinstance(of, bool) or not 0 < of < 2**63:
        raise InvalidInput(f"{of!r} is no error that was met", hint="give the event that session.log_error(…) returned")
    return with_cause(_draft(EntryKind.RESOLUTION, {"of": of, "resolution": _text("resolution", how)}, None), of)


def observation(what: str, source: str, priority: str | None) -> Draft:
    """What was noticed without being asked."""
    data = {"observed": _text("observation", what), "source": _text("source", source)}
    return _draft(EntryKind.OBSERVATION, data, priority, source[:MAX_NAME])


def with_cause(draft: Draft, cause: int) -> Draft:
    """The same draft with a cause."""
    return Draft(draft.type, draft.data, draft.actor, cause)


def reference(position: int) -> str:
    """The reference to the whole of what was masked."""
    return f"#{position}"


def _draft(kind: EntryKind, data: dict[str, Any], priority: str | None, actor: str | None = "assistant") -> Draft:
    if priority is not None:
        try:
            data["priority"] = Priority[priority.upper()].name.lower()
        except (KeyError, AttributeError):
            known = ", ".join(one.name.lower() for one in Priority)
            raise InvalidInput(f"{priority!r} is no priority", hint=f"known are: {known}") from None
    return Draft(kind.value, data, "tool" if kind is EntryKind.RESULT else actor)


def _text(what: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{value!r} cannot be the {what}", hint="give a text that is not empty")
    return value


def _id(value: object) -> str:
    text = _text("id", value)
    if len(text) > _LONGEST_ID:
        raise InvalidInput(f"an id of {len(text)} characters is too long", hint=f"give at most {_LONGEST_ID}")
    return text


def _check_blocks(blocks: list[Any]) -> None:
    if not blocks:
        raise InvalidInput("a message needs content", hint="give text, or a list of content blocks")
    for block in blocks:
        if isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result", "tool_call"):
            raise InvalidInput(
                f"{block['type']} blocks are not part of a message",
                hint="use session.tool_call(…) and session.tool_result(…): they stand and fall together",
            )
        if not is_block(block):
            raise InvalidInput(
                "a content block is a dict with a type and what belongs to it",
                hint='such as {"type": "text", "text": "…"}, or an image with its source',
            )


def conversation_entries(events: Iterable[Event]) -> list[ConversationEntry]:
    """The entries of a conversation, by when they were news, answers joined to what they answer. What was erased, and
    what is shaped otherwise than these functions make it, is left out."""
    found: dict[int, ConversationEntry] = {}
    calls: dict[str, int] = {}
    for event in events:
        kind = _kind(event.type)
        if event.erased or kind is None or not is_well_formed(kind, event.data):
            continue
        if kind is EntryKind.RESULT:
            _answer(found, calls.get(event.data["id"]), EntryKind.CALL, event)
        elif kind is EntryKind.RESOLUTION:
            _answer(found, event.data["of"], EntryKind.ERROR, event)
        else:
            entry = ConversationEntry(event.position, kind, event.data, _priority(kind, event.data), event.subject)
            found[event.position] = entry
            if kind is EntryKind.CALL:
                calls[event.data["id"]] = event.position
    return _one_prompt(sorted(found.values(), key=lambda entry: entry.last))


def _one_prompt(found: list[ConversationEntry]) -> list[ConversationEntry]:
    """The first thing that the system says is always shown; what it says later can go, if there is no room."""
    prompts = [entry for entry in found if entry.is_system_prompt and "priority" not in entry.data]
    first = min((entry.position for entry in prompts), default=0)
    return [
        replace(entry, priority=Priority.HIGH) if entry in prompts and entry.position != first else entry
        for entry in found
    ]


def is_well_formed(kind: EntryKind, data: Any) -> bool:
    """Whether an event's data is what these functions make. Anybody can append events by hand."""
    if not isinstance(data, dict):
        return False

    def texts(*names: str) -> bool:
        return all(isinstance(data.get(name), str) for name in names)

    if kind is EntryKind.MESSAGE:
        content, name = data.get("content"), data.get("name")
        said = bool(content.strip()) if isinstance(content, str) else are_blocks(content)
        return data.get("role") in ROLES and said and (name is None or isinstance(name, str))
    if kind is EntryKind.CALL:
        return texts("id", "tool") and "arguments" in data
    if kind is EntryKind.RESULT:
        return texts("id") and "output" in data
    if kind is EntryKind.DECISION:
        return texts("decision", "reason")
    if kind is EntryKind.ERROR:
        return texts("error")
    if kind is EntryKind.OBSERVATION:
        return texts("observed", "source")
    return texts("resolution") and isinstance(data.get("of"), int) and not isinstance(data["of"], bool)


def _kind(type: str) -> EntryKind | None:
    try:
        return EntryKind(type)
    except ValueError:
        return None


def _answer(found: dict[int, ConversationEntry], position: int | None, to: EntryKind, event: Event) -> None:
    """Join an answer to what it answers. One to something that is not among these events, or that was answered before,
    stands alone as what it is."""
    asked = found.get(position) if position is not None else None
    if asked is None or asked.kind is not to or asked.answer is not None:
        found[event.position] = ConversationEntry(
            event.position, EntryKind(event.type), event.data, Priority.LOW, event.subject
        )
    else:
        answered = replace(asked, answer=event.data, answer_position=event.position, answer_subject=event.subject)
        found[asked.position] = answered


def _priority(kind: EntryKind, data: dict[str, Any]) -> Priority:
    given = data.get("priority")
    if isinstance(given, str) and given.upper() in Priority.__members__:
        return Priority[given.upper()]
    if kind is EntryKind.MESSAGE and data.get("role") == "system":
        return Priority.ALWAYS
    return _DEFAULTS.get(kind, Priority.LOW)
