"""Counts how often a procedure worked, and estimates how reliable it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from math import sqrt
from typing import Any, NamedTuple

from ...journal.journal import Journal
from ...journal.owners import Owner
from ...journal.reader import PAGE
from ...ports import Bookmark, BookmarkQuery

WORKED, FAILED = "procedure.succeeded", "procedure.failed"
COUNTS = "tally"
"""The name of the bookmarks on the newest outcome of each saved version. Their ids are the positions of these
versions."""
_FEW = 20
"""Up to this many bookmarks are looked up by id. If there are more, all bookmarks are read."""
_Z = 1.96
"""Standard deviations of a 95 % confidence interval."""


class OutcomeCounts(NamedTuple):
    """Successes and failures so far."""

    successes: int = 0
    failures: int = 0

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> OutcomeCounts:
        """The counts in an outcome's event."""
        return cls(int(data["successes"]), int(data["failures"]))

    def plus(self, worked: bool) -> OutcomeCounts:
        """The counts after one more outcome."""
        return OutcomeCounts(self.successes + worked, self.failures + (not worked))

    @property
    def rate(self) -> float | None:
        """The share that worked; None before the first outcome."""
        tried = self.successes + self.failures
        return self.successes / tried if tried else None

    @property
    def bound(self) -> float:
        """The lower bound of the rate at 95 % confidence (Wilson interval): 1 of 1 gives 0.21, 98 of 100 give 0.93."""
        tried = self.successes + self.failures
        if not tried:
            return 0.0
        spread = _Z * sqrt(self.successes * self.failures / tried + _Z * _Z / 4) / (tried + _Z * _Z)
        return max(0.0, self._centre - spread)

    @property
    def _centre(self) -> float:
        """The middle of the Wilson interval: 0.5 before the first outcome, then closer to the rate with each one."""
        return (self.successes + _Z * _Z / 2) / (self.successes + self.failures + _Z * _Z)

    def weigh(self, importance: float) -> float:
        """The importance, adjusted by these outcomes, from 0 to 1. It uses the middle of the interval, not the lower
        bound: a procedure that worked once must not rank below one that was never tried."""
        return min(1.0, max(0.0, importance + self._centre - 0.5))


class OutcomeLog:
    """The outcomes of the procedures of a session. The newest outcome has the counts, and a bookmark on it."""

    def __init__(self, journal: Journal, session: str) -> None:
        self._journal = journal
        self._session = session

    @staticmethod
    def bookmark(position: int, owner: Owner) -> Bookmark:
        """The bookmark to set on an outcome, which must be the first event of its append."""
        return Bookmark(COUNTS, str(position), 0, 0, owner=owner.ref)

    async def counts(self, positions: Sequence[int]) -> dict[int, OutcomeCounts]:
        """The counts of saved versions, by position. Versions without an outcome are left out."""
        marked: dict[str, int] = {}
        for id in map(str, positions) if len(positions) <= _FEW else (None,):
            async with aclosing(self._bookmarks(id)) as marks:
                marked |= {one.id: await self._place(one) async for one in marks}
        wanted = {marked[str(position)]: position for position in positions if str(position) in marked}
        events = await self._journal.bookmarks.events(self._session, sorted(wanted))
        return {wanted[one.position]: OutcomeCounts.of(one.data) for one in events if not one.erased}

    async def _bookmarks(self, id: str | None) -> AsyncGenerator[Bookmark, None]:
        async with aclosing(self._journal.bookmarks.find(self._session, BookmarkQuery(COUNTS, id))) as found:
            async for one in found:
                yield one.bookmark

    async def _place(self, mark: Bookmark) -> int:
        """The position of the newest outcome. If the bookmark is damaged, the journal is read."""
        if mark.intact or not mark.id.isdecimal():
            return mark.position
        return max(await self.positions({int(mark.id)}), default=0)

    async def positions(self, positions: set[int]) -> list[int]:
        """The positions of all outcomes of the versions saved at these positions."""
        found: list[int] = []
        reading, types = self._journal.reader, frozenset({WORKED, FAILED})
        async with aclosing(reading.pages(self._session, 1, None, types, PAGE)) as pages:
            async for page in pages:
                found += [one.position for one in page if not one.erased and one.data.get("of") in positions]
        return found
