"""Large searches rank only candidates, chosen by vector codes and rare words. Here the limits are small, and results
are compared with those of ranking everything."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import duramen
from duramen.embedders import CallableEmbedder
from duramen.memory.catalog.memory_event import memory_data
from duramen.memory.index import index_cache
from duramen.memory.index.columns import codes_of
from duramen.memory.index.index_cache import IndexCache
from duramen.memory.index.postings import PackedPostings, Postings
from duramen.memory.ranking import candidates
from duramen.memory.ranking.search import Search
from duramen.testing.clock import FakeClock

WORDS = """
    harbour lantern violin orchard bicycle museum winter recipe garden letter mountain ticket doctor engine painting
    market bridge kitchen camera island festival library river coffee teacher window hospital ladder thunder blanket
""".split()  # noqa: SIM905
NAMES = ["Ann", "Bert", "Cleo"]
COUNT = 330


def vectors_of(texts: Sequence[str]) -> Any:
    """One row per text: the mean of a random direction per word, shifted so that all texts are somewhat similar."""
    rows = []
    for text in texts:
        words = re.findall(r"\w+", text.lower()) or [""]
        directions = [np.random.default_rng(crc32(word.encode())).standard_normal(256) for word in words]
        rows.append(np.mean(directions, axis=0) + 0.5)
    return rows


EMBEDDER = CallableEmbedder(vectors_of, name="directions", dims=256)


def open_memory(address: str, **settings: Any) -> duramen.Duramen:
    return duramen.open(address, embedder=EMBEDDER, **settings)


@pytest.fixture(autouse=True)
def _few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of candidates is that of a million memories, and statistics are exact."""
    monkeypatch.setattr(candidates, "CANDIDATES", 60)
    monkeypatch.setattr(candidates, "COMMON", 40)
    monkeypatch.setattr(candidates, "_SAMPLE_STEP", 1)


def text_of(generator: random.Random) -> str:
    return "We " + " ".join(generator.choices(WORDS, [1 / (1 + rank) for rank in range(len(WORDS))], k=6))


def fill(dm: duramen.Duramen, clock: FakeClock, count: int = COUNT) -> None:
    generator = random.Random(11)
    for number in range(count):
        clock.advance(3_600)
        if number % 3:
            session = dm.session(f"talk {number // 25}")
            session.remember(text_of(generator), kind="episode", subject="ada", speaker=generator.choice(NAMES))
        else:
            kind = "preference" if number % 2 else "fact"
            dm.memory.remember(text_of(generator), kind=kind, subject="bob", metadata={"part": number % 5})
    dm.memory.catch_up()


@pytest.fixture
def handle(tmp_path: Path, clock: FakeClock) -> Iterator[duramen.Duramen]:
    with open_memory(str(tmp_path / "large.db"), clock=clock) as dm:
        fill(dm, clock)
        yield dm


def index_cache_of(dm: duramen.Duramen) -> IndexCache:
    return dm.memory._core._service.search.index_cache


def recalled(dm: duramen.Duramen, question: str, exact_limit: int, **options: Any) -> list[str]:
    """The texts of the hits, where up to `exact_limit` memories are all ranked."""
    index_cache_of(dm).exact_limit = exact_limit
    result = dm.memory.recall(question, **(options or {"everyone": True}))
    index_cache_of(dm).clear()
    return [hit.memory.content for hit in result]


QUESTIONS = [
    "Where was the violin?",
    "ladder thunder blanket",
    "What did Cleo say of the festival at the river?",
    "harbour lantern",
    "When was the doctor in the garden?",
    "Who saw the camera last week?",
    "What about mountains and coffee on the island?",
    "window",
]


@pytest.mark.promise("S2", "B10")
def test_candidates_give_the_hits_of_the_whole_ranking(
    handle: duramen.Duramen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # recalled memories would rank higher
    shared = []
    for question in QUESTIONS:
        whole, selected = recalled(handle, question, 10_000), recalled(handle, question, 0)
        assert len(whole) == len(selected) == 10
        shared.append(len(set(whole) & set(selected)) / 10)
    assert np.mean(shared) >= 0.95, shared


@pytest.mark.promise("S2", "B10")
@pytest.mark.parametrize("kind", ["episode", "fact"])
def test_a_twentieth_of_the_memories_contains_the_best(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Candidates are chosen from twenty times as many. Words are as frequent as in a language, and common words choose
    no candidates. Hits are compared by id: another memory with nearly the same score does not count."""
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # recalled memories would rank higher
    monkeypatch.setattr(candidates, "CANDIDATES", 100)
    monkeypatch.setattr(candidates, "COMMON", 200)
    generator = random.Random(3)
    words = [
        "".join(generator.choice("bdfgklmnprst") + generator.choice("aeiou") for _ in range(3)) for _ in range(300)
    ]
    weights = [1 / (1 + rank) for rank in range(len(words))]
    with open_memory(str(tmp_path / "many.db"), clock=clock) as dm:
        for number in range(80):
            clock.advance(3_600)
            texts = [" ".join(generator.choices(words, weights, k=8)) for _ in range(25)]
            records = [memory_data(text, kind, {"speaker": generator.choice(NAMES)}) for text in texts]
            drafts = [duramen.Draft("memory.added", one) for one in records]
            dm.session(f"talk {number}").append_all(drafts, subject=f"subject {number % 5}")
        dm.memory.catch_up()
        questions = [" ".join(generator.choices(words, weights, k=1 + number % 4)) for number in range(40)]

        def hit_ids(exact_limit: int) -> list[set[str]]:
            index_cache_of(dm).exact_limit = exact_limit
            return [{hit.memory.id for hit in dm.memory.recall(question, everyone=True)} for question in questions]

        shared = [len(whole & selected) / 10 for whole, selected in zip(hit_ids(10_000), hit_ids(0), strict=True)]
        assert np.mean(shared) >= 0.97, shared


@pytest.mark.promise("S2")
def test_the_parts_of_a_candidate_sum_to_its_score(handle: duramen.Duramen) -> None:
    index_cache_of(handle).exact_limit = 0
    result = handle.memory.recall("Where was the violin?", everyone=True)
    for hit in result:
        assert sum(hit.parts.values()) == pytest.approx(hit.score, abs=1e-4)
        assert 0 <= hit.likeness <= 1
    assert {"words", "meaning"} <= set(result.hits[0].parts)


@pytest.mark.promise("S2")
@pytest.mark.parametrize(
    ("options", "matches"),
    [
        ({"subject": "bob"}, lambda memory: memory.subject == "bob"),
        ({"everyone": True, "kinds": ["preference"]}, lambda memory: memory.kind == "preference"),
        ({"everyone": True, "metadata": {"part": 3}}, lambda memory: memory.metadata["part"] == 3),
        ({"everyone": True, "limit": 100}, lambda memory: True),
    ],
)
def test_filters_apply_before_candidates_are_chosen(handle: duramen.Duramen, options: Any, matches: Any) -> None:
    for question in QUESTIONS[:4]:
        whole = recalled(handle, question, 10_000, **options)
        selected = recalled(handle, question, 0, **options)
        assert len(whole) == len(selected)
        index_cache_of(handle).exact_limit = 0
        assert all(matches(hit.memory) for hit in handle.memory.recall(question, **options))


def test_a_question_of_common_words_only_is_answered(handle: duramen.Duramen) -> None:
    common = WORDS[:2]
    assert all(common[0] in text or common[1] in text for text in recalled(handle, " ".join(common), 0)[:5])


def test_candidates_are_found_by_words_without_vectors(tmp_path: Path, clock: FakeClock) -> None:
    with duramen.open(tmp_path / "words.db", clock=clock, embedder="none") as dm:
        fill(dm, clock)
        for question in QUESTIONS[:4]:
            whole, selected = recalled(dm, question, 10_000), recalled(dm, question, 0)
            assert len(set(whole) & set(selected)) >= 9


@pytest.mark.promise("G4")
def test_a_memory_that_another_handle_ended_is_no_candidate(tmp_path: Path, clock: FakeClock) -> None:
    address = str(tmp_path / "shared.db")
    with open_memory(address, clock=clock) as one, open_memory(address, clock=clock) as other:
        fill(one, clock, 150)
        forgotten = one.memory.remember("The blanket is under the ladder", subject="bob", fresh=True)
        replaced = one.memory.remember("The blanket is blue", key="blanket", subject="bob", fresh=True)
        erased = one.memory.remember("The blanket of Eve is warm", subject="eve", fresh=True)
        index_cache_of(one).exact_limit = 0

        def hit_ids() -> set[str]:
            return {hit.memory.id for hit in one.memory.recall("Where is the blanket?", everyone=True)}

        assert hit_ids() >= {forgotten.id, replaced.id, erased.id}
        other.memory.forget(forgotten.id)
        assert hit_ids() & {forgotten.id, replaced.id, erased.id} == {replaced.id, erased.id}
        new = other.memory.remember("The blanket is green", key="blanket", subject="bob")
        assert hit_ids() & {forgotten.id, replaced.id, new.id} == {new.id}
        other.erase("eve")
        assert erased.id not in hit_ids()


@pytest.mark.promise("S11")
def test_a_recall_counts_at_once(handle: duramen.Duramen) -> None:
    index_cache_of(handle).exact_limit = 0
    first = handle.memory.recall("thunder", everyone=True, limit=1)
    again = handle.memory.recall("thunder", everyone=True, limit=1)
    assert "access" not in first.hits[0].parts
    assert again.hits[0].parts["access"] > 0


# -- cache


def test_vectors_are_evicted_first_and_read_again(handle: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # recalled memories would rank higher
    whole = [recalled(handle, question, 10_000, subject="ada") for question in QUESTIONS]
    index_cache_of(handle).exact_limit = 10_000
    handle.memory.recall("violin", everyone=True)
    audiences = list(index_cache_of(handle)._audiences.values())
    assert all(audience.exact for audience in audiences)
    monkeypatch.setattr(
        index_cache,
        "CACHE_BYTES",
        sum(audience.held_bytes for audience in audiences) + max(audience.vector_bytes for audience in audiences),
    )
    handle.memory.remember("One more violin", subject="bob")
    handle.memory.recall("violin", subject="bob")
    assert [audience.exact for audience in index_cache_of(handle)._audiences.values()].count(False) >= 1
    assert len(index_cache_of(handle)._audiences) == len(audiences)
    monkeypatch.setattr(index_cache, "CACHE_BYTES", 2**40)
    assert [recalled(handle, question, 10_000, subject="ada") for question in QUESTIONS] == whole
    monkeypatch.setattr(index_cache, "CACHE_BYTES", 1)
    index_cache_of(handle).clear()
    handle.memory.recall("violin", everyone=True)
    assert len(index_cache_of(handle)._audiences) == 1


# -- postings


def test_postings_return_what_was_added() -> None:
    generator = np.random.default_rng(3)
    postings, expected = Postings(), dict[int, list[tuple[int, int]]]()
    place = 0
    for size in (1, 3, 900, 2, 5_000, 1, 700, 40):
        terms = generator.integers(0, 50, size).astype(np.uint32)
        counts = generator.integers(1, 9, size).astype(np.uint8)
        places = np.arange(place, place + size, dtype=np.uint32)
        place += size
        postings.add(terms, counts, places)
        for term, at, count in zip(terms.tolist(), places.tolist(), counts.tolist(), strict=True):
            expected.setdefault(term, []).append((at, count))
        for term, entries in expected.items():
            columns = postings.find(term)
            assert columns is not None
            assert list(zip(columns[0].tolist(), columns[1].tolist(), strict=True)) == entries
            assert postings.frequency(term) == len(entries)
    assert postings.find(51) is None
    requested = np.array([-1, 0, 3, 17, place - 1, place + 5])
    counts_by_place = dict(expected[7])
    assert postings.counts(7, requested).tolist() == [counts_by_place.get(at, 0) for at in requested.tolist()]
    subset = postings.chosen([7, 51], np.array(sorted(counts_by_place)[:3]))
    assert subset.find(51) is None
    assert [column.tolist() for column in subset.find(7) or ()] == [
        [0, 1, 2],
        [counts_by_place[at] for at in sorted(counts_by_place)[:3]],
    ]
    empty = PackedPostings.of(np.zeros(0, np.uint32), np.zeros(0, np.uint32), np.zeros(0, np.uint8))
    assert empty.find(1) is None


@pytest.mark.parametrize("dims", [3, 64, 100, 384])
def test_code_distance_counts_dimensions_on_other_sides_of_the_center(dims: int) -> None:
    vectors = np.random.default_rng(dims).standard_normal((20, dims)).astype(np.float32) + 3
    center = vectors.mean(axis=0)
    codes = codes_of(vectors, center)
    distances = candidates._distances(codes, codes[:, 4])
    assert distances.tolist() == [int(((row > center) != (vectors[4] > center)).sum()) for row in vectors]
