"""Names, titles and speakers are recognised without a model."""

from __future__ import annotations

import pytest

from duramen.memory.extraction.names import is_about, names, titles


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What did Alice give Bob?", ("Alice", "Bob")),
        ("Where is Alice's dog?", ("Alice",)),
        ("We flew to New York with Dr Jones", ("New York", "Dr Jones")),
        ("She works at the Bank of England", ("Bank of England",)),
        ("Thanks! Yesterday was great. I loved it.", ()),
        ("On Monday in May we rested", ()),
        ("Did Tom see Tom?", ("Tom",)),
        ("", ()),
    ],
)
def test_capitalised_words_are_names(text: str, expected: tuple[str, ...]) -> None:
    assert names(text) == expected


def test_quoted_words_are_titles() -> None:
    assert titles("She read \"Emma\", \u201cThe Trial\u201d and 'Dune' but didn't like it") == (
        "Emma",
        "The Trial",
        "Dune",
    )


@pytest.mark.parametrize(
    ("question", "speaker", "about"),
    [
        ("What did Ross say?", "Ross Geller", True),
        ("What did ross say?", "Ross", True),
        ("What did Rosslyn say?", "Ross", False),
        ("What degree did I take?", "user", True),
        ("What degree did I take?", "assistant", False),
        ("Which book did you name?", "assistant", True),
        ("Which book did you recommend to me?", "user", False),
        ("Which book did you recommend to me?", "assistant", False),
        ("Which book?", "", False),
    ],
)
def test_whether_a_question_is_about_a_speaker(question: str, speaker: str, about: bool) -> None:
    assert is_about(question, speaker) is about
