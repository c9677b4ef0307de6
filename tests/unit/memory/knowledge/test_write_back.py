"""The write-back extracts memories from turns: in the background, and exactly once despite kills."""

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


def turn(dm: duramen.Duramen, text: str, session: str = "s", reply: str = "I see.", **details: Any) -> Any:
    return dm.session(session).turn(text, model=lambda context: reply, **details)


def run_tool(session: duramen.Session, id: str, command: str, output: str, error: bool = False) -> None:
    session.tool_call("bash", {"command": command}, id=id)
    session.tool_result(id, output, error=error)


def facts(dm: duramen.Duramen, **audience: Any) -> list[str]:
    return [one.content for one in dm.memory.list(**{"everyone": True, **audience})]


@pytest.mark.promise("K2", "K5")
def test_a_turn_is_written_back_in_the_background(any_address: str) -> None:
    with open_one(any_address) as dm:
        result = turn(dm, f"Can you look at this? {FACT} Maybe it is 60 days for members.", subject="ada")
        assert result.reply == "I see."
        (fact,) = until(lambda: list(dm.memory.list(subject="ada")), "a memory of Ada")
        assert (fact.content, fact.kind, fact.confidence) == (FACT, "fact", 0.8)
        assert facts(dm, everyone=False) == [], "a fact from a subject's turn belongs to the subject"
        (done,) = dm.session("@writeback").events(types="writeback.done")
        assert done.data["turn"] == "s#1"
        assert {one["what"]: one["reason"] for one in done.data["decided"] if not one["keep"]} == {
            "Maybe it is 60 days for members.": "hedged"
        }
        (added,) = dm.session("@writeback").events(types="memory.added")
        assert (added.cause, added.actor) == ("s#1", "duramen")
        assert dm.verify().ok


@pytest.mark.promise("K5")
def test_a_turn_returns_before_its_write_back(monkeypatch: pytest.MonkeyPatch) -> None:
    started, proceed = threading.Event(), threading.Event()
    apply_rules = rule_set.apply_rules

    def slow_rules(turns: Any) -> Any:
        started.set()
        assert proceed.wait(30)
        return apply_rules(turns)

    monkeypatch.setattr("duramen.memory.knowledge.write_back.apply_rules", slow_rules)
    with open_one("memory:") as dm:
        assert turn(dm, FACT).reply == "I see."
        assert started.wait(30)
        assert facts(dm) == []
        assert turn(dm, "And more?").reply == "I see."
        proceed.set()
        assert until(lambda: facts(dm), "a fact") == [FACT]


@pytest.mark.promise("K5")
def test_several_handles_write_a_turn_back_once(any_address: str) -> None:
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
    """Simulates a kill: nothing catches it."""


@contextmanager
def killed_at(point: str, after: int) -> Iterator[None]:
    """Raise `Killed` when a point is reached, after it was passed `after` times."""
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
def test_a_kill_repeats_nothing(tmp_path: Path, point: str) -> None:
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
                with killed_at(point, after):
                    dm.memory.write_back()
            except Killed:
                continue
    with open_one(path, write_back=False) as dm:
        dm.memory.write_back()
        assert sorted(one.kind for one in dm.memory.list(everyone=True)) == ["fact", "procedure"]
        (procedure,) = dm.memory.procedures.list()
        assert (procedure.version, procedure.successes, procedure.failures) == (1, 1, 0)
        assert [one.times for one in dm.memory.list(kinds="fact")] == [1]
        assert dm.verify().ok


@pytest.mark.promise("K5")
def test_a_failing_turn_is_retried_and_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    write_turn, failures = WriteBack.write_turn, [0]

    async def failing(self: WriteBack, session: str, position: int, fence: int | None = None) -> Any:
        if session == "busy" and failures[0] < 3:
            failures[0] += 1
            raise StoreBusy("another process writes")
        if session == "broken":
            raise ZeroDivisionError("a bug")
        return await write_turn(self, session, position, fence)

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
def test_one_denial_is_no_blocker_and_two_are_one(dm: duramen.Duramen) -> None:
    session = dm.session("s")

    def denied(context: duramen.Context) -> str:
        number = context.position
        run_tool(session, f"c{number}", "cat /srv/pay.csv", "cat: /srv/pay.csv: Permission denied", error=True)
        return "Denied."

    for number in range(4):
        session.turn(f"Show me the pay list, please ({number})", model=denied)
        dm.memory.write_back(session.id)  # not from the feed, which an older transaction of another test may hold back
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

    request = "Run the tests, it's `make verify` in this repo."
    session.turn(request, model=answer(error=True))
    dm.memory.write_back()
    assert dm.memory.procedures.list() == []
    session.turn(request, model=answer(error=False))
    dm.memory.write_back()
    (procedure,) = dm.memory.procedures.list()
    assert (procedure.name, procedure.steps, procedure.successes) == ("make verify", ("`make verify`",), 1)
    assert request in procedure.memory.content
    before = procedure.memory.importance
    for _ in range(3):
        session.turn("Run the tests again", model=answer(error=True))
    dm.memory.write_back()
    (procedure,) = dm.memory.procedures.list()
    assert (procedure.successes, procedure.failures) == (1, 3)
    assert procedure.memory.importance < before


@pytest.mark.promise("K6")
def test_a_kept_fact_needs_no_transcript(dm: duramen.Duramen) -> None:
    turn(dm, FACT, session="s")
    dm.memory.write_back()
    (fact,) = dm.memory.recall("How long can customers return things? refund")
    assert fact.memory.content == FACT
    assert "s#1" not in fact.memory.source, "its text is in its own event"


@pytest.mark.promise("K4", "K7")
def test_messages_outside_turns_are_written_back_on_request(dm: duramen.Duramen) -> None:
    session = dm.session("s")
    session.say("user", f"I prefer tea. Call me Ada. {FACT}", subject="ada")
    session.say("assistant", "Fine.", subject="ada")
    assert dm.memory.write_back() == 0, "without turns, the caller says when to write back"
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
def test_an_erased_subject_is_not_written_back(dm: duramen.Duramen) -> None:
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
def test_an_erasure_during_a_write_back_wins(any_address: str) -> None:
    """The subject is erased after the turn was read: its text must not be stored again under a new key."""
    text = f"{FACT} Call me Bob. To publish: first build the docs, then push the branch, then tag it. That worked."
    with open_one(any_address, write_back=False) as dm:
        turn(dm, text, subject="bob")
        proposed = {one.id for one in dm.memory.proposals.list(everyone=True)}
        assert proposed, "the turn itself made proposals"

        def erase_after_read(point: str) -> None:
            if point == "writeback.read":
                listen(None)
                dm.erase("bob")

        listen(erase_after_read)
        try:
            dm.memory.write_back()
        finally:
            listen(None)
        assert facts(dm) == []
        assert list(dm.memory.proposals.list(everyone=True)) == []
        assert list(dm.session("@writeback").events()) == []
        assert dm.memory.write_back() == 0, "it is not retried"


@pytest.mark.promise("K8")
def test_knowledge_grows_slower_than_the_log(tmp_path: Path, everything: bool) -> None:
    """Most turns are small talk. Some state facts, and most of those are repeated."""
    clock = FakeClock()
    batch = 500 if everything else 100
    with open_one(str(tmp_path / "agent.db"), clock=clock, write_back=False) as dm, dm.files(tmp_path / "m") as files:
        growth: list[tuple[int, int]] = []
        file_counts: list[int] = []
        for number in range(4 * batch):
            session = dm.session(f"day-{number // 40}")
            text = [
                "What is next on the list?",
                f"The depot of route {number // (batch // 10) % 23} closes at 16:30 on weekdays.",
                f"Order {number} looks fine, thanks.",
                "I think the printer is slow again.",
                f"Please send the list number {number} to Petra.",
            ][number % 5]
            session.say("user", text)
            session.say("assistant", f"Fine, that was number {number}.")
            session.append("memory.considered", {"decided": []})
            clock.advance(60)
            if number % batch == batch - 1:
                dm.memory.write_back()
                events = sum(row.head for row in dm.sessions() if not row.session.startswith("@"))
                growth.append((events, len(facts(dm))))
                files.sync()
                file_counts.append(len(list((tmp_path / "m/workspace").rglob("knowledge/*/*.md"))))
    assert file_counts == [count for _, count in growth], "one file per fact, and none for small talk"
    assert [events for events, _ in growth] == [3 * batch * part for part in (1, 2, 3, 4)]
    assert growth[0][1] == 10
    assert growth[-1][1] == 23, "a repeated fact is not new"
    assert growth[-1][1] - growth[-2][1] < growth[1][1] - growth[0][1]
