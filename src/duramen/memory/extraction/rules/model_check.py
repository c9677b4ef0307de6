"""Checks the candidates that a model found in turns.

A model finds more than the rules and is trusted less. A candidate needs the user's own words as evidence, may contain
only names and numbers that the user said, and is rejected for the same reasons as any other sentence. Candidates about
the user are proposed to the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...injection import suspicions
from ..admission import PROFILE_FIELDS, assess_sentences
from ..json_question import share_of, text_of
from .facts import PAST, REQUEST, WISH, disqualifier, facts, is_retracted, rejection
from .recipes import reported_outcome
from .sentences import own_words, sentences, strip_lead
from .turns import FACT, PROCEDURE, Finding, TurnRecord

PROFILE = "profile"
ABOUT_THE_USER = ("preference", "identity", PROFILE)
KINDS = (FACT, "reference", PROCEDURE, *ABOUT_THE_USER)
FIELDS = ("name", *dict.fromkeys(PROFILE_FIELDS.values()))
MOST = 30
"""How many candidates of one answer are checked. The others are ignored."""
_LONGEST, _LONGEST_NAME, _STEPS = 500, 200, 30
_MIN_CONFIDENCE = 0.5
_MIN_SAID_SHARE = 0.5
"""The share of a fact's longer words that the user must have said."""
_ALLOWED_ABOUT_USER = (WISH, REQUEST, PAST)
"""Reasons that do not reject a sentence about the user, such as "Please never write to me on Sundays". The user decides
about these."""
_WORD = re.compile(r"\w+", re.UNICODE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_CAPITAL = re.compile(r"\b[A-Z\u00c0-\u00de]\w+")
_NOT = re.compile(r"\b(?:not|no|never|none|nothing|nobody|without|cannot)\b|n['\u2019]t\b", re.IGNORECASE)
_NO_NAMES = frozenset(
    {"the", "user", "an", "all", "each", "every", "if", "when", "our", "this", "in", "on", "at", "for"}
)
_STEM = 5


class CheckedCandidate(NamedTuple):
    """The finding about a candidate. If it is kept and `proposed`, the user decides about it; otherwise it is
    stored."""

    finding: Finding
    key: str | None
    confidence: float
    proposed: bool


class _Evidence(NamedTuple):
    """Where the user said the words of a candidate: the turn and its place, the sentence, and the sentences of the turn
    from there on."""

    turn: TurnRecord
    place: int
    sentence: str
    later: tuple[str, ...]


def parse_candidates(answer: Any) -> list[dict[str, Any]] | None:
    """The candidates of an answer as plain data, not yet checked; None if the answer has no list of candidates."""
    stated = answer.get("candidates") if isinstance(answer, dict) else answer
    if not isinstance(stated, list):
        return None
    return [_plain_candidate(one) for one in stated[:MOST]]


def _plain_candidate(one: Any) -> dict[str, Any]:
    given: Mapping[str, Any] = one if isinstance(one, dict) else {}
    steps = given.get("steps")
    found = {
        "kind": text_of(given.get("kind"), 40),
        "content": text_of(given.get("content"), _LONGEST),
        "quote": text_of(given.get("quote"), _LONGEST),
        "key": text_of(given.get("key"), _LONGEST_NAME),
        "confidence": share_of(given.get("confidence")),
        "steps": [text_of(step, _LONGEST) or "" for step in steps[:_STEPS]] if isinstance(steps, list) else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def check_candidate(one: Mapping[str, Any], turns: Sequence[TurnRecord], policy: str) -> CheckedCandidate:
    """The decision about a candidate. The policy "keep" accepts text that looks like instructions."""
    kind, content, quote = (str(one.get(name, "")) for name in ("kind", "content", "quote"))
    found = _find_evidence(quote, turns, kind) if quote else None
    reason = _malformation(one)
    steps = tuple(one.get("steps", ())) if kind == PROCEDURE else ()
    if not reason and found is None:
        reason = _why_no_evidence(quote, turns)
    proposed, worked = kind in ABOUT_THE_USER, None
    if not reason and found is not None:
        proposed = kind != PROCEDURE and (proposed or disqualifier(found.sentence) == WISH)
        worked = reported_outcome("user", found.turn, turns[found.place + 1 :]) if kind == PROCEDURE else None
        reason = (
            _suspicious(one, found, policy) or _invented(one, turns) or _rejection(one, found, turns, proposed, worked)
        )
    place = turns[-1].position if found is None else found.turn.position
    why = reason or (
        "said by the user about themselves, found by a model" if proposed else "stated by the user, found by a model"
    )
    evidence = quote if found is None else found.sentence
    made = Finding(
        not reason, kind or "?", content or "?", why, evidence, place, content if steps else "", steps, worked
    )
    return CheckedCandidate(made, one.get("key"), float(one.get("confidence", 0.0)), proposed)


def _malformation(one: Mapping[str, Any]) -> str:
    if one.get("kind") == "blocker":
        return "only the rules find blockers"
    if one.get("kind") not in KINDS:
        return "its kind cannot be kept"
    if "content" not in one:
        return "it has no content, or one that is too long"
    if "quote" not in one:
        return "it has no evidence"
    if "confidence" not in one:
        return "its confidence is not a number from 0 to 1"
    if one["confidence"] < _MIN_CONFIDENCE:
        return "the model is not sure of it"
    if one["kind"] == PROFILE and one.get("key") not in FIELDS:
        return "the profile does not have this field"
    return ""


def _find_evidence(quote: str, turns: Sequence[TurnRecord], kind: str) -> _Evidence | None:
    """Where the user said these words, the last time if more than once; None if nowhere."""
    wanted = quote.casefold().strip(" .!")
    for index in range(len(turns) - 1, -1, -1):
        stated = [" ".join(sentence.split()) for sentence in sentences(own_words(turns[index].user))]
        for at, sentence in enumerate(stated):
            if wanted and wanted in sentence.casefold():
                return _Evidence(turns[index], index, sentence, tuple(stated[at:]))
        whole = " ".join(stated)
        if wanted and wanted in whole.casefold():  # over several sentences, as for a procedure
            return _Evidence(turns[index], index, whole if kind == PROCEDURE else quote, tuple(stated))
    return None


def _why_no_evidence(quote: str, turns: Sequence[TurnRecord]) -> str:
    wanted = quote.casefold()
    if any(wanted in " ".join(turn.user.split()).casefold() for turn in turns):
        return "it was only quoted or pasted"
    others = ("\n".join([turn.assistant, *(call.output for call in turn.calls)]) for turn in turns)
    if any(wanted in " ".join(text.split()).casefold() for text in others):
        return "the user did not say it"
    return "its evidence is not in the turns"


def _suspicious(one: Mapping[str, Any], found: _Evidence, policy: str) -> str:
    if policy == "keep":
        return ""
    stated = "\n".join([str(one["content"]), str(one.get("key", "")), *one.get("steps", ())])
    if suspicions(stated):
        return "it looks like instructions to a model"
    return "the message looks like instructions to the model" if suspicions(found.turn.user) else ""


def _invented(one: Mapping[str, Any], turns: Sequence[TurnRecord]) -> str:
    """Why a candidate counts as invented: a number or name in it that the user did not say. Empty if there is none."""
    spoken = " ".join([turn.user for turn in turns])
    stated = " ".join([str(one["content"]), *one.get("steps", ())])
    numbers = set(_NUMBER.findall(stated)) - set(_NUMBER.findall(spoken))
    if numbers:
        return f"it has the number {min(numbers)[:80]}, which the user did not say"
    stems = _stems(spoken)
    for name in _CAPITAL.findall(stated):
        if name.casefold() not in _NO_NAMES and name.casefold()[:_STEM] not in stems:
            return f"it has the name {name[:80]}, which the user did not say"
    return ""


def _rejection(
    one: Mapping[str, Any], found: _Evidence, turns: Sequence[TurnRecord], proposed: bool, worked: bool | None
) -> str:
    """Why a candidate with evidence is not kept; empty if it is."""
    if is_retracted(found.later):
        return "retracted in the same message"
    if one["kind"] == PROCEDURE:
        return _procedure_rejection(one, found, worked)
    if proposed:
        return _proposal_rejection(one, found)
    content, sentence = one["content"], strip_lead(found.sentence)
    reason = rejection(content) or disqualifier(sentence)
    if reason:
        return reason
    if any(rule.keep and rule.evidence == found.sentence for rule in facts(found.turn)):
        return "the rules kept it"
    if bool(_NOT.search(content)) != bool(_NOT.search(sentence)):
        return "it is negated and its evidence is not, or the reverse"
    words = [word for word in _WORD.findall(content.casefold()) if len(word) >= _STEM - 1]
    stems = _stems(" ".join(turn.user for turn in turns))
    if sum(word[:_STEM] in stems for word in words) < _MIN_SAID_SHARE * len(words):
        return "it says more than the user said"
    return ""


def _procedure_rejection(one: Mapping[str, Any], found: _Evidence, worked: bool | None) -> str:
    steps = one.get("steps", [])
    if len(steps) < 2 or not all(steps):
        return "fewer than two steps"
    stems = _stems(" ".join([found.turn.user, *(call.command or "" for call in found.turn.calls)]))
    for step in steps:
        words = [word for word in _WORD.findall(step.casefold()) if len(word) >= _STEM - 1]
        if sum(word[:_STEM] in stems for word in words) < _MIN_SAID_SHARE * len(words):
            return "it has a step that the user did not describe"
    return "no success yet" if worked is None else "" if worked else "it did not work"


def _proposal_rejection(one: Mapping[str, Any], found: _Evidence) -> str:
    reason = disqualifier(found.sentence, _ALLOWED_ABOUT_USER) or disqualifier(one["content"], _ALLOWED_ABOUT_USER)
    if reason:
        return reason
    for verdict in assess_sentences(found.turn.user):
        if verdict.keep and " ".join(verdict.sentence.split()) in (found.sentence, one["quote"]):
            return "it is already proposed"
    if one["kind"] == PROFILE and one["content"].casefold() not in found.sentence.casefold():
        return "its evidence does not say it"
    return ""


def _stems(text: str) -> frozenset[str]:
    return frozenset(word[:_STEM] for word in _WORD.findall(text.casefold()))
