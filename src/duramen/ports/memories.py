"""The memory part of the store port: rows, the index entries that a search needs, and the queries for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class MemoryRow(NamedTuple):
    """The row of a memory: everything except its text, which is in its event.

    - `audience`: who may see it. b"" is everyone in the workspace. Otherwise it is one subject or one session.
    - `id`: the hash of its content. In an audience, at most one row with an id is current.
    - `key`: an optional name for what the memory is about. In an audience, the current rows with one key never hold at
      the same time: at most one has begun, and the others begin later.
    - `begins`, `ends`: when it holds in the world. `recorded`, `closed`: when it was known here.
    - A row with `closed` is history. `successor` is the id of the memory that replaced it, or None.
    - `times`: how often it was stated. `confirmed`: when it was last stated.
    - `changed`: the change count of its audience when the row last changed.
    - `number`: assigned by the store, ascending, never used again.
    - A forgotten row is closed, has an empty `id` and no other content.
    - `intact`: False if the row does not match its checksum. Only its number can be trusted then.
    - `recalled`, `recalled_at`: how often, and when it was last recalled. Only `MemoryStore.memories` sets them. They
      are always the present values, even if the query asks for an earlier time.
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
    """Which memories to return: by default the current ones, with `at` those that were known at that time, with
    `history` all that are not forgotten. None matches every memory. `after` is the last number of the previous page."""

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
    """The unsealed fields that a store may search itself: the numbers of the terms (32 bits each, little endian), the
    length of the text, the code of the vector (similar vectors differ in few bits), and the metadata as JSON."""

    terms: bytes
    length: int
    code: bytes | None
    metadata: str | None


class IndexEntry(NamedTuple):
    """What a search needs of a memory: its packed term statistics (`words`), and its vector if it has one yet. Both are
    sealed if the audience is. Only an unsealed audience has `search_fields`. A store without a retriever ignores
    them."""

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
    """Many changes of an audience in one body, for fast loading: those with a change count above `after` and up to
    `upto`, of memories numbered from `first` to `last`. The key of `owner` seals the body. A segment is a copy. If it
    is dropped, its changes are read from their rows."""

    after: int
    upto: int
    first: int
    last: int
    owner: bytes | None
    body: bytes


class Change(NamedTuple):
    """A row that changed, its index entry (None if it has none or it is damaged), how often it was recalled, and when
    last (0: never)."""

    row: MemoryRow
    words: bytes | None
    vector: bytes | None
    recalled: int
    recalled_at: int


class Generation(NamedTuple):
    """The index entries of one embedder. Searches use the active generation. Any other one is being built."""

    number: int
    identity: bytes
    active: bool


class MemoryStore(Protocol):
    """The memories of a store. `Store.append` writes rows in the transaction of their events, by these rules
    (`stores.common.memory_rows` implements them):

    - Same id as a current memory: the current row is confirmed. The new row is stored as closed, with its own id as
      `successor`. If the new row is renewing, the two change roles. A memory that had ended holds again.
    - Same key as a current memory: the new memory replaces it, and those that were to begin later. There is one
      exception. A new memory that is stated to begin before the current one is stored as closed, because the current
      one followed it. A memory that begins at the time of its event is never such an exception, because clocks differ.
    - A memory that begins after its event does not replace the current one with its key. The current one ends when the
      new one begins, and is closed when the key is next written. Memories that were to begin later are replaced.
    - Every change increments the change count of its audience, in commit order.

    Failure and durability are as in `Store`. A generation or audience that does not exist has no entries.
    """

    async def memories(self, workspace: str, query: MemoryQuery) -> list[MemoryRow]:
        """The rows that match the query, ordered by number. A damaged row is not `intact`."""
        ...

    async def audience_changes(self, workspace: str, audiences: Sequence[bytes] | None) -> dict[bytes, int]:
        """The change count of each of these audiences, or of all with None. An audience that never changed is left
        out."""
        ...

    async def changes(self, workspace: str, audience: bytes, generation: int, after: int, limit: int) -> list[Change]:
        """The rows of an audience with `changed` > `after`, ordered by `changed`, closed and forgotten ones included. A
        row is returned once, with its last change."""
        ...

    async def unindexed(self, workspace: str, generation: int, limit: int) -> list[MemoryRow]:
        """Current rows without an index entry in this generation. Rows that have no entry in an earlier generation
        either come first. Each group is ordered by number."""
        ...

    async def count_unindexed(self, workspace: str, generation: int) -> int:
        """How many rows `unindexed` would return without a limit."""
        ...

    async def put_index_entries(self, workspace: str, generation: int, index_entries: Sequence[IndexEntry]) -> None:
        """Store index entries, or replace them. Each counts as a change of its row. An entry whose row was forgotten is
        skipped. All are skipped if the generation was dropped."""
        ...

    async def index_entries(
        self, workspace: str, audience: bytes | None, generation: int, numbers: Sequence[int] | None
    ) -> list[StoredIndexEntry]:
        """The index entries of the current memories of an audience, ordered by number. With `numbers`, only of these.
        With audience None, of these numbers in any audience of the workspace. Damaged entries are left out."""
        ...

    async def segments(self, workspace: str, audience: bytes, generation: int) -> list[Segment]:
        """The segments of an audience, ordered by `after`. No two overlap. Damaged ones are left out."""
        ...

    async def segment_spans(self, workspace: str, generation: int) -> list[tuple[bytes, int, int]]:
        """The audience, `after` and `upto` of every segment, ordered by audience and `after`."""
        ...

    async def put_segment(self, workspace: str, audience: bytes, generation: int, segment: Segment, seen: int) -> bool:
        """Store a segment and drop those that overlap it.

        Returns False and stores nothing if the generation was dropped, or if a memory with a number from `first` to
        `last` was forgotten after the audience's change count was `seen`, because the segment may contain it. A
        transaction that forgets a memory also drops the segments that may contain it. A transaction that drops a
        generation also drops its segments.
        """
        ...

    async def recalls(self, workspace: str, audience: bytes) -> dict[int, int]:
        """How often each memory of an audience was recalled, by number. Memories that were never recalled are left
        out."""
        ...

    async def note_recalls(self, workspace: str, recalls: Sequence[tuple[int, int, int]]) -> None:
        """Add to the recall counts, each as (number, how often, when last). Forgotten rows are skipped. This does not
        count as a change of the row. It is the only write that is not idempotent."""
        ...

    async def generations(self, workspace: str) -> list[Generation]:
        """All generations, ordered by number."""
        ...

    async def add_generation(self, workspace: str, identity: bytes, *, active: bool) -> Generation:
        """Add a generation, or return the existing one with this identity. With `active`, a new one becomes active
        unless another one is. Numbers ascend. The number of a dropped generation is never used again."""
        ...

    async def activate(self, workspace: str, generation: int) -> None:
        """Make this the active generation, and drop all others with their index entries and segments, in one
        transaction. Does nothing if this generation was dropped."""
        ...
