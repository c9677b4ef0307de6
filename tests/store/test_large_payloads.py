"""Large values are stored once in a workspace, and a repeat writes next to nothing."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest

import duramen

OUTPUT = random.Random(12).randbytes(5_000_000)


def bytes_on_disk(folder: Path) -> int:
    """Without the zeros that are written ahead of a log."""
    return sum(len(file.read_bytes().rstrip(b"\0")) for file in folder.iterdir())


@pytest.mark.promise("J12")
@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["plain", "sealed"])
def test_ten_events_with_the_same_output_take_its_size_once(tmp_path: Path, key: bytes | None) -> None:
    with duramen.open(tmp_path / "agent.db", key=key) as dm:
        sizes = []
        for turn in range(10):
            stored = dm.session(f"s{turn % 3}").append("tool", {"turn": turn, "output": OUTPUT})
            assert stored.data["output"] == OUTPUT
            sizes.append(bytes_on_disk(tmp_path))
        assert sizes[-1] - sizes[0] < 500_000, "the nine repeats wrote next to nothing"
        assert dm.verify().blobs == 1
    assert 5_000_000 < (tmp_path / "agent.db").stat().st_size < 5_200_000
    with duramen.open(tmp_path / "agent.db", key=key) as dm:
        assert [event.data["turn"] for event in dm.session("s0").events()] == [0, 3, 6, 9]
        assert all(event.data["output"] == OUTPUT for event in dm.session("s1").events())


@pytest.mark.promise("J12", "B2")
def test_postgres_stores_it_once_too(postgres_url: str) -> None:
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
def test_what_one_person_owns_is_not_shared_with_another(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        for subject in ("alice", "bob"):
            dm.session("s").append("tool", "same text " * 5_000, subject=subject)
        assert dm.verify().blobs == 2, "erasing one must not take it from the other"
        dm.erase("alice")
        assert [event.data for event in dm.session("s").events(types="tool")] == [None, "same text " * 5_000]
