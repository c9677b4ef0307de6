"""Episodes: what was said and done in a session, in time order, limited by a policy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from programs.side_effects import Open

import duramen
from duramen import EpisodePolicy
from duramen.errors import InvalidInput
from duramen.testing.clock import FakeClock

DAY = 24 * 3600


def texts(session: Any, **options: Any) -> list[str]:
    return [one.text for one in session.episodes(**options)]


@pytest.mark.promise("E1", "E2")
def test_episodes_of_every_kind_are_listed_in_time_order_with_outcomes(open_one: Open, clock: FakeClock) -> None:
    session = open_one().session("s")
    session.say("system", "You are kind.")
    session.say("user", "Book a flight", name="Ada")
    call = session.tool_call("search", {"to": "LIS"})
    clock.advance(60)
    session.tool_result(call, "3 flights")
    failed = session.tool_call("pay", {"sum": 280})
    session.tool_result(failed, "declined", error=True)
    error = session.log_error("the payment was declined")
    open_error = session.log_error("the mail server is down")
    session.decide("take TP 1351", reason="it is the cheapest")
    session.log_fix(error, "used the other card")
    episodes = open_one().session("s").episodes()
    assert [(one.kind, one.text, one.outcome, one.fix) for one in episodes] == [
        ("said", "Ada: Book a flight", None, None),
        ("did", 'called search {"to":"LIS"}', "3 flights", None),
        ("did", 'called pay {"sum":280}', "failed: declined", None),
        ("erred", "error: the mail server is down", None, None),
        ("decided", "decided: take TP 1351 (because it is the cheapest)", None, None),
        ("erred", "error: the payment was declined", None, "used the other card"),
    ]
    assert [one.position for one in episodes if one.kind == "erred"] == [open_error.position, error.position]
    assert episodes[-1].line.endswith("error: the payment was declined (resolved: used the other card)")
    assert "-> failed: declined" in episodes[2].line
    assert texts(session, limit=2) == [one.text for one in episodes[-2:]]
    assert texts(session, kinds="did", limit=1) == ['called pay {"sum":280}']
    assert texts(open_one().session("other")) == []


@pytest.mark.promise("E2", "R7")
def test_episodes_of_the_continued_session_come_first(open_one: Open) -> None:
    dm = open_one()
    dm.session("old").say("user", "the first")
    dm.session("old").say("assistant", "the second")
    new = dm.session("new", continues="old")
    new.say("user", "the third")
    assert texts(new, limit=2) == ["assistant: the second", "user: the third"]
    assert texts(new) == ["user: the first", "assistant: the second", "user: the third"]
    assert "user: the first" in new.recall("anything").text


@pytest.mark.promise("E3")
def test_episodes_expire_one_day_after_the_last_one(open_one: Open, clock: FakeClock) -> None:
    session = open_one().session("s")
    session.say("user", "hello")
    clock.advance(DAY - 1)
    assert texts(session) == ["user: hello"]
    session.say("user", "again")
    clock.advance(DAY - 1)
    assert texts(session) == ["user: hello", "user: again"]
    clock.advance(2)
    assert texts(session) == []
    assert len(list(session.events())) == 2, "the journal still has them"


@pytest.mark.promise("E3", "C7")
def test_episodes_of_an_unfinished_run_do_not_expire(open_one: Open, clock: FakeClock) -> None:
    @duramen.task
    def waiting() -> str:
        return str(duramen.ask("Continue?"))

    dm = open_one()
    session = dm.session("s")
    session.say("user", "hello")
    with pytest.raises(duramen.errors.RunParked):
        dm.run(waiting, id="r", session="s")
    clock.advance(30 * DAY)
    assert "user: hello" in texts(session)
    dm.cancel("r")
    clock.advance(30 * DAY)
    assert texts(session) == []


@pytest.mark.promise("E3", "E5")
def test_the_cap_removes_unimportant_episodes_first() -> None:
    policy = EpisodePolicy(cap=3, ttl=None)
    with duramen.open("memory:", embedder="none", clock=FakeClock(), episodes=policy) as dm:
        session = dm.session("s")
        session.say("user", "vital", priority="always")
        session.decide("the plan", reason="it works")
        for number in range(6):
            session.say("user", f"chatter {number}", priority="low")
        assert texts(session) == ["user: vital", "decided: the plan (because it works)", "user: chatter 5"]
    with duramen.open("memory:", embedder="none", episodes=EpisodePolicy(cap=None, ttl=None)) as dm:
        for number in range(30):
            dm.session("s").say("user", f"chatter {number}")
        assert len(dm.session("s").episodes(limit=99)) == 30


@pytest.mark.promise("E3", "E5")
def test_the_default_cap_is_a_thousand_episodes() -> None:
    with duramen.open("memory:", embedder="none", clock=FakeClock()) as dm:
        session = dm.session("s")
        session.say("user", "vital", priority="always")
        for number in range(1_010):
            session.say("user", f"chatter {number}", priority="low")
        episodes = texts(session, limit=5_000)
        assert (len(episodes), episodes[:2]) == (1_000, ["user: vital", "user: chatter 11"])


@pytest.mark.promise("E6")
def test_episodes_are_shortened_deduplicated_and_without_reasoning(open_one: Open) -> None:
    session = open_one().session("s")
    session.say("user", "long " * 1000)
    session.say(
        "assistant",
        [{"type": "thinking", "thinking": "a hidden plan", "signature": "x"}, {"type": "text", "text": "Hello."}],
    )
    for _ in range(3):
        session.say("user", "Are you there?")
    session.tool_result(session.tool_call("read", {}), "x" * 50_000)
    long, answer, question, call = session.episodes()
    assert len(long.text) <= 400
    assert long.text.endswith("\u2026 #1")
    assert session.fetch("#1") == "long " * 1000
    assert answer.text == "assistant: Hello."
    assert (question.text, question.times) == ("user: Are you there?", 3)
    assert "(3 times)" in question.line
    assert call.outcome is not None
    assert len(call.outcome) <= 400
    assert "hidden plan" not in str([event.data for event in session.events()])
    with pytest.raises(InvalidInput, match="needs content"):
        session.say("assistant", [{"type": "thinking", "thinking": "nothing else"}])


@pytest.mark.promise("E7")
def test_observations_can_be_added_during_a_conversation() -> None:
    async def main() -> None:
        async with await duramen.aopen("memory:", embedder="none") as dm:
            session = dm.session("s")

            async def watch() -> None:
                for number in range(20):
                    await session.observe(f"window {number} opened", source="screen")

            await asyncio.gather(watch(), *(session.say("user", f"turn {number}") for number in range(5)))
            episodes = await session.episodes(limit=99, kinds="observed")
            assert [one.text for one in episodes] == [f"observed (screen): window {n} opened" for n in range(20)]
            assert len(await session.episodes(limit=99)) == 25
            context = await session.context()
            assert "window 19 opened" in str(context.plain())
            seen = await dm.session("t").observe("a lone window", source="screen")
            assert seen.actor == "screen"
            assert "[observed by screen] a lone window" in str((await dm.session("t").context()).plain())

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "name"),
    [({"cap": 0}, "cap"), ({"cap": True}, "cap"), ({"ttl": -1}, "ttl"), ({"ttl": "a day"}, "ttl")],
)
def test_invalid_policies_are_rejected(options: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}` cannot be"):
        EpisodePolicy(**options)


def test_invalid_episode_arguments_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="episodes"):
        duramen.open("memory:", episodes=7)  # type: ignore[arg-type]
    with duramen.open("memory:", embedder="none") as dm:
        session = dm.session("s")
        with pytest.raises(InvalidInput, match="limit"):
            session.episodes(limit=0)
        for what, source in (("", "screen"), ("seen", ""), (7, "screen")):
            with pytest.raises(InvalidInput):
                session.observe(what, source=source)  # type: ignore[arg-type]
        assert session.head().position == 0
