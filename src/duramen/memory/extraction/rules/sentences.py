"""Splits a message into sentences, without quoted and pasted text."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ABBREVIATED = re.compile(
    r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Nr|No|Inc|Ltd|Co|approx|e\.g|i\.e|vs|etc|incl|max|min)\.$", re.IGNORECASE
)
_END = re.compile(
    r"(?<=[.!?])[\"')\]]*\s+|(?<=[.!?])\s+|\n+|(?<=\s):\)\s+|\s*[\U0001f300-\U0001f64f\U0001f900-\U0001faff]+\s+(?!$)"
)
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTE_MARKS = re.compile(r"[\"\u201c\u201e]([^\"\u201d\u201c\n]{12,})[\"\u201d\u201c]")
_PASTED = re.compile(
    r"^\s*(?:Traceback \(|File \"|at [\w.$]+\(|\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d|(?:DEBUG|INFO"
    r"|WARN(?:ING)?|ERROR"
    r"|FATAL)\b|[A-Z][A-Z0-9_]+ ?= ?|(?:def|class|import|from|return|const|let|var|function|SELECT|INSERT|UPDATE)\b"
    r"|[\w.]+Error: |[{}<#$%|]|\+{3}|-{3}|@@)"
)
_LEAD = re.compile(
    r"^(?:(?:fyi|btw|by the way|anyway|anyhow|also|and|so|ok(?:ay)?|well|oh|hi|hello|hey|morning|note"
    r"|correction[^:,]{0,30}"
    r"|just so you know|for (?:your )?(?:info|information|context)|one more thing|two things|in short|nope?|yes"
    r"|yep|right|actually|sure|thx|thanks"
    r"|please note(?: that)?|keep in mind that|important|reminder|context|background|info"
    r"|update)\b\s*[,:;!.\u2013-]*\s*)+",
    re.IGNORECASE,
)


def own_words(text: str) -> str:
    """A text without code, quoted lines, quotations and pasted output."""
    text = _FENCE.sub("\n", text)
    lines = [line for line in text.split("\n") if not line.lstrip().startswith((">", "|")) and not _PASTED.match(line)]
    return _QUOTE_MARKS.sub(" \u2026 ", "\n".join(lines))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text; a title such as "Mr." does not end one."""
    held = ""
    for piece in _END.split(text):
        piece = piece.strip()
        if not piece:
            continue
        held = f"{held} {piece}" if held else piece
        if _ABBREVIATED.search(held):
            continue
        yield held
        held = ""
    if held:
        yield held


def strip_lead(sentence: str) -> str:
    """A sentence without introductory words such as "by the way"."""
    return _LEAD.sub("", sentence, count=1).strip()
