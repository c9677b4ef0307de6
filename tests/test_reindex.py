"""Vectors belong to one embedder; moving to another can be stopped anywhere."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from programs.children import Nursery
from programs.embedding import Counted
from test_cli import run

import holdfast
from holdfast.embedders import CallableEmbedder
from holdfast.errors import EmbedderMismatch, InvalidInput


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


def fill(address: str, embedder: Counted, count: int = 70) -> None:
    with holdfast.open(address, embedder=embedder) as hf:
        for number in range(count):
            hf.memory.remember(f"fact number {number}")
        hf.memory.catch_up()


def best(hf: holdfast.Holdfast, query: str) -> str:
    return str(hf.memory.recall(query, limit=1).hits[0].memory.content)


@pytest.mark.promise("S6")
def test_another_embedder_is_refused_until_the_store_moved_to_it(address: str) -> None:
    old, new = Counted("old"), Counted("new", 32)
    fill(address, old)
    with holdfast.open(address, embedder=new) as hf:
        with pytest.raises(EmbedderMismatch, match="old") as refused:
            hf.memory.recall("fact number 7")
        assert "reindex" in refused.value.hint
        steps = list(hf.memory.reindex())
        assert (steps[0], steps[-1]) == ((0, 70), (70, 0))
        assert best(hf, "fact number 7") == "fact number 7"
        assert "meaning" in hf.memory.recall("fact number 7", limit=1).hits[0].parts
        assert hf.verify().ok
    with holdfast.open(address, embedder=old) as hf, pytest.raises(EmbedderMismatch, match="new"):
        hf.memory.recall("fact number 7")


@pytest.mark.promise("S6")
def test_the_old_vectors_are_searched_until_the_new_ones_are_complete(address: str) -> None:
    old, new = Counted("old"), Counted("new", 32)
    fill(address, old)
    with holdfast.open(address, embedder=old) as before, holdfast.open(address, embedder=new) as hf:
        for done, _ in hf.memory.reindex():
            hit = before.memory.recall("fact number 7", limit=1).hits[0]
            assert (hit.memory.content, "meaning" in hit.parts) == ("fact number 7", True), done
        with pytest.raises(EmbedderMismatch):
            before.memory.recall("fact number 7")


@pytest.mark.promise("S6", "S7")
def test_a_move_that_is_stopped_goes_on_where_it_was(address: str) -> None:
    fill(address, Counted("old"))
    with holdfast.open(address, embedder=Counted("new")) as hf:
        steps = hf.memory.reindex()
        for _ in range(2):
            next(steps)
        del steps
    last = Counted("new")
    with holdfast.open(address, embedder=last) as hf:
        steps = list(hf.memory.reindex())
        assert (steps[0], steps[-1]) == ((0, 38), (38, 0))
        assert len(last.asked) == 38
        assert hf.memory.waiting() == 0


@pytest.mark.promise("S6")
@pytest.mark.parametrize("point", ["memory.embedded", "memory.traced", "memory.reindexed"])
def test_a_move_that_is_killed_goes_on_where_it_was(address: str, nursery: Nursery, point: str) -> None:
    fill(address, Counted("old"))
    for visit in (1, 2) if point != "memory.reindexed" else (1,):
        child = nursery.start("embedding:move", crash=(point, visit), address=address, name="new")
        assert child.wait() == -signal.SIGKILL, child.complaint()
    last = Counted("new")
    with holdfast.open(address, embedder=last) as hf:
        list(hf.memory.reindex())
        # A batch that was embedded and not stored is made again; what was stored is not.
        assert len(last.asked) == {"memory.embedded": 38, "memory.traced": 0, "memory.reindexed": 0}[point]
        assert best(hf, "fact number 7") == "fact number 7"
        assert hf.verify().ok


def test_without_an_embedder_there_is_nothing_to_move(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", embedder="none") as hf, pytest.raises(InvalidInput, match="embedder"):
        list(hf.memory.reindex())


@pytest.mark.promise("S6")
def test_the_command_moves_a_store_and_refuses_one_that_is_not_there(tmp_path: Path) -> None:
    address = tmp_path / "agent.db"
    fill(str(address), Counted("old"), 5)
    moved = run("reindex", "--store", address, cwd=tmp_path)
    assert (moved.code, moved.out) == (0, "5 vectors made; all memories are searched by them from now on.\n")
    with holdfast.open(address) as hf:
        assert best(hf, "fact number 3") == "fact number 3"
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

    with holdfast.open(tmp_path / "a.db", embedder=CallableEmbedder(slowly, name="slow")) as hf:
        for number in range(80):
            hf.memory.remember(f"walk number {number}", subject="ann")
        hf.memory.catch_up()
        assert hf.memory.waiting() == 0
    assert len(embedded) == len({*embedded}) == 80
