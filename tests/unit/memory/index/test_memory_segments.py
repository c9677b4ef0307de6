"""Segments: a process that begins reads packed changes, finds what it would find without, and nothing that is gone."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from programs.child_processes import ChildProcesses
from programs.memory_handles import DIMS, come_to_rest, open_memory, vectors_of

import duramen
from duramen.embedders import CallableEmbedder
from duramen.memory.index import segment_writer
from duramen.memory.index.index_codec import IndexCodec
from duramen.memory.ranking.search import Search
from duramen.runtime import drive
from duramen.testing.clock import FakeClock

SAID = 60
KEY = bytes(range(32))
PLANTED = "xylophonewoodpecker"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "MIN_CHANGES", 8)
    monkeypatch.setattr(segment_writer, "MAX_CHANGES", 32)
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # what was recalled before would rank higher


def fill(dm: duramen.Duramen, clock: FakeClock, count: int = SAID) -> None:
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
    come_to_rest(dm)


def asked(dm: duramen.Duramen) -> list[Any]:
    found: list[Any] = []
    for how in ({}, {"metadata": {"part": 1}}, {"kinds": ["episode"]}):
        for question in ("Which lighthouse did Speaker1 see in May?", "What colour is boat 12?", "lighthouse boat"):
            hits = dm.memory.recall(question, subject="ada", limit=8, **how)
            found += [(hit.memory.content, pytest.approx(hit.score, abs=1e-4)) for hit in hits]
    return found


def spans(dm: duramen.Duramen) -> list[tuple[bytes, int, int]]:
    journal = dm._core._journal
    (made,) = drive(journal.store.generations(journal.workspace))
    return drive(journal.store.segment_spans(journal.workspace, made.number))


def one_by_one(monkeypatch: pytest.MonkeyPatch, address: str, **settings: Any) -> list[Any]:
    """What is found by a process that reads no segment."""

    async def unreadable(*_: Any) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(IndexCodec, "open_segment", unreadable)
        with open_memory(address, **settings) as dm:
            return asked(dm)


@pytest.mark.promise("S2", "R5")
def test_a_new_process_finds_the_same_by_segments(
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
    original = IndexCodec.open_entries

    async def counted(self: IndexCodec, changes: Any, *rest: Any) -> Any:
        opened.append(len(changes))
        return await original(self, changes, *rest)

    plain = one_by_one(monkeypatch, any_address, clock=clock)
    with monkeypatch.context() as patch, open_memory(any_address, clock=clock) as dm:
        patch.setattr(IndexCodec, "open_entries", counted)
        assert asked(dm) == plain
        assert sum(opened) < SAID / 2
        assert dm.verify().ok


def test_where_all_is_packed_a_process_that_begins_reads_no_change(
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

        async def counting(workspace: str, audience: bytes, *asked: Any) -> Any:
            audiences.append(audience)
            return await read(workspace, audience, *asked)

        monkeypatch.setattr(store, "changes", counting)
        index_worker._segment_writer._seen_counts.clear()  # as in a process that begins
        drive(index_worker.write_segments())
        assert (audiences, spans(dm)) == ([], packed)
        index_worker._segment_writer._seen_counts.clear()
        fill(dm, clock, 8)
        drive(index_worker.write_segments())
        assert audiences
        assert spans(dm) != packed


@pytest.mark.promise("G3", "G4")
def test_what_is_gone_is_in_no_segment(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as dm:
        gone = dm.memory.remember("A secret boat", subject="ada", metadata={"where": PLANTED}, speaker=PLANTED)
        old = dm.memory.remember("The anchor is green", subject="ada", key="anchor")
        fill(dm, clock)
        held = len(spans(dm))
        dm.memory.remember("The anchor is red", subject="ada", key="anchor")
        dm.memory.forget(gone.id)
        assert len(spans(dm)) == held - 1
    assert not any(PLANTED.encode() in path.read_bytes() for path in tmp_path.iterdir())
    with open_memory(address, clock=clock) as dm:
        texts = [hit.memory.content for hit in dm.memory.recall("anchor boat", subject="ada", limit=100)]
        assert len(texts) == SAID + 1
        assert not {gone.content, old.content} & set(texts)
        fill(dm, clock, 0)
        dm.memory._core._service.index_worker._segment_writer._seen_counts.clear()
        come_to_rest(dm)
        assert len(spans(dm)) >= held, "the gap is filled again"
        assert dm.verify().ok
    assert not any(PLANTED.encode() in path.read_bytes() for path in tmp_path.iterdir())
    plain = one_by_one(monkeypatch, address, clock=clock)
    with open_memory(address, clock=clock) as dm:
        assert asked(dm) == plain
        dm.memory._core._service.index_worker.stop()  # it would pack that they are gone
        dm.erase("ada")
        assert spans(dm) == []
        assert dm.verify().ok


def test_segments_of_a_sealed_store_are_sealed(tmp_path: Path, clock: FakeClock) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock, key=KEY) as dm:
        dm.memory.remember("A boat", subject="ada", metadata={"where": PLANTED}, speaker=PLANTED)
        fill(dm, clock)
        assert spans(dm)
        expected = asked(dm)
    assert not any(PLANTED.encode() in path.read_bytes() for path in tmp_path.iterdir())
    with open_memory(address, clock=clock, key=KEY) as dm:
        assert asked(dm) == expected
    with open_memory(address, clock=clock, key=KEY) as dm:
        dm.erase("ada")
        assert spans(dm) == []


@pytest.mark.parametrize(
    "spoilt", ["body = zeroblob(length(body))", "after = after + 1", "owner = x'00'", "upto = upto + 1"]
)
def test_a_damaged_segment_is_said_and_not_used(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, spoilt: str
) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as dm:
        fill(dm, clock)
    plain = one_by_one(monkeypatch, address, clock=clock)
    with closing(apsw.Connection(address)) as db:
        db.execute(f"UPDATE duramen_segments SET {spoilt} WHERE rowid = (SELECT max(rowid) FROM duramen_segments)")
    with open_memory(address, clock=clock) as dm:
        assert asked(dm) == plain
        assert any("the segment" in str(problem) for problem in dm.verify().problems)


def test_memories_of_several_owners_are_not_packed_together(tmp_path: Path, clock: FakeClock) -> None:
    with open_memory(str(tmp_path / "agent.db"), clock=clock) as dm:
        for number in range(20):
            dm.session("s").remember(f"note {number}", scope="session", subject=("ada", "bob")[number % 2])
        come_to_rest(dm)
        assert spans(dm) == []
        assert len(dm.memory.recall("note", session="s", limit=50)) == 20


@pytest.mark.promise("S7")
def test_another_embedder_makes_its_own_segments(tmp_path: Path, clock: FakeClock) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as dm:
        fill(dm, clock)
        assert spans(dm)
    other = CallableEmbedder(vectors_of, name="other", dims=DIMS)
    with open_memory(address, clock=clock, embedder=other) as dm:
        list(dm.memory.reindex())
        assert spans(dm) == []
        come_to_rest(dm)
        assert spans(dm)
        expected = asked(dm)
        assert dm.verify().ok
    with open_memory(address, clock=clock, embedder=other) as dm:
        assert asked(dm) == expected


@pytest.mark.promise("S7", "G3")
@pytest.mark.parametrize("point", ["memory.packing", "memory.packed"])
def test_a_kill_while_packing_loses_nothing(tmp_path: Path, processes: ChildProcesses, point: str) -> None:
    address = str(tmp_path / "agent.db")
    child = processes.start("memory_handles:pack_all", crash=(point, 2), address=address, count=40)
    assert child.wait() == -signal.SIGKILL, child.errors()
    with open_memory(address) as dm:
        assert len(dm.memory.recall("fact", subject="ada", limit=100)) == 40
        come_to_rest(dm)
        assert len(spans(dm)) >= 2
        assert dm.verify().ok
    with open_memory(address) as dm:
        assert len(dm.memory.recall("fact", subject="ada", limit=100)) == 40
