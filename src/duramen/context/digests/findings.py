"""Finds the exit status, the counts and the errors in the output of a program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from .long_text import Line, LongText, shown
from .sketch import Piece, Slot

_TROUBLE = (
    *(b"error", b"exception", b"traceback (most recent", b"fail", b"fatal", b"panic", b"denied", b"refused"),
    *(b"caused by", b"critical", b"segmentation fault", b"out of memory", b"timed out", b"cannot ", b"not found"),
    b"err!",
)
_LOUD = (b"ERROR", b"Error: ", b"error: ", b" Error ", b"FAILED ")
"""Also searched, with exact case, if the words in `_TROUBLE` occur on too many lines to read all of them."""
_MANY = 100
"""Distinct lines per word that are ranked."""
_LOOK = 20_000
"""Lines with such words that are compared to find distinct ones."""

_NO_TROUBLE = re.compile(
    r"\b(?:0|no|zero|without)\s+(?:\w+\s+)?(?:errors?|failures?|failed|exceptions?)\b"
    r"|\b(?:errors?|failures?|failed|exceptions?)(?:[_ ]?count)?[\"']?\s*[:=]\s*[\"']?"
    r"(?:0\b|nil\b|null\b|none\b|false\b|\[\]|\{\})",
    re.I,
)
_WORDS = r"(?:errors?|exceptions?|fail(?:ed|s|ure|ures|ing)?|fatal|denied|refused|critical|cannot|not found|timed out)"
_WEIGHTS = (
    (92, re.compile(r"^(?:[\w$]+[.:]+)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Fault)\b(?=:|\s*$)")),
    (91, re.compile(r"\bCaused by:|^(?:FAILED|ERROR) \S+::")),
    (90, re.compile(r"^E \S+(?:Error|Exception)\b")),
    (86, re.compile(r"^(?:panic|fatal)\b|\bpanicked at\b|\bFATAL\b|Segmentation fault|\bOut of memory\b", re.I)),
    (82, re.compile(r"\b(?:error|exception)(?:\[\w+\])?:\s*\S", re.I)),
    (78, re.compile(r"^(?:FAILED|FAIL|ERROR|not ok)\b|\bException in thread\b|\bERR!")),
    (74, re.compile(r"\b(?:ERROR|CRITICAL|Error)\b|\b[Pp]ermission denied|\b[Cc]onnection refused|\b[Aa]ccess denied")),
    (40, re.compile(rf"(?<![\w./\"'({{-]){_WORDS}(?![\w/-]|\.\w|\s*[=(){{}}\]\"'|])", re.I)),
)
"""Patterns of lines that report an error, and the weight of such a line. The first match counts."""
_CODE = re.compile(r"^(?:raise|except|def|class|if|elif|return|import|from|catch|throw|try|#|//|/?\*|<)(?=\W|$)")
_VAGUE = 40
"""Lines up to this weight may not be about an error."""
_STAMP = re.compile(r"^\W{0,2}\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.,]*(?:Z|[+-]\d\d:?\d\d)?\W{0,2}\s+")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+")

_EXIT = re.compile(
    r"\b(?:exit(?:ed)?(?:[ _-]?(?:with|code|status))*|return[ _-]?code|rc(?=\s*[:=])|status code)[\"']?"
    r"(?:\s*[:=]\s*|\s+(?:(?:was|is|of)\s+)?)(-?\d{1,10})\b",
    re.I,
)
_HTTP = re.compile(r"^HTTP/\d(?:\.\d)? \d{3}\b")
_THINGS = (
    r"(?:passed|failed|skipped|xfailed|passing|failing|pending|errors?|warnings?|failures?|tests?|rows?|files?"
    r"|packages?|insertions?|deletions?|vulnerabilit(?:y|ies)|results?|match(?:es)?|items?|records?|problems?|issues?"
    r"|objects?|bytes|changes|total)"
)
_COUNT = re.compile(
    rf"\b\d[\d,.]*\s+(?:\w+\s+)?{_THINGS}\b|\b(?:{_THINGS}|tests run)[\"']?\s*[:=]\s*\d|\b(?:total|found|ran)\s+\d",
    re.I,
)
_RULE = "=-_*# ─━═"


class Trouble(NamedTuple):
    """A line that reports an error, and its weight."""

    weight: int
    start: int
    text: str


class Findings(NamedTuple):
    """The pieces found. `foremost` are the most important ones. Both lists begin with the most important piece."""

    foremost: list[Piece]
    further: list[Piece]


def findings(output: LongText) -> Findings:
    """The status, counts and errors in an output."""
    ranked = troubles(output)[:24]
    clear = [one.text for one in ranked if one.weight > _VAGUE]
    errors = [Piece(Slot.ERRORS, text, 0.3 if at else 0.45, "! ") for at, text in enumerate(clear)]
    vague = [Piece(Slot.ERRORS, one.text, 0.2, "! ") for one in ranked if one.weight <= _VAGUE]
    status, counts = exit_status(output), count_lines(output)
    return Findings([*status, *errors[:1], *counts[:1], *errors[1:2]], [*counts[1:], *errors[2:], *vague])


def exit_status(output: LongText) -> list[Piece]:
    """The last exit status in the output, and the status line of an HTTP response."""
    statuses = [found for line in _status_lines(output) for found in _EXIT.findall(shown(line.text))]
    http = [line for line in output.first[:1] if _HTTP.match(line)]
    return [Piece(Slot.STATUS, text, 0.3) for text in [*(f"exit status {number}" for number in statuses[-1:]), *http]]


def _status_lines(output: LongText) -> list[Line]:
    lines = [line for needle in (b"exit", b"return", b"rc=") for line in output.find(needle, front=0, back=40)]
    return sorted(lines)


def count_lines(output: LongText) -> list[Piece]:
    """The two lines with the most counts, from the first lines, the last lines and the lines with test results."""
    found = [line for needle in (b" passed", b" failed", b"total") for line in output.find(needle, front=0, back=4)]
    lines = [*output.last[:40], *(shown(line.text) for line in sorted(found, reverse=True)), *output.first[:10]]
    short = list(dict.fromkeys(bared for line in lines if len(bared := bare(line)) < 400))
    alike = Counter(_VARYING.sub("0", line) for line in short)
    ranked: list[tuple[int, str]] = []
    for line in short:
        # A total occurs once or twice. Lines that repeat with other numbers are not totals.
        things = len(_COUNT.findall(line)) if alike[_VARYING.sub("0", line)] <= 2 else 0
        score = min(things, 4) * 100 - len(line)
        if things and score > 0:
            ranked.append((score, line))
    ranked.sort(key=lambda one: -one[0])
    return [Piece(Slot.COUNTS, line, 0.3) for _, line in ranked[:2]]


def bare(line: str) -> str:
    """The line without a rule around it: "3 passed" for "=== 3 passed ==="."""
    return line.strip(_RULE) or line


def troubles(output: LongText) -> list[Trouble]:
    """The lines that report errors, the most informative first. Of lines that differ only in numbers, one is kept."""
    found = {line.start: line for line in _troubled(output)}
    ends = {line.start: line for line in _traceback_ends(output)}
    ranked = [_weighed(line, line.start in ends) for line in (found | ends).values()]
    ranked.sort(key=lambda one: (-one.weight, one.start))
    distinct: dict[str, Trouble] = {}
    for one in ranked:
        if one.weight:
            distinct.setdefault(_VARYING.sub("0", one.text.lower())[:200], one)
    return list(distinct.values())


def _troubled(output: LongText) -> Iterable[Line]:
    look = _LOOK
    for needle in _TROUBLE:
        lines, looked = output.find_distinct(needle, most=_MANY, look=look // 2)
        look -= looked
        yield from lines
        if looked >= look // 2 or len(lines) >= _MANY:
            yield from output.find(needle, front=0, back=20)
    for needle in _LOUD if look < _LOOK // 2 else ():
        yield from output.find(needle, front=_MANY, exact=True)


def _traceback_ends(output: LongText) -> Iterable[Line]:
    """The line after each traceback that names the exception."""
    for line in output.find(b"traceback (most recent", front=20, back=5):
        indent = len(line.text) - len(line.text.lstrip())
        for below in output.after(line, 120):
            text = shown(below.text)
            if text and not below.text[indent : indent + 1].isspace():
                yield below
                break


def _weighed(line: Line, ends_traceback: bool) -> Trouble:
    text = _STAMP.sub("", shown(line.text))
    rest = _NO_TROUBLE.sub("", text)
    weight = next((weight for weight, pattern in _WEIGHTS if pattern.search(rest)), 0)
    if ends_traceback:
        weight = 95
    elif _CODE.match(text) or "traceback (most" in text[:40].lower():
        weight = 0
    return Trouble(weight, line.start, _around(text))


def _around(text: str) -> str:
    """The part of a very long line that reports the error."""
    if len(text) <= 300:
        return text
    found = _WEIGHTS[-1][1].search(text)
    return text[max(0, found.start() - 60) if found else 0 :]
