"""Reads the claims of a text, so that they can be compared: who lives where, what something costs, what is true.

It needs no model and prefers precision: only plain statements in the present tense count as claims, and only about
things that have one value at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .entities import ADJECTIVES, links, sentences
from .places import may_hold
from .words import stem


class Claim(NamedTuple):
    """A claim: what it is `about`, the `value` it gives, and its `words`. Two claims about the same thing with
    different values contradict each other. With `is_change`, the claim reports a change: it contradicts only older
    claims."""

    about: tuple[str, ...]
    value: tuple[str, ...]
    words: str
    is_change: bool = False


def claims(text: str, speaker: str | None = None) -> tuple[Claim, ...]:
    """The claims of a text. Something that gets several values in the text is left out."""
    found = [*_relations(text, speaker)]
    for sentence in sentences(text):
        found += _attributes(sentence)
        found += _plain(sentence, speaker)
    values: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for one in found:
        values.setdefault(one.about, set()).add(one.value)
    return tuple(dict.fromkeys(one for one in found if len(values[one.about]) == 1))


def contradict(one: Claim, other: Claim) -> bool:
    """Whether two claims about the same thing cannot both hold. `one` is from the older text."""
    if one.about != other.about or one.value == other.value or one.is_change:
        return False
    first, second = set(one.value), set(other.value)
    if first == second:
        return False  # "3 May" and "May 3"
    if one.about[0] in ("relation", "attribute") and (first <= second or second <= first):
        return False  # "New York" and "New York City"
    return not (one.about[0] == "relation" and one.about[2] in _PLACED and may_hold(one.words, other.words))


# -- relations

_ONE_EACH = frozenset(
    ["lives in", "works for", "reports to", "married to", "engaged to", "dates", "born in", "located in", "runs on"]
)
"""Relations that a subject has to only one object at a time."""
_PLACED = frozenset(["lives in", "born in", "located in"])
_KIN = ("mother", "father", "wife", "husband", "fiancé", "fiancée", "boss", "girlfriend", "boyfriend", "landlord")
_ROLES = ("CEO", "CTO", "CFO", "COO", "capital", "president", "mayor", "captain", "king", "queen", "owner", "principal")
_ONE_OF = frozenset(f"{role} of" for role in (*_KIN, *_ROLES))
"""Relations that only one subject at a time has to an object."""


def _relations(text: str, speaker: str | None) -> Iterator[Claim]:
    for subject, relation, thing in links(text, speaker):
        who, what = _words(subject), _words(thing)
        if relation in _ONE_EACH:
            yield Claim(("relation", " ".join(who), relation), what, thing)
        elif relation in _ONE_OF:
            yield Claim(("relation", " ".join(what), f"has {relation}"), who, subject)
        elif relation == "moved to":
            yield Claim(("relation", " ".join(who), "lives in"), what, thing, is_change=True)
        if relation in ("likes", "dislikes"):
            yield Claim(("taste", " ".join(who), " ".join(what)), (relation,), f"{relation} {thing}")
        if relation in ("works for", "left"):
            yield Claim(("post", " ".join(who), " ".join(what)), (relation,), f"{relation} {thing}", relation == "left")


def _words(text: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in re.findall(r"[^\W_]+", text.casefold()) if word not in ("the", "a", "an"))


# -- attributes

_NAMED = r"(?:(?:full|first|last|middle|maiden) )?name|boss|manager|owner|employer|home ?town|home city|landlord"
_COUNTED = (
    r"age|birthday|birth ?date|date of birth|(?:postal |billing |shipping |ip |home )?address|e-?mail(?: address)?|"
    r"(?:phone|mobile|account|passport|flight|room|badge|seat) ?number|phone|password|pin|"
    r"(?:door |access |zip |area )?code|height|weight|shoe size|deadline|due date|start date|end date|release date|"
    r"port|version|budget|price|rent|limit|timeout|capacity"
)
_WORDED = (
    r"user ?name|nick ?name|occupation|profession|job title|nationality|native language|mother tongue|time ?zone|"
    r"blood type|eye colou?r|hair colou?r|status|(?:all-time )?favou?rite [a-z]+(?: [a-z]+)?"
)
_SINGLE = rf"(?:(?P<named>{_NAMED})|(?P<counted>{_COUNTED})|(?P<worded>{_WORDED}))"
"""Attributes that a person or thing has only one of: a name, a number, a date, or a word."""
_VALUE = r"(?P<prep>(?:in|on|at) )?(?P<value>(?:[^.,;:!?]|[.:](?=\S)){1,60}?)"
_WHOSE = r"[A-Z][\w-]*(?: [A-Z][\w-]*){0,2}'s|[Mm]y|[Oo]ur|[Tt]he [a-z]+(?: [a-z]+)?'s|[Tt]he(?: [a-z-]+){1,2}"
_THING = r"(?:the )?[\w-]+(?: [\w-]+){0,3}?"
_IS = rf" (?:is|are) (?:now |currently )?{_VALUE}[.!]?"
_HAS = re.compile(rf"(?P<whose>{_WHOSE}) {_SINGLE}{_IS}")
_OF = re.compile(rf"[Tt]he {_SINGLE} of (?P<whose>{_THING}){_IS}")


def _attributes(sentence: str) -> Iterator[Claim]:
    """Claims such as "Ada's favourite colour is blue" and "the price of the ticket is 30 euros"."""
    match = _HAS.fullmatch(sentence) or _OF.fullmatch(sentence)
    if match is None or _DOUBTFUL.search(sentence) or _NEGATION.search(sentence):
        return
    value = _normal(match["value"].split())
    if not value or value[0] in ("also", "one", "unknown", "very", "so"):
        return
    said = match["value"].split()
    if match["named"] and any(word.islower() or word.lower() in ADJECTIVES for word in said):
        return
    dated = re.search(r"[\d@]", match["value"]) or any(word.lower() in _CALENDAR for word in said)
    if match["counted"] and not dated:
        return
    what = match["named"] or match["counted"] or match["worded"]
    about = ("attribute", " ".join(_words(match["whose"].removesuffix("'s"))), " ".join(_words(what)))
    yield Claim((*about, match["prep"] or ""), value, match["value"])


# -- sentences that differ only in a number or a negation

_TOKEN = re.compile(r"[$\u20ac\u00a3]|\d+(?:[.,:/-]\d+)*(?:%|[a-z]{1,2}\b)?|[^\W\d_]+(?:[-'][^\W\d_]+)*")
_HOLDING = """
    is are am has have costs cost weighs weigh measures measure runs run starts start begins begin ends end opens open
    closes close expires expire listens listen needs need takes take contains contain holds hold seats seat allows
    allow charges charge pays pay owns own equals lives live lasts last serves serve supports support uses use
"""
_HOLDS = frozenset(_HOLDING.split())
"""Verbs that describe a state, not an event."""
_ONCE = frozenset(["is", "starts", "start", "begins", "begin", "ends", "end", "expires", "expire"])
"""Verbs that can name only one day. What runs on Monday may also run on Friday."""
_CLOSE = frozenset(["on", "in", "at", "from"])
_FREELY = "to until till by of for about under over below above within after before with every $"
_ANYWHERE = frozenset(_FREELY.split())
_DUE = frozenset(["scheduled", "due", "planned", "set", "now", "currently", "only", "exactly", "about"])
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_NUMBERS = {word: str(number) for number, word in enumerate(_NUMBER_WORDS.split())}
_NUMBERS |= {"twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "hundred": "100", "noon": "12"}
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
_MONTH_NAMES = "january february march april may june july august september october november december"
_CALENDAR = frozenset(f"{_DAYS} {_MONTH_NAMES}".split())
_DOUBTFUL = re.compile(
    r"\b(?:if|unless|whether|when|whenever|while|perhaps|maybe|probably|possibly|might|may|could|would|wishes?|hopes?|"
    r"thinks?|believes?|says?|said|claims?|guess|seems?|or|either|sometimes|often|usually|mostly|some|was|were|did|had|"
    r"been|will|once|except|but|not (?:only|just|always|necessarily|yet|every\w*|all)|used to|almost|nearly|at least|"
    r"at most|up to|more than|less than|instead|rather than|[IUW](?:f|nless|hether|hen|hile)|Perhaps|"
    r"Maybe|Some\w*)\b|\?"
)
_NEGATION = re.compile(r"\b(?:not|never|no longer|no)\b|n't\b|\bcannot\b")
_PRONOUN = re.compile(r"(?:he|she|it|they|this|that|these|those|there|here|one|someone|each|another)\b", re.IGNORECASE)
_OTHERS = re.compile(r"\b(?:another|other|others|second|third|fourth|next|previous|first|last|each|every)\b")
_LONGEST = 25


def _plain(sentence: str, speaker: str | None) -> Iterator[Claim]:
    """The claims of a whole sentence: each of its numbers, and whether the sentence is negated."""
    said = sentence.replace("\u2019", "'").rstrip(".! ")
    if _DOUBTFUL.search(said) or not said[:1].isalnum():
        return
    denied = len(_NEGATION.findall(said))
    plain = said if not denied else _NEGATION.sub(" ", re.sub(r"\bcan't\b", "can not", re.sub(r"\bwon't\b", "", said)))
    tokens = [token for token in _TOKEN.findall(plain) if token.lower() not in ("a", "an", "the", "any")]
    if not 2 <= len(tokens) <= _LONGEST:
        return
    by = (speaker or "").casefold() if re.search(r"\b(?:i|my|me|we|our)\b", said, re.IGNORECASE) else ""
    frame, values, places = _frame(tokens)
    if denied < 2 and len(frame) > 2 and not said.lower().startswith(("he ", "she ", "it ", "they ", "this ", "that ")):
        words = tuple(stem(token.lower()) for token in tokens if token.lower() not in ("do", "does"))
        yield Claim(("whole", by, *words), ("no" if denied else "yes",), said)
    if denied or not values or _PRONOUN.match(said) or _OTHERS.search(said):
        return
    for number, place in enumerate(places):
        if _is_value(frame, place):
            others = [" ".join(value) for at, value in enumerate(values) if at != number]
            yield Claim(("number", by, str(number), *frame, *others), values[number], said)


def _frame(tokens: list[str]) -> tuple[list[str], list[tuple[str, ...]], list[int]]:
    """The words of a sentence with "#" for each run of numbers and dates, the values of these runs, and their
    places."""
    frame: list[str] = []
    values: list[tuple[str, ...]] = []
    places: list[int] = []
    for token in tokens:
        if _is_quantity(token, frame[-1] if frame else ""):
            if not frame or frame[-1] != "#":
                frame.append("#")
                places.append(len(frame) - 1)
                values.append(())
            values[-1] += _normal([token])
        else:
            frame.append(token.lower())
    return frame, values, places


def _is_quantity(token: str, before: str) -> bool:
    word = token.lower()
    if word == "one":
        return before in _HOLDS
    return token[0].isdigit() or word in _NUMBERS or (word in _CALENDAR and token[0].isupper())


def _normal(tokens: list[str]) -> tuple[str, ...]:
    """Words and numbers in normal form: 9, nine and 9:00 are the same."""
    found = []
    for token in tokens:
        word = token.lower()
        word = _NUMBERS.get(word, word)
        word = re.sub(r"^(\d+)(?:st|nd|rd|th)$", r"\1", re.sub(r"^(\d+)(?::00|\.0+)", r"\1", word.replace(",", "")))
        if word not in ("a", "an", "the"):
            found.append(stem(word))
    return tuple(found)


def _is_value(frame: list[str], place: int) -> bool:
    """Whether the number at a place is the value that the sentence states, not part of its subject."""
    verb = next((at for at, word in enumerate(frame) if word in _HOLDS), None)
    if verb is None or not 0 < verb < place:
        return False
    between = frame[verb + 1 : place]
    if not between:
        return True
    last = between[-1]
    if last in _CLOSE:
        once = last != "on" or frame[verb] in _ONCE
        return once and all(word in _DUE for word in between[:-1])
    if last in _ANYWHERE or last in _DUE:
        return "#" not in between
    # A number after a noun is a label ("port 80"). It counts only at the end, close to the verb.
    rest = [word for word in between if word not in _CLOSE and word not in _DUE]
    return place == len(frame) - 1 and len(rest) <= 2 and not any(word in _CLOSE for word in between[1:])
