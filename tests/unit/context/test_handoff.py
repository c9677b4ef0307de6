"""Hand-off: a session that continues another starts with its decisions, open questions and progress only."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs.child_processes import ChildProcesses, Gate
from programs.session_writers import damage_event
from programs.side_effects import Killed, Open, SideEffects

import duramen
from duramen import Draft, Duramen, Progress
from duramen.errors import InvalidInput, RunParked


def continued_sessions(dm: Duramen, session: str = "new") -> list[Any]:
    return [event.data["session"] for event in dm.session(session).events(types="session.continues")]


def memory(dm: Duramen, session: str = "new", **options: Any) -> str:
    return dm.session(session).context(**options).memory


@duramen.task
def asks() -> Any:
    return duramen.ask("May I buy the expensive one?")


def create_sessions(dm: Duramen, effects: SideEffects) -> None:
    """Sessions with everything that a hand-off can contain."""

    @duramen.step(in_doubt="ask")
    def pay() -> str:
        return effects.do("pay")

    @duramen.task
    def checkout() -> str:
        return pay()

    old = dm.session("old")
    old.progress.begin("Ship the export", next_action="write the client", context="Repository: billing")
    old.progress.complete("read the docs")
    old.say("user", "an unimportant remark")
    old.tool_result(old.tool_call("grep", {"pattern": "needle"}), "line upon line of output")
    for number in range(12):
        old.decide(f"decision {number}", reason=f"reason {number}")
    with pytest.raises(RunParked):
        dm.run(asks, id="asking", session="old")
    effects.die = "after pay"
    with pytest.raises(Killed):
        dm.run(checkout, id="paying", session="doubtful")


# -- content


@pytest.mark.promise("H4", "W11")
def test_the_first_context_has_the_handoff_and_not_the_transcript(open_one: Open, effects: SideEffects) -> None:
    dm = open_one()
    create_sessions(dm, effects)
    handoff = dm.session("old").handoff()
    assert (handoff.session, handoff.position) == ("old", dm.session("old").head().position)
    assert handoff.progress == dm.session("old").progress.read()
    assert handoff.questions == ("asks (asking) waits for an answer to 'May I buy the expensive one?'",)
    assert handoff.decisions == tuple(f"decision {n} (because reason {n})" for n in range(11, 3, -1))
    context = open_one().session("new", continues="old").context()
    for line in (
        "This session continues 'old'.",
        "Open question: asks (asking) waits for an answer to 'May I buy the expensive one?'",
        "Decided: decision 11 (because reason 11)",
        "Goal: Ship the export",
        "Next: write the client",
        "Done, do not repeat: read the docs",
        "Repository: billing",
    ):
        assert line in context.memory.splitlines()
    assert context.messages == ()
    for form in (context.json().decode(), repr(context.anthropic()), repr(context.openai())):
        assert "decision 11" in form
        for omitted in ("unimportant remark", "needle", "line upon line", "decision 3 "):
            assert omitted not in form
    assert {one.kind for one in context.trace} == {"handoff", "progress"}
    assert memory(open_one()) == context.memory, "the same in another handle"


@pytest.mark.promise("H4", "X5")
def test_steps_in_doubt_are_listed_first(open_one: Open, effects: SideEffects) -> None:
    dm = open_one()
    create_sessions(dm, effects)
    assert dm.session("doubtful").handoff().in_doubt == ("pay#1 of checkout (paying)",)
    dm.session("new", continues="doubtful").say("user", "continue")
    lines = memory(open_one()).splitlines()
    assert lines[2:4] == [
        "This session continues 'doubtful'.",
        "In doubt, may have happened: pay#1 of checkout (paying)",
    ]
    assert effects.times("pay") == 1, "the step did not run again"


@pytest.mark.promise("H4")
def test_progress_continues_in_the_new_session(open_one: Open) -> None:
    old = open_one().session("old").progress
    old.begin("g", next_action="two")
    old.complete("one")
    new = open_one().session("new", continues="old").progress
    assert new.read() == old.read()
    assert new.complete("one") == old.read(), "already completed"
    with pytest.raises(InvalidInput, match="already completed"):
        new.plan("one")
    new.complete("two", next_action="three")
    old.complete("later")
    assert open_one().session("new").progress.completed == ("one", "two")
    assert open_one().session("old").progress.completed == ("one", "later")
    assert "Done, do not repeat: two" in memory(open_one())
    assert "later" not in memory(open_one())
    assert open_one().session("new").progress.read(at=1).completed == ("one",)
    open_one().session("new").progress.finish()
    open_one().session("new").progress.begin("another goal", next_action="x")
    assert open_one().session("new", continues="old").progress.read() == Progress("another goal", (), None, "x")


def test_the_handoff_is_of_the_moment_when_the_session_was_continued(open_one: Open) -> None:
    old = open_one().session("old")
    old.decide("first", reason="r")
    open_one().session("new", continues="old").say("user", "hello")
    old.decide("second", reason="r")
    old.progress.begin("late goal", next_action="n")
    again = open_one().session("new", continues="old")
    assert "first" in again.context().memory
    assert "second" not in again.context().memory
    assert again.progress.read() == Progress()
    assert again.context(at=0).memory == ""
    assert again.context(at=1).memory == again.context().memory


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.say("user", "x"),
        lambda s: s.append("note"),
        lambda s: s.append_all([Draft("note"), Draft("note")]),
        lambda s: s.tool_call("t"),
        lambda s: s.decide("d", reason="r"),
        lambda s: s.log_error("e"),
        lambda s: s.checkpoint(1),
        lambda s: s.context(),
        lambda s: s.progress.read(),
        lambda s: s.progress.begin("g", next_action="n"),
        lambda s: s.handoff(),
    ],
)
def test_any_first_operation_stores_the_handoff_first(act: Callable[[Any], Any]) -> None:
    with duramen.open("memory:") as dm:
        dm.session("old").decide("d", reason="r")
        session = dm.session("new", continues="old")
        assert session.head().position == 0, "nothing is stored until something is appended"
        act(session)
        assert next(iter(dm.session("new").events())).type == "session.continues"
        act(dm.session("new", continues="old"))
        assert continued_sessions(dm) == ["old"]
        assert dm.verify().ok


# -- continued once


@pytest.mark.promise("H4", "J7")
def test_concurrent_processes_store_the_handoff_once(tmp_path: Path, processes: ChildProcesses) -> None:
    address = str(tmp_path / "agent.db")
    with duramen.open(address) as dm:
        dm.session("old").decide("d", reason="r")
        dm.session("old").progress.begin("g", next_action="n")
    for number in range(3):
        gate = Gate(tmp_path / f"gate {number}")
        given: dict[str, Any] = {"address": address, "new": f"new {number}", "old": "old", "gate": gate.path}
        children = [processes.start("session_writers:continue_session", **given) for _ in range(3)]
        for child in children:
            child.wait_for_lines(1)
        gate.open()
        assert len({child.finish()[1] for child in children}) == 1, "all have the same context"
        with duramen.open(address) as dm:
            assert continued_sessions(dm, f"new {number}") == ["old"]
            types = [event.type for event in dm.session(f"new {number}").events()]
            assert types == ["session.continues", *["talk.message"] * 3]


@pytest.mark.promise("H4")
@pytest.mark.parametrize("point", ["append.encoded", "append.begun", "append.inserted", "append.committed"])
def test_a_kill_while_continuing_a_session_is_harmless(tmp_path: Path, processes: ChildProcesses, point: str) -> None:
    address = str(tmp_path / "agent.db")
    with duramen.open(address) as dm:
        dm.session("old").progress.begin("g", next_action="n")
        dm.session("old").progress.complete("one")
    for visit in (1, 2) if point != "append.inserted" else (1,):
        new = f"new {visit}"
        child = processes.start(
            "session_writers:continue_session", address=address, new=new, old="old", crash=(point, visit)
        )
        assert child.wait() == -signal.SIGKILL, child.errors()
        with duramen.open(address) as dm:
            if continued_sessions(dm, new):
                dm.session(new).say("user", "opened without `continues`")
                assert dm.session(new).progress.completed == ("one",)
            dm.session(new, continues="old").say("user", "again")
            assert continued_sessions(dm, new) == ["old"]
            assert "Done, do not repeat: one" in memory(dm, new)


def test_concurrent_coroutines_store_the_handoff_once(any_address: str) -> None:
    async def main() -> None:
        async with await duramen.aopen(any_address) as dm:
            await dm.session("old").decide("d", reason="r")
            session = dm.session("new", continues="old")
            _, context, progress = await asyncio.gather(
                session.say("user", "1"), session.context(), session.progress.read()
            )
            assert "Decided: d (because r)" in context.memory
            assert progress == Progress()
            assert [event.type async for event in session.events()] == ["session.continues", "talk.message"]

    asyncio.run(main())


def test_concurrent_threads_store_the_handoff_once(dm: Duramen) -> None:
    dm.session("old").decide("d", reason="r")
    session = dm.session("new", continues="old")
    threads = [threading.Thread(target=lambda: session.say("user", "x")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.type for event in session.events()] == ["session.continues", *["talk.message"] * 4]


def test_invalid_sessions_to_continue_are_rejected(open_one: Open) -> None:
    for name in ("old", "older"):
        open_one().session(name).say("user", "x")
    open_one().session("new", continues="old").say("user", "x")
    before = open_one().session("new").head().position
    for wrong, words in (("older", "already continues 'old'"), ("unknown", "already continues 'old'")):
        session = open_one().session("new", continues=wrong)
        for _ in range(2):
            with pytest.raises(InvalidInput, match=words) as caught:
                session.say("user", "y")
            assert caught.value.hint
    fresh = open_one().session("fresh", continues="unknown")
    for act in (lambda: fresh.say("user", "y"), fresh.context, lambda: fresh.append("x"), fresh.handoff):
        with pytest.raises(InvalidInput, match="no session 'unknown'"):
            act()
    with pytest.raises(InvalidInput, match="no session 'unknown'"):
        open_one().session("unknown").handoff()
    for itself in ("new", "", 5, "a\0b"):
        with pytest.raises(InvalidInput):
            open_one().session("new", continues=itself)  # type: ignore[arg-type]
    assert open_one().session("new").head().position == before
    assert open_one().session("fresh").head().position == 0


def test_idempotency_keys_of_users_do_not_collide_with_the_handoff(dm: Duramen) -> None:
    dm.session("old").decide("d", reason="r")
    dm.session("new").say("user", "x", key="session.continues")
    dm.session("new", continues="old").say("user", "y")
    assert "Decided: d" in memory(dm)


# -- chains, forks, subjects and damage


@pytest.mark.promise("H4", "W11")
def test_a_chain_of_sessions_keeps_open_questions_decisions_and_progress(open_one: Open, effects: SideEffects) -> None:
    create_sessions(open_one(), effects)
    for number in range(5):
        dm = open_one()
        session = dm.session(f"s{number}", continues=f"s{number - 1}" if number else "old")
        session.say("user", f"a remark in session {number}")
        if number in (1, 3):
            session.progress.complete(f"step {number}")
            session.decide(f"chosen in {number}", reason="why not")
    context = open_one().session("s4").context()
    lines = context.memory.splitlines()
    assert lines[2] == "This session continues 's3'."
    assert "Open question: asks (asking) waits for an answer to 'May I buy the expensive one?'" in lines
    assert [line for line in lines if line.startswith("Decided")][:3] == [
        "Decided: chosen in 3 (because why not)",
        "Decided: chosen in 1 (because why not)",
        "Decided: decision 11 (because reason 11)",
    ]
    assert sum(line.startswith("Decided") for line in lines) == 8
    assert [line for line in lines if line.startswith("Done")] == [
        f"Done, do not repeat: {step}" for step in ("step 3", "step 1", "read the docs")
    ]
    assert "a remark in session 3" not in context.json().decode()
    open_one().answer("asking", "no")
    assert open_one().session("s4").handoff().questions == (), "the question is answered"


def test_a_fork_keeps_the_handoff(open_one: Open) -> None:
    dm = open_one()
    dm.session("old").decide("d", reason="r")
    dm.session("old").progress.begin("g", next_action="n")
    new = dm.session("new", continues="old")
    new.decide("e", reason="s")
    assert open_one().fork("new", "fork").context().memory == new.context().memory
    assert open_one().fork("new", "early fork", at=1).progress.read() == Progress("g", (), None, "n")
    assert (
        open_one().session("fork").handoff().decisions == new.handoff().decisions == ("e (because s)", "d (because r)")
    )
    open_one().session("next", continues="fork").say("user", "x")
    assert "Decided: e (because s)" in memory(open_one(), "next")


@pytest.mark.promise("P5")
def test_erasing_a_subject_removes_its_parts_of_the_handoff(any_address: str) -> None:
    with duramen.open(any_address) as dm:
        dm._core._engine.patience = 0
        dm.session("old").decide("refund Ada Lovelace", reason="she lives in London", subject="ada")
        dm.session("old").decide("use sqlite", reason="simple")

        @duramen.task
        def mail() -> Any:
            return duramen.ask("May I write to Ada Lovelace?")

        with pytest.raises(RunParked):
            dm.run(mail, id="r", session="old", subject="ada")
        dm.session("new", continues="old").say("user", "x")
        dm.session("newer", continues="new").say("user", "x")
        assert "Ada" in memory(dm, "newer")
        dm.erase("ada")
        for session in ("new", "newer"):
            assert "use sqlite" in memory(dm, session)
            assert "Ada" not in memory(dm, session)
            assert "Ada" not in repr([event.data for event in dm.session(session).events()])


@pytest.mark.promise("J8")
def test_a_damaged_decision_of_the_old_session_does_not_stop_the_new_one(open_one: Open, any_address: str) -> None:
    dm = open_one()
    dm.session("old").decide("first", reason="r")
    dm.session("old").decide("second", reason="r")
    dm.session("new", continues="old").say("user", "x")
    damage_event(dm, any_address, "talk.decided")
    assert "Decided: second" in memory(open_one())
    assert "first" not in memory(open_one())
    open_one().session("other", continues="old").say("user", "x")
    assert "This session continues 'old'." in memory(open_one(), "other")
