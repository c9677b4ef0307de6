"""Traces in batches: what is done beside the embedding, and how large a batch is."""

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


def embedder(work: Callable[[Sequence[str]], Any]) -> CallableEmbedder:
    return CallableEmbedder(work, name="test", dims=DIMS)


def facts(count: int = COUNT) -> list[str]:
    return [f"fact {number}" for number in range(count)]


def stored(address: str) -> None:
    """Facts without vectors."""
    with open_memory(address, embedder="none") as dm:
        dm.memory.remember_all(facts())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that stay small, and nothing in the background."""
    monkeypatch.setattr(index_builder, "_LARGEST_BATCH", BATCH)
    monkeypatch.setattr(IndexWorker, "start", lambda _: None)


@pytest.mark.promise("S6")
def test_the_next_batch_is_read_while_one_is_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, read_ahead = threading.Semaphore(0), list[bool]()
    original = index_builder.IndexBuilder._read

    async def noted(*given: Any) -> Any:
        batch = await original(*given)
        if batch.rows:
            read.release()
        return batch

    def work(texts: Sequence[str]) -> Any:
        # That of the batch after it, while this one is under way, and for the first two their own: how large the
        # second is to be is learnt from the first. There is none after the last.
        wanted = (1, 2, 1, 0)[len(read_ahead)]
        read_ahead.append(all(read.acquire(timeout=20) for _ in range(wanted)))
        return vectors_of(texts)

    address = str(tmp_path / "agent.db")
    stored(address)
    monkeypatch.setattr(index_builder.IndexBuilder, "_read", noted)
    with open_memory(address, embedder=embedder(work)) as dm:
        dm.memory.catch_up()
        assert read_ahead == [True] * 4
        assert dm.memory.waiting() == 0
        assert dm.verify().ok


@pytest.mark.promise("S6", "S7")
def test_each_is_embedded_once_and_stored_though_the_embedder_fails_in_between(tmp_path: Path) -> None:
    asked: list[str] = []

    def work(texts: Sequence[str]) -> Any:
        if len(asked) >= 2 * BATCH and "down" in mood:
            raise EmbedderFailed("test", "it is down")
        asked.extend(texts)
        return vectors_of(texts)

    address, mood = str(tmp_path / "agent.db"), ["down"]
    stored(address)
    with open_memory(address, embedder=embedder(work)) as dm:
        with pytest.raises(EmbedderFailed):
            dm.memory.catch_up()
        assert dm.memory.waiting() == COUNT - 2 * BATCH, "what was embedded before is stored"
        mood.clear()
        dm.memory.catch_up()
        assert sorted(asked) == sorted(facts())
        assert dm.memory.waiting() == 0
        assert dm.verify().ok


@pytest.mark.promise("S6")
def test_what_comes_while_the_last_batch_is_embedded_is_embedded_too(tmp_path: Path) -> None:
    said: list[str] = []

    def work(texts: Sequence[str]) -> Any:
        if "late" not in said:
            said.append("late")
            dm.memory.remember("a late fact")
        return vectors_of(texts)

    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(work)) as dm:
        dm.memory.remember("an early fact")
        assert list(dm.memory.reindex())[-1] == (2, 0)


@pytest.mark.promise("S6", "G3")
def test_what_is_forgotten_or_said_again_while_it_is_embedded_stays_so(tmp_path: Path) -> None:
    done: list[str] = []

    def work(texts: Sequence[str]) -> Any:
        for fact in set(texts) & {"fact 1", "fact 40"}:
            dm.memory.forget(ids[fact])
            done.append(fact)
        if "fact 70" in texts:
            dm.memory.remember("fact 70", importance=0.9)
        return vectors_of(texts)

    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(work)) as dm:
        ids = {one.content: one.id for one in dm.memory.remember_all(facts())}
        dm.memory.catch_up()
        assert sorted(done) == ["fact 1", "fact 40"]
        assert dm.memory.waiting() == 0
        found = dm.memory.recall("fact", limit=COUNT).hits
        assert sorted(contents(found)) == sorted(set(facts()) - set(done))
        assert next(hit.memory for hit in found if hit.memory.content == "fact 70").importance == 0.9
        assert dm.verify().ok


@pytest.mark.promise("S6")
def test_a_batch_is_as_large_as_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, batches = [0.0], list[Sequence[str]]()

    def work(texts: Sequence[str]) -> Any:
        batches.append(texts)
        now[0] += sum(map(len, texts)) / 20_000  # so many characters a second
        return vectors_of(texts)

    monkeypatch.setattr(index_builder, "_LARGEST_BATCH", 300)
    monkeypatch.setattr(index_builder, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(work)) as dm:
        for count, length in ((900, 20), (1, 20), (90, 1_000), (200, 20)):
            dm.memory.remember_all([f"{len(batches):03}, {at:03}".ljust(length, "x") for at in range(count)])
            dm.memory.catch_up()
    sizes = list(map(len, batches))
    assert sizes[:5] == [BATCH, 300, 300, 268, 1], "as many as are quick, once that is known"
    for texts in batches:
        assert len(texts) <= BATCH or sum(map(len, texts)) <= 0.55 * 20_000
    assert sizes[sizes.index(1) + 1] == BATCH, "of long ones no more than at first"
    assert max(sizes[-3:]) > BATCH


@pytest.mark.promise("S6")
@pytest.mark.parametrize("refused", [0, 31, 32, 40, COUNT - 1])
def test_what_an_embedder_refuses_keeps_nobody_waiting(tmp_path: Path, refused: int) -> None:
    def work(texts: Sequence[str]) -> Any:
        if f"fact {refused}" in texts:
            raise EmbedderFailed("test", "too long")
        return vectors_of(texts)

    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(work)) as dm:
        dm.memory.remember_all(facts())
        dm.memory.catch_up()
        assert dm.memory.waiting() == 1
        assert "meaning" in dm.memory.recall("fact 33", limit=1).hits[0].parts


@pytest.mark.promise("S6")
def test_an_embedder_works_in_the_thread_that_asks_for_it(tmp_path: Path) -> None:
    threads: list[int] = []

    def work(texts: Sequence[str]) -> Any:
        threads.append(threading.get_ident())
        return vectors_of(texts)

    with open_memory(str(tmp_path / "agent.db"), embedder=embedder(work)) as dm:
        dm.memory.remember_all(facts())
        dm.memory.catch_up()
    assert len(threads) == 4
    assert set(threads) == {threading.get_ident()}, "it may hold a lock that the embedder takes, too"


@pytest.mark.promise("X11")
def test_in_a_transaction_vectors_are_refused_and_nobody_hangs(tmp_path: Path) -> None:
    told: list[str] = []

    @duramen.step
    def catch_up() -> None:
        with duramen.transaction():
            with pytest.raises(InvalidInput, match="transaction open") as refused:
                dm.memory.catch_up()
            told.append(refused.value.hint)

    @duramen.task
    def all_in_one() -> None:
        catch_up()

    with open_memory(str(tmp_path / "agent.db")) as dm:
        dm.memory.remember_all(facts(), fresh=True)  # from now on a batch is stored while the next one is embedded
        dm.memory.remember_all([f"another {fact}" for fact in facts()])
        dm.run(all_in_one, id="run")
        assert told
        dm.memory.catch_up()
        assert dm.memory.waiting() == 0


@pytest.mark.promise("S6")
def test_a_move_that_is_stopped_keeps_what_was_embedded(tmp_path: Path) -> None:
    asked: list[str] = []

    def work(texts: Sequence[str]) -> Any:
        asked.extend(texts)
        return vectors_of(texts)

    address = str(tmp_path / "agent.db")
    stored(address)
    for _ in range(4):
        with open_memory(address, embedder=embedder(work)) as dm:
            for done, _ in dm.memory.reindex():
                if done > BATCH:
                    break
    assert sorted(asked) == sorted(facts())


@pytest.mark.promise("S6")
def test_a_move_that_outlives_its_store_ends_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, unraisable = str(tmp_path / "agent.db"), list[Any]()
    stored(address)
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    dm = open_memory(address)
    steps = dm.memory.reindex()
    assert [done for done, _ in islice(steps, 3)] == [0, BATCH, 2 * BATCH], "a third batch is embedded and not stored"
    dm.close()
    del steps
    assert not unraisable
    with open_memory(address) as dm:
        assert list(dm.memory.reindex())[-1] == (COUNT - 2 * BATCH, 0)


def test_two_threads_do_not_pack_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = [0], [0]
    met = threading.Barrier(2)

    async def once(*_: Any) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.05)
        inside[0] -= 1

    with open_memory(str(tmp_path / "agent.db")) as dm:
        index_worker = dm.memory._core._service.index_worker
        dm.memory.remember("a fact", fresh=True)
        monkeypatch.setattr(SegmentWriter, "write_segments", once)

        def pack() -> None:
            met.wait(20)
            drive(index_worker.write_segments())

        threads = [threading.Thread(target=pack) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert most == [1]


def test_at_the_end_of_a_process_a_memory_still_gets_its_vector(tmp_path: Path) -> None:
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
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=TESTS, check=False)
    assert (told.stdout.strip(), told.stderr) == ("0", "")
