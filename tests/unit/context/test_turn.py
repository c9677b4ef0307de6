"""A turn (load, query, build, call, save, memorise), and the rules for what is memorised."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import duramen
from duramen import Context
from duramen.errors import InvalidInput, ModelFailed, TurnConflict
from duramen.memory.extraction.admission import assess_sentences
from duramen.testing.clock import FakeClock


def contents(dm: duramen.Duramen, **filters: Any) -> list[str]:
    return [one.content for one in dm.memory.list(**filters)]


@pytest.mark.promise("R2", "R6")
def test_a_turn_runs_its_steps_in_order_and_proposes_memories(any_address: str) -> None:
    seen: list[Context] = []

    def answer(context: Context) -> str:
        seen.append(context)
        return "I will look for an aisle seat."

    with duramen.open(any_address, embedder="none") as dm:
        dm.memory.remember("The airline opens check-in a day ahead")
        first = dm.session("one").turn(
            "I prefer aisle seats on long flights. Find me a flight to Oslo.",
            model=answer,
            subject="ada",
            system="Be brief.",
        )
        assert [step.name for step in first.trace] == ["load", "query", "build", "call", "save", "memorise"]
        assert all(step.detail for step in first.trace)
        assert [one.content for one in first.proposed] == ["The user prefers aisle seats on long flights"]
        assert [(one.keep, one.reason) for one in first.considered] == [
            (True, "a preference"),
            (False, "nothing about the user, and no wish to remember it"),
        ]
        messages = [event.data for event in dm.session("one").events(types="talk.message")]
        assert [(message["role"], message["content"]) for message in messages] == [
            ("user", "I prefer aisle seats on long flights. Find me a flight to Oslo."),
            ("assistant", "I will look for an aisle seat."),
        ]
        assert seen[0].system.startswith("Be brief.")
        (proposal,) = first.proposed
        assert (proposal.source, proposal.evidence) == ("one#1", "I prefer aisle seats on long flights.")
        assert contents(dm, subject="ada", kinds="preference") == [], "it is not accepted yet"
        accepted = dm.memory.proposals.accept(proposal.id, actor="ada")
        second = dm.session("forty-seven").turn("Which seat do I want on flights?", model=answer, subject="ada")
        assert "prefers aisle seats" in seen[1].recalled
        assert "prefers aisle seats" not in seen[1].system
        assert second.recalled.knowledge[0].memory.id == accepted.memory
        assert (
            "prefers aisle seats" not in dm.session("other").turn("Which seat do I want?", model=answer).recalled.text
        )
        assert dm.verify().ok


@pytest.mark.promise("R3")
@pytest.mark.parametrize(
    "text", ["Hi there!", "Thanks a lot", "What time is it?", "Book me a table for two.", "I am tired today.", "ok"]
)
def test_small_talk_is_not_memorised_and_the_reason_is_recorded(text: str) -> None:
    with duramen.open("memory:", embedder="none") as dm:
        result = dm.session("s").turn(text, model=lambda context: "Fine.")
        assert result.proposed == ()
        assert contents(dm, everyone=True) == []
        (noted,) = dm.session("s").events(types="memory.considered")
        assert [(one["said"], one["keep"]) for one in noted.data["decided"]] == [(text, False)]
        assert all(one["reason"] for one in noted.data["decided"])


@pytest.mark.promise("R3", "R6")
@pytest.mark.parametrize(
    ("text", "content", "kind", "key"),
    [
        ("Remember that the door code is 4711.", "The user wants it remembered: the door code is 4711", "fact", None),
        ("Please remember that I prefer tea", "The user prefers tea", "preference", None),
        ("Don't forget: I'm allergic to peanuts!", "The user is allergic to peanuts", "identity", None),
        ("Call me Ada", "Ada", "profile", "name"),
        ("My name is Ada Lovelace.", "Ada Lovelace", "profile", "name"),
        ("I live in Turin.", "The user lives in Turin", "identity", "home"),
        ("Actually, I just moved to Oslo", "The user lives in Oslo", "identity", "home"),
        ("I work for the railway", "The user works for the railway", "identity", "employer"),
        ("I hate early flights", "The user does not like early flights", "preference", None),
        ("My favourite airline is TAP", "The user's favourite airline is TAP", "fact", "favourite airline"),
        ("From now on, answer in French", "The user wishes from now on: answer in French", "preference", None),
    ],
)
def test_statements_about_the_user_are_memorised(text: str, content: str, kind: str, key: str | None) -> None:
    (verdict,) = assess_sentences(text)
    assert (verdict.keep, verdict.content, verdict.kind, verdict.key) == (True, content, kind, key)


@pytest.mark.promise("S5")
def test_a_newer_statement_replaces_an_older_one() -> None:
    with duramen.open("memory:", embedder="none") as dm:
        for text in ("I live in Turin.", "I moved to Oslo."):
            (proposal,) = dm.session("s").turn(text, model=lambda context: "I see.", subject="ada").proposed
            dm.memory.proposals.accept(proposal.id)
        assert contents(dm, subject="ada") == ["The user lives in Oslo"]


@pytest.mark.promise("R2", "J7")
def test_a_repeated_turn_stores_nothing_twice(any_address: str) -> None:
    calls: list[str] = []

    def failing(context: Context) -> str:
        calls.append("failing")
        raise ModelFailed("a model", "no connection")

    def answer(context: Context) -> str:
        calls.append("answering")
        return "Noted."

    clock = FakeClock()
    with duramen.open(any_address, embedder="none", clock=clock) as dm:
        session = dm.session("s")
        with pytest.raises(ModelFailed):
            session.turn("I prefer tea.", model=failing, subject="ada", id="t1")
        for _ in range(2):
            clock.advance(1)
            result = session.turn("I prefer tea.", model=answer, subject="ada", id="t1")
            assert result.reply == "Noted."
        assert calls == ["failing", "answering"]
        texts = [event.data["content"] for event in session.events(types="talk.message")]
        assert texts == ["I prefer tea.", "Noted."]
        (proposal,) = dm.memory.proposals.list(subject="ada")
        assert proposal.content == "The user prefers tea"
        assert len(list(dm.session("@proposals").events())) == 1
        assert len(list(session.events(types="memory.considered"))) == 1


@pytest.mark.promise("R8")
def test_models_receive_the_format_of_their_protocol() -> None:
    class ChatModel:
        name = "chat"

        def __init__(self, protocol: str) -> None:
            self.protocol = protocol
            self.received: dict[str, Any] = {}

        def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
            raise AssertionError("reply() must be used")

        def reply(self, request: dict[str, Any], *, max_tokens: int = 1024) -> str:
            self.received = {**request, "max_tokens": max_tokens}
            return "Yes."

    class CompletionModel:
        name = "completion"

        def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
            return f"{system[:3]}|{prompt}"

    with duramen.open("memory:", embedder="none") as dm:
        anthropic, openai = ChatModel("anthropic"), ChatModel("openai")
        dm.session("a").turn("Hello", model=anthropic, system="Be kind.", max_tokens=7)
        assert anthropic.received["system"].startswith("Be kind.")
        assert [one["role"] for one in anthropic.received["messages"]] == ["user"]
        assert anthropic.received["max_tokens"] == 7
        dm.session("o").turn("Hello", model=openai, system="Be kind.")
        assert [one["role"] for one in openai.received["messages"]] == ["system", "user", "user"]
        reply = dm.session("p").turn("Hello", model=CompletionModel(), system="Be kind.").reply
        assert reply.startswith("Be |user: Hello\n\nuser: <recalled-")


def test_the_async_api_accepts_async_models() -> None:
    async def answer(context: Context) -> str:
        await asyncio.sleep(0)
        return "Yes."

    async def main() -> None:
        async with await duramen.aopen("memory:", embedder="none") as dm:
            assert (await dm.session("s").turn("Hello", model=answer)).reply == "Yes."

    asyncio.run(main())
    with duramen.open("memory:", embedder="none") as dm, pytest.raises(InvalidInput, match="async API"):
        dm.session("s").turn("Hello", model=answer)


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {"model": lambda context: "x"}, "input is empty"),
        (7, {"model": lambda context: "x"}, "input is empty"),
        ("Hello", {"model": lambda context: "  "}, "returned no text"),
        ("Hello", {"model": lambda context: None}, "returned no text"),
        ("Hello", {"model": 7}, "is not a model"),
        ("Hello", {"model": "nonsense"}, "is not the name of a model"),
        ("Hello", {"model": lambda context: "x", "id": ""}, "the turn cannot be"),
    ],
)
def test_invalid_arguments_of_a_turn_are_rejected(text: Any, options: dict[str, Any], message: str) -> None:
    with duramen.open("memory:", embedder="none") as dm, pytest.raises(InvalidInput, match=message) as refused:
        dm.session("s").turn(text, **options)
    assert refused.value.hint


@pytest.mark.promise("R2")
def test_a_repeated_turn_with_another_input_is_rejected(any_address: str) -> None:
    key = "sk-ant-api03-" + "a1B2" * 20
    with duramen.open(any_address, embedder="none") as dm:
        session = dm.session("one")
        first = session.turn(f"My key is {key}.", model=lambda _: "Keep it to yourself.", id="t1")
        again = session.turn(f"My key is {key}.", model=lambda _: "not used", id="t1")
        assert again.reply == first.reply, "the redacted input counts as the same"
        before = [event.position for event in session.events()]
        with pytest.raises(TurnConflict, match="'t1'") as refused:
            session.turn("What is the weather like?", model=lambda _: "not used", id="t1")
        assert (refused.value.session, refused.value.turn) == ("one", "t1")
        assert [event.position for event in session.events()] == before
        assert session.turn("What is the weather like?", model=lambda _: "Fine.", id="t2").reply == "Fine."
