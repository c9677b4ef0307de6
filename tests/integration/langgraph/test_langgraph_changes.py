"""In-place changes of messages are stored with the next checkpoint, at any depth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from programs.seeds import seeded

import duramen
from duramen.integrations.langgraph import DuramenSaver, change_detection
from duramen.integrations.langgraph import snapshot as snapshot_module
from duramen.integrations.langgraph.change_detection import CAN_WATCH, Watch, read_state
from duramen.integrations.langgraph.snapshot import MessageSnapshots, take_snapshots

Change = Callable[[list[Any]], Any]


def conversation() -> list[Any]:
    """Messages of every kind with values that can be changed in place."""
    call = {"name": "find", "args": {"where": {"city": "Lisbon"}}, "id": "1", "type": "tool_call"}
    messages: list[Any] = [HumanMessage(f"question {number} " * 9, id=f"h{number}") for number in range(30)]
    messages.insert(3, AIMessage("", id="a", tool_calls=[call], response_metadata={"usage": {"tokens": 7}}))
    messages.insert(4, ToolMessage("found", tool_call_id="1", id="t", artifact={"rows": [1, 2]}))
    messages.insert(
        5,
        AIMessage([{"type": "text", "text": "there is one"}], id="b", additional_kwargs={"seen": ["x"], "then": ["z"]}),
    )
    return messages


def checkpoint(number: int, **channels: Any) -> Checkpoint:
    versions: dict[str, Any] = dict.fromkeys(channels, number)
    return {
        **empty_checkpoint(),
        "id": f"1ef4f797-8335-6428-8001-{number:012d}",
        "channel_values": channels,
        "channel_versions": versions,
    }


class Thread:
    """A thread that one handle saves and a new handle reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dm = duramen.open(path)
        self._saver = DuramenSaver(self._dm, types=[OtherHumanMessage])
        self._config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        self._number = 0

    def put(self, **channels: Any) -> None:
        self._number += 1
        step: Any = {"source": "loop", "step": self._number}
        self._config = self._saver.put(self._config, checkpoint(self._number, **channels), step, {})

    def read(self) -> dict[str, Any]:
        with duramen.open(self._path) as dm:
            stored = DuramenSaver(dm, types=[OtherHumanMessage]).get_tuple(self._config)
        assert stored is not None
        return stored.checkpoint["channel_values"]

    def close(self) -> None:
        self._dm.close()


@pytest.fixture
def thread(tmp_path: Path) -> Any:
    thread = Thread(tmp_path / "agent.db")
    yield thread
    thread.close()


class OtherHumanMessage(HumanMessage):
    """Another class with the same fields."""


CHANGES: dict[str, Change] = {
    "text": lambda messages: setattr(messages[0], "content", "another"),
    "text of the last message": lambda messages: setattr(messages[-1], "content", "another"),
    "argument of a tool call": lambda messages: messages[3].tool_calls[0]["args"]["where"].update(city="Porto"),
    "added tool call": lambda messages: messages[3].tool_calls.append(
        {"name": "b", "args": {}, "id": "2", "type": "tool_call"}
    ),
    "metadata inside metadata": lambda messages: messages[3].response_metadata["usage"].update(tokens=8),
    "metadata that were empty": lambda messages: messages[9].response_metadata.update(model="m"),
    "keywords that were empty": lambda messages: messages[9].additional_kwargs.update(cached=True),
    "key of metadata": lambda messages: messages[3].response_metadata.update(
        cost=messages[3].response_metadata.pop("usage")
    ),
    "list in keywords": lambda messages: messages[5].additional_kwargs["seen"].append("y"),
    "value moved to another list": lambda messages: (
        messages[5].additional_kwargs["then"].insert(0, messages[5].additional_kwargs["seen"].pop())
    ),
    "block of content": lambda messages: messages[5].content[0].update(text="there is none"),
    "list in an artifact": lambda messages: messages[4].artifact["rows"].append(3),
    "undeclared field": lambda messages: setattr(messages[8], "mood", "good"),
    "existing undeclared field": lambda messages: messages[7].__pydantic_extra__.update(mood="bad"),
    "name": lambda messages: setattr(messages[20], "name", "Ada"),
    "all fields at once": lambda messages: setattr(
        messages[21], "__dict__", {**messages[21].__dict__, "content": "another"}
    ),
    "class": lambda messages: setattr(messages[22], "__class__", OtherHumanMessage),
    "order": lambda messages: messages.reverse(),
    "removed message": lambda messages: messages.pop(10),
    "replaced message": lambda messages: messages.__setitem__(10, HumanMessage("new", id="new")),
}


@pytest.mark.promise("C2", "I1")
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("added", [0, 2])
@pytest.mark.parametrize("puts", [2, 5])
def test_an_in_place_change_is_stored(thread: Thread, what: str, added: int, puts: int) -> None:
    messages = conversation()
    for _ in range(puts):  # after two, it is not serialized again; after more, it is watched
        thread.put(messages=messages)
    CHANGES[what](messages)
    messages += [HumanMessage(f"more {number}", id=f"m{number}") for number in range(added)]
    thread.put(messages=messages)
    assert thread.read()["messages"] == messages
    assert [type(one) for one in thread.read()["messages"]] == [type(one) for one in messages]


FIELD_RENAMES: dict[str, Change] = {
    "last field": lambda messages: messages[0].__dict__.update(
        other=messages[0].__dict__.pop(list(messages[0].__dict__)[-1])
    ),
    "inner field": lambda messages: messages[0].__dict__.update(
        {f"{name} " if name == "name" else name: messages[0].__dict__.pop(name) for name in list(messages[0].__dict__)}
    ),
    "field moved to the next message": lambda messages: messages[1].__dict__.update(
        dict([messages[0].__dict__.popitem()])
        | {name: messages[1].__dict__.pop(name) for name in list(messages[1].__dict__)}
    ),
}


@pytest.mark.parametrize("what", FIELD_RENAMES)
def test_a_renamed_field_is_a_change(what: str) -> None:
    """Even if its value is the same object at the same place."""
    messages = [HumanMessage("hello", id="1"), HumanMessage("there", id="2")]
    del messages[1].__dict__[list(messages[1].__dict__)[-1]]
    known = as_snapshots(take_snapshots(messages, [], repr_of))
    for _ in range(3):
        assert take_snapshots(messages, known, repr_of) is known
    assert known._watch is not None
    assert known._watch.holds(messages)
    FIELD_RENAMES[what](messages)
    assert take_snapshots(messages, known, repr_of) is not known


@pytest.mark.promise("C2", "I1")
def test_a_change_of_a_list_that_two_channels_share_is_stored_in_both(thread: Thread) -> None:
    messages = conversation()
    for change in ("text", "list in keywords", "metadata that were empty"):
        thread.put(messages=messages, copy=messages, inner={"list": messages})
        CHANGES[change](messages)
        thread.put(messages=messages, copy=messages, inner={"list": messages})
        assert thread.read() == {"messages": messages, "copy": messages, "inner": {"list": messages}}


@pytest.mark.promise("C2", "I1")
def test_each_change_is_stored_and_earlier_checkpoints_do_not_change(thread: Thread) -> None:
    messages = conversation()
    thread.put(messages=messages)
    for what in ("text", "argument of a tool call", "list in an artifact", "name", "undeclared field"):
        before, place = thread.read()["messages"], thread._config
        CHANGES[what](messages)
        thread.put(messages=messages)
        after, thread._config = thread._config, place
        assert thread.read()["messages"] == before != messages
        thread._config = after
        assert thread.read()["messages"] == messages


def test_a_change_of_a_message_does_not_change_its_snapshot() -> None:
    """Snapshots share one object for empty values. Nothing may be added to it."""

    def dump(value: object) -> bytes:
        raise AssertionError("a message needs no serializer")

    messages = conversation()
    before = take_snapshots(messages, [], dump)
    assert take_snapshots(messages, before, dump) is before
    for what in list(CHANGES)[:15]:
        CHANGES[what](messages)
    assert before == take_snapshots(conversation(), [], dump)
    changed = take_snapshots(messages, before, dump)
    same_objects = [one is other for one, other in zip(before, changed, strict=True)]
    assert [number for number, same in enumerate(same_objects) if not same] == [0, 3, 4, 5, 7, 8, 9, 20, 32]


def test_a_changed_class_is_a_change() -> None:
    messages = conversation()
    before = take_snapshots(messages, [], repr_of)
    messages[10] = OtherHumanMessage(**messages[10].__dict__)
    changed = take_snapshots(messages, before, repr_of)
    assert [number for number, one in enumerate(changed) if one is not before[number]] == [10]
    assert changed[10][0] is OtherHumanMessage


def repr_of(value: object) -> bytes:
    return repr(value).encode()


def with_one_more(messages: list[Any], known: MessageSnapshots, number: int) -> MessageSnapshots:
    """The snapshots after one more message."""
    messages.append(AIMessage("more " * 9, id=f"m{number}", response_metadata={"number": number} if number % 2 else {}))
    return as_snapshots(take_snapshots(messages, known, repr_of))


def as_snapshots(snapshots: Any) -> MessageSnapshots:
    assert type(snapshots) is MessageSnapshots
    return snapshots


def test_messages_that_are_saved_repeatedly_are_watched() -> None:
    """Watching makes the next save fast. Messages of another load are other objects, so they are compared first."""
    assert CAN_WATCH
    messages = conversation()
    known = as_snapshots(take_snapshots(messages, [], repr_of))
    for number in range(4):
        known = with_one_more(messages, known, number)
    assert known._watch is not None
    assert known._watch.holds(messages)
    loaded = [type(one)(**one.__dict__) for one in messages]
    assert take_snapshots(loaded, known, repr_of) is known
    CHANGES["text"](loaded)
    assert take_snapshots(loaded, known, repr_of) is not known
    assert take_snapshots(messages, known, repr_of) is known


def test_a_message_that_changes_while_its_referents_are_read_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread replaces all fields and restores them while they are read."""
    message = HumanMessage("one")
    fields, others = message.__dict__, {**message.__dict__, "content": "other"}
    real = change_detection.get_referents

    def meanwhile(*items: Any) -> list[Any]:
        object.__setattr__(message, "__dict__", others)
        referents = real(*items)
        object.__setattr__(message, "__dict__", fields)
        return referents

    known = as_snapshots(take_snapshots([message], [], repr_of))
    known = as_snapshots(take_snapshots([message], known, repr_of))
    monkeypatch.setattr(change_detection, "get_referents", meanwhile)
    known = as_snapshots(take_snapshots([message], known, repr_of))
    monkeypatch.undo()
    object.__setattr__(message, "__dict__", others)
    changed = take_snapshots([message], known, repr_of)
    assert changed is not known
    assert changed[0][1]["content"] == "other"


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_every_random_change_is_detected(seed: int, watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots that reuse earlier ones equal snapshots from scratch."""
    monkeypatch.setattr(snapshot_module, "CAN_WATCH", watched)
    choices = seeded("changes", seed)
    messages = conversation()
    known: Any = take_snapshots(messages, [], repr_of)
    for number in range(60):
        act = choices.choice(["change", "grow", "grow", "nothing", "nothing", "remove"])
        if act == "change":
            one = choices.choice(messages)
            deep = choices.choice([one.additional_kwargs, one.response_metadata, one.__pydantic_extra__])
            deep.update({f"{number}": [number]}) if number % 3 else deep.clear()
            one.name = choices.choice([one.name, f"{number}"])
        elif act == "remove":
            messages.pop(choices.randrange(len(messages)))
        elif act == "grow":
            messages.append(HumanMessage(f"more {number}", id=f"m{number}"))
        known = take_snapshots(messages, known, repr_of)
        assert known == take_snapshots(messages, [], repr_of)


def test_a_change_reverted_while_a_new_message_is_copied_is_harmless(thread: Thread, monkeypatch: Any) -> None:
    """A node may change a text for a moment while another thread saves the previous checkpoint."""
    messages = conversation()
    for _ in range(4):
        thread.put(messages=messages)
    hidden, copied = HumanMessage("the secret", id="new"), snapshot_module._copied
    visible_text = hidden.content

    def hide_and_read(live: Any, item: Any, dump: Any) -> Any:
        if item is hidden:
            hidden.content = "hidden"
        return copied(live, item, dump)

    monkeypatch.setattr(snapshot_module, "_copied", hide_and_read)
    messages.append(hidden)
    thread.put(messages=messages)
    monkeypatch.undo()
    hidden.content = visible_text
    for number in range(3):
        messages.append(HumanMessage("more", id=f"more {number}"))
        thread.put(messages=messages)
        assert thread.read()["messages"] == messages


def test_a_change_reverted_while_old_messages_are_read_is_harmless(thread: Thread, monkeypatch: Any) -> None:
    messages = conversation()
    old, read_state_of, hidden = messages[7], snapshot_module.read_state, "hidden"
    visible_text = old.content

    def hide_and_read(item: Any) -> Any:
        if item is old:
            old.content = hidden
        state = read_state_of(item)
        old.content = visible_text
        return state

    thread.put(messages=messages)
    monkeypatch.setattr(snapshot_module, "read_state", hide_and_read)
    for _ in range(4):
        thread.put(messages=messages)
    monkeypatch.undo()
    old.content = hidden  # the same object as during the read
    thread.put(messages=messages)
    assert thread.read()["messages"] == messages


@pytest.mark.parametrize("what", ["__dict__", "__pydantic_extra__", "__class__"])
def test_a_message_replaced_while_it_is_read_is_not_watched(what: str) -> None:
    messages = conversation()
    states = [read_state(one) for one in messages]
    snapshots = list(take_snapshots(messages, [], repr_of))
    assert Watch(messages[0]).add(messages, states, snapshots)
    another: Any = OtherHumanMessage if what == "__class__" else dict(getattr(messages[9], what))
    setattr(messages[9], what, another)
    assert not Watch(messages[0]).add(messages, states, snapshots)


class Uncomparable:
    """Raises an error when it is compared."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __eq__(self, other: object) -> bool:
        raise self.error

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("error", [AttributeError(), TypeError(), RuntimeError(), ValueError()], ids=repr)
@pytest.mark.parametrize("puts", [2, 5])
def test_a_value_that_cannot_be_compared_counts_as_changed(error: Exception, puts: int) -> None:
    messages = conversation()
    known = take_snapshots(messages, [], repr_of)
    for _ in range(puts):
        known = take_snapshots(messages, known, repr_of)
    messages[4].artifact["rows"] = Uncomparable(error)
    changed = take_snapshots(messages, known, repr_of)
    assert [number for number, one in enumerate(changed) if one is not known[number]] == [4]
    assert changed[4] == repr_of(messages[4])


@pytest.mark.parametrize("value", [{"row": [1]}, [[1]], {(1,)}], ids=["dict", "list", "set"])
def test_a_value_that_grows_while_it_is_copied_is_copied_once(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread adds items. Saving a checkpoint must not fail or copy forever."""
    message = ToolMessage("found", tool_call_id="1", id="t", artifact=value)
    copy = snapshot_module._copy

    def growing(inner: Any) -> Any:
        if inner in ([1], (1,)):
            grow = {
                dict: lambda: value.update(more=[1]),
                list: lambda: value.append([1]),
                set: lambda: value.add("more"),
            }
            grow[type(value)]()
        return copy(inner)

    monkeypatch.setattr(snapshot_module, "_copy", growing)
    ((_, fields, _),) = take_snapshots([message], [], repr_of)
    assert len(fields["artifact"]) == 1
    assert len(value) == 2


def test_a_changed_list_is_not_watched_any_more() -> None:
    messages = conversation()
    known = as_snapshots(take_snapshots(messages, [], repr_of))
    for _ in range(4):
        known = as_snapshots(take_snapshots(messages, known, repr_of))
    assert known._watch is not None
    CHANGES["text"](messages)
    take_snapshots(messages, known, repr_of)
    assert known._watch is None


class Slotted(HumanMessage):
    """Has a value outside its fields."""

    __slots__ = ("mood",)


def test_a_message_class_with_slots_is_not_transparent() -> None:
    assert not snapshot_module._is_transparent(Slotted)
    assert snapshot_module._is_transparent(OtherHumanMessage)


def test_values_that_cannot_be_copied_are_not_watched() -> None:
    messages = conversation()
    known = as_snapshots(take_snapshots(messages, [], repr_of))
    for number in range(3):
        known = with_one_more(messages, known, number)
    messages.append(HumanMessage("odd", additional_kwargs={"odd": Uncomparable(ValueError())}))
    for _ in range(3):
        known = as_snapshots(take_snapshots(messages, known, repr_of))
        assert known._watch is None
