"""Key-value items: values under a namespace and a key, with a time to live. LangGraph's long-term store uses them.

A value is an event. There is one session for each root of a namespace. A bookmark points to the newest value under a
key. The payload of a value is removed when the value is replaced, removed or expired.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import msgspec

from ..errors import InvalidInput, JournalDamaged, PositionConflict, StoreDamaged, shown
from ..journal.events import Draft, check_name
from ..journal.journal import Journal
from ..ports import BatchChange, Bookmark, BookmarkChanges, BookmarkQuery, SubjectGone

_SESSION = "kv:"
_NAME = "item:"
_PAGE = 500
_LONGEST = 100 * 366 * 24 * 3600 * 1_000_000
_TOUCH_AFTER = 20
"""A read refreshes the time to live only after this fraction (1/20) of it has passed, to save writes."""

Namespace = tuple[str, ...]


class KvItem(NamedTuple):
    """An item. Times are in microseconds since 1970. `expires` and `ttl` are None if it never expires."""

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created: int
    updated: int
    expires: int | None
    ttl: int | None


class KvItems:
    """The key-value items of one workspace."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def put(
        self,
        namespace: Namespace,
        key: str,
        value: dict[str, Any],
        *,
        ttl_us: int | None = None,
        subject: str | None = None,
    ) -> KvItem:
        """Store a value under a key, and replace the old one; durable on return."""
        if not isinstance(value, dict):
            raise InvalidInput(f"an item's value cannot be of type {type(value).__name__}", hint="give a dict")
        if ttl_us is not None and not (isinstance(ttl_us, int) and 0 < ttl_us <= _LONGEST):
            raise InvalidInput(
                f"a time to live cannot be {shown(ttl_us)} microseconds", hint="give more than 0, at most 100 years"
            )
        while True:
            head = await self._journal.reader.head(_session(namespace))
            old = await self._current_or_none(namespace, key)
            now = self._journal.clock.now()
            expires = None if ttl_us is None else now + ttl_us
            created = old[1].created if old else now
            note = {"namespace": list(namespace), "key": key, "value": value, "created": created, "ttl": ttl_us}
            owner = await self._journal.owner(subject)
            bookmark = Bookmark(_name(namespace), check_name("key", key), 0, now, expires, False, owner.ref)
            changes = (BookmarkChanges((bookmark,), stripped=await self._old_payload(namespace, key)),)
            prepared = [self._journal.prepare(Draft("kv.put", note), owner, whole=True)]
            try:
                done = await self._journal.append_prepared(
                    _session(namespace), prepared, owner, expected=head.position, changes=changes
                )
            except SubjectGone:
                self._journal.forget_owners()
            except PositionConflict:
                pass  # another writer changed an item, perhaps this one: try again
            else:
                return KvItem(namespace, key, prepared[0].data["value"], created, done.records[0].time, expires, ttl_us)

    async def get(self, namespace: Namespace, key: str, *, touch: bool = False) -> KvItem | None:
        """An item; None if there is none or it has expired. With `touch`, its time to live starts again."""
        found = await self._current(namespace, key)
        if found is None:
            return None
        bookmark, item = found
        now = self._journal.clock.now()
        if not touch or item.ttl is None or item.expires is None:
            return item
        if now + item.ttl - item.expires < item.ttl // _TOUCH_AFTER:
            return item
        expires = now + item.ttl
        changes = (BookmarkChanges(rewritten=[bookmark._replace(expires=expires)]),)
        await self._note(_session(namespace), "kv.touched", {"expires": expires}, changes, None)
        return item._replace(expires=expires)

    async def remove(self, namespace: Namespace, key: str) -> bool:
        """Remove an item. Returns False if there was none."""
        while True:
            head = await self._journal.reader.head(_session(namespace))
            bookmark = await self._bookmark(namespace, key)
            if bookmark is None:
                return False
            if await self._remove(_session(namespace), [bookmark], "removed", head.position):
                return True

    async def find(self, prefix: Namespace) -> list[KvItem]:
        """All items under a namespace and the namespaces below it that have not expired, by namespace and key."""
        found: list[KvItem] = []
        async for session, name in self._names(prefix):
            found += await self._items(session, await self._all(session, name))
        return sorted(found, key=lambda item: (item.namespace, item.key))

    async def namespaces(self) -> list[Namespace]:
        """The namespaces with items that have not expired, sorted."""
        now, found = self._journal.clock.now(), []
        async for session, name in self._names(()):
            if any(one.expires is None or one.expires > now for one in await self._all(session, name)):
                found.append(_namespace(name))
        return sorted(found)

    async def sweep(self) -> int:
        """Remove expired items. Returns how many."""
        store, workspace, removed = self._journal.store, self._journal.workspace, 0
        while due := await store.expired(workspace, _NAME, self._journal.clock.now(), _PAGE):
            for session in dict.fromkeys(session for session, _ in due):
                head = await self._journal.reader.head(session)
                # Read again after the head: an item that was stored again since has not expired.
                again = await store.expired(workspace, _NAME, self._journal.clock.now(), _PAGE)
                bookmarks = [bookmark for origin, bookmark in again if origin == session and bookmark.intact]
                if bookmarks and await self._remove(session, bookmarks, "expired", head.position):
                    removed += len(bookmarks)
            if not any(bookmark.intact for _, bookmark in due):
                break  # damaged items stay, because their expiry is unknown
        return removed

    # -- bookmarks

    async def _bookmark(self, namespace: Namespace, key: str) -> Bookmark | None:
        query = BookmarkQuery(_name(namespace), check_name("key", key))
        found = await self._journal.store.bookmarks(self._journal.workspace, _session(namespace), query)
        return found[0] if found else None

    async def _all(self, session: str, name: str) -> list[Bookmark]:
        query = BookmarkQuery(name, limit=10_000_000)
        return await self._journal.store.bookmarks(self._journal.workspace, session, query)

    async def _names(self, prefix: Namespace) -> AsyncGenerator[tuple[str, str], None]:
        """The sessions and bookmark names of the namespaces with this prefix."""
        store, workspace = self._journal.store, self._journal.workspace
        start = _NAME if not prefix else _name(prefix)[:-1]
        async for session in self._sessions(prefix):
            for name in await store.bookmark_names(workspace, session, start):
                if _namespace(name)[: len(prefix)] == prefix:
                    yield session, name

    async def _sessions(self, prefix: Namespace) -> AsyncGenerator[str, None]:
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

    async def _current(self, namespace: Namespace, key: str) -> tuple[Bookmark, KvItem] | None:
        """An item and its bookmark. If its payload is missing, another writer has replaced it meanwhile, and it is
        read again."""
        bookmark = await self._bookmark(namespace, key)
        while bookmark is not None:
            _expect_intact(bookmark)
            items = await self._items(_session(namespace), [bookmark], again=False)
            if items:
                return bookmark, items[0]
            again = await self._bookmark(namespace, key)
            if again == bookmark:
                return None
            bookmark = again
        return None

    async def _current_or_none(self, namespace: Namespace, key: str) -> tuple[Bookmark, KvItem] | None:
        try:
            return await self._current(namespace, key)
        except (StoreDamaged, JournalDamaged):
            return None  # the new value replaces the damaged one

    async def _items(self, session: str, bookmarks: list[Bookmark], *, again: bool = True) -> list[KvItem]:
        now = self._journal.clock.now()
        for one in bookmarks:
            _expect_intact(one)
        current = {one.position: one for one in bookmarks if one.expires is None or one.expires > now}
        items = []
        for event in await self._journal.bookmarks.events(session, list(current)):
            bookmark = current[event.position]
            namespace, key = _namespace(bookmark.name), bookmark.id  # the payload may hold redacted ones
            if not event.erased:
                value, created, ttl = event.data["value"], event.data["created"], event.data["ttl"]
                items.append(KvItem(namespace, key, value, created, event.time, bookmark.expires, ttl))
            elif again:  # replaced while we read
                found = await self._current(namespace, key)
                items += [found[1]] if found is not None else []
        return items

    # -- changes

    async def _old_payload(self, namespace: Namespace, key: str) -> list[tuple[int, bytes]]:
        bookmark = await self._bookmark(namespace, key)
        if bookmark is None or not bookmark.intact:
            return []
        return await self._journal.bookmarks.digests(_session(namespace), [bookmark.position])

    async def _remove(self, session: str, bookmarks: list[Bookmark], reason: str, head: int) -> bool:
        """Remove items, unless another writer has appended to the session after `head`."""
        intact = [one.position for one in bookmarks if one.intact]
        stripped = await self._journal.bookmarks.digests(session, intact)
        removed = [(one.name, one.id) for one in bookmarks]
        note = {"count": len(bookmarks), "reason": reason}
        changes = (BookmarkChanges(removed=removed, stripped=stripped),)
        return await self._note(session, "kv.removed", note, changes, head)

    async def _note(
        self, session: str, kind: str, note: dict[str, Any], changes: Sequence[BatchChange], head: int | None
    ) -> bool:
        owner = await self._journal.owner(None)
        prepared = [self._journal.prepare(Draft(kind, note), owner)]
        try:
            await self._journal.append_prepared(session, prepared, owner, expected=head, changes=changes)
        except PositionConflict:
            return False
        return True


def _expect_intact(bookmark: Bookmark) -> None:
    if not bookmark.intact:
        raise StoreDamaged(
            f"the row of {bookmark.name} {bookmark.id} does not match its checksum",
            hint="store the value again, or remove it",
        )


def _session(namespace: Namespace) -> str:
    if not namespace:
        raise InvalidInput(
            f"a namespace cannot be {shown(namespace)}", hint='give a tuple of texts such as ("users", "alice")'
        )
    for label in namespace:
        check_name("label of a namespace", label)
    return check_name("namespace", f"{_SESSION}{namespace[0]}")


def _name(namespace: Namespace) -> str:
    return check_name("namespace", _NAME + msgspec.json.encode(list(namespace)).decode())


def _namespace(name: str) -> Namespace:
    try:
        return tuple(msgspec.json.decode(name[len(_NAME) :], type=list[str]))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StoreDamaged(
            f"a key-value bookmark has the invalid name {shown(name)}", hint="restore a backup"
        ) from error
