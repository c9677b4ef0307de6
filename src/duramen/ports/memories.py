"""Memories in a store: the rows of the catalog, what a search needs beside them, and how both are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class MemoryRow(NamedTuple):
    """A memory in the catalog: everything about it but its text, which is in its event.

    `audience` says who may see it: b"" everybody in the workspace, else one subject or one session. `id` is the hash of
    what it says; in an audience one row of an id is current. Of a `key` so is one that has begun, and each that was said
    ahead of its time: no two of them hold at once. A row that is `closed` is history: since that time something else is
    known (`successor`), or nothing. `begins` and `ends` say when it holds in the world, `recorded` and `closed` when it
    was known here. `times` counts how often it was said, `confirmed` is when last. `changed` is the audience's count of
    changes at the last one of this row. One that was forgotten is closed and has no `id`: only that it is gone is left.
    `number` is the store's own, and grows. One that is read and not `intact` does not match its checksum: nothing of it
    can be relied on but its number. `recalled` is how often it was recalled and `recalled_at` when last, where
    `MemoryStore.memories` gives it; both are of now, whatever time is asked for.
    """

    audience: bytes
    id: str
    session: str
    position: int
    kind: str
    key: str | None
    owner: bytes | None
    recorded: int
    begins: int
    ends: int | None
    expires: int | None
    importance: float
    confidence: float
    confirmed: int
    times: int = 1
    closed: int | None = None
    successor: str | None = None
    changed: int = 0
    number: int = 0
    intact: bool = True
    recalled: int = 0
    recalled_at: int = 0


class MemoryQuery(NamedTuple):
    """Which memories to give, by their numbers: in some audiences (None: in all), of an id, a key, some kinds or numbers;
    current ones, or those that were known at a time, or (`history`) all that are not forgotten; after a number."""

    audiences: tuple[bytes, ...] | None = None
    id: str | None = None
    key: str | None = None
    kinds: tuple[str, ...] | None = None
    numbers: tuple[int, ...] | None = None
    at: int | None = None
    history: bool = False
    after: int = 0
    limit: int = 1000


class SearchFields(NamedTuple):
    """What a store may search by itself, in the clear: the numbers of the words (32 bits each, little endian), how long
    the text is, the vector's code (near vectors differ in few bits), and the metadata as JSON."""

    terms: bytes
    length: int
    code: bytes | None
    metadata: str | None


class IndexEntry(NamedTuple):
    """What a search needs of a memory: its words, packed, and its vector, if there is one yet. In an audience that is
    sealed both are, too; only where it is not there is `search_fields`, which a store need not keep."""

    audience: bytes
    number: int
    words: bytes
    vector: bytes | None
    search_fields: SearchFields | None = None


class StoredIndexEntry(NamedTuple):
    """An index_entry as it is kept, and whose it is: the id, the owner and the audience of its memory."""

    number: int
    id: str
    owner: bytes | None
    words: bytes
    vector: bytes | None
    audience: bytes


class Segment(NamedTuple):
    """Changes of an audience packed together, to be read at once: those after one count up to another, of memories whose
    numbers lie between a first and a last one. `owner` is whose key seals the body. What is in it is a copy: it can be
    dropped at any time, and the changes are read one by one."""

    after: int
    upto: int
    first: int
    last: int
    owner: bytes | None
    body: bytes


class Change(NamedTuple):
    """A row that changed, with its index_entry and how often and when it was last recalled."""

    row: MemoryRow
    words: bytes | None
    vector: bytes | None
    recalled: int
    recalled_at: int


class Generation(NamedTuple):
    """The vectors of one embedder. Of several, the active one is searched; another is being made."""

    number: int
    identity: bytes
    active: bool


class MemoryStore(Protocol):
    """The chunk of a store that keeps memories. Rows are written by `append`, in the transaction of their events:

    a memory that is current already is confirmed, and what said it again is history at once, with the same id as
    `successor`; the other way round if the new one is renewing. One that was over by then holds again. One with the key
    of another takes its place, and that of those which were to follow, unless it is said to begin earlier: then it is
    history, which the other one ended; what begins with its event never is, as clocks differ. One that begins after its
    event leaves what holds until then, which ends with its beginning, and takes the place of what was to begin later.
    What was followed in this way is closed when the key is next written. Every change counts in its audience, in the order
    of commits.
    """

    async def memories(self, workspace: str, query: MemoryQuery) -> list[MemoryRow]:
        """Rows by number, ascending."""
        ...

    async def audience_changes(self, workspace: str, audiences: Sequence[bytes] | None) -> dict[bytes, int]:
        """How often each audience was changed; of all that ever were, if none are named."""
        ...

    async def changes(self, workspace: str, audience: bytes, generation: int, after: int, limit: int) -> list[Change]:
        """Rows that were changed after a count, in that order; those that are closed or forgotten too."""
        ...

    async def unindexed(self, workspace: str, generation: int, limit: int) -> list[MemoryRow]:
        """Current rows without an index_entry in this generation: first those that have none in an earlier one either, each
        oldest first."""
        ...

    async def count_unindexed(self, workspace: str, generation: int) -> int:
        """How many there are."""
        ...

    async def put_index_entries(self, workspace: str, generation: int, index_entries: Sequence[IndexEntry]) -> None:
        """Store index_entries of rows that are still there, in a generation that still is; each is a change of its row."""
        ...

    async def index_entries(
        self, workspace: str, audience: bytes | None, generation: int, numbers: Sequence[int] | None
    ) -> list[StoredIndexEntry]:
        """The index_entries of the current memories of an audience, or of some of them, by number, ascending; without those that
        are damaged. Without an audience: of these numbers, whatever audiences of the workspace they are in."""
        ...

    async def segments(self, workspace: str, audience: bytes, generation: int) -> list[Segment]:
        """The segments of an audience, by `after`; no two overlap. Without those that are damaged."""
        ...

    async def segment_spans(self, workspace: str, generation: int) -> list[tuple[bytes, int, int]]:
        """The audience, `after` and `upto` of every segment, by audience and `after`."""
        ...

    async def put_segment(self, workspace: str, audience: bytes, generation: int, segment: Segment, seen: int) -> bool:
        """Store a segment in the place of those that overlap it. Nothing, and False, if the generation is gone, or a
        memory between its first and last number was forgotten after the audience's count was `seen`: it may be in there.
        Forgetting drops the segments that may hold a memory, and dropping a generation its segments, in the same
        transaction."""
        ...

    async def recalls(self, workspace: str, audience: bytes) -> dict[int, int]:
        """How often the memories of an audience were recalled, by number; without those that never were."""
        ...

    async def note_recalls(self, workspace: str, recalls: Sequence[tuple[int, int, int]]) -> None:
        """Add to how often a row was recalled, and when last: (number, times, time). Nothing for one that is gone. No
        change in the sense of `changes`."""
        ...

    async def generations(self, workspace: str) -> list[Generation]:
        """All generations, by number."""
        ...

    async def add_generation(self, workspace: str, identity: bytes, *, active: bool) -> Generation:
        """Begin a generation, unless one of this identity is there: then that one. If `active` is asked for and another
        one is active, the new one is not. The number of one that was dropped is never given again."""
        ...

    async def activate(self, workspace: str, generation: int) -> None:
        """Search this generation from now on, and drop all others with their index_entries. Nothing changes if it was dropped
        itself."""
        ...
