"""Segments: a new process reads packed changes. It finds the same as without them, and nothing that was forgotten."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from programs.child_processes import ChildProcesses
from programs.memory_handles import DIMS, finish_indexing, open_memory, vectors_of

import duramen
from duramen.embedders import CallableEmbedder
from duramen.memory.index import segment_writer
from duramen.memory.index.index_codec import IndexCodec
from duramen.memory.ranking.search import Search
from duramen.runtime import drive
from duramen.testing.clock import FakeClock

COUNT = 60
KEY = bytes(range(32))
SECRET = "xylophonewoodpecker"


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "MIN_CHANGES", 8)
    monkeypatch.setattr(segment_writer, "MAX_CHANGES", 32)
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # recalled memories would rank higher


def fill(dm: duramen.Duramen, clock: FakeClock, count: int = COUNT) -> None:
    for number in range(count):
        clock.advance(600)
        if number % 2:
            text = f"Saw the lighthouse number {number} on 3 May, did you?"
            dm.session(f"talk {number % 3}").remember(
                text, kind="episode", subject="ada", speaker=f"Speaker{number % 4}"
            )
        else:
            details: Any = {"metadata": {"part": number % 3}, "importance": number / 100}
            dm.memory.remember(f"The boat {number} is painted in colour {number % 7}", subject="ada", **details)
    finish_indexing(dm)


def recalled(dm: duramen.Duramen) -> list[Any]:
    result: list[Any] = []
    for options in ({}, {"metadata": {"part": 1}}, {"kinds": ["episode"]}):
        for question in ("Which lighthouse did Speaker1 see in May?", "What colour is boat 12?", "lighthouse boat"):
            hits = dm.memory.recall(question, subject="ada", limit=8, **options)
            result += [(hit.memory.content, pytest.approx(hit.score, abs=1e-4)) for hit in hits]
    return result


def spans(dm: duramen.Duramen) -> list[tuple[bytes, int, int]]:
    journal = dm._core._journal
    (made,) = drive(journal.store.generations(journal.workspace))
    return drive(journal.store.segment_spans(journal.workspace, made.number))


def recalled_without_segments(monkeypatch: pytest.MonkeyPatch, address: str, **settings: Any) -> list[Any]:
    """The hits of a new handle that reads no segment."""

    async def unreadable(*_: Any) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(IndexCodec, "open_segment", unreadable)
        with open_memory(address, **settings) as dm:
            return recalled(dm)


@pytest.mark.promise("S2", "R5")
def test_a_new_handle_finds_the_same_with_segments(
    any_address: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(any_address, clock=clock) as dm:
        fill(dm, clock)
        before = spans(dm)
        assert len(before) >= 2
        assert [after for _, after, _ in before] == [0, *(upto for _, _, upto in before[:-1])]
        if any_address == "memory:":
            return
        dm.memory.remember("The boat 99 is new here", subject="ada", fresh=True)
    opened: list[int] = []
    open_entries = IndexCodec.open_entries

    async def counted_open(self: IndexCodec, changes: Any, *rest: Any) -> Any:
        opened.append(len(changes))
        return await open_entries(self, changes, *rest)

    plain = recalled_without_segments(monkeypatch, any_address, clock=clock)
    with monkeypatch.context() as patch, open_memory(any_address, clock=clock) as dm:
        patch.setattr(IndexCodec, "open_entries", counted_open)
        assert recalled(dm) == plain
        assert sum(opened) < COUNT / 2
        assert dm.verify().ok


def test_a_new_writer_reads_no_packed_changes(
    any_address: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(any_address, clock=clock) as dm:
        index_worker: Any = dm.memory._core._service.index_worker
        index_worker.stop()
        fill(dm, clock)
        drive(index_worker.write_segments())
        packed = spans(dm)
        assert packed
        store: Any = dm._core._journal.store
        read, audiences = store.changes, list[bytes]()

        async def counting(workspace: str, audience: bytes, *rest: Any) -> Any:
            audiences.append(audience)
            return await read(workspace, audience, *rest)

        monkeypatch.setattr(store, "changes", counting)
        index_worker._segment_writer._seen_counts.clear()  # as in a new process
        drive(index_worker.write_segments())
        assert (audiences, spans(dm)) == ([], packed)
        index_worker._segment_writer._seen_counts.clear()
        fill(dm, clock, 8)
        drive(index_worker.write_segments())
        assert audiences
        assert spans(dm) != packed


@pytest.mark.promise("G3", "G4")
def test_a_forgotten_memory_is_in_no_segment(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as dm:
        forgotten = dm.memory.remember("A secret boat", subject="ada", metadata={"where": SECRET}, speaker=SECRET)
        replaced = dm.memory.remember("The anchor is green", subject="ada", key="anchor")
        fill(dm, clock)
        count = len(spans(dm))
        dm.memory.remember("The anchor is red", subject="ada", key="anchor")
        dm.memory.forget(forgotten.id)
        assert len(spans(dm)) == count - 1
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.iterdir())
    with open_memory(address, clock=clock) as dm:
        texts = [hit.memory.content for hit in dm.memory.recall("anchor boat", subject="ada", limit=100)]
        assert len(texts) == COUNT + 1
        assert not {forgotten.content, replaced.content} & set(texts)
        fill(dm, clock, 0)
        dm.memory._core._service.index_worker._segment_writer._seen_counts.clear()
        finish_indexing(dm)
        assert len(spans(dm)) >= count, "the gap is filled again"
        assert dm.verify().ok
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.iterdir())
    plain = recalled_without_segments(monkeypatch, address, clock=clock)
    with open_memory(address, clock=clock) as dm:
        assert recalled(dm) == plain
        dm.memory._core._service.index_worker.stop()  # it would pack the erasure
        dm.erase("ada")
        assert spans(dm) == []
        assert dm.verify().ok


def test_segments_of_a_sealed_store_are_sealed(tmp_path: Path, clock: FakeClock) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock, key=KEY) as dm:
        dm.memory.remember("A boat", subject="ada", metadata={"where": SECRET}, speaker=SECRET)
        fill(dm, clock)
        assert spans(dm)
        expected = recalled(dm)
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.iterdir())
    with open_memory(address, clock=clock, key=KEY) as dm:
        assert recalled(dm) == expected
    with open_memory(address, clock=clock, key=KEY) as dm:
        dm.erase("ada")
        assert spans(dm) == []


@pytest.mark.parametrize(
    "damage", ["body = zeroblob(length(body))", "after = after + 1", "owner = x'00'", "upto = upto + 1"]
)
def test_a_damaged_segment_is_reported_and_not_used(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as dm:
        fill(dm, clock)
    plain = recalled_without_segments(monkeypatch, address, clock=clock)
    with closing(apsw.Connection(address)) as db:
        db.execute(f"UPDATE duramen_segments SET {damage} WHERE rowid = (SELECT max(rowid) FROM duramen_segments)")
    with open_memory(address, clock=clock) as dm:
        assert recalled(dm) == plain
        assert any("the segment" in str(problem) for problem in dm.verify().problems)


def test_memories_of_different_subjects_are_not_packed_together(tmp_path: Path, clock: FakeClock) -> None:
    with open_memory(str(tmp_path / "agent.db"), clock=clock) as dm:
        for number in range(20):
            dm.session("s").remember(f"note {number}", scope="session", subject=("ada", "bob")[number % 2])
        finish_indexing(dm)
        assert spans(dm) == []
        assert len(dm.memory.recall("note", session="s", limit=50)) == 20


@pytest.mark.promise("S7")
def test_another_embedder_gets_its_own_segments(tmp_path: Path, clock: FakeClock) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as dm:
        fill(dm, clock)
        assert spans(dm)
    other = CallableEmbedder(vectors_of, name="other", dims=DIMS)
    with open_memory(address, clock=clock, embedder=other) as dm:
        list(dm.memory.reindex())
        assert spans(dm) == []
        finish_indexing(dm)
        assert spans(dm)
        expected = recalled(dm)
        assert dm.verify().ok
    with open_memory(address, clock=clock, embedder=other) as dm:
        assert recalled(dm) == expected


@pytest.mark.promise("S7", "G3")
@pytest.mark.parametrize("point", ["memory.packing", "memory.packed"])
def test_a_kill_while_packing_loses_nothing(tmp_path: Path, processes: ChildProcesses, point: str) -> None:
    address = str(tmp_path / "agent.db")
    child = processes.start("memory_handles:remember_and_pack", crash=(point, 2), address=address, count=40)
    assert child.wait() == -signal.SIGKILL, child.errors()
    with open_memory(address) as dm:
        assert len(dm.memory.recall("fact", subject="ada", limit=100)) == 40
        finish_indexing(dm)
        assert len(spans(dm)) >= 2
        assert dm.verify().ok
    with open_memory(address) as dm:
        assert len(dm.memory.recall("fact", subject="ada", limit=100)) == 40
