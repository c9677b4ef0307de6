"""Memories in a store: the rows of the catalog, the index entries that a search needs, and the requests for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class MemoryRow(NamedTuple):
    """A memory in the catalog: everything except its text, which is in its event.

    - `audience`: who may see it. b"" is everyone in the workspace; otherwise one subject or one session.
    - `id`: the hash of its content. In an audience, one row of an id is current.
    - `key`: of one key, the current rows are the one that has begun and those that begin later. No two of them hold at
      the same time.
    - `begins`, `ends`: when it holds in the world. `recorded`, `closed`: when it was known here.
    - A row with `closed` is history. `successor` is the id of what replaced it, if anything did.
    - `times`: how often it was stated. `confirmed`: when it was last stated.
    - `changed`: the audience's change count when this row last changed.
    - A forgotten row is closed and has an empty `id`. Nothing else of it is left.
    - `number`: assigned by the store, ascending.
    - `intact`: False if the row does not match its checksum. Only its number can be relied on then.
    - `recalled`, `recalled_at`: how often and when it was last recalled, where `MemoryStore.memories` returns it. Both
      are as of now, whatever time the query asks for.
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
    """Which memories to return, ordered by number. It returns current memories, or those known at a time (`at`), or with
    `history` all that are not forgotten. `audiences` None means all; `after` is a number."""

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
    """What a store may search by itself, unsealed: the numbers of the terms (32 bits each, little endian), the length of
    the text, the vector's code (similar vectors differ in few bits), and the metadata as JSON."""

    terms: bytes
    length: int
    code: bytes | None
    metadata: str | None


class IndexEntry(NamedTuple):
    """What a search needs of a memory: its packed term statistics, and its vector if it has one yet. Both are sealed if
    the audience is. Only an unsealed audience has `search_fields`, which a store need not keep."""

    audience: bytes
    number: int
    words: bytes
    vector: bytes | None
    search_fields: SearchFields | None = None


class StoredIndexEntry(NamedTuple):
    """An index entry as it is stored, with the id, the owner and the audience of its memory."""

    number: int
    id: str
    owner: bytes | None
    words: bytes
    vector: bytes | None
    audience: bytes


class Segment(NamedTuple):
    """Changes of an audience packed together, to be read at once: those with a change count in (`after`, `upto`], of
    memories numbered from `first` to `last`. The key of `owner` seals the body. A segment is a copy: it can be dropped
    at any time, and the changes are then read one by one."""

    after: int
    upto: int
    first: int
    last: int
    owner: bytes | None
    body: bytes


class Change(NamedTuple):
    """A row that changed, with its index entry, how often it was recalled and when last."""

    row: MemoryRow
    words: bytes | None
    vector: bytes | None
    recalled: int
    recalled_at: int


class Generation(NamedTuple):
    """The vectors of one embedder. Searches use the active generation; any other is being built."""

    number: int
    identity: bytes
    active: bool


class MemoryStore(Protocol):
    """The memories of a store. `append` writes rows, in the transaction of their events, by these rules:

    - A memory that is already current is confirmed. The new row is history at once, with the same id as `successor`. If
      the new row is renewing, it is the other way round. A memory that had ended holds again.
    - A memory with the key of a current one replaces it, and those that were to follow it. If it is stated to begin
      earlier than the current one, it becomes history that the current one ended. A memory that begins with its event
      never does, because clocks differ.
    - A memory that begins after its event leaves the current one in place. That one ends when the new one begins. It
      replaces what was to begin later. The ended one is closed when the key is next written.
    - Every change increments the change count of its audience, in commit order.
    """

    async def memories(self, workspace: str, query: MemoryQuery) -> list[MemoryRow]:
        """Rows in ascending order of their numbers."""
        ...

    async def audience_changes(self, workspace: str, audiences: Sequence[bytes] | None) -> dict[bytes, int]:
        """The change count of each of these audiences; with None, of every audience that ever changed."""
        ...

    async def changes(self, workspace: str, audience: bytes, generation: int, after: int, limit: int) -> list[Change]:
        """Rows that changed after a count, in that order, closed and forgotten ones included."""
        ...

    async def unindexed(self, workspace: str, generation: int, limit: int) -> list[MemoryRow]:
        """Current rows without an index entry in this generation: first those without one in an earlier generation either,
        then the others; each group oldest first."""
        ...

    async def count_unindexed(self, workspace: str, generation: int) -> int:
        """How many rows `unindexed` would return without a limit."""
        ...

    async def put_index_entries(self, workspace: str, generation: int, index_entries: Sequence[IndexEntry]) -> None:
        """Store index entries, for rows and a generation that still exist. Each counts as a change of its row."""
        ...

    async def index_entries(
        self, workspace: str, audience: bytes | None, generation: int, numbers: Sequence[int] | None
    ) -> list[StoredIndexEntry]:
        """The index entries of the current memories of an audience, or of these numbers, in ascending order; damaged ones
        are left out. Without an audience: of these numbers in any audience of the workspace."""
        ...

    async def segments(self, workspace: str, audience: bytes, generation: int) -> list[Segment]:
        """The segments of an audience, ordered by `after`. No two overlap. Damaged ones are left out."""
        ...

    async def segment_spans(self, workspace: str, generation: int) -> list[tuple[bytes, int, int]]:
        """The audience, `after` and `upto` of every segment, ordered by audience and `after`."""
        ...

    async def put_segment(self, workspace: str, audience: bytes, generation: int, segment: Segment, seen: int) -> bool:
        """Store a segment and drop those that overlap it. Stores nothing and returns False if the generation was dropped,
        or if a memory between its first and last number was forgotten after the audience's change count was `seen`: the
        segment may contain it. Forgetting drops the segments that may hold the memory, and dropping a generation drops
        its segments, in the same transaction."""
        ...

    async def recalls(self, workspace: str, audience: bytes) -> dict[int, int]:
        """How often each memory of an audience was recalled, by number; those never recalled are left out."""
        ...

    async def note_recalls(self, workspace: str, recalls: Sequence[tuple[int, int, int]]) -> None:
        """Add recalls to rows, each as (number, how often, when last). Rows that no longer exist are skipped. This is not
        a change in the sense of `changes`."""
        ...

    async def generations(self, workspace: str) -> list[Generation]:
        """All generations, ordered by number."""
        ...

    async def add_generation(self, workspace: str, identity: bytes, *, active: bool) -> Generation:
        """Add a generation, or return the existing one of this identity. With `active` it is active unless another one
        is. The number of a dropped generation is never used again."""
        ...

    async def activate(self, workspace: str, generation: int) -> None:
        """Make this the active generation and drop all others with their index entries. Does nothing if it was itself
        dropped."""
        ...
