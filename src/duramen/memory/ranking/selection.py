"""Records of a search: the request, its state, and the selection that is ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..index.audience_index import AudienceIndex
from ..index.columns import EPISODE
from ..index.index_entry import Vector
from ..index.workspace_embedder import Prefetch
from .measures import Floats, Measures, Spread
from .rank import DEFAULT, Chosen, Question, Weights


class SearchRequest(NamedTuple):
    """What to search for, and in which audiences (None: all). Times are in microseconds."""

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
    """Search what was known at this time."""
    weights: Weights = DEFAULT


class ActiveSearch(NamedTuple):
    """A running search: the request, the parsed question, its vector of length 1 (None: words only), the generation of
    vectors (0: none), the current time, how many memories had no vector at its start, and the first source's
    prefetch."""

    request: SearchRequest
    question: Question
    vector: Vector | None
    generation: int
    now: int
    waiting: int = 0
    prefetch: Prefetch | None = None


class Selection(NamedTuple):
    """What to rank.

    Without `chosen` and `measures`: everything in the indexes that the filters leave. With them, the indexes are made
    for this search and hold candidates and their neighbours. `chosen` marks the candidates. `measures` are the
    statistics of everything that is searched."""

    audiences: Sequence[AudienceIndex]
    chosen: Sequence[Chosen] | None = None
    measures: Measures | None = None
    cosines: tuple[Floats, Spread | None] | None = None
    """Cosines to use instead of those of the indexes' vectors (see `rank`)."""


class CandidateSource(Protocol):
    """Chooses candidates if there are too many memories to rank them all."""

    async def candidates(self, search: ActiveSearch) -> Selection | None:
        """Candidates that match every filter; None if this source cannot choose any: the next source is asked, and
        after the last one everything is ranked."""
        ...

    def prefetch(self, search: ActiveSearch) -> Prefetch | None:
        """Work that can start before the question has a vector; None if there is none."""
        ...

    def clear(self) -> None:
        """Drop all caches, because a subject was erased or the vectors changed."""
        ...


def filter_mask(audience: AudienceIndex, request: SearchRequest, now: int) -> Chosen:
    """Which memories of an index match the filters of a request."""
    at = now if request.at is None else request.at
    begins, ends = audience.column("begins"), audience.column("ends")
    chosen = audience.column("alive") & (audience.column("expires") > at)
    # A memory that does not hold at this time is not an answer. An episode always is.
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
