"""Finds what memories state about a name: relations, and names that are mentioned together with it.

Relations are given with a memory, or read from its text. There is no separate graph: the memories that contain the name
are found in the indexes and read from the store. So the result is always current, and a forgotten memory has no
relations.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..catalog.records import Memory
from ..extraction.entities import Link, entities, named_speaker
from ..extraction.words import terms
from ..index.index_entry import READ_UPTO
from .search import Search

WITH = "with"
"""The relation of names that are mentioned together, if no other relation is stated."""
_PAGE = 100
_MOST = 2_000
"""How many memories are read for a name at most, newest first. A name may be a common word."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation that a memory states, such as "Ada", "lives in", "Paris". The relation ``"with"`` means that the
    memory mentions both names. `memory` is the source. `dates` are the days that it names, each as first and last
    day."""

    subject: str
    relation: str
    object: str
    memory: Memory
    dates: tuple[tuple[dt.date, dt.date], ...] = ()


async def neighbours(search: Search, name: str, audiences: tuple[bytes, ...] | None, limit: int) -> list[Relation]:
    """The relations of a name, newest first, each once with its newest source."""
    found: dict[tuple[str, str, str], Relation] = {}
    numbers = await search.mentioning(name, audiences) if terms(name) else []
    for start in range(0, min(len(numbers), _MOST), _PAGE):
        for memory in await search.read(numbers[start : start + _PAGE]):
            for one in related(memory, name):
                found.setdefault((one.subject.casefold(), one.relation, one.object.casefold()), one)
        if len(found) >= limit:
            break
    return list(found.values())[:limit]


def related(memory: Memory, name: str) -> Iterator[Relation]:
    """The relations of a name in one memory."""
    text = f"{memory.title}.\n{memory.content}" if memory.title else memory.content
    about = entities(text[:READ_UPTO], memory.valid_from.date(), memory.speaker)
    dates = tuple((span.start, span.end) for span in about.dates)
    wanted = terms(name)
    related_names: set[str] = set()
    for link in dict.fromkeys((*map(Link._make, memory.relations), *about.links)):
        if _is(link.subject, wanted) or _is(link.object, wanted):
            related_names |= {link.subject.casefold(), link.object.casefold()}
            yield Relation(*link, memory, dates)
    speaker = named_speaker(memory.speaker)
    mentioned = tuple(dict.fromkeys((*about.names, *about.titles, *((speaker,) if speaker else ()))))
    own = next((one for one in mentioned if _is(one, wanted)), None)
    for other in mentioned if own is not None else ():
        if not _is(other, wanted) and other.casefold() not in related_names:
            yield Relation(str(own), WITH, other, memory, dates)


def _is(text: str, wanted: Sequence[str]) -> bool:
    """Whether a text contains the words of a name, one after the other."""
    words, size = terms(text), len(wanted)
    return any(words[at : at + size] == list(wanted) for at in range(len(words) - size + 1))
