"""Power cuts drop, tear or reorder unsynced writes. Acknowledged events must survive."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from programs.power_loss import open_on

import duramen
from duramen.api._sync.duramen import Duramen
from duramen.errors import DuramenError
from duramen.testing.power_loss import PowerLossDisk

VARIANTS = 3
"""Different selections of surviving writes for each power cut."""


def work(handle: Duramen, acknowledged: list[tuple[str, int]]) -> None:
    """Append events of all kinds, and record each that was acknowledged."""
    for number in range(4):
        for name in ("a", "b"):
            event = handle.session(name).append("note", {"n": number, "text": "x" * 300}, subject="alice")
            acknowledged.append((name, event.position))
        batch = handle.session("a").append_all([duramen.Draft("part", index) for index in range(3)])
        acknowledged += [("a", event.position) for event in batch]
    big = handle.session("b").append("tool", "y" * 60_000)
    acknowledged.append(("b", big.position))


def run_until_cut(call: int, synchronous: str) -> tuple[PowerLossDisk, list[tuple[str, int]]]:
    disk = PowerLossDisk(seed=call)
    disk.cut_at(call)
    acknowledged: list[tuple[str, int]] = []
    with suppress(apsw.Error, DuramenError):
        handle = open_on(disk, synchronous)
        try:
            work(handle, acknowledged)
        finally:
            handle.close()
    return disk, acknowledged


def lost_after(directory: Path, acknowledged: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The acknowledged events that are lost. The surviving chain must verify, and batches must be complete."""
    with duramen.open(directory / "agent.db") as handle:
        report = handle.verify()
        assert report.ok, report.problems
        parts = [event.data for event in handle.session("a").events(types="part")]
        assert parts == [0, 1, 2] * (len(parts) // 3)
        heads = {name: handle.session(name).head().position for name in ("a", "b")}
    return [(name, position) for name, position in acknowledged if position > heads[name]]


def total_calls() -> int:
    with PowerLossDisk() as disk:
        handle = open_on(disk)
        work(handle, [])
        handle.close()
        return disk.calls


@pytest.mark.promise("J3", "J2")
def test_acknowledged_events_survive_power_cuts(tmp_path: Path, everything: bool) -> None:
    calls = total_calls()
    assert calls > 60
    survived = 0
    for call in range(1, calls + 1, 1 if everything else 3):
        disk, acknowledged = run_until_cut(call, "full")
        for variant in range(VARIANTS):
            directory = disk.survivors(tmp_path / f"{call}-{variant}", variant)
            assert lost_after(directory, acknowledged) == []
            survived += len(acknowledged)
        disk.close()
    assert survived > calls


@pytest.mark.promise("J3")
def test_the_power_loss_disk_reveals_a_store_that_does_not_sync(tmp_path: Path) -> None:
    lost = 0
    for call in range(40, total_calls(), 5):
        disk, acknowledged = run_until_cut(call, "normal")
        for variant in range(VARIANTS):
            directory = disk.survivors(tmp_path / f"{call}-{variant}", variant)
            lost += len(lost_after(directory, acknowledged))
        disk.close()
    assert lost > 0
