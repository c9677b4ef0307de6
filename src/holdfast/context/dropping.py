"""Removing checkpoints: their landmarks, their events' payloads, and every byte that no other checkpoint is made of."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..crashpoints import reach
from ..errors import PositionConflict
from ..journal.events import Draft
from ..journal.forms import Form, Span
from ..journal.journal import Journal
from ..journal.landmarks import attached_to
from ..journal.owners import Owner
from ..ports import Beside, Landmark, LandmarkQuery, Part

_ALL = 10_000_000
_PART_ITEMS = 64


class Dropping:
    """Removes checkpoints under one name of a session. What stays is moved to a new strand, so that the old one can go
    whole: whoever still counts on the old one finds it gone, and looks again."""

    def __init__(self, journal: Journal, session: str, name: str) -> None:
        self._journal = journal
        self._session = session
        self._name = name

    async def drop(self, ids: Collection[str] | None, reason: str) -> int:
        """Remove those with these ids, or all. Returns how many there were."""
        while True:
            head = await self._journal.reading.head(self._session)
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

    async def _own(self, name: str) -> Sequence[Landmark]:
        journal = self._journal
        return await journal.store.landmarks(journal.workspace, self._session, LandmarkQuery(name, limit=_ALL))

    async def _attached(self, ids: Collection[str] | None) -> list[Landmark]:
        """What is attached to these checkpoints; to any, also to such as never came (None)."""
        names = [attached_to(self._name, one) for one in ids or ()]
        if ids is None:
            journal, prefix = self._journal, attached_to(self._name, "")
            names = await journal.store.landmark_names(journal.workspace, self._session, prefix)
        return [landmark for name in names for landmark in await self._own(name)]

    async def _beside(self, doomed: list[Landmark], attached: list[Landmark]) -> Beside:
        gone = {(one.name, one.id) for one in (*doomed, *attached)}
        every = await self._all_states()
        rewritten, parts = await self._moved([one for one in every if (one.name, one.id) not in gone])
        positions = [one.position for one in (*doomed, *attached)]
        return Beside(
            rewritten=rewritten,
            parts=parts,
            removed=sorted(gone),
            cuts=sorted({span.strand for one in every for span in await self._spans(one)}),
            stripped=await self._journal.landmarks.digests(self._session, positions),
        )

    async def _all_states(self) -> list[Landmark]:
        """Every landmark of the session that has a form, newest first: they all share strands."""
        journal, found = self._journal, []
        for name in await journal.store.landmark_names(journal.workspace, self._session, ""):
            found += [one for one in await self._own(name) if one.form is not None]
        return sorted(found, key=lambda one: one.position, reverse=True)

    async def _spans(self, landmark: Landmark) -> list[Span]:
        opened = await self._form(landmark)
        return opened[0].spans() if opened is not None else []

    async def _form(self, landmark: Landmark) -> tuple[Form, Owner] | None:
        """The form of a landmark that has one that can be read."""
        owner = await self._journal.landmarks.owner_of(landmark.owner)
        if landmark.form is None or owner is None or not landmark.intact:
            return None
        try:
            return self._journal.landmarks.open_form(self._session, landmark, owner), owner
        except ValueError:
            return None

    async def _moved(self, kept: list[Landmark]) -> tuple[list[Landmark], list[Part]]:
        """What stays, made of new strands, one for each owner."""
        rewritten: list[Landmark] = []
        parts: list[Part] = []
        by_owner: dict[bytes | None, list[tuple[Landmark, Form, Owner]]] = {}
        for landmark in reversed(kept):  # oldest first: what follows on each other stays together
            opened = await self._form(landmark)
            if opened is not None:
                by_owner.setdefault(landmark.owner, []).append((landmark, *opened))
        for group in by_owner.values():
            owner = group[0][2]
            strand = int.from_bytes(self._journal.ids.random(6), "big")
            spans = [span for _, form, _ in group for span in form.spans()]
            bodies = await self._journal.landmarks.bodies(self._session, spans, owner)
            wanted = [(strand, index) for strand, first, last in spans for index in range(first, last)]
            there = [place for place in dict.fromkeys(wanted) if place in bodies]
            places = {place: number for number, place in enumerate(there)}
            ordered = [bodies[place] for place in there]
            for start in range(0, len(ordered), _PART_ITEMS):
                chunk = ordered[start : start + _PART_ITEMS]
                parts.append(self._journal.landmarks.part(self._session, strand, start, chunk, owner))
            for landmark, form, _ in group:
                if any((span.strand, index) not in places for span in form.spans() for index in range(*span[1:])):
                    continue  # damaged before: it cannot be helped here
                moved = form.moved(places, strand, len(ordered))
                sealed = self._journal.landmarks.seal_form(self._session, landmark.name, landmark.id, moved, owner)
                rewritten.append(landmark._replace(form=sealed))
        return rewritten, parts
