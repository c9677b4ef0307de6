"""The write-back: in the background, once, whatever dies in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from programs.child_processes import until

import duramen
from duramen.crash_points import listen
from duramen.errors import StoreBusy
from duramen.memory.extraction.rules import rule_set
from duramen.memory.knowledge.write_back import WriteBack
from duramen.testing.clock import FakeClock

FACT = "Our refund window is 30 days."


def open_one(address: str, **settings: Any) -> duramen.Duramen:
    return duramen.open(address, embedder="none", **settings)


def turn(dm: duramen.Duramen, said: str, session: str = "s", reply: str = "I see.", **rest: Any) -> Any:
    return dm.session(session).turn(said, model=lambda context: reply, **rest)


def run_tool(session: duramen.Session, id: str, command: str, output: str, error: bool = False) -> None:
    session.tool_call("bash", {"command": command}, id=id)
    session.tool_result(id, output, error=error)


def facts(dm: duramen.Duramen, **whose: Any) -> list[str]:
    return [one.content for one in dm.memory.list(**{"everyone": True, **whose})]


@pytest.mark.promise("K2", "K5")
def test_a_turn_is_written_back_in_the_background(any_address: str) -> None:
    with open_one(any_address) as dm:
        result = turn(dm, f"Can you look at this? {FACT} Maybe it is 60 days for members.", subject="ada")
        assert result.reply == "I see."
        (fact,) = until(lambda: list(dm.memory.list(subject="ada")), "a memory of Ada")
        assert (fact.content, fact.kind, fact.confidence) == (FACT, "fact", 0.8)
        assert facts(dm, everyone=False) == [], "what somebody said is theirs"
        (done,) = dm.session("@writeback").events(types="writeback.done")
        assert done.data["turn"] == "s#1"
        assert {one["what"]: one["reason"] for one in done.data["decided"] if not one["keep"]} == {
            "Maybe it is 60 days for members.": "hedged"
        }
        (added,) = dm.session("@writeback").events(types="memory.added")
        assert (added.cause, added.actor) == ("s#1", "duramen")
        assert dm.verify().ok


@pytest.mark.promise("K5")
def test_the_turn_returns_first(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    real = rule_set.apply_rules

    def slow(turns: Any) -> Any:
        began.set()
        assert go_on.wait(30)
        return real(turns)

    monkeypatch.setattr("duramen.memory.knowledge.write_back.apply_rules", slow)
    with open_one("memory:") as dm:
        assert turn(dm, FACT).reply == "I see."
        assert began.wait(30)
        assert facts(dm) == []
        assert turn(dm, "And more?").reply == "I see."
        go_on.set()
        assert until(lambda: facts(dm), "a fact") == [FACT]


@pytest.mark.promise("K5")
def test_a_turn_is_written_back_once_by_whoever_is_there(any_address: str) -> None:
    with open_one(any_address, write_back=False) as dm:
        for number in range(6):
            turn(dm, f"The gate of dock {number} opens at {number}:30.", session=f"s{number}")
        handles = [dm]
        if any_address != "memory:":
            handles += [open_one(any_address, write_back=False) for _ in range(3)]
        threads = [threading.Thread(target=one.memory.write_back) for one in handles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for other in handles[1:]:
            other.close()
        dm.memory.write_back()
        memories = list(dm.memory.list(everyone=True))
        assert sorted(one.content for one in memories) == [f"The gate of dock {n} opens at {n}:30." for n in range(6)]
        assert {one.times for one in memories} == {1}
        assert len(list(dm.session("@writeback").events(types="writeback.done"))) == 6


class Killed(BaseException):
    """Nothing catches a kill."""


@contextmanager
def dying_at(point: str, after: int) -> Iterator[None]:
    """Die when a point is reached, after some times that it was passed."""
    left = [after]

    def listener(reached: str) -> None:
        left[0] -= reached == point
        if reached == point and left[0] < 0:
            raise Killed

    listen(listener)
    try:
        yield
    finally:
        listen(None)


@pytest.mark.promise("K5")
@pytest.mark.parametrize("point", ["append.begun", "append.inserted", "append.committed", "writeback.done"])
def test_a_kill_in_between_repeats_nothing(tmp_path: Path, point: str) -> None:
    path = str(tmp_path / "agent.db")
    with open_one(path, write_back=False) as dm:
        session = dm.session("s")

        def answer(context: duramen.Context) -> str:
            run_tool(session, "c1", "make verify", "214 passed")
            return "All passed."

        session.turn(f"{FACT} Run the tests, it's `make verify` in this repo.", model=answer)
    for after in range(6):
        with open_one(path, write_back=False) as dm:
            try:
                with dying_at(point, after):
                    dm.memory.write_back()
            except Killed:
                continue
    with open_one(path, write_back=False) as dm:
        dm.memory.write_back()
        assert sorted(one.kind for one in dm.memory.list(everyone=True)) == ["fact", "procedure"]
        (way,) = dm.memory.procedures.list()
        assert (way.version, way.successes, way.failures) == (1, 1, 0)
        assert [one.times for one in dm.memory.list(kinds="fact")] == [1]
        assert dm.verify().ok


@pytest.mark.promise("K5")
def test_what_fails_is_tried_again_and_does_not_stand_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = WriteBack.write_turn, [0]

    async def failing(self: WriteBack, session: str, position: int, fence: int | None = None) -> Any:
        if session == "busy" and failures[0] < 3:
            failures[0] += 1
            raise StoreBusy("somebody else writes")
        if session == "broken":
            raise ZeroDivisionError("a bug")
        return await real(self, session, position, fence)

    with open_one("memory:", write_back=False) as dm:
        for number, session in enumerate(("busy", "broken", "fine")):
            turn(dm, f"The gate of dock {number} opens at 7:30.", session=session)
        monkeypatch.setattr(WriteBack, "write_turn", failing)
        for _ in range(3):
            with pytest.raises(StoreBusy):
                dm.memory.write_back()
        dm.memory.write_back()
        assert facts(dm) == ["The gate of dock 0 opens at 7:30.", "The gate of dock 2 opens at 7:30."]
        (given_up,) = dm.session("@writeback").events(types="writeback.given_up")
        assert given_up.data["turn"].startswith("broken#")
        assert "ZeroDivisionError" in given_up.data["error"]


@pytest.mark.promise("K3")
def test_one_denial_writes_nothing_and_two_write_one(dm: duramen.Duramen) -> None:
    session = dm.session("s")

    def denied(context: duramen.Context) -> str:
        number = context.position
        run_tool(session, f"c{number}", "cat /srv/pay.csv", "cat: /srv/pay.csv: Permission denied", error=True)
        return "Denied."

    for number in range(4):
        session.turn(f"Show me the pay list, please ({number})", model=denied)
        dm.memory.write_back(session.id)  # not by the feed: an older transaction of another test holds it back
        blockers = list(dm.memory.list(kinds="blocker"))
        assert len(blockers) == (number > 0)
    assert "/srv/pay.csv" in blockers[0].content
    assert blockers[0].times == 3


@pytest.mark.promise("K2", "P3")
def test_procedures_are_promoted_by_success_and_demoted_by_failure(dm: duramen.Duramen) -> None:
    session = dm.session("s")

    def answer(error: bool) -> Callable[[duramen.Context], str]:
        def run(context: duramen.Context) -> str:
            run_tool(session, f"c{context.position}", "make verify", "no" if error else "ok", error=error)
            return "Done."

        return run

    said = "Run the tests, it's `make verify` in this repo."
    session.turn(said, model=answer(error=True))
    dm.memory.write_back()
    assert dm.memory.procedures.list() == []
    session.turn(said, model=answer(error=False))
    dm.memory.write_back()
    (way,) = dm.memory.procedures.list()
    assert (way.name, way.steps, way.successes) == ("make verify", ("`make verify`",), 1)
    assert said in way.memory.content
    before = way.memory.importance
    for _ in range(3):
        session.turn("Run the tests again", model=answer(error=True))
    dm.memory.write_back()
    (way,) = dm.memory.procedures.list()
    assert (way.successes, way.failures) == (1, 3)
    assert way.memory.importance < before


@pytest.mark.promise("K6")
def test_what_was_kept_needs_no_transcript(dm: duramen.Duramen) -> None:
    turn(dm, FACT, session="s")
    dm.memory.write_back()
    (fact,) = dm.memory.recall("How long can customers return things? refund")
    assert fact.memory.content == FACT
    assert "s#1" not in fact.memory.source, "its text lies in an event of its own"


@pytest.mark.promise("K4", "K7")
def test_what_people_say_by_hand_is_proposed_too(dm: duramen.Duramen) -> None:
    session = dm.session("s")
    session.say("user", f"I prefer tea. Call me Ada. {FACT}", subject="ada")
    session.say("assistant", "Fine.", subject="ada")
    assert dm.memory.write_back() == 0, "by hand it is said when a turn is over"
    assert dm.memory.write_back("s") == 1
    assert dm.memory.write_back("s") == 0
    assert facts(dm, subject="ada", everyone=False) == [FACT]
    assert sorted(one.content for one in dm.memory.proposals.list(subject="ada")) == ["Ada", "The user prefers tea"]
    assert dm.memory.profile("ada") == {}


@pytest.mark.promise("K2")
def test_a_run_is_written_back_when_it_ends(dm: duramen.Duramen) -> None:
    @duramen.task
    def chat() -> str:
        return "done"

    dm.session("s").say("user", FACT)
    dm.run(chat, id="r", session="s")
    dm.memory.write_back()
    assert facts(dm) == [FACT]


@pytest.mark.promise("G3")
def test_an_erased_person_is_not_written_back(dm: duramen.Duramen) -> None:
    turn(dm, FACT, subject="ada")
    dm.memory.write_back()
    dm.erase("ada")
    assert facts(dm) == []
    assert [one.erased for one in dm.session("@writeback").events(types="writeback.done")] == [True]
    turn(dm, "The staging host is db-stage-2.", subject="bob")
    dm.erase("bob")
    dm.memory.write_back()
    assert facts(dm) == []


@pytest.mark.promise("G3")
def test_an_erasure_in_the_middle_of_a_write_back_wins(any_address: str) -> None:
    """The turn is read, then the person is erased: what was read must not come back under a new key."""
    said = f"{FACT} Call me Bob. To publish: first build the docs, then push the branch, then tag it. That worked."
    with open_one(any_address, write_back=False) as dm:
        turn(dm, said, subject="bob")
        made = {one.id for one in dm.memory.proposals.list(everyone=True)}
        assert made, "the turn itself proposes"

        def interfere(point: str) -> None:
            if point == "writeback.read":
                listen(None)
                dm.erase("bob")

        listen(interfere)
        try:
            dm.memory.write_back()
        finally:
            listen(None)
        assert facts(dm) == []
        assert list(dm.memory.proposals.list(everyone=True)) == []
        assert list(dm.session("@writeback").events()) == []
        assert dm.memory.write_back() == 0, "it is not tried again for ever"


@pytest.mark.promise("K8")
def test_knowledge_grows_slower_than_the_log(tmp_path: Path) -> None:
    """2,000 turns as they come: much talk, facts now and then, mostly ones that were said before."""
    clock = FakeClock()
    with open_one(str(tmp_path / "agent.db"), clock=clock, write_back=False) as dm, dm.files(tmp_path / "m") as files:
        grown: list[tuple[int, int]] = []
        filed: list[int] = []
        for number in range(2_000):
            session = dm.session(f"day-{number // 40}")
            said = [
                "What is next on the list?",
                f"The depot of route {number // 50 % 23} closes at 16:30 on weekdays.",
                f"Order {number} looks fine, thanks.",
                "I think the printer is slow again.",
                f"Please send the list number {number} to Petra.",
            ][number % 5]
            session.say("user", said)
            session.say("assistant", f"Fine, that was number {number}.")
            session.append("memory.considered", {"decided": []})
            clock.advance(60)
            if number % 500 == 499:
                dm.memory.write_back()
                events = sum(row.head for row in dm.sessions() if not row.session.startswith("@"))
                grown.append((events, len(facts(dm))))
                files.sync()
                filed.append(len(list((tmp_path / "m/workspace").rglob("knowledge/*/*.md"))))
    assert filed == [known for _, known in grown], "a file for each, and none for talk"
    assert [events for events, _ in grown] == [1_500, 3_000, 4_500, 6_000]
    assert grown[0][1] == 10
    assert grown[-1][1] == 23, "what was said before is no new knowledge"
    assert grown[-1][1] - grown[-2][1] < grown[1][1] - grown[0][1]
