"""Power cuts: unsynced writes are dropped, torn or reordered; what was acknowledged must be there."""

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

ROUNDS = 3


def work(handle: Duramen, acknowledged: list[tuple[str, int]]) -> None:
    """Appends of all shapes; each is noted once it returned."""
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
    """Acknowledged events that are gone. Whatever is there must verify, in batches that are whole."""
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
def test_every_acknowledged_event_survives_a_power_cut_at_every_call(tmp_path: Path) -> None:
    calls = total_calls()
    assert calls > 60
    survived = 0
    for call in range(1, calls + 1):
        disk, acknowledged = run_until_cut(call, "full")
        for variant in range(ROUNDS):
            directory = disk.survivors(tmp_path / f"{call}-{variant}", variant)
            assert lost_after(directory, acknowledged) == []
            survived += len(acknowledged)
        disk.close()
    assert survived > calls


@pytest.mark.promise("J3")
def test_the_layer_would_catch_a_store_that_does_not_sync(tmp_path: Path) -> None:
    lost = 0
    for call in range(40, total_calls(), 5):
        disk, acknowledged = run_until_cut(call, "normal")
        for variant in range(ROUNDS):
            directory = disk.survivors(tmp_path / f"{call}-{variant}", variant)
            lost += len(lost_after(directory, acknowledged))
        disk.close()
    assert lost > 0
