"""The ranking: each part does what it promises, the sum is the score, and it works with parts missing."""

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

NONE = replace(Weights(**dict.fromkeys(asdict(DEFAULT), 0.0)), half_life_days=90.0)
ON = date(2023, 5, 25)
FACTS = [{"content": "Rex is a brown dog"}, {"content": "The car is in the garage"}, {"content": "Paris in spring"}]
Said = dict[str, Any]


def row_of(number: int, said: Said) -> MemoryRow:
    on: date = said.get("on", ON)
    begins = (dt.datetime(on.year, on.month, on.day, tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).days
    row = MemoryRow(b"", f"id{number}", said.get("session", ""), number, "fact", None, None, 0, 0, None, None, 0, 1, 0)
    return row._replace(
        number=number,
        kind="episode" if "session" in said else "fact",
        begins=begins * 86_400_000_000,
        importance=said.get("importance", 0.5),
    )


def audience_of(memories: Sequence[Said], vectors: NDArray[Any] | None = None) -> AudienceIndex:
    audience = AudienceIndex(0 if vectors is None or not len(vectors) else vectors.shape[1])
    for number, said in enumerate(memories, start=1):
        row = row_of(number, said)
        vector = None if vectors is None else vectors[number - 1]
        audience.put(row, read_term_stats(said, row.begins), vector, said.get("recalled", 0))
    return audience


def ranked(question: str, *audiences: AudienceIndex, vector: Any = None, weights: Weights = DEFAULT) -> Ranked:
    chosen = [audience.column("alive").copy() for audience in audiences]
    return rank(Question.parse(question, ON), audiences, chosen, vector, weights)


def best(question: str, memories: Sequence[Said], weights: Weights = DEFAULT) -> int:
    """The place of the best."""
    return ranked(question, audience_of(memories), weights=weights).best(1)[0]


@pytest.mark.promise("S3")
def test_the_parts_sum_to_the_score_and_are_explained() -> None:
    found = ranked("Which dog is brown?", audience_of(FACTS))
    for place, score in enumerate(found.scores):
        assert sum(found.explain(place).values()) == pytest.approx(score)
    assert "words" in found.explain(0)


@pytest.mark.promise("S2")
def test_bm25_is_the_formula() -> None:
    audience = audience_of([{"content": "apple pear"}, {"content": "apple apple plum fig"}, {"content": "nut oat rye"}])
    own = word_scores([audience], [number_of(terms("apple")[0])]).own[0]
    lengths = [5, 7, 6]  # with the day that each is from: "25 May 2023"
    rarity = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    norm = K1 * (1 - B + B * lengths[1] / (sum(lengths) / 3))
    assert own[1] == pytest.approx(rarity * 2 * (K1 + 1) / (2 + norm))
    assert own[2] == 0


def test_audiences_are_ranked_as_one() -> None:
    together = ranked("Who is Rex, the dog?", audience_of([*FACTS, {"content": "Rex sleeps"}]))
    apart = ranked("Who is Rex, the dog?", audience_of(FACTS), audience_of([{"content": "Rex sleeps"}]))
    np.testing.assert_allclose(together.scores, apart.scores, atol=1e-5)
    assert [apart.place(index)[1] for index in (0, 2, 3)] == [0, 2, 0]


def test_facts_without_sessions_speakers_or_vectors_are_found_by_words() -> None:
    assert best("Where is the car?", FACTS) == 1


def test_a_short_fact_that_matches_comes_before_a_long_one_that_does_not() -> None:
    long = {"content": "The quarterly report lists revenue, margins, staffing, travel, rent, taxes and suppliers"}
    facts = [long, {"content": "Rex is a dog"}, {"content": "Tea is green"}, {"content": "Rent is due monthly"}]
    assert best("Who is Rex?", facts) == 1
    thanks = {"content": "Thanks!", "speaker": "Bob", "session": "1"}
    assert best("Who is Rex?", [*facts, long | {"speaker": "Ann", "session": "1"}, thanks]) == 1


@pytest.mark.parametrize("question", ["anything", "?", "the of and", "\ud800"])
def test_no_memory_or_one_or_two_and_no_words_in_common(question: str) -> None:
    assert ranked(question).best(5) == []
    assert ranked(question, AudienceIndex(0)).best(5) == []
    for count in (1, 2):
        found = ranked(question, audience_of(FACTS[:count]))
        assert sorted(found.best(5)) == list(range(count))
        assert np.isfinite(found.scores).all()


@pytest.mark.promise("S2")
def test_meaning_finds_what_shares_no_word() -> None:
    vectors: NDArray[np.float32] = np.eye(3, dtype=np.float32)
    assert ranked("pet?", audience_of(FACTS, vectors), vector=vectors[0]).best(1) == [0]


def test_what_has_no_vector_yet_does_not_fall_behind() -> None:
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


def test_neighbours_end_at_the_session_and_close_up_when_one_is_dropped() -> None:
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


def test_the_named_speaker_is_preferred_and_more_so_in_a_talk_of_two() -> None:
    two = [{"content": "I like tea", "speaker": name} for name in ("Ann", "Bob")]
    crowd = [*two, *({"content": "I like tea", "speaker": f"Guest{n}"} for n in range(8))]
    assert best("What does Bob like?", two, replace(NONE, speaker=2.0)) == 1
    in_two, in_crowd = (ranked("What does Bob like?", audience_of(talk)).parts["speaker"][1] for talk in (two, crowd))
    assert in_two == DEFAULT.speaker
    assert 0 < in_crowd < in_two


@pytest.mark.promise("S2")
def test_time_in_the_question_counts_by_day_and_by_text() -> None:
    told = [
        {"content": "Went to the lake", "on": date(2023, 1, 5)},
        {"content": "Went to the lake", "on": date(2023, 3, 9)},
        {"content": "Went to the lake last March", "on": date(2023, 5, 1)},
    ]
    found = ranked("Who went to the lake in March 2023?", audience_of(told))
    assert found.parts["time"].tolist()[1:] == [DEFAULT.time] * 2
    assert found.parts["time"][0] < 1


def test_when_prefers_what_names_a_time() -> None:
    told = [{"content": "I ran a race with friends"}, {"content": "I ran a race last Sunday"}]
    assert best("When was the race?", told, replace(NONE, dated=1.0)) == 1
    assert ranked("Who ran the race?", audience_of(told)).parts["dated"].tolist() == [0, 0]


@pytest.mark.promise("E4", "S11")
def test_between_equals_the_newer_the_more_used_and_the_more_important_comes_first() -> None:
    tea = {"content": "Prefers tea"}
    old, new = tea | {"on": date(2022, 1, 1)}, tea | {"on": date(2023, 5, 1)}
    assert best("tea?", [old, new], replace(DEFAULT, words=0, near_words=0)) == 1
    assert best("tea?", [tea, tea | {"recalled": 3}]) == 1
    assert best("tea?", [tea, tea | {"importance": 0.9}]) == 1


@pytest.mark.promise("E4")
def test_newness_halves_with_its_half_life() -> None:
    audience = audience_of([{"content": "Prefers tea", "on": ON - dt.timedelta(days=days)} for days in (0, 30, 60)])
    recency = ranked("tea?", audience, weights=replace(NONE, recency=1.0, half_life_days=30.0)).parts["recency"]
    np.testing.assert_allclose(recency, [1, 0.5, 0.25], rtol=1e-5)


@pytest.mark.promise("S2")
def test_candidates_score_what_they_score_in_everything_they_were_chosen_from() -> None:
    said = [*FACTS, {"content": "A dog, a brown dog", "speaker": "Ann"}, {"content": "Brown bread"}, {"content": "x"}]
    vectors = np.random.default_rng(5).standard_normal((len(said), 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    everything, question = audience_of(said, vectors), Question.parse("Is the dog of Ann brown?", ON)
    found = ranked(question.text, everything, vector=vectors[1])
    words = word_scores([everything], question.terms)
    lengths = everything.column("length")
    held = [everything.postings(term) for term in question.terms]
    corpus = Corpus(len(said), float(lengths.mean()), tuple(0 if one is None else len(one[0]) for one in held))
    measures = Measures(
        own=corpus,
        near=corpus,
        words=Spread.of(words.own[0]),
        near_words=Spread.of(words.near[0]),
        meaning=Spread.of(vectors @ vectors[1]),
        session_meaning=Spread(0.0, 0.0),
        substance=0.0,
        speakers=speaker_shares([everything]),
        session_words=[np.zeros(0, dtype=np.float32)],
        session_best=[np.zeros(0, dtype=np.float32)],
    )
    some = [0, 3]
    few = audience_of([said[place] for place in some], vectors[some])
    chosen = [np.ones(len(some), dtype=bool)]
    again = rank(question, [few], chosen, vectors[1], DEFAULT, measures)
    np.testing.assert_allclose(again.scores, found.scores[some], rtol=1e-5)
    np.testing.assert_allclose(again.likeness, found.likeness[some], rtol=1e-5)
    alone = rank(question, [few], chosen, vectors[1])
    assert not np.allclose(alone.scores, found.scores[some], rtol=1e-2)


def test_diversity_takes_what_is_new_before_what_is_said_already() -> None:
    vectors = np.array([[1, 0], [0.999, 0.0447], [0.1, 0.995]], dtype=np.float32)
    audience = audience_of([{"content": "one"}, {"content": "two"}, {"content": "three"}], vectors)
    found = ranked("?", audience, vector=vectors[0])
    assert found.best(3) == [0, 1, 2]
    assert found.spread([0, 1, 2], 2, 1.0) == [0, 2]
    assert found.spread([], 2, 1.0) == []


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


@settings(deadline=None)  # a busy machine is no failure
@given(MEMORIES, st.text(max_size=40))
def test_scores_are_finite_for_any_audience_and_question(memories: list[Said], question: str) -> None:
    vectors = np.ones((len(memories), 4), dtype=np.float32) / 2
    for given_vectors, vector in ((None, None), (vectors, np.ones(4, dtype=np.float32) / 2)):
        if vector is not None and not memories:
            continue
        found = ranked(question, audience_of(memories, given_vectors), vector=vector)
        assert sorted(found.best(100)) == list(range(len(memories)))
        for place in range(len(memories)):
            assert sum(found.explain(place).values()) == pytest.approx(float(found.scores[place]), abs=1e-4)
        assert np.isfinite(found.scores).all()
        assert ((found.likeness >= 0) & (found.likeness <= 1)).all()
