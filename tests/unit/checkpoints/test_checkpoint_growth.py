"""Storage grows with the new data of each checkpoint, and drops free it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs.checkpoint_writers import checkpoints_of, fields_of, texts
from programs.seeds import seeded

import duramen
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.checkpoints.manifest import BytesField
from duramen.runtime import drive

ITEM = 500


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def cp(path: Path) -> Iterator[Checkpoints]:
    with duramen.open(path) as dm:
        yield checkpoints_of(dm)


def item(chance: random.Random) -> str:
    """Text that compresses badly."""
    return chance.randbytes(ITEM // 2).hex()


def stored(cp: Checkpoints) -> int:
    """Bytes in use in the file."""
    store: Any = cp._journal.store
    used = "SELECT (SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count) * page_size"
    return int(store._access.writer.connection.execute(f"{used} FROM pragma_page_size").fetchone()[0])


@pytest.mark.promise("C4")
def test_a_thousand_turns_take_little_more_space_than_their_text(cp: Checkpoints, path: Path) -> None:
    chance, talk, sizes = seeded("a thousand turns"), list[str](), []
    for turn in range(1000):
        talk = [*talk, item(chance)]
        drive(cp.save("s", "main", {"talk": texts(talk), "turn": BytesField(b"%d" % turn)}, {"step": turn}))
        if turn in (0, 499, 999):
            sizes.append(stored(cp))
    assert sizes[2] < 3 * 1000 * ITEM
    assert sizes[2] - sizes[1] < 1.1 * (sizes[1] - sizes[0]), "the second half costs as much as the first"
    loaded = drive(with_new_cache(cp).load("s", "main"))
    assert loaded is not None
    assert loaded.fields == {"talk": [one.encode() for one in talk], "turn": b"999"}


def with_new_cache(cp: Checkpoints) -> Checkpoints:
    """The same checkpoints as another process would see them."""
    return Checkpoints(cp._journal)


@pytest.mark.promise("C4")
def test_a_sliding_window_costs_its_new_items(cp: Checkpoints) -> None:
    chance = seeded("sliding window")
    talk = [item(chance) for _ in range(40)]
    drive(cp.save("s", "main", {"talk": texts(talk)}, {}))
    before = stored(cp)
    for turn in range(200):
        talk = [*talk[1:], item(chance)]
        drive(cp.save("s", "main", {"talk": texts(talk)}, {"step": turn}))
    assert stored(cp) - before < 3 * 200 * ITEM


@pytest.mark.promise("C4")
def test_a_history_shared_by_several_names_is_stored_once(cp: Checkpoints) -> None:
    """As with subgraphs: each call has a new name and the whole conversation."""
    chance, talk = seeded("shared history"), list[str]()
    for turn in range(100):
        talk = [*talk, item(chance)]
        start: dict[str, Any] = {"__start__": {"talk": texts(talk)}}
        drive(cp.save("s", f"sub:{turn}", start, {}, like="main"))
        drive(cp.attach("s", f"sub:{turn}", "x", {}, type="writes", fields={"talk": texts(talk)}))
        drive(cp.save("s", "main", {"talk": texts(talk)}, {}))
    assert stored(cp) < 5 * 100 * ITEM + 250_000


@pytest.mark.promise("C4")
def test_new_processes_share_chunks_that_others_stored(cp: Checkpoints) -> None:
    chance = seeded("new processes")
    talk = [item(chance) for _ in range(100)]
    drive(cp.save("s", "main", {"talk": texts(talk)}, {}))
    before = stored(cp)
    for turn in range(60):
        fresh = with_new_cache(cp)
        if turn % 2:
            assert drive(fresh.load("s", "main")) is not None
        talk = [*talk, item(chance)]
        drive(fresh.save("s", "main", {"talk": texts(talk)}, {}))
    assert stored(cp) - before < 3 * 60 * ITEM + 20_000


@pytest.mark.promise("C6", "L1")
def test_the_size_levels_off_when_old_checkpoints_are_dropped(cp: Checkpoints) -> None:
    chance, ids, sizes = seeded("old ones dropped"), list[str](), []
    talk = [item(chance) for _ in range(30)]
    for turn in range(240):
        talk = [*talk[1:], item(chance)]
        ids.append(drive(cp.save("s", "main", {"talk": texts(talk), "n": BytesField(b"%d" % turn)}, {"step": turn})).id)
        drive(cp.attach("s", "main", ids[-1], {"turn": turn}, type="writes", fields={"w": texts([item(chance)])}))
        if turn % 20 == 19:
            drive(cp.drop("s", "main", ids[:-5], reason="old"))
            del ids[:-5]
            sizes.append(stored(cp))
    events = 12 * 20 * 2 * 200  # the events of dropped checkpoints stay in the journal, without payload
    assert sizes[-1] - sizes[2] < events
    loaded = drive(with_new_cache(cp).load("s", "main"))
    assert loaded is not None
    assert loaded.fields == {"talk": [one.encode() for one in talk], "n": b"239"}


@pytest.mark.promise("C3", "C4")
def test_a_fragmented_list_can_be_read_dropped_and_continued(cp: Checkpoints) -> None:
    chance, wanted = seeded("fragmented list"), dict[str, list[bytes]]()
    talk = [item(chance) for _ in range(80)]
    for turn in range(150):
        talk[turn * 37 % 80] = item(chance)
        drive(cp.save("s", "main", {"talk": texts(list(talk))}, {}, id=f"c{turn}"))
        wanted[f"c{turn}"] = [one.encode() for one in talk]
        if turn % 40 == 39:
            cp = with_new_cache(cp)
    assert stored(cp) < 3 * 230 * ITEM
    for dropped in (["c149"], [f"c{turn}" for turn in range(0, 150, 2)]):
        for id in dropped:
            wanted.pop(id, None)
        drive(cp.drop("s", "main", dropped, reason="old"))
        talk[3] = item(chance)
        drive(cp.save("s", "main", {"talk": texts(list(talk))}, {}, id=f"after {dropped[0]}"))
        wanted[f"after {dropped[0]}"] = [one.encode() for one in talk]
        for reader in (cp, with_new_cache(cp)):
            for id, state in wanted.items():
                loaded = drive(reader.load("s", "main", id=id))
                assert loaded is not None
                assert loaded.fields == {"talk": state}


@pytest.mark.promise("L1")
def test_saving_an_unchanged_state_costs_one_row(cp: Checkpoints) -> None:
    drive(cp.save("s", "main", fields_of(14), {}))
    before = stored(cp)
    for _ in range(50):
        drive(cp.save("s", "main", fields_of(14), {}))
    assert stored(cp) - before < 50 * 600
