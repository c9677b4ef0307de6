"""Searches that are too large to be ranked whole: candidates by codes and rare words, then the same ranking. Here that
is set low, and what was found is compared with what the whole ranking finds."""

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
SAID = 330


def vectors_of(texts: Sequence[str]) -> Any:
    """One row for each text: the sum of a direction for each word, all of them on one side of the space."""
    rows = []
    for text in texts:
        words = re.findall(r"\w+", text.lower()) or [""]
        some = [np.random.default_rng(crc32(word.encode())).standard_normal(256) for word in words]
        rows.append(np.mean(some, axis=0) + 0.5)
    return rows


EMBEDDER = CallableEmbedder(vectors_of, name="directions", dims=256)


def open_memory(address: str, **settings: Any) -> duramen.Duramen:
    return duramen.open(address, embedder=EMBEDDER, **settings)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates as few of so few memories as there are of a million; and enough looked at for what holds for all."""
    monkeypatch.setattr(candidates, "CANDIDATES", 60)
    monkeypatch.setattr(candidates, "COMMON", 40)
    monkeypatch.setattr(candidates, "_SAMPLE_STEP", 1)


def text_of(chance: random.Random) -> str:
    return "We " + " ".join(chance.choices(WORDS, [1 / (1 + rank) for rank in range(len(WORDS))], k=6))


def fill(dm: duramen.Duramen, clock: FakeClock, count: int = SAID) -> None:
    chance = random.Random(11)
    for number in range(count):
        clock.advance(3_600)
        if number % 3:
            session = dm.session(f"talk {number // 25}")
            session.remember(text_of(chance), kind="episode", subject="ada", speaker=chance.choice(NAMES))
        else:
            kind = "preference" if number % 2 else "fact"
            dm.memory.remember(text_of(chance), kind=kind, subject="bob", metadata={"part": number % 5})
    dm.memory.catch_up()


@pytest.fixture
def handle(tmp_path: Path, clock: FakeClock) -> Iterator[duramen.Duramen]:
    with open_memory(str(tmp_path / "large.db"), clock=clock) as dm:
        fill(dm, clock)
        yield dm


def held_by(dm: duramen.Duramen) -> IndexCache:
    return dm.memory._core._service.search.index_cache


def asked(dm: duramen.Duramen, question: str, upto: int, **how: Any) -> list[str]:
    """The texts found where so many memories are ranked whole."""
    held_by(dm).exact_limit = upto
    found = dm.memory.recall(question, **(how or {"everyone": True}))
    held_by(dm).clear()
    return [hit.memory.content for hit in found]


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
def test_candidates_find_what_the_whole_ranking_finds(handle: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # what was recalled before would rank higher
    shared = []
    for question in QUESTIONS:
        whole, chosen = asked(handle, question, 10_000), asked(handle, question, 0)
        assert len(whole) == len(chosen) == 10
        shared.append(len(set(whole) & set(chosen)) / 10)
    assert np.mean(shared) >= 0.95, shared


@pytest.mark.promise("S2", "B10")
@pytest.mark.parametrize("kind", ["episode", "fact"])
def test_a_twentieth_chosen_holds_the_best(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Candidates are chosen from twenty times as many, under words as frequent as a language's, of which the common
    ones choose nothing. By identity: what ranks nearly as high does not count as the same."""
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # what was recalled before would rank higher
    monkeypatch.setattr(candidates, "CANDIDATES", 100)
    monkeypatch.setattr(candidates, "COMMON", 200)
    chance = random.Random(3)
    words = ["".join(chance.choice("bdfgklmnprst") + chance.choice("aeiou") for _ in range(3)) for _ in range(300)]
    weights = [1 / (1 + rank) for rank in range(len(words))]
    with open_memory(str(tmp_path / "many.db"), clock=clock) as dm:
        for number in range(80):
            clock.advance(3_600)
            texts = [" ".join(chance.choices(words, weights, k=8)) for _ in range(25)]
            said = [memory_data(text, kind, {"speaker": chance.choice(NAMES)}) for text in texts]
            drafts = [duramen.Draft("memory.added", one) for one in said]
            dm.session(f"talk {number}").append_all(drafts, subject=f"subject {number % 5}")
        dm.memory.catch_up()
        questions = [" ".join(chance.choices(words, weights, k=1 + number % 4)) for number in range(40)]

        def found(upto: int) -> list[set[str]]:
            held_by(dm).exact_limit = upto
            return [{hit.memory.id for hit in dm.memory.recall(question, everyone=True)} for question in questions]

        shared = [len(whole & chosen) / 10 for whole, chosen in zip(found(10_000), found(0), strict=True)]
        assert np.mean(shared) >= 0.97, shared


@pytest.mark.promise("S2")
def test_a_score_is_told_apart_as_in_the_whole_ranking(handle: duramen.Duramen) -> None:
    held_by(handle).exact_limit = 0
    found = handle.memory.recall("Where was the violin?", everyone=True)
    for hit in found:
        assert sum(hit.parts.values()) == pytest.approx(hit.score, abs=1e-4)
        assert 0 <= hit.likeness <= 1
    assert {"words", "meaning"} <= set(found.hits[0].parts)


@pytest.mark.promise("S2")
@pytest.mark.parametrize(
    ("how", "holds"),
    [
        ({"subject": "bob"}, lambda memory: memory.subject == "bob"),
        ({"everyone": True, "kinds": ["preference"]}, lambda memory: memory.kind == "preference"),
        ({"everyone": True, "metadata": {"part": 3}}, lambda memory: memory.metadata["part"] == 3),
        ({"everyone": True, "limit": 100}, lambda memory: True),
    ],
)
def test_filters_hold_before_candidates_are_chosen(handle: duramen.Duramen, how: Any, holds: Any) -> None:
    for question in QUESTIONS[:4]:
        whole = asked(handle, question, 10_000, **how)
        chosen = asked(handle, question, 0, **how)
        assert len(whole) == len(chosen)
        held_by(handle).exact_limit = 0
        assert all(holds(hit.memory) for hit in handle.memory.recall(question, **how))


def test_a_question_of_common_words_alone_is_answered(handle: duramen.Duramen) -> None:
    common = WORDS[:2]
    assert all(common[0] in text or common[1] in text for text in asked(handle, " ".join(common), 0)[:5])


def test_without_vectors_words_alone_find(tmp_path: Path, clock: FakeClock) -> None:
    with duramen.open(tmp_path / "words.db", clock=clock, embedder="none") as dm:
        fill(dm, clock)
        for question in QUESTIONS[:4]:
            whole, chosen = asked(dm, question, 10_000), asked(dm, question, 0)
            assert len(set(whole) & set(chosen)) >= 9


@pytest.mark.promise("G4")
def test_what_another_process_ends_is_no_candidate(tmp_path: Path, clock: FakeClock) -> None:
    address = str(tmp_path / "shared.db")
    with open_memory(address, clock=clock) as one, open_memory(address, clock=clock) as other:
        fill(one, clock, 150)
        gone = one.memory.remember("The blanket is under the ladder", subject="bob", fresh=True)
        old = one.memory.remember("The blanket is blue", key="blanket", subject="bob", fresh=True)
        late = one.memory.remember("The blanket of Eve is warm", subject="eve", fresh=True)
        held_by(one).exact_limit = 0

        def found() -> set[str]:
            return {hit.memory.id for hit in one.memory.recall("Where is the blanket?", everyone=True)}

        assert found() >= {gone.id, old.id, late.id}
        other.memory.forget(gone.id)
        assert found() & {gone.id, old.id, late.id} == {old.id, late.id}
        new = other.memory.remember("The blanket is green", key="blanket", subject="bob")
        assert found() & {gone.id, old.id, new.id} == {new.id}
        other.erase("eve")
        assert late.id not in found()


@pytest.mark.promise("S11")
def test_what_is_recalled_counts_in_the_audience_itself(handle: duramen.Duramen) -> None:
    held_by(handle).exact_limit = 0
    first = handle.memory.recall("thunder", everyone=True, limit=1)
    again = handle.memory.recall("thunder", everyone=True, limit=1)
    assert "access" not in first.hits[0].parts
    assert again.hits[0].parts["access"] > 0


# -- what is kept in memory


def test_vectors_are_let_go_first_and_read_again(handle: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "_count_recalls", lambda *_: None)  # what was recalled before would rank higher
    whole = [asked(handle, question, 10_000, subject="ada") for question in QUESTIONS]
    held_by(handle).exact_limit = 10_000
    handle.memory.recall("violin", everyone=True)
    audiences = list(held_by(handle)._audiences.values())
    assert all(audience.exact for audience in audiences)
    monkeypatch.setattr(
        index_cache,
        "CACHE_BYTES",
        sum(audience.held_bytes for audience in audiences) + max(audience.vector_bytes for audience in audiences),
    )
    handle.memory.remember("A violin more", subject="bob")
    handle.memory.recall("violin", subject="bob")
    assert [audience.exact for audience in held_by(handle)._audiences.values()].count(False) >= 1
    assert len(held_by(handle)._audiences) == len(audiences)
    monkeypatch.setattr(index_cache, "CACHE_BYTES", 2**40)
    assert [asked(handle, question, 10_000, subject="ada") for question in QUESTIONS] == whole
    monkeypatch.setattr(index_cache, "CACHE_BYTES", 1)
    held_by(handle).clear()
    handle.memory.recall("violin", everyone=True)
    assert len(held_by(handle)._audiences) == 1


# -- packed lists


def test_packed_lists_are_what_was_put_in() -> None:
    chance = np.random.default_rng(3)
    postings, known = Postings(), dict[int, list[tuple[int, int]]]()
    place = 0
    for size in (1, 3, 900, 2, 5_000, 1, 700, 40):
        terms = chance.integers(0, 50, size).astype(np.uint32)
        counts = chance.integers(1, 9, size).astype(np.uint8)
        places = np.arange(place, place + size, dtype=np.uint32)
        place += size
        postings.add(terms, counts, places)
        for term, at, often in zip(terms.tolist(), places.tolist(), counts.tolist(), strict=True):
            known.setdefault(term, []).append((at, often))
        for term, entries in known.items():
            found = postings.find(term)
            assert found is not None
            assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == entries
            assert postings.frequency(term) == len(entries)
    assert postings.find(51) is None
    some = np.array([-1, 0, 3, 17, place - 1, place + 5])
    dense = dict(known[7])
    assert postings.counts(7, some).tolist() == [dense.get(at, 0) for at in some.tolist()]
    few = postings.chosen([7, 51], np.array(sorted(dense)[:3]))
    assert few.find(51) is None
    assert [column.tolist() for column in few.find(7) or ()] == [[0, 1, 2], [dense[at] for at in sorted(dense)[:3]]]
    empty = PackedPostings.of(np.zeros(0, np.uint32), np.zeros(0, np.uint32), np.zeros(0, np.uint8))
    assert empty.find(1) is None


@pytest.mark.parametrize("dims", [3, 64, 100, 384])
def test_codes_are_the_sides_of_a_center(dims: int) -> None:
    vectors = np.random.default_rng(dims).standard_normal((20, dims)).astype(np.float32) + 3
    center = vectors.mean(axis=0)
    codes = codes_of(vectors, center)
    distances = candidates._distances(codes, codes[:, 4])
    assert distances.tolist() == [int(((row > center) != (vectors[4] > center)).sum()) for row in vectors]
