"""Checkpoints: a session's state as of an event. Only new data is written.

A checkpoint consists of an event with the digest of the state, a bookmark with its manifest, and a chunk with the
bodies that were not stored before. One transaction writes all three.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import CheckpointConflict, CheckpointDamaged, InvalidInput, JournalDamaged, PositionConflict, shown
from ..journal.bookmarks import ATTACHED, Found, attached_to
from ..journal.events import Draft, check_name
from ..journal.journal import Journal
from ..journal.owners import Owner
from ..ports import Bookmark, BookmarkChanges, BookmarkQuery
from .chunks import Chunks
from .manifest import Fields
from .removal import CheckpointRemoval, RemovalTargets
from .write_batcher import StateWrite
from .writer import StateWriter

ANYTHING: Any = object()
"""A value of `after`: the newest checkpoint is not checked."""
_LATEST = 2**62
_CACHED_NEWEST = 10_000


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint: its position, the note that was saved with it and, once loaded, its fields.

    `skipped` holds the errors of newer checkpoints that could not be read.
    """

    session: str
    name: str
    id: str
    position: int
    time: int
    pinned: bool
    note: dict[str, Any]
    digest: bytes
    fields: dict[str, Any] | None = None
    skipped: tuple[CheckpointDamaged, ...] = ()


class Attachment(NamedTuple):
    """An event that belongs to a checkpoint: its position, its data, and its own fields if it has any."""

    position: int
    data: dict[str, Any]
    fields: dict[str, Any] | None


class Checkpoints:
    """The checkpoints of one workspace. Safe to share between threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._chunks = Chunks(journal)
        self._writer = StateWriter(journal)
        self._newest: dict[tuple[str, str], str] = {}

    # -- saving

    async def save(
        self,
        session: str,
        name: str,
        fields: Fields,
        note: dict[str, Any],
        *,
        id: str | None = None,
        type: str = "checkpoint",
        after: Any = ANYTHING,
        subject: str | None = None,
        expires: int | None = None,
        pinned: bool = False,
        fence: int | None = None,
        like: str | None = None,
        actor: str | None = None,
        also: tuple[Bookmark, ...] = (),
    ) -> StoredCheckpoint:
        """Store a state; durable on return. It replaces an older checkpoint with the same id.

        Raises `CheckpointConflict` if `after` is not the newest checkpoint, or if `after` is None and there is one. A
        writer with an empty cache encodes the state against the newest one under this name, or under the name `like`.
        """
        _check(session, name)
        if subject is not None:
            subject = check_name("subject", subject)
        id = self._journal.ids.random(9).hex() if id is None else check_name("checkpoint", id)
        if expires is not None and not 0 <= expires <= _LATEST:
            raise InvalidInput(f"`expires` cannot be {shown(expires)}", hint="give microseconds since 1970")
        cached = after is not None and after == self._newest.get((session, name))
        expected = None
        if after is not ANYTHING:  # a cached id needs no read: the store compares it anyway
            expected = (name, after if cached else await self._expected_own(session, name, after))
        bookmark = Bookmark(name, id, 0, 0, expires, pinned)
        names = (name, like or name)
        write = StateWrite(session, name, bookmark, fields, type, note, subject, fence, expected, names, actor, also)
        try:
            stored = await self._writer.store(write)
        except CheckpointConflict as conflict:
            self._newest.pop((session, name), None)
            if not cached:
                raise CheckpointConflict(session, name, after, conflict.found) from None
            write = write._replace(after=(name, await self._expected_own(session, name, after)))
            stored = await self._writer.store(write)
        self._cache_newest(session, name, id)
        return StoredCheckpoint(session, name, id, stored.position, stored.time, pinned, stored.note, stored.digest)

    def _cache_newest(self, session: str, name: str, id: str) -> None:
        """Cache the id of the newest checkpoint under a name."""
        if len(self._newest) > _CACHED_NEWEST:
            self._newest.clear()
        self._newest[session, name] = id

    async def _expected_own(self, session: str, name: str, after: str | None) -> str | None:
        """The id that the newest of the session's own checkpoints must have, given that `after` must be the newest
        readable one. None if a fork shares that one with its parent."""
        own: str | None = None
        async for found in self._journal.bookmarks.find(session, BookmarkQuery(name), page=1):
            if own is None and found.session == session:
                own = found.bookmark.id
            if found.bookmark.id == after:
                return own
            if await self._is_readable(found):
                raise CheckpointConflict(session, name, after, found.bookmark.id)
        if after is not None:
            raise CheckpointConflict(session, name, after, None)
        return own

    async def _is_readable(self, found: Found) -> bool:
        try:
            return await self._with_fields(found) is not None
        except CheckpointDamaged:
            return False

    async def attach(
        self,
        session: str,
        name: str,
        id: str,
        data: dict[str, Any],
        *,
        type: str,
        fields: Fields | None = None,
        can_wait: bool = False,
    ) -> None:
        """Append an event that belongs to the checkpoint `id`, such as the writes of a graph; durable on return.

        It may have fields of its own. With `can_wait`, it may wait a moment for the next checkpoint, and is stored
        together with it.
        """
        _check(session, name)
        bookmark = Bookmark(attached_to(name, check_name("checkpoint", id)), self._journal.ids.random(6).hex(), 0, 0)
        write = StateWrite(
            session, None, bookmark, fields or {}, type, data, None, None, None, (name,), can_wait=can_wait
        )
        await self._writer.store(write)

    # -- reading

    async def load(
        self, session: str, name: str, *, id: str | None = None, at: int | None = None, until: int | None = None
    ) -> StoredCheckpoint | None:
        """The newest checkpoint, at or before a position or a time, or the one with an id; None if there is none.

        If the newest one is damaged, the one before it is returned, with the error in `skipped`. Raises
        `CheckpointDamaged` if all are damaged, or the one with the `id` is.
        """
        _check(session, name)
        skipped: tuple[CheckpointDamaged, ...] = ()
        query = BookmarkQuery(name, id, _bounded(at), _bounded(until))
        async for found in self._journal.bookmarks.find(session, query, page=1):
            try:
                saved = await self._with_fields(found)
            except CheckpointDamaged as damage:
                if id is not None:
                    raise
                skipped += (damage,)
                continue
            if saved is not None:
                if query[1:4] == (None, None, None) and not skipped and saved.session == session:
                    self._cache_newest(session, name, saved.id)
                return replace(saved, skipped=skipped)
        if skipped:
            raise skipped[0]
        return None

    async def list(
        self, session: str, name: str, *, before: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[StoredCheckpoint, None]:
        """Checkpoints without their fields, newest first; with `before`, only those before the checkpoint with that
        id.

        Damaged checkpoints are left out: `load` and `verify` report them.
        """
        _check(session, name)
        upto = None
        if before is not None:
            async for found in self._journal.bookmarks.find(session, BookmarkQuery(name, before), page=1):
                upto = found.bookmark.position - 1
                break
            else:
                return
        given: set[str] = set()
        async for found in self._journal.bookmarks.find(session, BookmarkQuery(name, upto=upto)):
            if limit is not None and len(given) >= limit:
                return
            if found.bookmark.id in given:
                continue  # a fork has saved the same id again, and the newer one counts
            try:
                saved = await self._header(found)
            except CheckpointDamaged:
                continue
            if saved is not None:
                given.add(saved.id)
                yield saved

    async def load_fields(self, saved: StoredCheckpoint) -> StoredCheckpoint:
        """A listed checkpoint with its fields. Raises `CheckpointDamaged`, also if it was removed since."""
        async for found in self._journal.bookmarks.find(saved.session, BookmarkQuery(saved.name, saved.id), page=1):
            filled = await self._with_fields(found)
            if filled is not None:
                return filled
        raise CheckpointDamaged(saved.session, saved.name, saved.id, "it was dropped or erased")

    async def _header(self, found: Found) -> StoredCheckpoint | None:
        """A checkpoint without its fields; None if its payload was removed."""
        name, id, position, time, _, pinned, _, _, intact = found.bookmark
        if not intact:
            raise CheckpointDamaged(found.session, name, id, "its row does not match its checksum")
        try:
            events = await self._journal.bookmarks.events(found.session, [position])
        except JournalDamaged as damage:
            raise CheckpointDamaged(found.session, name, id, f"its event: {damage.reason}") from damage
        if not events:
            raise CheckpointDamaged(found.session, name, id, "its event is missing")
        if events[0].erased:
            return None
        note, digest = events[0].data["note"], events[0].data["digest"]
        return StoredCheckpoint(found.session, name, id, position, time, pinned, note, digest)

    async def _with_fields(self, found: Found) -> StoredCheckpoint | None:
        """A checkpoint with its fields; None if it was removed. If it does not match, it is read again, because
        another process may have moved or removed it meanwhile."""
        while True:
            try:
                return await self._read(found)
            except CheckpointDamaged:
                again = await self._reread(found)
                if again == found.bookmark:
                    raise
                if again is None:
                    return None
                found = found._replace(bookmark=again)

    async def _reread(self, found: Found) -> Bookmark | None:
        query = BookmarkQuery(found.bookmark.name, found.bookmark.id)
        rows = await self._journal.store.bookmarks(self._journal.workspace, found.session, query)
        return rows[0] if rows else None

    async def _read(self, found: Found) -> StoredCheckpoint | None:
        saved = await self._header(found)
        owner = await self._journal.bookmarks.owner_of(found.bookmark.owner)
        if saved is None or owner is None:
            return None
        try:
            manifest = await self._chunks.open_manifest(found.session, found.bookmark, owner)
            state = await self._writer.assemble(found.session, manifest, owner)
        except ValueError as error:
            raise CheckpointDamaged(saved.session, saved.name, saved.id, str(error)) from error
        if state.digest != saved.digest:
            raise CheckpointDamaged(saved.session, saved.name, saved.id, "its state does not match its digest")
        await self._writer.cache_base(saved.session, saved.name, owner, manifest, state.stored)
        return replace(saved, fields=state.fields)

    async def attachments(self, session: str, name: str, id: str) -> Sequence[Attachment]:
        """The attachments of a checkpoint, oldest first."""
        _check(session, name)
        query = BookmarkQuery(attached_to(name, check_name("checkpoint", id)))
        found = [one async for one in self._journal.bookmarks.find(session, query)]
        given = []
        for one in sorted(found, key=lambda one: one.bookmark.position):
            saved = await self._with_fields(one)
            if saved is not None:
                given.append(Attachment(saved.position, saved.note, saved.fields or None))
        return given

    async def names(self, session: str, prefix: str = "") -> Sequence[str]:
        """The names under which the session has checkpoints, including those that it shares with its parents."""
        journal = self._journal
        names = set(await journal.store.bookmark_names(journal.workspace, session, prefix))
        for origin, _, last in await journal.reader.lineage(session):
            for name in await journal.store.bookmark_names(journal.workspace, origin, prefix):
                query = BookmarkQuery(name, upto=last)
                if name not in names and await journal.store.bookmarks(journal.workspace, origin, query):
                    names.add(name)
        return sorted(name for name in names if not name.startswith(ATTACHED))

    # -- changing

    def forget(self) -> None:
        """Drop cached states from memory. Call it after an erasure."""
        self._writer.forget(None)

    async def drop(self, session: str, name: str, ids: RemovalTargets, *, reason: str) -> int:
        """Remove checkpoints of a session, their attachments, and every byte that only they need. Returns how many
        were removed.

        `ids` may be None (all under the name) or a function, which is called again if other writers append meanwhile.
        A fork that shares the checkpoints loses them too.
        """
        _check(session, name)
        self._writer.forget(session)
        return await CheckpointRemoval(self._journal, session, name).remove(ids, reason)

    async def pin(self, session: str, name: str, id: str, pinned: bool) -> bool:
        """Protect a checkpoint of this session from expiring, or stop protecting it. Returns False if there is none
        with this id."""
        _check(session, name)
        query = BookmarkQuery(name, check_name("checkpoint", id))
        while True:
            head = await self._journal.reader.head(session)
            rows = await self._journal.store.bookmarks(self._journal.workspace, session, query)
            if not rows or not rows[0].intact:
                return False
            note = {"name": name, "id": id, "pinned": pinned}
            owner: Owner = await self._journal.owner(None)
            prepared = [self._journal.prepare(Draft("checkpoint.pinned", note), owner)]
            changes = (BookmarkChanges(rewritten=(rows[0]._replace(pinned=pinned),)),)
            try:
                await self._journal.append_prepared(session, prepared, owner, expected=head.position, changes=changes)
            except PositionConflict:
                continue  # a removal may have moved its state
            return True


def _check(session: str, name: str) -> None:
    check_name("session", session)
    if check_name("name", name).startswith(ATTACHED):
        raise InvalidInput(
            f"the name {shown(name)} begins with {shown(ATTACHED)}, which is reserved", hint="begin with a letter"
        )


def _bounded(place: int | None) -> int | None:
    return None if place is None else max(0, min(place, _LATEST))
