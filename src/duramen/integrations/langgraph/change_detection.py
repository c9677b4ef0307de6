"""Noticing that nothing changed about messages, by the objects that they are made of.

Most of what a message holds can be exchanged, but not changed: texts, numbers, None. As long as it refers to the same
objects it says the same, and to see that neither their text nor a copy of it has to be fetched from memory, which is
what comparing a long conversation waits for. Dicts and lists in it must hold the same objects, too, as far as compiled
code looks into them; otherwise what was empty must still be empty. What else there is, is compared with copies.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from gc import get_referents
from itertools import chain
from typing import Any, NamedTuple

from pydantic import BaseModel

try:
    from . import _referring
except ImportError:  # there was no compiler when this was installed
    _referring = None  # type: ignore[assignment]

ATOMS = frozenset([str, int, float, bool, bytes, type(None)])
"""What can be exchanged, but not changed."""


class Look(NamedTuple):
    """A message as it was at one moment: where its fields lie, and all that can change about it, which is its class,
    its fields and its undeclared fields. The fields are copied, what is in them is not."""

    own: dict[str, Any]
    said: tuple[type[Any], dict[str, Any], dict[str, Any] | None]


def look_at(item: Any) -> Look:
    """A message as it is now. AttributeError if it is none."""
    own: dict[str, Any] = item.__dict__
    return Look(own, (item.__class__, own.copy(), item.__pydantic_extra__))


class Held:
    """What some dicts and lists held when they were looked at: which objects, in which order."""

    __slots__ = ("_containers", "_contents")

    looks_inside = True
    """Whether it can hold more than the fields of messages, and what is empty, at no great cost."""

    def __init__(self) -> None:
        self._containers: list[Any] = []
        self._contents: list[Any] = []
        """After what is in each container comes the container: so nothing moves to the next one unnoticed."""

    def add(self, container: Any, contents: Sequence[Any]) -> None:
        """Note that a list held these items, or a dict these keys and values in turn."""
        self._containers.append(container)
        self._contents += contents
        self._contents.append(container)

    def still(self) -> bool:
        """Whether they all hold that now."""
        return _referring.holds(self._containers, self._contents)

    @staticmethod
    def refers(items: Sequence[Any], parts: Sequence[Any]) -> bool:
        """Whether these items refer to these objects, in that order."""
        return _referring.refers_to(items, parts)


class HeldInPython(Held):
    """The same, in Python: what was empty is apart, as most of it is."""

    __slots__ = ("_counts", "_empty", "_names")

    looks_inside = False

    def __init__(self) -> None:
        super().__init__()
        self._empty: list[Any] = []
        self._counts: list[int] = []
        self._names: list[Any] = []

    def add(self, container: Any, contents: Sequence[Any]) -> None:
        if not contents:
            self._empty.append(container)
            return
        self._containers.append(container)
        self._counts.append(len(contents) // 2)
        self._names += contents[::2]
        self._contents += contents[1::2]

    def still(self) -> bool:
        return (
            not get_referents(*self._empty)
            and get_referents(*self._containers) == self._contents
            and list(map(len, self._containers)) == self._counts
            and list(chain.from_iterable(self._containers)) == self._names
        )

    @staticmethod
    def refers(items: Sequence[Any], parts: Sequence[Any]) -> bool:
        return get_referents(*items) == parts


HELD: type[Held] = HeldInPython if _referring is None else Held


class Watch:
    """The objects that some messages were made of when they were looked at, from which their stand-ins come. Other
    threads may change a message at any time: what it is watched by and what stands for it must be of one moment, or it
    would count as unchanged once it is again as it was at the other."""

    __slots__ = ("_copies", "_full", "_held", "_parts", "first")

    def __init__(self, first: Any) -> None:
        self.first = first
        self._parts: list[Any] = []
        """What the messages refer to: their fields, undeclared fields, and class."""
        self._held = HELD()
        self._full: list[Any] = []
        self._copies: list[Any] = []

    def add(self, items: Sequence[Any], looks: Sequence[Look], stand_ins: Sequence[Any]) -> bool:
        """Watch these, too, as they were when they were looked at; the stand-ins are what was copied from that. False
        if one was exchanged as a whole since then: then the watch is good for nothing."""
        for item, look, (_, copied, copied_more) in zip(items, looks, stand_ins, strict=True):
            kind, fields, undeclared = look.said
            parts = get_referents(item)
            there = look_at(item)
            if there.own is not look.own or there.said[0] is not kind or there.said[2] is not undeclared:
                return False
            if not {id(look.own), id(kind), id(undeclared)} <= set(map(id, parts)):
                return False  # it was exchanged, and set back at once
            self._parts += parts
            self._held.add(look.own, [*chain.from_iterable(fields.items())])
            for name, value in fields.items():
                if type(value) not in ATOMS:
                    self._expect(value, copied.get(name))
            if undeclared is not None:
                self._expect(undeclared, copied_more)
        return True

    def _expect(self, value: Any, copy: Any) -> None:
        """Watch what can change inside a message, or compare it with its copy."""
        found: list[tuple[Any, list[Any]]] = []
        if self._found(value, copy, found):
            for container, contents in found:
                self._held.add(container, contents)
        else:
            self._full.append(value)
            self._copies.append(copy)

    def _found(self, value: Any, copy: Any, found: list[tuple[Any, list[Any]]]) -> bool:
        """Find out which objects a dict or list holds, and those in it. False if it cannot be watched by that, or if
        that is not what its copy says."""
        if type(value) is dict and type(copy) is dict:
            held, told = [*chain.from_iterable(value.copy().items())], [*chain.from_iterable(copy.items())]
        elif type(value) is list and type(copy) is list:
            held, told = value.copy(), copy
        else:
            return False
        if len(held) != len(told) or (held and not self._held.looks_inside):
            return False
        found.append((value, held))
        return all(_same(one, other) or self._found(one, other, found) for one, other in zip(held, told, strict=True))

    def holds(self, items: Sequence[Any]) -> bool:
        """Whether nothing changed about the messages, which are all that it was given. Raises whatever a comparison of
        what is in them raises."""
        return self._held.refers(items, self._parts) and self._held.still() and self._full == self._copies


def _same(one: Any, other: Any) -> bool:
    return type(one) in ATOMS and type(one) is type(other) and (one is other or one == other)


class _Probe(BaseModel, extra="allow"):
    name: str


def _refers_to_all() -> bool:
    """Whether this Python tells of all that can be exchanged about a message, in an order that stays."""
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
