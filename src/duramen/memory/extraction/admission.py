"""Admission: decides by patterns which sentences of a message are worth remembering, and gives a reason for each.

It admits only what people say about themselves or ask to be remembered. Questions, requests, thanks and everything else
stay in the session's journal. An admitted sentence is rephrased so that it can be understood by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_WISH = re.compile(
    r"^(?:please\s+|and\s+|also\s+|so\s+|ok(?:ay)?,?\s+)*"
    r"(?:remember|note|keep in mind|don['\u2019]t forget|make a note|for the record)[:,]?\s+(?:that\s+)?"
    r"(?P<what>.{4,})$",
    re.IGNORECASE,
)
_LASTING_WISH = re.compile(r"^(?:from now on|in (?:the )?future|going forward),?\s+(?P<what>.{4,})$", re.IGNORECASE)
_NAME = re.compile(
    r"\b(?i:call me|my name is|my name['\u2019]s)\s+"
    r"(?P<what>[A-Z\u00c0-\u024f][\w'\u2019-]*(?:\s+[A-Z][\w'\u2019-]*){0,3})"
)
_LEAD_WORDS = r"^(?:well,?\s+|and\s+|also,?\s+|actually,?\s+|btw,?\s+|by the way,?\s+)*"
_ONLY_NOW = re.compile(
    r"\b(?:today|tonight|right now|this (?:morning|afternoon|evening|time)|at the moment)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern of sentences that people say about themselves, and the template that rephrases them."""

    said: re.Pattern[str]
    kind: str
    key: str | None
    template: str
    reason: str


def _pattern(said: str, kind: str, key: str | None, template: str, reason: str) -> _Pattern:
    return _Pattern(re.compile(_LEAD_WORDS + said, re.IGNORECASE), kind, key, template, reason)


_PATTERNS = (
    _pattern(
        r"i (?:really |strongly |always |usually )?prefer (?P<what>.{3,})$",
        "preference",
        None,
        "prefers {}",
        "a preference",
    ),
    _pattern(r"i (?:really )?(?:like|love|enjoy) (?P<what>.{3,})$", "preference", None, "likes {}", "a preference"),
    _pattern(
        r"i (?:really )?(?:hate|dislike|can['\u2019]t stand|don['\u2019]t like) (?P<what>.{3,})$",
        "preference",
        None,
        "does not like {}",
        "a preference",
    ),
    _pattern(
        r"i(?:['\u2019]m| am) allergic to (?P<what>.{3,})$", "identity", None, "is allergic to {}", "about the user"
    ),
    _pattern(
        r"i(?:['\u2019]m| am) (?:a |an )?(?P<what>vegetarian|vegan|left-handed|colou?r-?blind)\b",
        "identity",
        None,
        "is {}",
        "about the user",
    ),
    _pattern(r"i live in (?P<what>.{2,})$", "identity", "home", "lives in {}", "about the user"),
    _pattern(
        r"i(?:['\u2019]ve| have)? (?:just )?moved to (?P<what>.{2,})$",
        "identity",
        "home",
        "lives in {}",
        "about the user",
    ),
    _pattern(r"i work (?:at|for) (?P<what>.{2,})$", "identity", "employer", "works for {}", "about the user"),
    _pattern(r"i work as (?P<what>.{2,})$", "identity", "profession", "works as {}", "about the user"),
    _pattern(
        r"my birthday is (?:on )?(?P<what>.{3,})$", "identity", "birthday", "has their birthday on {}", "about the user"
    ),
    _pattern(
        r"my (?P<about>(?:\w+ ){1,3})(?:is|are) (?P<what>.{2,})$", "fact", None, "'s {about}is {}", "about the user"
    ),
)
PROFILE_FIELDS = {
    "time zone": "timezone",
    "timezone": "timezone",
    "language": "language",
    "pronouns": "pronouns",
    "email": "email",
    "email address": "email",
    "phone number": "phone",
}
"""Subjects of statements ("my time zone is …") that belong in the user's profile, and the field of each."""
_POLITE = re.compile(
    r"^\W*(?:hi|hello|hey|thanks?|thank you|thx|ok(?:ay)?|great|cool|nice|perfect|bye|yes|no|sure|lol|haha"
    r"|good (?:morning|evening|night))\b.{0,30}$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a sentence: whether to keep it, in which form, and the reason."""

    sentence: str
    keep: bool
    reason: str
    content: str = ""
    kind: str = ""
    key: str | None = None

    @property
    def confidence(self) -> float:
        """How certain it is that the user wants this remembered. An explicit wish is the most certain."""
        return 0.95 if "wish" in self.reason or "asked" in self.reason else 0.8


def assess_sentences(text: str, who: str = "The user") -> list[Verdict]:
    """A verdict on each sentence of a message."""
    return [_verdict(sentence, who) for sentence in _sentences(text)]


def _sentences(text: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(text):
        if sentence.strip():
            yield sentence.strip()


def _verdict(said: str, who: str) -> Verdict:
    plain = said.rstrip(" .!").strip()
    if said.rstrip().endswith("?"):
        return Verdict(said, False, "a question")
    wish = _WISH.match(plain)
    if wish is not None:
        inner = _self_statement(wish["what"], who)
        if inner is not None:
            return Verdict(said, True, "asked to remember", *inner[:3])
        return Verdict(said, True, "asked to remember", f"{who} wants it remembered: {wish['what']}", "fact", None)
    lasting_wish = _LASTING_WISH.match(plain)
    if lasting_wish is not None:
        return Verdict(
            said, True, "a standing wish", f"{who} wishes from now on: {lasting_wish['what']}", "preference", None
        )
    if _POLITE.match(plain):
        return Verdict(said, False, "small talk")
    if _ONLY_NOW.search(plain):
        return Verdict(said, False, "holds only now")
    statement = _self_statement(plain, who)
    if statement is not None:
        return Verdict(said, True, statement[3], *statement[:3])
    return Verdict(said, False, "nothing about the user, and no wish to remember it")


def _self_statement(plain: str, who: str) -> tuple[str, str, str | None, str] | None:
    """What a sentence says about its speaker, rephrased: content, kind, key and reason; None if nothing."""
    name = _NAME.search(plain)
    if name is not None:
        return name["what"], "profile", "name", "about the user"
    for pattern in _PATTERNS:
        found = pattern.said.match(plain)
        if found is not None:
            about = found.groupdict().get("about", "").strip().lower()
            if about in PROFILE_FIELDS:
                return found["what"].strip(), "profile", PROFILE_FIELDS[about], pattern.reason
            put = pattern.template.format(found["what"].strip(), about=found.groupdict().get("about", ""))
            key = pattern.key
            return who + ("" if put.startswith("'") else " ") + put, pattern.kind, key or about or None, pattern.reason
    return None
