"""Working memory under attack: erased persons, damaged stores, odd events, backlogs, many at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from programs.conversations import SMALL_WINDOW, CharacterCounter, RecordingModel, WordCounter, count_tokens, take_turn

import duramen
from duramen import Draft, Duramen, Session
from duramen.context.window.context import Shown
from duramen.errors import DuramenError, InvalidInput, JournalDamaged

KEY = bytes(range(32))
SECRET = "xyzzyplugh"


def messages(count: int, text: str = "Message {} about flight LH{}.", begin: int = 0) -> list[Draft]:
    numbers = range(begin, begin + count)
    return [Draft("talk.message", {"role": "user", "content": text.format(number, number)}) for number in numbers]


def files_with(folder: Path, planted: str) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_file() and planted.encode() in path.read_bytes()]


# -- persons


def talk_about_ann(session: Session, number: int) -> None:
    """Ann's words in every place that words can be in."""
    mine = f"{SECRET} lives at {number} Main Street"
    session.say("user", mine, subject="ann")
    session.say("assistant", f"Noted, number {number}.")
    session.tool_result(session.tool_call("find", {"n": number}), mine, subject="ann")
    session.tool_result(session.tool_call("find", {"who": mine}, subject="ann"), f"found {number}")
    session.log_fix(session.log_error(f"error {number}"), mine, subject="ann")
    session.log_fix(session.log_error(mine, subject="ann"), f"fixed {number}")
    session.decide(mine, reason=mine, subject="ann")


@pytest.mark.promise("G3")
@pytest.mark.parametrize("model", [None, RecordingModel()], ids=["extract", "model"])
def test_an_erased_person_is_gone_from_contexts_and_summaries(dm: Duramen, model: Any) -> None:
    session = dm.session("s")
    for number in range(12):
        talk_about_ann(session, number)
        seen = session.context(budget=2_000, model=model)
    assert SECRET in seen.memory
    fork = session.fork("fork")
    new = dm.session("new", continues="s")
    assert SECRET in new.context().memory
    dm.erase("ann")
    for one in (session, fork, new):
        for position in (None, one.head().position, seen.position, 7):
            assert SECRET not in one.context(at=position, budget=2_000, model=model).json().decode()
        assert not [event for event in one.events() if SECRET in str(event.data)]
    for _ in range(3):  # nor does anything that is made afterwards bring it back
        session.append_all(messages(30))
        context = session.context(budget=2_000, model=model)
        assert SECRET not in context.json().decode()
        assert context.tokens <= 2_000
    with pytest.raises(InvalidInput, match="erased"):
        session.fetch("#1")
    assert dm.verify().ok
    assert "_made" not in _remembered(dm)


def _remembered(dm: Duramen) -> str:
    """Where the secret lies in what the handle remembers of texts."""
    builder = dm._core._services.context_builder
    return " ".join(name for name, value in vars(builder).items() if SECRET in repr(value)[: 10**7])


@pytest.mark.promise("G3")
def test_no_byte_of_an_erased_person_is_left_in_the_file(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        session = dm.session("s")
        for number in range(12):
            talk_about_ann(session, number)
            session.context(**SMALL_WINDOW)
        assert files_with(tmp_path, SECRET)
        dm.erase("ann")
        assert files_with(tmp_path, SECRET) == []
        session.context(**SMALL_WINDOW)
    assert files_with(tmp_path, SECRET) == []


@pytest.mark.promise("G1")
def test_nothing_of_a_sealed_conversation_can_be_read_in_the_file(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db", key=KEY) as dm:
        for number in range(12):
            talk_about_ann(dm.session("s"), number)
            context = dm.session("s").context(**SMALL_WINDOW)
    assert SECRET in context.memory
    assert files_with(tmp_path, SECRET) == []
    assert files_with(tmp_path, "Main Street") == []
    with duramen.open(tmp_path / "agent.db", key=KEY) as dm:
        assert dm.session("s").context(**SMALL_WINDOW) == context


def test_a_backlog_of_somebody_who_was_erased_hides_nothing(dm: Duramen) -> None:
    session = dm.session("s")
    for begin in range(0, 2_400, 600):
        session.append_all(messages(600, begin=begin), subject="ann")
    dm.erase("ann")
    session.say("user", "Hello, are you there?")
    assert [said.content for said in session.context().messages] == ["Hello, are you there?"]
    assert [said.content for said in session.context(at=session.head().position).messages] == ["Hello, are you there?"]


# -- damage


def execute(address: str, sql: str, *values: Any) -> None:
    if address.startswith("postgresql:"):
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(sql.replace("?", "%s").encode(), values)
    else:
        with closing(apsw.Connection(address)) as sqlite:
            sqlite.execute(sql.replace("duramen.", "duramen_"), values)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "agent.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))


@pytest.mark.promise("J8")
@pytest.mark.parametrize("between", [3, 400])
@pytest.mark.parametrize("kind", ["talk.message", "context.summary", "context.compacted"])
def test_a_changed_event_is_found_before_a_model_sees_it(address: str, kind: str, between: int) -> None:
    with duramen.open(address) as dm:
        session = dm.session("s")
        session.append_all(messages(30, "Message {} about LH{} is original."))
        before = session.context()
        session.append_all([Draft("note", number) for number in range(between)])
        session.say("user", "Well?")
        place = max(event.position for event in session.events(types=kind) if event.position <= before.position)
    with duramen.open(address) as dm:
        payload = _payload(address, place)
        changed = payload.replace(b"original", b"tampered") if b"original" in payload else bytes([*payload[:-1], 0x2A])
        assert changed != payload
        execute(address, "UPDATE duramen.events SET payload = ? WHERE position = ?", changed, place)
    with duramen.open(address) as dm, pytest.raises(JournalDamaged) as found:
        dm.session("s").context()
    assert found.value.position == place


def _payload(address: str, position: int) -> bytes:
    sql = f"SELECT payload FROM duramen.events WHERE position = {position}"
    if address.startswith("postgresql:"):
        with psycopg.connect(address) as connection:
            row = connection.execute(sql.encode()).fetchone()
            assert row is not None
            return bytes(row[0])
    with closing(apsw.Connection(address)) as sqlite:
        return bytes(next(iter(sqlite.execute(sql.replace("duramen.", "duramen_"))))[0])


@pytest.mark.promise("J8")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE duramen.bookmarks SET time = 5",
        "UPDATE duramen.bookmarks SET position = 5",
        "UPDATE duramen.bookmarks SET position = position - 1",
        "UPDATE duramen.bookmarks SET position = 900",
        "UPDATE duramen.bookmarks SET id = 'x'",
        "UPDATE duramen.bookmarks SET name = 'contexu'",
        "DELETE FROM duramen.bookmarks",
        "DELETE FROM duramen.events WHERE type = 'context.compacted'",
        "DELETE FROM duramen.events WHERE type = 'context.summary'",
    ],
)
def test_a_damaged_compaction_is_reported_or_made_anew_but_not_waited_for(address: str, damage: str) -> None:
    with duramen.open(address) as dm:
        dm.session("s").append_all(messages(30))
        before = dm.session("s").context()
    execute(address, damage)
    outcome: list[Any] = []

    def look() -> None:
        with duramen.open(address) as dm:
            try:
                outcome.append(dm.session("s").context())
            except Exception as error:  # noqa: BLE001 - looked at below
                outcome.append(error)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(20)
    assert outcome, "the context was never built"
    assert isinstance(outcome[0], (duramen.Context, DuramenError)), repr(outcome[0])
    if isinstance(outcome[0], duramen.Context):
        assert [said.content for said in outcome[0].messages] == [said.content for said in before.messages]
        assert outcome[0].memory == before.memory


# -- events that nobody's functions made

ODD: list[tuple[str, Any]] = [
    ("talk.message", None),
    ("talk.message", 5),
    ("talk.message", "text"),
    ("talk.message", []),
    ("talk.message", {}),
    *(("talk.message", {"role": "user", **more}) for more in ({}, {"content": 5}, {"content": None}, {"content": [3]})),
    *(("talk.message", {"role": role, "content": "x"}) for role in ("tool", 7, None, "System")),
    ("talk.message", {"role": "user", "content": [{"type": "text"}]}),
    ("talk.message", {"role": "user", "content": [{"type": "image"}]}),
    ("talk.message", {"role": "user", "content": [{"type": "image", "source": None}]}),
    ("talk.message", {"role": "user", "content": [{"type": "odd", "of": {(1, 2): {b"k"}}}]}),
    ("talk.message", {"role": "user", "content": [{"type": "tool_use", "id": "x"}]}),
    ("talk.message", {"role": "user", "content": "x", "name": 5}),
    ("talk.message", {"role": "user", "content": "x", "priority": "urgent"}),
    ("talk.message", {"role": "user", "content": "x", "priority": ["always"]}),
    ("talk.message", {"role": "user", "content": ""}),
    ("talk.message", {"role": "system", "content": " \n"}),
    *(("talk.called", data) for data in ({}, {"id": [1]}, {"id": "x"}, {"id": "x", "tool": 3, "arguments": {}})),
    ("talk.called", {"id": "", "tool": "", "arguments": {(1, 2): b"\xff"}}),
    *(("talk.returned", data) for data in ({}, {"id": "x"}, {"id": 5, "output": 1}, {"id": "no call", "output": {1}})),
    *(("talk.decided", data) for data in ({}, {"decision": "x"}, {"decision": 1, "reason": 2})),
    *(("talk.erred", data) for data in ({}, {"error": 5})),
    *(
        ("talk.resolved", data)
        for data in ({}, {"of": 1}, {"of": True, "resolution": "x"}, {"of": "1", "resolution": "x"})
    ),
    ("talk.resolved", {"of": 10**30, "resolution": "x"}),
    ("talk.unheard-of", {"role": "user", "content": "x"}),
    ("talk.", None),
]


@pytest.mark.parametrize("changes", [{}, {"max_items": 1, "keep_last": 1}, {"budget": 100}], ids=str)
def test_odd_events_cannot_break_a_context(dm: Duramen, changes: dict[str, Any]) -> None:
    session = dm.session("s")
    for kind, data in ODD:
        session.append(kind, data)
        session.say("user", f"Hello after {kind}")
        for context in (session.context(**changes), session.context(at=session.head().position, **changes)):
            context.json()
            context.anthropic()
            context.openai(memory_in="user")
            assert context.tokens <= context.budget
            assert context.messages[-1].content == f"Hello after {kind}"
    for position in range(1, session.head().position + 1):
        session.fetch(position)
        session.fetch(position, start=0, length=3)
    session.handoff()
    dm.session("new", continues="s").context()


def test_what_belongs_to_nothing_stands_alone(dm: Duramen) -> None:
    session = dm.session("s")
    said = session.say("user", "Hm.")
    call = session.tool_call("x", id="c")
    session.log_fix(call, "by hand")
    session.log_fix(said, "by itself")
    session.tool_result("c", "one")
    session.tool_result("c", "two")
    session.tool_result("never called", "three")
    erred = session.log_error(ValueError("bad"))
    session.log_fix(erred, "first")
    session.log_fix(erred.position, "second")
    text = session.context().json().decode()
    for expected in ("by hand", "by itself", '"content":"one"', "two", "three", "ValueError: bad", "first", "second"):
        assert expected in text
    session.append_all(messages(30))
    told = {place for one in session.context().trace for place in range(one.first, one.last + 1)}
    assert told >= set(range(1, 41))


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.say("robot", "x"),
        lambda s: s.say("tool", "x"),
        lambda s: s.say("user", ""),
        lambda s: s.say("user", " \n"),
        lambda s: s.say("user", []),
        lambda s: s.say("user", None),
        lambda s: s.say("user", ["text"]),
        lambda s: s.say("user", [{"type": "text"}]),
        lambda s: s.say("user", [{"type": "text", "text": ""}]),
        lambda s: s.say("user", [{"type": "image"}]),
        lambda s: s.say("assistant", [{"type": "tool_use", "id": "x", "name": "y", "input": {}}]),
        lambda s: s.say("user", "x", priority="urgent"),
        lambda s: s.say("user", "x", priority=3),
        lambda s: s.say("user", "x", name=""),
        lambda s: s.tool_call(""),
        lambda s: s.tool_call("x", id=""),
        lambda s: s.tool_call("x", id="i" * 1_000),
        lambda s: s.tool_result("", 1),
        lambda s: s.tool_result(None, 1),
        lambda s: s.tool_result(s.say("user", "x"), 1),
        lambda s: s.decide("x", reason=""),
        lambda s: s.decide("", reason="x"),
        lambda s: s.log_error(""),
        lambda s: s.log_fix("1", "x"),
        lambda s: s.log_fix(0, "x"),
        lambda s: s.log_fix(10**30, "x"),
        lambda s: s.log_fix(1, ""),
        lambda s: s.context(at=-1),
        lambda s: s.context(at=True),
        lambda s: s.context(at="1"),
        lambda s: s.context(budget=99),
        lambda s: s.context(budget=1e4),
        lambda s: s.context(keep_last=-1),
        lambda s: s.context(max_items=0),
        lambda s: s.context(threshold=0),
        lambda s: s.context(threshold=1.1),
        lambda s: s.context(threshold=float("nan")),
        lambda s: s.context(summaries="much"),
        lambda s: s.context(mask_to=5),
        lambda s: s.context(mask_above=0),
        lambda s: s.context(bugdet=1),
        lambda s: s.context(counter="guess"),
        lambda s: s.context().anthropic(memory_in="tool"),
        lambda s: s.context().openai(memory_in=""),
        lambda s: s.fetch_tool("gemini"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(act: Callable[[Any], Any]) -> None:
    with duramen.open("memory:") as dm, pytest.raises(InvalidInput) as refused:
        act(dm.session("s"))
    assert refused.value.hint


# -- a great deal


def test_five_thousand_messages_that_nobody_compacted(dm: Duramen) -> None:
    session = dm.session("s")
    for begin in range(0, 5_000, 1_000):
        session.append_all(messages(1_000, begin=begin))
    looked_at = session.context(at=5_000)
    assert looked_at.tokens <= 8_000
    assert looked_at.messages[-1].content == "Message 4999 about flight LH4999."
    assert min(one.first for one in looked_at.trace) == 1
    context = session.context()
    assert [said.content for said in context.messages] == [
        f"Message {n} about flight LH{n}." for n in range(4_995, 5_000)
    ]
    assert context.memory
    assert session.context(at=context.position) == context
    assert session.context(at=5_000) == looked_at


class Recording:
    """Counts the events that a store is asked for."""

    def __init__(self, dm: Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        store = dm._core._journal.store
        for name in ("read", "pick", "talk"):
            monkeypatch.setattr(store, name, self._counted(getattr(store, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*args: Any) -> Any:
            found = await call(*args)
            self.rows += len(found)
            return found

        return counted


@pytest.mark.promise("W10")
def test_what_lies_between_two_messages_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        session = dm.session("s")
        session.say("user", "before")
        for begin in range(0, 100_000, 10_000):
            session.append_all([Draft("note", number) for number in range(begin, begin + 10_000)])
        session.say("user", "after")
        recording = Recording(dm, monkeypatch)
        assert [said.content for said in session.context().messages] == ["before", "after"]
        assert recording.rows < 20


# -- settings at their ends


@pytest.mark.parametrize("counter", [WordCounter(), CharacterCounter(), None], ids=["words", "characters", "estimate"])
@pytest.mark.parametrize(
    "changes",
    [
        {"keep_last": 0},
        {"max_items": 1},
        {"max_items": 1, "keep_last": 0},
        {"budget": 100},
        {"budget": 100, "keep_last": 0, "max_items": 1, "mask_to": 20},
        {"threshold": 1e-9},
        {"summaries": 1e-9},
        {"summaries": 1.0, "budget": 300},
        {"mask_to": 10_000},
        {"mask_above": 1},
    ],
    ids=str,
)
def test_settings_at_their_ends(changes: dict[str, Any], counter: Any) -> None:
    with duramen.open("memory:") as dm:
        session = dm.session("s")
        session.say("system", "Be brief.")
        for number in range(14):
            take_turn(session, number)
            context = session.context(counter=counter, **changes)
            assert context.tokens <= context.budget
            assert counter is None or count_tokens(context, counter.count) <= context.tokens
            assert session.context(at=context.position, counter=counter, **changes) == context
            assert context.messages
            assert context.system == "Be brief."
            left_out = [one for one in context.trace if one.shown is Shown.LEFT_OUT]
            assert context.messages[-1].content == f"LH{number} costs {number * 99} euro." or left_out


def test_a_counter_that_changes_its_mind_still_gives_contexts(dm: Duramen) -> None:
    class Fickle:
        name = "fickle"
        factor = 1

        def count(self, text: str) -> int:
            self.factor = self.factor % 7 + 1
            return len(text) * self.factor // 4

    session = dm.session("s")
    fickle = Fickle()
    for number in range(12):
        take_turn(session, number)
        assert session.context(counter=fickle, budget=900).tokens <= 900
        assert session.context(counter=Fickle(), budget=900).tokens <= 900


def test_a_plain_function_counts_and_is_asked_once_for_each_text(dm: Duramen) -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text.split())

    session = dm.session("s")
    session.append_all(messages(10))
    assert session.context(counter=count).tokens == session.context(counter=WordCounter()).tokens  # type: ignore[arg-type]
    known = len(asked)
    session.context(counter=count)  # type: ignore[arg-type]
    assert len(asked) == known


# -- many at once


def test_messages_that_come_while_others_compact(dm: Duramen) -> None:
    session = dm.session("s")

    def speak(speaker: int) -> None:
        for number in range(40):
            session.say("user", f"{speaker}: message {number} about LH{number}.")

    def look(_: int) -> None:
        while not spoken.is_set():
            context = session.context(**SMALL_WINDOW)
            assert context.tokens <= SMALL_WINDOW["budget"]
            assert session.context(at=context.position, **SMALL_WINDOW) == context

    spoken = threading.Event()
    with ThreadPoolExecutor(6) as pool:
        looking = [pool.submit(look, number) for number in range(3)]
        speaking = [pool.submit(speak, number) for number in range(3)]
        for one in speaking:
            one.result()
        spoken.set()
        for one in looking:
            one.result()
    said = [event.data["content"] for event in session.events(types="talk.message")]
    assert len(said) == 120
    keys = [event.key for event in session.events(types="context.summary")]
    assert len(keys) == len(set(keys))
    told = {place for one in session.context(**SMALL_WINDOW).trace for place in range(one.first, one.last + 1)}
    assert {event.position for event in session.events(types="talk.message")} <= told
    assert dm.verify().ok


def test_a_model_is_asked_once_by_all_who_want_the_same_context() -> None:
    class Slow(RecordingModel):
        def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
            threading.Event().wait(0.05)
            return super().complete(prompt, system=system, max_tokens=max_tokens)

    with duramen.open("memory:") as dm:
        dm.session("s").append_all(messages(30))
        model = Slow()
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda _: dm.session("s").context(model=model), range(6)))
        assert len({context.json() for context in found}) == 1
        assert len(model.prompts) == 1


def test_many_sessions_on_one_event_loop(any_address: str) -> None:
    async def converse(dm: duramen.AsyncDuramen, name: str, model: RecordingModel) -> None:
        session = dm.session(name)
        for number in range(12):
            await session.say("user", f"{name}: question {number} about LH{number}")
            call = await session.tool_call("search", {"n": number})
            await session.tool_result(call, f"{name} {number}")
            context = await session.context(**SMALL_WINDOW, model=model)
            assert context.tokens <= SMALL_WINDOW["budget"]
            assert await session.context(at=context.position, **SMALL_WINDOW, model=model) == context
            others = [other for other in names if other != name and f"{other}:" in context.json().decode()]
            assert others == []
        assert await session.fetch("#1") == f"{name}: question 0 about LH0"

    names = [f"session-{number}" for number in range(12)]

    async def whole() -> None:
        model = RecordingModel()
        async with await duramen.aopen(any_address) as dm:
            await asyncio.gather(*(converse(dm, name, model) for name in names))
            assert len(model.prompts) >= len(names)
            assert (await dm.verify()).ok

    asyncio.run(whole())


def test_a_handle_that_may_only_read_builds_contexts(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        dm.session("s").append_all(messages(200))
    with duramen.open(tmp_path / "agent.db", readonly=True) as dm:
        context = dm.session("s").context(budget=800)
        assert context.tokens <= 800
        assert context.messages[-1].content == "Message 199 about flight LH199."
        assert dm.session("s").head().position == 200
