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


def seem_to_refer_to(objects: Sequence[Any], expected: Sequence[Any], /) -> bool:
    """Whether these objects refer to those, or to some that are equal, in that order."""
    return get_referents(*objects) == expected


def are_empty(containers: Sequence[Any], _: Sequence[Any], /) -> bool:
    """Whether these dicts and lists hold nothing."""
    return not get_referents(*containers)


try:
    from ._referring import holds, refers_to

    CAN_LOOK_INSIDE = True
except ImportError:  # there was no compiler when this was installed
    holds, refers_to = are_empty, seem_to_refer_to
    CAN_LOOK_INSIDE = False

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


class Watch:
    """The objects that some messages were made of when they were looked at, from which their stand-ins come. Other
    threads may change a message at any time: what it is watched by and what stands for it must be of one moment, or it
    would count as unchanged once it is again as it was at the other."""

    __slots__ = ("_containers", "_contents", "_copies", "_fields", "_full", "_holders", "_parts", "first")

    def __init__(self, first: Any) -> None:
        self.first = first
        self._parts: list[Any] = []
        """What the messages refer to: their fields, undeclared fields, and class."""
        self._fields: list[dict[str, Any]] = []
        self._holders: list[Any] = []
        """What the fields refer to."""
        self._containers: list[Any] = []
        self._contents: list[Any] = []
        """What the dicts and lists in the fields hold, and those in them; after each comes itself."""
        self._full: list[Any] = []
        self._copies: list[Any] = []

    def add(self, items: Sequence[Any], looks: Sequence[Look], stand_ins: Sequence[Any]) -> bool:
        """Watch these, too, as they were when they were looked at; the stand-ins are what was copied from that. False
        if one was exchanged as a whole since then: then the watch is good for nothing."""
        self._parts += get_referents(*items)
        for item, look, (_, copied, copied_more) in zip(items, looks, stand_ins, strict=True):
            kind, fields, undeclared = look.said
            if item.__dict__ is not look.own or item.__class__ is not kind or item.__pydantic_extra__ is not undeclared:
                return False
            self._fields.append(look.own)
            self._holders += fields.values()
            for name, value in fields.items():
                if type(value) not in ATOMS:
                    self._expect(value, copied.get(name))
            if undeclared is not None:
                self._expect(undeclared, copied_more)
        return True

    def _expect(self, value: Any, copy: Any) -> None:
        """Watch what can change inside a message, or compare it with its copy."""
        containers: list[Any] = []
        contents: list[Any] = []
        if _note(value, copy, containers, contents):
            self._containers += containers
            self._contents += contents
        else:
            self._full.append(value)
            self._copies.append(copy)

    def holds(self, items: Sequence[Any]) -> bool:
        """Whether nothing changed about the messages, which are all that it was given. Raises whatever a comparison of
        what is in them raises."""
        return (
            refers_to(items, self._parts)
            and refers_to(self._fields, self._holders)
            and holds(self._containers, self._contents)
            and self._full == self._copies
        )


def _note(value: Any, copy: Any, containers: list[Any], contents: list[Any]) -> bool:
    """Note which objects a dict or list holds, and those in it. False if it cannot be watched by that, or if that is
    not what its copy says."""
    if type(value) is dict and type(copy) is dict:
        held, told = [*chain.from_iterable(value.copy().items())], [*chain.from_iterable(copy.items())]
    elif type(value) is list and type(copy) is list:
        held, told = value.copy(), copy
    else:
        return False
    if len(held) != len(told) or (held and not CAN_LOOK_INSIDE):
        return False
    containers.append(value)
    contents += held
    contents.append(value)
    return all(
        (type(one) in ATOMS and type(one) is type(other) and (one is other or one == other))
        or _note(one, other, containers, contents)
        for one, other in zip(held, told, strict=True)
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
    named = {str(number): value for number, value in enumerate(values)}
    return (
        all(any(part is one for part in parts) for one in wanted)
        and get_referents(named, probe.__dict__) == [*values, "name"]
        and not get_referents({}, [])
        and len(get_referents({"1": 1}, [1])) == 2
    )


CAN_WATCH = _refers_to_all()
