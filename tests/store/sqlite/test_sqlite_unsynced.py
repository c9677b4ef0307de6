"""Unsynced commits: a power cut can remove them until the next sync, and no reader outside gets them before it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from programs.power_loss import open_on

import duramen
from duramen import Draft, Duramen
from duramen.ports import Batch, RunChange, RunRow, Stored
from duramen.runtime import drive
from duramen.stores.common.group_commit import Ticket
from duramen.testing.power_loss import PowerLossDisk

VARIANTS = 8


def append(handle: Duramen, session: str, *kinds: str, synced: bool = False, key: str | None = None) -> None:
    """Append events as steps do."""
    journal = handle._core._journal

    async def work() -> None:
        owner = await journal.owner(None)
        prepared = [journal.prepare(Draft(kind, {}), owner) for kind in kinds]
        await journal.append_prepared(session, prepared, owner, synced=synced, key=key)

    drive(work())


def syncs(disk: PowerLossDisk) -> int:
    return disk._power.made["xSync"]


def survivors(disk: PowerLossDisk, folder: Path) -> list[list[str]]:
    """The types of the events that remain after each of several power cuts."""
    event_types = []
    for variant in range(VARIANTS):
        directory = disk.survivors(folder / str(variant), variant)
        with duramen.open(directory / "agent.db") as handle:
            assert handle.verify().ok
            event_types.append([event.type for event in handle.session("s").events()])
    return event_types


@pytest.fixture
def disk() -> PowerLossDisk:
    return PowerLossDisk(seed=7)


@pytest.mark.promise("X29", "J3")
def test_an_unsynced_append_becomes_durable_with_the_next_synced_one(disk: PowerLossDisk, tmp_path: Path) -> None:
    with disk:
        handle = open_on(disk)
        append(handle, "s", "intent", synced=True)
        before = syncs(disk)
        append(handle, "s", "outcome")
        assert syncs(disk) == before
        remaining = survivors(disk, tmp_path / "before")
        assert ["intent"] in remaining  # a power cut can remove an unsynced event
        assert all(events[:1] == ["intent"] for events in remaining)
        append(handle, "s", "intent", synced=True)
        assert syncs(disk) == before + 1
        assert survivors(disk, tmp_path / "after") == [["intent", "outcome", "intent"]] * VARIANTS
        handle.close()


@pytest.mark.promise("X29", "J3")
def test_sync_makes_all_appends_durable_and_then_does_nothing(disk: PowerLossDisk, tmp_path: Path) -> None:
    with disk:
        handle = open_on(disk)
        append(handle, "s", "intent", synced=True)
        append(handle, "s", "outcome", "note")
        before = syncs(disk)
        drive(handle._core._journal.store.sync())
        assert syncs(disk) > before
        assert survivors(disk, tmp_path) == [["intent", "outcome", "note"]] * VARIANTS
        before = syncs(disk)
        drive(handle._core._journal.store.sync())
        assert syncs(disk) == before  # nothing is left to sync
        handle.close()


@pytest.mark.promise("J3", "J15")
def test_a_follower_gets_nothing_that_a_power_cut_could_remove(disk: PowerLossDisk, tmp_path: Path) -> None:
    with disk:
        handle = open_on(disk)
        append(handle, "s", "intent", synced=True)
        append(handle, "s", "outcome")
        seen = [event.type for event in handle.session("s").follow(timeout=0)]
        assert seen == ["intent", "outcome"]
        assert survivors(disk, tmp_path) == [seen] * VARIANTS
        handle.close()


class Recorder:
    name = "recorder"

    def __init__(self) -> None:
        self.types: list[str] = []

    def apply(self, events: list[duramen.Event]) -> None:
        self.types += [event.type for event in events]


@pytest.mark.promise("J3")
def test_an_outlet_gets_nothing_that_a_power_cut_could_remove(disk: PowerLossDisk, tmp_path: Path) -> None:
    class CheckedRecorder(Recorder):
        def apply(self, events: list[duramen.Event]) -> None:
            super().apply(events)
            assert survivors(disk, tmp_path) == [["intent", "outcome"]] * VARIANTS

    with disk:
        handle = open_on(disk)
        append(handle, "s", "intent", synced=True)
        append(handle, "s", "outcome")
        outlet = CheckedRecorder()
        assert handle.deliver(outlet) == 2
        assert outlet.types == ["intent", "outcome"]
        handle.close()


def test_a_readonly_handle_can_follow(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as writer:
        append(writer, "s", "intent", synced=True)
        append(writer, "s", "outcome")
        with duramen.open(path, readonly=True) as reader:
            assert [event.type for event in reader.session("s").follow(timeout=0)] == ["intent", "outcome"]


def test_a_refused_unsynced_append_leaves_commits_synced(disk: PowerLossDisk, tmp_path: Path) -> None:
    """Commits are synced again even if the unsynced append fails."""
    with disk:
        handle = open_on(disk)
        append(handle, "s", "a", synced=True)
        journal = handle._core._journal

        async def append_with_conflict() -> None:
            owner = await journal.owner(None)
            prepared = [journal.prepare(Draft("b", {}), owner)]
            await journal.append_prepared("s", prepared, owner, expected=7, synced=False)

        with pytest.raises(duramen.errors.PositionConflict):
            drive(append_with_conflict())
        before = syncs(disk)
        handle.session("s").append("c", {})
        assert syncs(disk) == before + 1
        assert survivors(disk, tmp_path) == [["a", "c"]] * VARIANTS
        handle.close()


class InterruptAfter:
    """Raises KeyboardInterrupt after a statement that begins with this text, or instead of it."""

    def __init__(self, handle: Duramen, statement: str, *, instead: bool = False) -> None:
        self._writer: Any = handle._core._journal.store._access.writer
        self._connection = self._writer.connection
        self._statement = statement
        self._instead = instead

    def __enter__(self) -> None:
        self._writer.connection = self

    def __exit__(self, *_: object) -> None:
        self._writer.connection = self._connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        matches = statement.startswith(self._statement)
        result = None if matches and self._instead else self._connection.execute(statement, *values)
        if matches:
            raise KeyboardInterrupt
        return result


def test_an_interrupted_switch_to_unsynced_commits_leaves_commits_synced(disk: PowerLossDisk, tmp_path: Path) -> None:
    with disk:
        handle = open_on(disk)
        append(handle, "s", "a", synced=True)
        with pytest.raises(KeyboardInterrupt), InterruptAfter(handle, "PRAGMA synchronous"):
            append(handle, "s", "b")
        append(handle, "s", "c", synced=True)
        assert survivors(disk, tmp_path) == [["a", "c"]] * VARIANTS
        handle.close()


@pytest.mark.parametrize("synced", [True, False])
def test_an_interrupted_rollback_does_not_affect_the_next_append(tmp_path: Path, synced: bool) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as handle:
        append(handle, "s", "a", synced=True)
        store = handle._core._journal.store
        head = drive(store.head("default", "s"))
        assert head is not None
        with pytest.raises(KeyboardInterrupt), InterruptAfter(handle, "ROLLBACK", instead=True):
            drive(store.fork("default", "s", head, "s", 0))  # fails: the session exists
        append(handle, "s", "b", synced=synced)
        append(handle, "s", "c", synced=True)
        with duramen.open(path) as other:
            assert [event.type for event in other.session("s").events()] == ["a", "b", "c"]


def test_a_synced_repeat_of_an_unsynced_append_is_synced(disk: PowerLossDisk, tmp_path: Path) -> None:
    with disk:
        handle = open_on(disk)
        append(handle, "s", "a", synced=True)
        append(handle, "s", "b", key="k")
        append(handle, "s", "b", key="k", synced=True)
        assert survivors(disk, tmp_path) == [["a", "b"]] * VARIANTS
        handle.close()


def test_sync_inside_a_transaction_does_not_wait_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    with duramen.open(tmp_path / "agent.db") as handle:
        monkeypatch.setattr("duramen.stores.sqlite.events.os.fsync", synced.append)
        store = handle._core._journal.store
        append(handle, "s", "a")
        transaction = store.begin()
        drive(store.sync())
        transaction.roll_back()
        assert len(synced) == 1


def test_an_unexpected_error_in_a_batch_does_not_affect_its_group(tmp_path: Path) -> None:
    def refuse(row: RunRow | None) -> RunRow | None:
        raise ValueError("an unexpected error")

    with duramen.open(tmp_path / "agent.db") as handle:
        journal = handle._core._journal
        owner = drive(journal.owner(None))

        def ticket(kind: str, changes: Sequence[RunChange] = ()) -> Ticket[Batch, Stored]:
            prepared = [journal.prepare(Draft(kind, {}), owner)]
            return Ticket(drive(journal._batch("s", prepared, owner, None, None, None, changes)))

        first, bad, last = group = [ticket("a"), ticket("b", [RunChange("r", refuse)]), ticket("c")]
        writer: Any = journal.store
        writer._access.writer.flush(group)
        assert first.answer is not None
        assert last.answer is not None
        assert isinstance(bad.error, ValueError)
        assert [event.type for event in handle.session("s").events()] == ["a", "c"]
