"""Checks requests as Anthropic and OpenAI do: against the types of their SDKs, and rules that types cannot express."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@functools.cache
def _adapter(type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type)


def _plain(value: Any) -> Any:
    """A validated value, with lists in place of iterators."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [_plain(inner) for inner in value]
    return value


def check_anthropic(form: dict[str, Any], tools: list[Any] | None = None) -> list[dict[str, Any]]:
    """Fail if Anthropic's Messages API would refuse the request. Returns its messages."""
    request = {"model": "m", "max_tokens": 5, **form, **({"tools": tools} if tools else {})}
    assert _plain(_adapter(MessageCreateParamsNonStreaming).validate_python(request)) == request
    json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    messages: list[dict[str, Any]] = form["messages"]
    assert [message["role"] for message in messages] == (["user", "assistant"] * len(messages))[: len(messages)]
    ids: list[str] = []
    pending: list[str] = []
    for message in messages:
        blocks = message["content"]
        assert blocks
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert answered == pending
        assert all(block["type"] == "tool_result" for block in blocks[: len(answered)])
        pending = [block["id"] for block in blocks if block["type"] == "tool_use"]
        ids += pending
        for block in blocks:
            _check_block(block, message["role"])
    assert pending == []
    assert len(ids) == len(set(ids))
    assert form.get("system", "x").strip()
    return messages


def _check_block(block: dict[str, Any], role: str) -> None:
    kind = block["type"]
    if kind == "text":
        assert block["text"].strip()
    elif kind == "tool_use":
        assert role == "assistant"
        assert _NAME.fullmatch(block["id"])
        assert _NAME.fullmatch(block["name"])
    elif kind == "tool_result":
        assert role == "user"
        if isinstance(block["content"], list):
            assert all(inner["type"] in ("text", "image", "document") for inner in block["content"])
    else:
        assert role == "user"


def check_openai(form: dict[str, Any], tools: list[Any] | None = None) -> list[dict[str, Any]]:
    """Fail if OpenAI's chat completions would refuse the request. Returns its messages."""
    request = {"model": "m", **form, **({"tools": tools} if tools else {})}
    assert _plain(_adapter(CompletionCreateParamsNonStreaming).validate_python(request)) == request
    json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    messages: list[dict[str, Any]] = form["messages"]
    ids: list[str] = []
    pending: list[str] = []
    for index, message in enumerate(messages):
        assert (message["role"] == "tool") == bool(pending)
        assert message["role"] != "system" or index == 0
        if pending:
            assert message["tool_call_id"] == pending.pop(0)
        calls = message.get("tool_calls", [])
        pending = pending or [call["id"] for call in calls]
        ids += [call["id"] for call in calls]
        for call in calls:
            assert _NAME.fullmatch(call["id"])
            assert _NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"], parse_constant=_refuse), dict)
        assert calls or message["role"] == "tool" or message["content"]
        assert _NAME.fullmatch(message.get("name", "x"))
    assert pending == []
    assert len(ids) == len(set(ids))
    return messages


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
