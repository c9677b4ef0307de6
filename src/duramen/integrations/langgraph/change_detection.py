"""Detects that a list of messages has not changed, by the identity of the objects in them.

Most values in a message are immutable: strings, numbers, None. While a message refers to the same objects, it has the
same content. Checking this reads no text from memory, and reading a long conversation from memory is the slow part of
a comparison. Dicts and lists in a message are mutable: an empty one must still be empty, any other one is compared
with its copy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from gc import get_referents
from itertools import chain
from typing import Any, NamedTuple

from pydantic import BaseModel

ATOMS = frozenset([str, int, float, bool, bytes, type(None)])
"""Immutable types: a field can get another value, but the value itself cannot change."""


class MessageState(NamedTuple):
    """The state of a message at one moment: its `__dict__`, and everything that can change about it (its class, a
    shallow copy of its fields, and its undeclared fields)."""

    own: dict[str, Any]
    content: tuple[type[Any], dict[str, Any], dict[str, Any] | None]


def read_state(item: Any) -> MessageState:
    """The current state of a message. Raises AttributeError if the item is not a pydantic model."""
    own: dict[str, Any] = item.__dict__
    return MessageState(own, (item.__class__, own.copy(), item.__pydantic_extra__))


class Watch:
    """The objects that some messages referred to when `read_state` read them.

    Another thread may change a message at any time. The watched objects and the snapshot of a message must be from the
    same moment. Otherwise a message that changed and changed back would count as unchanged.
    """

    __slots__ = ("_copies", "_counts", "_empty", "_fields", "_full", "_names", "_parts", "_values", "first")

    def __init__(self, first: Any) -> None:
        self.first = first
        self._parts: list[Any] = []
        """The objects that the messages refer to: their fields, undeclared fields, and class."""
        self._fields: list[dict[str, Any]] = []
        """The `__dict__` of each message. The next three hold the number of its fields, their names and their
        values."""
        self._counts: list[int] = []
        self._names: list[str] = []
        self._values: list[Any] = []
        self._empty: list[Any] = []
        self._full: list[Any] = []
        self._copies: list[Any] = []

    def add(self, items: Sequence[Any], states: Sequence[MessageState], snapshots: Sequence[Any]) -> bool:
        """Watch more messages, which were read as `states`. The snapshots were copied from `states`. Returns False if
        the state of a message was replaced since then. The watch must not be used after that."""
        for item, state, (_, copied, copied_more) in zip(items, states, snapshots, strict=True):
            kind, fields, undeclared = state.content
            parts = get_referents(item)
            now = read_state(item)
            if now.own is not state.own or now.content[0] is not kind or now.content[2] is not undeclared:
                return False
            if not {id(state.own), id(kind), id(undeclared)} <= set(map(id, parts)):
                return False  # the state was replaced and restored
            self._parts += parts
            self._fields.append(state.own)
            self._counts.append(len(fields))
            self._names += fields
            self._values += fields.values()
            for name, value in fields.items():
                if type(value) not in ATOMS:
                    self._watch_inside(value, copied.get(name))
            if undeclared is not None:
                self._watch_inside(undeclared, copied_more)
        return True

    def _watch_inside(self, value: Any, copy: Any) -> None:
        if type(value) in (dict, list) and type(copy) is type(value) and not value and not copy:
            self._empty.append(value)
        else:
            self._full.append(value)
            self._copies.append(copy)

    def holds(self, items: Sequence[Any]) -> bool:
        """Whether these messages are unchanged. They must be all the messages that were added. Raises any error that
        comparing their values raises."""
        return (
            get_referents(*items) == self._parts
            and not get_referents(*self._empty)
            and get_referents(*self._fields) == self._values
            and list(map(len, self._fields)) == self._counts
            and list(chain.from_iterable(self._fields)) == self._names
            and self._full == self._copies
        )


class _Probe(BaseModel, extra="allow"):
    name: str


def _refers_to_all() -> bool:
    """Whether `get_referents` returns everything in a message that can be replaced, in a stable order."""
    if sys.implementation.name != "cpython":
        return False
    probe = _Probe(name="name", other="other")  # type: ignore[call-arg]
    parts, values = get_referents(probe), [object() for _ in range(9)]
    wanted = (probe.__dict__, probe.__pydantic_extra__, _Probe)
    named = {str(number): value for number, value in enumerate(values)}
    return (
        all(any(part is one for part in parts) for one in wanted)
        and get_referents(named, probe.__dict__) == [*values, "name"]
        and not get_referents({}, [])
        and len(get_referents({"1": 1}, [1])) == 2
    )


CAN_WATCH = _refers_to_all()
