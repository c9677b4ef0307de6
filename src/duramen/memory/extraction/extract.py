"""Extracts the facts of a text that are worth remembering, with a model or with the patterns of `admission`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ModelFailed
from ...ports import Model
from ..injection import suspicions
from .admission import assess_sentences
from .entities import links
from .json_question import ask_json, share_of, text_of

KINDS = ("fact", "preference", "identity", "blocker", "reference")
_TASK = (
    "You extract facts that are worth remembering for weeks or longer from the text in `text`: about people, their "
    "preferences, decisions, things, places, dates. No small talk, no questions, nothing that only holds today, "
    'nothing that the text does not say. Answer with a JSON object {"facts": [...]}. Each fact is an object with '
    '"content": one short statement that can be understood by itself, with names instead of pronouns (`speaker`, if it '
    'is given, is the name of the person who speaks); "kind": one of ' + ", ".join(KINDS) + "; "
    '"key": what it is about if only one value can hold at a time, such as "home city of Ada", else null; '
    '"confidence": a number from 0 to 1; "quote": the words of the text that say it, copied exactly; "relations": a '
    'list of [subject, relation, object] between people, places and things that the content names, such as ["Ada", '
    '"manages", "Bo"], or []. If there is nothing, answer {"facts": []}.'
)
_PIECE = 6_000
"""How many characters of a text one question to the model contains."""
_TOKENS = 1_500
_MOST = 50
_LONGEST = 1_000
_LONGEST_NAME = 100
_SURE = 0.9
"""The confidence of what the patterns of `admission` find."""


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """A fact that a text states. It is not stored: call `remember` for that.

    - `key`: what it is about, if that has only one value at a time.
    - `quote`: the words of the text that state it.
    - `relations`: relations between names in its content.
    """

    content: str
    kind: str
    key: str | None
    confidence: float
    quote: str
    relations: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in a text or a model's answer that was skipped, and the reason."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Extraction:
    """The facts of a text, in its order, and what was skipped."""

    candidates: tuple[ExtractedFact, ...]
    skipped: tuple[Skipped, ...] = ()

    def __iter__(self) -> Iterator[ExtractedFact]:
        return iter(self.candidates)

    def __len__(self) -> int:
        return len(self.candidates)


async def extract(text: str, model: Model | None, speaker: str | None, policy: str) -> Extraction:
    """The facts of a text. Without a model, patterns find them. A fact that cannot be used is skipped with a reason.
    The policy "keep" accepts text that looks like instructions. Raises `ModelFailed` if the model gives no answer or no
    valid JSON."""
    if model is None:
        return _by_patterns(text, speaker)
    found: dict[tuple[str, str], ExtractedFact] = {}
    skipped: list[Skipped] = []
    for piece in _pieces(text):
        about = {"text": piece} if speaker is None else {"speaker": speaker, "text": piece}
        answer = await ask_json(model, _TASK, about, _TOKENS)
        facts = answer.get("facts") if isinstance(answer, dict) else answer
        if not isinstance(facts, list):
            raise ModelFailed(model.name, "its answer has no list of facts", hint="try a larger model")
        for fact in facts[:_MOST]:
            one = _checked(fact, piece, policy)
            if isinstance(one, Skipped):
                skipped.append(one)
            else:
                related, unrelated = _related(fact.get("relations"), one.content, policy)
                skipped += unrelated
                found.setdefault((one.kind, one.content.casefold()), replace(one, relations=related))
        skipped += [Skipped(_shown(fact), f"more than {_MOST} facts") for fact in facts[_MOST:]]
    return Extraction(tuple(found.values()), tuple(skipped))


def _by_patterns(text: str, speaker: str | None) -> Extraction:
    verdicts = assess_sentences(text, speaker) if speaker else assess_sentences(text)
    kept = [
        ExtractedFact(one.content, one.kind, one.key, _SURE, one.sentence, _stated(one.content))
        for one in verdicts
        if one.keep
    ]
    return Extraction(tuple(kept), tuple(Skipped(one.sentence, one.reason) for one in verdicts if not one.keep))


def _stated(content: str) -> tuple[tuple[str, str, str], ...]:
    """The relations that a fact states in plain English."""
    return _related([list(link) for link in links(content)], content, "keep")[0]


def _pieces(text: str) -> Sequence[str]:
    """A text in pieces of at most `_PIECE` characters, cut between paragraphs or sentences where possible."""
    found = []
    while len(text) > _PIECE:
        ends = (text.rfind(mark, _PIECE // 2, _PIECE) + len(mark) for mark in ("\n\n", "\n", ". "))
        cut = next((end for end in ends if end > _PIECE // 2), _PIECE)
        found.append(text[:cut])
        text = text[cut:]
    return [piece for piece in (*found, text) if piece.strip()]


def _checked(fact: Any, text: str, policy: str) -> ExtractedFact | Skipped:
    """A fact from the model's answer, or why it cannot be used."""
    if not isinstance(fact, dict):
        return Skipped(_shown(fact), "it is not an object")
    content, quote = text_of(fact.get("content"), _LONGEST), text_of(fact.get("quote"), _LONGEST)
    confidence, key = share_of(fact.get("confidence")), text_of(fact.get("key"), 200)
    if content is None:
        return Skipped(_shown(fact), "it has no content, or one that is too long")
    if fact.get("kind") not in KINDS:
        return Skipped(content, f"{_shown(fact.get('kind'))} is not a kind")
    if confidence is None:
        return Skipped(content, "its confidence is not a number from 0 to 1")
    if fact.get("key") is not None and key is None:
        return Skipped(content, "its key is not a text, or is too long")
    if quote is None or quote.casefold() not in " ".join(text.split()).casefold():
        return Skipped(content, "its quote is not in the text")
    why = suspicions(f"{content}\n{key or ''}")
    if why and policy != "keep":
        return Skipped(content, f"it looks like instructions to a model: {'; '.join(why)}")
    return ExtractedFact(content, fact["kind"], key, confidence, quote)


def _related(given: Any, content: str, policy: str) -> tuple[tuple[tuple[str, str, str], ...], list[Skipped]]:
    """The relations of a model's answer that are between names in the fact, and the ones that were skipped."""
    found: dict[tuple[str, str, str], None] = {}
    skipped = []
    for one in given[:_MOST] if isinstance(given, list) else ():
        named = tuple(text_of(part, _LONGEST_NAME) for part in one) if isinstance(one, list) else ()
        if len(named) != 3 or None in named:
            skipped.append(Skipped(_shown(one), "it is not a relation of subject, relation and object"))
        elif any(str(name).casefold() not in content.casefold() for name in (named[0], named[2])):
            skipped.append(Skipped(_shown(one), "it has a name that is not in the fact"))
        elif policy != "keep" and suspicions(" ".join(map(str, named))):
            skipped.append(Skipped(_shown(one), "it looks like instructions to a model"))
        else:
            found[str(named[0]), str(named[1]), str(named[2])] = None
    return tuple(found), skipped


def _shown(value: object) -> str:
    return repr(value)[:200]
