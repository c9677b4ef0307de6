"""Concurrent saves, drops, erasures and loads of checkpoints lose nothing and mix nothing up."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from programs.checkpoint_writers import as_loaded, checkpoints_of, fields_of, list_checkpoints, texts
from programs.child_processes import ChildProcesses, Gate
from programs.side_effects import Open

import duramen
from duramen import crash_points as crashpoints
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.checkpoints.manifest import BytesField
from duramen.errors import CheckpointConflict
from duramen.runtime import drive


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def once_at() -> Iterator[Callable[[str, Callable[[], Any]], None]]:
    """Calls a function when execution first reaches a point, as if another process acted at that moment."""

    def once_at(point: str, work: Callable[[], Any]) -> None:
        def listener(reached: str) -> None:
            if reached == point:
                crashpoints.listen(None)
                work()

        crashpoints.listen(listener)

    yield once_at
    crashpoints.listen(None)


OnceAt = Callable[[str, Callable[[], Any]], None]


def save(cp: Checkpoints, number: int, writer: str = "", **options: Any) -> None:
    drive(cp.save("s", "main", fields_of(number, writer), {"n": number}, id=f"{writer}{number}", **options))


def expect(cp: Checkpoints, id: str | None, number: int, writer: str = "") -> None:
    """Check that a checkpoint, or the newest one, has this number."""
    loaded = drive(cp.load("s", "main", id=id))
    assert loaded is not None
    assert loaded.id == f"{writer}{number}"
    assert loaded.skipped == ()
    assert loaded.fields == as_loaded(fields_of(number, writer))


# -- at chosen moments


@pytest.fixture
def pair(open_one: Open) -> tuple[Checkpoints, Checkpoints]:
    """Two writers with separate caches, and four states."""
    one, two = checkpoints_of(open_one()), checkpoints_of(open_one())
    for number in range(4):
        save(one, number)
    expect(two, None, 3)
    return one, two


Pair = tuple[Checkpoints, Checkpoints]


@pytest.mark.promise("C8")
@pytest.mark.parametrize("point", ["checkpoints.dropping", "append.encoded"])
def test_a_save_during_a_drop_survives(pair: Pair, once_at: OnceAt, point: str) -> None:
    one, two = pair
    once_at(point, lambda: save(two, 4))
    assert drive(one.drop("s", "main", ["0", "3"], reason="test")) == 2
    for cp in pair:
        expect(cp, None, 4)
        for number in (1, 2, 4):
            expect(cp, str(number), number)
        assert [saved.id for saved in list_checkpoints(cp, "s", "main")] == ["4", "2", "1"]


@pytest.mark.promise("C6")
@pytest.mark.parametrize("what", ["drop", "save it again", "drop it"])
def test_pinning_keeps_concurrent_changes(pair: Pair, once_at: OnceAt, what: str) -> None:
    one, two = pair

    def act_concurrently() -> None:
        if what == "save it again":
            drive(two.save("s", "main", fields_of(9), {"n": 9}, id="2"))
        else:
            drive(two.drop("s", "main", ["3"] if what == "drop" else ["2"], reason="test"))

    once_at("append.encoded", act_concurrently)
    assert drive(one.pin("s", "main", "2", True)) == (what != "drop it")
    loaded = drive(two.load("s", "main", id="2"))
    if what == "drop it":
        assert loaded is None
    else:
        assert loaded is not None
        assert loaded.pinned
        assert loaded.fields == as_loaded(fields_of(9 if what == "save it again" else 2))


@pytest.mark.promise("C8")
@pytest.mark.parametrize("what", ["some", "all", "of another name"])
@pytest.mark.parametrize("point", ["checkpoint.encoded", "append.encoded"])
def test_a_drop_during_a_save_does_not_affect_the_saved_state(
    pair: Pair, once_at: OnceAt, point: str, what: str
) -> None:
    one, two = pair
    drive(two.save("s", "other", {"x": texts(["word " * 50])}, {}, id="x"))
    ids = {"some": ["0", "3"], "all": None, "of another name": None}[what]
    once_at(point, lambda: drive(two.drop("s", "other" if "name" in what else "main", ids, reason="test")))
    save(one, 4)
    for cp in pair:
        expect(cp, None, 4)
    left = {"some": ["4", "2", "1"], "all": ["4"], "of another name": ["4", "3", "2", "1", "0"]}[what]
    assert [saved.id for saved in list_checkpoints(one, "s", "main")] == left
    for id in left:
        expect(two, id, int(id))


@pytest.mark.promise("C8")
def test_concurrent_saves_are_ordered_and_a_stale_one_conflicts(pair: Pair, once_at: OnceAt) -> None:
    one, two = pair
    once_at("checkpoint.encoded", lambda: save(two, 4))
    save(one, 5)
    once_at("checkpoint.encoded", lambda: save(two, 6, after="5"))
    with pytest.raises(CheckpointConflict) as refused:
        save(one, 7, after="5")
    assert (refused.value.expected, refused.value.found) == ("5", "6")
    for cp in pair:
        for number in range(7):
            expect(cp, str(number), number)
        assert drive(cp.load("s", "main", id="7")) is None


def test_a_conflict_in_a_fork_reports_the_expected_checkpoint(open_one: Open, once_at: OnceAt) -> None:
    one, two = checkpoints_of(open_one()), checkpoints_of(open_one())
    drive(one.save("parent", "main", {}, {}, id="p"))
    open_one().session("parent").fork("s")
    once_at("checkpoint.encoded", lambda: save(two, 1))
    with pytest.raises(CheckpointConflict) as refused:
        save(one, 2, after="p")
    assert (refused.value.expected, refused.value.found) == ("p", "1")


@pytest.mark.promise("G3")
def test_an_erasure_during_a_drop_leaves_no_bytes(tmp_path: Path, once_at: OnceAt) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm, duramen.open(path) as other:
        cp = checkpoints_of(dm)
        save(cp, 0)
        drive(cp.save("s", "main", {"x": BytesField(b"ada was here " * 9)}, {}, id="ada", subject="ada"))
        once_at("checkpoints.dropping", lambda: other.erase("ada"))
        assert drive(cp.drop("s", "main", ["0"], reason="test")) == 1
        assert drive(cp.load("s", "main")) is None
        assert [file.name for file in tmp_path.iterdir() if b"ada was" in file.read_bytes()] == []
        assert dm.verify().ok


@pytest.mark.promise("G3")
@pytest.mark.parametrize("point", ["checkpoint.encoded", "append.encoded"])
def test_a_save_that_overlaps_an_erasure_stores_only_the_new_state(open_one: Open, once_at: OnceAt, point: str) -> None:
    one, other = checkpoints_of(open_one()), open_one()
    for number in range(3):
        save(one, number, subject="ada")
    once_at(point, lambda: other.erase("ada"))
    save(one, 3, subject="ada")
    assert [saved.id for saved in list_checkpoints(one, "s", "main")] == ["3"]
    expect(checkpoints_of(other), None, 3)
    assert other.erase("ada").checkpoints == 1
    assert drive(one.load("s", "main")) is None


@pytest.mark.promise("J8")
@pytest.mark.parametrize("which", ["newest", "by id", "attached"])
@pytest.mark.parametrize("what", ["drop", "erase", "drop it"])
def test_loading_while_chunks_are_moved_returns_the_state_or_none(
    open_one: Open, monkeypatch: pytest.MonkeyPatch, what: str, which: str
) -> None:
    dm, other = open_one(), open_one()
    cp, two = checkpoints_of(dm), checkpoints_of(other)
    for number in range(3):
        save(cp, number, subject="ada" if what == "erase" and number == 2 else None)
    drive(cp.save("s", "other", {"x": BytesField(b"only here " * 20)}, {}, id="x"))
    drive(cp.attach("s", "main", "2", {"n": 2}, type="writes", fields={"w": texts(["word " * 50])}))
    store = dm._core._journal.store
    read_chunks = store.chunks

    async def moved_before_the_read(*place: Any) -> Any:
        monkeypatch.setattr(store, "chunks", read_chunks)
        if what == "erase":
            other.erase("ada")
        else:
            name, id = ("main", "2") if what == "drop it" else ("other", "x")
            assert drive(two.drop("s", name, [id], reason="test")) == 1
        return await read_chunks(*place)

    monkeypatch.setattr(store, "chunks", moved_before_the_read)
    if which == "attached":
        loaded = drive(cp.attachments("s", "main", "2"))
        assert [one.data for one in loaded] == ([{"n": 2}] if what != "drop it" else [])
    elif what == "drop":
        expect(cp, None if which == "newest" else "2", 2)
    elif which == "newest":
        expect(cp, None, 1)
    else:
        assert drive(cp.load("s", "main", id="2")) is None


# -- in parallel


@pytest.mark.promise("J5", "J8")
@pytest.mark.parametrize("first", ["load", "save"])
def test_a_drop_between_reading_a_state_and_its_chunk_log_end_is_safe(
    pair: Pair, open_one: Open, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    one, _ = pair
    drive(one.save("s", "own", {"x": texts(["not shared"])}, {}))
    save(one, 4)
    three = checkpoints_of(open_one())
    store = three._journal.store
    real = store.chunk_log_end

    async def chunk_log_end(*place: Any) -> int:
        monkeypatch.undo()
        await one.drop("s", "own", None, reason="test")
        return await real(*place)

    monkeypatch.setattr(store, "chunk_log_end", chunk_log_end)
    if first == "load":
        expect(three, None, 4)
    save(three, 5)
    assert store.chunk_log_end == real, "the drop happened in between"
    for cp in (*pair, three, checkpoints_of(open_one())):
        for number in range(6):
            expect(cp, f"{number}", number)


@pytest.mark.promise("J5", "J13")
def test_threads_of_two_handles_lose_nothing(open_one: Open, everything: bool) -> None:
    count = 12 if everything else 6
    writers = [checkpoints_of(open_one()), checkpoints_of(open_one())]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda name: _save_drop_and_load(writers[int(name) % 2], name, count), "012345"))
    finally:
        sys.setswitchinterval(interval)
    for cp in (*writers, checkpoints_of(open_one())):
        for name in "012345":
            for number in range(count):
                expect(cp, f"{name}-{number}", number, f"{name}-")
    assert open_one().verify().ok


def _save_drop_and_load(cp: Checkpoints, name: str, count: int) -> None:
    """Save states under a shared name, save and drop under own names, and load the shared ones."""
    for number in range(count):
        save(cp, number, f"{name}-")
        expect(cp, f"{name}-{number}", number, f"{name}-")
        drive(cp.save("s", f"own {name} {number % 3}", fields_of(number, name), {}))
        if number % 4 == 3:
            drive(cp.drop("s", f"own {name} 0", None, reason="test"))


@pytest.mark.promise("J5")
def test_coroutines_lose_nothing(address: str) -> None:
    async def save_concurrently() -> None:
        async with await duramen.aopen(address) as dm:
            cp = Checkpoints(dm._journal)
            saves = [
                cp.save(f"s{number % 2}", "main", fields_of(number), {"n": number}, id=f"{number}")
                for number in range(30)
            ]
            saved = await asyncio.gather(*saves)
            for number, one in enumerate(saved):
                loaded = await cp.load(f"s{number % 2}", "main", at=one.position)
                assert loaded is not None
                assert (loaded.id, loaded.fields) == (f"{number}", as_loaded(fields_of(number)))

    asyncio.run(save_concurrently())


@pytest.mark.promise("M1", "J6")
def test_conditional_saves_of_several_processes_lose_no_item(
    address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    duramen.open(address).close()
    gate = Gate(tmp_path / "gate")
    given: Any = {"address": address, "count": 8, "gate": gate.path}
    children = [
        processes.start("checkpoint_writers:append_to_shared_list", writer=f"w{number}", **given) for number in range(3)
    ]
    gate.open()
    for child in children:
        child.finish()
    with duramen.open(address) as dm:
        loaded = drive(checkpoints_of(dm).load("s", "list"))
        assert loaded is not None
        assert loaded.fields is not None
        assert sorted(loaded.fields["all"]) == sorted(f"w{w}-{n}".encode() for w in range(3) for n in range(8))
        assert len(list_checkpoints(checkpoints_of(dm), "s", "list")) == 24


@pytest.mark.promise("C6", "C8")
def test_a_process_drops_while_others_save(address: str, processes: ChildProcesses, tmp_path: Path) -> None:
    duramen.open(address).close()
    gate = Gate(tmp_path / "gate")
    given: Any = {"address": address, "gate": gate.path}
    dropper = processes.start("checkpoint_writers:drop_until_killed", **given)
    savers = [
        processes.start("checkpoint_writers:save_concurrently", writer=f"w{n}", count=25, **given) for n in range(2)
    ]
    gate.open()
    for child in savers:
        assert len(child.finish()) == 25
    dropper.kill()
    assert dropper.errors() == ""
    to_drop = {id for line in dropper.lines() for id in json.loads(line)}
    with duramen.open(address) as dm:
        cp = checkpoints_of(dm)
        remaining = {saved.id for saved in list_checkpoints(cp, "s", "main")}
        assert remaining >= {f"w{w}-{n}" for w in range(2) for n in range(25)} - to_drop
        for id in remaining:
            writer, _, number = id.partition("-")
            loaded = drive(cp.load("s", "main", id=id))
            assert loaded is not None
            assert loaded.fields == as_loaded(fields_of(int(number), writer))
        assert dm.verify().ok


def test_the_cache_holds_a_limited_number_of_sessions() -> None:
    with duramen.open("memory:") as dm:
        cp = checkpoints_of(dm)
        for number in range(300):
            drive(cp.save(f"s{number}", "main", fields_of(3), {}))
        reader = checkpoints_of(dm)
        for number in range(300):
            drive(reader.load(f"s{number}", "main"))
        for one in (cp, reader):
            assert len(one._writer._bases) <= 200
