"""MessageSnapshots that a node changes in place are stored with the next checkpoint, however deep the change lies."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint

import duramen
from duramen.integrations.langgraph import DuramenSaver
from duramen.integrations.langgraph import change_detection as watching
from duramen.integrations.langgraph import snapshot as standins
from duramen.integrations.langgraph.change_detection import CAN_WATCH, Watch, read_state
from duramen.integrations.langgraph.snapshot import MessageSnapshots, take_snapshots

Change = Callable[[list[Any]], Any]


def conversation() -> list[Any]:
    """Every kind of message, with something inside each that can be changed."""
    call = {"name": "find", "args": {"where": {"city": "Lisbon"}}, "id": "1", "type": "tool_call"}
    talk: list[Any] = [HumanMessage(f"question {number} " * 9, id=f"h{number}") for number in range(30)]
    talk.insert(3, AIMessage("", id="a", tool_calls=[call], response_metadata={"usage": {"tokens": 7}}))
    talk.insert(4, ToolMessage("found", tool_call_id="1", id="t", artifact={"rows": [1, 2]}))
    talk.insert(
        5,
        AIMessage([{"type": "text", "text": "there is one"}], id="b", additional_kwargs={"seen": ["x"], "then": ["z"]}),
    )
    return talk


def checkpoint(number: int, **channels: Any) -> Checkpoint:
    versions: dict[str, Any] = dict.fromkeys(channels, number)
    return {
        **empty_checkpoint(),
        "id": f"1ef4f797-8335-6428-8001-{number:012d}",
        "channel_values": channels,
        "channel_versions": versions,
    }


class Thread:
    """A thread that is saved by one handle and read by another one, which remembers nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dm = duramen.open(path)
        self._saver = DuramenSaver(self._dm)
        self._config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        self._number = 0

    def put(self, **channels: Any) -> None:
        self._number += 1
        step: Any = {"source": "loop", "step": self._number}
        self._config = self._saver.put(self._config, checkpoint(self._number, **channels), step, {})

    def read(self) -> dict[str, Any]:
        with duramen.open(self._path) as dm:
            found = DuramenSaver(dm).get_tuple(self._config)
        assert found is not None
        return found.checkpoint["channel_values"]

    def close(self) -> None:
        self._dm.close()


@pytest.fixture
def thread(tmp_path: Path) -> Any:
    thread = Thread(tmp_path / "agent.db")
    yield thread
    thread.close()


class Whisper(HumanMessage):
    """Another class with the same fields."""


CHANGES: dict[str, Change] = {
    "text": lambda talk: setattr(talk[0], "content", "another"),
    "text of the last": lambda talk: setattr(talk[-1], "content", "another"),
    "argument of a tool call": lambda talk: talk[3].tool_calls[0]["args"]["where"].update(city="Porto"),
    "another tool call": lambda talk: talk[3].tool_calls.append(
        {"name": "b", "args": {}, "id": "2", "type": "tool_call"}
    ),
    "metadata inside metadata": lambda talk: talk[3].response_metadata["usage"].update(tokens=8),
    "metadata that were empty": lambda talk: talk[9].response_metadata.update(model="m"),
    "keywords that were empty": lambda talk: talk[9].additional_kwargs.update(cached=True),
    "key of metadata": lambda talk: talk[3].response_metadata.update(cost=talk[3].response_metadata.pop("usage")),
    "list in keywords": lambda talk: talk[5].additional_kwargs["seen"].append("y"),
    "one list to the next": lambda talk: (
        talk[5].additional_kwargs["then"].insert(0, talk[5].additional_kwargs["seen"].pop())
    ),
    "block of content": lambda talk: talk[5].content[0].update(text="there is none"),
    "list in an artifact": lambda talk: talk[4].artifact["rows"].append(3),
    "field that nobody declared": lambda talk: setattr(talk[8], "mood", "good"),
    "undeclared field, once more": lambda talk: talk[7].__pydantic_extra__.update(mood="bad"),
    "name": lambda talk: setattr(talk[20], "name", "Ada"),
    "all fields at once": lambda talk: setattr(talk[21], "__dict__", {**talk[21].__dict__, "content": "another"}),
    "class": lambda talk: setattr(talk[22], "__class__", Whisper),
    "order": lambda talk: talk.reverse(),
    "one taken out": lambda talk: talk.pop(10),
    "one in another's place": lambda talk: talk.__setitem__(10, HumanMessage("new", id="new")),
}


@pytest.mark.promise("C2", "I1")
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("grown", [0, 2])
@pytest.mark.parametrize("puts", [2, 5])
def test_a_change_in_place_is_stored(thread: Thread, what: str, grown: int, puts: int) -> None:
    talk = conversation()
    for _ in range(puts):  # after two it is known, and nothing of it is serialized again; after more it is watched
        thread.put(messages=talk)
    CHANGES[what](talk)
    talk += [HumanMessage(f"more {number}", id=f"m{number}") for number in range(grown)]
    thread.put(messages=talk)
    assert thread.read()["messages"] == talk
    assert [type(one) for one in thread.read()["messages"]] == [type(one) for one in talk]


RENAMINGS: dict[str, Change] = {
    "the last one": lambda talk: talk[0].__dict__.update(other=talk[0].__dict__.pop(list(talk[0].__dict__)[-1])),
    "one among others": lambda talk: talk[0].__dict__.update(
        {f"{name} " if name == "name" else name: talk[0].__dict__.pop(name) for name in list(talk[0].__dict__)}
    ),
    "one that goes to the next message": lambda talk: talk[1].__dict__.update(
        dict([talk[0].__dict__.popitem()]) | {name: talk[1].__dict__.pop(name) for name in list(talk[1].__dict__)}
    ),
}


@pytest.mark.parametrize("what", RENAMINGS)
def test_a_field_under_another_name_is_another_field(what: str) -> None:
    """Even if it is at the same place, and the same object."""
    talk = [HumanMessage("hello", id="1"), HumanMessage("there", id="2")]
    del talk[1].__dict__[list(talk[1].__dict__)[-1]]
    known = talked(take_snapshots(talk, [], repr_of))
    for _ in range(3):
        assert take_snapshots(talk, known, repr_of) is known
    assert known._watch is not None
    assert known._watch.holds(talk)
    RENAMINGS[what](talk)
    assert take_snapshots(talk, known, repr_of) is not known


@pytest.mark.promise("C2", "I1")
def test_a_list_that_two_channels_share_changes_in_both(thread: Thread) -> None:
    talk = conversation()
    for change in ("text", "list in keywords", "metadata that were empty"):
        thread.put(messages=talk, copy=talk, inner={"talk": talk})
        CHANGES[change](talk)
        thread.put(messages=talk, copy=talk, inner={"talk": talk})
        assert thread.read() == {"messages": talk, "copy": talk, "inner": {"talk": talk}}


@pytest.mark.promise("C2", "I1")
def test_each_change_in_turn_is_stored_and_the_earlier_checkpoints_stay(thread: Thread) -> None:
    talk = conversation()
    thread.put(messages=talk)
    for what in ("text", "argument of a tool call", "list in an artifact", "name", "field that nobody declared"):
        before, place = thread.read()["messages"], thread._config
        CHANGES[what](talk)
        thread.put(messages=talk)
        after, thread._config = thread._config, place
        assert thread.read()["messages"] == before != talk
        thread._config = after
        assert thread.read()["messages"] == talk


def test_no_change_reaches_a_snapshot() -> None:
    """What stands for empty is shared by all: nothing may ever be put into it."""

    def dump(value: object) -> bytes:
        raise AssertionError("a message needs no serializer")

    talk = conversation()
    before = take_snapshots(talk, [], dump)
    assert take_snapshots(talk, before, dump) is before
    for what in list(CHANGES)[:15]:
        CHANGES[what](talk)
    assert before == take_snapshots(conversation(), [], dump)
    changed = take_snapshots(talk, before, dump)
    kept = [one is other for one, other in zip(before, changed, strict=True)]
    assert [number for number, same in enumerate(kept) if not same] == [0, 3, 4, 5, 7, 8, 9, 20, 32]


def test_another_class_with_the_same_fields_is_another_message() -> None:
    talk = conversation()
    before = take_snapshots(talk, [], repr_of)
    talk[10] = Whisper(**talk[10].__dict__)
    changed = take_snapshots(talk, before, repr_of)
    assert [number for number, one in enumerate(changed) if one is not before[number]] == [10]
    assert changed[10][0] is Whisper


def repr_of(value: object) -> bytes:
    return repr(value).encode()


def grown(talk: list[Any], known: MessageSnapshots, number: int) -> MessageSnapshots:
    """The stand-ins of a conversation that got one message more."""
    talk.append(AIMessage("more " * 9, id=f"m{number}", response_metadata={"number": number} if number % 2 else {}))
    return talked(take_snapshots(talk, known, repr_of))


def talked(snapshots: Any) -> MessageSnapshots:
    assert type(snapshots) is MessageSnapshots
    return snapshots


def test_messages_that_come_again_and_again_are_watched() -> None:
    """Or nothing would be gained. Those of another load are not the same objects: they are compared first."""
    assert CAN_WATCH
    talk = conversation()
    known = talked(take_snapshots(talk, [], repr_of))
    for number in range(4):
        known = grown(talk, known, number)
    assert known._watch is not None
    assert known._watch.holds(talk)
    loaded = [type(one)(**one.__dict__) for one in talk]
    assert take_snapshots(loaded, known, repr_of) is known
    CHANGES["text"](loaded)
    assert take_snapshots(loaded, known, repr_of) is not known
    assert take_snapshots(talk, known, repr_of) is known


def test_what_a_message_refers_to_is_of_the_moment_of_its_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread exchanges all fields and sets them back in between."""
    message = HumanMessage("one")
    fields, others = message.__dict__, {**message.__dict__, "content": "other"}
    real = watching.get_referents

    def meanwhile(*items: Any) -> list[Any]:
        object.__setattr__(message, "__dict__", others)
        found = real(*items)
        object.__setattr__(message, "__dict__", fields)
        return found

    known = talked(take_snapshots([message], [], repr_of))
    known = talked(take_snapshots([message], known, repr_of))
    monkeypatch.setattr(watching, "get_referents", meanwhile)
    known = talked(take_snapshots([message], known, repr_of))
    monkeypatch.undo()
    object.__setattr__(message, "__dict__", others)
    changed = take_snapshots([message], known, repr_of)
    assert changed is not known
    assert changed[0][1]["content"] == "other"


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_random_changes_are_seen_one_by_one(seed: int, watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept from list to list is what a look at the list alone gives, whatever happened to it before."""
    monkeypatch.setattr(standins, "CAN_WATCH", watched)
    chance = random.Random(seed)
    talk = conversation()
    known: Any = take_snapshots(talk, [], repr_of)
    for number in range(60):
        act = chance.choice(["change", "grow", "grow", "nothing", "nothing", "take away"])
        if act == "change":
            one = chance.choice(talk)
            deep = chance.choice([one.additional_kwargs, one.response_metadata, one.__pydantic_extra__])
            deep.update({f"{number}": [number]}) if number % 3 else deep.clear()
            one.name = chance.choice([one.name, f"{number}"])
        elif act == "take away":
            talk.pop(chance.randrange(len(talk)))
        elif act == "grow":
            talk.append(HumanMessage(f"more {number}", id=f"m{number}"))
        found = take_snapshots(talk, known, repr_of)
        assert found == take_snapshots(talk, [], repr_of)
        known = found


def test_a_change_that_is_taken_back_while_a_new_message_is_copied(thread: Thread, monkeypatch: Any) -> None:
    """A node may hide something for a moment while the checkpoint before it is saved by another thread."""
    talk = conversation()
    for _ in range(4):
        thread.put(messages=talk)
    hidden, copied = HumanMessage("the secret", id="new"), standins._copied
    shown = hidden.content

    def hiding(live: Any, item: Any, dump: Any) -> Any:
        if item is hidden:
            hidden.content = "hidden"
        return copied(live, item, dump)

    monkeypatch.setattr(standins, "_copied", hiding)
    talk.append(hidden)
    thread.put(messages=talk)
    monkeypatch.undo()
    hidden.content = shown
    for number in range(3):
        talk.append(HumanMessage("more", id=f"more {number}"))
        thread.put(messages=talk)
        assert thread.read()["messages"] == talk


def test_a_change_that_is_taken_back_while_old_messages_are_looked_at(thread: Thread, monkeypatch: Any) -> None:
    talk = conversation()
    old, looking, hidden = talk[7], standins.read_state, "hidden"
    shown = old.content

    def hiding(item: Any) -> Any:
        if item is old:
            old.content = hidden
        look = looking(item)
        old.content = shown
        return look

    thread.put(messages=talk)
    monkeypatch.setattr(standins, "read_state", hiding)
    for _ in range(4):
        thread.put(messages=talk)
    monkeypatch.undo()
    old.content = hidden  # the very object that was there for a moment
    thread.put(messages=talk)
    assert thread.read()["messages"] == talk


@pytest.mark.parametrize("what", ["__dict__", "__pydantic_extra__", "__class__"])
def test_what_is_exchanged_as_a_whole_while_it_is_looked_at_is_not_watched(what: str) -> None:
    talk = conversation()
    looks = [read_state(one) for one in talk]
    snapshots = list(take_snapshots(talk, [], repr_of))
    assert Watch(talk[0]).add(talk, looks, snapshots)
    another: Any = Whisper if what == "__class__" else dict(getattr(talk[9], what))
    setattr(talk[9], what, another)
    assert not Watch(talk[0]).add(talk, looks, snapshots)


class Odd:
    """Compared with anything else, it complains."""

    def __init__(self, complaint: Exception) -> None:
        self.complaint = complaint

    def __eq__(self, other: object) -> bool:
        raise self.complaint

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("complaint", [AttributeError(), TypeError(), RuntimeError(), ValueError()], ids=repr)
@pytest.mark.parametrize("puts", [2, 5])
def test_a_value_that_cannot_be_compared_is_another_one(complaint: Exception, puts: int) -> None:
    talk = conversation()
    known = take_snapshots(talk, [], repr_of)
    for _ in range(puts):
        known = take_snapshots(talk, known, repr_of)
    talk[4].artifact["rows"] = Odd(complaint)
    changed = take_snapshots(talk, known, repr_of)
    assert [number for number, one in enumerate(changed) if one is not known[number]] == [4]
    assert changed[4] == repr_of(talk[4])


@pytest.mark.parametrize("value", [{"row": [1]}, [[1]], {(1,)}], ids=["dict", "list", "set"])
def test_what_grows_while_it_is_copied(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another thread: nothing may be raised from where a checkpoint is saved, and nobody copies for ever."""
    message = ToolMessage("found", tool_call_id="1", id="t", artifact=value)
    copy = standins._copy

    def growing(inner: Any) -> Any:
        if inner in ([1], (1,)):
            grow = {
                dict: lambda: value.update(more=[1]),
                list: lambda: value.append([1]),
                set: lambda: value.add("more"),
            }
            grow[type(value)]()
        return copy(inner)

    monkeypatch.setattr(standins, "_copy", growing)
    ((_, fields, _),) = take_snapshots([message], [], repr_of)
    assert len(fields["artifact"]) == 1
    assert len(value) == 2


def test_a_list_that_changed_keeps_no_watch_of_what_it_was() -> None:
    talk = conversation()
    known = talked(take_snapshots(talk, [], repr_of))
    for _ in range(4):
        known = talked(take_snapshots(talk, known, repr_of))
    assert known._watch is not None
    CHANGES["text"](talk)
    take_snapshots(talk, known, repr_of)
    assert known._watch is None


class Slotted(HumanMessage):
    """What it says is not all in its fields."""

    __slots__ = ("mood",)


def test_a_message_with_slots_of_its_own_is_serialized_each_time() -> None:
    assert not standins._is_transparent(Slotted)
    assert standins._is_transparent(Whisper)


def test_what_cannot_be_copied_is_not_watched() -> None:
    talk = conversation()
    known = talked(take_snapshots(talk, [], repr_of))
    for number in range(3):
        known = grown(talk, known, number)
    talk.append(HumanMessage("odd", additional_kwargs={"odd": Odd(ValueError())}))
    for _ in range(3):
        known = talked(take_snapshots(talk, known, repr_of))
        assert known._watch is None
