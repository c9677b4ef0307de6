"""Splits text of any script into sentences, and recognises pleasantries."""

from __future__ import annotations

import re

from .trim import plain

_LONGEST = 24_000
"""Characters of one text that are read: three quarters from its beginning, one quarter from its end."""
_BULLET = re.compile(r"^(?:[-*•·>]+|#{1,6}|\d{1,3}[.)])\s+")
_END = re.compile(
    # no space needed after it: ideographic full stops, full-width marks, closing quotation marks
    "[\u3002\uff01\uff1f\uff61]+[\u300d\u300f\u201d\u2019\uff09]*"
    # space needed after it: Latin, Arabic, Urdu and Devanagari marks
    "|[.!?\u061f\u06d4\u0964\u0965\u2026]+[\"'\u201d\u2019)\\]]*(?=\\s)"
)
_ABBREVIATIONS = frozenset(
    ["dr", "mr", "ms", "mrs", "st", "nr", "vs", "ca", "jr", "sr", "prof", "inc", "ltd", "fig", "vol", "approx", "bzw"]
)
_MONTHS = ("Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez")
"""A full stop between a number and one of these does not end a sentence: German "3. Juni"."""
# fmt: off
_PLEASANTRIES = frozenset([
    "", "ok", "okay", "sure", "thing", "yes", "yep", "no", "right", "great", "perfect", "cool", "nice", "awesome",
    "excellent", "wonderful", "amazing", "lovely", "fine", "alright", "hi", "hello", "hey", "there", "good",
    "morning", "afternoon", "evening", "day", "thanks", "thank", "thx", "you", "many", "cheers", "please", "got",
    "it", "understood", "noted", "will", "do", "sounds", "looks", "makes", "sense", "of", "course", "certainly",
    "absolutely", "problem", "worries", "my", "pleasure", "you're", "are", "welcome", "bye", "goodbye", "see", "go",
    "ahead", "much", "appreciated", "well", "done", "job", "very", "so", "a", "lot", "again", "all", "one", "moment",
    "let", "me", "that", "this", "for", "the", "your", "help",
])
# fmt: on
_OFFERING = (" help", " assist", "let me know", "feel free", "anything else", "have a ")
_OFFERS = re.compile(
    r"(?:happy|glad) to (?:help|assist)\b"
    r"|\bi(?:'ll| can| will| would|'d)(?: be)?(?: happy| glad)?(?: to)? (?:help|assist)(?: you)?"
    r"(?: with (?:that|this|it))?\W*$"
    r"|^(?:please )?let me know if (?:you|there|anything)\b|^(?:please )?feel free to\b|^how can i (?:help|assist)\b"
    r"|\banything else\b.*\?$|^(?:i )?hope (?:this|that) helps\b|^have a (?:nice|great|good) "
)
_AROUND = ",.!?()-\u2013\u2014"
_LONGEST_PLEASANTRY = 120
"""Longer sentences are never pleasantries."""


def sentences(text: str) -> list[str]:
    """The sentences of a text, each on one line, without the marks of lists and headings."""
    if len(text) > _LONGEST:
        text = text[: _LONGEST * 3 // 4] + "\n" + text[-_LONGEST // 4 :]
    found: list[str] = []
    for line in text.splitlines():
        line = _BULLET.sub("", plain(line))
        if line:
            found += _split(line)
    return found


def _split(line: str) -> list[str]:
    parts, start = [], 0
    for end in _END.finditer(line):
        if end.group()[0] == "." and _is_abbreviation(line, start, end):
            continue
        parts.append(line[start : end.end()].strip())
        start = end.end()
    parts.append(line[start:].strip())
    return [part for part in parts if part]


def _is_abbreviation(line: str, start: int, end: re.Match[str]) -> bool:
    """Whether a full stop belongs to an abbreviation, an initial or a date."""
    rest = line[end.end() + 1 : end.end() + 4]
    if rest[:1].islower() or (line[end.start() - 1].isdigit() and rest in _MONTHS):
        return True
    word = line[max(start, end.start() - 8) : end.start()].rpartition(" ")[2].lstrip("(")
    is_initial = len(word) == 1 and word.isalpha()
    return is_initial or word.lower() in _ABBREVIATIONS or word[-2:-1] == "."


def is_pleasantry(sentence: str) -> bool:
    """Whether the sentence greets, thanks, agrees or offers help, and says nothing else."""
    if len(sentence) > _LONGEST_PLEASANTRY:
        return False
    lower = sentence.lower().replace("\u2019", "'")
    for word in lower.split():
        if word.strip(_AROUND) not in _PLEASANTRIES:
            offering = any(hint in lower for hint in _OFFERING) and _OFFERS.search(lower)
            return bool(offering) and not any(map(str.isdigit, lower))
    return True
