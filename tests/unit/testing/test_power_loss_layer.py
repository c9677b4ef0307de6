"""The power-loss disk reveals missing syncs, and databases that sync correctly survive it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from duramen.testing.power_loss import PowerCut, PowerLossDisk

ROWS = 8
VARIANTS = 5
MOST_CALLS = 200


@dataclass
class Workload:
    """Inserts rows, one per commit, and records which commits SQLite acknowledged."""

    synchronous: str
    journal_mode: str = "wal"
    raw_key: str = ""
    created: bool = False
    acknowledged: list[int] = field(default_factory=list)

    def open(self, vfs: str | None, path: str) -> apsw.Connection:
        if not self.raw_key:
            return apsw.Connection(path, vfs=vfs)
        connection = apsw.Connection(path, vfs=vfs and f"multipleciphers-{vfs}")
        connection.pragma("key", f"raw:{self.raw_key}")  # a passphrase would need a slow key derivation each time
        return connection

    def run(self, disk: PowerLossDisk) -> None:
        with contextlib.suppress(PowerCut):
            connection = self.open(disk.vfs_name, "journal.db")
            try:
                self.commit_rows(connection)
            finally:
                connection.close()

    def commit_rows(self, connection: apsw.Connection) -> None:
        assert connection.pragma("journal_mode", self.journal_mode) == self.journal_mode
        connection.pragma("synchronous", self.synchronous)
        connection.wal_autocheckpoint(6)  # so that some cuts fall into a checkpoint
        connection.execute("create table event(id integer primary key, body blob)")
        self.created = True
        for row in range(ROWS):
            connection.execute("insert into event values(?, randomblob(700))", (row,))
            self.acknowledged.append(row)

    def verdict(self, directory: Path) -> str:
        """The state of the database after the reboot: "fine", "lost" or "corrupt"."""
        connection = self.open(None, str(directory / "journal.db"))
        try:
            if connection.pragma("integrity_check") != "ok":
                return "corrupt"
            if not connection.table_exists("main", "event"):
                return "lost" if self.created else "fine"
            rows = [row for (row,) in connection.execute("select id from event order by id")]
        except (apsw.CorruptError, apsw.NotADBError):
            return "corrupt"
        finally:
            connection.close()
        # The last commit may have survived although it was not acknowledged. No row before it may be missing.
        assert rows == list(range(len(rows)))
        assert len(rows) <= len(self.acknowledged) + 1
        return "fine" if len(rows) >= len(self.acknowledged) else "lost"


def verdicts_of_every_cut(
    tmp_path: Path,
    synchronous: str,
    journal_mode: str = "wal",
    raw_key: str = "",
) -> Iterator[str]:
    """Cut the power at the first call, the second, and so on, until the workload completes."""
    for call in range(1, MOST_CALLS):
        workload = Workload(synchronous, journal_mode, raw_key)
        with PowerLossDisk(seed=call) as disk:
            disk.cut_at(call)
            workload.run(disk)
            for variant in range(VARIANTS):
                yield workload.verdict(disk.survivors(tmp_path / f"{call}-{variant}", variant))
            if not disk.is_off:
                assert workload.acknowledged == list(range(ROWS))
                return
    pytest.fail(f"the workload makes more than {MOST_CALLS} calls")


def test_full_sync_loses_no_acknowledged_commit(tmp_path: Path) -> None:
    verdicts = list(verdicts_of_every_cut(tmp_path, "full"))
    assert len(verdicts) > 40 * VARIANTS
    assert set(verdicts) == {"fine"}


def test_full_sync_loses_no_acknowledged_commit_when_encrypted(tmp_path: Path) -> None:
    assert set(verdicts_of_every_cut(tmp_path, "full", raw_key="5e" * 32)) == {"fine"}


def test_normal_sync_loses_acknowledged_commits_without_corruption(tmp_path: Path) -> None:
    assert set(verdicts_of_every_cut(tmp_path, "normal")) == {"fine", "lost"}


def test_no_sync_loses_commits_and_corrupts_the_database(tmp_path: Path) -> None:
    assert set(verdicts_of_every_cut(tmp_path, "off")) == {"fine", "lost", "corrupt"}


def test_a_rollback_journal_needs_synchronous_extra(tmp_path: Path) -> None:
    assert set(verdicts_of_every_cut(tmp_path / "full", "full", "delete")) == {"fine", "lost"}
    assert set(verdicts_of_every_cut(tmp_path / "extra", "extra", "delete")) == {"fine"}


@pytest.fixture
def disk() -> Iterator[PowerLossDisk]:
    with PowerLossDisk(seed=3) as disk:
        yield disk


def open_journal(disk: PowerLossDisk) -> apsw.Connection:
    connection = apsw.Connection("some/where/journal.db", vfs=disk.vfs_name)
    assert connection.pragma("journal_mode", "wal") == "wal"
    connection.pragma("synchronous", "full")
    connection.execute("create table if not exists event(id integer primary key)")
    return connection


def ids(connection: apsw.Connection) -> list[int]:
    return [row for (row,) in connection.execute("select id from event order by id")]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_every_call_fails_after_the_power_cut(disk: PowerLossDisk) -> None:
    connection = open_journal(disk)
    disk.cut_at(disk.calls + 1)
    with pytest.raises(PowerCut, match="power cut at call"):
        connection.execute("insert into event values(1)")
    calls = disk.calls
    with pytest.raises(PowerCut, match="the machine is off"):
        connection.execute("insert into event values(2)")
    with pytest.raises(PowerCut):
        apsw.Connection("other.db", vfs=disk.vfs_name)
    with pytest.raises(PowerCut):
        connection.close()
    connection.close()
    assert disk.is_off
    assert disk.calls == calls


def test_same_seed_and_variant_give_same_survivors(tmp_path: Path, disk: PowerLossDisk) -> None:
    connection = open_journal(disk)
    connection.pragma("synchronous", "off")
    connection.execute("insert into event values(1)")
    outcomes = [contents(disk.survivors(tmp_path / str(variant), variant)) for variant in range(30)]
    again = [contents(disk.survivors(tmp_path / f"again-{variant}", variant)) for variant in range(30)]
    connection.close()
    assert outcomes == again
    assert len({outcome["journal.db-wal"] for outcome in outcomes}) > 3


def test_survivors_need_an_empty_directory(tmp_path: Path, disk: PowerLossDisk) -> None:
    (tmp_path / "journal.db-wal").write_bytes(b"of another cut")
    with pytest.raises(FileExistsError, match="not empty"):
        disk.survivors(tmp_path)


def test_survivors_can_be_loaded_into_a_new_disk(tmp_path: Path, disk: PowerLossDisk) -> None:
    connection = open_journal(disk)
    connection.execute("insert into event values(1)")
    disk.survivors(tmp_path)
    connection.close()
    with PowerLossDisk.load(tmp_path) as rebooted:
        assert rebooted.calls == 0
        connection = open_journal(rebooted)
        connection.execute("insert into event values(2)")
        assert ids(connection) == [1, 2]
        connection.close()
        survivors = rebooted.survivors(tmp_path / "second boot")
        assert (survivors / "journal.db").stat().st_size > 0


def test_a_second_connection_sees_commits_and_waits_for_locks(disk: PowerLossDisk) -> None:
    first, second = open_journal(disk), open_journal(disk)
    first.execute("insert into event values(1)")
    assert ids(second) == [1]
    first.execute("begin immediate")
    with pytest.raises(apsw.BusyError):
        second.execute("begin immediate")
    first.execute("rollback")
    first.close()
    second.close()


def test_a_full_disk_refuses_the_commit_and_recovers(disk: PowerLossDisk) -> None:
    connection = open_journal(disk)
    connection.execute("insert into event values(1)")
    disk.fail(call="xWrite", error="full", after=1)
    with pytest.raises(apsw.FullError):
        connection.execute("insert into event values(2)")
    assert ids(connection) == [1]
    disk.heal()
    connection.execute("insert into event values(3)")
    assert ids(connection) == [1, 3]
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


def test_a_failed_sync_refuses_the_commit(disk: PowerLossDisk) -> None:
    connection = open_journal(disk)
    disk.fail(call="xSync", error="ioerr")
    with pytest.raises(apsw.IOError) as refused:
        connection.execute("insert into event values(1)")
    assert getattr(refused.value, "extendedresult", None) == apsw.SQLITE_IOERR_FSYNC
    disk.heal()
    assert ids(connection) == []
    connection.close()


def test_unsynced_writes_are_torn_at_sector_boundaries(tmp_path: Path, disk: PowerLossDisk) -> None:
    connection = apsw.Connection("journal.db", vfs=disk.vfs_name)
    connection.pragma("journal_mode", "memory")
    connection.pragma("synchronous", "off")
    connection.execute("begin; create table t(x); insert into t values(randomblob(9000)); commit")
    written = sectors(connection.serialize("main"))
    outcomes = [contents(disk.survivors(tmp_path / str(k), k)) for k in range(40)]
    connection.close()
    torn = 0
    for survived in (sectors(outcome["journal.db"]) for outcome in outcomes if "journal.db" in outcome):
        # Each sector is as written, or zeros.
        intact = [sector == wanted for sector, wanted in zip(survived, written, strict=False)]
        assert all(sector in (wanted, bytes(512)) for sector, wanted in zip(survived, written, strict=False))
        torn += 1 <= sum(intact[-8:]) < 8
    assert torn
    assert any("journal.db" not in outcome for outcome in outcomes), "an unsynced file may be missing"


def sectors(image: bytes) -> list[bytes]:
    return [image[start : start + 512] for start in range(0, len(image), 512)]
