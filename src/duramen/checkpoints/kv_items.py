"""A shelf: values under a namespace and a key, with a time to live. LangGraph's long-term store is one.

A value is an event, in a session for each root of a namespace; a bookmark finds the newest one under its key. What is
replaced, removed or expired loses its payload.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import msgspec

from ..errors import InvalidInput, JournalDamaged, PositionConflict, StoreDamaged
from ..journal.events import Draft, check_name
from ..journal.journal import Journal
from ..ports import Beside, Bookmark, BookmarkQuery, SubjectGone

_SESSION = "shelf:"
_NAME = "item:"
_PAGE = 500
_LONGEST = 100 * 366 * 24 * 3600 * 1_000_000
_TOUCH_AFTER = 20
"""A time to live is refreshed once this chunk of it has passed: not every read is worth a write."""

Space = tuple[str, ...]


class Item(NamedTuple):
    """A value on the shelf. Times are microseconds since 1970; `expires` and `ttl` are None for what stays."""

    space: Space
    key: str
    value: dict[str, Any]
    created: int
    updated: int
    expires: int | None
    ttl: int | None


class Shelf:
    """The shelves of one workspace."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def put(
        self, space: Space, key: str, value: dict[str, Any], *, ttl_us: int | None = None, subject: str | None = None
    ) -> Item:
        """Store a value in place of the one that was there; durable on return."""
        if not isinstance(value, dict):
            raise InvalidInput(f"{type(value).__name__} cannot be on a shelf", hint="give a dict")
        if ttl_us is not None and not (isinstance(ttl_us, int) and 0 < ttl_us <= _LONGEST):
            raise InvalidInput(
                f"{ttl_us!r} microseconds are no time to live", hint="give more than 0, at most a century"
            )
        while True:
            head = await self._journal.reader.head(_session(space))
            old = await self._living_or_damaged(space, key)
            now = self._journal.clock.now()
            expires = None if ttl_us is None else now + ttl_us
            created = old[1].created if old else now
            note = {"space": list(space), "key": key, "value": value, "created": created, "ttl": ttl_us}
            owner = await self._journal.owner(subject)
            bookmark = Bookmark(_name(space), check_name("key", key), 0, now, expires, False, owner.ref)
            beside = Beside((bookmark,), stripped=await self._old_payload(space, key))
            prepared = [self._journal.prepare(Draft("shelf.put", note), owner, whole=True)]
            try:
                done = await self._journal.append_prepared(
                    _session(space), prepared, owner, expected=head.position, beside=beside
                )
            except SubjectGone:
                self._journal.forget_owners()
            except PositionConflict:
                pass  # somebody else changed the shelf, perhaps this very value: look again
            else:
                return Item(space, key, prepared[0].data["value"], created, done.records[0].time, expires, ttl_us)

    async def get(self, space: Space, key: str, *, touch: bool = False) -> Item | None:
        """A value; None if there is none, or its time has passed. With `touch`, its time begins anew."""
        found = await self._living(space, key)
        if found is None:
            return None
        bookmark, item = found
        now = self._journal.clock.now()
        if not touch or item.ttl is None or item.expires is None:
            return item
        if now + item.ttl - item.expires < item.ttl // _TOUCH_AFTER:
            return item
        expires = now + item.ttl
        beside = Beside(rewritten=[bookmark._replace(expires=expires)])
        await self._note(_session(space), "shelf.touched", {"expires": expires}, beside, None)
        return item._replace(expires=expires)

    async def remove(self, space: Space, key: str) -> bool:
        """Take a value off the shelf; False if there was none."""
        while True:
            head = await self._journal.reader.head(_session(space))
            bookmark = await self._bookmark(space, key)
            if bookmark is None:
                return False
            if await self._remove(_session(space), [bookmark], "removed", head.position):
                return True

    async def find(self, prefix: Space) -> list[Item]:
        """All living values under a namespace and those that begin with it, by namespace and key."""
        found: list[Item] = []
        async for session, name in self._names(prefix):
            found += await self._items(session, await self._all(session, name))
        return sorted(found, key=lambda item: (item.space, item.key))

    async def spaces(self) -> list[Space]:
        """The namespaces that hold living values, sorted."""
        now, found = self._journal.clock.now(), []
        async for session, name in self._names(()):
            if any(one.expires is None or one.expires > now for one in await self._all(session, name)):
                found.append(_space(name))
        return sorted(found)

    async def sweep(self) -> int:
        """Remove what has expired. Returns how many values that were."""
        store, workspace, removed = self._journal.store, self._journal.workspace, 0
        while due := await store.expired(workspace, _NAME, self._journal.clock.now(), _PAGE):
            for session in dict.fromkeys(session for session, _ in due):
                head = await self._journal.reader.head(session)
                # Read again after the head: what was put since is no longer among them.
                again = await store.expired(workspace, _NAME, self._journal.clock.now(), _PAGE)
                bookmarks = [bookmark for origin, bookmark in again if origin == session and bookmark.intact]
                if bookmarks and await self._remove(session, bookmarks, "expired", head.position):
                    removed += len(bookmarks)
            if not any(bookmark.intact for _, bookmark in due):
                break  # what is damaged stays: nobody knows when it was to expire
        return removed

    # -- bookmarks

    async def _bookmark(self, space: Space, key: str) -> Bookmark | None:
        query = BookmarkQuery(_name(space), check_name("key", key))
        found = await self._journal.store.bookmarks(self._journal.workspace, _session(space), query)
        return found[0] if found else None

    async def _all(self, session: str, name: str) -> list[Bookmark]:
        query = BookmarkQuery(name, limit=10_000_000)
        return await self._journal.store.bookmarks(self._journal.workspace, session, query)

    async def _names(self, prefix: Space) -> AsyncGenerator[tuple[str, str], None]:
        """The sessions and names under which values with that prefix lie."""
        store, workspace = self._journal.store, self._journal.workspace
        start = _NAME if not prefix else _name(prefix)[:-1]
        async for session in self._sessions(prefix):
            for name in await store.bookmark_names(workspace, session, start):
                if _space(name)[: len(prefix)] == prefix:
                    yield session, name

    async def _sessions(self, prefix: Space) -> AsyncGenerator[str, None]:
        if prefix:
            yield _session(prefix)
            return
        after = _SESSION
        while True:
            names = await self._journal.store.session_names(self._journal.workspace, after, _PAGE)
            for name in names:
                if not name.startswith(_SESSION):
                    return
                yield name
            if len(names) < _PAGE:
                return
            after = names[-1]

    async def _living(self, space: Space, key: str) -> tuple[Bookmark, Item] | None:
        """A value and where it lies. If its payload is gone, somebody replaced it while we read: look again."""
        bookmark = await self._bookmark(space, key)
        while bookmark is not None:
            _expect_intact(bookmark)
            items = await self._items(_session(space), [bookmark], again=False)
            if items:
                return bookmark, items[0]
            again = await self._bookmark(space, key)
            if again == bookmark:
                return None
            bookmark = again
        return None

    async def _living_or_damaged(self, space: Space, key: str) -> tuple[Bookmark, Item] | None:
        try:
            return await self._living(space, key)
        except (StoreDamaged, JournalDamaged):
            return None  # what is put now takes its place

    async def _items(self, session: str, bookmarks: list[Bookmark], *, again: bool = True) -> list[Item]:
        now = self._journal.clock.now()
        for one in bookmarks:
            _expect_intact(one)
        living = {one.position: one for one in bookmarks if one.expires is None or one.expires > now}
        items = []
        for event in await self._journal.bookmarks.events(session, list(living)):
            bookmark = living[event.position]
            space, key = _space(bookmark.name), bookmark.id  # in the payload, they may be redacted
            if not event.erased:
                value, created, ttl = event.data["value"], event.data["created"], event.data["ttl"]
                items.append(Item(space, key, value, created, event.time, bookmark.expires, ttl))
            elif again:  # replaced while we read
                found = await self._living(space, key)
                items += [found[1]] if found is not None else []
        return items

    # -- changes

    async def _old_payload(self, space: Space, key: str) -> list[tuple[int, bytes]]:
        bookmark = await self._bookmark(space, key)
        if bookmark is None or not bookmark.intact:
            return []
        return await self._journal.bookmarks.digests(_session(space), [bookmark.position])

    async def _remove(self, session: str, bookmarks: list[Bookmark], reason: str, head: int) -> bool:
        """Take values off the shelf, unless somebody changed it since."""
        intact = [one.position for one in bookmarks if one.intact]
        stripped = await self._journal.bookmarks.digests(session, intact)
        removed = [(one.name, one.id) for one in bookmarks]
        note = {"count": len(bookmarks), "reason": reason}
        beside = Beside(removed=removed, stripped=stripped)
        return await self._note(session, "shelf.removed", note, beside, head)

    async def _note(self, session: str, kind: str, note: dict[str, Any], beside: Beside, head: int | None) -> bool:
        owner = await self._journal.owner(None)
        prepared = [self._journal.prepare(Draft(kind, note), owner)]
        try:
            await self._journal.append_prepared(session, prepared, owner, expected=head, beside=beside)
        except PositionConflict:
            return False
        return True


def _expect_intact(bookmark: Bookmark) -> None:
    if not bookmark.intact:
        raise StoreDamaged(
            f"the row of {bookmark.name} {bookmark.id} does not match its checksum",
            hint="put the value again, or remove it",
        )


def _session(space: Space) -> str:
    if not space:
        raise InvalidInput(f"{space!r} is no namespace", hint='give a tuple of texts: ("users", "alice")')
    for label in space:
        check_name("label of a namespace", label)
    return check_name("namespace", f"{_SESSION}{space[0]}")


def _name(space: Space) -> str:
    return check_name("namespace", _NAME + msgspec.json.encode(list(space)).decode())


def _space(name: str) -> Space:
    try:
        return tuple(msgspec.json.decode(name[len(_NAME) :], type=list[str]))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StoreDamaged(f"the shelf has a name that is none: {name!r}", hint="restore a backup") from error
