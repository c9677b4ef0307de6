"""Renders the entries of a conversation as messages for a model, whole or masked, and counts their tokens."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ...ports import TokenCounter
from ..digests.digest import digest
from ..tokens.counters import count_value
from .content_blocks import are_blocks, plain_value, text_of
from .conversation import ConversationEntry, EntryKind, reference

MESSAGE_TOKENS = 4
"""Tokens of a message in addition to its text: role and separators."""
CALL_TOKENS = 12
"""Tokens of a tool call or result in addition to its texts: field names and separators."""
_CACHED = 1024
_BEGINNING = 8
"""To compare a long text with a limit, this many characters per token of the limit are counted first."""
_LARGE = 4_000
"""Entries with more tokens are not cached."""


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """One part of a context: a message (role and content), a tool call, or a tool result."""

    role: str
    content: Any = None
    name: str | None = None
    call: dict[str, Any] | None = None
    result: dict[str, Any] | None = None

    def plain(self) -> dict[str, Any]:
        """The message as plain data."""
        if self.call is not None:
            return {"role": "assistant", "tool_call": self.call}
        if self.result is not None:
            return {"role": "tool", **self.result}
        named = {} if self.name is None else {"name": self.name}
        return {"role": self.role, "content": self.content, **named}


@dataclass(frozen=True, slots=True)
class RenderedEntry:
    """An entry as it is shown, with its tokens. It does not hold the entry, whose output may be megabytes."""

    position: int
    last: int
    kind: EntryKind
    is_system_prompt: bool
    messages: tuple[ContextMessage, ...]
    tokens: int
    masked: bool


class EntryRenderer:
    """Renders entries and caches the results, which depend only on the entry and the settings."""

    def __init__(self, counter: TokenCounter, mask_to: int) -> None:
        self._counter = counter
        self._mask_to = mask_to
        self._made: OrderedDict[tuple[str, tuple[int, ...], int | None], RenderedEntry] = OrderedDict()

    def render(self, session: str, entry: ConversationEntry, mask: int | None) -> RenderedEntry:
        """Render an entry. A value longer than `mask` tokens is replaced by a digest. None masks only bytes."""
        place = (session, entry.places, mask)
        found = self._made.get(place)
        if found is None:
            messages, masked = self._messages(entry, mask)
            tokens = sum(map(self._cost, messages))
            found = RenderedEntry(
                entry.position, entry.last, entry.kind, entry.is_system_prompt, messages, tokens, masked
            )
            if tokens <= _LARGE:
                self._made[place] = found
            while len(self._made) > _CACHED:
                self._made.popitem(last=False)
        return found

    def _messages(self, entry: ConversationEntry, mask: int | None) -> tuple[tuple[ContextMessage, ...], bool]:
        data, answer = entry.data, entry.answer
        if entry.kind is EntryKind.MESSAGE:
            content, masked = self._shown(data["content"], mask, entry.position, "message")
            return (ContextMessage(data["role"], content, data.get("name")),), masked
        if entry.kind is EntryKind.CALL and answer is not None:
            asked = {"id": data["id"], "tool": data["tool"], "arguments": plain_value(data["arguments"])}
            output, masked = self._shown(answer["output"], mask, entry.last, "tool output")
            given = {"id": data["id"], "content": output, "error": bool(answer.get("error"))}
            return (ContextMessage("assistant", call=asked), ContextMessage("tool", result=given)), masked
        if entry.kind is EntryKind.CALL:
            text = f"[called {data['tool']}({text_of(data['arguments'])}): no result yet]"
            return (ContextMessage("assistant", text),), False
        if entry.kind is EntryKind.RESULT:
            output, masked = self._shown(data["output"], mask, entry.position, "tool output")
            return (ContextMessage("user", f"[result of an earlier call {data['id']}] {text_of(output)}"),), masked
        if entry.kind is EntryKind.OBSERVATION:
            seen, masked = self._shown(data["observed"], mask, entry.position, "observation")
            return (ContextMessage("user", f"[observed by {data['source']}] {text_of(seen)}"),), masked
        return (ContextMessage("assistant", _statement(entry)),), False

    def _shown(self, value: Any, mask: int | None, position: int, what: str) -> tuple[Any, bool]:
        """A value as text or content blocks, whole or masked. Bytes are always masked."""
        binary = isinstance(value, (bytes, bytearray))
        if not binary:
            value = plain_value(value) if are_blocks(value) else text_of(value)
            if mask is None or not self._is_longer(value, mask):
                return value, False
        short = digest(value, limit=self._mask_to, counter=self._counter, reference=f'fetch("{reference(position)}")')
        return short.replace("[tool output", f"[{what}", 1), True

    def _is_longer(self, value: Any, mask: int) -> bool:
        """Whether a value takes more than `mask` tokens. The beginning of a long text is counted first: that is usually
        enough, and its cost does not grow with the text."""
        if isinstance(value, str) and len(value) > _BEGINNING * (mask + 8):
            beginning = value[: _BEGINNING * (mask + 8)]
            if self._counter.count(beginning) > mask + 8:
                return True
        return self._tokens(value) > mask

    def _tokens(self, content: Any) -> int:
        return count_value(self._counter, content)

    def _cost(self, message: ContextMessage) -> int:
        if message.call is not None:
            texts = (message.call["id"], message.call["tool"], text_of(message.call["arguments"]))
            return sum(map(self._counter.count, texts)) + CALL_TOKENS
        if message.result is not None:
            return self._tokens(message.result["content"]) + self._counter.count(message.result["id"]) + CALL_TOKENS
        named = 0 if message.name is None else self._counter.count(message.name) + 1
        return self._tokens(message.content) + named + MESSAGE_TOKENS


def _statement(entry: ConversationEntry) -> str:
    data = entry.data
    if entry.kind is EntryKind.DECISION:
        return f"Decision: {data['decision']}\nReason: {data['reason']}"
    if entry.kind is EntryKind.RESOLUTION:
        return f"Resolution of an earlier error: {data['resolution']}"
    said = f"Error: {data['error']}"
    return said if entry.answer is None else f"{said}\nResolution: {entry.answer['resolution']}"
