"""Checkpoints: a session's state as of an event, stored as what is new in it.

A checkpoint is an event with the digest of the state, a bookmark with the manifest that says which stored bodies the state
is made of, and the bodies that were not there yet: all in one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import CheckpointConflict, CheckpointDamaged, InvalidInput, JournalDamaged, PositionConflict
from ..journal.bookmarks import ATTACHED, Found, attached_to
from ..journal.events import Draft, check_name
from ..journal.journal import Journal
from ..journal.owners import Owner
from ..ports import Beside, Bookmark, BookmarkQuery
from .chunks import Chunks
from .manifest import Fields
from .removal import Doomed, Dropping
from .write_batcher import Order
from .writer import Weaver

ANYTHING: Any = object()
"""Whatever the newest checkpoint is, this one follows it."""
_LATEST = 2**62
_REMEMBERED = 10_000


class Saved(msgspec.Struct, frozen=True):
    """A checkpoint: where it lies, what was noted with it, and, once they are read, its fields. `skipped` are the newer
    ones that could not be read, and why."""

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


class Attached(NamedTuple):
    """What was attached to a checkpoint: where it lies, its data, and its own fields, if it has some."""

    position: int
    data: dict[str, Any]
    fields: dict[str, Any] | None


class Checkpoints:
    """The checkpoints of one workspace. Safe to share between threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._chunks = Chunks(journal)
        self._weaver = Weaver(journal)
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
    ) -> Saved:
        """Store a state; durable on return. Under an id that is there already, it takes the older one's place. Raises
        `CheckpointConflict` if `after` is not the newest (None: if there is one). A writer that remembers nothing looks
        at the newest under this name, or `like` another."""
        _check(session, name)
        if subject is not None:
            check_name("subject", subject)
        id = self._journal.ids.random(9).hex() if id is None else check_name("checkpoint", id)
        if expires is not None and not 0 <= expires <= _LATEST:
            raise InvalidInput(f"{expires!r} cannot be `expires`", hint="give microseconds since 1970")
        remembered = after is not None and after == self._newest.get((session, name))
        expected = None
        if after is not ANYTHING:  # what is remembered need not be read first: the store compares it anyway
            expected = (name, after if remembered else await self._own_newest(session, name, after))
        bookmark = Bookmark(name, id, 0, 0, expires, pinned)
        names = (name, like or name)
        order = Order(session, name, bookmark, fields, type, note, subject, fence, expected, names, actor, also)
        try:
            stored = await self._weaver.store(order)
        except CheckpointConflict as conflict:
            self._newest.pop((session, name), None)
            if not remembered:
                raise CheckpointConflict(session, name, after, conflict.found) from None
            order = order._replace(after=(name, await self._own_newest(session, name, after)))
            stored = await self._weaver.store(order)
        self._remember(session, name, id)
        return Saved(session, name, id, stored.position, stored.time, pinned, stored.note, stored.digest)

    def _remember(self, session: str, name: str, id: str) -> None:
        """What is the newest under a name, as far as this handle knows."""
        if len(self._newest) > _REMEMBERED:
            self._newest.clear()
        self._newest[session, name] = id

    async def _own_newest(self, session: str, name: str, after: str | None) -> str | None:
        """What the newest of the session's own checkpoints must be if `after` is to be the newest that can be read:
        none, if that is one that a fork shares with its parent."""
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
            return await self._filled(found) is not None
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
        patient: bool = False,
    ) -> None:
        """An event that belongs to the checkpoint `id` of a name, such as the writes of a graph, with a state of its
        own if it has one; durable on return. A patient one may wait a moment for the next checkpoint, which stores it
        along with itself."""
        _check(session, name)
        bookmark = Bookmark(attached_to(name, check_name("checkpoint", id)), self._journal.ids.random(6).hex(), 0, 0)
        order = Order(session, None, bookmark, fields or {}, type, data, None, None, None, (name,), patient=patient)
        await self._weaver.store(order)

    # -- reading

    async def load(
        self, session: str, name: str, *, id: str | None = None, at: int | None = None, until: int | None = None
    ) -> Saved | None:
        """The newest checkpoint, at or before a position or a time, or the one with an id; None if there is none. If it
        is damaged, the one before it is given, which says so; asked for by id, `CheckpointDamaged` is raised."""
        _check(session, name)
        skipped: tuple[CheckpointDamaged, ...] = ()
        query = BookmarkQuery(name, id, _bounded(at), _bounded(until))
        async for found in self._journal.bookmarks.find(session, query, page=1):
            try:
                saved = await self._filled(found)
            except CheckpointDamaged as damage:
                if id is not None:
                    raise
                skipped += (damage,)
                continue
            if saved is not None:
                if query[1:4] == (None, None, None) and not skipped and saved.session == session:
                    self._remember(session, name, saved.id)
                return replace(saved, skipped=skipped)
        if skipped:
            raise skipped[0]
        return None

    async def list(
        self, session: str, name: str, *, before: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[Saved, None]:
        """Checkpoints without their fields, newest first; those before the one with the id `before`. Damaged ones are
        left out: `load` and `verify` tell of them."""
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
                continue  # a fork saved it again: that is the one which counts
            try:
                saved = await self._noted(found)
            except CheckpointDamaged:
                continue
            if saved is not None:
                given.add(saved.id)
                yield saved

    async def fill(self, saved: Saved) -> Saved:
        """A checkpoint with its fields read. Raises `CheckpointDamaged`, also if it is there no longer."""
        async for found in self._journal.bookmarks.find(saved.session, BookmarkQuery(saved.name, saved.id), page=1):
            filled = await self._filled(found)
            if filled is not None:
                return filled
        raise CheckpointDamaged(saved.session, saved.name, saved.id, "it was dropped or erased")

    async def _noted(self, found: Found) -> Saved | None:
        """A checkpoint from its event; None if its payload is gone."""
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
        return Saved(found.session, name, id, position, time, pinned, note, digest)

    async def _filled(self, found: Found) -> Saved | None:
        """A checkpoint with its fields; None if it is gone. What does not match is looked at again: somebody may have
        moved or removed it while we read."""
        while True:
            try:
                return await self._read(found)
            except CheckpointDamaged:
                again = await self._again(found)
                if again == found.bookmark:
                    raise
                if again is None:
                    return None
                found = found._replace(bookmark=again)

    async def _again(self, found: Found) -> Bookmark | None:
        query = BookmarkQuery(found.bookmark.name, found.bookmark.id)
        rows = await self._journal.store.bookmarks(self._journal.workspace, found.session, query)
        return rows[0] if rows else None

    async def _read(self, found: Found) -> Saved | None:
        saved = await self._noted(found)
        owner = await self._journal.bookmarks.owner_of(found.bookmark.owner)
        if saved is None or owner is None:
            return None
        try:
            manifest = await self._chunks.open_manifest(found.session, found.bookmark, owner)
            fields, digest, made_of = await self._weaver.assembled(found.session, manifest, owner)
        except ValueError as error:
            raise CheckpointDamaged(saved.session, saved.name, saved.id, str(error)) from error
        if digest != saved.digest:
            raise CheckpointDamaged(saved.session, saved.name, saved.id, "its state does not match its digest")
        if not self._weaver.remembers(saved.session, owner):  # the next save need not read it again
            kept = await self._weaver.known(saved.session, saved.name, manifest, made_of)
            self._weaver.remember(saved.session, owner, kept)
        return replace(saved, fields=fields)

    async def attached(self, session: str, name: str, id: str) -> Sequence[Attached]:
        """What was attached to a checkpoint, oldest first."""
        _check(session, name)
        query = BookmarkQuery(attached_to(name, check_name("checkpoint", id)))
        found = [one async for one in self._journal.bookmarks.find(session, query)]
        given = []
        for one in sorted(found, key=lambda one: one.bookmark.position):
            saved = await self._filled(one)
            if saved is not None:
                given.append(Attached(saved.position, saved.note, saved.fields or None))
        return given

    async def names(self, session: str, prefix: str = "") -> Sequence[str]:
        """The names under which there are checkpoints, those of shared events included."""
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
        """Drop what is remembered of states from memory: somebody was erased."""
        self._weaver.forget(None)

    async def drop(self, session: str, name: str, ids: Doomed, *, reason: str) -> int:
        """Remove checkpoints of a session (None: all under the name; or what a function says, which is asked again if
        others write meanwhile), what is attached to them and every byte that only they were made of. Returns how many
        went; a fork that shares them loses them too."""
        _check(session, name)
        self._weaver.forget(session)
        return await Dropping(self._journal, session, name).drop(ids, reason)

    async def pin(self, session: str, name: str, id: str, pinned: bool) -> bool:
        """Keep a checkpoint of this very session from expiring, or no longer; False if there is none with this id."""
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
            beside = Beside(rewritten=(rows[0]._replace(pinned=pinned),))
            try:
                await self._journal.append_prepared(session, prepared, owner, expected=head.position, beside=beside)
            except PositionConflict:
                continue  # somebody may have moved its state meanwhile
            return True


def _check(session: str, name: str) -> None:
    check_name("session", session)
    if check_name("name", name).startswith(ATTACHED):
        raise InvalidInput(f"a name cannot begin with {ATTACHED!r}: {name!r}", hint="begin it with a letter")


def _bounded(place: int | None) -> int | None:
    return None if place is None else max(0, min(place, _LATEST))
