"""A large search of all audiences loads them as one combined audience. It gives the hits of the separate audiences, and
reads no more often for many audiences than for few."""

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
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "MIN_CHANGES", 8)
    monkeypatch.setattr(segment_writer, "MAX_CHANGES", 32)
    monkeypatch.setattr(candidates, "_SAMPLE_STEP", 1)


def search_of(dm: duramen.Duramen) -> Search:
    return dm.memory._core._service.search


def fill(dm: duramen.Duramen, clock: FakeClock, subjects: int = 3, each: int = 40) -> None:
    """Facts about each subject, and sessions in which all of them take turns."""
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


def recalled(dm: duramen.Duramen, **options: Any) -> list[Any]:
    hits: list[Any] = []
    for question in QUESTIONS:
        for hit in dm.memory.recall(question, everyone=True, limit=12, **options):
            parts = {name: pytest.approx(part, abs=0.01) for name, part in hit.parts.items()}
            hits.append((hit.memory.content, hit.memory.subject, pytest.approx(hit.score, abs=0.01), parts))
    return hits


def codes_of(index_cache: IndexCache) -> list[dict[int, bytes]]:
    """The codes of each cached audience, by memory number."""
    return [
        {int(number): code.tobytes() for number, code in zip(audience.column("number"), audience.codes.T, strict=True)}
        for audience in index_cache._audiences.values()
    ]


def recalled_separately(monkeypatch: pytest.MonkeyPatch, dm: duramen.Duramen) -> list[Any]:
    async def none(*_: Any) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(IndexCache, "combined", none)
        return recalled(dm)


@pytest.mark.promise("S2", "B10")
@pytest.mark.parametrize("packed", [True, False])
def test_the_combined_audience_gives_the_hits_of_separate_ones(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # recalled memories would rank higher
    if not packed:
        monkeypatch.setattr(segment_writer, "MIN_CHANGES", 10_000)
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as dm:
        fill(dm, clock)
    with open_memory(address, clock=clock) as dm:
        index_cache = search_of(dm).index_cache
        index_cache.exact_limit = 0
        combined = recalled(dm)
        assert [name for name, _ in index_cache._audiences] == [None]
        assert any("neighbours" in parts for _, _, _, parts in combined)
        (codes,) = codes_of(index_cache)
        assert len(codes) == 3 * 40
        assert recalled_separately(monkeypatch, dm) == combined
        assert codes == ChainMap(*codes_of(index_cache)[1:])


@pytest.mark.promise("G3", "G4", "S11")
def test_the_combined_audience_follows_later_changes(tmp_path: Path, clock: FakeClock) -> None:
    address = str(tmp_path / "agent.db")
    with open_memory(address, clock=clock) as one, open_memory(address, clock=clock) as other:
        fill(one, clock)
        forgotten = one.memory.remember("The anchor is heavy", subject="subject 1", fresh=True)
        search_of(one).index_cache.exact_limit = 0

        def hits() -> dict[str, Any]:
            return {hit.memory.content: hit for hit in one.memory.recall("Where is the anchor?", everyone=True)}

        assert forgotten.content in hits()
        whole = search_of(one).index_cache._audiences[
            next(key for key in search_of(one).index_cache._audiences if not key[0])
        ]
        other.memory.remember("The anchor of Fay is light", subject="fay", fresh=True)
        other.memory.remember("An anchor lies in the garden", fresh=True)
        assert {forgotten.content, "The anchor of Fay is light", "An anchor lies in the garden"} <= hits().keys()
        assert hits()[forgotten.content].parts["access"] > 0
        other.memory.forget(forgotten.id)
        assert forgotten.content not in hits()
        other.erase("fay")
        assert "The anchor of Fay is light" not in hits()
        assert whole in search_of(one).index_cache._audiences.values()  # it was updated, not loaded again
        one.erase("subject 2")
        assert all(hit.memory.subject != "subject 2" for hit in hits().values())


@pytest.mark.promise("B10")
def test_a_search_reads_no_more_for_many_memories_than_for_few(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This counts reads from the store. `bench/memory.py` measures time."""
    monkeypatch.setattr(candidates, "CANDIDATES", 20)

    def reads(subjects: int, each: int, **options: Any) -> Counter[str]:
        """The calls of the store and the rows they return, once the audiences are loaded."""
        path = tmp_path / f"{subjects} {each}.db"
        new = not path.exists()
        with open_memory(str(path), clock=clock) as dm:
            if new:
                fill(dm, clock, subjects, each)
            search_of(dm).index_cache.exact_limit = 0
            for question in QUESTIONS:
                assert len(dm.memory.recall(question, limit=2, **options)) == 2
            store, this_thread, calls = search_of(dm)._journal.store, get_ident(), Counter[str]()

            def counting(name: str, method: Any) -> Any:
                async def call(*args: Any, **kwargs: Any) -> Any:
                    answer = await method(*args, **kwargs)
                    if get_ident() == this_thread:  # not the calls of the background thread
                        calls[name] += 1
                        calls[f"rows of {name}"] += len(answer)
                    return answer

                return call

            with monkeypatch.context() as patch:
                for name in ("changes", "index_entries", "segments", "memories", "recalls"):
                    patch.setattr(store, name, counting(name, getattr(store, name)))
                dm.memory.recall(QUESTIONS[0], limit=2, **options)
            return calls

    for options in ({"everyone": True}, {"subject": "subject 1"}):
        few, many = reads(2, 20, **options), reads(10, 40, **options)
        assert few["index_entries"] == few["memories"] == 1
        assert 20 <= few["rows of index_entries"] <= 60  # candidates, and the nearest of their sessions
        assert many <= few + Counter({"rows of index_entries": 40})


@pytest.mark.parametrize("size", [5, 400, 30_000])
@pytest.mark.parametrize("searched", [1.0, 0.01])
def test_highest_returns_the_highest_scores(size: int, searched: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_SAMPLE_STEP", 128)
    generator = np.random.default_rng(size)
    scores = generator.standard_normal(size).round(2).astype(np.float32)  # many are equal
    scores[generator.random(size) > searched] = -np.inf
    for count in (1, min(size, 300)):
        places = candidates._highest(scores, count)
        assert len(set(places.tolist())) == count
        assert sorted(scores[places].tolist()) == sorted(scores.tolist())[size - count :]
