"""Resolves English time expressions in questions and texts to days. Pure functions: no clock, no model.

`spans("I moved two weeks ago", on)` returns the days that are meant. A date without a year is the nearest one in the
past, because statements and questions are mostly about the past. "next" and "in three days" are in the future. A time
that depends on another event ("before the move") is ignored.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The days from `start` to `end`, both included, and the words of the text that name them."""

    start: date
    end: date
    words: str = ""

    @property
    def days(self) -> int:
        """How many days it covers, at least one."""
        return (self.end - self.start).days + 1


_YEAR_ROUND = "January February March April May June July August September October November December"
MONTHS = tuple(_YEAR_ROUND.split())
"""Month names in English, independent of the process's locale."""
_MONTHS = {name.lower(): number for number, name in enumerate(MONTHS, 1)}
_MONTHS |= {name.lower()[:3]: number for number, name in enumerate(MONTHS, 1)} | {"sept": 9}
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
_WEEKDAYS = {name: number for number, name in enumerate(_DAYS.split())}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_HOLIDAYS = {
    "new year's eve": (12, 31),
    "new year's day": (1, 1),
    "new year's": (1, 1),
    "valentine's day": (2, 14),
    "independence day": (7, 4),
    "halloween": (10, 31),
    "christmas eve": (12, 24),
    "christmas": (12, 25),
}
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {word: n for n, word in enumerate(_COUNTED.split())} | {"a": 1, "an": 1}
# Inexact quantities, and the number that is usually meant.
_VAGUE = {"couple of": 2, "couple": 2, "few": 3, "several": 4}
_UNITS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}

_MONTH = r"(?P<month>" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\b\.?"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_COUNT = r"(?P<count>\d{1,3}|" + "|".join(_NUMBERS) + r"|(?:a |the )?(?:couple of|couple|few)|several)"
_UNIT = r"(?P<unit>day|week|weekend|month|year)s?\b"
_HOLIDAY = r"(?P<holiday>" + "|".join(_HOLIDAYS).replace("'", "['\u2019]") + r")(?!\w)"
_WEEKDAY = r"(?P<weekday>" + "|".join(_WEEKDAYS) + r")\b"


def _month(year: int, month: int) -> Span:
    return Span(date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1]))


def _year(year: int) -> Span:
    return Span(date(year, 1, 1), date(year, 12, 31))


def _months_on(day: date, months: int) -> Span:
    index = day.year * 12 + day.month - 1 + months
    return _month(index // 12, index % 12 + 1)


def _season(year: int, first: int) -> Span:
    return Span(date(year, first, 1), _months_on(date(year, first, 1), 2).end)


def _week(day: date, weeks: int = 0) -> Span:
    monday = day - timedelta(days=day.weekday()) + timedelta(weeks=weeks)
    return Span(monday, monday + timedelta(days=6))


def _weekend(day: date, weeks: int = 0) -> Span:
    sunday = _week(day, weeks).end
    return Span(sunday - timedelta(days=1), sunday)


def _one(day: date) -> Span:
    return Span(day, day)


def _day_of_month(found: re.Match[str], on: date) -> Span | None:
    month, day = _MONTHS[found["month"].casefold()], int(found["day"])
    if found["year"]:
        return _one(date(int(found["year"]), month, day))
    this = date(on.year, month, day)
    return _one(this if this <= on else date(on.year - 1, month, day))


def _iso(found: re.Match[str], on: date) -> Span | None:
    return _one(date(int(found["year"]), int(found["m"]), int(found["d"])))


def _named_month(found: re.Match[str], on: date) -> Span | None:
    month, which = _MONTHS[found["month"].casefold()], (found["which"] or "").casefold()
    if found["year"]:
        return _part_of_month(_month(int(found["year"]), month), which)
    if which == "next":
        return _month(on.year + (month <= on.month), month)
    # In May, "last May" is a year ago, and "May" is this month.
    back = month > on.month or (which == "last" and month == on.month)
    return _part_of_month(_month(on.year - back, month), which)


def _part_of_month(span: Span, which: str) -> Span:
    first, last = {"early": (1, 10), "mid": (10, 20), "late": (20, span.days)}.get(which.strip("- "), (1, span.days))
    return Span(span.start.replace(day=first), span.start.replace(day=last))


def _bare_year(found: re.Match[str], on: date) -> Span | None:
    return _year(int(found["year"]))


def _named_season(found: re.Match[str], on: date) -> Span | None:
    first, which = _SEASONS[found["season"].casefold()], (found["which"] or "").casefold()
    if found["year"]:
        return _season(int(found["year"]), first)
    if which == "next":
        return _season(on.year + (first <= on.month), first)
    this = _season(on.year, first)
    if this.start > on or (which == "last" and this.end >= on):
        return _season(on.year - 1, first)
    return this


def _holiday(found: re.Match[str], on: date) -> Span | None:
    month, day = _HOLIDAYS[found["holiday"].casefold().replace("\u2019", "'")]
    if found["year"]:
        return _one(date(int(found["year"]), month, day))
    this = date(on.year, month, day)
    back = this > on and (found["which"] or "").casefold() not in ("this", "next")
    return _one(this.replace(year=on.year - back))


_DAY_WORDS = {
    "the day before yesterday": -2,
    "yesterday": -1,
    "last night": -1,
    "today": 0,
    "tonight": 0,
    "this morning": 0,
    "this afternoon": 0,
    "this evening": 0,
    "tomorrow": 1,
}


def _day_word(found: re.Match[str], on: date) -> Span | None:
    return _one(on + timedelta(days=_DAY_WORDS[found["word"].casefold()]))


def _ago(found: re.Match[str], on: date) -> Span | None:
    return _shifted(found, on, -1)


def _ahead(found: re.Match[str], on: date) -> Span | None:
    return _shifted(found, on, 1)


def _amount(words: str) -> tuple[int, bool]:
    """The number that is meant, and whether it is inexact."""
    plain = re.sub(r"^(a|the) (?=couple|few)", "", words.casefold())
    if plain in _VAGUE:
        return _VAGUE[plain], True
    return int(plain) if plain.isdigit() else _NUMBERS[plain], False


def _shifted(found: re.Match[str], on: date, sign: int) -> Span | None:
    (count, vague), unit = _amount(found["count"]), found["unit"].casefold()
    if unit == "month":
        near = _months_on(on, sign * count)
        return _widened(near, 30) if vague else near
    if unit == "year":
        near = _year(on.year + sign * count)
        return _widened(near, 365) if vague else near
    middle = _one(on + timedelta(days=sign * count * _UNITS[unit]))
    if unit == "day":
        return _widened(middle, 2) if vague else middle
    # "Two weeks ago" is rarely exact to the day.
    return _widened(middle, 7 if vague else 3)


def _widened(span: Span, days: int) -> Span:
    return Span(span.start - timedelta(days=days), span.end + timedelta(days=days))


def _past_stretch(found: re.Match[str], on: date) -> Span | None:
    count, _ = _amount(found["count"])
    return Span(on - timedelta(days=count * _UNITS[found["unit"].casefold()]), on)


def _near_unit(found: re.Match[str], on: date) -> Span | None:
    step = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}[found["which"].casefold()]
    match found["unit"].casefold():
        case "week":
            return _week(on, step)
        case "weekend":
            # On a weekend, "last weekend" is the one before, and "this weekend" is the current one.
            return _weekend(on, step)
        case "month":
            return _months_on(on, step)
        case _:
            return _year(on.year + step)


def _near_weekday(found: re.Match[str], on: date) -> Span | None:
    weekday, which = _WEEKDAYS[found["weekday"].casefold()], (found["which"] or "").casefold()
    if which in ("next", "this", "coming"):
        return _one(on + timedelta(days=(weekday - on.weekday()) % 7 or 7))
    return _one(on - timedelta(days=(on.weekday() - weekday) % 7 or 7))


_Reader = Callable[[re.Match[str], date], Span | None]
_WHICH = r"(?:(?P<which>last|this|next|early|late|mid)[\s-]+)?"
_SHORT_MONTHS = tuple(sorted({name[:3] for name in _MONTHS}))
_UNIT_HINTS = ("day", "week", "month", "year")
# Longer expressions come first: text that one reader has matched is hidden from the readers below it. A reader matches
# only a text that has one of its hints.
_READERS: tuple[tuple[re.Pattern[str], _Reader, tuple[str, ...]], ...] = tuple(
    (re.compile(r"(?<![\w-])" + pattern, re.IGNORECASE), reader, hints)
    for pattern, reader, hints in (
        (r"(?P<year>(?:19|20)\d\d)-(?P<m>[01]\d)-(?P<d>[0-3]\d)(?!\d)", _iso, ("19", "20")),
        (rf"{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?", _day_of_month, _SHORT_MONTHS),
        (rf"{_MONTH}\s+(?:the\s+)?{_DAY}(?!\d)(?:,?\s+{_YEAR})?", _day_of_month, _SHORT_MONTHS),
        (rf"{_WHICH}{_MONTH}(?:,?\s+(?:of\s+)?{_YEAR})?", _named_month, _SHORT_MONTHS),
        (
            rf"{_WHICH}(?P<season>{'|'.join(_SEASONS)})\b(?:,?\s+(?:of\s+)?{_YEAR})?",
            _named_season,
            tuple(_SEASONS),
        ),
        (
            rf"{_WHICH}{_HOLIDAY}(?:,?\s+{_YEAR})?",
            _holiday,
            ("new year", "valentine", "independence", "halloween", "christmas"),
        ),
        (
            rf"(?P<word>{'|'.join(_DAY_WORDS)})\b",
            _day_word,
            ("day", "night", "morning", "afternoon", "evening", "tomorrow"),
        ),
        (rf"{_COUNT}\s+{_UNIT}\s+(?:ago|back|earlier)\b", _ago, ("ago", "back", "earlier")),
        (rf"(?:the\s+)?(?:last|past)\s+{_COUNT}\s+{_UNIT}", _past_stretch, ("last", "past")),
        (rf"in\s+{_COUNT}\s+{_UNIT}", _ahead, _UNIT_HINTS),
        (
            r"(?P<which>last|past|previous|this|next|coming)\s+(?P<unit>weekend|week|month|year)\b",
            _near_unit,
            _UNIT_HINTS,
        ),
        (rf"(?:(?P<which>last|this|next|coming|on|past)\s+){_WEEKDAY}", _near_weekday, ("day",)),
        (rf"(?:in|of|since|during|year|by|until|before|after|from)\s+{_YEAR}", _bare_year, ("19", "20")),
    )
)
_EARLIER_OR_LATER = re.compile(
    rf"(?:the\s+)?(?:(?P<unit>week|weekend|day|month|year)|{_WEEKDAY})\s+(?P<way>before|after)\s+$", re.IGNORECASE
)
# Months and seasons that are also other words, unless the words before them mark a time.
_DOUBTFUL = frozenset(
    {
        "may",
        "march",
        "mar",
        "fall",
        "spring",
        "dec",
        "jan",
        "jun",
        "sep",
        "oct",
        "nov",
        "aug",
        "apr",
        "feb",
        "jul",
    }
)
_MARKED = re.compile(
    r"\b(?:in|since|during|until|by|of|before|after|around|from|the|early|late|mid)\s+$", re.IGNORECASE
)


_HINTS = (
    *(*_UNIT_HINTS, "night", "morning", "afternoon", "evening", "tomorrow"),
    *("valentine", "halloween", "christmas", *_SEASONS),
)
_FAINT_HINTS = ("ago", *_SHORT_MONTHS)
_FAINT_HINT = re.compile(r"ago\b|\b(?:" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\b", re.IGNORECASE)
_TWO_DIGITS = re.compile(r"\d\d")


def _may_name_a_time(text: str, plain: str) -> bool:
    """Whether a text has one of the hints; no reader matches without one. Most texts name no time, so this is a fast
    check. Searching for each hint separately is several times as fast as one pattern for all."""
    if _TWO_DIGITS.search(text) or any(hint in plain for hint in _HINTS):
        return True
    return any(hint in plain for hint in _FAINT_HINTS) and _FAINT_HINT.search(text) is not None


def spans(text: str, on: date) -> tuple[Span, ...]:
    """The days that `text` names, read on the day `on`, in the order of the text."""
    plain = text.casefold().replace("\u0131", "i").replace("i\u0307", "i")  # IGNORECASE treats all these i as equal
    if not _may_name_a_time(text, plain):
        return ()
    found: list[tuple[int, Span]] = []
    rest = text
    for pattern, read, hints in _READERS:
        if not any(hint in plain for hint in hints):
            continue
        for match in pattern.finditer(rest):
            if _is_another_word(match):
                continue
            start, span = _read(read, match, rest, on)
            if span is None:
                continue
            found.append((start, Span(span.start, span.end, text[start : match.end()].strip())))
            rest = rest[:start] + "\0" * (match.end() - start) + rest[match.end() :]
    return tuple(span for _, span in sorted(found, key=lambda pair: pair[0]))


def _read(read: _Reader, match: re.Match[str], rest: str, on: date) -> tuple[int, Span | None]:
    """Where a match begins, and its span; None for a day that does not exist (30 February), and for a word that only
    looks like a known one (with a dotless i)."""
    try:
        span = read(match, on)
        return (match.start(), None) if span is None else _moved(rest, match.start(), span)
    except (ValueError, OverflowError, KeyError):
        return match.start(), None


_LEAD = 40
"""How many characters before a time are read, because they can change its meaning. Without a limit, a long text with
many times would take time quadratic in its length."""


def _is_another_word(match: re.Match[str]) -> bool:
    """Whether a match such as "may", "march" or "fall" is another word, because nothing marks it as a month or
    season."""
    word = match.group().strip().rstrip(".")
    if word.casefold() not in _DOUBTFUL:
        return False
    return _MARKED.search(match.string[max(0, match.start() - _LEAD) : match.start()]) is None


def _moved(text: str, start: int, span: Span) -> tuple[int, Span]:
    """The span, moved by "the week before …" or "the Friday after …" in front of it, and where that begins."""
    first = max(0, start - _LEAD)
    lead = _EARLIER_OR_LATER.search(text[first:start])
    if lead is None:
        return start, span
    sign = -1 if lead["way"].casefold() == "before" else 1
    edge = span.start if sign < 0 else span.end
    if lead["weekday"]:
        distance = (sign * (_WEEKDAYS[lead["weekday"].casefold()] - edge.weekday())) % 7 or 7
        return first + lead.start(), _one(edge + timedelta(days=sign * distance))
    days = {"day": 1, "week": 7, "weekend": 7, "month": 31, "year": 366}[lead["unit"].casefold()]
    begin, end = sorted((edge + timedelta(days=sign), edge + timedelta(days=sign * days)))
    return first + lead.start(), Span(begin, end)


def closeness(asked: Span, first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.float32]:
    """How close each time, from a `first` to a `last` day, is to the `asked` one: 1 where they overlap, falling to 0
    with the distance. Days are ordinals, as in `date.toordinal`.

    For a longer `asked` span it falls more slowly: a week off "in May" matters less than a week off "on 3 May".
    """
    gaps = np.maximum(0, np.maximum(first - asked.end.toordinal(), asked.start.toordinal() - last))
    near: NDArray[np.float32] = np.exp2(gaps.astype(np.float32) / np.float32(-max(3, asked.days / 2)))
    return near
