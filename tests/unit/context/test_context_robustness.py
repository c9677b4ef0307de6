"""Contexts with erased subjects, damaged stores, malformed events, backlogs, extreme settings and concurrency."""

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
from programs.child_processes import DEADLINE
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


def files_with(folder: Path, text: str) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_file() and text.encode() in path.read_bytes()]


# -- subjects


def talk_about_ann(session: Session, number: int) -> None:
    """Text about the subject `ann` in every kind of entry."""
    text = f"{SECRET} lives at {number} Main Street"
    session.say("user", text, subject="ann")
    session.say("assistant", f"Noted, number {number}.")
    session.tool_result(session.tool_call("find", {"n": number}), text, subject="ann")
    session.tool_result(session.tool_call("find", {"who": text}, subject="ann"), f"found {number}")
    session.log_fix(session.log_error(f"error {number}"), text, subject="ann")
    session.log_fix(session.log_error(text, subject="ann"), f"fixed {number}")
    session.decide(text, reason=text, subject="ann")


@pytest.mark.promise("G3")
@pytest.mark.parametrize("model", [None, RecordingModel()], ids=["extract", "model"])
def test_an_erased_subject_is_removed_from_contexts_and_summaries(dm: Duramen, model: Any) -> None:
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
    for _ in range(3):  # later contexts do not contain it either
        session.append_all(messages(30))
        context = session.context(budget=2_000, model=model)
        assert SECRET not in context.json().decode()
        assert context.tokens <= 2_000
    with pytest.raises(InvalidInput, match="erased"):
        session.fetch("#1")
    assert dm.verify().ok
    assert "_made" not in _attributes_with_secret(dm)


def _attributes_with_secret(dm: Duramen) -> str:
    """The attributes of the context builder that contain the secret."""
    builder = dm._core._services.context_builder
    return " ".join(name for name, value in vars(builder).items() if SECRET in repr(value)[: 10**7])


@pytest.mark.promise("G3")
def test_erasing_a_subject_leaves_no_bytes_in_the_file(tmp_path: Path) -> None:
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
def test_an_encrypted_conversation_is_not_readable_in_the_file(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db", key=KEY) as dm:
        for number in range(12):
            talk_about_ann(dm.session("s"), number)
            context = dm.session("s").context(**SMALL_WINDOW)
    assert SECRET in context.memory
    assert files_with(tmp_path, SECRET) == []
    assert files_with(tmp_path, "Main Street") == []
    with duramen.open(tmp_path / "agent.db", key=KEY) as dm:
        assert dm.session("s").context(**SMALL_WINDOW) == context


def test_a_backlog_of_erased_events_does_not_hide_newer_messages(dm: Duramen) -> None:
    session = dm.session("s")
    for begin in range(0, 2_400, 600):
        session.append_all(messages(600, begin=begin), subject="ann")
    dm.erase("ann")
    session.say("user", "Hello, are you there?")
    assert [message.content for message in session.context().messages] == ["Hello, are you there?"]
    assert [message.content for message in session.context(at=session.head().position).messages] == [
        "Hello, are you there?"
    ]


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
def test_a_changed_event_is_detected_before_a_model_sees_it(address: str, kind: str, between: int) -> None:
    with duramen.open(address) as dm:
        session = dm.session("s")
        session.append_all(messages(30, "Message {} about LH{} is original."))
        before = session.context()
        session.append_all([Draft("note", number) for number in range(between)])
        session.say("user", "Well?")
        position = max(event.position for event in session.events(types=kind) if event.position <= before.position)
    with duramen.open(address) as dm:
        payload = _payload(address, position)
        changed = payload.replace(b"original", b"tampered") if b"original" in payload else bytes([*payload[:-1], 0x2A])
        assert changed != payload
        execute(address, "UPDATE duramen.events SET payload = ? WHERE position = ?", changed, position)
    with duramen.open(address) as dm, pytest.raises(JournalDamaged) as raised:
        dm.session("s").context()
    assert raised.value.position == position


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
def test_a_damaged_compaction_is_reported_or_repeated_and_never_blocks(address: str, damage: str) -> None:
    with duramen.open(address) as dm:
        dm.session("s").append_all(messages(30))
        before = dm.session("s").context()
    execute(address, damage)
    outcome: list[Any] = []

    def build() -> None:
        with duramen.open(address) as dm:
            try:
                outcome.append(dm.session("s").context())
            except Exception as error:  # noqa: BLE001 - checked below
                outcome.append(error)

    thread = threading.Thread(target=build, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert outcome, "the context was never built"
    assert isinstance(outcome[0], (duramen.Context, DuramenError)), repr(outcome[0])
    if isinstance(outcome[0], duramen.Context):
        assert [message.content for message in outcome[0].messages] == [message.content for message in before.messages]
        assert outcome[0].memory == before.memory


# -- malformed events

MALFORMED: list[tuple[str, Any]] = [
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
    ("talk.unknown", {"role": "user", "content": "x"}),
    ("talk.", None),
]


@pytest.mark.parametrize("changes", [{}, {"max_items": 1, "keep_last": 1}, {"budget": 100}], ids=str)
def test_malformed_events_do_not_break_a_context(dm: Duramen, changes: dict[str, Any]) -> None:
    session = dm.session("s")
    for kind, data in MALFORMED:
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


def test_unmatched_fixes_and_results_are_shown_on_their_own(dm: Duramen) -> None:
    session = dm.session("s")
    message = session.say("user", "Hm.")
    call = session.tool_call("x", id="c")
    session.log_fix(call, "by hand")
    session.log_fix(message, "by itself")
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
    traced = {position for one in session.context().trace for position in range(one.first, one.last + 1)}
    assert traced >= set(range(1, 41))


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
def test_invalid_arguments_are_rejected_with_a_hint(act: Callable[[Any], Any]) -> None:
    with duramen.open("memory:") as dm, pytest.raises(InvalidInput) as refused:
        act(dm.session("s"))
    assert refused.value.hint


# -- large sessions


def test_thousands_of_uncompacted_messages_fit_the_budget(dm: Duramen, everything: bool) -> None:
    session = dm.session("s")
    count = 5_000 if everything else 2_000
    for begin in range(0, count, 1_000):
        session.append_all(messages(1_000, begin=begin))
    past = session.context(at=count)
    assert past.tokens <= 8_000
    assert past.messages[-1].content == f"Message {count - 1} about flight LH{count - 1}."
    assert min(one.first for one in past.trace) == 1
    context = session.context()
    assert [message.content for message in context.messages] == [
        f"Message {n} about flight LH{n}." for n in range(count - 5, count)
    ]
    assert context.memory
    assert session.context(at=context.position) == context
    assert session.context(at=count) == past


class ReadCounter:
    """Counts the events that are read from a store."""

    def __init__(self, dm: Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        store = dm._core._journal.store
        for name in ("read", "pick", "talk"):
            monkeypatch.setattr(store, name, self._counted(getattr(store, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*args: Any) -> Any:
            rows = await call(*args)
            self.rows += len(rows)
            return rows

        return counted


@pytest.mark.promise("W10")
def test_unrelated_events_between_messages_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        session = dm.session("s")
        session.say("user", "before")
        for begin in range(0, 100_000 if everything else 20_000, 10_000):
            session.append_all([Draft("note", number) for number in range(begin, begin + 10_000)])
        session.say("user", "after")
        reads = ReadCounter(dm, monkeypatch)
        assert [message.content for message in session.context().messages] == ["before", "after"]
        assert reads.rows < 20


# -- extreme settings


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
def test_extreme_settings_keep_the_budget(changes: dict[str, Any], counter: Any) -> None:
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


def test_an_inconsistent_counter_still_gives_contexts_within_the_budget(dm: Duramen) -> None:
    class Inconsistent:
        name = "inconsistent"
        factor = 1

        def count(self, text: str) -> int:
            self.factor = self.factor % 7 + 1
            return len(text) * self.factor // 4

    session = dm.session("s")
    inconsistent = Inconsistent()
    for number in range(12):
        take_turn(session, number)
        assert session.context(counter=inconsistent, budget=900).tokens <= 900
        assert session.context(counter=Inconsistent(), budget=900).tokens <= 900


def test_a_function_can_be_the_counter_and_counts_each_text_once(dm: Duramen) -> None:
    counted_texts: list[str] = []

    def count(text: str) -> int:
        counted_texts.append(text)
        return len(text.split())

    session = dm.session("s")
    session.append_all(messages(10))
    assert session.context(counter=count).tokens == session.context(counter=WordCounter()).tokens  # type: ignore[arg-type]
    known = len(counted_texts)
    session.context(counter=count)  # type: ignore[arg-type]
    assert len(counted_texts) == known


# -- concurrency


def test_messages_can_arrive_during_compactions(dm: Duramen) -> None:
    session = dm.session("s")

    def write(writer: int) -> None:
        for number in range(40):
            session.say("user", f"{writer}: message {number} about LH{number}.")

    def build(_: int) -> None:
        while not written.is_set():
            context = session.context(**SMALL_WINDOW)
            assert context.tokens <= SMALL_WINDOW["budget"]
            assert session.context(at=context.position, **SMALL_WINDOW) == context

    written = threading.Event()
    with ThreadPoolExecutor(6) as pool:
        builders = [pool.submit(build, number) for number in range(3)]
        writers = [pool.submit(write, number) for number in range(3)]
        for one in writers:
            one.result()
        written.set()
        for one in builders:
            one.result()
    assert len(list(session.events(types="talk.message"))) == 120
    keys = [event.key for event in session.events(types="context.summary")]
    assert len(keys) == len(set(keys))
    trace = session.context(**SMALL_WINDOW).trace
    traced = {position for one in trace for position in range(one.first, one.last + 1)}
    assert {event.position for event in session.events(types="talk.message")} <= traced
    assert dm.verify().ok


def test_concurrent_requests_for_one_context_call_the_model_once() -> None:
    class Slow(RecordingModel):
        def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
            threading.Event().wait(0.05)
            return super().complete(prompt, system=system, max_tokens=max_tokens)

    with duramen.open("memory:") as dm:
        dm.session("s").append_all(messages(30))
        model = Slow()
        with ThreadPoolExecutor(6) as pool:
            contexts = list(pool.map(lambda _: dm.session("s").context(model=model), range(6)))
        assert len({context.json() for context in contexts}) == 1
        assert len(model.prompts) == 1


def test_many_sessions_can_share_an_event_loop(any_address: str) -> None:
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

    async def main() -> None:
        model = RecordingModel()
        async with await duramen.aopen(any_address) as dm:
            await asyncio.gather(*(converse(dm, name, model) for name in names))
            assert len(model.prompts) >= len(names)
            assert (await dm.verify()).ok

    asyncio.run(main())


def test_a_readonly_handle_builds_contexts(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        dm.session("s").append_all(messages(200))
    with duramen.open(tmp_path / "agent.db", readonly=True) as dm:
        context = dm.session("s").context(budget=800)
        assert context.tokens <= 800
        assert context.messages[-1].content == "Message 199 about flight LH199."
        assert dm.session("s").head().position == 200
