"""Searching the memories of a workspace: pools kept in memory and brought up to date by what changed, ranked, and the
best of them read again from the store, so that nothing is given that was forgotten meanwhile."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import EmbedderFailed, EmbedderMismatch
from ..journal.journal import Journal
from ..ports import Change, MemoryQuery, MemoryRow
from ..runtime import aside
from .embedding import Embedding
from .indexing import Indexing
from .items import Hit, Memory, Recalled
from .pools import Pool
from .ranking import Question, Ranked, rank
from .selecting import Asked, Selection, Source, Wanted, chosen_of
from .texts import Texts
from .traces import Gist, Vector, day_of
from .words import number_of, terms

_PAGE = 2_000
_KEPT = 200_000
"""Memories that are kept ready to be searched; the pools that were searched last stay."""
_NO_VECTORS = "meaning: there is no embedder, or it has made no vectors here"


class Searching:
    """Finds memories."""

    def __init__(
        self,
        journal: Journal,
        texts: Texts,
        embedding: Embedding,
        indexing: Indexing,
        source: Source | None = None,
    ) -> None:
        self._source = source
        self._journal = journal
        self._texts = texts
        self._embedding = embedding
        self._indexing = indexing
        self._pools: OrderedDict[tuple[bytes, int], Pool] = OrderedDict()
        self._lock = threading.RLock()

    def forget(self) -> None:
        """Read everything anew: somebody was erased."""
        with self._lock:
            self._pools.clear()

    async def search(self, wanted: Wanted) -> Recalled:
        """The best memories for a query. Raises `EmbedderMismatch`; without an embedder words alone are searched."""
        now = self._journal.clock.now()
        missing: tuple[str, ...] = ()
        generation, vector = 0, None
        try:
            generation = await self._embedding.generation()
            found = await self._embedding.embed([wanted.query]) if generation else None
            vector = None if found is None else found[0]
            missing = () if generation else (_NO_VECTORS,)
        except EmbedderMismatch:
            raise
        except EmbedderFailed as failure:
            missing = (f"meaning: {failure}",)
        asked = Asked(
            wanted,
            Question.read(wanted.query, day_of(now if wanted.at is None else wanted.at)),
            vector,
            generation,
            now,
        )
        ranked = await self._ranked(asked)
        hits = await self._read(ranked, wanted)
        if wanted.at is None:
            self._note(hits, generation, now)
        waiting = await self._indexing.waiting() if generation else 0
        return Recalled(tuple(hit for _, hit in hits), waiting, missing)

    def _note(self, hits: Sequence[tuple[MemoryRow, Hit]], generation: int, now: int) -> None:
        """These were recalled."""
        self._indexing.note([row.number for row, _ in hits], now)
        with self._lock:
            for row, _ in hits:
                pool = self._pools.get((row.pool, generation))
                if pool is not None:
                    pool.note(row.number)

    async def having(self, metadata: Mapping[str, Any], pools: tuple[bytes, ...], kind: str) -> list[Memory]:
        """All current memories of a kind that have these values, oldest first, whatever they say."""
        wanted = Wanted("", pools, kinds=frozenset([kind]), metadata=metadata)
        held, now = await self.held(pools), self._journal.clock.now()
        with self._lock:
            numbers = [
                number for pool in held for number in pool.column("number")[chosen_of(pool, wanted, now)].tolist()
            ]
        return await self.read(sorted(numbers))

    async def mentioning(self, name: str, pools: tuple[bytes, ...] | None) -> list[int]:
        """The numbers of the current memories that have all words of a name, the newest first."""
        wanted = Wanted(name, pools)
        held, now = await self.held(pools), self._journal.clock.now()
        found: list[tuple[int, int]] = []
        with self._lock:
            for pool in held:
                chosen = chosen_of(pool, wanted, now)
                for term in terms(name):
                    having = np.zeros(pool.size, dtype=bool)
                    posted = pool.postings(number_of(term))
                    if posted is not None:
                        having[posted[0]] = True
                    chosen &= having
                found += zip(
                    pool.column("begins")[chosen].tolist(), pool.column("number")[chosen].tolist(), strict=True
                )
        return [number for _, number in sorted(found, reverse=True)]

    async def read(self, numbers: Sequence[int]) -> list[Memory]:
        """Memories by their numbers, in that order; without those that are not current any more."""
        query = MemoryQuery(numbers=tuple(numbers), limit=len(numbers) or 1)
        rows = await self._journal.store.memories(self._journal.workspace, query) if numbers else []
        at = {number: place for place, number in enumerate(numbers)}
        return await self._texts.memories(sorted(rows, key=lambda row: at[row.number]))

    async def held(self, pools: tuple[bytes, ...] | None) -> list[Pool]:
        """Pools as they are now, in memory. Meaning is not asked for: it need not be there."""
        try:
            generation = await self._embedding.generation()
        except EmbedderFailed:
            generation = 0
        return await self._current(pools, generation)

    # -- pools

    async def _current(self, wanted: tuple[bytes, ...] | None, generation: int) -> list[Pool]:
        store, workspace = self._journal.store, self._journal.workspace
        counted = await store.pool_changes(workspace, wanted)
        found = []
        for pool in sorted(counted):
            with self._lock:
                known = self._pools.setdefault((pool, generation), Pool(self._embedding.dims if generation else 0))
                self._pools.move_to_end((pool, generation))
            while known.seen < counted[pool]:
                seen = known.seen
                changes = await store.changes(workspace, pool, generation, seen, _PAGE)
                opened = await self._opened(changes, generation)
                with self._lock:
                    if known.seen == seen:
                        self._take_in(known, changes, opened)
                if not changes:
                    break  # the count moves with the row: another look finds it
            found.append(known)
        self._let_go()
        return found

    async def _opened(self, changes: Sequence[Change], generation: int) -> dict[int, tuple[Gist, Vector | None]]:
        """What is searched of the current ones among some changes, by number."""
        dims = self._embedding.dims
        current = [one for one in changes if _is_current(one.row)]
        found: dict[int, tuple[Gist, Vector | None]] = {}
        unread: list[MemoryRow] = []
        for change in current:
            opened = await self._texts.opened(change, dims, generation)
            if opened is None:
                unread.append(change.row)
            else:
                found[change.row.number] = opened
        texts = await self._texts.of(unread)
        for row in unread:
            if row.number in texts:
                found[row.number] = (self._texts.gist(row, texts[row.number]), None)
        return found

    @staticmethod
    def _take_in(pool: Pool, changes: Sequence[Change], opened: Mapping[int, tuple[Gist, Vector | None]]) -> None:
        for change in changes:
            row = change.row
            if row.number in opened:
                gist, vector = opened[row.number]
                pool.put(row, gist, vector, change.recalled)
            else:
                pool.drop(row.number)
            pool.seen = max(pool.seen, row.changed)

    def _let_go(self) -> None:
        with self._lock:
            kept = sum(pool.size for pool in self._pools.values())
            while kept > _KEPT and len(self._pools) > 1:
                kept -= self._pools.popitem(last=False)[1].size

    async def _past(self, wanted: Wanted, generation: int) -> list[Pool]:
        """The pools as they were known at a time, made for this search alone."""
        store, workspace = self._journal.store, self._journal.workspace
        counted = await store.pool_changes(workspace, wanted.pools)
        found = []
        for name in sorted(counted):
            pool = Pool(self._embedding.dims if generation else 0)
            after = 0
            while changes := await store.changes(workspace, name, generation, after, _PAGE):
                after = changes[-1].row.changed
                then = await self._as_of(changes, wanted.at or 0)
                self._take_in(pool, then, await self._opened(then, generation))
            found.append(pool)
        return found

    async def _as_of(self, changes: Sequence[Change], time: int) -> list[Change]:
        """Rows as they were known at a time; closed if they were not. Of one that ended since then nobody knew that it
        would: it held as long as its own event says."""
        ended = [one.row for one in changes if one.row.closed is not None and one.row.ends is not None]
        said = await self._texts.of([row for row in ended if row.id and row.recorded <= time < (row.closed or 0)])
        found = []
        for change in changes:
            row = change.row
            if row.recorded > time or (row.closed is not None and row.closed <= time):
                row = row._replace(closed=row.recorded)
            else:
                ends = said[row.number].get("valid_to") if row.number in said else row.ends
                row = row._replace(closed=None, successor=None, ends=ends)
            found.append(change._replace(row=row))
        return found

    # -- ranking

    async def _ranked(self, asked: Asked) -> Ranked:
        """What is searched, ranked. This is the one place where it is decided what that is: what a source of candidates
        chose, else everything in the pools."""
        selection = None
        if self._source is not None and asked.wanted.at is None:
            selection = await self._source.candidates(asked)
        if selection is None:
            wanted, generation = asked.wanted, asked.generation
            past = wanted.at is not None
            pools = await (self._past(wanted, generation) if past else self._current(wanted.pools, generation))
            selection = Selection(pools)
        return await aside(lambda: self._rank(asked, selection))

    def _rank(self, asked: Asked, selection: Selection) -> Ranked:
        with self._lock:
            chosen = selection.chosen
            if chosen is None:
                chosen = [chosen_of(pool, asked.wanted, asked.now) for pool in selection.pools]
            return rank(asked.question, selection.pools, chosen, asked.vector, asked.wanted.weights, selection.measures)

    async def _read(self, ranked: Ranked, wanted: Wanted) -> list[tuple[MemoryRow, Hit]]:
        """The best as the store has them now; what is gone by now makes room for the next."""
        with self._lock:
            order = ranked.best(wanted.limit * 5 if wanted.diversity else wanted.limit + 5, wanted.threshold)
            if wanted.diversity:
                order = ranked.spread(order, wanted.limit * 2, wanted.diversity)
            numbers = [ranked.number(index) for index in order]
        hits: list[tuple[MemoryRow, Hit]] = []
        while order and len(hits) < wanted.limit:
            room = wanted.limit - len(hits)
            memories = await self._memories(numbers[:room], wanted.at is not None)
            for index, number in zip(order[:room], numbers[:room], strict=True):
                if number in memories:
                    row, memory = memories[number]
                    score, likeness = float(ranked.scores[index]), float(ranked.likeness[index])
                    hits.append((row, Hit(memory, score, likeness, ranked.explain(index))))
            order, numbers = order[room:], numbers[room:]
        return hits

    async def _memories(self, numbers: Sequence[int], history: bool) -> dict[int, tuple[MemoryRow, Memory]]:
        """Memories by number, without those that were forgotten or erased."""
        query = MemoryQuery(numbers=tuple(numbers), history=history, limit=len(numbers))
        rows = await self._journal.store.memories(self._journal.workspace, query)
        read = {(one.id, one.source): one for one in await self._texts.memories(rows)}
        found = ((row, read.get((row.id, f"{row.session}#{row.position}"))) for row in rows)
        return {row.number: (row, memory) for row, memory in found if memory is not None}


def _is_current(row: MemoryRow) -> bool:
    return row.closed is None and row.id != "" and row.intact
