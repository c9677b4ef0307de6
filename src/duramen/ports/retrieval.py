"""The retriever port: search for memories inside the database. It is optional for a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .memories import Change, SearchFields


class RetrievalQuery(NamedTuple):
    """A request for candidates by vector, by words, or by both. Every filter applies to all candidates."""

    generation: int
    audiences: tuple[bytes, ...] | None
    """Filter: the audiences to search; None for all."""
    now: int
    """Filter: the memory holds at this time."""
    code: bytes | None
    """The code of the query's vector. None skips the search by vector."""
    vector_limit: int
    """How many candidates to return by vector: those with the nearest codes."""
    terms: tuple[int, ...]
    """All terms of the query."""
    term_weights: tuple[float, ...]
    """The weight of each term."""
    lookup_terms: tuple[int, ...]
    """The terms to look up, which are the rare ones, as indexes into `terms`. Empty skips the search by words."""
    require_all: bool
    """Whether a candidate by words must have all of `lookup_terms`, or at least one of them."""
    scan_limit: int
    """The maximum number of memories to score by words."""
    word_limit: int
    """How many candidates to return by words: those with the best scores."""
    mean_length: float
    """The mean length of a text."""
    corpus_size: int
    """The approximate number of memories to search."""
    kinds: tuple[str, ...] | None = None
    """Filter: the memory is of one of these kinds."""
    since: int | None = None
    """Filter: the memory begins at or after this time."""
    until: int | None = None
    """Filter: the memory begins at or before this time."""
    metadata: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Filter: names in the metadata, each with the JSON forms of the value that it must have."""
    unindexed_limit: int = 200
    """How many memories without an index entry to return in addition, newest first. 0 if all memories have one."""


class Candidate(NamedTuple):
    """A memory that may match, with its stored vector. Bit n of `mask` is set if the memory has term n of the query."""

    audience: bytes
    number: int
    vector: bytes | None
    mask: int = 0


class RetrievalResult(NamedTuple):
    """The candidates by vector and by words, and the memories without an index entry. `mask_counts`: how many of the
    memories that were scored by words have each mask."""

    by_vector: list[Candidate]
    by_words: list[Candidate]
    unindexed: list[Candidate]
    mask_counts: dict[int, int]


class SampledMemory(NamedTuple):
    """A randomly chosen memory: its index entry, its kind and when it holds. `session` and `position` are set for an
    episode only. `opens` is its begin if that is after it was recorded, else None."""

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
    """The approximate number of memories, a random sample of them, and the mean number of episodes in a session. All of
    these are estimates, so the store need not verify the checksums of the sample."""

    size: int
    memories: list[SampledMemory]
    episodes_per_session: float


class Retriever(Protocol):
    """Searches memories inside the database. `Store.retriever` is None in a store that cannot.

    It returns only current memories of one workspace. The caller must expect that some are forgotten a moment later. A
    memory that gets its index entry during a search is found either by vector or as unindexed. The retriever cannot
    read sealed memories, so it does not search audiences that contain any. Reads take no lock. Failure and durability
    are as in `Store`, and every write can be repeated.
    """

    async def sample_corpus(
        self, workspace: str, generation: int, audiences: Sequence[bytes] | None, least: int, most: int
    ) -> CorpusSample | None:
        """Estimate the corpus in these audiences (None: all) from a sample of about `most` memories. None if it has at
        most `least` memories, or if they cannot be searched here: some are sealed, or the generation is not ready."""
        ...

    async def retrieve(self, workspace: str, query: RetrievalQuery) -> RetrievalResult | None:
        """Candidates by words, best first, and by vector, in any order. Without `code` there are none by vector.
        Without `lookup_terms` there are none by words. A caller can therefore run the two searches at the same time.
        None if there are too many memories to search with the present indexes."""
        ...

    async def with_adjacent(self, workspace: str, generation: int, numbers: Sequence[int]) -> list[Change]:
        """The current ones of these memories and, for each episode, the episodes directly before and after it in its
        session. Ordered by audience, session, position and number."""
        ...

    async def unsearchable(self, workspace: str, generation: int, limit: int) -> list[Change]:
        """Current memories whose index entry cannot be searched here yet, in any order. If there are none, the
        generation is ready from now on."""
        ...

    async def make_searchable(
        self, workspace: str, generation: int, search_fields: Sequence[tuple[int, SearchFields | None]]
    ) -> None:
        """Make the index entries of these memories searchable. None marks a memory as sealed. Memories, entries or
        generations that no longer exist are skipped."""
        ...

    async def maintain_indexes(self, workspace: str, generation: int, bits: int) -> None:
        """Create and drop database indexes as the corpus grows. Codes have `bits` bits. This may take minutes. If it is
        interrupted, the next call repairs what is incomplete."""
        ...
