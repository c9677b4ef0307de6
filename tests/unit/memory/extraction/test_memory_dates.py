"""Time expressions resolve to spans of days, relative to a given day."""

from __future__ import annotations

import time
from datetime import date
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.memory.extraction import dates as times
from duramen.memory.extraction.dates import closeness, spans
from duramen.memory.index.index_entry import TIMES_CAP, read_term_stats
from duramen.memory.ranking.rank import Question

ON = date(2023, 5, 25)  # a Thursday

CASES = [
    ("on 2023-04-01", "2023-04-01", "2023-04-01"),
    ("on May 3, 2023", "2023-05-03", "2023-05-03"),
    ("at 1:56 pm on 8 May, 2023", "2023-05-08", "2023-05-08"),
    ("the 3rd of June", "2022-06-03", "2022-06-03"),
    ("in March 2021", "2021-03-01", "2021-03-31"),
    ("in March", "2023-03-01", "2023-03-31"),
    ("in december", "2022-12-01", "2022-12-31"),
    ("last May", "2022-05-01", "2022-05-31"),
    ("this May", "2023-05-01", "2023-05-31"),
    ("next May", "2024-05-01", "2024-05-31"),
    ("late July 2022", "2022-07-20", "2022-07-31"),
    ("in February 2024", "2024-02-01", "2024-02-29"),
    ("in 2019", "2019-01-01", "2019-12-31"),
    ("last year", "2022-01-01", "2022-12-31"),
    ("last month", "2023-04-01", "2023-04-30"),
    ("last week", "2023-05-15", "2023-05-21"),
    ("last weekend", "2023-05-20", "2023-05-21"),
    ("yesterday", "2023-05-24", "2023-05-24"),
    ("the day before yesterday", "2023-05-23", "2023-05-23"),
    ("tomorrow", "2023-05-26", "2023-05-26"),
    ("three days ago", "2023-05-22", "2023-05-22"),
    ("a few days ago", "2023-05-20", "2023-05-24"),
    ("two weeks ago", "2023-05-08", "2023-05-14"),
    ("2 months ago", "2023-03-01", "2023-03-31"),
    ("a year ago", "2022-01-01", "2022-12-31"),
    ("in the past three weeks", "2023-05-04", "2023-05-25"),
    ("in two days", "2023-05-27", "2023-05-27"),
    ("last Saturday", "2023-05-20", "2023-05-20"),
    ("on Thursday", "2023-05-18", "2023-05-18"),
    ("next Monday", "2023-05-29", "2023-05-29"),
    ("last summer", "2022-06-01", "2022-08-31"),
    ("in the winter of 2020", "2020-12-01", "2021-02-28"),
    ("next summer", "2023-06-01", "2023-08-31"),
    ("on New Year\u2019s Eve", "2022-12-31", "2022-12-31"),
    ("Christmas 2020", "2020-12-25", "2020-12-25"),
    ("the week before 6 March 2023", "2023-02-27", "2023-03-05"),
    ("the Friday before 20 May 2023", "2023-05-19", "2023-05-19"),
    ("the Sunday after 20 May 2023", "2023-05-21", "2023-05-21"),
]


@pytest.mark.parametrize(("text", "start", "end"), CASES)
def test_an_expression_gives_its_days(text: str, start: str, end: str) -> None:
    (span,) = spans(f"We met {text}.", ON)
    assert (span.start.isoformat(), span.end.isoformat()) == (start, end)


@pytest.mark.parametrize(
    "text", ["We may march on", "They fall in love", "spring rolls", "room 2019", "before the move", ""]
)
def test_other_words_give_no_days(text: str) -> None:
    assert spans(text, ON) == ()


def test_an_impossible_date_gives_no_day() -> None:
    assert all(span.start.day != 30 for span in spans("on 30 February 2023", ON))
    assert spans("999 years ago, 2023-02-31", date(900, 1, 1)) == ()


def test_several_expressions_keep_the_order_of_the_text() -> None:
    assert [span.words for span in spans("yesterday, in March 2021 and last week", ON)] == [
        "yesterday",
        "March 2021",
        "last week",
    ]


def closeness_of(question: str, *dates: date) -> list[float]:
    days = np.array([day.toordinal() for day in dates], dtype=np.int64)
    (span,) = spans(question, ON)
    return [float(value) for value in closeness(span, days, days)]


def test_closeness_is_one_for_overlap_and_falls_with_distance() -> None:
    overlapping, near, far = closeness_of("in May 2023", ON, date(2023, 6, 3), date(2023, 9, 1))
    assert 1 == overlapping > near > far > 0
    assert near > closeness_of("31 May 2023", date(2023, 6, 3))[0]
    assert near == closeness_of("in May 2023", date(2023, 4, 28))[0]
    longer = closeness(spans("31 May 2023", ON)[0], np.array([ON.toordinal()]), np.array([date.max.toordinal()]))
    assert longer.tolist() == [1]


_TIME_WORDS = """
    last past previous this next coming on in of since during year by until before after from the early late mid a an
    couple few several two ten 3 31st 12 1999 2024 2024-02-30 2023-05-07 day days week weekend month years ago back
    earlier may May Mar march Sept december fall spring winter Monday friday new year's eve valentine's
    independence halloween christmas yesterday night today tonight morning afternoon evening tomorrow . , maybe
"""
WORDS = [*_TIME_WORDS.split(), "valentine\u2019s", "\u0664", "\u017fummer", "wee\u212a", "fr\u0131day"]
WORDS += ["earl\u0131er", "earl\u0130er", "June\u0345", "\u0345june", "\u017fep"]


@given(st.text(), st.dates())
def test_any_text_on_any_day_is_accepted(text: str, on: date) -> None:
    assert all(span.start <= span.end for span in spans(text, on))


def test_letters_that_fold_to_ascii_are_read_as_ascii() -> None:
    (summer,) = spans("in \u017fummer", ON)
    assert (str(summer.start), str(summer.end)) == ("2022-06-01", "2022-08-31")
    (earlier,), (plain,) = spans("two days earl\u0131er", ON), spans("two days earlier", ON)
    assert (earlier.start, earlier.end) == (plain.start, plain.end)
    assert spans("on fr\u0131day, or the wee\u212a before", ON) == ()


@given(st.lists(st.sampled_from([*WORDS, *(text for text, _, _ in CASES)]), max_size=9), st.booleans(), st.dates())
def test_the_quick_check_never_hides_a_time(words: list[str], upper: bool, on: date) -> None:
    text = " ".join(words).upper() if upper else " ".join(words)
    unfiltered = tuple((pattern, reader, ("",)) for pattern, reader, _ in times._READERS)
    with patch.multiple(times, _READERS=unfiltered, _may_name_a_time=lambda *_: True):
        expected = spans(text, on)
    assert spans(text, on) == expected


@given(st.sampled_from([text for text, _, _ in CASES]), st.dates(date(1990, 1, 1), date(2090, 1, 1)))
def test_an_expression_gives_a_short_ordered_span_on_any_day(text: str, on: date) -> None:
    for span in spans(text, on):
        assert span.start <= span.end
        assert span.days <= 366 + 1


@pytest.mark.parametrize("on", [date.min, date.max])
def test_times_beyond_the_calendar_are_ignored(on: date) -> None:
    text = "the week before today, the year after today, the friday before today, two weeks ago, in 3 months, last May"
    for span in spans(f"{text}, tomorrow, yesterday, this week, the month after next year", on):
        assert date.min <= span.start <= span.end <= date.max


def test_a_long_text_full_of_times_takes_linear_time() -> None:
    start = time.process_time()
    assert len(spans("may 1, " * 2_800, ON)) == 2_800
    assert len(spans("the week before yesterday " * 800, ON)) == 800
    assert time.process_time() - start < 5  # quadratic time would be half a minute
    stats = read_term_stats({"content": "may 1, " * 2_800}, 0)
    assert len(stats.dates) == TIMES_CAP
    assert len(Question.parse("may 1, " * 2_800, ON).dates) == TIMES_CAP
