"""Finds who and what a text is about, without a model: names, titles, dates, and relations that plain sentences state.

It prefers precision. What is denied, asked, supposed or said about another person ("the sister of Ada lives in …") is
not a relation. A sentence that it does not understand has no relations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from .dates import Span, spans
from .names import names, titles
from .relations import DONE_BY, KIN, ROLES, VERBS, Verb


class Link(NamedTuple):
    """A relation as a text states it."""

    subject: str
    relation: str
    object: str


class Entities(NamedTuple):
    """What a text is about."""

    names: tuple[str, ...]
    titles: tuple[str, ...]
    dates: tuple[Span, ...]
    links: tuple[Link, ...]


def entities(text: str, on: date, speaker: str | None = None) -> Entities:
    """The entities of a text that was said on a day, perhaps by a named speaker."""
    found = links(text, speaker)
    capitals = dict.fromkeys(names(text))
    stated = dict.fromkeys(end for link in found for end in (link.subject, link.object) if _ONE_NAME.fullmatch(end))
    return Entities(tuple(capitals | stated), titles(text), spans(text, on), found)


# -- the parts of a sentence

_WORD = r"[A-Z\u00c0-\u00de][\w&-]*(?:'(?!s\b)\w+)?(?!\w|'s)"
_NAME = rf"{_WORD}(?: (?:(?:of|de|van|von|la|del|di|da) )?{_WORD}){{0,3}}"
_ONE_NAME = re.compile(_NAME)
_OWNER = _NAME.replace("(?!\\w|'s)", "")
_SUBJECT = re.compile(rf"(?<![\w'])(?P<who>{_NAME}(?:(?:, {_NAME}){{0,5}},? (?:and|&) {_NAME})?)(?= )")
_AFTER = (
    r"(?=\s*(?:[.,;:!)\u2014\u2013]|$)|\s+(?:and|but|or|in|on|at|since|for|from|with|by|as|because|when|while|until|"
    r"last|this|next|today|yesterday|now|too|again|already|together|during|after|before|where|who|which|near|any ?more|"
    r"no longer)\b)"
)
"""What may follow a name that is an object. Anything else would change its meaning."""
_NAMED = re.compile(rf"(?:[Tt]he )?(?:{_NAME}(?:, {_NAME}){{0,5}},? (?:and|&) {_NAME}{_AFTER}|{_NAME}{_AFTER})")
_JOINT = "and|but|or|because|when|while|whenever|if|unless|so|since|than|rather|although|though|until|too|also|as well"
_HALT = (
    rf"{_JOINT}|to|over|that|which|who|where|is|are|was|were|has|had|does|did|will|would|can|could|not|no|any ?more|it|"
    r"him|them|these|those|this|what|how"
)
_ITEM = rf"(?!(?:{_HALT})\b)\w(?:[\w&'/-]*\w)?"
_PHRASE = (
    rf"(?:to (?=[a-z]))?(?!(?:down|up|out|off|about|away|back|for|with|at|in|on|from|by|as|like)\b){_ITEM}"
    rf"(?: {_ITEM}){{0,7}}(?! {_ITEM})(?![\w'/&])"
)
_PHRASE_ENDS = rf"(?=\s*(?:[.,;:!)\u2014\u2013-]|$)|\s+(?:{_JOINT}|no longer|no more|any ?more)\b)"
"""What may follow a phrase. A phrase that continues with a pronoun or a verb does not match."""
_OBJECT = re.compile(_PHRASE + _PHRASE_ENDS)
_PREFERRED = re.compile(_PHRASE + _PHRASE_ENDS[:-1] + r"|\s+(?:to|over)\b)")
_ADVERBS = re.compile(
    r"(?:(?:now|currently|still|also|really|always|usually|recently|just|actually|already|absolutely|both) ){0,2}"
)
_INSIDE = re.compile(r"\b(is|are|am|was|were|has|have) (?:now|currently|still|also|really|actually|already|recently) ")
_AND = re.compile(r",? and (?:also )?")
_BETWEEN = re.compile(r", (?:and |& )?| (?:and|&) ")
_SENTENCE = re.compile(
    r"(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\bProf\.)(?<!\b[A-Z]\.)"
    r"(?:(?<=[.!?\u2026])|(?<=[.!?][\"\u201d)]))\s+|\n+"
)

# -- what makes a sentence not a statement

_UNSURE = re.compile(
    r"\b(?:not|never|no|nor|neither|nobody|none|without|hardly|barely|cannot|if|unless|whether|suppose|supposing|"
    r"imagine|pretend\w*|wish\w*|hop(?:e|es|ed|ing)|doubt\w*|den(?:y|ies|ied)|perhaps|maybe|probably|possibly|might|"
    r"may|could|would|should|will|until|till|once|think\w*|thought|believ\w*|guess\w*|assum\w*|dream\w*|fals\w*|"
    r"rumou?r\w*|than|when|let|lets|apparently|allegedly|supposedly)\b|n't\b",
    re.IGNORECASE,
)
_DOUBTED = re.compile(
    r"(?:perhaps|maybe|probably|possibly|apparently|allegedly|supposedly|hopefully|suppose|imagine|bet|if|unless|"
    r"whether|neither|nor|not|no) ",
    re.IGNORECASE,
)
_UNSAID = re.compile(r"\s*(?:,? ?(?:any ?more|no longer|no more|if|unless|or)\b|\?|in (?:a|his|her|my) dreams?\b)")
_CLAUSE = re.compile(r".*(?:[,;:(\u2014\u2013]| - |\b(?:but|while|because|that|and)\b)\s*", re.DOTALL)
_STATEMENT = re.compile(r"[;:]|, (?:but|and|so|while)\b|\bbut\b")
_NOT_HERE = r"(?!(?:of|from|at|in|with|near|for|to|by|like|who|than|on|about)\b)"
_LEAD = re.compile(
    r"(?:(?:so|also|now|then|today|yesterday|well|yes|and|as|since|after|before|recently|currently|lately|both|in fact|"
    r"of course|fact|note) )?(?:(?:in|on|at|since|last|this|during) [\w ]{1,24} )?"
    rf"(?:(?:my|our|his|her|their|your|the|an?|\w+'s) {_NOT_HERE}[a-z-]+ (?:{_NOT_HERE}[a-z-]+ )?)?"
    r"(?:(?:the|dr\.|mr\.|mrs\.|ms\.|prof\.) )?",
    re.IGNORECASE,
)
"""What may come before a subject in its clause: nothing that could itself be the subject."""
_IN_FRONT = frozenset(["in", "on", "at", "since", "during", "after", "before", "by", "from", "near", "until", "within"])
_CALENDAR = re.compile(r"(?:\w+day|january|february|march|april|may|june|july|august|\w+(?:em|o)ber)s?$", re.IGNORECASE)
_NOBODY_WORDS = """
    nobody everyone everybody someone somebody anyone anybody nothing something everything people many most few each
    either neither both another others whoever somewhere none one he she it they we you there this that these those
    who what which where when his her their our my your its and but or so if no not
"""
_NOBODY = frozenset(_NOBODY_WORDS.split())
_ADJECTIVES_WORDS = """
    american british english french german italian spanish portuguese dutch swedish norwegian danish finnish polish
    russian ukrainian chinese japanese korean indian mexican brazilian canadian australian irish scottish welsh
    greek turkish egyptian african asian european swiss austrian czech hungarian catholic christian jewish muslim
    hindu buddhist democrat republican
"""
ADJECTIVES = frozenset(_ADJECTIVES_WORDS.split())
_NO_OBJECT = re.compile(
    r"(?:it|him|her|them|this|that|me|you|us|himself|herself|themselves|nothing|something|everything|everyone|one|"
    r"a (?:bit|little|lot|while|few|pain)|(?:an?|the) (?:[\w-]+ ){0,2}(?:same|way|idea|fact|part|role|thing|one|reason|"
    r"time|place|bit|lot))(?: .*)?|an?|the|his|her|my|their|to|all|some",
    re.IGNORECASE,
)
_SPEAKERS = frozenset(["user", "human", "me", "assistant", "ai", "agent", "system", "tool", "bot"])

# -- what is said about a subject


def _any_of(forms: list[str]) -> re.Pattern[str]:
    return re.compile("(?:" + "|".join(f"(?P<v{at}>{form})" for at, form in enumerate(forms) if form) + ") ")


def _forms(*forms: str) -> str:
    return "|".join(form for form in forms if form)


_ONE = _any_of([_forms(verb.one, verb.either) for verb in VERBS])
_MANY = _any_of([_forms(verb.many, verb.either) for verb in VERBS])
_BE = r"(?:is|was|are|were|am)"
_kin, _roles = "|".join(KIN), "|".join(ROLES)
_KIN_IS = re.compile(rf"{_BE} (?P<of>{_OWNER})'s (?:[a-z-]+ )?(?P<role>{_kin})(?!\w|'s| of\b)")
_ROLE_IS = re.compile(
    rf"{_BE} (?:an?|the|one of the) (?:(?!former|late|ex)[a-z-]+ )?(?P<role>{_kin}|{_roles})s? (?:of|at) (?:the )?"
    rf"(?P<of>{_NAME}){_AFTER}"
)
_HAS = re.compile(rf"(?:has|have) (?:an?|two|three) (?:[a-z-]+ )?(?P<role>{_kin})s? (?:named|called) (?P<what>{_NAME})")
_DONE = re.compile(rf"(?:was|is|were) (?P<done>{'|'.join(DONE_BY)}) by (?P<of>{_NAME}){_AFTER}")
_IS_A = re.compile(rf"{_BE} an? (?P<what>{_PHRASE}{_PHRASE_ENDS})")
_THEIRS = re.compile(
    rf"(?<![\w'])(?P<of>{_OWNER}'s|[Mm]y) (?:(?!ex-|late |former )[a-z-]+ )?(?P<role>{_kin}) "
    rf"(?P<is>(?:is|is called|is named) )?(?P<who>{_NAME})(?![\w'])"
)

_LONGEST = 400
"""The longest sentence that is read, in characters. Longer ones are rarely plain statements, and slow to match."""


class _Predicate(NamedTuple):
    """A predicate: its relation, the other names, where it ends, and whether the subject of the sentence is the object
    of the relation (`turned`)."""

    relation: str
    others: list[str]
    end: int
    turned: bool = False


def links(text: str, speaker: str | None = None) -> tuple[Link, ...]:
    """The relations that a text states, in its order, each once. "I" is the speaker, if the speaker has a name."""
    known = named_speaker(speaker)
    found: dict[Link, None] = {}
    for sentence in sentences(text):
        said = _INSIDE.sub(r"\1 ", sentence)
        found |= dict.fromkeys(link for link in _stated(said, known) if _is_sound(link))
    return tuple(found)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text that may state something: no questions, and none above `_LONGEST` characters."""
    for sentence in _SENTENCE.split(text):
        if 0 < len(sentence) <= _LONGEST and not sentence.rstrip('"\u201d) ').endswith("?"):
            said = " ".join(sentence.replace("\u2019", "'").split()).strip('"\u201c ')
            yield said.replace("I'm ", "I am ").replace("I've ", "I have ")


def named_speaker(speaker: str | None) -> str | None:
    """The speaker, if it is a name; None if it is a role such as "user" or "assistant"."""
    named = speaker is not None and speaker.strip().lower() not in _SPEAKERS and names(f"by {speaker}")
    return speaker if named else None


def _is_sound(link: Link) -> bool:
    ends = (link.subject.lower(), link.object.lower())
    return all(end and end not in _NOBODY for end in ends) and ends[0] != ends[1]


def _stated(sentence: str, speaker: str | None) -> Iterator[Link]:
    ended: set[int] = set()
    first = 0
    while (match := _SUBJECT.search(sentence, first)) is not None:
        start, who = _who(match, speaker)
        plain = bool(who) and _is_plain(sentence[:start], ended)
        at, many = match.end() + 1, len(who) > 1 or match["who"] == "I"
        first = match.start() + len(_BETWEEN.split(match["who"])[0])
        while plain and (said := _predicate(sentence, at, many)) is not None:
            if not _UNSAID.match(sentence, said.end):
                for one in who:
                    for other in said.others:
                        yield Link(other, said.relation, one) if said.turned else Link(one, said.relation, other)
            ended.add(said.end)
            joined = _AND.match(sentence, said.end)
            if joined is None:
                break
            at = joined.end()
    yield from _kindred(sentence, speaker)


def _who(match: re.Match[str], speaker: str | None) -> tuple[int, list[str]]:
    """The subjects in a match, and where they begin."""
    group, start = match["who"], match.start()
    if group == "I":
        return start, [speaker] if speaker else []
    parts = _BETWEEN.split(group)
    first = parts[0].split()
    if first[0].lower() in _IN_FRONT:  # "In Paris, Ada …" has a place; "In Paris Ada …" is ambiguous
        rest = [word for word in first[1:] if not _CALENDAR.match(word)]
        if len(rest) == len(first) - 1 and len(parts) == 1:
            return start, []
        parts[0] = " ".join(rest) if len(rest) < len(first) - 1 else ""
    if _DOUBTED.match(group):
        return start, []
    found = [(names(f"by {part}") or ("",))[0] for part in parts if part]
    if not found or "" in found or any(name.lower() in _NOBODY for name in found):
        return start, []
    return start + max(0, group.find(found[0])), found


def _is_plain(before: str, ended: set[int]) -> bool:
    """Whether the text before a subject leaves the statement plain: it neither denies nor doubts it, and it is not the
    real subject."""
    if _UNSURE.search(_STATEMENT.split(before)[-1]):
        return False
    lead = _CLAUSE.sub("", before, count=1)
    start = before[: len(before) - len(lead)]
    if start.endswith(" and "):  # "the sister of Ada and Bob lives in …"; but "Ada lives in Rome and Bob …"
        last = len(start) - len(" and ")
        if last not in ended and not start[:last].endswith(",") and start[:last].rpartition(" ")[2][:1].isupper():
            return False
    return _LEAD.fullmatch(lead) is not None


def _predicate(sentence: str, at: int, many: bool) -> _Predicate | None:
    """The predicate that starts at `at`; None if there is none."""
    found = _ADVERBS.match(sentence, at)
    at = at if found is None else found.end()
    form = (_MANY if many else _ONE).match(sentence, at)
    if form is not None and form.lastgroup is not None:
        return _objects(VERBS[int(form.lastgroup[1:])], sentence, form.end())
    for pattern in (_KIN_IS, _ROLE_IS):
        match = pattern.match(sentence, at)
        if match is not None:
            return _Predicate(f"{match['role']} of", [match["of"]], match.end())
    if (match := _HAS.match(sentence, at)) is not None:
        return _Predicate(f"{match['role']} of", [match["what"]], match.end(), turned=True)
    if (match := _DONE.match(sentence, at)) is not None:
        return _Predicate(DONE_BY[match["done"]], [match["of"]], match.end(), turned=True)
    if (match := _IS_A.match(sentence, at)) is not None and not _NO_OBJECT.fullmatch(f"a {match['what']}"):
        return _Predicate("is a", [match["what"]], match.end())
    return None


def _objects(verb: Verb, sentence: str, at: int) -> _Predicate | None:
    phrase = _PREFERRED if verb.relation == "prefers" else _OBJECT
    match = (_NAMED if verb.named else phrase).match(sentence, at)
    if match is None:
        return None
    if verb.named:
        found = _BETWEEN.split(re.sub("^[Tt]he ", "", match.group()))
        if any(_CALENDAR.match(one) for one in found):
            return None
        return _Predicate(verb.relation, found, match.end())
    if _NO_OBJECT.fullmatch(match.group()):
        return None
    return _Predicate(
        verb.relation, [re.sub("^(?:the|an?|some) ", "", match.group(), flags=re.IGNORECASE)], match.end()
    )


def _kindred(sentence: str, speaker: str | None) -> Iterator[Link]:
    """Relations such as "Bob's sister is Ada", "Bob's sister Ada" and "my sister Ada"."""
    for match in _THEIRS.finditer(sentence):
        whose = speaker if match["of"] in ("My", "my") else (names(f"by {match['of'][:-2]}") or ("",))[0]
        name = match["who"]
        if match["is"] and (name.lower() in ADJECTIVES or not re.compile(_AFTER).match(sentence, match.end())):
            continue
        if whose and not _UNSURE.search(_STATEMENT.split(sentence[: match.start()])[-1]):
            yield Link(name, f"{match['role']} of", whose)
