"""A process is killed right after a step returned. The step is recorded and not repeated."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from programs.child_processes import ChildProcesses, complete_lines, until

import duramen

KILLS = {True: 50, False: 2}
"""For each kind of step and each store, with and without `--everything`."""
RETURNED = {
    "plain": ("plain#1", {"value": 1}, "done"),
    "keyed": ("tool:k", 49, "done"),
    "async": ("plain_async#1", {"value": 1}, "done"),
    "failing": ("refuse#1", "no seat is free", "failed"),
}


@pytest.mark.promise("X29")
@pytest.mark.parametrize("kind", RETURNED)
def test_a_step_that_returned_is_never_repeated(
    address: str, processes: ChildProcesses, tmp_path: Path, kind: str, everything: bool
) -> None:
    step, result, state = RETURNED[kind]
    for number in range(KILLS[everything]):
        run, log = f"{tmp_path.name}-{number}", tmp_path / f"{number}.log"
        options = {"address": address, "run": run, "kind": kind, "log": str(log)}
        child = processes.start("crash_task:run_and_die", **options)
        assert child.wait() == -signal.SIGKILL, child.errors()
        with duramen.open(address) as dm:
            info = dm.run_info(run)
        assert (info.status, info.in_doubt) == ("crashed", [])
        assert [(one.step, one.state) for one in info.steps] == [(step, state)]
        lines = processes.start("crash_task:run_and_die", **options).finish()
        assert json.loads(lines[-1]) == result
        entries = [line.split(" ", 1)[1] for line in complete_lines(log)]
        assert entries == [f"begin {step}", f"{'fail' if kind == 'failing' else 'end'} {step}"]
    with duramen.open(address) as dm:
        assert dm.verify().ok


@pytest.mark.promise("X29")
def test_an_outcome_is_committed_before_the_code_continues(tmp_path: Path) -> None:
    @duramen.step
    def act() -> int:
        return 1

    @duramen.task
    def read_types() -> list[str]:
        act()
        with duramen.open(tmp_path / "agent.db") as other:
            return [event.type for event in other.session("r").events(types=["step.started", "step.done"])]

    with duramen.open(tmp_path / "agent.db") as dm:
        assert dm.run(read_types, id="r") == ["step.started", "step.done"]


def test_the_last_outcome_is_synced_within_half_a_second(tmp_path: Path) -> None:
    synced: list[float] = []

    @duramen.step
    def act() -> float:
        return time.monotonic()

    @duramen.task
    def act_and_wait() -> float:
        acted = act()
        until(lambda: synced, "a sync")
        return acted

    with duramen.open(tmp_path / "agent.db") as dm:
        store = dm._core._engine.journal.store
        sync = store.sync

        async def counted() -> None:
            synced.append(time.monotonic())
            await sync()

        store.sync = counted  # type: ignore[method-assign]
        acted = dm.run(act_and_wait, id="r")
        assert synced[0] - acted < 0.5, "50 ms on an idle machine"
        time.sleep(0.1)  # the run ended with a synced write, so nothing is left to sync
        assert len(synced) == 1
