"""Processes killed while they save or drop, answers that are lost: the old state is there, or the new one."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from programs.checkpoint_writers import as_loaded, checkpoints_of, fields_of, list_checkpoints
from programs.child_processes import ChildProcesses
from programs.cutting_proxy import CuttingProxy

import duramen
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.runtime import drive

SAVE_POINTS = ["checkpoint.encoded", "append.encoded", "append.begun", "append.inserted", "append.committed"]
DROP_POINTS = ["checkpoints.dropping", *SAVE_POINTS[1:]]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


def save(cp: Checkpoints, number: int, **options: Any) -> None:
    drive(cp.save("s", "main", fields_of(number), {"n": number}, id=f"c{number}", **options))


def expect(cp: Checkpoints, number: int, **which: Any) -> None:
    """That a checkpoint, or the newest, is the one of this number."""
    found = drive(cp.load("s", "main", **which))
    assert found is not None
    assert (found.id, found.skipped, found.fields) == (f"c{number}", (), as_loaded(fields_of(number)))


def check_survivors(address: str, said: int, most: int) -> int:
    """That all up to `said` are there whole, that at most those up to `most` are, and the store is sound."""
    with duramen.open(address) as dm:
        cp = checkpoints_of(dm)
        newest = drive(cp.load("s", "main"))
        reached = -1 if newest is None else int(newest.note["n"])
        assert said <= reached <= most
        assert [saved.note["n"] for saved in list_checkpoints(cp, "s", "main")] == list(range(reached, -1, -1))
        for number in range(max(0, reached - 12), reached + 1):
            expect(cp, number, id=f"c{number}")
        assert dm.verify().ok
    return reached


@pytest.mark.promise("C8", "C3", "J2", "J8")
@pytest.mark.parametrize("point", SAVE_POINTS)
def test_a_kill_during_a_save_leaves_the_old_state_or_the_new_one(
    address: str, processes: ChildProcesses, point: str
) -> None:
    reached = -1
    for visit in (1, 2, 5):
        child = processes.start(
            "checkpoint_writers:save_states", crash=(point, visit), address=address, first=reached + 1, count=9
        )
        assert child.wait() == -signal.SIGKILL, child.errors()
        said = int(child.lines()[-1]) if child.lines() else reached
        before, reached = reached, check_survivors(address, said, said + (point == "append.committed"))
        assert reached >= before


@pytest.mark.promise("C8", "J2")
def test_kills_at_random_moments_leave_the_old_state_or_the_new_one(address: str, processes: ChildProcesses) -> None:
    chance, reached = random.Random(3), -1
    for _ in range(8):
        child = processes.start("checkpoint_writers:save_states", address=address, first=reached + 1, count=1000)
        child.wait_for_lines(chance.randrange(5))
        time.sleep(chance.uniform(0, 0.02))  # not to wait for anything: to hit any instruction
        assert child.kill() == -signal.SIGKILL
        said = int(child.lines()[-1]) if child.lines() else reached
        reached = check_survivors(address, said, said + 1)
    assert reached >= 5


@pytest.mark.promise("C8", "C6")
@pytest.mark.parametrize("point", DROP_POINTS)
def test_a_kill_during_a_drop_leaves_all_or_the_rest(address: str, processes: ChildProcesses, point: str) -> None:
    with duramen.open(address) as dm:
        for number in range(9):
            save(checkpoints_of(dm), number)
    ids = ["c0", "c3", "c4", "c8"]
    child = processes.start("checkpoint_writers:drop_states", crash=(point, 1), address=address, ids=ids)
    assert child.wait() == -signal.SIGKILL, child.errors()
    with duramen.open(address) as dm:
        cp = checkpoints_of(dm)
        left = [number for number in range(9) if point != "append.committed" or f"c{number}" not in ids]
        assert [saved.note["n"] for saved in list_checkpoints(cp, "s", "main")] == left[::-1]
        for number in left:
            expect(cp, number, id=f"c{number}")
        assert dm.verify().ok
        assert drive(cp.drop("s", "main", ids, reason="again")) == len({f"c{number}" for number in left} & set(ids))
        save(cp, 9)
        expect(cp, 9)


@pytest.mark.promise("J2", "C8")
def test_an_answer_that_is_lost_on_the_way_loses_no_state(postgres_url: str) -> None:
    with CuttingProxy(postgres_url) as proxy, duramen.open(proxy.url) as dm:
        cp = checkpoints_of(dm)
        for number in range(8):
            if number % 2:
                proxy.cut_after(b"COMMIT")
            save(cp, number, after=f"c{number - 1}" if number else None)
        proxy.cut_after(b"COMMIT")
        assert drive(cp.drop("s", "main", ["c0", "c5"], reason="test")) == 2
        assert proxy.cuts == 5
        assert [saved.id for saved in list_checkpoints(cp, "s", "main")] == ["c7", "c6", "c4", "c3", "c2", "c1"]
        for number in (1, 2, 3, 4, 6, 7):
            expect(cp, number, id=f"c{number}")
        assert dm.verify().ok
