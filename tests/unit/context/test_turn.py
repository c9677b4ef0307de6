"""A turn: load, query, build, call, save, memorise; and the gate that decides what is memorised."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import duramen
from duramen import Context
from duramen.errors import InvalidInput, ModelFailed, TurnConflict
from duramen.memory.extraction.admission import assess_sentences
from duramen.testing.clock import FakeClock


@pytest.fixture(params=["memory:", "sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "agent.db") if request.param == "sqlite" else "memory:"


def known(dm: duramen.Duramen, **whose: Any) -> list[str]:
    return [one.content for one in dm.memory.list(**whose)]


@pytest.mark.promise("R2", "R6")
def test_a_turn_is_taken_in_order_and_proposes_what_is_worth_it(address: str) -> None:
    seen: list[Context] = []

    def answer(context: Context) -> str:
        seen.append(context)
        return "I will look for an aisle seat."

    with duramen.open(address, embedder="none") as dm:
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
        talk = [event.data for event in dm.session("one").events(types="talk.message")]
        assert [(said["role"], said["content"]) for said in talk] == [
            ("user", "I prefer aisle seats on long flights. Find me a flight to Oslo."),
            ("assistant", "I will look for an aisle seat."),
        ]
        assert seen[0].system.startswith("Be brief.")
        (proposal,) = first.proposed
        assert (proposal.source, proposal.evidence) == ("one#1", "I prefer aisle seats on long flights.")
        assert known(dm, subject="ada", kinds="preference") == [], "nobody has accepted it yet"
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
    "said", ["Hi there!", "Thanks a lot", "What time is it?", "Book me a table for two.", "I am tired today.", "ok"]
)
def test_small_talk_leaves_no_memory_and_the_gate_says_why(said: str) -> None:
    with duramen.open("memory:", embedder="none") as dm:
        result = dm.session("s").turn(said, model=lambda context: "Fine.")
        assert result.proposed == ()
        assert known(dm, everyone=True) == []
        (noted,) = dm.session("s").events(types="memory.considered")
        assert [(one["said"], one["keep"]) for one in noted.data["decided"]] == [(said, False)]
        assert all(one["reason"] for one in noted.data["decided"])


@pytest.mark.promise("R3", "R6")
@pytest.mark.parametrize(
    ("said", "content", "kind", "key"),
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
def test_what_people_say_of_themselves_passes_the_gate(said: str, content: str, kind: str, key: str | None) -> None:
    (verdict,) = assess_sentences(said)
    assert (verdict.keep, verdict.content, verdict.kind, verdict.key) == (True, content, kind, key)


@pytest.mark.promise("S5")
def test_a_newer_statement_takes_the_place_of_an_older_one() -> None:
    with duramen.open("memory:", embedder="none") as dm:
        for said in ("I live in Turin.", "I moved to Oslo."):
            (proposal,) = dm.session("s").turn(said, model=lambda context: "I see.", subject="ada").proposed
            dm.memory.proposals.accept(proposal.id)
        assert known(dm, subject="ada") == ["The user lives in Oslo"]


@pytest.mark.promise("R2", "J7")
def test_a_turn_that_was_cut_off_is_taken_again_without_saying_anything_twice(address: str) -> None:
    asked: list[str] = []

    def failing(context: Context) -> str:
        asked.append("failing")
        raise ModelFailed("a model", "no connection")

    def answer(context: Context) -> str:
        asked.append("answering")
        return "Noted."

    clock = FakeClock()
    with duramen.open(address, embedder="none", clock=clock) as dm:
        session = dm.session("s")
        with pytest.raises(ModelFailed):
            session.turn("I prefer tea.", model=failing, subject="ada", id="t1")
        for _ in range(2):
            clock.advance(1)
            result = session.turn("I prefer tea.", model=answer, subject="ada", id="t1")
            assert result.reply == "Noted."
        assert asked == ["failing", "answering"]
        talk = [event.data["content"] for event in session.events(types="talk.message")]
        assert talk == ["I prefer tea.", "Noted."]
        (proposal,) = dm.memory.proposals.list(subject="ada")
        assert proposal.content == "The user prefers tea"
        assert len(list(dm.session("@proposals").events())) == 1
        assert len(list(session.events(types="memory.considered"))) == 1


@pytest.mark.promise("R8")
def test_models_are_given_the_form_that_they_want() -> None:
    class Speaking:
        name = "speaking"

        def __init__(self, protocol: str) -> None:
            self.protocol = protocol
            self.given: dict[str, Any] = {}

        def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
            raise AssertionError("it can do better")

        def reply(self, said: dict[str, Any], *, max_tokens: int = 1024) -> str:
            self.given = {**said, "max_tokens": max_tokens}
            return "Yes."

    class Plain:
        name = "plain"

        def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
            return f"{system[:3]}|{prompt}"

    with duramen.open("memory:", embedder="none") as dm:
        anthropic, openai = Speaking("anthropic"), Speaking("openai")
        dm.session("a").turn("Hello", model=anthropic, system="Be kind.", max_tokens=7)
        assert anthropic.given["system"].startswith("Be kind.")
        assert [one["role"] for one in anthropic.given["messages"]] == ["user"]
        assert anthropic.given["max_tokens"] == 7
        dm.session("o").turn("Hello", model=openai, system="Be kind.")
        assert [one["role"] for one in openai.given["messages"]] == ["system", "user", "user"]
        assert (
            dm.session("p")
            .turn("Hello", model=Plain(), system="Be kind.")
            .reply.startswith("Be |user: Hello\n\nuser: <recalled-")
        )


def test_the_async_face_takes_async_models() -> None:
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
    ("said", "options", "why"),
    [
        ("", {"model": lambda context: "x"}, "input is empty"),
        (7, {"model": lambda context: "x"}, "input is empty"),
        ("Hello", {"model": lambda context: "  "}, "returned no text"),
        ("Hello", {"model": lambda context: None}, "returned no text"),
        ("Hello", {"model": 7}, "is not a model"),
        ("Hello", {"model": "nonsense"}, "is not the name of a model"),
        ("Hello", {"model": lambda context: "x", "id": ""}, "cannot be the turn"),
    ],
)
def test_what_cannot_be_is_refused(said: Any, options: dict[str, Any], why: str) -> None:
    with duramen.open("memory:", embedder="none") as dm, pytest.raises(InvalidInput, match=why) as refused:
        dm.session("s").turn(said, **options)
    assert refused.value.hint


@pytest.mark.promise("R2")
def test_a_turn_taken_again_with_another_input_is_refused(address: str) -> None:
    key = "sk-ant-api03-" + "a1B2" * 20
    with duramen.open(address, embedder="none") as dm:
        session = dm.session("one")
        first = session.turn(f"My key is {key}.", model=lambda _: "Keep it to yourself.", id="t1")
        again = session.turn(f"My key is {key}.", model=lambda _: "never asked", id="t1")
        assert again.reply == first.reply, "what is stored has no key in it, and is the same input"
        before = [event.position for event in session.events()]
        with pytest.raises(TurnConflict, match="'t1'") as refused:
            session.turn("What is the weather like?", model=lambda _: "never asked", id="t1")
        assert (refused.value.session, refused.value.turn) == ("one", "t1")
        assert [event.position for event in session.events()] == before
        assert session.turn("What is the weather like?", model=lambda _: "Fine.", id="t2").reply == "Fine."
