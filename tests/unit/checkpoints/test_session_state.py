"""`session.checkpoint` and `session.state`: every part of a state is returned unchanged, for any position or time."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime as dt
import enum
import pathlib
import random
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.seeds import seeded
from programs.side_effects import Open

import duramen
from duramen import Checkpoint, Duramen
from duramen.errors import CheckpointConflict, InvalidInput, UnknownSession, UnknownType
from duramen.testing.clock import FakeClock


@duramen.register(name="tests.state.Plan")
@dataclasses.dataclass
class Plan:
    title: str
    steps: list[str]
    due: dt.date | None = None


@duramen.register(name="tests.state.Mood")
class Mood(enum.Enum):
    CALM = "calm"


def nested(levels: int, innermost: Any) -> Any:
    """A value inside nested mappings."""
    return innermost if levels == 0 else {f"level {levels}": nested(levels - 1, innermost)}


VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.0, -0.0, 0.1, 2**70, -(2**70)),
    *("", "text", "\ud800", "x" * 20_000, b"", b"\x00\xff"),
    *((), (1,), ((), ([],)), [], [[]], [None], {}, {"": {}}, {"a": []}, {"a": {}}),
    *(set(), {1, 2}, frozenset({"a", (1, 2)})),
    *({1: "int", "1": "text", None: "none", (1, 2): "tuple", 2.5: "float"}, {True: 1, "t": {0: [], "0": ()}}),
    *([1, True, 1.0, "1", b"1", (1,), [1]], [{"a": 1}, {"a": True}, {"a": 1.0}], {"a": 1, "b": True, "c": 1.0}),
    dt.datetime(2026, 3, 29, 2, 30, 0, 7, tzinfo=dt.UTC),
    dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    *(dt.datetime(1, 1, 1), dt.date(2026, 1, 2), dt.time(23, 59), dt.timedelta(days=-1, microseconds=1)),
    *(Decimal("1.10"), uuid.UUID(int=7), pathlib.Path("/a/b"), 1 + 2j),
    *(Plan("p", ["a"], dt.date(2026, 1, 2)), Mood.CALM, [Plan("p", ["a"])] * 3),
    {"plan": Plan("p", []), "moods": [Mood.CALM, {"m": Mood.CALM}]},
    *(nested(6, [1, (2,)]), nested(12, [1, (2,)]), {"ключ": {"🔑": ["ß"]}}),
]


def typed(value: Any) -> Any:
    """A form that compares values with their types and the order of their items."""
    if isinstance(value, dict):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [typed(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(typed(item)) for item in value)
    return type(value), repr(value)


def values_of(checkpoint: Checkpoint | None) -> Any:
    assert checkpoint is not None
    return checkpoint.values


# -- content


@pytest.mark.promise("C2")
def test_all_six_parts_are_returned_unchanged(open_one: Open) -> None:
    dm, pairs = open_one(), []
    for number, value in enumerate(VALUES):
        other, third = VALUES[number - 1], VALUES[number - 2]
        parts: Any = {"next": other, "pending": third, "config": {"v": value}, "writes": [other, value], "step": number}
        pairs.append((dm.session("s").checkpoint(value, **parts), {"values": value, **parts}))
    for reader in (dm, open_one()):
        for saved, expected in pairs:
            loaded = reader.session("s").state(id=saved.id)
            assert loaded is not None
            got = {name: getattr(loaded, name) for name in expected}
            assert typed(got) == typed(expected)
            assert (loaded.position, loaded.time, loaded.kind) == (saved.position, saved.time, "manual")
    assert dm.verify().ok


@pytest.mark.promise("C2")
def test_equal_values_of_different_types_are_stored_separately(open_one: Open) -> None:
    equal_values: list[Any] = [
        1,
        True,
        1.0,
        "1",
        b"1",
        (1,),
        [1],
        -0.0,
        0.0,
        Decimal(1),
        Decimal("1.0"),
        {1},
        frozenset({1}),
    ]
    dm, pairs = open_one(), []
    for one in equal_values * 2:
        state = {"alone": one, "listed": ["first", one, {"deep": (one,)}], "only": [one]}
        pairs.append((dm.session("s").checkpoint(state), copy.deepcopy(state)))
        dm = open_one() if one == b"1" else dm
    for saved, expected in pairs:
        assert typed(values_of(dm.session("s").state(id=saved.id))) == typed(expected)


def test_later_changes_in_place_do_not_affect_a_checkpoint(dm: Duramen) -> None:
    session, pairs = dm.session("s"), []
    state: dict[str, Any] = {"l": [{"n": 0}, [0], Plan("p", [])], "d": {"x": {"y": [0]}}}
    for number in range(8):
        state["l"][0]["n"] = number
        state["l"][1].append(number)
        state["l"][2].steps.append(str(number))
        state["d"]["x"]["y"][0] = number
        pairs.append((session.checkpoint(state).id, copy.deepcopy(state)))
    for id, expected in pairs:
        assert values_of(session.state(id=id)) == expected


def test_a_state_that_changes_during_the_save_is_stored_consistently(any_address: str) -> None:
    async def main() -> Any:
        async with await duramen.aopen(any_address) as dm:
            session = dm.session("s")
            state: dict[str, Any] = {"count": 1, "messages": ["m1"], "deep": [{"n": 1}]}

            async def work() -> None:
                await asyncio.sleep(0)
                state["messages"].append("m2")
                state["deep"][0]["n"] = 2
                state["count"] = 2

            await asyncio.gather(session.checkpoint(state), work())
            return values_of(await session.state())

    assert asyncio.run(main()) in (
        {"count": 1, "messages": ["m1"], "deep": [{"n": 1}]},
        {"count": 2, "messages": ["m1", "m2"], "deep": [{"n": 2}]},
    )


def test_a_state_is_redacted_like_an_event(dm: Duramen) -> None:
    token = "ghp_" + "a" * 30
    parts: Any = {
        "config": {"secret": "aaaaaaaa", "db": {"url": "postgres://u:pass@host"}},
        "next": {"name": "password", "value": "abc12345"},
        "pending": [("password", "tup12345"), ["cookie", "left alone"]],
        "writes": {"headers": [["authorization", "zzzzzzzz"], ("cookie", "c=1234567")], "Headers": ("a", "b")},
    }
    state = {
        "password": "hunter2hunter",
        "n": {"api_key": b"abcdefgh", "tokens": 7},
        "text": f"it is {token}",
        "l": [token],
        "d": [nested(levels, {"password": "deep1234"}) for levels in range(12)],
        "m": {1: {"password": "x" * 9}},
        **nested(7, {"password": "deep1234"}),
    }
    redacted = dm.session("s").append("note", {"values": state, **parts}).data
    saved = dm.session("s").checkpoint(state, **parts)
    loaded = dm.session("s").state(id=saved.id)
    assert loaded is not None
    assert {name: getattr(loaded, name) for name in redacted} == redacted
    assert "hunter2hunter" not in repr(loaded)


def test_a_value_that_cannot_be_stored_is_rejected_with_its_path(dm: Duramen) -> None:
    session = dm.session("s")
    with pytest.raises(UnknownType) as caught:
        session.checkpoint({"a": {"b": [1, object()]}})
    assert caught.value.path.endswith(".a.b[1]")
    loop: dict[str, Any] = {}
    loop |= {str(number): loop for number in range(30)}
    with pytest.raises(InvalidInput, match="contains itself"):
        session.checkpoint(loop)
    assert session.state() is None
    assert session.head().position == 0, "nothing was stored"
    session.checkpoint({"\ud800": {"\udfff": 1}})
    assert values_of(session.state()) == {"\ud800": {"\udfff": 1}}


BAD: list[Callable[[Any, Any], Any]] = [
    lambda s, _: s.checkpoint(1, kind="sometimes"),
    lambda s, _: s.checkpoint(1, step=True),
    lambda s, _: s.checkpoint(1, step="1"),
    lambda s, _: s.checkpoint(1, nxt="misspelt"),
    lambda s, _: s.checkpoint(1, pin="yes"),
    lambda s, _: s.checkpoint(1, subject=""),
    lambda s, _: s.checkpoint(1, subject=5),
    lambda s, _: s.checkpoint(1, fence="x"),
    lambda s, _: s.state(at=-1),
    lambda s, _: s.state(at=True),
    lambda s, _: s.state(at=1.5),
    lambda s, _: s.state(at=dt.datetime(2026, 1, 1)),
    lambda s, _: s.state(id=5),
    lambda s, _: s.state(id=""),
    lambda s, _: s.state(id="a\0b"),
    lambda s, _: s.at(-1),
    lambda s, _: s.pin("unknown"),
    lambda s, _: s.pin(5),
    lambda s, id: s.pin(id, "yes"),
    lambda s, _: s.expire(keep_last="x"),
    lambda s, _: s.expire(keep_last=1.5),
    lambda s, _: s.expire(keep_last=-1),
    lambda s, _: s.expire(older_than="x"),
    lambda s, _: s.expire(older_than=-5),
    lambda s, _: s.expire(older_than=float("nan")),
    lambda s, _: list(s.checkpoints(limit="x")),
    lambda s, _: list(s.checkpoints(limit=-1)),
]


def test_invalid_arguments_are_rejected_with_a_hint(dm: Duramen) -> None:
    session = dm.session("s")
    first = session.checkpoint("saved")
    for bad in BAD:
        with pytest.raises(InvalidInput) as caught:
            bad(session, first.id)
        assert caught.value.hint
    with pytest.raises(UnknownSession):
        dm.fork("unknown", "new")
    assert [one.id for one in session.checkpoints()] == [first.id]
    assert values_of(session.state(at=2**80)) == "saved"
    assert session.head().position == 1


# -- past states


@pytest.mark.promise("C3")
@settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_the_state_at_any_position_and_time_equals_a_model(seed: int) -> None:
    clock = FakeClock(2_161_262_486_732_836)
    with duramen.open("memory:", clock=clock) as dm:
        compare_with_model(lambda: dm, clock, random.Random(seed), 40)


@pytest.mark.promise("C3")
def test_every_store_returns_the_state_at_any_position_and_time(open_one: Open, clock: FakeClock) -> None:
    compare_with_model(open_one, clock, seeded("past states"), 60)


def compare_with_model(open_one: Open, clock: FakeClock, chance: random.Random, turns: int) -> None:
    """Change and checkpoint a session at random, then compare the state at every position and time with a log."""
    session, log = open_one().session("s"), list[tuple[int, int, Any]]()
    state: dict[str, Any] = {"log": [0], "seen": {}, "wide": {}, "n": 0}
    for turn in range(turns):
        clock.advance(chance.choice([0, 1e-6, 1, 7.777777]))
        change_something(state, turn, chance)
        if chance.random() < 0.4:
            log.append((session.append("note", turn).position, clock.now(), None))
            continue
        saved = session.checkpoint(copy.deepcopy(state), step=turn)
        log.append((saved.position, clock.now(), (turn, copy.deepcopy(state))))
        if chance.random() < 0.2:
            session = open_one().session("s")
    assert [position for position, _, _ in log] == list(range(1, turns + 1))
    reader = open_one().session("s")
    for position, moment, _ in [(0, log[0][1] - 1, None), *log, (turns + 9, log[-1][1] + 9, None)]:
        by_place = [known for at, _, known in log if at <= position and known]
        by_time = [known for _, at, known in log if at <= moment and known]
        when = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=moment)
        for loaded, known in (
            (reader.at(position).state(), by_place),
            (session.state(at=position), by_place),
            (session.state(at=when), by_time),
        ):
            assert (loaded and (loaded.step, typed(loaded.values))) == (
                (known[-1][0], typed(known[-1][1])) if known else None
            )


def change_something(state: dict[str, Any], turn: int, chance: random.Random) -> None:
    """Grow, trim and edit a list, fill and empty a mapping, and grow another until it is stored in chunks."""
    what = chance.randrange(9)
    log, seen, wide = state["log"], state["seen"], state["wide"]
    if what == 0:
        log.append({"turn": turn, "text": "word " * chance.randrange(40)})
    elif what == 1:
        del log[: chance.randrange(3)]
    elif what == 2 and log:
        log[chance.randrange(len(log))] = chance.choice([turn, True, 1, 1.0, (turn,)])
    elif what == 3:
        seen[f"k{chance.randrange(9)}"] = {"turn": turn, "big": "x" * chance.choice([1, 100])}
    elif what == 4:
        seen.pop(next(iter(seen), None), None)
    elif what == 5:
        for number in range(chance.randrange(30)):
            wide[chance.choice(["", "a\0b", "ü", "w"]) + str(number)] = chance.choice([turn, True, None, (turn,), {}])
    elif what == 6:
        wide.setdefault("talk", []).extend(f"line {turn} " * 9 for _ in range(chance.randrange(20)))
    elif what == 7 and wide:
        wide.pop(chance.choice(list(wide)))
    state["n"] = chance.choice([turn, state["n"]])


def test_a_checkpoint_has_the_time_of_its_event(dm: Duramen) -> None:
    session = dm.session("s")
    saved = [session.checkpoint(number) for number in range(20)]
    assert [one.time for one in saved] == [event.time for event in session.events()]
    for one in saved:
        loaded = session.state(at=one.at)
        assert loaded is not None
        assert loaded.time == one.time


def test_checkpoints_are_listed_newest_first_without_values(dm: Duramen) -> None:
    session = dm.session("s")
    assert list(session.checkpoints()) == []
    kinds = ["manual", "subtask", "irreversible", "periodic"]
    saved = [
        session.checkpoint({"n": number}, kind=kinds[number % 4], step=number, pin=number == 3) for number in range(120)
    ]
    listed = list(session.checkpoints())
    assert [(one.id, one.step, one.kind, one.pinned, one.values) for one in listed] == [
        (saved[number].id, number, kinds[number % 4], number == 3, None) for number in reversed(range(120))
    ]
    assert [one.step for one in session.checkpoints(limit=3)] == [119, 118, 117]
    assert list(session.checkpoints(limit=0)) == []


def test_the_async_api_does_the_same(any_address: str) -> None:
    async def main() -> None:
        async with await duramen.aopen(any_address) as dm:
            session = dm.session("s")
            saved = [await session.checkpoint({"n": [number]}, next=("go", number)) for number in range(5)]
            assert [one.id async for one in session.checkpoints()] == [one.id for one in reversed(saved)]
            loaded = await session.at(saved[2].position).state()
            assert loaded is not None
            assert (loaded.values, loaded.next) == ({"n": [2]}, ("go", 2))
            with pytest.raises(CheckpointConflict):
                await session.checkpoint(0, after=saved[3].id)
            fork = await dm.fork("s", "fork", at=saved[1].position)
            assert values_of(await fork.state()) == {"n": [1]}
            await session.pin(saved[0].id)
            assert await session.expire() == 2, "the pinned one, the fork point and the newest stay"
            assert [one.id async for one in session.checkpoints()] == [saved[4].id, saved[1].id, saved[0].id]

    asyncio.run(main())
