"""Memories and search results as users see them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...journal.events import moment
from ...ports import MemoryRow


@dataclass(frozen=True, slots=True)
class Memory:
    """A stored memory.

    - `valid_from`, `valid_to`: when it holds in the world.
    - `recorded`, `ended`: when this workspace learned it, and when it became history. A memory ends when it is replaced
      (by `successor`), stated again, or retired.
    - `source`: its event, as ``"session#position"``.
    - `times`, `confirmed`: how often it was stated, and when last.
    - `recalled`, `recalled_at`: how often it was recalled, and when last.

    The last four are current values, even in the results of `as_of`.
    """

    id: str
    content: str
    kind: str
    key: str | None
    title: str | None
    speaker: str | None
    metadata: Mapping[str, Any]
    scope: str
    subject: str | None
    importance: float
    confidence: float
    valid_from: dt.datetime
    valid_to: dt.datetime | None
    recorded: dt.datetime
    confirmed: dt.datetime
    times: int
    expires: dt.datetime | None
    ended: dt.datetime | None
    successor: str | None
    source: str
    relations: tuple[tuple[str, str, str], ...] = ()
    """The relations that the caller gave. `neighbours` finds more in the text."""
    recalled: int = 0
    recalled_at: dt.datetime | None = None

    @property
    def current(self) -> bool:
        """Whether it has not ended."""
        return self.ended is None


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that a search found.

    - `score`: orders the hits of one search. Scores of different searches cannot be compared.
    - `likeness`: from 0 to 1, how close its meaning is, or the share of the question's words that it has. It can be
      compared between searches.
    - `parts`: the parts that add up to the score.
    - `note`: if the memory is stale, says so and what to do before using it.
    """

    memory: Memory
    score: float
    likeness: float
    parts: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Recalled:
    """The hits of a search, best first. `waiting` counts memories without a vector: only their words are searched.
    `missing` says what the search could not use, such as meaning without an embedder."""

    hits: tuple[Hit, ...]
    waiting: int
    missing: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


class ForgetReport(NamedTuple):
    """What `forget` removed: catalog rows (one for each time a memory was stated), texts of events, indexed words,
    vectors, and journaled decisions about the memory. Conversations that mention it and their checkpoints are not
    memories: `erase` removes those."""

    memories: int
    """How many different memories."""
    rows: int
    payloads: int
    words: int
    vectors: int
    decisions: int


def _maybe(time: int | None) -> dt.datetime | None:
    return None if time is None else moment(time)


_SCOPES = {b"s": "subject", b"t": "session", b"": "workspace"}


def memory_of(row: MemoryRow, data: Mapping[str, Any], subject: str | None) -> Memory:
    """A memory from its row and the data of its event."""
    return Memory(
        id=row.id,
        content=data["content"],
        kind=row.kind,
        key=row.key,
        title=data.get("title"),
        speaker=data.get("speaker"),
        metadata=data.get("metadata") or {},
        scope=_SCOPES[row.audience[:1]],
        subject=subject,
        importance=row.importance,
        confidence=row.confidence,
        valid_from=moment(row.begins),
        valid_to=_maybe(row.ends),
        recorded=moment(row.recorded),
        confirmed=moment(row.confirmed),
        times=row.times,
        expires=_maybe(row.expires),
        ended=_maybe(row.closed),
        successor=row.successor,
        source=f"{row.session}#{row.position}",
        relations=tuple((one[0], one[1], one[2]) for one in data.get("relations") or ()),
        recalled=row.recalled,
        recalled_at=moment(row.recalled_at) if row.recalled else None,
    )
