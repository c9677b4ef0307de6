"""The index builder embeds in batches: what it does meanwhile, and how large a batch is."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from programs.memory_handles import DIMS, contents, open_memory, vectors_of
from programs.paths import TESTS

import duramen
from duramen.embedders import CallableEmbedder
from duramen.errors import EmbedderFailed, InvalidInput
from duramen.memory.index import index_builder
from duramen.memory.index.index_builder import BATCH
from duramen.memory.index.index_worker import IndexWorker
from duramen.memory.index.segment_writer import SegmentWriter
from duramen.runtime import drive

COUNT = 3 * BATCH + 5


def embedder(embed: Callable[[Sequence[str]], Any]) -> CallableEmbedder:
    return CallableEmbedder(embed, name="test", dims=DIMS)


def facts(count: int = COUNT) -> list[str]:
    return [f"fact {number}" for number in range(count)]


def store_facts(address: str) -> None:
    """Store facts without vectors."""
    with open_memory(address, embedder="none") as dm:
        dm.memory.remember_all(facts())


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches stay small, and no background thread makes vectors."""
    monkeypatch.setattr(index_builder, "_LARGEST_BATCH", BATCH)
    monkeypatch.setattr(IndexWorker, "start", lambda _: None)


@pytest.mark.promise("S6")
def test_the_next_batch_is_read_while_one_is_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, read_ahead = threading.Semaphore(0), list[bool]()
    read_batch = index_builder.IndexBuilder._read

    async def counted_read(*args: Any) -> Any:
        batch = await read_batch(*args)
        if batch.rows:
            read.release()
        return batch

    def embed(texts: Sequence[str]) -> Any:
        # How many reads to wait for: the next batch is read while this one is embedded. The size of the second batch
        # follows from the first, so it is read late. Nothing follows the last.
        reads = (1, 2, 1, 0)[len(read_ahead)]
        read_ahead.append(all(read.acquire(timeout=20) for _ in range(reads)))
        return vectors_of(texts)

    address = str(tmp_path / "agent.db")
    store_facts(address)
    monkeypatch.setattr(index_builder.IndexBuilder, "_read", counted_read)
    with open_memory(address, embedder=embedder(embed)) as dm:
        dm.memory.catch_up()
        assert read_ahead == [True] * 4
        assert dm.memory.waiting() == 0
        assert dm.verify().ok


@pytest.mark.promise("S6", "S7")
def test_each_text_is_embedded_once_although_the_embedder_fails(tmp_path: Path) -> None:
    embedded: list[str] = []

    def embed(texts: Sequence[str]) -> Any:
        if len(embedded) >= 2 * BATCH and "down" in state:
            raise EmbedderFailed("test", "it is down")
        embedded.extend(texts)
        return vectors_of(texts)

    address, state = str(tmp_path / "agent.db"), ["down"]
    store_facts(address)
    with open_memory(address, embedder=embedder(embed)) as dm:
        with pytest.raises(EmbedderFailed):
            dm.memory.catch_up()
        assert dm.memory.waiting() == COUNT - 2 * BATCH, "vectors made before the failure are stored"
        state.clear()
        dm.memory.catch_up()
        assert sorted(embedded) == sorted(facts())
        assert dm.memory.waiting() == 0
        assert dm.verify().ok


@pytest.mark.promise("S6")
def test_a_memory_stored_during_the_last_batch_is_embedded_too(tmp_path: Path) -> None:
    remembered: list[str] = []

    def embed(texts: Sequence[str]) -> Any:
        if "late" not in remembered:
            remembered.append("late")
            dm.memory.remember("a late fact")
        return vectors_of(texts)

    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(embed)) as dm:
        dm.memory.remember("an early fact")
        assert list(dm.memory.reindex())[-1] == (2, 0)


@pytest.mark.promise("S6", "G3")
def test_changes_during_embedding_are_not_lost(tmp_path: Path) -> None:
    forgotten: list[str] = []

    def embed(texts: Sequence[str]) -> Any:
        for fact in set(texts) & {"fact 1", "fact 40"}:
            dm.memory.forget(ids[fact])
            forgotten.append(fact)
        if "fact 70" in texts:
            dm.memory.remember("fact 70", importance=0.9)
        return vectors_of(texts)

    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(embed)) as dm:
        ids = {one.content: one.id for one in dm.memory.remember_all(facts())}
        dm.memory.catch_up()
        assert sorted(forgotten) == ["fact 1", "fact 40"]
        assert dm.memory.waiting() == 0
        hits = dm.memory.recall("fact", limit=COUNT).hits
        assert sorted(contents(hits)) == sorted(set(facts()) - set(forgotten))
        assert next(hit.memory for hit in hits if hit.memory.content == "fact 70").importance == 0.9
        assert dm.verify().ok


@pytest.mark.promise("S6")
def test_the_batch_size_follows_the_speed_of_the_embedder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, batches = [0.0], list[Sequence[str]]()

    def embed(texts: Sequence[str]) -> Any:
        batches.append(texts)
        now[0] += sum(map(len, texts)) / 20_000  # 20,000 characters per second
        return vectors_of(texts)

    monkeypatch.setattr(index_builder, "_LARGEST_BATCH", 300)
    monkeypatch.setattr(index_builder, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(embed)) as dm:
        for count, length in ((900, 20), (1, 20), (90, 1_000), (200, 20)):
            dm.memory.remember_all([f"{len(batches):03}, {at:03}".ljust(length, "x") for at in range(count)])
            dm.memory.catch_up()
    sizes = list(map(len, batches))
    assert sizes[:5] == [BATCH, 300, 300, 268, 1], "as many as are fast, once the speed is known"
    for texts in batches:
        assert len(texts) <= BATCH or sum(map(len, texts)) <= 0.55 * 20_000
    assert sizes[sizes.index(1) + 1] == BATCH, "long texts are in small batches again"
    assert max(sizes[-3:]) > BATCH


@pytest.mark.promise("S6")
@pytest.mark.parametrize("refused", [0, 31, 32, 40, COUNT - 1])
def test_a_refused_text_does_not_block_the_batch(tmp_path: Path, refused: int) -> None:
    def embed(texts: Sequence[str]) -> Any:
        if f"fact {refused}" in texts:
            raise EmbedderFailed("test", "too long")
        return vectors_of(texts)

    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(embed)) as dm:
        dm.memory.remember_all(facts())
        dm.memory.catch_up()
        assert dm.memory.waiting() == 1
        assert "meaning" in dm.memory.recall("fact 33", limit=1).hits[0].parts


@pytest.mark.promise("S6")
def test_the_embedder_runs_in_the_calling_thread(tmp_path: Path) -> None:
    threads: list[int] = []

    def embed(texts: Sequence[str]) -> Any:
        threads.append(threading.get_ident())
        return vectors_of(texts)

    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(embed)) as dm:
        dm.memory.remember_all(facts())
        dm.memory.catch_up()
    assert len(threads) == 4
    assert set(threads) == {threading.get_ident()}, "the caller may hold a lock that the embedder needs"


@pytest.mark.promise("X11")
def test_making_vectors_in_a_transaction_is_refused(tmp_path: Path) -> None:
    hints: list[str] = []

    @duramen.step
    def catch_up() -> None:
        with duramen.transaction():
            with pytest.raises(InvalidInput, match="transaction open") as refused:
                dm.memory.catch_up()
            hints.append(refused.value.hint)

    @duramen.task
    def all_in_one() -> None:
        catch_up()

    with open_memory(str(tmp_path / "agent.db")) as dm:
        dm.memory.remember_all(facts(), fresh=True)  # after this, a batch is stored while the next is embedded
        dm.memory.remember_all([f"another {fact}" for fact in facts()])
        dm.run(all_in_one, id="run")
        assert hints
        dm.memory.catch_up()
        assert dm.memory.waiting() == 0


@pytest.mark.promise("S6")
def test_a_stopped_reindex_keeps_its_vectors(tmp_path: Path) -> None:
    embedded: list[str] = []

    def embed(texts: Sequence[str]) -> Any:
        embedded.extend(texts)
        return vectors_of(texts)

    address = str(tmp_path / "agent.db")
    store_facts(address)
    for _ in range(4):
        with open_memory(address, embedder=embedder(embed)) as dm:
            for done, _ in dm.memory.reindex():
                if done > BATCH:
                    break
    assert sorted(embedded) == sorted(facts())


@pytest.mark.promise("S6")
def test_a_reindex_that_outlives_its_store_ends_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, unraisable = str(tmp_path / "agent.db"), list[Any]()
    store_facts(address)
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    dm = open_memory(address)
    steps = dm.memory.reindex()
    assert [done for done, _ in islice(steps, 3)] == [0, BATCH, 2 * BATCH], "the third batch is embedded but not stored"
    dm.close()
    del steps
    assert not unraisable
    with open_memory(address) as dm:
        assert list(dm.memory.reindex())[-1] == (COUNT - 2 * BATCH, 0)


def test_two_threads_do_not_write_segments_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = [0], [0]
    barrier = threading.Barrier(2)

    async def slow_write(*_: Any) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        threading.Event().wait(0.05)
        running[0] -= 1

    with open_memory(str(tmp_path / "agent.db")) as dm:
        index_worker = dm.memory._core._service.index_worker
        dm.memory.remember("a fact", fresh=True)
        monkeypatch.setattr(SegmentWriter, "write_segments", slow_write)

        def pack() -> None:
            barrier.wait(20)
            drive(index_worker.write_segments())

        threads = [threading.Thread(target=pack) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert most == [1]


def test_a_memory_gets_its_vector_while_the_process_exits(tmp_path: Path) -> None:
    program = (
        "import atexit, sys, duramen, programs.memory_handles as handles\n"
        "dm = handles.open_memory(sys.argv[1])\n"
        "def last():\n"
        "    dm.memory.remember('a last fact', fresh=True)\n"
        "    print(dm.memory.waiting())\n"
        "    dm.close()\n"
        "atexit.register(last)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "agent.db")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=TESTS, check=False)
    assert (result.stdout.strip(), result.stderr) == ("0", "")
