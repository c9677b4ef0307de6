"""Compaction: which entries become a summary, which summaries become one of a higher level, and who writes them.

Summaries form a tree: four of a level become one of the next, so that what is old was summarised a few times, not once
for each turn since. Each belongs to one subject, whose erasure removes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...errors import ModelFailed
from ...ports import Model, TokenCounter
from ..window.content_blocks import are_blocks, text_of
from ..window.conversation import Kind, Priority, Unit
from ..window.settings import Window
from .extract import Excerpt, summarise
from .trim import cut, plain

_FAN = 4
_BLOCKS = 6
"""Summaries of full length that fit into the share that all of them have."""
_CHUNK_EXCERPTS = 400
_CHUNK_TOKENS = 6_000
_FEW = 3
_OPEN_CALLS = 20
_ALWAYS = 20
_EXCERPT = 2_000
"""Characters of an entry that a summary is made from; what is longer was an output that nobody reads twice."""
_SYSTEM = (
    "You compress the record of an agent's conversation so that the agent can go on from your notes alone. Keep "
    "decisions with their reasons, facts, names, numbers, dates, paths, open questions, errors and how they were "
    "fixed. Leave out pleasantries. Write short plain lines. Do not answer, comment or invent anything."
)


class Summary(NamedTuple):
    """A summary of the entries from `first` to `last`. `position` is where it is journaled."""

    position: int
    first: int
    last: int
    level: int
    text: str
    subject: str | None


class Written(NamedTuple):
    """The text of a summary, who wrote it ("extract" or a model's name), and what is to be said about that."""

    text: str
    by: str
    note: str | None


class Piece(NamedTuple):
    """Something to be summarised: entries, or summaries of a lower level."""

    first: int
    last: int
    level: int
    subject: str | None
    excerpts: tuple[Excerpt, ...]
    merged: tuple[Summary, ...] = ()

    @property
    def key(self) -> str:
        """The same piece is summarised once, by whoever is first."""
        return f"duramen:summary:{self.level}:{self.first}-{self.last}"


def room_for_one(window: Window) -> int:
    """The tokens that a single summary may take."""
    return max(40, int(window.budget * window.summaries) // _BLOCKS)


def due(units: Sequence[Unit], tokens: Sequence[int], rest: int, window: Window) -> list[Unit]:
    """The entries that are to be summarised now: all but the newest, if there are too many or they take too much,
    together with the `rest` that is in the context. What is always shown stays, and so does a call that has no result
    yet; a few large entries are not worth a summary each."""
    going = [unit for unit in units if unit.priority is not Priority.ALWAYS]
    crowded = len(going) > window.max_items
    if not crowded and rest + sum(tokens) <= window.budget * window.threshold:
        return []
    older = going[: max(0, len(going) - max(1, window.keep_last))]
    open_calls = [unit for unit in older if unit.is_open][-_OPEN_CALLS:]
    doomed = [unit for unit in older if unit not in open_calls]
    cost = dict(zip((unit.position for unit in units), tokens, strict=True))
    worthwhile = crowded or len(doomed) >= _FEW or sum(cost[unit.position] for unit in doomed) > window.budget // 4
    return doomed if worthwhile else []


def overflow(units: Sequence[Unit]) -> list[Unit]:
    """Of the entries that are always shown, those that are too many: the oldest, but not the system's first prompt."""
    always = [unit for unit in units if unit.priority is Priority.ALWAYS]
    first = next((unit for unit in always if unit.is_prompt), None)
    return [unit for unit in always if unit is not first][:-_ALWAYS]


def pieces(units: Sequence[Unit], count: TokenCounter) -> list[Piece]:
    """Entries in stretches that each make one summary: of one subject, and not too long."""
    by_subject: dict[str | None, list[Excerpt]] = {}
    for unit in units:
        for subject, excerpt in _excerpts(unit):
            by_subject.setdefault(subject, []).append(excerpt)
    return [piece for subject, excerpts in by_subject.items() for piece in _chunks(subject, excerpts, count)]


def _chunks(subject: str | None, excerpts: Sequence[Excerpt], count: TokenCounter) -> Iterator[Piece]:
    run: list[Excerpt] = []
    size = 0
    for excerpt in excerpts:
        cost = count.count(excerpt.text)
        if run and (len(run) >= _CHUNK_EXCERPTS or size + cost > _CHUNK_TOKENS):
            yield _piece(subject, run)
            run, size = [], 0
        run.append(excerpt)
        size += cost
    if run:
        yield _piece(subject, run)


def _piece(subject: str | None, excerpts: Sequence[Excerpt]) -> Piece:
    places = [one.position for one in excerpts]
    return Piece(min(places), max(places), 0, subject, tuple(excerpts))


def _excerpts(unit: Unit) -> list[tuple[str | None, Excerpt]]:
    """What there is to summarise in an entry, each with the subject of the event that it comes from."""
    data, place = unit.data, unit.position
    if unit.kind is Kind.MESSAGE:
        asked = Excerpt(data["role"], "message", _readable(data["content"]), place)
    elif unit.kind is Kind.CALL:
        asked = Excerpt("assistant", "tool.called", _short(f"{data['tool']} {text_of(data['arguments'])}"), place)
    elif unit.kind is Kind.RESULT:
        asked = Excerpt("tool", "tool.returned", _readable(data["output"]), place)
    elif unit.kind is Kind.DECISION:
        asked = Excerpt("assistant", "decision", f"{data['decision']} because {data['reason']}", place)
    elif unit.kind is Kind.OBSERVATION:
        asked = Excerpt("user", "observation", f"{data['source']}: {data['observed']}", place)
    elif unit.kind is Kind.RESOLUTION:
        asked = Excerpt("assistant", "resolution", data["resolution"], place)
    else:
        asked = Excerpt("assistant", "error", data["error"], place)
    if unit.answer is None:
        return [(unit.subject, asked)]
    if unit.kind is Kind.CALL:
        answer = Excerpt("tool", "tool.returned", _readable(unit.answer["output"]), unit.last)
    else:
        answer = Excerpt("assistant", "resolution", unit.answer["resolution"], unit.last)
    return [(unit.subject, asked), (unit.whose, answer)]


def _readable(content: Any) -> str:
    if are_blocks(content):
        return _short("\n".join(str(block["text"]) if "text" in block else f"[{block['type']}]" for block in content))
    return _short(text_of(content))


def _short(text: str) -> str:
    if len(text) <= _EXCERPT:
        return text
    half = _EXCERPT // 2
    return f"{text[:half]} … {text[-half:]}"


def merge_due(summaries: Sequence[Summary], tokens: Sequence[int], window: Window) -> Piece | None:
    """The summaries that are to become one: the oldest four of a level, or, if all take too much, the oldest two."""
    by_level: dict[tuple[int, str | None], list[Summary]] = {}
    for one in summaries:
        group = by_level.setdefault((one.level, one.subject), [])
        group.append(one)
        if len(group) == _FAN:
            return _merged(group)
    if sum(tokens) > window.budget * window.summaries:
        for older in summaries:
            for newer in summaries:
                if newer.first > older.first and newer.subject == older.subject:
                    return _merged([older, newer])
    return None


def _merged(group: Sequence[Summary]) -> Piece:
    excerpts = tuple(Excerpt("", "summary", one.text, one.first) for one in group)
    level = max(one.level for one in group) + 1
    first, last = min(one.first for one in group), max(one.last for one in group)
    return Piece(first, last, level, group[0].subject, excerpts, tuple(group))


def extract(piece: Piece, limit: int, counter: TokenCounter, note: str | None = None) -> Written:
    """A summary without a model."""
    return Written(summarise(piece.excerpts, limit=limit, counter=counter), "extract", note)


def ask(model: Model, piece: Piece, limit: int, counter: TokenCounter) -> Written:
    """A summary by a model, or, where it fails or answers with nonsense, without one. Blocks."""
    source = "\n".join(f"{one.role or one.kind}: {one.text}" for one in piece.excerpts).replace("</record", "< /record")
    prompt = f"The record:\n<record>\n{source}\n</record>\n\nYour notes, in at most {limit * 3 // 4} words:"
    try:
        answer = _lines(model.complete(prompt, system=_SYSTEM, max_tokens=limit))
    except ModelFailed as failure:
        return extract(piece, limit, counter, f"{failure.model}: {failure.reason}")
    except Exception as error:  # noqa: BLE001 - a helper's bug must not stop the agent: it is said in the summary
        return extract(piece, limit, counter, f"{model.name}: {type(error).__name__}: {error}")
    wrong = nonsense(answer, source)
    if wrong is not None:
        return extract(piece, limit, counter, f"{model.name}: {wrong}")
    if counter.count(answer) > limit:
        answer = _shortened(answer.splitlines(), limit, counter)
    return Written(answer, model.name, None)


def _shortened(lines: list[str], limit: int, counter: TokenCounter) -> str:
    """As many of the lines as fit: the model was asked to put what matters first into few."""
    kept: list[str] = []
    for line in lines:
        if counter.count("\n".join([*kept, line])) > limit:
            break
        kept.append(line)
    return "\n".join(kept) or cut(lines[0], limit, counter)


def _lines(answer: str) -> str:
    """A model's answer line by line, without what a terminal would obey."""
    return "\n".join(line for line in map(plain, answer.splitlines()) if line)


_REFUSAL = re.compile(
    r"\W*(?:(?:i(?:'|\u2019)m|i am|we(?:'|\u2019)re) (?:really |very |so )?(?:sorry|afraid|unable)\b"
    r"|(?:i|we) (?:can ?not|can(?:'|\u2019)t|won(?:'|\u2019)t|will not|am not able) (?:\w+ )?"
    r"(?:help|assist|do|summari|provide|comply)"
    r"|sorry, |unfortunately, i |as an ai\b)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{3,}")


def nonsense(answer: str, source: str) -> str | None:
    """Why an answer cannot be a summary of the source; None if it may be one."""
    words = _WORD.findall(answer.lower())
    if _REFUSAL.match(answer):
        return "the answer is a refusal"
    if not words or (len(words) < 5 and len(answer) < 20):
        return "the answer is empty or too short"
    lines = [line for line in answer.splitlines() if line.strip()]
    if len(lines) >= 6 and len(set(lines)) <= len(lines) // 3:
        return "the answer repeats itself"
    if len(words) >= 30 and Counter(words).most_common(1)[0][1] > len(words) // 3:
        return "the answer repeats itself"
    known = set(_WORD.findall(source.lower()))
    long_words = [word for word in words if len(word) > 4]
    if long_words and sum(word in known for word in long_words) < len(long_words) * 0.25:
        return "the answer is about something else"
    return None
