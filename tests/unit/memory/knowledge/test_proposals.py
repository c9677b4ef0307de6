"""Users decide about themselves: proposals, the profile and the persona."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import duramen
from duramen import KindPolicy
from duramen.errors import InvalidInput, ProposalDecided, UnknownMemory, UnknownProposal
from duramen.testing.clock import FakeClock

DAY = 86_400


def turn(dm: duramen.Duramen, text: str, subject: str | None = "ada", session: str = "s") -> Any:
    return dm.session(session).turn(text, model=lambda context: "I see.", subject=subject)


def contents(dm: duramen.Duramen, **audience: Any) -> list[str]:
    return [one.content for one in dm.memory.list(**audience)]


@pytest.mark.promise("K4")
def test_a_statement_about_the_user_waits_for_their_acceptance(dm: duramen.Duramen) -> None:
    (proposal,) = turn(dm, "I prefer tea. Thanks!").proposed
    assert (proposal.kind, proposal.state, proposal.source) == ("preference", "pending", "s#1")
    assert (proposal.evidence, proposal.confidence) == ("I prefer tea.", 0.8)
    assert contents(dm, everyone=True) == []
    recalled = dm.session("later").recall("What does she drink?", subject="ada")
    assert [one.id for one in recalled.pending] == [proposal.id]
    assert 'saved="no"' in recalled.text
    assert "The user prefers tea" in recalled.text
    accepted = dm.memory.proposals.accept(proposal.id, actor="ada")
    assert (accepted.state, accepted.decided_by, accepted.content) == ("accepted", "ada", "The user prefers tea")
    (memory,) = dm.memory.list(subject="ada")
    assert (memory.id, memory.kind, memory.confidence) == (accepted.memory, "preference", 1.0)
    after = dm.session("later").recall("What does she drink? tea?", subject="ada")
    assert after.pending == ()
    assert [hit.memory.id for hit in after.knowledge] == [memory.id]
    assert dm.verify().ok


@pytest.mark.promise("K4")
def test_a_proposal_can_be_edited_when_accepted(dm: duramen.Duramen) -> None:
    (proposal,) = turn(dm, "I live in Turin.").proposed
    accepted = dm.memory.proposals.accept(proposal.id, content="Ada lives in Turin, Italy", title="Home")
    assert accepted.content == "Ada lives in Turin, Italy"
    (memory,) = dm.memory.list(subject="ada")
    assert (memory.content, memory.title, memory.key) == ("Ada lives in Turin, Italy", "Home", "home")


@pytest.mark.promise("K4")
def test_deciding_twice_is_an_error(dm: duramen.Duramen) -> None:
    (first,) = turn(dm, "I prefer tea.").proposed
    (second,) = turn(dm, "I hate coffee.").proposed
    dm.memory.proposals.accept(first.id, actor="ada")
    dm.memory.proposals.dismiss(second.id, note="it was a joke")
    for decide in (dm.memory.proposals.accept, dm.memory.proposals.dismiss):
        with pytest.raises(ProposalDecided) as caught:
            decide(first.id)
        assert (caught.value.state, caught.value.by) == ("accepted", "ada")
        with pytest.raises(ProposalDecided):
            decide(second.id)
        with pytest.raises(UnknownProposal):
            decide("nothing")
    assert len(contents(dm, everyone=True)) == 1
    assert dm.memory.proposals.get(second.id).note == "it was a joke"


@pytest.mark.promise("K4")
def test_a_dismissed_proposal_is_not_made_again(dm: duramen.Duramen) -> None:
    (proposal,) = turn(dm, "I prefer tea.").proposed
    dm.memory.proposals.dismiss(proposal.id)
    for text in ("I prefer tea.", "i prefer TEA!", "Please remember that I prefer tea"):
        assert turn(dm, text, session="again").proposed == ()
    again = dm.memory.proposals.make("The user prefers tea", subject="ada")
    assert again is not None
    assert (again.id, again.state) == (proposal.id, "dismissed")
    assert list(dm.memory.proposals.list()) == []
    assert [one.id for one in dm.memory.proposals.list("dismissed")] == [proposal.id]
    assert len(turn(dm, "I prefer tea.", subject="bob").proposed) == 1, "another subject may want it"


@pytest.mark.promise("K4")
def test_known_and_proposed_memories_are_not_proposed_again(dm: duramen.Duramen) -> None:
    (first,) = turn(dm, "I prefer tea.").proposed
    (second,) = turn(dm, "I prefer tea!").proposed
    assert first.id == second.id
    dm.memory.proposals.accept(first.id)
    assert turn(dm, "I prefer tea.").proposed == ()
    assert dm.memory.proposals.make("The user prefers tea", subject="ada") is None
    (memory,) = dm.memory.list(subject="ada")
    dm.memory.forget(memory.id)
    (again,) = turn(dm, "I prefer tea.").proposed
    assert again.state == "pending", "it was forgotten, not dismissed"


@pytest.mark.promise("K4")
def test_only_one_of_several_concurrent_decisions_counts(any_address: str) -> None:
    with duramen.open(any_address, embedder="none") as dm:
        (proposal,) = turn(dm, "I prefer tea.").proposed
        decided: list[str] = []
        refused: list[ProposalDecided] = []
        ready = threading.Barrier(8)

        def decide(number: int) -> None:
            ready.wait()
            try:
                act = dm.memory.proposals.accept if number % 2 else dm.memory.proposals.dismiss
                decided.append(act(proposal.id, actor=str(number)).state)
            except ProposalDecided as error:
                refused.append(error)

        threads = [threading.Thread(target=decide, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(decided), len(refused)) == (1, 7)
        assert len(contents(dm, everyone=True)) == (decided == ["accepted"])


@pytest.mark.promise("K7")
def test_profile_fields_are_not_memories(dm: duramen.Duramen) -> None:
    (name,) = turn(dm, "Call me Ada").proposed
    assert (name.kind, name.key, name.content) == ("profile", "name", "Ada")
    assert dm.memory.profile("ada") == {}
    dm.memory.proposals.accept(name.id)
    (zone,) = turn(dm, "My time zone is Europe/Rome").proposed
    dm.memory.proposals.accept(zone.id, content="Europe/Rome")
    assert dm.memory.profile("ada") == {"name": "Ada", "timezone": "Europe/Rome"}
    assert contents(dm, everyone=True) == [], "a field does not become a memory"
    recalled = dm.session("later").recall("hello", subject="ada")
    assert recalled.profile == {"name": "Ada", "timezone": "Europe/Rome"}
    assert "- name: Ada" in recalled.text
    assert dm.memory.profile("bob") == {}
    assert dm.memory.profile() == {}
    assert "Ada" not in dm.session("later").recall("hello", subject="bob").text


@pytest.mark.promise("K4", "F6")
def test_the_persona_starts_the_prompt_and_changes_only_when_accepted(dm: duramen.Duramen) -> None:
    prompts: list[str] = []

    def answer(context: duramen.Context) -> str:
        prompts.append(context.system)
        return "Yes."

    proposal = dm.memory.proposals.make("You are Harbour, calm and exact.", kind="persona", actor="assistant")
    assert proposal is not None
    dm.session("s").turn("Hello", model=answer, system="Be brief.")
    dm.memory.proposals.accept(proposal.id, actor="ada")
    assert dm.memory.persona() == "You are Harbour, calm and exact."
    dm.session("s").turn("Hello again", model=answer, system="Be brief.")
    assert "Harbour" not in prompts[0]
    assert prompts[1].startswith("You are Harbour, calm and exact.\n\nBe brief.")
    assert contents(dm, everyone=True) == []


@pytest.mark.promise("K4")
def test_a_model_proposes_and_does_not_save(dm: duramen.Duramen) -> None:
    session = dm.session("s")
    arguments = {"content": "Ada prefers the window", "kind": "preference"}
    assert "not saved until" in session.use_memory_tool("remember", dict(arguments), subject="ada")
    assert contents(dm, everyone=True) == []
    (proposal,) = dm.memory.proposals.list(subject="ada")
    dm.memory.proposals.dismiss(proposal.id)
    assert "dismissed" in session.use_memory_tool("remember", dict(arguments), subject="ada")
    assert "Remembered" in session.use_memory_tool("remember", {"content": "The gate is B7"}, subject="ada")


@pytest.mark.promise("G3")
@pytest.mark.parametrize("key", [None, bytes(32)], ids=["plain", "sealed"])
def test_an_erased_subject_leaves_no_proposal(tmp_path: Path, key: bytes | None) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path, key=key, embedder="none") as dm:
        turn(dm, "Call me Zanzibarella")
        (name,) = dm.memory.proposals.list()
        dm.memory.proposals.accept(name.id)
        (pending,) = turn(dm, "I prefer quinquereme boats.").proposed
        dm.erase("ada")
        assert list(dm.memory.proposals.list()) == []
        assert dm.memory.profile("ada") == {}
        with pytest.raises(UnknownProposal):
            dm.memory.proposals.get(pending.id)
        assert dm.verify().ok
    for file in tmp_path.iterdir():
        body = file.read_bytes()
        assert b"Zanzibarella" not in body
        assert b"quinquereme" not in body


@pytest.mark.promise("K4")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"content": " "}, "nothing to remember"),
        ({"content": "x", "kind": "profile"}, "needs a field"),
        ({"content": "", "kind": "persona"}, "nothing to propose"),
        ({"content": "x", "confidence": 2}, "confidence"),
        ({"content": "x", "evidence": 7}, "evidence"),
        ({"content": "x", "colour": "red"}, "colour"),
    ],
)
def test_bad_proposals_are_refused(arguments: dict[str, Any], message: str) -> None:
    with duramen.open("memory:", embedder="none") as dm:
        with pytest.raises(InvalidInput, match=message):
            dm.memory.proposals.make(arguments.pop("content"), **arguments)
        assert list(dm.session("@proposals").events()) == []


@pytest.mark.promise("K1")
def test_confirming_makes_a_memory_fresh_again(any_address: str) -> None:
    clock = FakeClock()
    with duramen.open(any_address, embedder="none", clock=clock) as dm:
        fact = dm.memory.remember("The gate code is 4711")
        link = dm.memory.remember("The gate manual is at example.org/gate", kind="reference")
        clock.advance(31 * DAY)
        notes = {hit.memory.id: hit.note for hit in dm.memory.recall("gate")}
        assert notes[fact.id] == "31 days old: check before use"
        assert notes[link.id].startswith("31 days old: must be reconfirmed")
        text = dm.session("s").recall("gate").text
        assert "(Not confirmed lately.) The gate manual" in text
        dm.memory.confirm(link.id, actor="ada")
        confirmed = dm.memory.confirm(fact.id, actor="ada")
        assert confirmed.id == fact.id
        assert {hit.note for hit in dm.memory.recall("gate")} == {""}
        assert "Not confirmed" not in dm.session("s").recall("gate").text
        added, again = _events_with(dm, "4711")
        assert (added.actor, again.actor, again.cause) == (None, "ada", f"@memory#{added.position}")
        with pytest.raises(UnknownMemory):
            dm.memory.confirm("nothing")


def _events_with(dm: duramen.Duramen, word: str) -> list[Any]:
    return [one for one in dm.session("@memory").events(types="memory.added") if word in one.data["content"]]


@pytest.mark.promise("K1")
def test_policies_set_the_notes_of_stale_memories() -> None:
    clock = FakeClock()
    policies = {
        "fact": KindPolicy("reconfirm", 2),
        "rumour": KindPolicy("check", 0.5),
        "reference": KindPolicy("none", None),
    }
    with duramen.open("memory:", embedder="none", clock=clock, policies=policies) as dm:
        for kind in ("fact", "rumour", "reference", "opinion"):
            dm.memory.remember(f"tea is a {kind}", kind=kind)
        clock.advance(2 * DAY)
        assert {hit.memory.kind: hit.note for hit in dm.memory.recall("tea")} == {
            "fact": "2 days old: must be reconfirmed, do not state it as true",
            "rumour": "2 days old: check before use",
            "reference": "",
            "opinion": "",
        }
    for bad in ({"fact": 30}, "fact", {3: KindPolicy()}):
        with pytest.raises(InvalidInput, match="policies"):
            duramen.open("memory:", policies=bad)  # type: ignore[arg-type]
    for wrong in (("often", 3), ("check", 0), ("check", True)):
        with pytest.raises(InvalidInput):
            KindPolicy(*wrong)  # type: ignore[arg-type]
