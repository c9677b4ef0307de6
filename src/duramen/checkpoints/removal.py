"""Removing checkpoints: their bookmarks, their events' payloads, and every byte that no other checkpoint is made of."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from ..crash_points import reach
from ..errors import PositionConflict, StoreBusy
from ..journal.bookmarks import attached_to, attached_under
from ..journal.events import Draft
from ..journal.journal import Journal
from ..journal.owners import Owner
from ..ports import Beside, Bookmark, BookmarkQuery, Chunk
from .chunks import Chunks
from .manifest import Manifest, Span

_ALL = 10_000_000
_PART_ITEMS = 64
_TRIES = 100
_LOST = b""
"""In place of a body that is damaged: what is made of it does not match its digest, now as before."""
Doomed = Collection[str] | Callable[[], Awaitable[Collection[str]]] | None
"""Which checkpoints are to go: those with these ids, what a function says, or all."""
State = tuple[Bookmark, Manifest, Owner]
"""A bookmark with its manifest opened, and whose it is."""


class Dropping:
    """Removes checkpoints under one name of a session. What stays is moved to a new chunk_log, so that the old one can go
    whole: whoever still counts on the old one finds it gone, and looks again."""

    def __init__(self, journal: Journal, session: str, name: str) -> None:
        self._journal = journal
        self._chunks = Chunks(journal)
        self._session = session
        self._name = name

    async def drop(self, wanted: Doomed, reason: str) -> int:
        """Remove those with these ids, or all. Returns how many there were."""
        for _ in range(_TRIES):
            head = await self._journal.reader.head(self._session)
            ids = await wanted() if callable(wanted) else wanted
            own = await self._own(self._name)
            doomed = [one for one in own if ids is None or one.id in ids]
            attached = await self._attached(None if ids is None else {one.id for one in doomed})
            if not doomed and not attached:
                return 0
            beside = await self._beside(doomed, attached)
            note = {"name": self._name, "ids": sorted(one.id for one in doomed), "reason": reason}
            owner = await self._journal.owner(None)
            prepared = [self._journal.prepare(Draft("checkpoints.dropped", note), owner)]
            reach("checkpoints.dropping")
            try:
                await self._journal.append_prepared(
                    self._session, prepared, owner, expected=head.position, beside=beside
                )
            except PositionConflict:
                continue  # somebody wrote meanwhile, perhaps a state of bytes that were about to go
            return len(doomed)
        raise StoreBusy(f"others write to session {self._session!r} all the time", hint="try again when it is quieter")

    async def _own(self, name: str) -> Sequence[Bookmark]:
        journal = self._journal
        return await journal.store.bookmarks(journal.workspace, self._session, BookmarkQuery(name, limit=_ALL))

    async def _attached(self, ids: Collection[str] | None) -> list[Bookmark]:
        """What is attached to these checkpoints; to any, also to such as never came (None)."""
        names = [attached_to(self._name, one) for one in ids or ()]
        if ids is None:
            journal, prefix = self._journal, attached_under(self._name)
            names = await journal.store.bookmark_names(journal.workspace, self._session, prefix)
        return [bookmark for name in names for bookmark in await self._own(name)]

    async def _beside(self, doomed: list[Bookmark], attached: list[Bookmark]) -> Beside:
        gone = {(one.name, one.id) for one in (*doomed, *attached)}
        kept: list[State] = []
        lost: list[State] = []
        for bookmark in await self._all_states():
            opened = await self._manifest(bookmark)
            if opened is not None:
                (lost if (bookmark.name, bookmark.id) in gone else kept).append((bookmark, *opened))
        needed = union(span for _, manifest, _ in kept for span in (*manifest.spans(), *manifest.own))
        rewritten: list[Bookmark] = []
        chunks: list[Chunk] = []
        chunk_logs: list[int] | None = None
        if (
            not kept
            or union([*needed, *(span for _, manifest, _ in lost for span in (*manifest.spans(), *manifest.own))])
            != needed
        ):
            rewritten, chunks = await self._moved(kept)
            chunk_logs = sorted({chunk.chunk_log for chunk in chunks})
        positions = [one.position for one in (*doomed, *attached) if one.intact]
        return Beside(
            rewritten=rewritten,
            chunks=chunks,
            removed=sorted(gone),
            only_chunk_logs=chunk_logs,
            stripped=await self._journal.bookmarks.digests(self._session, positions),
        )

    async def _all_states(self) -> list[Bookmark]:
        """Every bookmark of the session that has a manifest, newest first: they all share chunk_logs."""
        journal, found = self._journal, []
        for name in await journal.store.bookmark_names(journal.workspace, self._session, ""):
            found += [one for one in await self._own(name) if one.manifest is not None]
        return sorted(found, key=lambda one: one.position, reverse=True)

    async def _manifest(self, bookmark: Bookmark) -> tuple[Manifest, Owner] | None:
        """The manifest of a bookmark that has one that can be read."""
        owner = await self._journal.bookmarks.owner_of(bookmark.owner)
        if bookmark.manifest is None or owner is None or not bookmark.intact:
            return None
        try:
            return await self._chunks.open_manifest(self._session, bookmark, owner), owner
        except ValueError:
            return None

    async def _moved(self, kept: list[State]) -> tuple[list[Bookmark], list[Chunk]]:
        """What stays, made of new chunk_logs, one for each owner. What is damaged stays as it is: it cannot be helped."""
        rewritten: list[Bookmark] = []
        chunks: list[Chunk] = []
        by_owner: dict[bytes | None, list[State]] = {}
        for state in kept:
            by_owner.setdefault(state[0].owner, []).append(state)
        for group in by_owner.values():
            owner = group[0][2]
            needed = in_order(span for _, manifest, _ in group for span in manifest.spans())
            bodies = await self._chunks.bodies(self._session, needed, owner)
            places = [(chunk_log, index) for chunk_log, first, last in needed for index in range(first, last)]
            chunk_log = int.from_bytes(self._journal.ids.random(6), "big")
            ordered = [bodies.get(place, _LOST) for place in places]
            for start in range(0, len(ordered), _PART_ITEMS):
                chunk = ordered[start : start + _PART_ITEMS]
                chunks.append(self._chunks.chunk(self._session, chunk_log, start, chunk, owner))
            move = mover(needed, chunk_log)
            for bookmark, manifest, _ in group:
                moved = manifest.moved(move, chunk_log, len(ordered))
                sealed = self._chunks.seal_manifest(self._session, bookmark.name, bookmark.id, moved, owner)
                rewritten.append(bookmark._replace(manifest=sealed))
        return rewritten, chunks


def union(spans: Iterable[Span]) -> list[Span]:
    """The same items in as few spans as there can be, in order."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and found[-1].chunk_log == span.chunk_log and span.first <= found[-1].last:
            found[-1] = Span(span.chunk_log, found[-1].first, max(found[-1].last, span.last))
        elif span.first < span.last:
            found.append(span)
    return found


def in_order(spans: Iterable[Span]) -> list[Span]:
    """The same items in the order in which they are first named, each once: lists come in one piece."""
    placed: dict[int, list[Span]] = {}
    found: list[Span] = []
    for span in spans:
        there = placed.setdefault(span.chunk_log, [])
        at = max(bisect_right(there, Span(span.chunk_log, span.first, 2**62)) - 1, 0)
        first = span.first
        pieces = []
        while first < span.last:
            while at < len(there) and there[at].last <= first:
                at += 1
            stop = min(span.last, there[at].first) if at < len(there) else span.last
            if first < stop:
                pieces.append(Span(span.chunk_log, first, stop))
            first = there[at].last if at < len(there) else span.last
        for piece in pieces:
            insort(there, piece)
        found += pieces
    return found


def mover(needed: list[Span], chunk_log: int) -> Callable[[Span], list[Span]]:
    """Where a span lies once all that is needed follows on each other in a new chunk_log."""
    passed, places = 0, []
    for span in needed:
        places.append((span, passed))
        passed += span.last - span.first
    places.sort()

    def move(span: Span) -> list[Span]:
        at = bisect_right(places, (Span(span.chunk_log, span.first, 2**62), 0)) - 1
        first, moved = span.first, []
        while first < span.last:
            piece, start = places[at]
            stop = min(span.last, piece.last)
            moved.append(Span(chunk_log, start + first - piece.first, start + stop - piece.first))
            first, at = stop, at + 1
        return moved

    return move
