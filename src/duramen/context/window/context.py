"""A context: what the model sees next, why each entry is included or not, and the formats of the providers."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import InvalidInput, shown
from .content_blocks import as_json, image_url, plain_value, sendable, text_of
from .entries import ContextMessage

BEFORE_ANYTHING = "[Start of conversation.]"
"""The first user message where a provider requires one and the conversation begins with another role."""
_ODD = re.compile(r"[^a-zA-Z0-9_-]")


class Shown(enum.StrEnum):
    """How an entry appears in the context."""

    WHOLE = "whole"
    """Unchanged."""
    MASKED = "masked"
    """A long value in it is replaced by a digest with a reference."""
    SUMMARISED = "summarised"
    """As part of a summary."""
    LEFT_OUT = "left out"
    """Not included."""


class ContextTrace(NamedTuple):
    """How and why the events from `first` to `last` appear in the context, and how many tokens they take there."""

    first: int
    last: int
    kind: str
    shown: Shown
    reason: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Context:
    """What the model sees next. `position` is the last event that it depends on: `session.context(at=position)` returns
    the same context.

    duramen adds three texts to the conversation. They are data, so each is delimited, and they have the role "user":
    `state` is hand-off and progress, `summaries` replaces older entries, and `recalled` is what `session.recall` found.
    """

    session: str
    position: int
    system: str
    state: str
    summaries: str
    recalled: str
    messages: tuple[ContextMessage, ...]
    tokens: int
    budget: int
    counter: str
    trace: tuple[ContextTrace, ...]

    @property
    def memory(self) -> str:
        """`state` and `summaries`: the first user message."""
        return _joined(self.state, self.summaries)

    def plain(self) -> list[dict[str, Any]]:
        """The messages as plain data. The system prompt comes first, then the memory as a message of the user."""
        before = [{"role": "system", "content": self.system}] if self.system else []
        return before + [one.plain() for one in self._messages("user")]

    def json(self) -> bytes:
        """`plain()` as JSON. Equal contexts have equal bytes."""
        return as_json(self.plain()).encode("utf-8", "surrogatepass")

    def anthropic(self, *, memory_in: str = "user") -> dict[str, Any]:
        """`system` and `messages` for Anthropic's Messages API. The memory is the first user message, and what was
        recalled is the last. With `memory_in="system"`, `state` and `recalled` are part of the system prompt instead.
        Summaries are never part of it, because they contain the output of tools."""
        messages: list[dict[str, Any]] = []
        names = _Names()
        for one in self._messages(memory_in):
            role, blocks = _anthropic_blocks(one, names)
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": role, "content": list(blocks)})
        if messages and messages[0]["role"] != "user":
            messages.insert(0, {"role": "user", "content": [{"type": "text", "text": BEFORE_ANYTHING}]})
        system = self._system(memory_in)
        request = {"messages": messages} if not system else {"system": system, "messages": messages}
        return sendable(request)  # type: ignore[no-any-return]

    def openai(self, *, memory_in: str = "user") -> dict[str, Any]:
        """`messages` for OpenAI's chat completions and compatible servers. `memory_in` as in `anthropic`."""
        system = self._system(memory_in)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        names = _Names()
        messages += [_openai_message(one, names) for one in self._messages(memory_in)]
        return sendable({"messages": messages})  # type: ignore[no-any-return]

    def _system(self, memory_in: str) -> str:
        if memory_in not in ("system", "user"):
            raise InvalidInput(f"`memory_in` cannot be {shown(memory_in)}", hint='choose "system" or "user"')
        return _joined(self.system, self.state, self.recalled) if memory_in == "system" else self.system

    def _messages(self, memory_in: str) -> list[ContextMessage]:
        first, last = (self.memory, self.recalled) if memory_in == "user" else (self.summaries, "")
        before = [ContextMessage("user", first)] if first else []
        return [*before, *self.messages, *([ContextMessage("user", last)] if last else [])]


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


class _Names:
    """Ids and names that providers accept: limited characters, and a unique id for each call."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._current: dict[str, str] = {}

    def call(self, id: str) -> str:
        """The id of a call, with a number added if it was used before."""
        short = self.name(id)
        chosen, number = short, 2
        while chosen in self._given:
            chosen = f"{short[:58]}-{number}"
            number += 1
        self._given.add(chosen)
        self._current[id] = chosen
        return chosen

    def result(self, id: str) -> str:
        """The id of the call to which a result belongs."""
        return self._current.get(id) or self.call(id)

    @staticmethod
    def name(text: str) -> str:
        """The text with at most 64 characters, all of them allowed in names."""
        return _ODD.sub("_", text)[:64]


def _anthropic_blocks(message: ContextMessage, names: _Names) -> tuple[str, list[dict[str, Any]]]:
    if message.call is not None:
        arguments = message.call["arguments"]
        given = _named(arguments)
        id, name = names.call(message.call["id"]), names.name(message.call["tool"])
        return "assistant", [{"type": "tool_use", "id": id, "name": name, "input": given}]
    if message.result is not None:
        content = message.result["content"]
        shown = content if isinstance(content, str) else [_anthropic_block(block) for block in content]
        block: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": names.result(message.result["id"]),
            "content": shown,
        }
        return "user", [{**block, "is_error": True} if message.result["error"] else block]
    role = "assistant" if message.role == "assistant" else "user"
    prefix = f"{message.name}: " if message.name else ""
    if isinstance(message.content, str):
        return role, [{"type": "text", "text": prefix + message.content}]
    named = [{"type": "text", "text": prefix.strip()}] if prefix else []
    if role == "assistant":  # assistant messages may contain only text
        return role, [*named, {"type": "text", "text": _openai_text(message.content)}]
    return role, named + [_anthropic_block(block) for block in message.content]


def _anthropic_block(block: dict[str, Any]) -> dict[str, Any]:
    """Convert a content block to Anthropic's format. OpenAI image blocks are converted, unknown blocks become text."""
    if block["type"] == "image_url":
        url = image_url(block)
        if url.startswith("data:") and ";base64," in url:
            kind, body = url[5:].split(";base64,", 1)
            return _image(kind.split(";")[0], body)
        return {"type": "image", "source": {"type": "url", "url": url}}
    if block["type"] == "image" and block["source"].get("type") == "base64":
        return _image(str(block["source"].get("media_type")), str(block["source"].get("data")))
    if block["type"] == "text" or _is_known_source(block):
        return plain_value(block)  # type: ignore[no-any-return]
    return {"type": "text", "text": text_of(block)}


def _is_known_source(block: dict[str, Any]) -> bool:
    """Whether Anthropic accepts the source of an image or document block."""
    source = block.get("source")
    if block["type"] not in ("image", "document") or not isinstance(source, dict):
        return False
    wanted = {"base64": "application/pdf", "text": "text/plain"}.get(str(source.get("type")))
    return source.get("type") == "url" or (block["type"] == "document" and source.get("media_type") == wanted)


_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def _image(kind: str, body: str) -> dict[str, Any]:
    if kind not in _IMAGES:
        return {"type": "text", "text": f"[an image of type {kind}]"}
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": body}}


def _named(arguments: Any) -> dict[str, Any]:
    """Arguments as an object, which both providers require."""
    return arguments if isinstance(arguments, dict) else {"input": arguments}


def _openai_message(message: ContextMessage, names: _Names) -> dict[str, Any]:
    if message.call is not None:
        arguments = as_json(sendable(_named(message.call["arguments"])))
        function = {"name": names.name(message.call["tool"]), "arguments": arguments}
        call = {"id": names.call(message.call["id"]), "type": "function", "function": function}
        return {"role": "assistant", "tool_calls": [call]}
    if message.result is not None:
        id, content = names.result(message.result["id"]), message.result["content"]
        return {"role": "tool", "tool_call_id": id, "content": _openai_text(content)}
    named = {} if message.name is None else {"name": names.name(message.name)}
    if isinstance(message.content, str):
        return {"role": message.role, "content": message.content, **named}
    if message.role != "user":
        return {"role": message.role, "content": _openai_text(message.content), **named}
    return {"role": message.role, "content": [_openai_block(block) for block in message.content], **named}


def _openai_text(content: Any) -> str:
    """Content as text, where only text is allowed. Blocks without text become their type in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in content)


def _openai_block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "image":
        source = block["source"]
        inline = f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": source["url"] if source.get("type") == "url" else inline}}
    if block["type"] == "image_url":
        detail = block["image_url"].get("detail") if isinstance(block["image_url"], dict) else None
        extra = {} if detail is None else {"detail": detail}
        return {"type": "image_url", "image_url": {"url": image_url(block), **extra}}
    if block["type"] in ("file", "input_audio"):
        return plain_value(block)  # type: ignore[no-any-return]
    return {"type": "text", "text": block["text"] if block["type"] == "text" else text_of(block)}
