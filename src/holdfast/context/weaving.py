"""Storing states: what is new in them goes to the end of the session's strand, with an event and a landmark.

What the last states were made of is remembered, so that the next one need not read it. Whoever remembers wrongly,
because another process wrote since, finds that the strand ends elsewhere and looks again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ..crashpoints import reach
from ..journal.events import Draft
from ..journal.forms import Fields, Form, Kept, bodies_of
from ..journal.journal import Journal
from ..journal.owners import Owner
from ..journal.weaving import Woven, weave
from ..ports import Beside, Landmark, Part, StrandMoved, SubjectGone
from ..runtime import Turn

_REMEMBERED = 200


class Order(NamedTuple):
    """A state to store: under which name it has predecessors (None: under none), and all that goes with it. Who
    remembers nothing looks for predecessors under the names in `like`."""

    session: str
    name: str | None
    landmark: Landmark
    form: Fields
    kind: str
    note: dict[str, Any]
    subject: str | None
    fence: int | None
    after: tuple[str, str | None] | None
    like: tuple[str, ...]
    actor: str | None = None
    also: tuple[Landmark, ...] = ()
    """Further landmarks of the same event."""


class Stored(NamedTuple):
    """Where a state lies, its digest, and its note as reading will give it back."""

    landmark: Landmark
    digest: bytes
    note: dict[str, Any]


class Weaver:
    """Stores states for all threads and coroutines of a handle."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kept: OrderedDict[tuple[str, bytes | None], Kept] = OrderedDict()
        self._turns: WeakValueDictionary[str, Turn] = WeakValueDictionary()
        self._lock = threading.Lock()

    async def store(self, order: Order) -> Stored:
        """Store a state; durable on return. Those of one session come one after the other: each is woven on what the
        one before it left."""
        with self._lock:
            turn = self._turns.setdefault(order.session, Turn())
        mine = await turn.take()
        try:
            return await self._store(order)
        finally:
            if mine:
                turn.give_back()

    async def _store(self, order: Order) -> Stored:
        session, stale = order.session, None
        while True:
            owner = await self._journal.owner(order.subject)
            kept = await self._last(order, owner, stale)
            woven = weave(order.name, order.form, kept, owner.salt)
            noted = {"note": order.note, "digest": woven.digest}
            prepared = [self._journal.prepare(Draft(order.kind, noted, order.actor), owner, whole=True)]
            landmark = self._landmark(order, woven, owner)
            strand, parts = (woven.strand, woven.start), self._parts(session, woven, owner)
            also = [one._replace(owner=owner.ref) for one in order.also]
            beside = Beside((landmark, *also), strand=strand, parts=parts, after=order.after)
            reach("checkpoint.woven")
            try:
                done = await self._journal.append_prepared(session, prepared, owner, fence=order.fence, beside=beside)
            except StrandMoved:
                if kept.tip == woven.start:  # not by a neighbour in this process: look at the store
                    self.forget(session)
                    stale = kept
                continue
            except SubjectGone:
                self._journal.forget_owners()
                self.forget(session)
                continue
            with self._lock:
                kept.tip = woven.start + len(woven.bodies)
                kept.learn(order.name, woven.fields, woven.fresh.items())
            placed = landmark._replace(position=done.records[0].position, time=done.records[0].time)
            return Stored(placed, woven.digest, prepared[0].data["note"])

    def _landmark(self, order: Order, woven: Woven, owner: Owner) -> Landmark:
        name, id = order.landmark.name, order.landmark.id
        sealed = self._journal.landmarks.seal_form(order.session, name, id, woven.form, owner)
        return order.landmark._replace(owner=owner.ref, form=sealed)

    def _parts(self, session: str, woven: Woven, owner: Owner) -> tuple[Part, ...]:
        if not woven.bodies:
            return ()
        return (self._journal.landmarks.part(session, woven.strand, woven.start, woven.bodies, owner),)

    # -- what is remembered

    async def _last(self, order: Order, owner: Owner, stale: Kept | None) -> Kept:
        """What the session's states are made of, as far as this owner may share it; a fresh strand if nothing is, or if
        the one that was found is the one that was tried in vain."""
        place = (order.session, owner.ref)
        with self._lock:
            known = self._kept.get(place)
            if known is not None:
                self._kept.move_to_end(place)
                return known
        known = await self._newest(order, owner)
        if stale is not None and (known.strand, known.tip) == (stale.strand, stale.tip):
            known = self._fresh()
        return self.remember(order.session, owner, known)

    def _fresh(self) -> Kept:
        return Kept(int.from_bytes(self._journal.ids.random(6), "big"), 0)

    async def _newest(self, order: Order, owner: Owner) -> Kept:
        for name in dict.fromkeys(order.like):
            newest = await self._journal.landmarks.newest(order.session, name)
            if newest is None or newest.session != order.session or newest.landmark.owner != owner.ref:
                continue
            try:
                form = await self._journal.landmarks.open_form(order.session, newest.landmark, owner)
                _, _, fields = await self.assembled(order.session, form, owner)
            except ValueError:
                continue  # damaged: nothing is built on it
            return await self.known(order.session, name, form, fields)
        return self._fresh()

    async def known(self, session: str, name: str, form: Form, fields: dict[str, Any]) -> Kept:
        """What is to be remembered of a state that was read."""
        # Others may have gone on with the strand under another name, or a drop may have cut it since it was read: then
        # nothing is built on what is gone.
        end = await self._journal.store.strand_end(self._journal.workspace, session, form.strand)
        if any(span.strand != form.strand or span.last > end for span in (*form.spans(), *form.own)):
            return self._fresh()
        kept = Kept(form.strand, end)
        kept.learn(name, fields, bodies_of(fields))
        return kept

    def remembers(self, session: str, owner: Owner) -> bool:
        """Whether it knows what the session's states are made of."""
        return (session, owner.ref) in self._kept

    def remember(self, session: str, owner: Owner, kept: Kept) -> Kept:
        """Remember it, unless a neighbour was first; gives what is remembered."""
        with self._lock:
            kept = self._kept.setdefault((session, owner.ref), kept)
            while len(self._kept) > _REMEMBERED:
                self._kept.popitem(last=False)
            return kept

    def forget(self, session: str | None) -> None:
        """Look at the store the next time; for all sessions, if none is named."""
        with self._lock:
            for place in [place for place in self._kept if session is None or place[0] == session]:
                del self._kept[place]

    # -- reading

    async def assembled(self, session: str, form: Form, owner: Owner) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
        """A state, its digest and what it is made of. ValueError if something is missing or does not open."""
        try:
            bodies = await self._journal.landmarks.bodies(session, form.spans(), owner)
            return form.assemble(lambda span: [bodies[span[0], index] for index in range(span[1], span[2])], owner.salt)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"a part of it is missing or broken ({error})") from error
