"""Expiry: reads from an English statement how long it holds, such as "is on holiday until Friday".

A statement is lasting if it names no time, is in the past, is repeated ("every Monday"), or is not understood. A day
ends twelve hours after midnight in UTC, when it is over in all time zones.
"""

from __future__ import annotations

import datetime as dt
import re

from ...journal.events import micros, moment

_LONGEST = 200
"""The longest statement that is read, in characters. Longer ones state several things."""
_SLACK = dt.timedelta(hours=12)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_YEAR = "january february march april may june july august september october november december"
_MONTHS = {name[:3]: number for number, name in enumerate(_YEAR.split(), 1)}
_MONTH = rf"(?P<month>{_YEAR.replace(' ', '|')}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"
_DATE = (
    rf"(?:(?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}|{_MONTH.replace('month', 'month2')} "
    rf"(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?\b)(?:,? (?P<year>\d{{4}}))?"
)
_WHEN = (
    rf"(?P<iso>\d{{4}}-\d\d-\d\d)|(?:next |this |(?P<on>the following ))?(?P<weekday>{'|'.join(_DAYS)})\b|(?P<tomorrow>"
    r"tomorrow)|(?P<which>the end of (?:the|this|next)|(?:the end of )?next|this) (?P<unit>week|weekend|month|year)\b|"
    rf"{_DATE}"
)
_UNTIL = re.compile(rf"\b(?:until|till|through) (?:about |around |at least )?(?:{_WHEN})", re.IGNORECASE)
_NOW = re.compile(
    r"\b(?P<now>today|tonight|right now|at the moment|this (?:morning|afternoon|evening)|tomorrow|"
    r"(?:this|next) (?:week|weekend|month))\b(?!'s)",
    re.IGNORECASE,
)
_IS = re.compile(
    r"\b(?:is|are|am|isn't|aren't|[a-z]+'(?:m|re)|(?:he|she|it)'s)\b(?! (?:now )?(?:called|named|born|\d))|"
    r"\b(?:has|have) (?:an?|no|some|the) |\bwill be\b",
    re.IGNORECASE,
)
_PAST = re.compile(
    r"\b(?:was|were|did|had|been|said|told|went|came|left|ran|took|got|made|bought|sold|met|saw|knew|thought|began|"
    r"(?!need)\w+ed|ago|yesterday|last|since|as of|from (?:now|today|tomorrow|then|next|this|\w+day)|starting|"
    r"beginning|effective|born|died|birthday|anniversary)\b",
    re.IGNORECASE,
)
_STATE_WORDS = """
    closed booked delayed frozen blocked suspended reserved scheduled planned paused expected disabled enabled allowed
    required postponed cancelled canceled tired injured fixed assigned located based needed limited red bed shared
"""
_STATES = frozenset(_STATE_WORDS.split())
"""Words that look like past tense but describe a state."""
_AGAIN = re.compile(r"\b(?:every|each|always|usually|often|never|daily|weekly|\w+days)\b|\?", re.IGNORECASE)


_HINT_WORDS = ("until", "till", "through", "today", "tonight", "right now", "at the moment", "tomorrow", "this", "next")
_HINT = re.compile(rf"\b(?:{'|'.join(_HINT_WORDS)})\b", re.IGNORECASE)


def holds_until(content: str, at: int) -> int | None:
    """When a statement made at the time `at` ends, in microseconds; None if it is lasting."""
    text = content.strip()
    if len(text) > _LONGEST or not _may_have_hint(text.lower()) or _HINT.search(text) is None:
        return None
    if re.search(r"[.!;\n]\s+\S", text) or _AGAIN.search(text):
        return None
    if any(found.group().lower() not in _STATES for found in _PAST.finditer(text)):
        return None
    try:
        last = _last(text, moment(at).date())
        end = None if last is None else dt.datetime.combine(last, dt.time(), dt.UTC) + dt.timedelta(days=1) + _SLACK
    except (OverflowError, ValueError):  # beyond the last date that Python has
        return None
    return None if end is None else micros("end", end)


def _may_have_hint(lowered: str) -> bool:
    """Whether a text may have a hint. Most texts have none, and this check is the fastest."""
    for word in _HINT_WORDS:  # noqa: SIM110 - a generator takes twice as long
        if word in lowered:
            return True
    return False


def _last(text: str, on: dt.date) -> dt.date | None:
    """The last day on which a statement holds."""
    until = _UNTIL.search(text)
    if until is not None:
        last = _last_day(until, on)
    else:
        now = _NOW.search(text)
        last = None if now is None or _IS.search(text) is None else _near(now["now"].lower(), on)
    return None if last is None or last < on else last


def _near(word: str, on: dt.date) -> dt.date:
    """The last day of a near time, such as "today" or "next week"."""
    if word == "tomorrow":
        return on + dt.timedelta(days=1)
    which, _, unit = word.partition(" ")
    if unit in ("week", "weekend", "month"):
        return _end_of(unit, on, which == "next")
    return on


def _end_of(unit: str, on: dt.date, following: bool) -> dt.date:
    if unit in ("week", "weekend"):
        return on + dt.timedelta(days=6 - on.weekday() + 7 * following)
    months = on.year * 12 + on.month + following if unit == "month" else (on.year + 1 + following) * 12
    return dt.date(months // 12, months % 12 + 1, 1) - dt.timedelta(days=1)


def _last_day(found: re.Match[str], on: dt.date) -> dt.date | None:
    """The day that the words after "until" name; None if it does not exist."""
    if found["iso"]:
        try:
            return dt.date.fromisoformat(found["iso"])
        except ValueError:
            return None
    if found["tomorrow"]:
        return on + dt.timedelta(days=1)
    if found["weekday"]:
        days = (_DAYS.index(found["weekday"].lower()) - on.weekday() - 1) % 7 + 1
        return on + dt.timedelta(days=days)
    if found["unit"]:
        which = found["which"].lower()
        starts = which == "next"  # "until next week" may mean its start or its end: take the later
        return _end_of(found["unit"].lower(), on, starts or which.endswith("next"))
    return _named(found, on)


def _named(found: re.Match[str], on: dt.date) -> dt.date | None:
    month = _MONTHS[(found["month"] or found["month2"])[:3].lower()]
    day, year = int(found["day"] or found["day2"]), found["year"]
    for chosen in (int(year),) if year else (on.year, on.year + 1):
        try:
            date = dt.date(chosen, month, day)
        except ValueError:
            continue
        if year or date >= on:
            return date
    return None
