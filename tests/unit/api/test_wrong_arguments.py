"""Every public function and method gets one wrong argument at a time: it works, or raises a named, short error, and the
store still works afterwards."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import wrong_arguments as fuzz
from programs.wrong_arguments import Argument, World, settled

import duramen
from duramen.api.settings import Settings
from duramen.errors import DuramenError, InvalidInput, clipped, shown
from duramen.runtime import drive

EXPECTED = {"RunHandle.result": TimeoutError}
"""Documented errors of other classes."""


def judge(what: str, error: BaseException) -> str | None:
    """What is wrong with an error; None if it is named and short."""
    if not isinstance(error, DuramenError):
        return f"{what}: {type(error).__name__}: {clipped(str(error))}"
    if len(error.message) > 300 or len(str(error)) > 900:
        return f"{what}: {type(error).__name__} with {len(error.message)} and {len(str(error))} characters"
    try:
        str(error).encode()
    except UnicodeEncodeError:
        return f"{what}: the message cannot be printed"
    return None


def values_for(argument: Argument) -> dict[str, Any]:
    left_out = ("one", "float") if argument.name in fuzz.WAITS else ()
    left_out += ("function", "class") if argument.name in fuzz.CALLED else ()
    return {label: value for label, value in fuzz.wrong_values().items() if label not in left_out}


async def attack(world: World, method: str, labels: set[str] | None = None) -> list[str]:
    """Call a method with each wrong value for each argument. Returns what went wrong."""
    target = await world.target(method.partition(".")[0])
    found = []
    for argument in fuzz.arguments(getattr(target, method.partition(".")[2])):
        for label, value in values_for(argument).items():
            if (method, argument.name, label) in fuzz.SKIPPED or (labels is not None and label not in labels):
                continue
            what = f"{method}({argument.name}={label})"
            try:
                await fuzz.call(world, target, method, argument, value)
            except Exception as error:  # noqa: BLE001 - judged
                if isinstance(error, EXPECTED.get(method, ())):
                    continue
                complaint = judge(what, error)
                found += [] if complaint is None else [complaint]
    return found


async def expect_healthy(world: World) -> None:
    """Other data can be written and read, other runs are executed, and the store is intact."""
    dm = world.dm
    await settled(dm.session("healthy").append("note", "after"))
    assert [event.data for event in await settled(dm.session("healthy").events())] == ["after"]
    run = await settled(dm.start(fuzz.idle, 1, 2, id="healthy run"))
    await settled(dm.work([fuzz.idle], until_idle=True))
    assert await settled(run.result(timeout=1)) == 2
    assert await settled(dm.runs(limit=1000))
    await settled(dm.memory.recall("Rome"))
    checked = await settled(dm.verify())
    assert checked.ok, checked.problems


async def attack_and_check(dm: Any, folder: Path, method: str) -> list[str]:
    world = await World(dm, folder).build()
    await fuzz.call(world, await world.target(method.partition(".")[0]), method, None, None)  # the valid call works
    found = await attack(world, method)
    await expect_healthy(world)
    return found


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some wrong values are valid names of files."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.promise("X34")
@pytest.mark.parametrize("method", fuzz.methods())
def test_a_wrong_argument_raises_a_named_error(method: str, tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm:
        assert not drive(attack_and_check(dm, tmp_path, method))


@pytest.mark.promise("X34")
@pytest.mark.parametrize("method", fuzz.methods())
def test_a_wrong_argument_raises_a_named_error_async(method: str, tmp_path: Path) -> None:
    async def main() -> list[str]:
        async with await duramen.aopen("memory:", embedder="none") as dm:
            return await attack_and_check(dm, tmp_path, method)

    assert not asyncio.run(main())


@pytest.mark.promise("X34")
@pytest.mark.parametrize("kind", ["Duramen", "Session", "SharedState", "Lease"])
def test_a_wrong_argument_raises_a_named_error_on_postgresql(kind: str, postgres_url: str, tmp_path: Path) -> None:
    """Values that PostgreSQL treats in another way than SQLite."""
    found: list[str] = []
    labels = {"beyond 64 bits", "bytes", "lone surrogate", "NUL"}
    with duramen.open(postgres_url, embedder="none") as dm:
        world = drive(World(dm, tmp_path).build())
        for method in fuzz.methods():
            if method.startswith(f"{kind}.") and method not in ("Session.turn", "Duramen.files"):
                found += drive(attack(world, method, labels))
        drive(expect_healthy(world))
    assert not found


def test_nothing_public_is_left_out() -> None:
    """A new public name needs a place in the tables of these tests."""
    names = [line.split(" as ")[1].strip() for line in _stub().splitlines() if " as " in line]
    handles = {kind.__name__ for pair in fuzz.CLASSES.values() for kind in pair}
    known = {*handles, *fuzz.CONSTRUCTED, *fuzz.RECORDS, *fuzz.INSIDE, *fuzz.FUNCTIONS, "errors"}
    assert set(names) <= known
    for sync, other in fuzz.CLASSES.values():
        assert {name for name in dir(sync) if not name.startswith("_")} >= {
            name for name in dir(other) if not name.startswith("_")
        }


def _stub() -> str:
    return Path(duramen.__file__).with_suffix(".pyi").read_text()


@pytest.mark.promise("X34")
@pytest.mark.parametrize("name", fuzz.CONSTRUCTED)
def test_a_wrong_argument_of_a_class(name: str) -> None:
    kind, found = getattr(duramen, name), []
    for argument in fuzz.arguments(kind):
        for label, value in fuzz.wrong_values().items():
            try:
                kind(**{**fuzz.CONSTRUCTED[name], argument.name: value})
            except Exception as error:  # noqa: BLE001 - judged
                found.append(judge(f"{name}({argument.name}={label})", error))
    assert not [one for one in found if one is not None]


@pytest.mark.promise("X34")
@pytest.mark.parametrize("name", fuzz.INSIDE)
def test_a_wrong_argument_inside_a_run(name: str, tmp_path: Path) -> None:
    """The call raises a named error, or the run waits. The other runs continue."""
    function, found = getattr(duramen, name), []

    def act(argument: Argument, values: dict[str, Any]) -> None:
        for label, value in values.items():
            given = {**fuzz.INSIDE[name], argument.name: value}
            steps = [given.pop("steps")] if "steps" in given else []
            try:
                function(*steps, **given)
            except Exception as error:  # noqa: BLE001 - judged
                found.append(judge(f"{name}({argument.name}={label})", error))

    with duramen.open(tmp_path / "agent.db", embedder="none") as dm:
        dm._core._engine.patience = 0
        for argument in fuzz.arguments(function):
            values = fuzz.wrong_values()
            groups = [{label: values[label]} for label in values] if name in fuzz.WAITING else [values]
            for group in groups:

                @duramen.task(name="acts")
                def acts(argument: Argument = argument, group: dict[str, Any] = group) -> None:
                    acting = duramen.step(name="act")(lambda: act(argument, group))
                    acting() if name in fuzz.IN_STEPS else act(argument, group)

                run = dm.start(acts)
                dm.work([acts], until_idle=True)
                assert run.info().status in ("done", "sleeping", "waiting")
        drive(expect_healthy(drive(World(dm, tmp_path).build())))
    assert not [one for one in found if one is not None]


@pytest.mark.promise("X34")
@pytest.mark.parametrize("setting", ["address", *Settings.__annotations__])
def test_a_wrong_setting(setting: str, tmp_path: Path) -> None:
    found = []
    for number, (label, value) in enumerate(fuzz.wrong_values().items()):
        if label in ("function", "class") and setting in {*fuzz.CALLED, "key"}:
            continue  # a function may return the key
        given = {"address": str(tmp_path / f"{number}.db"), "embedder": "none", setting: value}
        address = given.pop("address")
        try:
            with duramen.open(address, **given) as dm:
                dm.session("s").append("note", {"token": "x"})
                dm.session("s").context()
                dm.memory.recall("Rome")
                assert dm.verify().ok
        except Exception as error:  # noqa: BLE001 - judged
            found.append(judge(f"open({setting}={label})", error))
    assert not [one for one in found if one is not None]


@pytest.mark.promise("X34")
@pytest.mark.parametrize("declare", [duramen.step, duramen.task, duramen.register])
def test_a_wrong_option_of_a_decorator(declare: Any) -> None:
    kind = {"step": "name check in_doubt irreversible retry timeout undo", "task": "name version deadline"}
    names = kind.get(declare.__name__, "name version upcasts").split()
    found = []
    for name in names:
        for label, value in fuzz.wrong_values().items():

            class Plain:
                """A class that cannot be registered by this name twice."""

            thing = Plain if declare is duramen.register else lambda: None
            try:
                declare(**{"name": f"{declare.__name__} {name} {label}", name: value})(thing)
            except Exception as error:  # noqa: BLE001 - judged
                found.append(judge(f"{declare.__name__}({name}={label})", error))
    for label, value in fuzz.wrong_values().items():
        try:
            declare(value)
        except Exception as error:  # noqa: BLE001 - judged
            found.append(judge(f"{declare.__name__}({label})", error))
    assert not [one for one in found if one is not None]


def test_values_in_messages_are_short() -> None:
    """`shown` never raises, also close to the end of the stack."""
    for value in fuzz.wrong_values().values():
        assert len(shown(value)) <= 100
    assert shown("it's") == repr("it's")
    assert shown(0) == "0"
    assert "secret" not in shown("postgresql://me:secret@host/db")
    assert "secret" not in shown("postgresql://host/db?password=secret")

    def descend(left: int) -> str:
        return shown(fuzz.nested(5)) if left == 0 else descend(left - 1)

    depth = sys.getrecursionlimit() - len(inspect.stack()) - 20
    assert descend(depth)
    with pytest.raises(InvalidInput, match="the run cannot be"):
        duramen.open("memory:").run_info(fuzz.nested(10_000))  # type: ignore[arg-type]
