"""Room that is made at the end of SQLite's write-ahead log: it saves time, and must never cost a frame."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

import duramen
from duramen.stores.sqlite.logroom import LogRoom


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def used(path: Path) -> int:
    """Bytes of the log up to its last byte that is not zero."""
    return len(log_of(path).read_bytes().rstrip(b"\0"))


def expect_after_a_crash(path: Path, count: int, to: Path) -> None:
    """That whoever finds the files as they are now has all events."""
    to.mkdir()
    for file in (path, log_of(path)):
        shutil.copy(file, to / file.name)
    with duramen.open(to / path.name) as dm:
        assert [event.data for event in dm.session("s").events()] == list(range(count))
        assert dm.verify().ok


@pytest.mark.promise("J2", "J8")
def test_zeros_lie_ahead_of_the_log_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        session = dm.session("s")
        seen = set()
        for number in range(200):
            session.append("note", number)
            seen.add(log_of(path).stat().st_size)
            if number % 40 == 39:
                expect_after_a_crash(path, number + 1, tmp_path / str(number))
        assert log_of(path).stat().st_size > used(path) + 4096
        assert len(seen) < 40  # most commits did not extend it
    assert not log_of(path).exists()


def test_who_writes_little_makes_no_room(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        for number in range(3):
            dm.session("s").append("note", number)
        assert log_of(path).stat().st_size < 256 * 1024


@pytest.mark.promise("J5")
def test_somebody_else_who_writes_the_same_file_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm, duramen.open(path) as other:
        stranger = apsw.Connection(str(path))
        stranger.execute("CREATE TABLE mine (number INTEGER)")
        for number in range(120):
            (dm if number % 3 else other).session("s").append("note", number)
            stranger.execute("INSERT INTO mine VALUES (?)", (number,))
        expect_after_a_crash(path, 120, tmp_path / "copy")
        copy = apsw.Connection(str(tmp_path / "copy" / path.name))
        assert copy.execute("SELECT count(*), sum(number) FROM mine").fetchone() == (120, sum(range(120)))
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        copy.close()
        stranger.close()


def test_only_what_lies_behind_the_end_is_written(tmp_path: Path) -> None:
    log = tmp_path / "agent.db-wal"
    log.write_bytes(b"x" * 9000)
    room = LogRoom()
    room.open(str(log))
    assert not room.is_due
    while not room.is_due:
        room.committed()
    log.write_bytes(b"y" * 9500)  # it went on since
    room.see_to()
    assert log.read_bytes() == b"y" * 9500 + bytes(256 * 1024)
    room.see_to()
    assert log.stat().st_size == 9500 + 256 * 1024  # there is room
    with log.open("r+b") as file:
        file.write(b"z" * 200_000)
    room.see_to()
    assert log.read_bytes().rstrip(b"\0") == b"z" * 200_000
    assert log.stat().st_size > 200_000 + 256 * 1024
    os.truncate(log, 0)
    room.see_to()
    assert log.read_bytes() == bytes(256 * 1024)
    room.close()
    assert not room.is_due


@pytest.mark.promise("L1")
def test_handles_that_write_in_turn_share_the_room(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with ExitStack() as stack:
        handles = [stack.enter_context(duramen.open(path)) for _ in range(3)]
        for number in range(1_500):
            handles[number % 3].session("s").append("note", number)
        assert log_of(path).stat().st_size < 10 * 2**20  # what SQLite lets it grow to, and no more
        expect_after_a_crash(path, 1_500, tmp_path / "copy")


def test_a_process_that_goes_to_another_folder_touches_no_other_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    with duramen.open("agent.db") as one, duramen.open(tmp_path / "two" / "agent.db") as two:
        two.session("s").append("note", "theirs")
        monkeypatch.chdir(tmp_path / "two")
        before = log_of(tmp_path / "two" / "agent.db").read_bytes()
        for number in range(100):
            one.session("s").append("note", number)
        assert log_of(tmp_path / "two" / "agent.db").read_bytes() == before
        assert [event.data for event in one.session("s").events()] == list(range(100))
        assert Path(one._core._journal.store._settings.file).is_absolute()  # more connections are opened by it


@pytest.mark.promise("J3")
@pytest.mark.parametrize("encrypted", [False, True])
def test_zeros_that_a_power_cut_left_half_written_hide_nothing(tmp_path: Path, encrypted: bool) -> None:
    path, key = tmp_path / "agent.db", duramen.new_key() if encrypted else None
    with duramen.open(path, file_key=key) as dm:
        for number in range(40):
            dm.session("s").append("note", number)
        database, log = path.read_bytes(), log_of(path).read_bytes()
        end = used(path)
    end += -(end - 32) % 4120  # a page may end with zeros
    tails = [b"", bytes(1000), b"\xff" * 9000, bytes(4120) + log[32:4152], log[4152:8272], bytes(2**20)]
    for number, tail in enumerate(tails):
        copy = tmp_path / f"{number}.db"
        copy.write_bytes(database)
        log_of(copy).write_bytes(log[:end] + tail)
        with duramen.open(copy, file_key=key) as dm:
            assert [event.data for event in dm.session("s").events()] == list(range(40))
            dm.session("s").append("note", 40)
            assert dm.verify().ok


@pytest.mark.promise("G3")
def test_an_emptied_log_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        for number in range(60):
            dm.session("s").append("note", f"planted {number}", subject="ada")
        assert log_of(path).stat().st_size > 256 * 1024
        dm.erase("ada")
        assert b"planted" not in path.read_bytes() + log_of(path).read_bytes()
        for number in range(60):
            dm.session("t").append("note", number)
        assert dm.verify().ok


def test_where_no_room_can_be_made_appends_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def full(*given: Any) -> int:
        tried.append(given)
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "pwrite", full)
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        for number in range(60):
            dm.session("s").append("note", number)
        assert len(tried) == 1
        expect_after_a_crash(path, 60, tmp_path / "copy")
