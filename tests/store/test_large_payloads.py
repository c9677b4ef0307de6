"""A large value is stored once in a workspace. Repeating it writes almost nothing."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest

import duramen

OUTPUT = random.Random(12).randbytes(5_000_000)


def bytes_on_disk(folder: Path) -> int:
    """The size of all files, without the zeros that SQLite allocates ahead for its log."""
    return sum(len(file.read_bytes().rstrip(b"\0")) for file in folder.iterdir())


@pytest.mark.promise("J12")
@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["plain", "sealed"])
def test_sqlite_stores_a_repeated_output_once(tmp_path: Path, key: bytes | None) -> None:
    with duramen.open(tmp_path / "agent.db", key=key) as dm:
        sizes = []
        for turn in range(10):
            stored = dm.session(f"s{turn % 3}").append("tool", {"turn": turn, "output": OUTPUT})
            assert stored.data["output"] == OUTPUT
            sizes.append(bytes_on_disk(tmp_path))
        assert sizes[-1] - sizes[0] < 500_000, "the nine repeats wrote almost nothing"
        assert dm.verify().blobs == 1
    assert 5_000_000 < (tmp_path / "agent.db").stat().st_size < 5_200_000
    with duramen.open(tmp_path / "agent.db", key=key) as dm:
        assert [event.data["turn"] for event in dm.session("s0").events()] == [0, 3, 6, 9]
        assert all(event.data["output"] == OUTPUT for event in dm.session("s1").events())


@pytest.mark.promise("J12", "B2")
def test_postgres_stores_a_repeated_output_once(postgres_url: str) -> None:
    with duramen.open(postgres_url) as dm:
        for turn in range(10):
            dm.session(f"s{turn % 3}").append("tool", {"turn": turn, "output": OUTPUT})
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT length(body) FROM duramen.blobs").fetchall()
        payloads = connection.execute("SELECT sum(length(payload)) FROM duramen.events").fetchone()
    assert [row[0] for row in rows] == [5_000_001]
    assert payloads is not None
    assert payloads[0] < 2_000


@pytest.mark.promise("J12")
def test_values_of_different_subjects_are_stored_separately(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        for subject in ("alice", "bob"):
            dm.session("s").append("tool", "same text " * 5_000, subject=subject)
        assert dm.verify().blobs == 2, "erasing one subject must not remove the value of the other"
        dm.erase("alice")
        assert [event.data for event in dm.session("s").events(types="tool")] == [None, "same text " * 5_000]
