"""Bad input to memory is refused with a hint before anything is stored. Unusual input is stored and found."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from programs.memory_handles import EMBEDDER

import duramen
from duramen.errors import DuramenError, InvalidInput, UnknownMemory

NAIVE = dt.datetime(2025, 1, 1)
THEN = NAIVE.replace(tzinfo=dt.UTC)


class NoOffset(dt.tzinfo):
    """A time zone without a UTC offset."""

    def utcoffset(self, _: dt.datetime | None) -> None:
        return None


NO_OFFSET = NAIVE.replace(tzinfo=NoOffset())


@duramen.register(name="test_memory_input.Tag")
@dataclass
class Tag:
    name: str = "x"


@pytest.fixture
def dm() -> Iterator[duramen.Duramen]:
    with duramen.open("memory:", embedder=EMBEDDER) as opened:
        yield opened


def assert_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput) as error:
        call()
    assert error.value.hint


NAMES = ["", 5, "a\0b", "\ud800", "x" * 513]
BAD_DETAILS: dict[str, list[Any]] = {
    "content": ["", "  ", None, 5, b"x", "lone \ud800"],
    "kind": [*NAMES, None],
    "subject": NAMES,
    "actor": NAMES,
    "cause": ["x", -1, True],
    "key": NAMES,
    "title": NAMES,
    "speaker": NAMES,
    "metadata": [
        5,
        [1],
        {5: 1},
        {"a": {"b": 2**80}},
        {"a": "\ud800"},
        {"a": (1, 2)},
        {"a": Tag()},
        {"a": float("nan")},
    ],
    "importance": [-0.1, 1.1, "x", True, None, float("nan")],
    "confidence": [2, None],
    "valid_from": [5, NAIVE, NO_OFFSET, "2025-01-01"],
    "valid_to": [5, NAIVE, NO_OFFSET],
    "ttl": [0, -1, True, "x", 1e-9, float("inf"), float("nan"), dt.timedelta(0), dt.timedelta(days=99_999)],
    "scope": ["x", 5, [], "subject"],
    "nonsense": [1],
}


@pytest.mark.promise("S3")
@pytest.mark.parametrize("name", BAD_DETAILS)
def test_remember_refuses_bad_details(dm: duramen.Duramen, name: str) -> None:
    for value in BAD_DETAILS[name]:
        if name == "content":
            assert_refused(lambda value=value: dm.memory.remember(value))  # type: ignore[misc]
            assert_refused(lambda value=value: dm.session("s").remember(value))  # type: ignore[misc]
        else:
            assert_refused(lambda value=value: dm.memory.remember("x", **{name: value}))  # type: ignore[misc]
    assert_refused(lambda: dm.memory.remember("x", valid_from=THEN, valid_to=THEN))
    assert list(dm.memory.list(everyone=True)) == []
    assert [row.session for row in dm.sessions()] == []


BAD_OPTIONS: dict[str, list[Any]] = {
    "limit": [0, -1, "x", True, 1.5, None],
    "kinds": [5, [5], "", ["a\0"], b"x"],
    "metadata": [5, "x", [1]],
    "since": [5, NAIVE, NO_OFFSET],
    "until": ["x", NAIVE],
    "threshold": ["x", 2, -1, True, float("nan")],
    "diversity": [-1, 1.1],
    "subject": NAMES,
    "session": NAMES,
    "everyone": ["x", 1, None],
    "nonsense": [1],
}


@pytest.mark.promise("S3")
@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_recall_and_list_refuse_bad_options(dm: duramen.Duramen, name: str) -> None:
    dm.memory.remember("hello world")
    for value in BAD_OPTIONS[name]:
        options: Any = {name: value}
        assert_refused(lambda options=options: dm.memory.recall("hello", **options))  # type: ignore[misc]
        assert_refused(lambda options=options: dm.memory.as_of(THEN).recall("hello", **options))  # type: ignore[misc]
        if name in ("limit", "kinds", "subject", "session", "everyone", "nonsense"):
            assert_refused(lambda options=options: list(dm.memory.list(**options)))  # type: ignore[misc]
        if name in ("kinds", "subject", "session", "everyone", "nonsense"):
            assert_refused(lambda options=options: dm.memory.forget_before(THEN, **options))  # type: ignore[misc]


@pytest.mark.promise("S3")
def test_bad_queries_ids_times_and_budgets_are_refused(dm: duramen.Duramen) -> None:
    value: Any
    for value in ("", "  ", None, 5, b"x"):
        assert_refused(lambda value=value: dm.memory.recall(value))  # type: ignore[misc]
    for value in (None, 5, NAIVE, NO_OFFSET, "yesterday"):
        assert_refused(lambda value=value: dm.memory.as_of(value))  # type: ignore[misc]
        assert_refused(lambda value=value: dm.memory.forget_before(value))  # type: ignore[misc]
    for method in (dm.memory.get, dm.memory.history, dm.memory.forget):
        for value in NAMES:
            assert_refused(lambda method=method, value=value: method(value))  # type: ignore[misc]
    for method in (dm.memory.get, dm.memory.forget):
        with pytest.raises(UnknownMemory):
            method("nope")
    assert dm.memory.history("nope") == []
    for wrong in ({"budget": 49}, {"budget": "x"}, {"budget": True}, {"recent": -1}, {"limit": 0}, {"subject": 5}):
        value = wrong
        assert_refused(lambda value=value: dm.session("s").recall("x", **value))  # type: ignore[misc]


@pytest.mark.parametrize(
    "text",
    [
        "日本語のテキスト",
        "😀 family 👨‍👩‍👧",
        "NUL \0 inside",
        "r\u0301esume\u0301",
        "?!…",
        "x" * 1_000_000,
        "\u202eevil",
    ],
)
def test_any_text_is_stored_and_found(any_address: str, text: str) -> None:
    with duramen.open(any_address, embedder=EMBEDDER) as dm:
        made = dm.memory.remember(text, fresh=True)
        assert dm.memory.get(made.id).content == text
        for query in ("???", "\ud800", "\0", "x" * 10_000, text[:200]):
            assert [hit.memory.content for hit in dm.memory.recall(query)] == [text]
        assert "</recalled-" in dm.session("s").recall(text[:200]).text
        assert dm.verify().ok


BAD_EVENTS: list[Any] = [
    {"content": "x"},
    {"content": "x", "kind": 5},
    {"content": "", "kind": "fact"},
    {"content": "x", "kind": "fact", "importance": "high"},
    {"content": "x", "kind": "fact", "valid_from": 2**70},
    {"content": "x", "kind": "fact", "valid_from": "now"},
    {"content": "x", "kind": "fact", "ttl": -5},
    {"content": "x", "kind": "fact", "metadata": 5},
    {"content": "x", "kind": "fact", "key": "a\0"},
    {"content": "x", "kind": "fact", "nonsense": 1},
    ["x"],
]


def test_a_malformed_memory_event_is_ignored(any_address: str) -> None:
    with duramen.open(any_address, embedder=EMBEDDER) as dm:
        dm.memory.remember("hello")
        session = dm.session("s")
        for data in BAD_EVENTS:
            event = session.append("memory.added", data)
            assert "That did not work" in session.use_memory_tool("forget", {"ref": f"s#{event.position}"})
        assert [memory.content for memory in dm.memory.list(everyone=True)] == ["hello"]
        assert [hit.memory.content for hit in dm.memory.recall("hello", everyone=True)] == ["hello"]
        assert dm.verify().ok


BAD_CALLS: list[tuple[Any, Any]] = [
    ("recall", {}), ("recall", None), ("recall", []), ("recall", {"query": 5}), ("recall", {"query": " "}),
    ("recall", {"query": "x", "limit": "5"}), ("recall", {"query": "x", "limit": 0}), ("nope", {}), ([], {}),
    ("remember", {}), ("remember", {"content": ""}), ("remember", {"content": "x", "kind": 5}),
    ("remember", {"content": "x", "importance": "high"}), ("remember", {"content": "x", "key": 5}),
    ("forget", {}), ("forget", {"ref": 5}), ("forget", {"ref": "x"}), ("forget", {"ref": "#"}), (None, {}),
    ("forget", {"ref": "s#²"}), ("forget", {"ref": "s#" + "9" * 30}), ("forget", {"ref": "s#1\0"}), ("fetch", {}),
    ("fetch", None), ("fetch", {"reference": "x"}),
]  # fmt: skip


@pytest.mark.promise("R4")
@pytest.mark.parametrize(("name", "arguments"), BAD_CALLS, ids=repr)
def test_a_bad_tool_call_returns_an_error_to_the_model(dm: duramen.Duramen, name: Any, arguments: Any) -> None:
    answer = dm.session("s").use_memory_tool(name, arguments)
    assert answer.startswith("That did not work: ")
    assert "Hint: " in answer
    assert list(dm.memory.list(everyone=True)) == []


@pytest.mark.promise("G3")
@pytest.mark.parametrize("key", [None, bytes(32)], ids=["plain", "sealed"])
def test_subject_scope_needs_a_subject(key: bytes | None) -> None:
    with duramen.open("memory:", embedder=EMBEDDER, key=key) as dm:
        assert_refused(lambda: dm.memory.remember("x", scope="subject"))
        with pytest.raises(DuramenError):
            dm.session("s").append("memory.added", {"content": "x", "kind": "fact", "scope": "subject"})
        assert list(dm.memory.list(everyone=True)) == []
