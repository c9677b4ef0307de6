"""Vectors belong to one embedder; moving to another can be stopped anywhere."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from programs.child_processes import ChildProcesses
from programs.command_line import run
from programs.embedding import Counted

import duramen
from duramen.embedders import CallableEmbedder
from duramen.errors import EmbedderMismatch, InvalidInput


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


def fill(address: str, embedder: Counted, count: int = 70) -> None:
    with duramen.open(address, embedder=embedder) as dm:
        for number in range(count):
            dm.memory.remember(f"fact number {number}")
        dm.memory.catch_up()


def best(dm: duramen.Duramen, query: str) -> str:
    return str(dm.memory.recall(query, limit=1).hits[0].memory.content)


@pytest.mark.promise("S6")
def test_another_embedder_is_refused_until_the_store_moved_to_it(address: str) -> None:
    old, new = Counted("old"), Counted("new", 32)
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
def test_the_old_vectors_are_searched_until_the_new_ones_are_complete(address: str) -> None:
    old, new = Counted("old"), Counted("new", 32)
    fill(address, old)
    with duramen.open(address, embedder=old) as before, duramen.open(address, embedder=new) as dm:
        for done, _ in dm.memory.reindex():
            hit = before.memory.recall("fact number 7", limit=1).hits[0]
            assert (hit.memory.content, "meaning" in hit.parts) == ("fact number 7", True), done
        with pytest.raises(EmbedderMismatch):
            before.memory.recall("fact number 7")


@pytest.mark.promise("S6", "S7")
def test_a_move_that_is_stopped_goes_on_where_it_was(address: str) -> None:
    fill(address, Counted("old"))
    with duramen.open(address, embedder=Counted("new")) as dm:
        steps = dm.memory.reindex()
        for _ in range(2):
            next(steps)
        del steps
    last = Counted("new")
    with duramen.open(address, embedder=last) as dm:
        steps = list(dm.memory.reindex())
        assert (steps[0], steps[-1]) == ((0, 38), (38, 0))
        assert len(last.asked) == 38
        assert dm.memory.waiting() == 0


@pytest.mark.promise("S6")
@pytest.mark.parametrize("point", ["memory.embedded", "memory.indexed", "memory.reindexed"])
def test_a_move_that_is_killed_goes_on_where_it_was(address: str, processes: ChildProcesses, point: str) -> None:
    fill(address, Counted("old"))
    for visit in (1, 2) if point != "memory.reindexed" else (1,):
        child = processes.start("embedding:move", crash=(point, visit), address=address, name="new")
        assert child.wait() == -signal.SIGKILL, child.errors()
    last = Counted("new")
    with duramen.open(address, embedder=last) as dm:
        list(dm.memory.reindex())
        # A batch that was embedded and not stored is made again; what was stored is not.
        assert len(last.asked) == {"memory.embedded": 38, "memory.indexed": 0, "memory.reindexed": 0}[point]
        assert best(dm, "fact number 7") == "fact number 7"
        assert dm.verify().ok


def test_without_an_embedder_there_is_nothing_to_move(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm, pytest.raises(InvalidInput, match="embedder"):
        list(dm.memory.reindex())


@pytest.mark.promise("S6")
def test_the_command_moves_a_store_and_refuses_one_that_is_not_there(tmp_path: Path) -> None:
    address = tmp_path / "agent.db"
    fill(str(address), Counted("old"), 5)
    moved = run("reindex", "--store", address, cwd=tmp_path)
    assert (moved.code, moved.out) == (0, "5 vectors made; all memories are searched by them from now on.\n")
    with duramen.open(address) as dm:
        assert best(dm, "fact number 3") == "fact number 3"
    nowhere = run("reindex", "--store", tmp_path / "none.db", cwd=tmp_path)
    assert (nowhere.code, nowhere.out) == (2, "")
    assert "there is no" in nowhere.err
    assert not (tmp_path / "none.db").exists()
    wrong = run("reindex", "--store", address, "--embedder", "nonsense", cwd=tmp_path)
    assert wrong.code != 0
    assert "Hint: " in wrong.err


def test_no_text_is_embedded_twice_while_a_thread_makes_vectors_as_well(tmp_path: Path) -> None:
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
