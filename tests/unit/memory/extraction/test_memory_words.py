"""Words: splitting, stemming, and queries without stop words."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from duramen.memory.extraction.words import number_of, query_terms, stem, terms
from duramen.memory.index.index_entry import read_term_stats


def test_forms_of_a_word_share_a_stem() -> None:
    assert terms("Running runs")[0] == terms("run")[0] == terms("RUNS")[0]


def test_a_possessive_has_the_term_of_the_name() -> None:
    assert terms("Maria's car") == terms("Maria\u2019s car") == terms("maria car")


def test_a_question_drops_stop_words_and_repeats() -> None:
    assert query_terms("What did the dog do to the other dog?") == ("dog", "other")


def test_a_question_of_stop_words_alone_keeps_them() -> None:
    assert query_terms("Who is he?") == ("who", "is", "he")


def test_small_talk_has_less_substance_than_a_statement() -> None:
    small_talk, statement = (
        read_term_stats({"content": text}, 0) for text in ("Oh, so it is!", "Bought a red bicycle")
    )
    assert small_talk.substance < statement.substance


def test_letters_of_any_language_are_words() -> None:
    assert terms("Zürich, москва") == ["zürich", "москва"]


def test_any_term_has_a_number() -> None:
    assert len({number_of(term) for term in ("a", "b", "москва", "\ud800", "")}) == 5
    assert all(0 <= number_of(term) < 2**32 for term in ("a", "москва", "\ud800"))


@pytest.mark.promise("S2")
def test_stemming_is_safe_in_threads() -> None:
    parts_of_words = product(
        ("run", "general", "nation", "relat", "organ"), ("", "al", "iz", "ful"), ("", "s", "ing", "ness")
    )
    words = ["".join(parts) for parts in parts_of_words]
    expected = [stem.__wrapped__(word) for word in words]

    def stem_repeatedly(_: int) -> bool:
        return all([stem.__wrapped__(word) for word in words] == expected for _ in range(20))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as threads:
            assert all(threads.map(stem_repeatedly, range(3)))
    finally:
        sys.setswitchinterval(before)
