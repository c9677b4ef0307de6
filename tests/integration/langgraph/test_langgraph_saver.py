"""LangGraph's checkpointer: the official conformance suite on each store and API, and checks beyond the suite."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import logging
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from programs.graphs import chat_graph, texts, thread_config, user_message
from pydantic import BaseModel

import duramen
from duramen.errors import InvalidInput
from duramen.integrations.langgraph import DuramenSaver


class SyncMethods(BaseCheckpointSaver[int]):
    """A saver whose async methods call the sync methods of another saver in threads."""

    def __init__(self, saver: DuramenSaver) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    async def aput(self, *given: Any) -> RunnableConfig:
        return await asyncio.to_thread(self._saver.put, *given)

    async def aput_writes(self, *given: Any, **named: Any) -> None:
        await asyncio.to_thread(self._saver.put_writes, *given, **named)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self._saver.get_tuple, config)

    async def alist(self, config: RunnableConfig | None, **given: Any) -> AsyncIterator[CheckpointTuple]:
        for stored in await asyncio.to_thread(lambda: list(self._saver.list(config, **given))):
            yield stored

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self._saver.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self._saver.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self._saver.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self._saver.prune(thread_ids, strategy=strategy))


@asynccontextmanager
async def sync_handle(address: str) -> AsyncGenerator[BaseCheckpointSaver[int], None]:
    with duramen.open(address) as dm:
        yield DuramenSaver(dm)


@asynccontextmanager
async def async_handle(address: str) -> AsyncGenerator[BaseCheckpointSaver[int], None]:
    async with await duramen.aopen(address) as dm:
        yield DuramenSaver(dm)


@asynccontextmanager
async def sync_methods(address: str) -> AsyncGenerator[BaseCheckpointSaver[int], None]:
    with duramen.open(address) as dm:
        yield SyncMethods(DuramenSaver(dm))


@asynccontextmanager
async def sync_methods_of_an_async_handle(address: str) -> AsyncGenerator[BaseCheckpointSaver[int], None]:
    async with await duramen.aopen(address) as dm:
        yield SyncMethods(DuramenSaver(dm))


@pytest.mark.promise("I1")
@pytest.mark.parametrize("open_saver", [sync_handle, async_handle, sync_methods, sync_methods_of_an_async_handle])
def test_the_official_suite_passes(any_address: str, open_saver: Callable[[str], Any]) -> None:
    @checkpointer_test(name="DuramenSaver")
    async def saver() -> AsyncGenerator[BaseCheckpointSaver[int], None]:
        async with open_saver(any_address) as stored:
            yield stored

    report = asyncio.run(validate(saver))
    assert set(report.results) == {capability.value for capability in ALL_CAPABILITIES}
    assert [failure for result in report.results.values() for failure in result.failures] == []
    assert all(result.detected and result.passed and result.tests_passed >= 5 for result in report.results.values())


# -- round trips


@pytest.fixture
def saver(dm: duramen.Duramen) -> DuramenSaver:
    return DuramenSaver(dm)


def checkpoint(values: dict[str, Any], version: int = 1) -> Any:
    """A checkpoint as a graph creates it."""
    return {
        "v": 4,
        "id": str(uuid6()),
        "ts": dt.datetime.now(dt.UTC).isoformat(),
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, version),
        "versions_seen": {"__input__": {}, "node": {**dict.fromkeys(values, version), "gone": 1}},
        "updated_channels": [*sorted(values), "gone"] if version % 2 else None,
    }


def put(saver: Any, config: Any, values: dict[str, Any], **metadata: Any) -> Any:
    given = {"source": "loop", "step": 1, "parents": {}, **metadata}
    return saver.put(config, checkpoint(values), given, dict.fromkeys(values, 1))


class Point(BaseModel):
    x: float
    near: list[str] = []


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.one_of(
    st.builds(HumanMessage, st.text(max_size=80), id=st.uuids().map(str)),
    st.builds(
        AIMessage, st.text(max_size=80), additional_kwargs=st.dictionaries(st.text(max_size=5), PLAIN, max_size=2)
    ),
    st.builds(ToolMessage, st.text(max_size=80), tool_call_id=st.text(min_size=1, max_size=5)),
)
OBJECTS = st.builds(Point, x=st.floats(allow_nan=False), near=st.lists(st.text(max_size=5), max_size=2))
VALUES = st.one_of(
    PLAIN,
    st.binary(max_size=80),
    st.lists(MESSAGES, max_size=4),
    st.lists(st.one_of(MESSAGES, OBJECTS, PLAIN, st.uuids(), st.binary(max_size=5)), max_size=4),
    st.fixed_dictionaries({"messages": st.lists(MESSAGES, max_size=3), "long": st.text(min_size=1100, max_size=1200)}),
    st.sets(st.integers(0, 9), max_size=3),
    st.datetimes(),
)
WRITES = st.lists(
    st.tuples(st.sampled_from(["messages", "other", "__error__", "__interrupt__", "__resume__"]), VALUES), max_size=3
)
CALLS = st.lists(st.tuples(WRITES, st.sampled_from(["t1", "t2"]), st.sampled_from(["", "~b", "~a"])), max_size=4)


def comparable(stored: CheckpointTuple) -> Any:
    """The content of a tuple in a form that can be compared."""
    place = stored.config["configurable"]
    parent = stored.parent_config and stored.parent_config["configurable"]["checkpoint_id"]
    return (
        (place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"], parent),
        stored.checkpoint,
        stored.metadata,
        [(task, channel, value) for task, channel, value in stored.pending_writes or ()],
    )


@pytest.mark.promise("I1", "C2")
@settings(max_examples=25, deadline=None)
@given(
    states=st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), CALLS), max_size=4),
    namespace=st.sampled_from(["", "sub:1"]),
    odd=st.booleans(),
)
def test_tuples_equal_those_of_langgraphs_in_memory_saver(states: Any, namespace: str, odd: bool) -> None:
    with duramen.open("memory:") as dm:
        savers: list[Any] = [DuramenSaver(dm, types=[Point]), InMemorySaver()]
        for saver in savers:
            saver.config = thread_config("t", checkpoint_ns=namespace)
        for step, (values, calls) in enumerate(states):
            saved = checkpoint(values, step + 1)
            metadata = {"source": "loop", "step": step, "parents": {"": "x"}, "run_id": str(uuid.UUID(int=step))}
            if odd:
                saved["pending_sends"] = [AIMessage("sent", id="1")]
                metadata |= {"counts": {"a": (1, 2)}, "when": dt.datetime(2026, 1, 2), "point": Point(x=1)}
                del saved["updated_channels"]
            for saver in savers:
                saver.config = saver.put(saver.config, saved, metadata, saved["channel_versions"])
                for writes, task, path in calls:
                    saver.put_writes(saver.config, writes, task, path)
        ours, theirs = ([comparable(stored) for stored in saver.list(thread_config("t"))] for saver in savers)
        assert ours == theirs
        assert [comparable(savers[0].get_tuple(stored.config)) for stored in savers[0].list(thread_config("t"))] == ours


class Edits:
    """Changes to a list of messages and other values, as nodes make them."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self._count = 0

    def append(self, _: int) -> None:
        self._count += 1
        kinds = [AIMessage(f"{self._count}"), {"n": self._count}, f"text {self._count}", Point(x=self._count), [1, [2]]]
        self.items = [*self.items, kinds[self._count % 5]]

    def drop_front(self, place: int) -> None:
        self.items = self.items[place % 3 :]

    def remove(self, place: int) -> None:
        del self.items[place % len(self.items) :][:1]

    def replace(self, place: int) -> None:
        self._count += 1
        self.items[place % len(self.items)] = HumanMessage(f"instead {self._count}")

    def swap(self, place: int) -> None:
        self.items.insert(0, self.items.pop(place % len(self.items)))

    def mutate(self, place: int) -> None:
        """In place: the list and its items stay the same objects."""
        self._count += 1
        item = self.items[place % len(self.items)]
        if isinstance(item, AIMessage):
            item.additional_kwargs["seen"] = [self._count]
        elif isinstance(item, HumanMessage):
            item.content += "!"
        elif isinstance(item, Point):
            item.near.append("here")
        elif isinstance(item, dict):
            item["more"] = self._count
        elif isinstance(item, list):
            item[1].append(self._count)


@pytest.mark.promise("C3")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "append", "drop_front", "remove", "replace", "swap", "mutate"]),
            st.integers(0, 9),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_each_version_of_an_edited_list_is_restored(edits: Any) -> None:
    with duramen.open("memory:") as dm:
        saver, config, expected = DuramenSaver(dm, types=[Point]), thread_config("t"), []
        state = Edits([])
        for name, place, reopen in edits:
            if state.items or name == "append":
                getattr(state, name)(place)
            config = put(saver, config, {"items": state.items})
            expected.append(copy.deepcopy(state.items))
            if reopen:  # as after a restart: nothing is cached, and the objects are new
                saver = DuramenSaver(dm, types=[Point])
                state.items = saver.get_tuple(thread_config("t")).checkpoint["channel_values"]["items"]
        assert [stored.checkpoint["channel_values"]["items"] for stored in saver.list(thread_config("t"))] == expected[
            ::-1
        ]


def test_an_input_after_an_older_checkpoint_is_stored_with_its_values(saver: DuramenSaver) -> None:
    older = put(saver, thread_config("t"), {"messages": [HumanMessage("as it was")]})
    put(saver, older, {"messages": [HumanMessage("as it became")]})
    loaded = saver.get_tuple(older)
    put(saver, loaded.config, loaded.checkpoint["channel_values"], source="input")
    [stored] = saver.list(thread_config("t"), limit=1)
    assert texts(stored.checkpoint["channel_values"]) == ["as it was"]


# -- beyond the suite


def test_a_sync_handle_does_not_block_the_event_loop(dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
    saver, threads = DuramenSaver(dm), []

    def recorded(method: Any) -> Any:
        def recording(*given: Any, **named: Any) -> Any:
            threads.append(threading.current_thread())
            return method(*given, **named)

        return recording

    for name in ("load", "list"):
        monkeypatch.setattr(saver._checkpoints, name, recorded(getattr(saver._checkpoints, name)))

    async def main() -> None:
        await saver.aget_tuple(thread_config("t"))
        assert [stored async for stored in saver.alist(thread_config("t", checkpoint_ns=""))] == []

    asyncio.run(main())
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_all_threads_and_all_namespaces_can_be_listed(saver: DuramenSaver) -> None:
    for thread, namespace in (("a", ""), ("b", ""), ("a", "sub:1")):
        put(saver, thread_config(thread, checkpoint_ns=namespace), {}, n=1)
    places = [stored.config["configurable"] for stored in saver.list(None)]
    assert [(place["thread_id"], place["checkpoint_ns"]) for place in places] == [("a", "sub:1"), ("b", ""), ("a", "")]
    assert len(list(saver.list(thread_config("a")))) == 2
    assert len(list(saver.list(thread_config("a"), filter={"n": 2}))) == 0
    assert len(list(saver.list(None, limit=2))) == 2


def test_a_number_as_thread_id_is_used_as_text(saver: DuramenSaver) -> None:
    graph = chat_graph(saver)
    graph.invoke(user_message("a"), thread_config(7))  # type: ignore[arg-type]
    assert texts(graph.get_state(thread_config("7"))) == ["a", "you said a"]


@pytest.mark.parametrize("config", [{}, {"configurable": {}}, {"configurable": {"thread_id": ""}}])
def test_a_configuration_without_a_thread_is_refused(saver: DuramenSaver, config: Any) -> None:
    with pytest.raises(InvalidInput, match="has no thread_id") as refused:
        saver.get_tuple(config)
    assert "thread_id" in refused.value.hint
    with pytest.raises(InvalidInput, match="has no thread_id"):
        put(saver, config, {})


def test_invalid_arguments_are_refused(dm: duramen.Duramen, saver: DuramenSaver) -> None:
    with pytest.raises(InvalidInput, match="thread_id"):
        saver.get_tuple(thread_config("t" * 600))
    with pytest.raises(InvalidInput, match="has no checkpoint_id"):
        saver.put_writes(thread_config("t"), [("a", 1)], "task")
    with pytest.raises(InvalidInput, match="strategy"):
        saver.prune(["t"], strategy="some")
    with pytest.raises(InvalidInput, match="on_conflict"):
        DuramenSaver(dm, on_conflict="perhaps")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="not a duramen handle"):
        DuramenSaver("agent.db")  # type: ignore[arg-type]


@pytest.mark.promise("G6")
def test_credentials_in_a_configuration_are_not_stored_in_the_metadata(saver: DuramenSaver) -> None:
    chat_graph(saver).invoke(user_message("a"), thread_config("t", api_key="sk-abcdefghijklmnopqrstuvwx", user="ann"))
    [stored] = saver.list(thread_config("t"), limit=1)
    assert stored.metadata["user"] == "ann"
    assert "abcdefghij" not in str(stored.metadata)


class RotatingCipher(CipherProtocol):
    """Gives different bytes each time, as a cipher with a nonce does. Not secure."""

    def __init__(self) -> None:
        self._count = 0

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        self._count = (self._count + 1) % 256
        return "rot", bytes([self._count]) + bytes((one + self._count) % 256 for one in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "rot"
        return bytes((one - ciphertext[0]) % 256 for one in ciphertext[1:])


def test_values_can_be_encrypted_by_langgraphs_serializer(tmp_path: Path) -> None:
    serde = EncryptedSerializer(RotatingCipher())
    with duramen.open(tmp_path / "agent.db") as dm:
        graph = chat_graph(DuramenSaver(dm, serde=serde))
        for turn in ("a secret", "b secret"):
            graph.invoke(user_message(turn), thread_config("t"))
    with duramen.open(tmp_path / "agent.db") as dm:
        graph = chat_graph(DuramenSaver(dm, serde=serde))
        graph.invoke(user_message("c secret"), thread_config("t"))
        assert texts(graph.get_state(thread_config("t")))[::2] == ["a secret", "b secret", "c secret"]
    assert b"secret" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_a_damaged_checkpoint_is_left_out_of_the_history(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        graph = chat_graph(DuramenSaver(dm))
        graph.invoke(user_message("a"), thread_config("t"))
        every = len(list(graph.get_state_history(thread_config("t"))))
        _damage(tmp_path / "agent.db")
        assert 0 < len(list(graph.get_state_history(thread_config("t")))) < every
    assert "damaged" in caplog.text


@pytest.mark.parametrize("way", ["delete_thread", "prune", "delete_for_runs"])
def test_deleted_threads_leave_no_bytes_on_disk(tmp_path: Path, way: str) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        saver = DuramenSaver(dm)
        graph = chat_graph(saver)
        graph.invoke(user_message("the secret plan"), thread_config("t", run_id="r1"))
        graph.invoke(user_message("an open matter"), thread_config("u", run_id="r2"))
        saver.put_writes(
            thread_config("t", checkpoint_id=str(uuid6())), [("x", "a secret write")], "task"
        )  # without a checkpoint
        if way == "delete_thread":
            saver.delete_thread("t")
        elif way == "prune":
            saver.prune(["t"], strategy="delete")
        else:
            saver.delete_for_runs(["r1"])
            saver.delete_thread("t")
        assert list(saver.list(thread_config("t"))) == []
        assert texts(graph.get_state(thread_config("u"))) == ["an open matter", "you said an open matter"]
        assert dm.verify().ok
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"an open matter" in files
    assert b"secret" not in files


def _damage(path: Path) -> None:
    """Delete the newest chunk of a state."""
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM duramen_chunks WHERE number = (SELECT max(number) FROM duramen_chunks)")
    connection.close()


def test_a_thread_continues_from_the_checkpoint_before_a_damaged_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        graph = chat_graph(DuramenSaver(dm))
        graph.invoke(user_message("a"), thread_config("t"))
        graph.invoke(user_message("b"), thread_config("t"))
    _damage(path)
    with duramen.open(path) as dm, caplog.at_level(logging.WARNING, "duramen.langgraph"):
        graph = chat_graph(DuramenSaver(dm))
        before = texts(graph.get_state(thread_config("t")))
        assert before[:2] == ["a", "you said a"]
        assert "you said b" not in before
        assert "damaged" in caplog.text
        graph.invoke(user_message("c"), thread_config("t"))
        assert texts(graph.get_state(thread_config("t"))) == [*before, "c", "you said c"]


@pytest.mark.parametrize(
    ("current", "following"),
    [(None, 1), (1, 2), (41, 42), (f"{9:032}.0.83", f"{10:032}.0.83"), ("7", "8")],
)
def test_versions_continue_in_the_form_that_a_thread_has(dm: duramen.Duramen, current: Any, following: Any) -> None:
    assert DuramenSaver(dm).get_next_version(current, None) == following
