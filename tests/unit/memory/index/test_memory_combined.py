"""Searches of everything where there is much: all audiences are held as one, find what the audiences find one by one, and ask
the store no more often for many audiences than for few."""

from __future__ import annotations

from collections import ChainMap, Counter
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import pytest
from programs.memory_handles import open_memory

import duramen
from duramen.memory.index import segment_writer
from duramen.memory.index.index_cache import IndexCache
from duramen.memory.ranking import candidates
from duramen.memory.ranking.search import Search
from duramen.testing.clock import FakeClock

QUESTIONS = [
    "Which lighthouse did Speaker1 see?",
    "What colour is boat 12?",
    "lighthouse boat",
    "Who told of the harbour?",
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "MIN_CHANGES", 8)
    monkeypatch.setattr(segment_writer, "MAX_CHANGES", 32)
    monkeypatch.setattr(candidates, "_SAMPLE_STEP", 1)


def search_of(dm: duramen.Duramen) -> Search:
    return dm.memory._core._service.search


def fill(dm: duramen.Duramen, clock: FakeClock, subjects: int = 3, each: int = 40) -> None:
    """Facts of each subject, and talks in which all of them take turns."""
    for number in range(each):
        for subject in range(subjects):
            clock.advance(600)
            if number % 2:
                dm.session(f"talk {number // 12}").remember(
                    f"Saw the lighthouse number {number} at the harbour, did you?",
                    kind="episode",
                    subject=f"subject {subject}",
                    speaker=f"Speaker{(number + subject) % 4}",
                )
            else:
                dm.memory.remember(
                    f"The boat {number} of {subject} is painted in colour {number % 7}",
                    subject=f"subject {subject}",
                    importance=number / 50,
                )
    dm.memory.catch_up()


def asked(dm: duramen.Duramen, **how: Any) -> list[Any]:
    found: list[Any] = []
    for question in QUESTIONS:
        for hit in dm.memory.recall(question, everyone=True, limit=12, **how):
            parts = {name: pytest.approx(part, abs=0.01) for name, part in hit.parts.items()}
            found.append((hit.memory.content, hit.memory.subject, pytest.approx(hit.score, abs=0.01), parts))
    return found


def codes_of(index_cache: IndexCache) -> list[dict[int, bytes]]:
    """The codes of each audience that is held, by number."""
    return [
        {int(number): code.tobytes() for number, code in zip(audience.column("number"), audience.codes.T, strict=True)}
        for audience in index_cache._audiences.values()
    ]


def audiences_apart(monkeypatch: pytest.MonkeyPatch, dm: duramen.Duramen) -> list[Any]:
    async def none(*_: Any) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(IndexCache, "combined", none)
        return asked(dm)


@pytest.mark.promise("S2", "B10")
@pytest.mark.parametrize("packed", [True, False])
def test_as_one_they_find_what_they_find_apart(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # what was recalled before would rank higher
    if not packed:
        monkeypatch.setattr(segment_writer, "MIN_CHANGES", 10_000)
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as dm:
        fill(dm, clock)
    with open_memory(address, clock=clock) as dm:
        index_cache = search_of(dm).index_cache
        index_cache.exact_limit = 0
        as_one = asked(dm)
        assert [name for name, _ in index_cache._audiences] == [None]
        assert any("neighbours" in parts for _, _, _, parts in as_one)
        (codes,) = codes_of(index_cache)
        assert len(codes) == 3 * 40
        assert audiences_apart(monkeypatch, dm) == as_one
        assert codes == ChainMap(*codes_of(index_cache)[1:])


@pytest.mark.promise("G3", "G4", "S11")
def test_what_changes_later_is_taken_in(tmp_path: Path, clock: FakeClock) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as one, open_memory(address, clock=clock) as other:
        fill(one, clock)
        gone = one.memory.remember("The anchor is heavy", subject="subject 1", fresh=True)
        search_of(one).index_cache.exact_limit = 0

        def found() -> dict[str, Any]:
            return {hit.memory.content: hit for hit in one.memory.recall("Where is the anchor?", everyone=True)}

        assert gone.content in found()
        whole = search_of(one).index_cache._audiences[
            next(key for key in search_of(one).index_cache._audiences if not key[0])
        ]
        other.memory.remember("The anchor of Fay is light", subject="fay", fresh=True)
        other.memory.remember("An anchor lies in the garden", fresh=True)
        assert {gone.content, "The anchor of Fay is light", "An anchor lies in the garden"} <= found().keys()
        assert found()[gone.content].parts["access"] > 0
        other.memory.forget(gone.id)
        assert gone.content not in found()
        other.erase("fay")
        assert "The anchor of Fay is light" not in found()
        assert whole in search_of(one).index_cache._audiences.values()  # nothing was read anew for all that
        one.erase("subject 2")
        assert all(hit.memory.subject != "subject 2" for hit in found().values())


@pytest.mark.promise("B10")
def test_a_search_reads_no_more_for_more_memories_and_audiences(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a search takes is measured by bench/memory.py; here it is counted what it asks of the store."""
    monkeypatch.setattr(candidates, "CANDIDATES", 20)

    def reads(subjects: int, each: int, **how: Any) -> Counter[str]:
        """What the store is asked for, and how many rows it gives, once the audiences are loaded."""
        path = tmp_path / f"{subjects} {each}.db"
        new = not path.exists()
        with open_memory(str(path), clock=clock) as dm:
            if new:
                fill(dm, clock, subjects, each)
            search_of(dm).index_cache.exact_limit = 0
            for question in QUESTIONS:
                assert len(dm.memory.recall(question, limit=2, **how)) == 2
            store, asking, called = search_of(dm)._journal.store, get_ident(), Counter[str]()

            def counting(name: str, original: Any) -> Any:
                async def call(*given: Any, **named: Any) -> Any:
                    answer = await original(*given, **named)
                    if get_ident() == asking:  # not those of the thread that packs
                        called[name] += 1
                        called[f"rows of {name}"] += len(answer)
                    return answer

                return call

            with monkeypatch.context() as patch:
                for name in ("changes", "index_entries", "segments", "memories", "recalls"):
                    patch.setattr(store, name, counting(name, getattr(store, name)))
                dm.memory.recall(QUESTIONS[0], limit=2, **how)
            return called

    for how in ({"everyone": True}, {"subject": "subject 1"}):
        few, many = reads(2, 20, **how), reads(10, 40, **how)
        assert few["index_entries"] == few["memories"] == 1
        assert 20 <= few["rows of index_entries"] <= 60  # candidates, and the nearest of their sessions
        assert many <= few + Counter({"rows of index_entries": 40})


@pytest.mark.parametrize("size", [5, 400, 30_000])
@pytest.mark.parametrize("searched", [1.0, 0.01])
def test_the_highest_are_the_highest(size: int, searched: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_SAMPLE_STEP", 128)
    chance = np.random.default_rng(size)
    scores = chance.standard_normal(size).round(2).astype(np.float32)  # many are equal
    scores[chance.random(size) > searched] = -np.inf
    for count in (1, min(size, 300)):
        found = candidates._highest(scores, count)
        assert len(set(found.tolist())) == count
        assert sorted(scores[found].tolist()) == sorted(scores.tolist())[size - count :]
