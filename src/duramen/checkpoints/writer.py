"""Storing states: what is new in them goes to the end of the session's chunk_log, with an event and a bookmark.

What the last states were made of is remembered, so that the next one need not read it. Whoever remembers wrongly,
because another process wrote since, finds that the chunk_log ends elsewhere and looks again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..crash_points import reach
from ..errors import DuramenError, StoreError
from ..journal.encoder import Prepared
from ..journal.events import Draft
from ..journal.journal import Journal
from ..journal.owners import Owner
from ..ports import Beside, Bookmark, Chunk, ChunkLogMoved, SubjectGone
from ..ports import Stored as StoredBatch
from ..runtime import is_driven
from .chunks import Chunks
from .delta import Woven, digest_of, weave_all
from .manifest import Kept, Manifest, bodies_of
from .write_batcher import Ahead, Lane, Order, Passenger, Stored

_REMEMBERED = 200
_LANES = 1000


class Weaver:
    """Stores states for all threads and coroutines of a handle."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._chunks = Chunks(journal)
        self._kept: OrderedDict[tuple[str, bytes | None], Kept] = OrderedDict()
        self._forgotten = 0
        """How often `forget` was called."""
        self._lanes: OrderedDict[str, Lane] = OrderedDict()
        self._lock = threading.Lock()

    async def store(self, order: Order) -> Stored:
        """Store a state; durable on return. Those of one session come one after the other, as each is woven on what the
        one before it left; those that wait for the same turn are stored together."""
        lane = self._lane(order.session)
        passenger = lane.enter(order)
        try:
            if order.patient:
                await self._encode_ahead(passenger)
                await lane.linger(passenger)
            while not passenger.arrived:
                mine = await lane.turn.acquire()
                try:
                    taken = lane.take(passenger)
                    if taken:
                        await self._carry(taken)
                finally:
                    if mine:
                        lane.turn.release()
                if not taken:  # somebody else has it in hand
                    await passenger.wait(1.0)
        finally:
            lane.leave(passenger)
        return passenger.outcome()

    async def _encode_ahead(self, passenger: Passenger) -> None:
        """Use the time of waiting: whoever takes it along need not encode its event."""
        order = passenger.order
        with suppress(DuramenError):  # what is wrong with it is said when it is stored
            owner = await self._journal.owner(order.subject)
            digest = digest_of(order.fields, owner.salt)
            if digest is not None:
                passenger.ahead = Ahead(owner, digest, self._encoded(order, digest, owner))

    def _lane(self, session: str) -> Lane:
        with self._lock:
            lane = self._lanes.get(session)
            if lane is None:
                lane = self._lanes[session] = Lane()
                if len(self._lanes) > _LANES:
                    self._lanes.popitem(last=False)  # who is in it stays there, and may have to weave once more
            else:
                self._lanes.move_to_end(session)
            return lane

    async def _carry(self, taken: list[Passenger]) -> None:
        """Give each of them its outcome."""
        if len(taken) == 1 or is_driven():
            await self._settle(taken)
        else:  # who is cancelled must not take the others down
            await asyncio.shield(asyncio.ensure_future(self._settle(taken)))

    async def _settle(self, taken: list[Passenger]) -> None:
        try:
            if len(taken) == 1 or not await self._settled_together(taken):
                for one in taken:
                    await self._settled_together([one])
        finally:
            for one in taken:
                if not one.arrived:
                    one.settle(_interrupted())

    async def _settled_together(self, taken: list[Passenger]) -> bool:
        """Whether they have their outcomes: many of them have none as long as one can be refused."""
        outcomes: Sequence[Stored | Exception]
        try:
            outcomes = await self._store(taken)
        except Exception as error:  # noqa: BLE001 - raised where the passenger waits
            if len(taken) > 1 and not isinstance(error, StoreError):
                return False  # nothing is stored: after a refusal, or before it came to that
            outcomes = [error] * len(taken)
        for one, outcome in zip(taken, outcomes, strict=True):
            one.settle(outcome)
        return True

    async def _store(self, taken: list[Passenger]) -> list[Stored]:
        orders = [one.order for one in taken]
        session, fence = orders[0].session, orders[0].fence
        stale: tuple[int, int] | None = None
        while True:
            owner = await self._journal.owner(orders[0].subject)
            kept, since = await self._take(orders, owner, stale)
            woven = weave_all([(order.name, order.fields) for order in orders], kept, owner.salt)
            prepared = [self._prepared(*one, owner) for one in zip(taken, woven, strict=True)]
            beside = self._beside(orders, woven, owner)
            _learn(kept, orders, woven)  # now: after the sync the same takes three times as long
            reach("checkpoint.woven")
            try:
                done = await self._journal.append_prepared(session, prepared, owner, fence=fence, beside=beside)
            except ChunkLogMoved:
                stale = (woven[0].chunk_log, woven[0].start)
            except SubjectGone:
                self._journal.forget_owners()
            else:
                self._give_back(session, owner, kept, since)
                return _stored(done, woven, prepared)

    def _prepared(self, passenger: Passenger, woven: Woven, owner: Owner) -> Prepared:
        ahead = passenger.ahead
        if ahead is not None and ahead.digest == woven.digest and ahead.owner == owner:
            return ahead.event
        return self._encoded(passenger.order, woven.digest, owner)

    def _encoded(self, order: Order, digest: bytes, owner: Owner) -> Prepared:
        noted = {"note": order.note, "digest": digest}
        return self._journal.prepare(Draft(order.kind, noted, order.actor), owner, whole=True)

    def _beside(self, orders: list[Order], woven: list[Woven], owner: Owner) -> Beside:
        """What lies beside the events: first the bookmark of each state, then what else some of them want."""
        bookmarks = [self._bookmark(order, *one, owner) for order, one in zip(orders, enumerate(woven), strict=True)]
        for number, order in enumerate(orders):
            bookmarks += [one._replace(position=number, owner=owner.ref) for one in order.also]
        after = next((order.after for order in orders if order.after is not None), None)
        chunk_log, chunks = (woven[0].chunk_log, woven[0].start), self._new_chunks(orders[0].session, woven[0], owner)
        return Beside(bookmarks, chunk_log=chunk_log, chunks=chunks, after=after)

    def _bookmark(self, order: Order, number: int, woven: Woven, owner: Owner) -> Bookmark:
        name, id, _, _, expires, pinned, _, _, _ = order.bookmark
        sealed = self._chunks.seal_manifest(order.session, name, id, woven.manifest, owner)
        return Bookmark(name, id, number, 0, expires, pinned, owner.ref, sealed)

    def _new_chunks(self, session: str, woven: Woven, owner: Owner) -> tuple[Chunk, ...]:
        if not woven.bodies:
            return ()
        return (self._chunks.chunk(session, woven.chunk_log, woven.start, woven.bodies, owner),)

    # -- what is remembered

    async def _take(self, orders: list[Order], owner: Owner, stale: tuple[int, int] | None) -> tuple[Kept, int]:
        """What the session's states are made of, as far as this owner may share it; a fresh chunk_log if nothing is, or if
        the one that was found, and its end, is the one that was tried in vain. And how often was forgotten by then.

        It is the caller's alone until it is given back, which is done once all that was learnt is stored: whoever
        waited in vain for a turn, and weaves meanwhile, looks at the store."""
        with self._lock:
            since, known = self._forgotten, self._kept.pop((orders[0].session, owner.ref), None)
        if known is None:
            known = await self._newest(orders, owner)
        if (known.chunk_log, known.tip) == stale:
            known = self._fresh()
        return known, since

    def _give_back(self, session: str, owner: Owner, kept: Kept, since: int) -> None:
        """Remember it for the next one, unless it should have been forgotten meanwhile."""
        with self._lock:
            if self._forgotten == since:
                self._kept[session, owner.ref] = kept
                while len(self._kept) > _REMEMBERED:
                    self._kept.popitem(last=False)

    def _fresh(self) -> Kept:
        return Kept(int.from_bytes(self._journal.ids.random(6), "big"), 0)

    async def _newest(self, orders: list[Order], owner: Owner) -> Kept:
        session = orders[0].session
        for name in dict.fromkeys(name for order in orders for name in order.like):
            newest = await self._journal.bookmarks.newest(session, name)
            if newest is None or newest.session != session or newest.bookmark.owner != owner.ref:
                continue
            try:
                manifest = await self._chunks.open_manifest(session, newest.bookmark, owner)
                _, _, fields = await self.assembled(session, manifest, owner)
            except ValueError:
                continue  # damaged: nothing is built on it
            return await self.known(session, name, manifest, fields)
        return self._fresh()

    async def known(self, session: str, name: str, manifest: Manifest, fields: dict[str, Any]) -> Kept:
        """What is to be remembered of a state that was read."""
        # Others may have gone on with the chunk_log under another name, or a drop may have cut it since it was read: then
        # nothing is built on what is gone.
        end = await self._journal.store.chunk_log_end(self._journal.workspace, session, manifest.chunk_log)
        if any(span.chunk_log != manifest.chunk_log or span.last > end for span in (*manifest.spans(), *manifest.own)):
            return self._fresh()
        kept = Kept(manifest.chunk_log, end)
        kept.learn(name, fields, bodies_of(fields))
        return kept

    def remembers(self, session: str, owner: Owner) -> bool:
        """Whether it knows what the session's states are made of."""
        return (session, owner.ref) in self._kept

    def remember(self, session: str, owner: Owner, kept: Kept) -> None:
        """Remember what was read, unless a neighbour was first."""
        with self._lock:
            self._kept.setdefault((session, owner.ref), kept)
            while len(self._kept) > _REMEMBERED:
                self._kept.popitem(last=False)

    def forget(self, session: str | None) -> None:
        """Look at the store the next time; for all sessions, if none is named."""
        with self._lock:
            self._forgotten += 1
            for place in [place for place in self._kept if session is None or place[0] == session]:
                del self._kept[place]

    # -- reading

    async def assembled(
        self, session: str, manifest: Manifest, owner: Owner
    ) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
        """A state, its digest and what it is made of. ValueError if something is missing or does not open."""
        try:
            bodies = await self._chunks.bodies(session, manifest.spans(), owner)
            return manifest.assemble(
                lambda span: [bodies[span[0], index] for index in range(span[1], span[2])], owner.salt
            )
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"a chunk of it is missing or broken ({error})") from error


def _learn(kept: Kept, orders: list[Order], woven: list[Woven]) -> None:
    kept.tip = woven[0].start + len(woven[0].bodies)
    for order, one in zip(orders, woven, strict=True):
        kept.learn(order.name, one.fields, one.fresh.items() if one is woven[-1] else ())


def _stored(done: StoredBatch, woven: list[Woven], prepared: list[Prepared]) -> list[Stored]:
    return [
        Stored(record.position, record.time, one.digest, event.data["note"])
        for record, one, event in zip(done.records, woven, prepared, strict=True)
    ]


def _interrupted() -> StoreError:
    return StoreError(
        "whoever stored this state along with its own was interrupted",
        hint="whether it is stored is open: look at the newest, or store it again under the same id",
    )
