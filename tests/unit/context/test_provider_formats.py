"""Contexts in the request formats of Anthropic and OpenAI: valid by the types of their SDKs and by their rules."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from programs.conversations import CharacterCounter, take_turn
from programs.provider_requests import check_anthropic, check_openai

import duramen
from duramen import Context, Duramen, Session
from duramen.errors import InvalidInput

PNG = base64.b64encode(b"\x89PNG" + bytes(9_000)).decode()
ANTHROPIC_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
OPENAI_IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
MEMORY_IN = ["system", "user"]


@pytest.fixture
def session() -> Any:
    with duramen.open("memory:") as dm:
        yield dm.session("s")


def check(context: Context) -> None:
    """Check both formats with the memory in either place."""
    for memory_in in MEMORY_IN:
        check_anthropic(context.anthropic(memory_in=memory_in), [Session.fetch_tool()])
        check_openai(context.openai(memory_in=memory_in), [Session.fetch_tool("openai")])


# -- R8: memory in the system prompt or before the first user message


@pytest.mark.promise("R8")
@pytest.mark.parametrize("memory_in", MEMORY_IN)
def test_memory_can_be_in_the_system_prompt_or_a_user_message(dm: Duramen, memory_in: str) -> None:
    session = dm.session("s")
    session.say("system", "You are a travel agent.")
    session.progress.begin("Book a trip", next_action="ask")
    for number in range(16):
        take_turn(session, number)
    context = session.context(budget=1_500)
    assert context.state
    assert context.summaries
    to_anthropic = context.anthropic(memory_in=memory_in)
    to_openai = context.openai(memory_in=memory_in)
    messages = check_anthropic(to_anthropic, [session.fetch_tool()])
    check_openai(to_openai, [session.fetch_tool("openai")])
    system, first = to_openai["messages"][:2]
    if memory_in == "system":
        assert to_anthropic["system"] == system["content"] == f"You are a travel agent.\n\n{context.state}"
        assert messages[0]["content"][0]["text"] == first["content"] == context.summaries
    else:
        assert to_anthropic["system"] == system["content"] == "You are a travel agent."
        assert messages[0]["content"][0]["text"] == first["content"] == context.memory
    assert first["role"] == "user"


@pytest.mark.promise("R8")
def test_every_turn_of_a_conversation_is_a_valid_request(dm: Duramen) -> None:
    session = dm.session("s")
    for number in range(8):
        session.say("user", f"Question {number}")
        check(session.context(budget=600))
        first, second = session.tool_call("a", {"n": number}), session.tool_call("b", [number])
        check(session.context(budget=600))
        session.tool_result(second, {"found": number})
        check(session.context(budget=600))
        session.say("user", "Hurry!")
        session.tool_result(first, "late", error=True)
        check(session.context(budget=600))
        session.say("assistant", f"Answer {number}")
        check(session.context(budget=600))


@pytest.mark.promise("R8")
def test_a_request_without_system_prompt_and_memory_has_no_system_field(session: Session) -> None:
    session.say("user", "Hello")
    context = session.context()
    assert context.anthropic() == {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}
    assert context.openai() == {"messages": [{"role": "user", "content": "Hello"}]}
    assert context.plain() == [{"role": "user", "content": "Hello"}]
    assert session.context(system="Be brief.").anthropic()["system"] == "Be brief."


def test_a_conversation_can_begin_with_the_assistant(session: Session) -> None:
    session.say("assistant", "Welcome!")
    context = session.context()
    check(context)
    assert [message["role"] for message in context.anthropic()["messages"]] == ["user", "assistant"]
    assert "summarised" not in context.anthropic()["messages"][0]["content"][0]["text"]


def test_consecutive_messages_of_one_role_are_merged_for_anthropic(session: Session) -> None:
    session.say("user", "one", name="Ann")
    session.say("user", "two")
    session.decide("three", reason="four")
    session.say("assistant", "five")
    call = session.tool_call("six", {})
    session.tool_result(call, "seven")
    session.say("user", "eight")
    context = session.context()
    check(context)
    user, assistant, last = context.anthropic()["messages"]
    assert [block["text"] for block in user["content"]] == ["Ann: one", "two"]
    assert [block["type"] for block in assistant["content"]] == ["text", "text", "tool_use"]
    assert [block["type"] for block in last["content"]] == ["tool_result", "text"]
    assert context.openai()["messages"][0] == {"role": "user", "content": "one", "name": "Ann"}


# -- tools


def test_a_result_follows_its_call_directly(session: Session) -> None:
    for name in ("a", "b", "c"):
        session.tool_call("look", {"at": name}, id=name)
    session.say("user", "Well?")
    for name in ("c", "a"):
        session.tool_result(name, f"seen {name}")
    context = session.context()
    check(context)
    calls = [message["tool_calls"][0]["id"] for message in context.openai()["messages"] if "tool_calls" in message]
    assert calls == ["c", "a"]
    assert "look" in json.dumps(
        [message.plain() for message in context.messages if message.call is None]
    )  # b has no result yet


def test_a_failed_tool_result_is_marked_as_an_error(session: Session) -> None:
    session.tool_result(session.tool_call("look"), "no such file", error=True)
    context = session.context()
    check(context)
    (block,) = context.anthropic()["messages"][-1]["content"]
    assert block["is_error"] is True


@pytest.mark.parametrize(
    "output",
    [
        "",
        "text",
        None,
        0,
        1.5,
        float("inf"),
        {"a": [1, {"b": None}]},
        [],
        [1, 2],
        ["a"],
        [{"a": 1}],
        [{"type": "x"}],
        [{"type": "text"}],
        [{"type": "text", "text": ""}],
        [{"type": 5}],
        [None],
        b"\x00\xff",
        {"set": {1, 2}, (1, 2): b"k"},
        "\ud800 half",
    ],
    ids=repr,
)
def test_any_tool_output_can_be_sent(session: Session, output: Any) -> None:
    session.tool_result(session.tool_call("look"), output)
    session.tool_result("never called", output)
    check(session.context())


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        None,
        [],
        [1],
        "text",
        5,
        {"n": float("nan"), "m": [float("-inf")]},
        {"\ud800": "\ud800"},
        {5: b"x", (1, 2): {3}},
        {"big": 10**40},
    ],
    ids=repr,
)
def test_any_tool_arguments_can_be_sent(session: Session, arguments: Any) -> None:
    session.tool_result(session.tool_call("look", arguments), "seen")
    context = session.context()
    check(context)
    if isinstance(arguments, dict) and "big" in arguments:
        assert context.anthropic()["messages"][1]["content"][0]["input"] == arguments


@pytest.mark.parametrize("id", ["a b", "é", "x" * 200, "call.1", "\ud800"])
def test_ids_and_names_are_converted_to_valid_ones(session: Session, id: str) -> None:
    for number in range(3):
        session.tool_result(session.tool_call(f"my tool {number} é", {"n": number}, id=id), f"seen {number}")
        session.say("user", "And?", name="Anna Maria ☃")
    context = session.context()
    check(context)
    seen = [message["content"] for message in context.openai()["messages"] if message["role"] == "tool"]
    assert seen == ["seen 0", "seen 1", "seen 2"]


def test_the_fetch_tool_is_valid_in_both_formats() -> None:
    for_anthropic, for_openai = Session.fetch_tool(), Session.fetch_tool("openai")
    check_anthropic({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, [for_anthropic])
    check_openai({"messages": [{"role": "user", "content": "x"}]}, [for_openai])
    assert for_openai["function"]["parameters"] == for_anthropic["input_schema"]
    assert for_anthropic["input_schema"]["required"] == ["reference"]
    with pytest.raises(InvalidInput):
        Session.fetch_tool("gemini")


# -- images


@pytest.mark.promise("R8")
@pytest.mark.parametrize("image", [ANTHROPIC_IMAGE, OPENAI_IMAGE], ids=["anthropic", "openai"])
def test_images_are_converted_between_the_formats(session: Session, image: dict[str, Any]) -> None:
    session.say("user", [{"type": "text", "text": "What is this?"}, image])
    context = session.context()
    check(context)
    assert context.anthropic()["messages"][0]["content"] == [{"type": "text", "text": "What is this?"}, ANTHROPIC_IMAGE]
    assert context.openai()["messages"][0]["content"] == [{"type": "text", "text": "What is this?"}, OPENAI_IMAGE]
    assert context.tokens < 4_000


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        {"type": "image_url", "image_url": {"url": "data:image/bmp;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;charset=utf-8;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "data:,hello"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "QUJD"}},
        {"type": "image", "source": {"type": "base64", "data": "QUJD"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hello"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "document", "source": {"type": "base64", "media_type": "text/html", "data": "QUJD"}},
        {"type": "image", "source": {"type": "odd", "data": "QUJD"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "url": "https://example.org/a.png"}},
        {"type": "video", "of": {"frames": [1, 2, {3}]}},
        {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
    ],
    ids=lambda block: json.dumps(block, default=str)[:60],
)
@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
def test_every_block_can_be_sent_in_every_role(session: Session, block: dict[str, Any], role: str) -> None:
    if role == "tool":
        session.tool_result(session.tool_call("look"), [block])
    else:
        session.say(role, [block])
    session.say("user", "What is this?")
    check(session.context())


# -- the budget


@pytest.mark.promise("W2", "R8")
@pytest.mark.parametrize("form", ["anthropic", "openai"])
@pytest.mark.parametrize("memory_in", MEMORY_IN)
def test_requests_are_within_the_budget(session: Session, form: str, memory_in: str) -> None:
    for number in range(30):
        session.say("assistant", f"Answer {number} about flight LH{number}.", name="Ann" if number % 3 else None)
        for budget in (100, 130, 160, 200, 260):
            context = session.context(budget=budget, counter=CharacterCounter(), keep_last=3)
            render: Callable[..., dict[str, Any]] = getattr(context, form)
            assert _length(render(memory_in=memory_in)) <= context.tokens <= budget


def _length(form: dict[str, Any]) -> int:
    total = len(form.get("system", ""))
    for message in form["messages"]:
        total += len(message.get("name", ""))
        content = message["content"]
        total += len(content) if isinstance(content, str) else sum(len(block["text"]) for block in content)
    return total
