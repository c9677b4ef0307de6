"""Finds names in questions and texts without a model: capitalised words and quoted titles.

The first word of a sentence is capitalised, whether it is a name or not. Words that often start a sentence ("What",
"Yesterday", "Thanks") are therefore removed from the start of a name.
"""

from __future__ import annotations

import re

from .words import STOP_WORDS

_NAME = re.compile(
    r"(?:[^\W\d_a-z]|[A-Z])[\w\u2019'&-]*(?:\s+(?:(?:of|the|de|van|von|la|del)\s+){0,2}[A-Z][\w\u2019'&-]*)*"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"\u201c(\[]\s*|[\u2014\u2013-]\s+)$")
_TITLE = re.compile(r"\"([^\"\n]{2,80})\"|\u201c([^\u201d\n]{2,80})\u201d|(?<!\w)'([A-Z][^'\n]{1,78})'(?!\w)")
_OPENING_WORDS = """
    absolutely all always amazing another awesome based before after bye cool congrats congratulations considering
    definitely even ever every exactly favorite first glad good gosh great haha happy hello hey hi hope keep last lately
    let like lol look love maybe met nice now oh ok okay once one our please really recently right since sometimes soon
    sorry sounds sure take thank thanks that today tomorrow totally true two until wait well whoa wow yeah yep yes
    yesterday yup went got been seeing having doing going
"""
_OPENERS = STOP_WORDS | frozenset(_OPENING_WORDS.split())
_CALENDAR_WORDS = """
    monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december
"""
_CALENDAR = frozenset(_CALENDAR_WORDS.split())
_ROLES = {"user": "first", "human": "first", "me": "first", "assistant": "second", "ai": "second", "agent": "second"}
_FIRST = re.compile(r"\b(?:i|me|my|mine|myself)\b", re.IGNORECASE)
_SECOND = re.compile(r"\b(?:you|your|yours)\b", re.IGNORECASE)


def names(text: str) -> tuple[str, ...]:
    """The distinct capitalised names of a text, in order, without possessive endings, weekdays and months."""
    found = dict.fromkeys(
        name for match in _NAME.finditer(text) if (name := _name(match, text)) and name.lower() not in _CALENDAR
    )
    return tuple(found)


def _name(match: re.Match[str], text: str) -> str:
    """The name in a run of capitalised words, without the ordinary word that opens the sentence."""
    words = re.sub(r"['\u2019](?:s|m|re|ve|ll|d|t)?(?=\s|$)", "", match.group()).rstrip("-&").split()
    opens = _SENTENCE_START.search(text[: match.start()]) is not None
    while words and (words[0].lower() in _OPENERS or (words[0].lower() in _CALENDAR and len(words) > 1)):
        words = words[1:]
        opens = False
    if not words or (len(words) == 1 and len(words[0]) == 1):
        return ""
    return "" if opens and len(words) == 1 and words[0].lower().endswith(("ing", "ly")) else " ".join(words)


def titles(text: str) -> tuple[str, ...]:
    """The texts in quotes, such as titles of books, songs and files."""
    return tuple(dict.fromkeys(next(filter(None, match.groups())).strip() for match in _TITLE.finditer(text)))


def is_about(question: str, speaker: str) -> bool:
    """Whether the question names the speaker, by the whole name or one part of it.

    In a chat with an assistant the speakers have no names: "I" and "my" mean the user, and "you" means the assistant. A
    question with both is about neither.
    """
    role = _ROLES.get(speaker.strip().lower())
    if role is not None:
        first, second = _FIRST.search(question) is not None, _SECOND.search(question) is not None
        return first != second and first == (role == "first")
    parts = [part for part in re.findall(r"\w+", speaker) if len(part) > 1 and part.lower() not in STOP_WORDS]
    return any(re.search(rf"\b{re.escape(part)}\b", question, re.IGNORECASE) for part in parts)
