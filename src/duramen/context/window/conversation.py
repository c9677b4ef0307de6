"""The parts of a conversation: messages, tool calls with results, decisions with reasons, errors with resolutions.

Each is an event whose type begins with `TALK`. An entry is the unit that a context shows or leaves out: a tool call
with its result, an error with its resolution, or any other event alone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...errors import InvalidInput, shown
from ...journal.events import MAX_NAME, Draft, Event
from .content_blocks import are_blocks, is_block

ROLES = ("user", "assistant", "system")
_LONGEST_ID = 200
_PRIVATE = ("thinking", "redacted_thinking", "reasoning")
"""Content blocks that are never stored: the model's reasoning."""


class EntryKind(enum.StrEnum):
    """The kinds of conversation events."""

    MESSAGE = "talk.message"
    """A message of the user, the assistant or the system."""
    CALL = "talk.called"
    """The model called a tool."""
    RESULT = "talk.returned"
    """The result of a tool call."""
    DECISION = "talk.decided"
    """A decision and its reason."""
    ERROR = "talk.erred"
    """An error."""
    RESOLUTION = "talk.resolved"
    """The resolution of an error."""
    OBSERVATION = "talk.observed"
    """Something that was observed, and its source."""


class Priority(enum.IntEnum):
    """The importance of an entry. If there is no room, the lowest is left out first."""

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
    """An entry of a conversation. `answer` is the result of a call or the resolution of an error, once there is one.
    `answer_position` and `answer_subject` are the position and subject of that event."""

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
        """The position of its last event."""
        return self.answer_position or self.position

    @property
    def places(self) -> tuple[int, ...]:
        """The positions of its events."""
        return (self.position,) if self.answer_position is None else (self.position, self.answer_position)

    @property
    def is_system_prompt(self) -> bool:
        """Whether it is a message with the role "system"."""
        return self.kind is EntryKind.MESSAGE and self.data["role"] == "system"

    @property
    def is_open(self) -> bool:
        """Whether it is a call without a result."""
        return self.kind is EntryKind.CALL and self.answer is None


def message(role: str, content: Any, name: str | None, priority: str | None) -> Draft:
    """The draft of a message, without reasoning blocks. Raises `InvalidInput` for an unknown role or bad content."""
    if role not in ROLES:
        hint = "valid roles: user, assistant, system; pass the output of a tool to session.tool_result(…)"
        raise InvalidInput(f"unknown role {shown(role)}", hint=hint)
    if isinstance(content, list):
        content = [block for block in content if not (isinstance(block, dict) and block.get("type") in _PRIVATE)]
        _check_blocks(content)
    elif not isinstance(content, str) or not content.strip():
        raise InvalidInput("the message needs content", hint="give text, or a list of content blocks")
    data = {"role": role, "content": content}
    if name is not None:
        data["name"] = _text("name", name)
    return _draft(EntryKind.MESSAGE, data, priority, role)


def call(tool: str, arguments: Any, id: str, priority: str | None) -> Draft:
    """The draft of a tool call."""
    return _draft(EntryKind.CALL, {"id": _id(id), "tool": _text("tool", tool), "arguments": arguments}, priority)


def result(id: str, output: Any, error: bool) -> Draft:
    """The draft of a tool result."""
    return _draft(EntryKind.RESULT, {"id": _id(id), "output": output, "error": bool(error)}, None)


def decision(decided: str, reason: str, priority: str | None) -> Draft:
    """The draft of a decision and its reason."""
    data = {"decision": _text("decision", decided), "reason": _text("reason", reason)}
    return _draft(EntryKind.DECISION, data, priority)


def error(what: str, priority: str | None) -> Draft:
    """The draft of an error."""
    return _draft(EntryKind.ERROR, {"error": _text("error", what)}, priority, "assistant")


def resolution(of: int, how: str) -> Draft:
    """The draft of the resolution of the error at position `of`."""
    if not isinstance(of, int) or isinstance(of, bool) or not 0 < of < 2**63:
        hint = "give the event that session.log_error(…) returned"
        raise InvalidInput(f"{shown(of)} is not the position of an error", hint=hint)
    return with_cause(_draft(EntryKind.RESOLUTION, {"of": of, "resolution": _text("resolution", how)}, None), of)


def observation(what: str, source: str, priority: str | None) -> Draft:
    """The draft of an observation and its source."""
    data = {"observed": _text("observation", what), "source": _text("source", source)}
    return _draft(EntryKind.OBSERVATION, data, priority, source[:MAX_NAME])


def with_cause(draft: Draft, cause: int) -> Draft:
    """A copy of the draft with a cause."""
    return Draft(draft.type, draft.data, draft.actor, cause)


def reference(position: int) -> str:
    """The reference to an event, as a digest shows it and `fetch` accepts it."""
    return f"#{position}"


def _draft(kind: EntryKind, data: dict[str, Any], priority: str | None, actor: str | None = "assistant") -> Draft:
    if priority is not None:
        try:
            data["priority"] = Priority[priority.upper()].name.lower()
        except (KeyError, AttributeError):
            known = ", ".join(one.name.lower() for one in Priority)
            raise InvalidInput(f"unknown priority {shown(priority)}", hint=f"valid priorities: {known}") from None
    return Draft(kind.value, data, "tool" if kind is EntryKind.RESULT else actor)


def _text(what: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"the {what} is empty or not text", hint="give a text that is not empty")
    return value


def _id(value: object) -> str:
    text = _text("id", value)
    if len(text) > _LONGEST_ID:
        raise InvalidInput(f"the id is too long: {len(text)} characters", hint=f"give at most {_LONGEST_ID} characters")
    return text


def _check_blocks(blocks: list[Any]) -> None:
    if not blocks:
        raise InvalidInput("the message needs content", hint="give text, or a list of content blocks")
    for block in blocks:
        if isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result", "tool_call"):
            raise InvalidInput(
                f"a message cannot contain {block['type']} blocks",
                hint="use session.tool_call(…) and session.tool_result(…), which connect a call with its result",
            )
        if not is_block(block):
            raise InvalidInput(
                "the message has an invalid content block",
                hint='a block is a dict such as {"type": "text", "text": "…"}, or an image with its source',
            )


def conversation_entries(events: Iterable[Event]) -> list[ConversationEntry]:
    """The entries that the events form, ordered by their last event. Results join their calls, and resolutions their
    errors. Erased and malformed events are left out."""
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
    """Lower the priority of system prompts after the first. Only the first is always shown."""
    prompts = [entry for entry in found if entry.is_system_prompt and "priority" not in entry.data]
    first = min((entry.position for entry in prompts), default=0)
    return [
        replace(entry, priority=Priority.HIGH) if entry in prompts and entry.position != first else entry
        for entry in found
    ]


def is_well_formed(kind: EntryKind, data: Any) -> bool:
    """Whether the data of an event has the shape that this module writes. Users can append any data."""
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
    """Join an answer to its entry. An answer to an unknown or already answered entry becomes an entry of its own."""
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
