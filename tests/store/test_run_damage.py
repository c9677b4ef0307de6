"""A damaged row of a run or of its lease is reported and left out. The other runs are listed and executed."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

import duramen
from duramen import Duramen, errors
from duramen.errors import StoreDamaged
from duramen.execution.workers import worker
from duramen.stores.common import run_rows


@duramen.task
def double(value: int) -> int:
    return 2 * value


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(run_rows, "_reported", set())
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


def execute(address: str, sql: str) -> None:
    if address.startswith("postgresql:"):
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(sql.encode())
    else:
        with closing(apsw.Connection(address)) as db:
            db.execute(sql.replace("duramen.", "duramen_"))


def start_runs(dm: Duramen, count: int) -> list[str]:
    ids = [f"r{number:03}" for number in range(count)]
    for number, id in enumerate(ids):
        dm.start(double, number, id=id)
    return ids


def check_the_others(dm: Duramen, ids: list[str], damaged: str) -> None:
    """All other runs are listed, executed and finished."""
    others = [id for id in ids if id != damaged]
    assert sorted(run.id for run in dm.runs(limit=len(ids))) == others
    assert dm.work([double], until_idle=True) == len(others)
    assert [dm.handle(id).result(timeout=1) for id in others] == [2 * int(id[1:]) for id in others]
    assert {run.id for run in dm.runs(status="done", limit=len(ids))} == set(others)


@pytest.mark.promise("X34", "J8")
@pytest.mark.parametrize(
    "change",
    [
        "priority = priority + 1",
        "queue_key = '42'",
        "task = 'doubie'",
        "nudges = -9",
        "checksum = '\\x00'",
    ],
)
def test_a_damaged_run_hides_no_other(address: str, change: str, caplog: pytest.LogCaptureFixture) -> None:
    if "checksum" in change and not address.startswith("postgresql:"):
        change = "checksum = x'00'"
    with duramen.open(address) as dm:
        ids = start_runs(dm, 4)
        execute(address, f"UPDATE duramen.runs SET {change} WHERE run = 'r001'")
        with caplog.at_level(logging.WARNING, "duramen"):
            check_the_others(dm, ids, "r001")
        reports = [one.getMessage() for one in caplog.records if "left out" in one.getMessage()]
        assert len(reports) == 1, "each damaged row is logged once"
        assert "r001" in reports[0]
        with pytest.raises(StoreDamaged, match="r001"):
            dm.run_info("r001")
        with pytest.raises(StoreDamaged, match="r001"):
            dm.session("r001").status()
        assert any("r001" in problem.reason for problem in dm.verify().problems)


@pytest.mark.promise("X34", "J8")
def test_a_run_with_invalid_text_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """PostgreSQL checks the encoding of text. SQLite does not, so one flipped bit can make text unreadable."""
    path = str(tmp_path / "agent.db")
    with duramen.open(path) as dm:
        ids = start_runs(dm, 4)
        execute(path, "UPDATE duramen.runs SET task = CAST(x'ff64' AS TEXT) WHERE run = 'r002'")
        check_the_others(dm, ids, "r002")
        assert not dm.verify().ok


@pytest.mark.promise("X34", "J8")
def test_a_damaged_lease_hides_no_other(address: str) -> None:
    with duramen.open(address) as dm:
        ids = start_runs(dm, 4)
        lease = dm.session("r001").lease("someone", seconds=0)
        assert lease is not None
        execute(address, "UPDATE duramen.leases SET fence = fence + 7 WHERE session = 'r001'")
        check_the_others(dm, ids, "r001")
        assert not dm.verify().ok


@pytest.mark.promise("X34")
def test_pages_of_damaged_runs_hide_none_behind_them(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More damaged runs than fit on a page of the worker."""
    monkeypatch.setattr(worker, "_PAGE", 5)
    with duramen.open(address) as dm:
        ids = start_runs(dm, 20)
        execute(address, "UPDATE duramen.runs SET nudges = 5 WHERE run BETWEEN 'r002' AND 'r014'")
        others = [*ids[:2], *ids[15:]]
        assert [run.id for run in dm.runs(limit=3)] == ids[:-4:-1]
        assert sorted(run.id for run in dm.runs()) == others
        assert dm.work([double], until_idle=True) == len(others)


@pytest.mark.promise("X34")
def test_a_schedule_that_cannot_continue_stops_no_other(address: str) -> None:
    """A worker executes runs although the input of a schedule cannot be stored."""
    with duramen.open(address) as dm:
        ids = start_runs(dm, 2)
        bad = duramen.Schedule("bad", double, every=0.001, args=[object()])
        assert dm.work([double], schedules=[bad], until_idle=True) == 2
        assert [dm.handle(id).result(timeout=1) for id in ids] == [0, 2]


def test_a_worker_still_reports_a_store_that_is_closed(address: str) -> None:
    dm = duramen.open(address)
    dm.close()
    with pytest.raises(errors.StoreClosed):
        dm.work([double], until_idle=True)
