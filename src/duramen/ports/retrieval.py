"""Search inside a store: how a store that can search by itself is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .memories import Change, SearchFields


class RetrievalQuery(NamedTuple):
    """A request for candidates, by vector code, by words, or by both. Every filter applies to all candidates."""

    generation: int
    audiences: tuple[bytes, ...] | None
    """Filter: the audiences to search; None for all."""
    now: int
    """Filter: the memory holds at this time."""
    code: bytes | None
    """The code of the question's vector; None to skip the search by vector."""
    vector_limit: int
    """How many candidates to return by vector: those whose codes are nearest."""
    terms: tuple[int, ...]
    """All terms of the question."""
    term_weights: tuple[float, ...]
    """What each term counts."""
    lookup_terms: tuple[int, ...]
    """Which terms to look up, as places in `terms`: the rare ones. Empty to skip the search by words."""
    require_all: bool
    """A candidate by words has all of `lookup_terms`, not only one of them."""
    scan_limit: int
    """How many memories to score by words at most."""
    word_limit: int
    """How many candidates to return by words: the best of those that were scored."""
    mean_length: float
    """The mean length of a text."""
    corpus_size: int
    """About how many memories are searched."""
    kinds: tuple[str, ...] | None = None
    """Filter: the memory is of one of these kinds."""
    since: int | None = None
    """Filter: it begins at or after this time."""
    until: int | None = None
    """Filter: it begins at or before this time."""
    metadata: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Filter: values of its metadata, each as the JSON forms that equal it."""
    unindexed_limit: int = 200
    """How many memories without an index entry to return as well, newest first. 0 if all memories have one."""


class Candidate(NamedTuple):
    """A memory that may be an answer, with its vector as it is stored. `mask` has a bit for each term that it has."""

    audience: bytes
    number: int
    vector: bytes | None
    mask: int = 0


class RetrievalResult(NamedTuple):
    """The candidates that were found by vector and by words, and memories without an index entry. `mask_counts` counts
    the memories that were scored by words, by the terms that they have."""

    by_vector: list[Candidate]
    by_words: list[Candidate]
    unindexed: list[Candidate]
    mask_counts: dict[int, int]


class SampledMemory(NamedTuple):
    """A randomly chosen memory: its index entry, its kind and when it holds. Only an episode has a session. `opens` is
    when it begins, if that is after it was recorded."""

    audience: bytes
    number: int
    kind: str
    session: str | None
    position: int | None
    begins: int
    opens: int | None
    ends: int | None
    expires: int | None
    words: bytes
    vector: bytes | None


class CorpusSample(NamedTuple):
    """The approximate number of memories searched, a random sample of them, and the mean number of episodes in a
    session. All of it is an estimate, so the sample may be returned without checking its checksums."""

    size: int
    memories: list[SampledMemory]
    episodes_per_session: float


class Retriever(Protocol):
    """Searches memories inside a store. A store that cannot do so has None in its place.

    It returns current memories of one workspace only. The caller must expect that some are deleted a moment later.
    A memory that gets its index entry during a search is found by vector or as unindexed. The retriever cannot read
    what is sealed: it never searches audiences that hold sealed memories.
    """

    async def sample_corpus(
        self, workspace: str, generation: int, audiences: Sequence[bytes] | None, least: int, most: int
    ) -> CorpusSample | None:
        """Estimate what is searched in audiences (None: in all), from a sample of about `most` memories. None if there
        are not more than `least`, or they cannot be searched here: some are sealed, or not all are ready."""
        ...

    async def retrieve(self, workspace: str, query: RetrievalQuery) -> RetrievalResult | None:
        """Candidates: those by words best first, those by vector in any order. Without a code none are found by vector,
        without lookup terms none by words, so a caller can run both searches at the same time. None if there are too
        many memories for the indexes that exist."""
        ...

    async def with_adjacent(self, workspace: str, generation: int, numbers: Sequence[int]) -> list[Change]:
        """Those of these memories that are current, and for each episode the episodes right before and after it."""
        ...

    async def unsearchable(self, workspace: str, generation: int, limit: int) -> list[Change]:
        """Current memories whose index entry cannot be searched here yet. If none are left, the generation is ready from
        now on."""
        ...

    async def make_searchable(
        self, workspace: str, generation: int, search_fields: Sequence[tuple[int, SearchFields | None]]
    ) -> None:
        """Make the index entries of these memories searchable, if they still exist; None marks one that is sealed."""
        ...

    async def maintain_indexes(self, workspace: str, generation: int, bits: int) -> None:
        """Create and drop indexes as the corpus grows; codes have `bits` bits. May take long. If it is interrupted, the
        next call continues."""
        ...
