"""Search inside a store: what a store that can is given of each memory, how it is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .memories import Change, SearchFields


class RetrievalQuery(NamedTuple):
    """Candidates that are asked for: the `near` nearest by their codes, and the `best` by their words among at most
    `most` that have one of the `rare` terms (`together`: all of them). Every filter holds for all of them: audiences (None:
    all), kinds, the time `now`, when they begin, and values of their metadata, each as the forms in JSON that are equal
    to it."""

    generation: int
    audiences: tuple[bytes, ...] | None
    now: int
    code: bytes | None
    near: int
    terms: tuple[int, ...]
    """All that the question has; `weights` says what each counts."""
    weights: tuple[float, ...]
    rare: tuple[int, ...]
    """Which of the terms are looked up, by their places."""
    together: bool
    most: int
    best: int
    length: float
    """The mean length of a text."""
    size: int
    """About how many memories are searched."""
    kinds: tuple[str, ...] | None = None
    since: int | None = None
    until: int | None = None
    metadata: tuple[tuple[str, tuple[str, ...]], ...] = ()
    late: int = 200
    """Of those that have no index_entry yet so many, the newest, are given as well. 0 where it is known that all have one."""


class Candidate(NamedTuple):
    """A memory that may be an answer, with its vector as it is stored. `mask` has a bit for each term that it has."""

    audience: bytes
    number: int
    vector: bytes | None
    mask: int = 0


class RetrievalResult(NamedTuple):
    """What was found: the nearest, the best by words, and those that have no index_entry yet. `masks` counts the memories
    that were looked at for their words by the terms that they have."""

    near: list[Candidate]
    worded: list[Candidate]
    late: list[Candidate]
    masks: dict[int, int]


class SampledMemory(NamedTuple):
    """A memory that was drawn by chance, as far as it tells how things stand: its index_entry, what it is and when it holds.
    It is in a session only if it is an episode. `opens` is when it begins, if that is after it was said."""

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
    """How much is searched, about, and some of it, drawn by chance; and how many episodes a session has in the mean.
    Nothing of it is more than an estimate, so those drawn may be given without being compared with their checksums."""

    size: int
    drawn: list[SampledMemory]
    talk: float


class Retriever(Protocol):
    """The chunk of a store that searches by itself. A store without has None in its place.

    It answers with current memories only, of one workspace; whoever asks must expect that some are gone a moment later.
    What gets its index_entry while it is looked for is found as near, or as late. What is sealed is not known to it: of audiences
    that hold such a thing it knows nothing.
    """

    async def sample_corpus(
        self, workspace: str, generation: int, audiences: Sequence[bytes] | None, least: int, most: int
    ) -> CorpusSample | None:
        """What is searched in audiences (None: in all), with some `most` of it. None if it is not more than `least`, or
        cannot be searched here: something is sealed, or not all of it is ready."""
        ...

    async def retrieve(self, workspace: str, wanted: RetrievalQuery) -> RetrievalResult | None:
        """Candidates: the best by words first, the near ones in any order. Without a code none are near, without rare
        terms none have the words: so both can be asked for at the same time. None if there are too many for what is at
        hand here."""
        ...

    async def beside(self, workspace: str, generation: int, numbers: Sequence[int]) -> list[Change]:
        """These memories as far as they are current, and the episodes right before and after each that is one."""
        ...

    async def unsearchable(self, workspace: str, generation: int, limit: int) -> list[Change]:
        """Current memories whose index_entry cannot be searched here yet. None left: the generation is ready from now on."""
        ...

    async def make_searchable(
        self, workspace: str, generation: int, search_fields: Sequence[tuple[int, SearchFields | None]]
    ) -> None:
        """Make index_entries of these numbers searchable, if they are still there; None says that it is sealed."""
        ...

    async def maintain_indexes(self, workspace: str, generation: int, bits: int) -> None:
        """Make and drop indexes as what is searched grows; codes have so many bits. May take long; stopped anywhere,
        the next call goes on."""
        ...
