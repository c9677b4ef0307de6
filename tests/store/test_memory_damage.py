"""Damaged memory rows are reported. No new row is derived from them."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import duramen
from duramen.errors import StoreDamaged
from duramen.ports import IndexEntry, MemoryChanges, MemoryQuery
from duramen.runtime import drive
from duramen.stores.postgres.memories import note_recalls
from duramen.testing.chunk_contract import store_changes
from duramen.testing.index_contract import changed, enter, known, memory, store_of


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


def damage(address: str, sql: str) -> None:
    if address.startswith("postgresql:"):
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(sql.encode())
    else:
        with closing(apsw.Connection(address)) as db:
            db.execute(sql.replace("duramen.", "duramen_"))


def populate(handle: Any) -> None:
    """Two memories with index entries and recalls. The second has a key."""
    drive(enter(handle, memory("a"), memory("b", key="k")))
    made = drive(store_of(handle).add_generation(handle.workspace, b"model", active=True))
    rows = drive(known(handle))
    index_entries = [IndexEntry(b"", row.number, b"words", b"vector") for row in rows]
    drive(store_of(handle).put_index_entries(handle.workspace, made.number, index_entries))
    drive(store_of(handle).note_recalls(handle.workspace, [(row.number, 1, 5) for row in rows]))


@pytest.mark.promise("J8")
def test_a_damaged_memory_cannot_be_changed_but_can_be_forgotten(address: str) -> None:
    with duramen.open(address) as dm:
        handle = dm._core
        populate(handle)
        damage(address, "UPDATE duramen.memories SET begins = begins + 1 WHERE id = 'b'")
        intact, damaged = drive(known(handle))
        assert (intact.intact, damaged.intact) == (True, False)
        refused = [
            (MemoryChanges(memories=[memory("c"), memory("b", key="k")]),),
            (MemoryChanges(memories=[memory("c"), memory("d", key="k")]),),
            (MemoryChanges(memories=[memory("c")], ended=[(damaged.number, 5)]),),
        ]
        for changes in refused:
            for session in ("s", "new"):
                with pytest.raises(StoreDamaged, match=f"memory {damaged.number}"):
                    drive(store_changes(handle, session, changes))
        assert [row.id for row in drive(known(handle, history=True))] == ["a", "b"]
        assert [row.session for row in dm.sessions()] == ["s"]
        before = drive(changed(handle))
        drive(store_of(handle).put_index_entries("default", 1, [IndexEntry(b"", damaged.number, b"new", None)]))
        assert drive(changed(handle)) == before
        drive(store_changes(handle, "s", (MemoryChanges(memories=[memory("c")], forgotten=[damaged.number]),)))
        drive(enter(handle, memory("b", key="k")))
        assert [row.id for row in drive(known(handle, history=True))] == ["a", "c", "b"]
        assert dm.verify().ok


def damage_audience_sql(address: str) -> str:
    """On PostgreSQL an audience counts its changes. On SQLite the newest memory has the count."""
    column = "changes" if "postgresql" in address else "pid"
    return f"UPDATE duramen.audiences SET {column} = {column} + 1"


@pytest.mark.promise("J5", "J8")
def test_an_append_that_meets_damage_stores_nothing_and_others_succeed(address: str) -> None:
    async def append_at_once() -> list[Any]:
        async with await duramen.aopen(address) as handle:
            changes = (MemoryChanges(memories=[memory("x", audience=b"good"), memory("y")]),)
            work = [store_changes(handle, f"bad{n}", changes) for n in range(4)]
            work += [enter(handle, memory("z", audience=b"good"), session=f"good{n}") for n in range(4)]
            return list(await asyncio.gather(*work, return_exceptions=True))

    with duramen.open(address) as dm:
        populate(dm._core)
    damage(address, damage_audience_sql(address))
    outcomes = asyncio.run(append_at_once())
    assert [type(one).__name__ for one in outcomes] == ["StoreDamaged"] * 4 + ["Stored"] * 4
    with duramen.open(address) as dm:
        assert [row.session for row in dm.sessions()] == ["good0", "good1", "good2", "good3", "s"]
        assert [row.times for row in drive(known(dm._core, audiences=(b"good",)))] == [4]
        assert not [row for row in drive(known(dm._core, history=True)) if row.id in ("x", "y")]


@pytest.mark.promise("J8")
def test_damaged_index_entries_are_skipped_and_damaged_recalls_not_changed(address: str) -> None:
    with duramen.open(address) as dm:
        populate(dm._core)
        word, times = ("words || 'x'::bytea", "7") if "postgresql" in address else ("x'00'", "7")
        damage(address, f"UPDATE duramen.index_entries SET words = {word}")
        assert [(change.words, change.vector) for change in drive(changed(dm._core))] == [(None, None)] * 2
        damage(address, f"UPDATE duramen.recalls SET count = {times}")
        (first, _) = drive(known(dm._core))
        with pytest.raises(StoreDamaged, match="recalls of memory"):
            drive(store_of(dm._core).note_recalls("default", [(first.number, 1, 9)]))
        assert len(dm.verify().problems) == 4


@pytest.mark.promise("J8")
@pytest.mark.parametrize(("begins", "intact"), [(0, False), (2**60, False), (7, False), (9, True)])
def test_two_memories_of_a_key_that_overlap_in_time_are_detected(
    address: str, monkeypatch: pytest.MonkeyPatch, begins: int, intact: bool
) -> None:
    with duramen.open(address) as dm:
        drive(enter(dm._core, memory("a", key="k", begins=5, ends=9 if intact or begins == 7 else None)))
        monkeypatch.setattr("duramen.stores.common.memory_rows.rows_for", lambda row, *_: [row])
        drive(enter(dm._core, memory("b", key="k", begins=begins)))
        assert dm.verify().ok == intact


DAMAGES = {
    "a lost memory": "DELETE FROM duramen.memories WHERE id = 'b'",
    "a lost event": "DELETE FROM duramen.events WHERE position = 1",
    "a lost audience": "DELETE FROM duramen.audiences",
    "a lost generation": "DELETE FROM duramen.generations",
    "a changed audience": "",
    "a swapped number": "UPDATE duramen.memories SET number = number + 100 WHERE id = 'a'",
    "a wrong mark": "UPDATE duramen.memories SET indexed = 0 WHERE id = 'a'",
    "a dropped generation": "UPDATE duramen.generations SET active = -1",
}


@pytest.mark.promise("J8")
@pytest.mark.parametrize("how", DAMAGES)
def test_missing_and_wrong_rows_are_detected(address: str, how: str) -> None:
    with duramen.open(address) as dm:
        populate(dm._core)
        assert dm.verify().ok
        sql = DAMAGES[how] or damage_audience_sql(address)
        if "postgresql" in address and "number + 100" in sql:
            damage(address, "ALTER TABLE duramen.memories ALTER number SET GENERATED BY DEFAULT")
        damage(address, sql)
        assert not dm.verify().ok
        assert drive(store_of(dm._core).damage())
        assert isinstance(drive(store_of(dm._core).memories("default", MemoryQuery())), list)


def test_a_retried_recall_count_is_added_once(postgres_url: str) -> None:
    with duramen.open(postgres_url) as dm:
        populate(dm._core)
        number = drive(known(dm._core))[0].number
        tried: list[dict[int, tuple[int, int]]] = []
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            for _ in range(3):
                note_recalls(connection, "default", [(number, 2, 9), (number, 1, 8)], tried)
        assert [change[3:] for change in drive(changed(dm._core)) if change.row.number == number] == [(4, 9)]


@pytest.mark.promise("S4")
def test_two_handles_on_one_file_share_counts_and_memories(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path, embedder="none") as one, duramen.open(path, embedder="none") as other:
        for number in range(6):
            for handle in (one, other, one):
                assert handle.memory.remember(f"fact {number}").content == f"fact {number}"
            other.memory.remember(f"only {number}", subject="ada" if number % 2 else None)
        assert sorted(memory.times for memory in one.memory.list()) == [1] * 3 + [3] * 6
        assert len(other.memory.recall("fact", limit=20)) == 9
        other.erase("ada")
        one.memory.remember("fact 6")
        assert [hit.memory.content for hit in other.memory.recall("fact 6", limit=1)] == ["fact 6"]
        assert one.verify().ok
