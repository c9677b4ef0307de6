"""Noticing that nothing changed about messages, by the objects that they are made of.

Most of what a message holds can be exchanged, but not changed: texts, numbers, None. As long as it refers to the same
objects it says the same, and to see that neither their text nor a copy of it has to be fetched from memory, which is
what comparing a long conversation waits for. What can be changed inside is looked into: what was empty must still be
empty, and the rest, which is little, is compared with copies.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from gc import get_referents
from typing import Any

from pydantic import BaseModel

ATOMS = frozenset([str, int, float, bool, bytes, type(None)])
"""What can be exchanged, but not changed."""


class Watch:
    """The objects that some messages were made of. It is set up before the copies are made with which the messages will
    be compared: whatever changes in between is seen as a change."""

    __slots__ = ("_copies", "_empty", "_fields", "_full", "_holders", "_parts", "first")

    def __init__(self, items: Sequence[Any]) -> None:
        self.first = items[0]
        self._parts: list[Any] = []
        """What the messages refer to: their fields, undeclared fields, and class."""
        self._fields: list[dict[str, Any]] = []
        self._holders: list[Any] = []
        """What the fields refer to."""
        self._empty: list[Any] = []
        self._full: list[Any] = []
        self._copies: list[Any] = []
        self.look_at(items)

    def look_at(self, items: Sequence[Any]) -> None:
        """Watch these as well. Their copies are to be given by `expect`, in the same order."""
        self._parts += get_referents(*items)
        fields = [item.__dict__ for item in items]
        self._fields += fields
        self._holders += get_referents(*fields)

    def expect(self, items: Sequence[Any], stand_ins: Sequence[Any]) -> None:
        """Compare what can change inside the messages with these copies."""
        for item, (_, fields, undeclared) in zip(items, stand_ins, strict=True):
            for name, value in item.__dict__.items():
                if type(value) not in ATOMS:
                    self._expect(value, fields.get(name))
            if item.__pydantic_extra__ is not None:
                self._expect(item.__pydantic_extra__, undeclared)

    def _expect(self, value: Any, copy: Any) -> None:
        if type(value) in (dict, list) and not value and not copy:
            self._empty.append(value)
        else:
            self._full.append(value)
            self._copies.append(copy)

    def holds(self, items: Sequence[Any]) -> bool:
        """Whether nothing changed about the messages, which are all that it was given. Raises whatever a comparison of
        what is in them raises."""
        return (
            get_referents(*items) == self._parts
            and get_referents(*self._fields) == self._holders
            and not get_referents(*self._empty)
            and self._full == self._copies
        )


class _Probe(BaseModel, extra="allow"):
    name: str


def _refers_to_all() -> bool:
    """Whether this Python tells of all that can be exchanged about a message, in an order that stays."""
    if sys.implementation.name != "cpython":
        return False
    probe = _Probe(name="name", other="other")  # type: ignore[call-arg]
    parts, values = get_referents(probe), [object() for _ in range(9)]
    wanted = (probe.__dict__, probe.__pydantic_extra__, _Probe)
    return (
        all(any(part is one for part in parts) for one in wanted)
        and get_referents({str(number): value for number, value in enumerate(values)}, probe.__dict__)
        == [*values, "name"]
        and not get_referents({}, [])
        and len(get_referents({"1": 1}, [1])) == 2
    )


CAN_WATCH = _refers_to_all()
