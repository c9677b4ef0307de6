"""Ranking: each part of a score works as documented, the parts sum to the score, and parts may be missing."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from duramen.memory.extraction.words import number_of, terms
from duramen.memory.index.audience_index import AudienceIndex
from duramen.memory.index.index_entry import read_term_stats
from duramen.memory.ranking.bm25 import K1, B, word_scores
from duramen.memory.ranking.measures import Corpus, Measures, Spread
from duramen.memory.ranking.rank import DEFAULT, Question, Ranked, Weights, rank, speaker_shares
from duramen.ports import MemoryRow

NO_WEIGHTS = replace(Weights(**dict.fromkeys(asdict(DEFAULT), 0.0)), half_life_days=90.0)
ON = date(2023, 5, 25)
FACTS = [{"content": "Rex is a brown dog"}, {"content": "The car is in the garage"}, {"content": "Paris in spring"}]
Details = dict[str, Any]


def row_of(number: int, details: Details) -> MemoryRow:
    on: date = details.get("on", ON)
    begins = (dt.datetime(on.year, on.month, on.day, tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).days
    row = MemoryRow(
        b"", f"id{number}", details.get("session", ""), number, "fact", None, None, 0, 0, None, None, 0, 1, 0
    )
    return row._replace(
        number=number,
        kind="episode" if "session" in details else "fact",
        begins=begins * 86_400_000_000,
        importance=details.get("importance", 0.5),
    )


def audience_of(memories: Sequence[Details], vectors: NDArray[Any] | None = None) -> AudienceIndex:
    audience = AudienceIndex(0 if vectors is None or not len(vectors) else vectors.shape[1])
    for number, details in enumerate(memories, start=1):
        row = row_of(number, details)
        vector = None if vectors is None else vectors[number - 1]
        audience.put(row, read_term_stats(details, row.begins), vector, details.get("recalled", 0))
    return audience


def ranked(question: str, *audiences: AudienceIndex, vector: Any = None, weights: Weights = DEFAULT) -> Ranked:
    included = [audience.column("alive").copy() for audience in audiences]
    return rank(Question.parse(question, ON), audiences, included, vector, weights)


def best(question: str, memories: Sequence[Details], weights: Weights = DEFAULT) -> int:
    """The index of the best memory."""
    return ranked(question, audience_of(memories), weights=weights).best(1)[0]


@pytest.mark.promise("S3")
def test_the_parts_sum_to_the_score_and_are_explained() -> None:
    result = ranked("Which dog is brown?", audience_of(FACTS))
    for place, score in enumerate(result.scores):
        assert sum(result.explain(place).values()) == pytest.approx(score)
    assert "words" in result.explain(0)


@pytest.mark.promise("S2")
def test_word_scores_follow_the_bm25_formula() -> None:
    audience = audience_of([{"content": "apple pear"}, {"content": "apple apple plum fig"}, {"content": "nut oat rye"}])
    own = word_scores([audience], [number_of(terms("apple")[0])]).own[0]
    lengths = [5, 7, 6]  # including the words of its date, "25 May 2023"
    rarity = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    norm = K1 * (1 - B + B * lengths[1] / (sum(lengths) / 3))
    assert own[1] == pytest.approx(rarity * 2 * (K1 + 1) / (2 + norm))
    assert own[2] == 0


def test_several_audiences_are_ranked_as_one() -> None:
    together = ranked("Who is Rex, the dog?", audience_of([*FACTS, {"content": "Rex sleeps"}]))
    apart = ranked("Who is Rex, the dog?", audience_of(FACTS), audience_of([{"content": "Rex sleeps"}]))
    np.testing.assert_allclose(together.scores, apart.scores, atol=1e-5)
    assert [apart.place(index)[1] for index in (0, 2, 3)] == [0, 2, 0]


def test_plain_facts_are_found_by_words() -> None:
    assert best("Where is the car?", FACTS) == 1


def test_a_short_match_ranks_above_a_long_text_without_one() -> None:
    long = {"content": "The quarterly report lists revenue, margins, staffing, travel, rent, taxes and suppliers"}
    facts = [long, {"content": "Rex is a dog"}, {"content": "Tea is green"}, {"content": "Rent is due monthly"}]
    assert best("Who is Rex?", facts) == 1
    thanks = {"content": "Thanks!", "speaker": "Bob", "session": "1"}
    assert best("Who is Rex?", [*facts, long | {"speaker": "Ann", "session": "1"}, thanks]) == 1


@pytest.mark.parametrize("question", ["anything", "?", "the of and", "\ud800"])
def test_few_memories_without_a_common_word_are_ranked(question: str) -> None:
    assert ranked(question).best(5) == []
    assert ranked(question, AudienceIndex(0)).best(5) == []
    for count in (1, 2):
        result = ranked(question, audience_of(FACTS[:count]))
        assert sorted(result.best(5)) == list(range(count))
        assert np.isfinite(result.scores).all()


@pytest.mark.promise("S2")
def test_meaning_finds_a_memory_without_a_common_word() -> None:
    vectors: NDArray[np.float32] = np.eye(3, dtype=np.float32)
    assert ranked("pet?", audience_of(FACTS, vectors), vector=vectors[0]).best(1) == [0]


def test_a_memory_without_a_vector_can_rank_first() -> None:
    audience = audience_of(FACTS, np.eye(3, dtype=np.float32))
    fresh = row_of(4, {"content": "Fido is a black dog"})
    audience.put(fresh, read_term_stats({"content": "Fido is a black dog"}, fresh.begins), None, 0)
    assert ranked("Which dog is black?", audience, vector=np.eye(3, dtype=np.float32)[1]).best(1) == [3]


def test_the_answer_to_a_matching_question_is_found() -> None:
    talk = [
        {"content": "Nice weather today in town", "speaker": "Ann", "session": "1"},
        {"content": "Did you enjoy the concert in the park?", "speaker": "Ann", "session": "1"},
        {"content": "Loved every minute, especially the drums", "speaker": "Bob", "session": "1"},
        {"content": "Trains were late again this morning", "speaker": "Ann", "session": "1"},
    ]
    assert sorted(ranked("How was the concert in the park?", audience_of(talk)).best(2)) == [1, 2]


def test_neighbours_are_in_one_session_and_skip_dropped_rows() -> None:
    audience = audience_of(
        [{"content": "a", "session": session} for session in ("1", "2", "1", "1")] + [{"content": "b"}]
    )
    assert audience.column("before").tolist() == [-1, -1, 0, 2, -1]
    assert audience.column("after").tolist() == [2, -1, 3, -1, -1]
    audience.drop(3)
    assert audience.column("before").tolist() == [-1, -1, -1, 0, -1]
    assert audience.column("after").tolist() == [3, -1, -1, -1, -1]
    late = row_of(3, {"content": "c", "session": "1"})
    audience.put(late, read_term_stats({"content": "c"}, 0), None, 0)
    assert audience.column("before").tolist() == [-1, -1, -1, 5, -1, 0]
    for number in (4, 3, 1):
        audience.drop(number)
    assert audience.count() == 2
    audience.put(row_of(9, {"content": "d", "session": "1"}), read_term_stats({"content": "d"}, 0), None, 0)
    assert audience.column("before")[6] == -1


def test_the_named_speaker_is_preferred_most_between_two_speakers() -> None:
    two = [{"content": "I like tea", "speaker": name} for name in ("Ann", "Bob")]
    crowd = [*two, *({"content": "I like tea", "speaker": f"Guest{n}"} for n in range(8))]
    assert best("What does Bob like?", two, replace(NO_WEIGHTS, speaker=2.0)) == 1
    in_two, in_crowd = (ranked("What does Bob like?", audience_of(talk)).parts["speaker"][1] for talk in (two, crowd))
    assert in_two == DEFAULT.speaker
    assert 0 < in_crowd < in_two


@pytest.mark.promise("S2")
def test_a_time_in_the_question_matches_days_and_texts() -> None:
    memories = [
        {"content": "Went to the lake", "on": date(2023, 1, 5)},
        {"content": "Went to the lake", "on": date(2023, 3, 9)},
        {"content": "Went to the lake last March", "on": date(2023, 5, 1)},
    ]
    result = ranked("Who went to the lake in March 2023?", audience_of(memories))
    assert result.parts["time"].tolist()[1:] == [DEFAULT.time] * 2
    assert result.parts["time"][0] < 1


def test_a_when_question_prefers_texts_with_a_time() -> None:
    memories = [{"content": "I ran a race with friends"}, {"content": "I ran a race last Sunday"}]
    assert best("When was the race?", memories, replace(NO_WEIGHTS, dated=1.0)) == 1
    assert ranked("Who ran the race?", audience_of(memories)).parts["dated"].tolist() == [0, 0]


@pytest.mark.promise("E4", "S11")
def test_newer_more_used_and_more_important_win_among_equals() -> None:
    tea = {"content": "Prefers tea"}
    old, new = tea | {"on": date(2022, 1, 1)}, tea | {"on": date(2023, 5, 1)}
    assert best("tea?", [old, new], replace(DEFAULT, words=0, near_words=0)) == 1
    assert best("tea?", [tea, tea | {"recalled": 3}]) == 1
    assert best("tea?", [tea, tea | {"importance": 0.9}]) == 1


@pytest.mark.promise("E4")
def test_recency_halves_with_its_half_life() -> None:
    audience = audience_of([{"content": "Prefers tea", "on": ON - dt.timedelta(days=days)} for days in (0, 30, 60)])
    recency = ranked("tea?", audience, weights=replace(NO_WEIGHTS, recency=1.0, half_life_days=30.0)).parts["recency"]
    np.testing.assert_allclose(recency, [1, 0.5, 0.25], rtol=1e-5)


@pytest.mark.promise("S2")
def test_candidates_score_the_same_as_in_the_whole_corpus() -> None:
    memories = [
        *FACTS,
        {"content": "A dog, a brown dog", "speaker": "Ann"},
        {"content": "Brown bread"},
        {"content": "x"},
    ]
    vectors = np.random.default_rng(5).standard_normal((len(memories), 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    whole, question = audience_of(memories, vectors), Question.parse("Is the dog of Ann brown?", ON)
    result = ranked(question.text, whole, vector=vectors[1])
    words = word_scores([whole], question.terms)
    lengths = whole.column("length")
    postings = [whole.postings(term) for term in question.terms]
    corpus = Corpus(len(memories), float(lengths.mean()), tuple(0 if one is None else len(one[0]) for one in postings))
    measures = Measures(
        own=corpus,
        near=corpus,
        words=Spread.of(words.own[0]),
        near_words=Spread.of(words.near[0]),
        meaning=Spread.of(vectors @ vectors[1]),
        session_meaning=Spread(0.0, 0.0),
        substance=0.0,
        speakers=speaker_shares([whole]),
        session_words=[np.zeros(0, dtype=np.float32)],
        session_best=[np.zeros(0, dtype=np.float32)],
    )
    indices = [0, 3]
    candidates = audience_of([memories[index] for index in indices], vectors[indices])
    included = [np.ones(len(indices), dtype=bool)]
    reranked = rank(question, [candidates], included, vectors[1], DEFAULT, measures)
    np.testing.assert_allclose(reranked.scores, result.scores[indices], rtol=1e-5)
    np.testing.assert_allclose(reranked.likeness, result.likeness[indices], rtol=1e-5)
    alone = rank(question, [candidates], included, vectors[1])
    assert not np.allclose(alone.scores, result.scores[indices], rtol=1e-2)


def test_diversity_prefers_new_content_over_similar_content() -> None:
    vectors = np.array([[1, 0], [0.999, 0.0447], [0.1, 0.995]], dtype=np.float32)
    audience = audience_of([{"content": "one"}, {"content": "two"}, {"content": "three"}], vectors)
    result = ranked("?", audience, vector=vectors[0])
    assert result.best(3) == [0, 1, 2]
    assert result.spread([0, 1, 2], 2, 1.0) == [0, 2]
    assert result.spread([], 2, 1.0) == []


MEMORIES = st.lists(
    st.fixed_dictionaries(
        {"content": st.text(max_size=30)},
        optional={
            "speaker": st.sampled_from(["Ann", "user"]),
            "session": st.sampled_from(["1", "2"]),
            "on": st.sampled_from([ON, date(2020, 2, 29), date.min, date.max]),
        },
    ),
    max_size=8,
)


@settings(deadline=None)  # the machine may be busy
@given(MEMORIES, st.text(max_size=40))
def test_scores_are_finite_for_any_audience_and_question(memories: list[Details], question: str) -> None:
    vectors = np.ones((len(memories), 4), dtype=np.float32) / 2
    for given_vectors, vector in ((None, None), (vectors, np.ones(4, dtype=np.float32) / 2)):
        if vector is not None and not memories:
            continue
        result = ranked(question, audience_of(memories, given_vectors), vector=vector)
        assert sorted(result.best(100)) == list(range(len(memories)))
        for place in range(len(memories)):
            assert sum(result.explain(place).values()) == pytest.approx(float(result.scores[place]), abs=1e-4)
        assert np.isfinite(result.scores).all()
        assert ((result.likeness >= 0) & (result.likeness <= 1)).all()
