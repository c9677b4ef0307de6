"""Memory tools for a model: the schemas that providers accept, what each call does, and recalled text in requests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from programs.memory_handles import EMBEDDER, contents, open_memory
from programs.provider_requests import check_anthropic, check_openai

import duramen
from duramen.errors import InvalidInput

PYTHON_TYPES: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "object": dict, "array": list}


@pytest.fixture
def dm(any_address: str) -> Iterator[duramen.Duramen]:
    with open_memory(any_address) as opened:
        yield opened


def check_schema(schema: Any) -> None:
    """Check the parts of JSON Schema that the tools use."""
    assert schema["type"] in PYTHON_TYPES
    for value in schema.get("enum", []):
        assert isinstance(value, PYTHON_TYPES[schema["type"]])
    assert set(schema.get("required", [])) <= schema.get("properties", {}).keys()
    for bound in {"minimum", "maximum"} & schema.keys():
        assert schema["type"] in ("integer", "number")
        assert isinstance(schema[bound], (int, float))
    unknown = schema.keys() - {"type", "description", "properties", "required", "enum", "minimum", "maximum"}
    assert unknown <= {"additionalProperties"}
    for inner in schema.get("properties", {}).values():
        check_schema(inner)


@pytest.mark.promise("R4")
def test_providers_accept_the_tools() -> None:
    with open_memory("memory:") as dm:
        session = dm.session("s")
        session.say("user", "hello")
        anthropic, openai = session.memory_tools(), session.memory_tools("openai")
        check_anthropic(session.context().anthropic(), tools=anthropic)
        check_openai(session.context().openai(), tools=openai)
        assert [tool["name"] for tool in anthropic] == ["recall", "remember", "forget", "fetch"]
        for tool, other in zip(anthropic, openai, strict=True):
            check_schema(tool["input_schema"])
            assert tool["description"]
            same = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
            assert other == {"type": "function", "function": same}
            assert json.loads(json.dumps(tool)) == tool
        for form in ("gemini", "", None, 5):
            with pytest.raises(InvalidInput) as refused:
                session.memory_tools(form)  # type: ignore[arg-type]
            assert refused.value.hint


@pytest.mark.promise("R4")
def test_a_model_remembers_recalls_and_forgets(dm: duramen.Duramen) -> None:
    session = dm.session("talk")
    answer = session.use_memory_tool(
        "remember",
        {"content": "Ada lives in Rome", "key": "home", "kind": "fact", "importance": 0.9},
        subject="ada",
    )
    ref = answer.removeprefix("Remembered as ").removesuffix(".")
    (memory,) = dm.memory.list(subject="ada")
    assert (memory.source, memory.subject, memory.key, memory.kind) == (ref, "ada", "home", "fact")
    event = next(session.events(types="memory.added"))
    assert event.actor == "assistant"
    session.use_memory_tool("remember", {"content": "Ada lives in Oslo", "key": "home"}, subject="ada")
    recalled = session.use_memory_tool("recall", {"query": "Where does Ada live?", "limit": 5}, subject="ada")
    assert "Ada lives in Oslo" in recalled
    assert "Rome" not in recalled
    assert "Oslo" not in session.use_memory_tool("recall", {"query": "Where does Ada live?"}), "without the subject"
    (source,) = re.findall(r'ref="([^"]+)"', recalled)
    assert session.use_memory_tool("forget", {"ref": source}, subject="ada") == f"Forgotten: {source}."
    assert list(dm.memory.list(everyone=True)) == []
    assert "Oslo" not in session.use_memory_tool("recall", {"query": "Where does Ada live?"}, subject="ada")
    assert "no memory" in session.use_memory_tool("forget", {"ref": source}, subject="ada")


@pytest.mark.promise("R4", "G4")
def test_a_model_forgets_only_what_it_may_recall(dm: duramen.Duramen) -> None:
    talk, other = dm.session("talk"), dm.session("other")
    theirs = talk.remember("about bob", subject="bob")
    private = talk.remember("in this session", scope="session")
    session_note = talk.append("note", "not a memory")
    for ref in (theirs.source, private.source, f"talk#{session_note.position}", "talk#99", "nowhere#1"):
        assert "That did not work" in other.use_memory_tool("forget", {"ref": ref}, subject="ada")
    assert len(list(dm.memory.list(everyone=True))) == 2
    assert "Forgotten" in talk.use_memory_tool("forget", {"ref": private.source})
    assert "Forgotten" in other.use_memory_tool("forget", {"ref": theirs.source}, subject="bob")


@pytest.mark.promise("R4")
def test_arguments_outside_the_schema_are_ignored(dm: duramen.Duramen) -> None:
    session = dm.session("s")
    session.use_memory_tool(
        "remember", {"content": "x", "subject": "bob", "scope": "session", "actor": "me", "key": None}
    )
    (memory,) = dm.memory.list()
    assert (memory.subject, memory.scope, memory.key) == (None, "workspace", None)


@pytest.mark.promise("R4")
@pytest.mark.parametrize(
    "name", ["two  blanks", "a line\nbreak", " at the ends ", '"quoted" & <b>', "50%20", "\u2003wide"]
)
def test_a_reference_works_for_any_session_name(dm: duramen.Duramen, name: str) -> None:
    dm.session(name).remember("The code is 4711")
    session = dm.session("other")
    text = session.use_memory_tool("recall", {"query": "code"})
    match = re.search(r'ref="([^"]+)"', text)
    assert match is not None
    assert session.use_memory_tool("forget", {"ref": match[1]}) == f"Forgotten: {match[1]}."
    assert list(dm.memory.list()) == []


@pytest.mark.promise("R8")
@pytest.mark.parametrize("memory_in", ["system", "user"])
def test_recalled_text_is_part_of_requests(memory_in: str) -> None:
    with open_memory("memory:") as dm:
        session = dm.session("s")
        session.remember('Ada said "<b>hi</b>" & left \0 早')
        session.say("user", "Where is Ada?")
        context = session.context(recalled=session.recall("Ada"))
        anthropic, openai = context.anthropic(memory_in=memory_in), context.openai(memory_in=memory_in)
        check_anthropic(anthropic, tools=session.memory_tools())
        check_openai(openai, tools=session.memory_tools("openai"))
        assert ("<recalled-" in anthropic.get("system", "")) == (memory_in == "system")
        assert "<recalled-" in json.dumps(anthropic)
        assert "<recalled-" in json.dumps(openai)


def test_memory_works_in_the_async_api(any_address: str) -> None:
    async def script() -> None:
        async with await duramen.aopen(any_address, embedder=EMBEDDER) as dm:
            session = dm.session("s")
            old = await session.remember("Ada lives in Rome", key="home", subject="ada", fresh=True)
            new, *_ = await asyncio.gather(
                dm.memory.remember("Ada lives in Oslo", key="home", subject="ada"),
                *(dm.memory.remember(f"fact {number}") for number in range(20)),
            )
            await dm.memory.catch_up()
            assert await dm.memory.waiting() == 0
            result = await dm.memory.recall("Where does Ada live?", subject="ada", limit=1)
            assert contents(result) == ["Ada lives in Oslo"]
            assert contents(await dm.memory.history(old.id)) == ["Ada lives in Rome", "Ada lives in Oslo"]
            assert (await dm.memory.get(new.id)).content == "Ada lives in Oslo"
            assert len([one async for one in dm.memory.list()]) == 20
            then = dm.memory.as_of(old.recorded)
            assert contents([one async for one in then.list(subject="ada")]) == ["Ada lives in Rome"]
            assert contents(await then.recall("Ada", subject="ada")) == ["Ada lives in Rome"]
            assert "Oslo" in (await session.recall("Ada", subject="ada")).text
            assert "Oslo" in await session.use_memory_tool("recall", {"query": "Ada"}, subject="ada")
            assert (await dm.memory.forget(new.id)).payloads == 1
            assert (await dm.memory.forget_before(new.recorded.replace(year=9000), everyone=True)).memories == 21
            assert [one async for one in dm.memory.list(everyone=True)] == []

    asyncio.run(script())
