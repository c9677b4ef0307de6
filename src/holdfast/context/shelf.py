"""A shelf: values under a namespace and a key, with a time to live. LangGraph's long-term store is one.

A value is an event, in a session for each root of a namespace; a landmark finds the newest one under its key. What is
replaced, removed or expired loses its payload.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import msgspec

from ..errors import InvalidInput, StoreDamaged
from ..journal.events import Draft, check_name
from ..journal.journal import Journal
from ..ports import Beside, Landmark, LandmarkQuery, SubjectGone

_SESSION = "shelf:"
_NAME = "item:"
_PAGE = 500
_LONGEST = 100 * 366 * 24 * 3600 * 1_000_000
_TOUCH_AFTER = 20
"""A time to live is refreshed once this part of it has passed: not every read is worth a write."""

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
        if ttl_us is not None and not 0 < ttl_us <= _LONGEST:
            raise InvalidInput(
                f"{ttl_us!r} microseconds are no time to live", hint="give more than 0, at most a century"
            )
        old = await self._living(space, key)
        now = self._journal.clock.now()
        expires = None if ttl_us is None else now + ttl_us
        item = Item(space, key, value, old.created if old else now, now, expires, ttl_us)
        note = {"space": list(space), "key": key, "value": value, "created": item.created, "ttl": ttl_us}
        while True:
            owner = await self._journal.owner(subject)
            landmark = Landmark(_name(space), check_name("key", key), 0, now, expires, False, owner.ref)
            beside = Beside((landmark,), stripped=await self._old_payload(space, key))
            prepared = [self._journal.prepare(Draft("shelf.put", note), owner)]
            try:
                await self._journal.append_prepared(_session(space), prepared, owner, beside=beside)
            except SubjectGone:
                self._journal.forget_owners()
                continue
            return item._replace(value=prepared[0].data["value"])

    async def get(self, space: Space, key: str, *, touch: bool = False) -> Item | None:
        """A value; None if there is none, or its time has passed. With `touch`, its time begins anew."""
        item = await self._living(space, key)
        if item is not None and touch and item.ttl is not None and item.expires is not None:
            now = self._journal.clock.now()
            if now + item.ttl - item.expires >= item.ttl // _TOUCH_AFTER:
                await self._touch(item, now + item.ttl)
                item = item._replace(expires=now + item.ttl)
        return item

    async def remove(self, space: Space, key: str) -> bool:
        """Take a value off the shelf; False if there was none."""
        landmark = await self._landmark(space, key)
        if landmark is None:
            return False
        await self._remove(_session(space), [landmark], "removed")
        return True

    async def find(self, prefix: Space) -> list[Item]:
        """All living values under a namespace and those that begin with it, by namespace and key."""
        found: list[Item] = []
        async for session, name in self._names(prefix):
            landmarks = await self._all(session, name)
            found += await self._items(session, landmarks)
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
        removed = 0
        while True:
            due = await self._journal.store.expired(self._journal.workspace, self._journal.clock.now(), _PAGE)
            by_session: dict[str, list[Landmark]] = {}
            for session, landmark in due:
                if landmark.name.startswith(_NAME):
                    by_session.setdefault(session, []).append(landmark)
            if not by_session:
                return removed
            for session, landmarks in by_session.items():
                await self._remove(session, landmarks, "expired")
                removed += len(landmarks)

    # -- landmarks

    async def _landmark(self, space: Space, key: str) -> Landmark | None:
        query = LandmarkQuery(_name(space), check_name("key", key))
        found = await self._journal.store.landmarks(self._journal.workspace, _session(space), query)
        return _intact(found)[0] if found else None

    async def _all(self, session: str, name: str) -> list[Landmark]:
        query = LandmarkQuery(name, limit=10_000_000)
        return _intact(await self._journal.store.landmarks(self._journal.workspace, session, query))

    async def _names(self, prefix: Space) -> AsyncGenerator[tuple[str, str], None]:
        """The sessions and names under which values with that prefix lie."""
        store, workspace = self._journal.store, self._journal.workspace
        start = _NAME if not prefix else _name(prefix)[:-1]
        async for session in self._sessions(prefix):
            for name in await store.landmark_names(workspace, session, start):
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

    async def _living(self, space: Space, key: str) -> Item | None:
        landmark = await self._landmark(space, key)
        items = await self._items(_session(space), [landmark] if landmark is not None else [])
        return items[0] if items else None

    async def _items(self, session: str, landmarks: list[Landmark]) -> list[Item]:
        now = self._journal.clock.now()
        living = {one.position: one for one in landmarks if one.expires is None or one.expires > now}
        items = []
        for event in await self._journal.landmarks.events(session, list(living)):
            if not event.erased:
                space, key, value = tuple(event.data["space"]), event.data["key"], event.data["value"]
                created, ttl, landmark = event.data["created"], event.data["ttl"], living[event.position]
                items.append(Item(space, key, value, created, event.time, landmark.expires, ttl))
        return items

    # -- changes

    async def _old_payload(self, space: Space, key: str) -> list[tuple[int, bytes]]:
        landmark = await self._landmark(space, key)
        if landmark is None:
            return []
        return await self._journal.landmarks.digests(_session(space), [landmark.position])

    async def _touch(self, item: Item, expires: int) -> None:
        landmark = await self._landmark(item.space, item.key)
        if landmark is not None:
            note = {"space": list(item.space), "key": item.key, "expires": expires}
            await self._note(
                _session(item.space), "shelf.touched", note, Beside(rewritten=[landmark._replace(expires=expires)])
            )

    async def _remove(self, session: str, landmarks: list[Landmark], reason: str) -> None:
        stripped = await self._journal.landmarks.digests(session, [one.position for one in landmarks])
        removed = [(one.name, one.id) for one in landmarks]
        note = {"items": [[*_space(one.name), one.id] for one in landmarks], "reason": reason}
        await self._note(session, "shelf.removed", note, Beside(removed=removed, stripped=stripped))

    async def _note(self, session: str, kind: str, note: dict[str, Any], beside: Beside) -> None:
        owner = await self._journal.owner(None)
        prepared = [self._journal.prepare(Draft(kind, note), owner)]
        await self._journal.append_prepared(session, prepared, owner, beside=beside)


def _intact(landmarks: list[Landmark]) -> list[Landmark]:
    for one in landmarks:
        if not one.intact:
            raise StoreDamaged(f"the row of {one.name} {one.id} does not match its checksum", hint="restore a backup")
    return landmarks


def _session(space: Space) -> str:
    if not space:
        raise InvalidInput("a namespace has at least one label", hint='give a tuple of texts: ("users", "alice")')
    return check_name("namespace", f"{_SESSION}{space[0]}")


def _name(space: Space) -> str:
    return check_name("namespace", _NAME + msgspec.json.encode(list(space)).decode())


def _space(name: str) -> Space:
    return tuple(msgspec.json.decode(name[len(_NAME) :]))
