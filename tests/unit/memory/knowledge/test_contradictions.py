"""Contradictions: pairs of memories that cannot both be true are listed, with few false ones."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Iterator

import pytest
from programs.paths import CORPUS as CORPUS_FOLDER

import duramen
from duramen.errors import InvalidInput
from duramen.memory.extraction.claims import claims, contradict
from duramen.testing.clock import FakeClock

CORPUS = json.loads((CORPUS_FOLDER / "contradictions.json").read_text())
START = dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)


def contradicts(pair: list[str]) -> bool:
    older, newer = (claims(text) for text in pair)
    return any(contradict(one, other) for one in older for other in newer)


@pytest.fixture
def dm(any_address: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    with duramen.open(any_address, embedder="none", clock=clock) as handle:
        yield handle


def pairs(dm: duramen.Duramen, **audience: str) -> list[tuple[str, str]]:
    return [(one.older.content, one.newer.content) for one in dm.memory.contradictions(**audience)]  # type: ignore[arg-type]


@pytest.mark.promise("S5")
@pytest.mark.parametrize("part", CORPUS)
def test_precision_and_recall_on_labelled_pairs(part: str) -> None:
    """Precision matters more than recall."""
    right = sum(contradicts(pair) for pair in CORPUS[part]["contradict"])
    wrong = [pair for pair in CORPUS[part]["agree"] if contradicts(pair)]
    assert right / (right + len(wrong)) >= 0.95, wrong
    assert right / len(CORPUS[part]["contradict"]) >= 0.75


@pytest.mark.promise("S5")
def test_a_contradiction_is_listed_until_one_memory_is_forgotten(dm: duramen.Duramen, clock: FakeClock) -> None:
    rome = dm.memory.remember("Ada lives in Rome.")
    dm.memory.remember("Ada likes tea.")
    clock.advance(5)
    oslo = dm.memory.remember("Ada lives in Oslo. She is fine.")
    (one,) = dm.memory.contradictions()
    assert (one.older, one.newer, one.reason) == (rome, oslo, "lives in: Rome or Oslo")
    clock.advance(5)
    dm.memory.remember("Ada hates tea.")
    assert [one.reason for one in dm.memory.contradictions()] == ["likes tea or dislikes tea", one.reason], (
        "newest first"
    )
    assert len(dm.memory.contradictions(limit=1)) == 1
    dm.memory.forget(rome.id)
    assert pairs(dm) == [("Ada likes tea.", "Ada hates tea.")]


@pytest.mark.promise("S5")
def test_memories_of_different_times_do_not_contradict(dm: duramen.Duramen, clock: FakeClock) -> None:
    dm.memory.remember("Ada lives in Rome.", key="home")
    dm.memory.remember("Ada lives in Oslo.", key="home")
    dm.memory.remember("Bob lives in Rome.", valid_to=START + dt.timedelta(days=5))
    dm.memory.remember("Bob lives in Oslo.", valid_from=START + dt.timedelta(days=5))
    dm.memory.remember("Carol lives in Rome.", ttl=60)
    dm.memory.remember("Carol lives in Oslo.")
    dm.memory.remember("Dave lives in Rome.", kind="episode")
    dm.memory.remember("Dave lives in Oslo.")
    assert pairs(dm) == [("Carol lives in Rome.", "Carol lives in Oslo.")]
    clock.advance(61)
    assert pairs(dm) == []


@pytest.mark.promise("S5", "G3")
def test_only_visible_memories_of_the_same_speaker_contradict(dm: duramen.Duramen) -> None:
    dm.memory.remember("I have two cats.", subject="ada")
    dm.memory.remember("I have three cats.", subject="bob")
    dm.memory.remember("I have four cats.", subject="bob", speaker="Carol")
    dm.memory.remember("Erin lives in Rome.")
    dm.memory.remember("Erin lives in Oslo.", subject="ada")
    dm.memory.remember("Erin lives in Bonn.", subject="bob")
    assert pairs(dm) == []
    assert pairs(dm, subject="ada") == [("Erin lives in Rome.", "Erin lives in Oslo.")]
    assert sorted(newer for _, newer in pairs(dm, everyone=True)) == ["Erin lives in Bonn.", "Erin lives in Oslo."]  # type: ignore[arg-type]
    dm.memory.remember("I have nine cats.", subject="ada")
    assert ("I have two cats.", "I have nine cats.") in pairs(dm, subject="ada")


def test_bad_options_are_refused_and_both_apis_agree(any_address: str) -> None:
    with duramen.open(any_address, embedder="none") as dm:
        dm.memory.remember("Ada lives in Rome.")
        dm.memory.remember("Ada lives in Oslo.")
        sync_pairs = pairs(dm)
        for wrong in ({"limit": 0}, {"limit": "x"}, {"unknown": "x"}):
            with pytest.raises(InvalidInput):
                dm.memory.contradictions(**wrong)  # type: ignore[arg-type]
        if any_address == "memory:":
            return

    async def async_pairs() -> list[tuple[str, str]]:
        async with await duramen.aopen(any_address, embedder="none") as adm:
            return [(one.older.content, one.newer.content) for one in await adm.memory.contradictions()]

    assert asyncio.run(async_pairs()) == sync_pairs
