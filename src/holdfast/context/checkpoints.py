"""Checkpoints: a session's state as of an event, stored as what is new in it.

A checkpoint is an event with the digest of the state, a landmark with the form that says which stored bodies the state
is made of, and the bodies that were not there yet: all in one transaction. What the last checkpoint was made of is
remembered, so that the next one need not read it; whoever remembers wrongly, because another process wrote since, finds
the end of the strand taken and looks again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..crashpoints import reach
from ..errors import CheckpointConflict, CheckpointDamaged, JournalDamaged
from ..journal.events import Draft
from ..journal.forms import Fields, Form, Kept, Woven, bodies_of, weave
from ..journal.journal import Journal
from ..journal.landmarks import ATTACHED, Found, attached_to
from ..journal.owners import Owner
from ..ports import Beside, Landmark, LandmarkQuery, Part, StrandMoved, SubjectGone
from .dropping import Dropping

ANYTHING: Any = object()
"""Whatever the newest checkpoint is, this one follows it."""
_REMEMBERED = 200


@dataclass(frozen=True, slots=True)
class Saved:
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
    landmark: Landmark | None = field(default=None, repr=False)


class Attached(NamedTuple):
    """What was attached to a checkpoint: where it lies, its data, and its own fields, if it has some."""

    position: int
    data: dict[str, Any]
    fields: dict[str, Any] | None


class _Order(NamedTuple):
    """A state to store: under which name it has predecessors (None: under none), and all that goes with it."""

    session: str
    name: str | None
    landmark: Landmark
    form: Fields
    draft: Draft
    subject: str | None
    fence: int | None
    after: tuple[str, str | None] | None
    like: tuple[str, str]


class Checkpoints:
    """The checkpoints of one workspace. Safe to share between threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kept: OrderedDict[tuple[str, bytes | None], Kept] = OrderedDict()

    # -- saving

    async def save(
        self,
        session: str,
        name: str,
        form: Fields,
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
    ) -> Saved:
        """Store a state; durable on return. Raises `CheckpointConflict` if `after` is not the newest (None: if there is
        one). A writer that remembers nothing looks at the newest under this name, or `like` another."""
        id = id or self._journal.ids.random(9).hex()
        expected = None if after is ANYTHING else (name, await self._own_newest(session, name, after))
        landmark = Landmark(name, id, 0, 0, expires, pinned)
        order = _Order(session, name, landmark, form, Draft(type, note), subject, fence, expected, (name, like or name))
        landmark, digest = await self._put(order)
        return Saved(session, name, id, landmark.position, landmark.time, pinned, note, digest, landmark=landmark)

    async def _put(self, order: _Order) -> tuple[Landmark, bytes]:
        """Store a state with its event and landmark; says where it lies, and its digest."""
        session, stale = order.session, None
        while True:
            owner = await self._journal.owner(order.subject)
            kept = await self._last(session, order.like, owner, stale)
            woven = weave(order.name, order.form, kept, owner.salt)
            name, id = order.landmark.name, order.landmark.id
            sealed = self._journal.landmarks.seal_form(session, name, id, woven.form, owner)
            landmark = order.landmark._replace(time=self._journal.clock.now(), owner=owner.ref, form=sealed)
            strand, parts = (woven.strand, woven.start), self._parts(session, woven, owner)
            beside = Beside((landmark,), strand=strand, parts=parts, after=order.after)
            draft = Draft(order.draft.type, {**order.draft.data, "digest": woven.digest})
            reach("checkpoint.woven")
            try:
                record = await self._append(session, draft, owner, beside, order.fence)
            except StrandMoved:
                if kept.tip == woven.start:  # not by a thread of this handle: look at the store
                    self._forget(session)
                    stale = kept
                continue
            except SubjectGone:
                self._journal.forget_owners()
                self._forget(session)
                continue
            kept.tip = woven.start + len(woven.bodies)
            kept.learn(order.name, woven.fields, woven.fresh.items())
            return landmark._replace(position=record.position), woven.digest

    async def _own_newest(self, session: str, name: str, after: str | None) -> str | None:
        """What the newest of the session's own checkpoints must be if `after` is to be the newest: none, if that is
        one that a fork shares with its parent."""
        newest = await self._journal.landmarks.newest(session, name)
        found = None if newest is None else newest.landmark.id
        if found != after:
            raise CheckpointConflict(session, name, after, found)
        return after if newest is not None and newest.session == session else None

    def _parts(self, session: str, woven: Woven, owner: Owner) -> tuple[Part, ...]:
        if not woven.bodies:
            return ()
        return (self._journal.landmarks.part(session, woven.strand, woven.start, woven.bodies, owner),)

    async def _append(self, session: str, draft: Draft, owner: Owner, beside: Beside, fence: int | None) -> Any:
        prepared = [self._journal.prepare(draft, owner)]
        done = await self._journal.append_prepared(session, prepared, owner, fence=fence, beside=beside)
        return done.records[0]

    async def _last(self, session: str, names: tuple[str, str], owner: Owner, stale: Kept | None) -> Kept:
        """What the session's checkpoints are made of, as far as this owner may share it; a fresh strand if nothing is,
        or if the one that was found is the one that was tried in vain."""
        place = (session, owner.ref)
        known = self._kept.get(place)
        if known is None:
            known = await self._newest_kept(session, names, owner)
            if stale is not None and (known.strand, known.tip) == (stale.strand, stale.tip):
                known = self._fresh()
            known = self._kept.setdefault(place, known)
            while len(self._kept) > _REMEMBERED:
                self._kept.popitem(last=False)
        elif len(self._kept) > 1:
            with suppress(KeyError):  # another thread may have dropped it meanwhile
                self._kept.move_to_end(place)
        return known

    def _fresh(self) -> Kept:
        return Kept(int.from_bytes(self._journal.ids.random(6), "big"), 0)

    async def _newest_kept(self, session: str, names: tuple[str, str], owner: Owner) -> Kept:
        for name in dict.fromkeys(names):
            newest = await self._journal.landmarks.newest(session, name)
            if newest is None or newest.session != session or newest.landmark.owner != owner.ref:
                continue
            try:
                form = self._journal.landmarks.open_form(session, newest.landmark, owner)
                _, _, fields = await self._assembled(session, form, owner)
            except ValueError:
                continue  # damaged: nothing is built on it
            return await self._known(session, name, form, fields)
        return self._fresh()

    async def _known(self, session: str, name: str, form: Form, fields: dict[str, Any]) -> Kept:
        kept = Kept(form.strand, await self._end(session, form.strand, form.tip))
        kept.learn(name, fields, bodies_of(fields))
        return kept

    async def _end(self, session: str, strand: int, tip: int) -> int:
        """Where a strand ends that was last seen to end at `tip`: others may have gone on under another name."""
        parts = await self._journal.store.parts(self._journal.workspace, session, strand, tip, 2**62)
        return max([tip, *(part.start + part.count for part in parts)])

    def _forget(self, session: str) -> None:
        for place in [place for place in self._kept if place[0] == session]:
            self._kept.pop(place, None)

    # -- reading

    async def load(
        self,
        session: str,
        name: str,
        *,
        id: str | None = None,
        at: int | None = None,
        until: int | None = None,
    ) -> Saved | None:
        """The newest checkpoint, at or before a position or a time, or the one with an id; None if there is none. If it
        is damaged, the one before it is given, which says so; asked for by id, `CheckpointDamaged` is raised."""
        skipped: tuple[CheckpointDamaged, ...] = ()
        async for found in self._journal.landmarks.find(session, LandmarkQuery(name, id, at, until), page=1):
            try:
                saved = await self._filled(found)
            except CheckpointDamaged as damage:
                if id is not None:
                    raise
                skipped += (damage,)
                continue
            if saved is not None:
                return replace(saved, skipped=skipped)
        if skipped:
            raise skipped[0]
        return None

    async def list(
        self, session: str, name: str, *, before: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[Saved, None]:
        """Checkpoints without their fields, newest first; those before the one with the id `before`."""
        upto = None
        if before is not None:
            async for found in self._journal.landmarks.find(session, LandmarkQuery(name, before), page=1):
                upto = found.landmark.position - 1
                break
            else:
                return
        given = 0
        async for found in self._journal.landmarks.find(session, LandmarkQuery(name, upto=upto)):
            if limit is not None and given >= limit:
                return
            saved = await self._noted(found)
            if saved is not None:
                given += 1
                yield saved

    async def fill(self, saved: Saved) -> Saved:
        """A checkpoint with its fields read. Raises `CheckpointDamaged`."""
        assert saved.landmark is not None
        filled = await self._filled(Found(saved.session, saved.landmark))
        return filled or saved

    async def _noted(self, found: Found) -> Saved | None:
        """A checkpoint from its event; None if its payload was erased."""
        name, id, position, time, _, pinned, _, _ = found.landmark
        try:
            events = await self._journal.landmarks.events(found.session, [position])
        except JournalDamaged as damage:
            raise CheckpointDamaged(found.session, name, id, f"its event: {damage.reason}") from damage
        if not events:
            raise CheckpointDamaged(found.session, name, id, "its event is missing")
        if events[0].erased:
            return None
        data = dict(events[0].data)
        digest = data.pop("digest", b"")
        return Saved(found.session, name, id, position, time, pinned, data, digest, landmark=found.landmark)

    async def _filled(self, found: Found) -> Saved | None:
        saved = await self._noted(found)
        owner = await self._journal.landmarks.owner_of(found.landmark.owner)
        if saved is None or owner is None:
            return None
        try:
            form = self._journal.landmarks.open_form(found.session, found.landmark, owner)
            fields, digest, made_of = await self._assembled(found.session, form, owner)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise CheckpointDamaged(saved.session, saved.name, saved.id, str(error)) from error
        if digest != saved.digest:
            raise CheckpointDamaged(saved.session, saved.name, saved.id, "its state does not match its digest")
        if (saved.session, owner.ref) not in self._kept:  # the next save need not read it again
            self._kept[saved.session, owner.ref] = await self._known(saved.session, saved.name, form, made_of)
        return replace(saved, fields=fields)

    async def _assembled(self, session: str, form: Form, owner: Owner) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
        """A state, its digest and what it is made of. ValueError if something is missing or does not open."""
        bodies = await self._journal.landmarks.bodies(session, form.spans(), owner)
        try:
            return form.assemble(lambda span: [bodies[span[0], index] for index in range(span[1], span[2])], owner.salt)
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"a part of it is missing ({error})") from error

    # -- what lies beside a checkpoint

    async def attach(
        self, session: str, name: str, id: str, data: dict[str, Any], *, type: str, form: Fields | None = None
    ) -> None:
        """An event that belongs to the checkpoint `id` of a name, such as the writes of a graph, with a state of its own
        if it has one; durable on return."""
        landmark = Landmark(attached_to(name, id), self._journal.ids.random(6).hex(), 0, self._journal.clock.now())
        if form is not None:
            await self._put(_Order(session, None, landmark, form, Draft(type, data), None, None, None, (name, name)))
            return
        owner = await self._journal.owner(None)
        await self._append(session, Draft(type, data), owner, Beside((landmark._replace(owner=owner.ref),)), None)

    async def attached(self, session: str, name: str, id: str) -> Sequence[Attached]:
        """What was attached to a checkpoint, oldest first."""
        found = [one async for one in self._journal.landmarks.find(session, LandmarkQuery(attached_to(name, id)))]
        given = []
        for one in sorted(found, key=lambda one: one.landmark.position):
            saved = await (self._noted(one) if one.landmark.form is None else self._filled(one))
            if saved is not None:
                given.append(Attached(saved.position, saved.note, saved.fields))
        return given

    async def names(self, session: str, prefix: str = "") -> Sequence[str]:
        """The names under which there are checkpoints, those of shared events included."""
        names: set[str] = set()
        journal = self._journal
        for origin in (session, *(one.session for one in await journal.reading.lineage(session))):
            names.update(await journal.store.landmark_names(journal.workspace, origin, prefix))
        return sorted(name for name in names if not name.startswith(ATTACHED))

    async def drop(self, session: str, name: str, ids: Collection[str] | None, *, reason: str) -> int:
        """Remove checkpoints of a session (None: all under the name), what is attached to them and every byte that
        only they were made of. Returns how many went; a fork that shares them loses them too."""
        self._forget(session)
        return await Dropping(self._journal, session, name).drop(ids, reason)

    async def pin(self, saved: Saved, pinned: bool) -> None:
        """Keep a checkpoint from expiring, or no longer."""
        assert saved.landmark is not None
        moved = saved.landmark._replace(pinned=pinned)
        note = {"name": saved.name, "id": saved.id, "pinned": pinned}
        owner = await self._journal.owner(None)
        await self._append(saved.session, Draft("checkpoint.pinned", note), owner, Beside(rewritten=(moved,)), None)
