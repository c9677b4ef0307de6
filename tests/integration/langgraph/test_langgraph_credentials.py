"""Credentials in the values of LangGraph's checkpoints, writes and store are redacted."""

from __future__ import annotations

import dataclasses
import datetime as dt
import pathlib
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from programs.graphs import chat_graph, texts, thread_config, user_message
from pydantic import BaseModel

import duramen
from duramen.integrations.langgraph import DuramenSaver, DuramenStore
from duramen.journal.redaction import REDACTED

pytestmark = pytest.mark.promise("G11")
SECRET = "q7Zt" * 9
KEY = f"ghp_{SECRET}"


class Login(BaseModel):
    user: str
    password: str
    log: list[str]


@dataclasses.dataclass
class Note:
    text: str


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path


@pytest.fixture
def saver(folder: pathlib.Path) -> Iterator[DuramenSaver]:
    with duramen.open(folder / "agent.db") as dm:
        yield DuramenSaver(dm, types=[Login, Note])


def in_files(folder: pathlib.Path) -> bool:
    return any(SECRET.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def saved(saver: DuramenSaver, values: dict[str, Any]) -> dict[str, Any]:
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": dict.fromkeys(values, 1)}
    saver.put(thread_config("t", checkpoint_ns=""), checkpoint, {"source": "loop", "step": 1}, {})  # type: ignore[arg-type, typeddict-item]
    found = saver.get_tuple(thread_config("t"))
    assert found is not None
    return found.checkpoint["channel_values"]


def test_messages_of_a_graph_are_redacted(saver: DuramenSaver, folder: pathlib.Path) -> None:
    graph = chat_graph(saver)
    graph.invoke(user_message(f"my key is {KEY}"), thread_config("t"))
    graph.invoke(user_message("and now?"), thread_config("t"))
    found = texts(graph.get_state(thread_config("t")))
    assert found[0] == f"my key is {REDACTED}"
    assert len(found) == 4
    assert not in_files(folder)


@pytest.mark.parametrize(
    "value",
    [
        *(f"use {KEY}", KEY.encode(), [KEY] * 3, {"a": {"b": (KEY, {KEY})}}, {"headers": [["Cookie", SECRET]]}),
        *({"password": SECRET}, {KEY: 1}, Login(user="ada", password=SECRET, log=[KEY]), Note(KEY), [Note(KEY)] * 2),
        [HumanMessage(KEY), AIMessage("", tool_calls=[{"name": "f", "args": {"token": SECRET}, "id": "1"}])],
        [ToolMessage(content=[{"type": "text", "text": KEY}], tool_call_id="1", artifact={"api_key": SECRET})],
        {(KEY, 1): 1, (1, 2): KEY},
        {"long": "x" * 2000 + f" {KEY}", "password": SECRET, "list": [{"token": SECRET}]},
    ],
    ids=lambda value: repr(value)[:40],
)
def test_values_of_every_kind_are_redacted(saver: DuramenSaver, folder: pathlib.Path, value: Any) -> None:
    found = saved(saver, {"x": value})["x"]
    assert SECRET not in repr(found)
    assert type(found) is type(value)
    saver.put_writes(
        thread_config("t", checkpoint_ns="", checkpoint_id=empty_checkpoint()["id"]), [("x", value)], "task"
    )
    assert not in_files(folder)


@pytest.mark.parametrize(
    "value",
    [
        *("plain", b"\x00\xff", [1, 2.5, None, True], {"a": {"max_tokens": 5}}, {1: 2}, {3}, Decimal("1.5")),
        *(dt.datetime(2024, 5, 2, tzinfo=dt.UTC), dt.timedelta(1), uuid.UUID(int=7), Note("x"), Login),
        [HumanMessage("hi", id="1"), AIMessage("ho", response_metadata={"token_usage": {"total_tokens": 5}})],
        {"signature": "EqoBCkgIARABGAIiQ" + "aB3/" * 40, "id": "toolu_01" + "aB3" * 7},
    ],
    ids=lambda value: repr(value)[:40],
)
def test_other_values_stay(saver: DuramenSaver, value: Any) -> None:
    if value is Login:
        value = Login(user="ada", password="", log=[])
    assert saved(saver, {"x": value})["x"] == value


def test_a_channel_with_a_telling_name_is_redacted(saver: DuramenSaver, folder: pathlib.Path) -> None:
    assert saved(saver, {"password": SECRET, "tokens": [1, 2]}) == {"password": REDACTED, "tokens": [1, 2]}
    found = saver.get_tuple(thread_config("t"))
    assert found is not None
    saver.put_writes(found.config, [("password", SECRET), ("x", 1)], "task")
    again = saver.get_tuple(thread_config("t"))
    assert again is not None
    assert again.pending_writes == [("task", "password", REDACTED), ("task", "x", 1)]
    assert not in_files(folder)


def test_redaction_can_be_switched_off() -> None:
    with duramen.open("memory:", redact=False) as dm:
        assert saved(DuramenSaver(dm), {"password": KEY}) == {"password": KEY}


def test_the_store_finds_items_under_keys_with_credentials(folder: pathlib.Path) -> None:
    with duramen.open(folder / "agent.db") as dm:
        store = DuramenStore(dm)
        store.put(("users", KEY), KEY, {"password": SECRET, "n": 1})
        found = store.get(("users", KEY), KEY)
        assert found is not None
        assert found.value == {"password": REDACTED, "n": 1}
    assert not in_files(folder)
