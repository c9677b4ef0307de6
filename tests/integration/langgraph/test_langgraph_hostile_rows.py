"""Rows that an attacker wrote: loading a checkpoint imports and calls nothing but listed types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

import duramen
from duramen.errors import InvalidInput, UnknownType
from duramen.integrations.langgraph import DuramenSaver

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@dataclass
class Trip:
    city: str


class Seat(BaseModel):
    row: int


class Fare(NamedTuple):
    euro: int


@pytest.fixture
def dm(tmp_path: Path) -> Iterator[duramen.Duramen]:
    with duramen.open(tmp_path / "agent.db") as handle:
        yield handle


def save(saver: DuramenSaver, value: object) -> None:
    checkpoint = empty_checkpoint() | {"channel_values": {"state": value}, "channel_versions": {"state": 1}}
    saver.put(CONFIG, checkpoint, {}, {"state": 1})  # type: ignore[arg-type]


class RawSerializer(JsonPlusSerializer):
    """Stores bytes as if they were a value, as an attacker does who writes rows."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return ("msgpack", bytes(obj)) if isinstance(obj, bytearray) else super().dumps_typed(obj)


ARGUMENTS: dict[int, Callable[[str], Any]] = {
    0: lambda command: command,
    1: lambda command: [command],
    2: lambda command: {"command": command},
    4: lambda command: {"command": command},
    5: lambda command: {"command": command},
}
"""The arguments of a call, by the number under which LangGraph stores such a call."""


@pytest.mark.promise("G10", "G7")
@pytest.mark.parametrize("code", ARGUMENTS)
@pytest.mark.parametrize("nested", [False, True])
def test_a_row_that_names_a_function_calls_nothing(
    dm: duramen.Duramen, tmp_path: Path, code: int, nested: bool
) -> None:
    proof = tmp_path / "called"
    attack: Any = ormsgpack.Ext(code, ormsgpack.packb(("os", "system", ARGUMENTS[code](f"touch {proof}"))))
    row = bytearray(ormsgpack.packb({"messages": [attack]} if nested else attack))
    save(DuramenSaver(dm, serde=RawSerializer()), row)
    with pytest.raises(UnknownType, match="system"):
        DuramenSaver(dm).get_tuple(CONFIG)
    assert not proof.exists()


@pytest.mark.promise("G10")
@pytest.mark.parametrize("value", [Trip("Lisbon"), Seat(row=7), Fare(120)])
def test_own_types_load_if_they_are_listed(dm: duramen.Duramen, value: object) -> None:
    save(DuramenSaver(dm), {"nested": [value]})
    with pytest.raises(UnknownType, match=type(value).__name__) as refused:
        DuramenSaver(dm).get_tuple(CONFIG)
    assert "types=" in refused.value.hint
    for listed in (type(value), (type(value).__module__, type(value).__name__)):
        found = DuramenSaver(dm, types=[listed]).get_tuple(CONFIG)
        assert found is not None
        assert found.checkpoint["channel_values"]["state"] == {"nested": [value]}


def test_messages_and_plain_data_need_no_list(dm: duramen.Duramen) -> None:
    value = {"messages": [HumanMessage("hello", id="1")], "n": 1, "set": {1, 2}, "path": Path("x")}
    save(DuramenSaver(dm), value)
    found = DuramenSaver(dm).get_tuple(CONFIG)
    assert found is not None
    assert found.checkpoint["channel_values"]["state"] == value


@pytest.mark.parametrize("wrong", ["Trip", ("only-one",), 7, (1, 2)])
def test_a_list_of_types_with_something_else_is_refused(dm: duramen.Duramen, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="types"):
        DuramenSaver(dm, types=[wrong])
