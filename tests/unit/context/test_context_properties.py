"""Any conversation fits any window, and every store, handle and process builds the same context."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.conversations import CharacterCounter, RecordingModel, WordCounter, count_tokens, digest_of
from programs.paths import TESTS
from programs.provider_requests import check_anthropic, check_openai

from duramen import Context, Duramen, Session, Window
from duramen.api._async.duramen import AsyncDuramen
from duramen.api.settings import open_journal, open_store
from duramen.context.window.conversation import ROLES
from duramen.errors import InvalidInput
from duramen.ports import Store
from duramen.runtime import Blocking, drive
from duramen.testing.clock import FakeClock, FakeIds

SETTINGS: Any = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
COUNTERS: dict[str, Any] = {"characters": CharacterCounter(), "words": WordCounter(), "estimate": None}


# -- strategies

characters = st.characters(codec=None, exclude_categories=())
pieces = st.one_of(
    st.text(characters, min_size=1, max_size=12),
    st.sampled_from(
        [
            "flight LH9 costs 99 euro. ",
            "ok\n",
            "漢字",
            "\ud800",
            "\x00",
            "## Progress\n",
            "</record>",
            "error: 5\n",
            "x",
        ]
    ),
)
texts = st.builds(lambda piece, times: piece * times, pieces, st.sampled_from([1, 1, 1, 2, 20, 700]))
messages = texts.map(lambda text: text if text.strip() else f"{text}.")
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=40)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(characters, max_size=4), st.integers()), inner, max_size=3),
        st.sets(st.text(max_size=3), max_size=4),
        st.tuples(inner, inner),
    ),
    max_leaves=5,
)
images = st.sampled_from(
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 5_000}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
)
blocks = st.lists(st.one_of(messages.map(lambda text: {"type": "text", "text": text}), images), min_size=1, max_size=3)
priorities = st.sampled_from([None, None, None, "low", "high", "always"])
subjects = st.sampled_from([None, None, None, "ann", "bob"])
ids = st.sampled_from(["a", "b", "c", "d e", "é"])


class Step(NamedTuple):
    """One operation on a session, or the building of its context."""

    action: str
    arguments: tuple[Any, ...] = ()
    subject: str | None = None


def step(action: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(action), st.tuples(*arguments), subjects)


steps = st.one_of(
    step("say", st.sampled_from(ROLES[:2]), st.one_of(messages, messages, blocks), priorities),
    step("say", st.just("system"), st.one_of(pieces.map(lambda text: f"{text}."), blocks), priorities),
    step("call", ids, values, priorities),
    step("result", ids, st.one_of(texts, values, blocks), st.booleans()),
    step("decide", messages, messages, priorities),
    step("err", messages, priorities),
    step("resolve", st.integers(1, 30), messages),
    step("chat", st.integers(2, 12)),
    step("note", texts),
    step("progress", messages),
    step("fork", st.integers(0, 6)),
    step("build"),
    step("build"),
)
windows = st.fixed_dictionaries(
    {
        "budget": st.sampled_from([100, 160, 400, 1_000, 4_000, 8_000]),
        "threshold": st.sampled_from([0.001, 0.3, 0.8, 1.0]),
        "max_items": st.integers(1, 25),
        "keep_last": st.integers(0, 8),
        "mask_above": st.sampled_from([None, 1, 60]),
        "mask_to": st.integers(20, 120),
        "summaries": st.sampled_from([0.01, 0.25, 1.0]),
    }
)
conversations = st.lists(steps, min_size=1, max_size=30)


# -- running a conversation


@dataclass
class Result:
    """The result of a conversation: each context that was built, and the last session."""

    session: Session
    contexts: list[tuple[str, Context | str]] = field(default_factory=list)


class Conversation:
    """Runs one conversation in one store."""

    def __init__(self, dm: Duramen, window: dict[str, Any], counter: str, with_model: bool) -> None:
        self.dm = dm
        self.changes = {**window, "counter": COUNTERS[counter], "model": RecordingModel() if with_model else None}
        self.count = None if COUNTERS[counter] is None else COUNTERS[counter].count
        self.result = Result(dm.session("s"))
        self.begun = False

    def run(self, steps: list[Step]) -> Result:
        for one in [*steps, Step("build")]:
            getattr(self, f"_{one.action}")(one.subject, *one.arguments)
        return self.result

    @property
    def session(self) -> Session:
        return self.result.session

    def _say(self, subject: str | None, role: str, content: Any, priority: str | None) -> None:
        self.session.say(role, content, priority=priority, subject=subject)

    def _call(self, subject: str | None, id: str, arguments: Any, priority: str | None) -> None:
        self.session.tool_call("tool", arguments, id=id, priority=priority, subject=subject)

    def _result(self, subject: str | None, id: str, output: Any, error: bool) -> None:
        self.session.tool_result(id, output, error=error, subject=subject)

    def _decide(self, subject: str | None, decision: str, reason: str, priority: str | None) -> None:
        self.session.decide(decision, reason=reason, priority=priority, subject=subject)

    def _err(self, subject: str | None, error: str, priority: str | None) -> None:
        self.session.log_error(error, priority=priority, subject=subject)

    def _resolve(self, subject: str | None, of: int, how: str) -> None:
        self.session.log_fix(of, how, subject=subject)

    def _chat(self, subject: str | None, count: int) -> None:
        for number in range(count):
            self.session.say("user", f"Message {number} about flight LH{number}.", subject=subject)

    def _note(self, subject: str | None, text: str) -> None:
        self.session.append("note", text, subject=subject)

    def _progress(self, _: str | None, text: str) -> None:
        if self.begun:
            self.session.progress.complete(text, next_action="continue")
        else:
            self.session.progress.begin(text, next_action="continue")
        self.begun = True

    def _fork(self, _: str | None, back: int) -> None:
        last = self.session.head().position
        if last:
            self.result.session = self.session.fork(f"{self.session.id}+", at=max(1, last - back))
            self.begun = bool(self.session.progress.read().goal)

    def _build(self, _: str | None) -> None:
        try:
            context = self.session.context(**self.changes)
        except InvalidInput as refused:
            self.result.contexts.append((self.session.id, rejected_prompt(refused)))
            return
        self.result.contexts.append((self.session.id, context))
        self._check(context)

    def _check(self, context: Context) -> None:
        assert context.tokens <= self.changes["budget"]
        if self.count is not None:
            assert count_tokens(context, self.count) <= context.tokens
        assert self.session.context(at=context.position, **self.changes) == context
        calls = [message.call["id"] if message.call else None for message in context.messages]
        for index, message in enumerate(context.messages):
            assert message.result is None or calls[index - 1] == message.result["id"]
            assert message.call is None or context.messages[index + 1].result is not None
        traced = {position for one in context.trace for position in range(one.first, one.last + 1)}
        entries = [event for event in self.session.events() if event.type.startswith("talk.")]
        assert {event.position for event in entries} <= traced
        for memory_in in ("system", "user"):
            check_anthropic(context.anthropic(memory_in=memory_in))
            check_openai(context.openai(memory_in=memory_in))


def rejected_prompt(error: InvalidInput) -> str:
    """The message about a system prompt that is too long, which is the only error that may occur."""
    assert "the system prompt takes" in str(error)
    return str(error)


class Stores:
    """Two handles on each store. Every conversation has its own workspace in all of them."""

    def __init__(self, stores: dict[str, tuple[Store, Store]]) -> None:
        self._stores = stores

    def open(self, workspace: str, store: str, which: int = 0) -> Duramen:
        settings: Any = {"workspace": workspace, "clock": FakeClock(), "ids": FakeIds()}
        journal = open_journal(self._stores[store][which], settings)
        return Duramen(AsyncDuramen(journal, Blocking(), Window()))


@pytest.fixture(scope="module")
def sqlite_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("conversations") / "agent.db")


@pytest.fixture(scope="module")
def stores(sqlite_path: str, module_url: str) -> Iterator[Stores]:
    with ExitStack() as stack:

        def opened(address: str) -> Store:
            store = open_store(address, {}, Blocking())
            stack.callback(lambda: drive(store.close()))
            return store

        memory = opened("memory:")
        stores = {
            "memory": (memory, memory),
            "sqlite": (opened(sqlite_path), opened(sqlite_path)),
            "postgres": (opened(module_url), opened(module_url)),
        }
        yield Stores(stores)


conversation_arguments = {
    "steps": conversations,
    "window": windows,
    "counter": st.sampled_from(sorted(COUNTERS)),
    "with_model": st.booleans(),
}


@pytest.mark.promise("W1", "W2", "W4", "W9")
def test_any_conversation_fits_any_window(stores: Stores, everything: bool) -> None:
    @settings(max_examples=60 if everything else 20, **SETTINGS)
    @given(**conversation_arguments)
    def run(steps: list[Step], window: dict[str, Any], counter: str, with_model: bool) -> None:
        Conversation(stores.open(uuid.uuid4().hex, "memory"), window, counter, with_model).run(steps)

    run()


@pytest.mark.promise("W1", "R5")
def test_every_store_handle_and_process_builds_the_same_context(
    stores: Stores, sqlite_path: str, everything: bool
) -> None:
    wanted: list[list[Any]] = []
    expected: list[str] = []

    @settings(max_examples=12 if everything else 6, **SETTINGS)
    @given(**conversation_arguments)
    def compare(steps: list[Step], window: dict[str, Any], counter: str, with_model: bool) -> None:
        workspace = uuid.uuid4().hex
        built = {
            store: Conversation(stores.open(workspace, store), window, counter, with_model).run(steps).contexts
            for store in ("memory", "sqlite", "postgres")
        }
        assert built["memory"] == built["sqlite"] == built["postgres"]
        changes = {**window, "counter": COUNTERS[counter]}
        for store in built:
            again = stores.open(workspace, store, 1)
            for session, context in built[store]:
                if isinstance(context, Context):
                    assert again.session(session).context(at=context.position, **changes) == context
        contexts = [one for one in built["sqlite"] if isinstance(one[1], Context)]
        if counter == "estimate" and contexts:
            (session, context) = contexts[-1]
            assert isinstance(context, Context)
            wanted.append([workspace, session, context.position, window])
            expected.append(digest_of(context))

    compare()
    assert expected
    request = json.dumps({"address": sqlite_path, "wanted": wanted})
    for seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-m", "programs.conversations"],
            input=request,
            capture_output=True,
            text=True,
            cwd=TESTS,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert other.returncode == 0, other.stderr
        assert json.loads(other.stdout) == expected


@pytest.mark.promise("W1", "X22")
@settings(max_examples=12, **SETTINGS)
@given(**conversation_arguments, data=st.data())
def test_the_context_of_every_position_can_be_rebuilt_and_forked(
    stores: Stores, steps: list[Step], window: dict[str, Any], counter: str, with_model: bool, data: st.DataObject
) -> None:
    dm = stores.open(uuid.uuid4().hex, "memory")
    conversation = Conversation(dm, window, counter, with_model)
    result = conversation.run(steps)
    last = result.session.head().position
    for number in range(6):
        position = data.draw(st.integers(0, last + 1))
        try:
            context = result.session.context(at=position, **conversation.changes)
        except InvalidInput as refused:
            rejected_prompt(refused)
            continue
        assert context.tokens <= window["budget"]
        assert context.position == min(position, last)
        for session, seen in result.contexts:
            if isinstance(seen, Context) and session == result.session.id and seen.position == position:
                assert seen == context
        if 1 <= position <= last:
            fork = result.session.fork(f"fork {number}", at=position)
            assert fork.context(at=position, **conversation.changes).json() == context.json()
    assert result.session.head().position == last
