"""The compiled look at what objects refer to says what `gc.get_referents` says."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import Any

import pytest
from programs.compiling import HAS_COMPILER
from pydantic import BaseModel

from duramen.integrations.langgraph import change_detection as watching

compiled = pytest.mark.skipif(not HAS_COMPILER, reason="there is no compiler")


class Message(BaseModel, extra="allow"):
    text: str
    parts: list[Any] = []
    more: dict[str, Any] = {}


def some_objects(chance: random.Random) -> list[Any]:
    """Many kinds, those included that refer to nothing, or are not known to the collector at all."""
    kinds: list[Any] = [
        lambda: Message(text=f"{chance.random()}", more={"a": [1]}, other=object()),
        lambda: Message(text="x", parts=[1, "two", None]),
        lambda: {f"{number}": object() for number in range(chance.randrange(40))},
        lambda: {object(): number for number in range(3)},
        lambda: [object() for _ in range(chance.randrange(40))],
        lambda: (object(), [], {}),
        lambda: {chance.random()},
        lambda: chance.choice([7, "text", None, b"bytes", 1.5, object(), Message, len, gc, {}, [], ()]),
    ]
    return [chance.choice(kinds)() for _ in range(chance.randrange(100))]


def change(one: Any) -> None:
    """Let it refer to something else, or to one thing more or less."""
    if isinstance(one, Message):
        one.__dict__ = {**one.__dict__}
    elif isinstance(one, dict):
        one.popitem() if len(one) % 2 else one.update(new=object())
    elif isinstance(one, list):
        one.pop() if len(one) % 2 else one.append(object())
    else:
        one.clear()


@compiled
@pytest.mark.parametrize("seed", range(50))
def test_what_objects_refer_to_is_compared_one_by_one(seed: int) -> None:
    from duramen.integrations.langgraph._referring import refers_to

    chance = random.Random(seed)
    objects = some_objects(chance)
    found = gc.get_referents(*objects)
    assert refers_to(objects, found)
    assert refers_to(tuple(objects), tuple(found))
    assert not refers_to(objects, [*found, None])
    for _ in range(5):
        if found:
            place = chance.randrange(len(found))
            assert not refers_to(objects, [*found[:place], object(), *found[place + 1 :]])
            assert not refers_to(objects, found[:place])
    changing = [one for one in objects if isinstance(one, (Message, dict, list, set))]
    if changing:
        change(chance.choice(changing))
        assert not refers_to(objects, found)
        assert refers_to(objects, gc.get_referents(*objects))


def some_containers(chance: random.Random) -> list[Any]:
    kinds: list[Any] = [
        lambda: {f"{number}": object() for number in range(chance.randrange(30))},
        lambda: dict.fromkeys(range(chance.randrange(3))),
        lambda: [object() for _ in range(chance.randrange(30))],
        dict,
        list,
    ]
    return [chance.choice(kinds)() for _ in range(1 + chance.randrange(60))]


def held_by(containers: list[Any]) -> list[Any]:
    found: list[Any] = []
    for one in containers:
        found += (part for pair in one.items() for part in pair) if isinstance(one, dict) else one
        found.append(one)
    return found


@compiled
@pytest.mark.parametrize("seed", range(50))
def test_what_dicts_and_lists_hold_is_compared_one_by_one(seed: int) -> None:
    from duramen.integrations.langgraph._referring import holds

    chance = random.Random(seed)
    containers = some_containers(chance)
    held = held_by(containers)
    assert holds(containers, held)
    assert not holds(containers, [*held, None])
    assert not holds(containers, held[:-1])
    place = chance.randrange(len(held))
    assert not holds(containers, [*held[:place], object(), *held[place + 1 :]])
    one = chance.choice(containers)
    if isinstance(one, dict) and one:
        one[f"renamed {seed}"] = one.pop(next(iter(one)))
    else:
        change(one)
    assert not holds(containers, held)
    assert holds(containers, held_by(containers))


@compiled
def test_nothing_moves_from_one_list_to_the_next_unnoticed() -> None:
    from duramen.integrations.langgraph._referring import holds

    first, second = ["a", "b"], ["c"]
    held = held_by([first, second])
    second.insert(0, first.pop())
    assert not holds([first, second], held)


@compiled
def test_equal_objects_are_not_the_same() -> None:
    from duramen.integrations.langgraph._referring import refers_to

    one, other = "a text" * 2, "".join(["a text"] * 2)
    assert refers_to([[one]], [one])
    assert not refers_to([[one]], [other])
    assert watching.HeldInPython.refers([[one]], [other])


@compiled
def test_what_was_found_to_differ_differs_whatever_comes_after_it() -> None:
    """Futures go on after they were told to stop, on some versions of Python."""
    from duramen.integrations.langgraph._referring import refers_to

    class Future(asyncio.Future[None]):
        pass

    loop = asyncio.new_event_loop()
    try:
        future: Any = Future(loop=loop)
        future.extra = 1
        found = gc.get_referents(future)
        assert refers_to([future], found)
        assert not any(refers_to([future, []], found[:count]) for count in range(len(found)))
    finally:
        loop.close()


@compiled
@pytest.mark.parametrize("given", [(), ([],), ([], None), ({}, []), ([], [], []), (iter([]), [])])
def test_anything_else_is_refused(given: tuple[Any, ...]) -> None:
    from duramen.integrations.langgraph._referring import holds, refers_to

    for function in (holds, refers_to):
        with pytest.raises(TypeError, match="two lists or tuples"):
            function(*given)
    with pytest.raises(TypeError, match="dicts and lists only"):
        holds([set()], [])


@compiled
def test_it_is_used_where_it_could_be_compiled() -> None:
    """Or a build that fails would only be seen by its slowness."""
    assert watching.HELD is watching.Held
