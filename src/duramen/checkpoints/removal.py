"""Removes checkpoints: their bookmarks, the payloads of their events, and all bytes that no other checkpoint needs."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from ..crash_points import reach
from ..errors import PositionConflict, StoreBusy, shown
from ..journal.bookmarks import attached_to, attached_under
from ..journal.events import Draft
from ..journal.journal import Journal
from ..journal.owners import Owner
from ..ports import BatchChange, Bookmark, BookmarkChanges, BookmarkQuery, Chunk
from .chunks import Chunks
from .manifest import BodyRange, Manifest

_ALL = 10_000_000
_CHUNK_BODIES = 64
_TRIES = 100
_LOST = b""
"""Replaces a damaged body. The states that need it did not match their digests before, and still do not."""
RemovalTargets = Collection[str] | Callable[[], Awaitable[Collection[str]]] | None
"""Which checkpoints to remove: those with these ids, those that a function returns, or all (None)."""
OpenedBookmark = tuple[Bookmark, Manifest, Owner]


class CheckpointRemoval:
    """Removes checkpoints under one name of a session.

    Data that is still needed is moved to a new chunk log, so that the old one can be removed. A writer that cached
    the old chunk log finds it missing and reads the store again.
    """

    def __init__(self, journal: Journal, session: str, name: str) -> None:
        self._journal = journal
        self._chunks = Chunks(journal)
        self._session = session
        self._name = name

    async def remove(self, targets: RemovalTargets, reason: str) -> int:
        """Remove checkpoints with their attachments. Returns the number of checkpoints."""
        for _ in range(_TRIES):
            head = await self._journal.reader.head(self._session)
            ids = await targets() if callable(targets) else targets
            own = await self._bookmarks(self._name)
            doomed = [one for one in own if ids is None or one.id in ids]
            attached = await self._attached(None if ids is None else {one.id for one in doomed})
            if not doomed and not attached:
                return 0
            changes = await self._changes(doomed, attached)
            note = {"name": self._name, "ids": sorted(one.id for one in doomed), "reason": reason}
            owner = await self._journal.owner(None)
            prepared = [self._journal.prepare(Draft("checkpoints.dropped", note), owner)]
            reach("checkpoints.dropping")
            try:
                await self._journal.append_prepared(
                    self._session, prepared, owner, expected=head.position, changes=changes
                )
            except PositionConflict:
                continue  # another writer appended, perhaps a state that needs the data to be removed
            return len(doomed)
        raise StoreBusy(
            f"other writers kept appending to session {shown(self._session)}",
            hint="try again when fewer writers are active",
        )

    async def _bookmarks(self, name: str) -> Sequence[Bookmark]:
        journal = self._journal
        return await journal.store.bookmarks(journal.workspace, self._session, BookmarkQuery(name, limit=_ALL))

    async def _attached(self, ids: Collection[str] | None) -> list[Bookmark]:
        """The attachments of these checkpoints. For None: all attachments, including those of checkpoints that were
        never saved."""
        names = [attached_to(self._name, one) for one in ids or ()]
        if ids is None:
            journal, prefix = self._journal, attached_under(self._name)
            names = await journal.store.bookmark_names(journal.workspace, self._session, prefix)
        return [bookmark for name in names for bookmark in await self._bookmarks(name)]

    async def _changes(self, doomed: list[Bookmark], attached: list[Bookmark]) -> Sequence[BatchChange]:
        removed = {(one.name, one.id) for one in (*doomed, *attached)}
        kept: list[OpenedBookmark] = []
        lost: list[OpenedBookmark] = []
        for bookmark in await self._bookmarks_with_manifest():
            opened = await self._open(bookmark)
            if opened is not None:
                (lost if (bookmark.name, bookmark.id) in removed else kept).append((bookmark, *opened))
        needed = merge_ranges(_all_ranges(kept))
        rewritten: list[Bookmark] = []
        chunks: list[Chunk] = []
        chunk_logs: list[int] | None = None
        if not kept or merge_ranges([*needed, *_all_ranges(lost)]) != needed:
            rewritten, chunks = await self._relocated(kept)
            chunk_logs = sorted({chunk.chunk_log for chunk in chunks})
        positions = [one.position for one in (*doomed, *attached) if one.intact]
        return (
            BookmarkChanges(
                rewritten=rewritten,
                chunks=chunks,
                removed=sorted(removed),
                only_chunk_logs=chunk_logs,
                stripped=await self._journal.bookmarks.digests(self._session, positions),
            ),
        )

    async def _bookmarks_with_manifest(self) -> list[Bookmark]:
        """Every bookmark of the session that has a manifest, newest first. All of them share chunk logs."""
        journal, found = self._journal, []
        for name in await journal.store.bookmark_names(journal.workspace, self._session, ""):
            found += [one for one in await self._bookmarks(name) if one.manifest is not None]
        return sorted(found, key=lambda one: one.position, reverse=True)

    async def _open(self, bookmark: Bookmark) -> tuple[Manifest, Owner] | None:
        """The manifest of a bookmark and its owner; None if it cannot be read."""
        owner = await self._journal.bookmarks.owner_of(bookmark.owner)
        if bookmark.manifest is None or owner is None or not bookmark.intact:
            return None
        try:
            return await self._chunks.open_manifest(self._session, bookmark, owner), owner
        except ValueError:
            return None

    async def _relocated(self, kept: list[OpenedBookmark]) -> tuple[list[Bookmark], list[Chunk]]:
        """The remaining bookmarks, and their data in new chunk logs, one for each owner. Damaged data stays damaged."""
        rewritten: list[Bookmark] = []
        chunks: list[Chunk] = []
        by_owner: dict[bytes | None, list[OpenedBookmark]] = {}
        for one in kept:
            by_owner.setdefault(one[0].owner, []).append(one)
        for group in by_owner.values():
            owner = group[0][2]
            needed = in_first_use_order(one for _, manifest, _ in group for one in manifest.ranges())
            bodies = await self._chunks.bodies(self._session, needed, owner)
            places = [(chunk_log, index) for chunk_log, first, last in needed for index in range(first, last)]
            chunk_log = int.from_bytes(self._journal.ids.random(6), "big")
            ordered = [bodies.get(place, _LOST) for place in places]
            for start in range(0, len(ordered), _CHUNK_BODIES):
                some = ordered[start : start + _CHUNK_BODIES]
                chunks.append(self._chunks.seal_chunk(self._session, chunk_log, start, some, owner))
            relocate = relocation(needed, chunk_log)
            for bookmark, manifest, _ in group:
                packed = manifest.relocated(relocate, chunk_log, len(ordered))
                sealed = self._chunks.seal_manifest(self._session, bookmark.name, bookmark.id, packed, owner)
                rewritten.append(bookmark._replace(manifest=sealed))
        return rewritten, chunks


def _all_ranges(opened: Iterable[OpenedBookmark]) -> list[BodyRange]:
    return [one for _, manifest, _ in opened for one in (*manifest.ranges(), *manifest.page_ranges)]


def merge_ranges(ranges: Iterable[BodyRange]) -> list[BodyRange]:
    """The same bodies in as few ranges as possible, in order."""
    found: list[BodyRange] = []
    for one in sorted(ranges):
        if found and found[-1].chunk_log == one.chunk_log and one.first <= found[-1].last:
            found[-1] = BodyRange(one.chunk_log, found[-1].first, max(found[-1].last, one.last))
        elif one.first < one.last:
            found.append(one)
    return found


def in_first_use_order(ranges: Iterable[BodyRange]) -> list[BodyRange]:
    """The same bodies in the order of their first use, each once, so that lists become contiguous."""
    placed: dict[int, list[BodyRange]] = {}
    found: list[BodyRange] = []
    for one in ranges:
        there = placed.setdefault(one.chunk_log, [])
        at = max(bisect_right(there, BodyRange(one.chunk_log, one.first, 2**62)) - 1, 0)
        first = one.first
        pieces = []
        while first < one.last:
            while at < len(there) and there[at].last <= first:
                at += 1
            stop = min(one.last, there[at].first) if at < len(there) else one.last
            if first < stop:
                pieces.append(BodyRange(one.chunk_log, first, stop))
            first = there[at].last if at < len(there) else one.last
        for piece in pieces:
            insort(there, piece)
        found += pieces
    return found


def relocation(needed: list[BodyRange], chunk_log: int) -> Callable[[BodyRange], list[BodyRange]]:
    """A function that returns where a range is stored after all needed ranges have moved to a new chunk log, in this
    order."""
    passed, starts = 0, []
    for one in needed:
        starts.append((one, passed))
        passed += one.last - one.first
    starts.sort()

    def relocate(one: BodyRange) -> list[BodyRange]:
        at = bisect_right(starts, (BodyRange(one.chunk_log, one.first, 2**62), 0)) - 1
        first, moved = one.first, []
        while first < one.last:
            piece, start = starts[at]
            stop = min(one.last, piece.last)
            moved.append(BodyRange(chunk_log, start + first - piece.first, start + stop - piece.first))
            first, at = stop, at + 1
        return moved

    return relocate
