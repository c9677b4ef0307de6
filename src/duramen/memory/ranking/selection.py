"""What is searched, and what of it is ranked: everything that the filters leave, or the candidates of a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..index.audience_index import AudienceIndex
from ..index.columns import EPISODE
from ..index.index_entry import Vector
from .measures import Floats, Measures, Spread
from .rank import DEFAULT, Chosen, Question, Weights


class SearchRequest(NamedTuple):
    """What to search for, and where. `audiences` None: in all. Times are in microseconds."""

    query: str
    audiences: tuple[bytes, ...] | None
    limit: int = 10
    kinds: frozenset[str] | None = None
    metadata: Mapping[str, Any] | None = None
    since: int | None = None
    until: int | None = None
    threshold: float = 0.0
    diversity: float = 0.0
    at: int | None = None
    """As it was known then."""
    weights: Weights = DEFAULT


class Prefetch(Protocol):
    """What a source does of a search before it is asked for candidates, beside the making of the question's vector."""

    async def during_embedding(self) -> None:
        """What needs no vector, while it is made."""
        ...

    def after_embedding(self, vector: Vector) -> None:
        """What needs one, on the thread that has made it. Blocks. `meanwhile` may still be under way."""
        ...


class ActiveSearch(NamedTuple):
    """A search under way: what is wanted, the question as it is read, its vector of length 1 (None: words alone), the
    generation of vectors that is searched (0: none), the time now, how many memories had no vector when it began, and
    what the first source has done ahead."""

    request: SearchRequest
    question: Question
    vector: Vector | None
    generation: int
    now: int
    waiting: int = 0
    prefetch: Prefetch | None = None


class Selection(NamedTuple):
    """What is ranked. Without `chosen` and `measures`: everything in the audiences that the filters leave. With them the
    audiences hold candidates and what stands beside those (the memories before and after each, as far as they count), made
    for this search; `chosen` are the candidates, and `measures` says how things stand in everything that is
    searched."""

    audiences: Sequence[AudienceIndex]
    chosen: Sequence[Chosen] | None = None
    measures: Measures | None = None
    cosines: tuple[Floats, Spread | None] | None = None
    """In place of those of the audiences' vectors, as `rank` takes them."""


class CandidateSource(Protocol):
    """Chooses candidates where there is too much to rank all of it."""

    async def candidates(self, search: ActiveSearch) -> Selection | None:
        """Candidates, for which every filter holds; None if all of it can be ranked, or another source must tell."""
        ...

    def prefetch(self, search: ActiveSearch) -> Prefetch | None:
        """What can be done of a search whose question has no vector yet, if there is anything."""
        ...

    def clear(self) -> None:
        """Keep nothing of what was looked at: somebody was erased."""
        ...


def filter_mask(audience: AudienceIndex, request: SearchRequest, now: int) -> Chosen:
    """Which memories of an audience are searched."""
    at = now if request.at is None else request.at
    begins, ends = audience.column("begins"), audience.column("ends")
    chosen = audience.column("alive") & (audience.column("expires") > at)
    # What holds no longer, or not yet, is no answer; what happened is.
    chosen &= (audience.column("kind") == audience.kinds.find(EPISODE)) | (
        (ends > at) & (audience.column("opens") <= at)
    )
    if request.kinds is not None:
        kinds = [number for kind in request.kinds if (number := audience.kinds.find(kind)) >= 0]
        chosen &= np.isin(audience.column("kind"), kinds)
    if request.since is not None:
        chosen &= begins >= request.since
    if request.until is not None:
        chosen &= begins <= request.until
    if request.metadata:
        for place in np.nonzero(chosen)[0].tolist():
            held = audience.metadata(place)
            chosen[place] = all(held.get(name, _ABSENT) == value for name, value in request.metadata.items())
    return chosen


_ABSENT = object()
