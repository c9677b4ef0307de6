"""Room that is made at the end of SQLite's write-ahead log: it saves time, and must never cost a frame."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast.stores.sqlite import logroom
from holdfast.stores.sqlite.logroom import LogRoom


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
    with holdfast.open(to / path.name) as hf:
        assert [event.data for event in hf.session("s").events()] == list(range(count))
        assert hf.verify().ok


@pytest.mark.promise("J2", "J8")
def test_zeros_lie_ahead_of_the_log_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as hf:
        session = hf.session("s")
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
    with holdfast.open(path) as hf:
        for number in range(3):
            hf.session("s").append("note", number)
        assert log_of(path).stat().st_size < 256 * 1024


@pytest.mark.promise("J5")
def test_somebody_else_who_writes_the_same_file_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as hf, holdfast.open(path) as other:
        stranger = apsw.Connection(str(path))
        stranger.execute("CREATE TABLE mine (number INTEGER)")
        for number in range(120):
            (hf if number % 3 else other).session("s").append("note", number)
            stranger.execute("INSERT INTO mine VALUES (?)", (number,))
        expect_after_a_crash(path, 120, tmp_path / "copy")
        copy = apsw.Connection(str(tmp_path / "copy" / path.name))
        assert copy.execute("SELECT count(*), sum(number) FROM mine").fetchone() == (120, sum(range(120)))
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        copy.close()
        stranger.close()


def test_only_what_lies_behind_the_end_is_written(tmp_path: Path) -> None:
    log = tmp_path / "agent.db-wal"
    log.write_bytes(b"x" * 5000)
    room = LogRoom(str(tmp_path / "agent.db"))
    while not room.short:
        room.committed()
    log.write_bytes(b"y" * 9000)  # it went on since
    room.widen()
    assert log.read_bytes().rstrip(b"\0") == b"y" * 9000
    assert log.stat().st_size == 9000 + 256 * 1024
    for _ in range(30):
        room.committed()
    assert not room.short  # there is room
    os.truncate(log, 0)
    for _ in range(30):
        room.committed()
    assert not room.short  # nothing was written to it
    with log.open("ab") as file:
        file.write(b"z")
    for _ in range(30):
        room.committed()
    assert room.short
    room.close()


@pytest.mark.promise("G3")
def test_an_emptied_log_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as hf:
        for number in range(60):
            hf.session("s").append("note", f"planted {number}", subject="ada")
        assert log_of(path).stat().st_size > 256 * 1024
        hf.erase("ada")
        assert b"planted" not in path.read_bytes() + log_of(path).read_bytes()
        for number in range(60):
            hf.session("t").append("note", number)
        assert hf.verify().ok


def test_where_no_room_can_be_made_appends_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def full(*given: Any) -> int:
        tried.append(given)
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(logroom.os, "pwrite", full)
    path = tmp_path / "agent.db"
    with holdfast.open(path) as hf:
        for number in range(60):
            hf.session("s").append("note", number)
        assert len(tried) == 1
        expect_after_a_crash(path, 60, tmp_path / "copy")
