"""Vectors belong to one embedder. Reindexing for another one can be stopped and resumed at any point."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from programs.child_processes import ChildProcesses
from programs.command_line import run
from programs.counting_embedder import CountingEmbedder

import duramen
from duramen.embedders import CallableEmbedder
from duramen.errors import EmbedderMismatch, InvalidInput


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


def fill(address: str, embedder: CountingEmbedder, count: int = 70) -> None:
    with duramen.open(address, embedder=embedder) as dm:
        for number in range(count):
            dm.memory.remember(f"fact number {number}")
        dm.memory.catch_up()


def best(dm: duramen.Duramen, query: str) -> str:
    return str(dm.memory.recall(query, limit=1).hits[0].memory.content)


@pytest.mark.promise("S6")
def test_another_embedder_is_refused_until_the_store_is_reindexed(address: str) -> None:
    old, new = CountingEmbedder("old"), CountingEmbedder("new", 32)
    fill(address, old)
    with duramen.open(address, embedder=new) as dm:
        with pytest.raises(EmbedderMismatch, match="old") as refused:
            dm.memory.recall("fact number 7")
        assert "reindex" in refused.value.hint
        steps = list(dm.memory.reindex())
        assert (steps[0], steps[-1]) == ((0, 70), (70, 0))
        assert best(dm, "fact number 7") == "fact number 7"
        assert "meaning" in dm.memory.recall("fact number 7", limit=1).hits[0].parts
        assert dm.verify().ok
    with duramen.open(address, embedder=old) as dm, pytest.raises(EmbedderMismatch, match="new"):
        dm.memory.recall("fact number 7")


@pytest.mark.promise("S6")
def test_old_vectors_are_searched_until_the_new_ones_are_complete(address: str) -> None:
    old, new = CountingEmbedder("old"), CountingEmbedder("new", 32)
    fill(address, old)
    with duramen.open(address, embedder=old) as before, duramen.open(address, embedder=new) as dm:
        for done, _ in dm.memory.reindex():
            hit = before.memory.recall("fact number 7", limit=1).hits[0]
            assert (hit.memory.content, "meaning" in hit.parts) == ("fact number 7", True), done
        with pytest.raises(EmbedderMismatch):
            before.memory.recall("fact number 7")


@pytest.mark.promise("S6", "S7")
def test_a_stopped_reindex_resumes(address: str) -> None:
    fill(address, CountingEmbedder("old"))
    with duramen.open(address, embedder=CountingEmbedder("new")) as dm:
        steps = dm.memory.reindex()
        for _ in range(2):
            next(steps)
        del steps
    last = CountingEmbedder("new")
    with duramen.open(address, embedder=last) as dm:
        steps = list(dm.memory.reindex())
        assert (steps[0], steps[-1]) == ((0, 38), (38, 0))
        assert len(last.texts) == 38
        assert dm.memory.waiting() == 0


@pytest.mark.promise("S6")
@pytest.mark.parametrize("point", ["memory.embedded", "memory.indexed", "memory.reindexed"])
def test_a_killed_reindex_resumes(address: str, processes: ChildProcesses, point: str) -> None:
    fill(address, CountingEmbedder("old"))
    for visit in (1, 2) if point != "memory.reindexed" else (1,):
        child = processes.start("counting_embedder:reindex", crash=(point, visit), address=address, name="new")
        assert child.wait() == -signal.SIGKILL, child.errors()
    last = CountingEmbedder("new")
    with duramen.open(address, embedder=last) as dm:
        list(dm.memory.reindex())
        # A batch that was embedded but not stored is embedded again.
        assert len(last.texts) == {"memory.embedded": 38, "memory.indexed": 0, "memory.reindexed": 0}[point]
        assert best(dm, "fact number 7") == "fact number 7"
        assert dm.verify().ok


def test_reindex_needs_an_embedder(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm, pytest.raises(InvalidInput, match="embedder"):
        list(dm.memory.reindex())


@pytest.mark.promise("S6")
def test_the_command_reindexes_a_store_and_refuses_a_missing_one(tmp_path: Path) -> None:
    address = tmp_path / "agent.db"
    fill(str(address), CountingEmbedder("old"), 5)
    done = run("reindex", "--store", address, cwd=tmp_path)
    assert (done.code, done.out) == (0, "5 vectors computed. Searches use them from now on.\n")
    with duramen.open(address) as dm:
        assert best(dm, "fact number 3") == "fact number 3"
    missing = run("reindex", "--store", tmp_path / "none.db", cwd=tmp_path)
    assert (missing.code, missing.out) == (2, "")
    assert "there is no" in missing.err
    assert not (tmp_path / "none.db").exists()
    wrong = run("reindex", "--store", address, "--embedder", "nonsense", cwd=tmp_path)
    assert wrong.code != 0
    assert "Hint: " in wrong.err


def test_no_text_is_embedded_twice_by_two_threads(tmp_path: Path) -> None:
    embedded: list[str] = []

    def slowly(texts: Sequence[str]) -> list[list[float]]:
        embedded.extend(text for text in texts if "walk" in text)
        time.sleep(0.003 * len(texts))
        return [[1.0, float(len(text))] for text in texts]

    with duramen.open(tmp_path / "a.db", embedder=CallableEmbedder(slowly, name="slow")) as dm:
        for number in range(80):
            dm.memory.remember(f"walk number {number}", subject="ann")
        dm.memory.catch_up()
        assert dm.memory.waiting() == 0
    assert len(embedded) == len({*embedded}) == 80
