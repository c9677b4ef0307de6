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
    """Something that was remembered.

    `valid_from` and `valid_to` say when it holds in the world; `recorded` and `ended` when it was known here. One that
    ended has a successor, or was stated again. `source` is its event, as ``"session#position"``. `times` counts how
    often it was stated, `confirmed` is when last. `recalled` counts how often it was recalled, `recalled_at` is when
    last. These four are as of now, even in what `as_of` returns.
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
    """The relations that were given with it. `neighbours` finds more in its text."""
    recalled: int = 0
    recalled_at: dt.datetime | None = None

    @property
    def current(self) -> bool:
        """Whether it is known now, not history."""
        return self.ended is None


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that a search found.

    `score` orders the hits of one search and cannot be compared with another's. `likeness` can: from 0 to 1, how close
    its meaning is, or how many of the question's words it has. `parts` add up to the score. `note` says that it is
    stale and what to do before using it.
    """

    memory: Memory
    score: float
    likeness: float
    parts: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a search found, best first. `waiting` counts memories without a vector, which are found by words alone.
    `missing` says what the search had to do without."""

    hits: tuple[Hit, ...]
    waiting: int
    missing: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


class ForgetReport(NamedTuple):
    """What forgetting removed: catalog rows (one for each time it was stated), texts of events, indexed words and
    vectors, and journaled decisions about it. Conversations that mention it and their checkpoints are not memories:
    `erase` removes those."""

    memories: int
    """Different memories."""
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
