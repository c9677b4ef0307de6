"""Whatever is said, in whatever order and into whatever window: the budget holds, and every store, handle and process
builds the same bytes."""

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

QUICK: Any = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
COUNTERS: dict[str, Any] = {"characters": CharacterCounter(), "words": WordCounter(), "estimate": None}


# -- what can be said

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
sayings = texts.map(lambda text: text if text.strip() else f"{text}.")
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
blocks = st.lists(st.one_of(sayings.map(lambda text: {"type": "text", "text": text}), images), min_size=1, max_size=3)
priorities = st.sampled_from([None, None, None, "low", "high", "always"])
subjects = st.sampled_from([None, None, None, "ann", "bob"])
ids = st.sampled_from(["a", "b", "c", "d e", "é"])


class Step(NamedTuple):
    """Something that happens in a session, or a look at its context."""

    act: str
    given: tuple[Any, ...] = ()
    subject: str | None = None


def step(act: str, *given: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(act), st.tuples(*given), subjects)


steps = st.one_of(
    step("say", st.sampled_from(ROLES[:2]), st.one_of(sayings, sayings, blocks), priorities),
    step("say", st.just("system"), st.one_of(pieces.map(lambda text: f"{text}."), blocks), priorities),
    step("call", ids, values, priorities),
    step("result", ids, st.one_of(texts, values, blocks), st.booleans()),
    step("decide", sayings, sayings, priorities),
    step("err", sayings, priorities),
    step("resolve", st.integers(1, 30), sayings),
    step("chat", st.integers(2, 12)),
    step("note", texts),
    step("progress", sayings),
    step("fork", st.integers(0, 6)),
    step("look"),
    step("look"),
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


# -- playing it


@dataclass
class Played:
    """What came of a conversation: each context that was seen, and the session that it ended in."""

    session: Session
    seen: list[tuple[str, Context | str]] = field(default_factory=list)


class Play:
    """One conversation in one store."""

    def __init__(self, dm: Duramen, window: dict[str, Any], counter: str, modelled: bool) -> None:
        self.dm = dm
        self.changes = {**window, "counter": COUNTERS[counter], "model": RecordingModel() if modelled else None}
        self.count = None if COUNTERS[counter] is None else COUNTERS[counter].count
        self.played = Played(dm.session("s"))
        self.begun = False

    def run(self, steps: list[Step]) -> Played:
        for one in [*steps, Step("look")]:
            getattr(self, f"_{one.act}")(one.subject, *one.given)
        return self.played

    @property
    def session(self) -> Session:
        return self.played.session

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
            self.session.progress.complete(text, next_action="go on")
        else:
            self.session.progress.begin(text, next_action="go on")
        self.begun = True

    def _fork(self, _: str | None, back: int) -> None:
        last = self.session.head().position
        if last:
            self.played.session = self.session.fork(f"{self.session.id}+", at=max(1, last - back))
            self.begun = bool(self.session.progress.read().goal)

    def _look(self, _: str | None) -> None:
        try:
            context = self.session.context(**self.changes)
        except InvalidInput as refused:
            self.played.seen.append((self.session.id, prompt_refused(refused)))
            return
        self.played.seen.append((self.session.id, context))
        self._check(context)

    def _check(self, context: Context) -> None:
        assert context.tokens <= self.changes["budget"]
        if self.count is not None:
            assert count_tokens(context, self.count) <= context.tokens
        assert self.session.context(at=context.position, **self.changes) == context
        calls = [said.call["id"] if said.call else None for said in context.messages]
        for index, said in enumerate(context.messages):
            assert said.result is None or calls[index - 1] == said.result["id"]
            assert said.call is None or context.messages[index + 1].result is not None
        told = {place for one in context.trace for place in range(one.first, one.last + 1)}
        spoken = [event for event in self.session.events() if event.type.startswith("talk.")]
        assert {event.position for event in spoken} <= told
        for memory_in in ("system", "user"):
            check_anthropic(context.anthropic(memory_in=memory_in))
            check_openai(context.openai(memory_in=memory_in))


def prompt_refused(error: InvalidInput) -> str:
    """What is said about a system prompt that is longer than the window: the only thing that may be refused."""
    assert "the system prompt takes" in str(error)
    return str(error)


class Places:
    """Two handles on each store: every conversation gets a workspace of its own in all of them."""

    def __init__(self, stores: dict[str, tuple[Store, Store]]) -> None:
        self._stores = stores

    def open(self, workspace: str, store: str, which: int = 0) -> Duramen:
        chosen: Any = {"workspace": workspace, "clock": FakeClock(), "ids": FakeIds()}
        journal = open_journal(self._stores[store][which], chosen)
        return Duramen(AsyncDuramen(journal, Blocking(), Window()))


@pytest.fixture(scope="module")
def sqlite_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("conversations") / "agent.db")


@pytest.fixture(scope="module")
def places(sqlite_path: str, module_url: str) -> Iterator[Places]:
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
        yield Places(stores)


plays = {
    "steps": conversations,
    "window": windows,
    "counter": st.sampled_from(sorted(COUNTERS)),
    "modelled": st.booleans(),
}


@pytest.mark.promise("W1", "W2", "W4", "W9")
@settings(max_examples=60, **QUICK)
@given(**plays)
def test_any_conversation_fits_any_window(
    places: Places, steps: list[Step], window: dict[str, Any], counter: str, modelled: bool
) -> None:
    Play(places.open(uuid.uuid4().hex, "memory"), window, counter, modelled).run(steps)


@pytest.mark.promise("W1", "R5")
def test_every_store_handle_and_process_builds_the_same(places: Places, sqlite_path: str) -> None:
    wanted: list[list[Any]] = []
    expected: list[str] = []

    @settings(max_examples=12, **QUICK)
    @given(**plays)
    def play(steps: list[Step], window: dict[str, Any], counter: str, modelled: bool) -> None:
        workspace = uuid.uuid4().hex
        found = {
            store: Play(places.open(workspace, store), window, counter, modelled).run(steps).seen
            for store in ("memory", "sqlite", "postgres")
        }
        assert found["memory"] == found["sqlite"] == found["postgres"]
        changes = {**window, "counter": COUNTERS[counter]}
        for store in found:
            again = places.open(workspace, store, 1)
            for session, context in found[store]:
                if isinstance(context, Context):
                    assert again.session(session).context(at=context.position, **changes) == context
        seen = [one for one in found["sqlite"] if isinstance(one[1], Context)]
        if counter == "estimate" and seen:
            (session, context) = seen[-1]
            assert isinstance(context, Context)
            wanted.append([workspace, session, context.position, window])
            expected.append(digest_of(context))

    play()
    assert expected
    order = json.dumps({"address": sqlite_path, "wanted": wanted})
    for seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-m", "programs.conversations"],
            input=order,
            capture_output=True,
            text=True,
            cwd=TESTS,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert other.returncode == 0, other.stderr
        assert json.loads(other.stdout) == expected


@pytest.mark.promise("W1", "X22")
@settings(max_examples=12, **QUICK)
@given(**plays, data=st.data())
def test_every_position_can_be_seen_again_and_forked(
    places: Places, steps: list[Step], window: dict[str, Any], counter: str, modelled: bool, data: st.DataObject
) -> None:
    dm = places.open(uuid.uuid4().hex, "memory")
    play = Play(dm, window, counter, modelled)
    played = play.run(steps)
    last = played.session.head().position
    for number in range(6):
        position = data.draw(st.integers(0, last + 1))
        try:
            context = played.session.context(at=position, **play.changes)
        except InvalidInput as refused:
            prompt_refused(refused)
            continue
        assert context.tokens <= window["budget"]
        assert context.position == min(position, last)
        for session, seen in played.seen:
            if isinstance(seen, Context) and session == played.session.id and seen.position == position:
                assert seen == context
        if 1 <= position <= last:
            fork = played.session.fork(f"twin {number}", at=position)
            assert fork.context(at=position, **play.changes).json() == context.json()
    assert played.session.head().position == last
