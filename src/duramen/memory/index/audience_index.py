"""The index of one audience in memory: NumPy columns, and postings for each term. There is no Python object per memory.

The store counts the changes of an audience. An index is updated with the changes since its last count, so a search
reads only what is new.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...ports import MemoryRow
from .columns import COLUMNS, EPISODE, FOREVER, NameTable, PlaceTable, codes_of
from .index_entry import TermStats, Vector
from .postings import Counts, PackedPostings, Places, Postings

_DAY = 86_400_000_000
_LARGE = 100_000
"""From this many places on, an index grows in smaller steps, because unused places take memory."""
_FIRST, _LAST = dt.date.min.toordinal(), dt.date.max.toordinal()
_EPOCH = dt.date(1970, 1, 1).toordinal()


class IndexedMemory(NamedTuple):
    """A memory to add to an index: its row, its term statistics, its vector if it has one, and its recall count."""

    row: MemoryRow
    stats: TermStats
    vector: Vector | None
    recalled: int


class AudienceIndex:
    """The current memories of one audience, each at a place that does not change. Not thread-safe.

    An `exact` index holds the vectors. An index with a `center` holds a code of each vector: one bit per dimension, set
    if the vector is above the center there. A code takes 1/32 of the memory of a vector."""

    def __init__(
        self,
        dims: int,
        exact: bool = True,
        center: Vector | None = None,
        columns: dict[str, NDArray[Any]] | None = None,
        several: bool = False,
    ) -> None:
        self.dims = dims
        self.size = 0
        self.several = several
        """Whether it combines several audiences."""
        self.seen: dict[bytes, int] = {}
        """For each audience, the change count up to which this index is current."""
        self._columns = columns or {name: np.full(16, empty, dtype=kind) for name, (kind, empty) in COLUMNS.items()}
        self.center = center
        self._codes: NDArray[np.uint64] = np.zeros((0 if center is None else -(-dims // 64), 16), dtype=np.uint64)
        self._vectors: Vector | None = np.zeros((16, dims), dtype=np.float32) if exact else None
        self.sample: Vector = np.zeros((0, dims), dtype=np.float32)
        """Vectors of some memories, to measure how precise codes are."""
        self.sample_codes: NDArray[np.uint64] = np.zeros((0, 0), dtype=np.uint64)
        self.sampled = 0
        """How many memories there were when the sample was taken."""
        self._postings = Postings()
        self._index = PlaceTable()
        self._last_of: dict[int, int] = {}
        self._dates: NDArray[np.int32] = np.zeros((0, 2), dtype=np.int32)
        self._metadata = bytearray()
        self.speakers, self.kinds, self.sessions = NameTable(), NameTable(), NameTable()

    def column(self, name: str) -> NDArray[Any]:
        """A column, one value for each place."""
        return self._columns[name][: self.size]

    @property
    def exact(self) -> bool:
        """Whether it holds the vectors."""
        return self._vectors is not None

    @property
    def vectors(self) -> Vector:
        """One row for each place of an exact index; zeros for a memory without a vector."""
        assert self._vectors is not None, "only an exact index holds vectors"
        return self._vectors[: self.size]

    @property
    def codes(self) -> NDArray[np.uint64]:
        """The code of each place, if there are codes: one column for each place, 64 bits per row."""
        return self._codes[:, : self.size]

    @property
    def held_bytes(self) -> int:
        """How many bytes it takes, without vectors."""
        columns = sum(column.nbytes for column in self._columns.values())
        return (
            columns
            + self._codes.nbytes
            + self.sample.nbytes
            + self._postings.size
            + self._dates.nbytes
            + len(self._metadata)
        )

    @property
    def vector_bytes(self) -> int:
        """How many bytes its vectors take."""
        return 0 if self._vectors is None else self._vectors.nbytes

    def count(self) -> int:
        """How many memories it holds."""
        return int(np.count_nonzero(self.column("alive")))

    def postings(self, term: int) -> tuple[Places, Counts] | None:
        """The places of the memories that have a term, and how often each has it; None if there are none."""
        found = self._postings.find(term)
        if found is None:
            return None
        places, counts = found
        alive = self._columns["alive"][places]
        return (places, counts) if alive.all() else (places[alive], counts[alive])

    def named_days(self) -> NDArray[np.int32]:
        """First and last day of each date that memories name. `first_date` and `date_count` point into it."""
        return self._dates

    def metadata(self, place: int) -> Mapping[str, Any]:
        """The metadata of a memory."""
        size = int(self._columns["metadata_size"][place])
        start = int(self._columns["metadata_start"][place])
        metadata: dict[str, Any] = msgspec.msgpack.decode(self._metadata[start : start + size]) if size else {}
        return metadata

    # -- adding

    def put(self, row: MemoryRow, stats: TermStats, vector: Vector | None, recalled: int) -> None:
        """Add or update a memory."""
        self.put_all([IndexedMemory(row, stats, vector, recalled)])

    def put_all(self, entries: Sequence[IndexedMemory]) -> None:
        """Add or update memories, each at most once."""
        if not entries:
            return
        numbers = np.array([entry.row.number for entry in entries], dtype=np.int64)
        places = self._index.find(numbers, self._columns["alive"])
        new = np.nonzero(places < 0)[0]
        if len(new):
            places[new] = np.arange(self.size, self.size + len(new))
            self._add([entries[at] for at in new.tolist()], numbers[new])
        rows, columns = [entry.row for entry in entries], self._columns
        columns["importance"][places] = [row.importance for row in rows]
        recalled = np.array([entry.recalled for entry in entries], dtype=np.float32)
        columns["recalled"][places] = np.maximum(recalled, columns["recalled"][places])  # recalls not yet stored count
        columns["ends"][places] = [FOREVER if row.ends is None else row.ends for row in rows]
        columns["expires"][places] = [FOREVER if row.expires is None else row.expires for row in rows]
        known = [at for at, entry in enumerate(entries) if entry.vector is not None]
        if known:
            self.put_vectors(places[known], np.array([entries[at].vector for at in known], dtype=np.float32))

    def put_vectors(self, places: NDArray[np.intp], vectors: Vector) -> None:
        """Set the vectors of some places."""
        self._columns["has_vector"][places] = True
        if self.center is not None:
            self._codes[:, places] = codes_of(vectors, self.center)
        if self._vectors is not None:
            self._vectors[places] = vectors

    def _add(self, entries: Sequence[IndexedMemory], numbers: NDArray[np.int64]) -> None:
        start, stop = self.size, self.size + len(entries)
        self._make_room(stop)
        self.size = stop
        self._index.add(numbers, start)
        rows, all_stats = [entry.row for entry in entries], [entry.stats for entry in entries]
        new, columns = slice(start, stop), self._columns
        begins = np.array([row.begins for row in rows], dtype=np.int64)
        recorded = np.array([row.recorded for row in rows], dtype=np.int64)
        columns["alive"][new] = True
        columns["number"][new] = numbers
        columns["position"][new] = [row.position for row in rows]
        columns["length"][new] = [stats.length for stats in all_stats]
        columns["is_question"][new] = [stats.is_question for stats in all_stats]
        columns["substance"][new] = np.log1p([stats.substance for stats in all_stats])
        columns["speaker"][new] = [self.speakers.number(stats.speaker) if stats.speaker else -1 for stats in all_stats]
        columns["kind"][new] = [self.kinds.number(row.kind) for row in rows]
        columns["day"][new] = np.clip(begins // _DAY + _EPOCH, _FIRST, _LAST)
        columns["begins"][new] = begins
        columns["opens"][new] = np.where(begins > recorded, begins, -FOREVER)
        self._add_dates_and_metadata(new, all_stats)
        self._add_postings(start, all_stats)
        episodes = [at for at, row in enumerate(rows, start) if row.kind == EPISODE]
        if episodes:
            told_in = [rows[at - start] for at in episodes]
            sessions = [self.session_number(row.audience, row.session) for row in told_in]
            self._join(np.array(episodes, dtype=np.int32), np.array(sessions, dtype=np.int32))

    def _add_dates_and_metadata(self, new: slice, all_stats: Sequence[TermStats]) -> None:
        columns = self._columns
        counts = np.array([len(stats.dates) for stats in all_stats], dtype=np.uint8)
        dates = np.array([span for stats in all_stats for span in stats.dates], dtype=np.int32).reshape(-1, 2)
        columns["date_count"][new] = counts
        columns["first_date"][new] = len(self._dates) + np.cumsum(counts, dtype=np.int32) - counts
        if len(dates):
            self._dates = np.concatenate([self._dates, dates])
        for place, stats in enumerate(all_stats, new.start):
            if stats.metadata:
                packed = msgspec.msgpack.encode(stats.metadata)
                columns["metadata_start"][place], columns["metadata_size"][place] = len(self._metadata), len(packed)
                self._metadata += packed

    def _add_postings(self, start: int, all_stats: Sequence[TermStats]) -> None:
        terms = np.frombuffer(b"".join([stats.terms for stats in all_stats]), dtype="<u4").astype(np.uint32, copy=False)
        counts = np.frombuffer(b"".join([stats.counts for stats in all_stats]), dtype=np.uint8)
        places = np.repeat(
            np.arange(start, start + len(all_stats), dtype=np.uint32), [len(stats.counts) for stats in all_stats]
        )
        self._postings.add(terms, counts, places)

    # -- packed

    def packed_postings(self) -> PackedPostings:
        """All postings, merged into one."""
        return self._postings.packed()

    def packed_metadata(self) -> bytes:
        """All metadata in sequence. `metadata_start` and `metadata_size` point into it."""
        return bytes(self._metadata)

    def known_numbers(self, numbers: NDArray[np.int64]) -> list[int]:
        """The numbers among these whose memories it holds."""
        found: list[int] = numbers[self._index.find(numbers, self._columns["alive"]) >= 0].tolist()
        return found

    def append(
        self,
        columns: Mapping[str, NDArray[Any]],
        lists: PackedPostings,
        dates: NDArray[np.int32],
        metadata: bytes,
        sessions: NDArray[np.int32],
    ) -> None:
        """Add new memories as columns. `sessions` are the session numbers of episodes, and -1 for other memories."""
        start, count = self.size, len(sessions)
        self._make_room(start + count)
        self.size = start + count
        new = slice(start, self.size)
        for name, column in columns.items():
            self._columns[name][new] = column
        self._columns["alive"][new] = True
        self._columns["session"][new] = -1
        counts, sizes = columns["date_count"].astype(np.int32), columns["metadata_size"].astype(np.int64)
        self._columns["first_date"][new] = len(self._dates) + np.cumsum(counts) - counts
        self._columns["metadata_start"][new] = len(self._metadata) + np.cumsum(sizes) - sizes
        self._dates = np.concatenate([self._dates, dates])
        self._metadata += metadata
        self._index.add(columns["number"], start)
        self._postings.take(lists._replace(places=lists.places + np.uint32(start)))
        episodes = np.nonzero(sessions >= 0)[0]
        if len(episodes):
            self._join((episodes + start).astype(np.int32), sessions[episodes])

    # -- sessions

    def session_number(self, audience: bytes, session: str) -> int:
        """The number of a session. In a combined index, a session has one for each audience."""
        return self.sessions.number(f"{session}\0{audience.hex()}" if self.several else session)

    def _join(self, places: NDArray[np.int32], sessions: NDArray[np.int32]) -> None:
        """Link episodes to the ones before them in their sessions."""
        positions, columns = self._columns["position"], self._columns
        columns["session"][places] = sessions
        order = np.lexsort((positions[places], sessions))
        places, sessions = places[order], sessions[order]
        first = np.nonzero(np.diff(sessions, prepend=-1))[0]
        for at, end in zip(first.tolist(), [*first[1:].tolist(), len(places)], strict=True):
            session, joined = int(sessions[at]), places[at:end]
            last = self._last_of.get(session, -1)
            if last < 0 or positions[last] < positions[joined[0]]:
                chain = joined if last < 0 else np.concatenate([np.array([last], dtype=np.int32), joined])
                self._link(chain[:-1], chain[1:])
                self._last_of[session] = int(joined[-1])
            else:
                for place in joined.tolist():
                    self._insert(place, session)

    def _insert(self, place: int, session: int) -> None:
        """Link an episode that comes before the last one of its session."""
        before, after = self._last_of.get(session, -1), -1
        positions = self._columns["position"]
        while before >= 0 and positions[before] > positions[place]:
            before, after = int(self._columns["before"][before]), before
        self._link_two(before, place)
        self._link_two(place, after)
        if after < 0:
            self._last_of[session] = place

    def _link(self, before: NDArray[np.int32], after: NDArray[np.int32]) -> None:
        columns, speaker = self._columns, self._columns["speaker"]
        columns["after"][before] = after
        columns["before"][after] = before
        columns["is_answer"][after] = columns["is_question"][before] & (speaker[before] != speaker[after])

    def _link_two(self, before: int, after: int) -> None:
        """Link two places, of which one may be missing (-1)."""
        columns, speaker = self._columns, self._columns["speaker"]
        if before >= 0:
            columns["after"][before] = after
        if after >= 0:
            columns["before"][after] = before
            columns["is_answer"][after] = (
                before >= 0 and columns["is_question"][before] and speaker[before] != speaker[after]
            )

    # -- changing

    def count_recall(self, number: int) -> None:
        """Count a recall of a memory."""
        place = self._place(number)
        if place >= 0:
            self._columns["recalled"][place] += 1

    def _place(self, number: int) -> int:
        return int(self._index.find(np.array([number], dtype=np.int64), self._columns["alive"])[0])

    def drop(self, number: int) -> None:
        """Remove a memory."""
        place = self._place(number)
        if place < 0:
            return
        columns = self._columns
        start, size = int(columns["metadata_start"][place]), int(columns["metadata_size"][place])
        self._metadata[start : start + size] = bytes(size)
        for name in ("alive", "has_vector", "date_count", "metadata_size"):
            columns[name][place] = 0
        self._codes[:, place] = 0
        if self._vectors is not None:
            self._vectors[place] = 0
        session = int(columns["session"][place])
        if session >= 0:
            before, after = int(columns["before"][place]), int(columns["after"][place])
            self._link_two(before, after)
            if after < 0:
                self._last_of[session] = before
            columns["session"][place] = columns["before"][place] = columns["after"][place] = -1

    def set_recall_counts(self, recalls: Mapping[int, int]) -> None:
        """Set the recall counts of the store. A higher count, which is not stored yet, stays."""
        numbers = np.fromiter(recalls, dtype=np.int64, count=len(recalls))
        places = self._index.find(numbers, self._columns["alive"])
        counts = np.fromiter(recalls.values(), dtype=np.float32, count=len(recalls))
        there, recalled = places[places >= 0], self._columns["recalled"]
        recalled[there] = np.maximum(recalled[there], counts[places >= 0])

    def drop_vectors(self) -> None:
        """Free the vectors. The codes stay."""
        self._vectors = None

    def set_vectors(self, numbers: NDArray[np.int64], vectors: Vector) -> None:
        """Make the index exact, with the vectors of these memories. Other memories have none."""
        places = self._index.find(numbers, self._columns["alive"])
        there = places >= 0
        self._vectors = np.zeros((len(self._columns["alive"]), self.dims), dtype=np.float32)
        self._columns["has_vector"][: self.size] = False
        self.put_vectors(places[there], vectors if there.all() else vectors[there])

    def add_vectors(self, numbers: NDArray[np.int64], vectors: Vector) -> None:
        """Set the vectors of these memories. Other memories keep theirs."""
        places = self._index.find(numbers, self._columns["alive"])
        there = places >= 0
        self.put_vectors(places[there], vectors if there.all() else vectors[there])

    def set_codes(self, center: Vector, numbers: NDArray[np.int64], vectors: Vector) -> None:
        """Make codes from the vectors of these memories. Other memories have none."""
        places = self._index.find(numbers, self._columns["alive"])
        there = places >= 0
        self.center = center
        self._codes = np.zeros((-(-self.dims // 64), len(self._columns["alive"])), dtype=np.uint64)
        self.put_vectors(places[there], vectors if there.all() else vectors[there])

    def set_sample(self, numbers: NDArray[np.int64], vectors: Vector) -> None:
        """Set the sample of vectors. Memories that the index does not hold are left out."""
        there = self._index.find(numbers, self._columns["alive"]) >= 0
        self.sample, self.sampled = vectors[there], self.size
        if self.center is not None:
            self.sample_codes = codes_of(self.sample, self.center)

    def _make_room(self, size: int) -> None:
        there = len(self._columns["alive"])
        if size <= there:
            return
        size = max(size, there + there // (4 if there < _LARGE else 16) + 16)
        for name, (kind, empty) in COLUMNS.items():
            grown = np.full(size, empty, dtype=kind)
            grown[: self.size] = self._columns[name][: self.size]
            self._columns[name] = grown
        codes = np.zeros((len(self._codes), size), dtype=np.uint64)
        codes[:, : self.size] = self._codes[:, : self.size]
        self._codes = codes
        if self._vectors is not None:
            vectors = np.zeros((size, self.dims), dtype=np.float32)
            vectors[: self.size] = self._vectors[: self.size]
            self._vectors = vectors

    # -- reading

    def excerpt(self, places: NDArray[np.intp], terms: Sequence[int]) -> AudienceIndex:
        """A read-only index of the memories at these places (ascending), with the postings of these terms only. Its
        vectors are zeros (see `set_candidate_vectors`). Links to neighbours outside the excerpt are dropped. Sessions
        keep their numbers."""
        taken = AudienceIndex(self.dims, exact=False, columns={name: self._columns[name][places] for name in COLUMNS})
        taken.size = len(places)
        for side in ("before", "after"):
            neighbours = taken._columns[side]
            at = np.minimum(np.searchsorted(places, neighbours), max(0, len(places) - 1))
            taken._columns[side] = np.where((neighbours >= 0) & (places[at] == neighbours), at, -1).astype(np.int32)
        taken._postings = self._postings.chosen(terms, places)
        taken._dates, taken._metadata = self._dates, self._metadata
        taken.speakers, taken.kinds, taken.sessions = self.speakers, self.kinds, self.sessions
        taken._vectors = np.zeros((len(places), self.dims), dtype=np.float32)
        return taken

    def set_candidate_vectors(self, numbers: NDArray[np.int64], vectors: Vector) -> NDArray[np.intp]:
        """Set the vectors of some memories of an excerpt. Returns their places."""
        order = np.argsort(self.column("number"), kind="stable")
        places = order[np.searchsorted(self.column("number"), numbers, sorter=order)]
        self.vectors[places] = vectors
        return places

    def frequency(self, term: int) -> int:
        """How many memories have a term, including removed ones."""
        return self._postings.frequency(term)

    def term_counts(self, term: int, places: NDArray[Any]) -> Counts:
        """How often each of these places has a term."""
        return self._postings.counts(term, places)

    def ages(self, on: dt.date) -> NDArray[np.float32]:
        """The age of each memory in days, at least 0."""
        ages: NDArray[np.float32] = np.float32(on.toordinal()) - self.column("day").astype(np.float32)
        ages[ages < 0] = 0
        return ages
