"""Kills and lost answers while checkpoints are saved or dropped leave the old state or the new one."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
from programs.checkpoint_writers import as_loaded, checkpoints_of, fields_of, list_checkpoints
from programs.child_processes import ChildProcesses
from programs.cutting_proxy import CuttingProxy
from programs.seeds import seeded

import duramen
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.runtime import drive

SAVE_POINTS = ["checkpoint.encoded", "append.encoded", "append.begun", "append.inserted", "append.committed"]
DROP_POINTS = ["checkpoints.dropping", *SAVE_POINTS[1:]]


def save(cp: Checkpoints, number: int, **options: Any) -> None:
    drive(cp.save("s", "main", fields_of(number), {"n": number}, id=f"c{number}", **options))


def check_checkpoint(cp: Checkpoints, number: int, **which: Any) -> None:
    """Check that a checkpoint, by default the newest, has this number and its data."""
    loaded = drive(cp.load("s", "main", **which))
    assert loaded is not None
    assert (loaded.id, loaded.skipped, loaded.fields) == (f"c{number}", (), as_loaded(fields_of(number)))


def check_survivors(address: str, acknowledged: int, most: int) -> int:
    """Check that all checkpoints up to `acknowledged`, and at most those up to `most`, are intact. Returns the last."""
    with duramen.open(address) as dm:
        cp = checkpoints_of(dm)
        newest = drive(cp.load("s", "main"))
        reached = -1 if newest is None else int(newest.note["n"])
        assert acknowledged <= reached <= most
        assert [saved.note["n"] for saved in list_checkpoints(cp, "s", "main")] == list(range(reached, -1, -1))
        for number in range(max(0, reached - 12), reached + 1):
            check_checkpoint(cp, number, id=f"c{number}")
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
        acknowledged = int(child.lines()[-1]) if child.lines() else reached
        before, reached = reached, check_survivors(address, acknowledged, acknowledged + (point == "append.committed"))
        assert reached >= before


@pytest.mark.promise("C8", "J2")
def test_kills_at_random_moments_leave_the_old_state_or_the_new_one(address: str, processes: ChildProcesses) -> None:
    chance, reached = seeded("checkpoints"), -1
    for _ in range(8):
        child = processes.start("checkpoint_writers:save_states", address=address, first=reached + 1, count=1000)
        child.wait_for_lines(chance.randrange(5))
        time.sleep(chance.uniform(0, 0.02))  # so that the kill can hit any instruction
        assert child.kill() == -signal.SIGKILL
        acknowledged = int(child.lines()[-1]) if child.lines() else reached
        reached = check_survivors(address, acknowledged, acknowledged + 1)
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
            check_checkpoint(cp, number, id=f"c{number}")
        assert dm.verify().ok
        assert drive(cp.drop("s", "main", ids, reason="again")) == len({f"c{number}" for number in left} & set(ids))
        save(cp, 9)
        check_checkpoint(cp, 9)


@pytest.mark.promise("J2", "C8")
def test_a_lost_commit_answer_loses_no_state(postgres_url: str) -> None:
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
            check_checkpoint(cp, number, id=f"c{number}")
        assert dm.verify().ok
