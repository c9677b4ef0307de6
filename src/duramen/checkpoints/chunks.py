"""The bodies of states: packed into parts of a strand, compressed and sealed, and read back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..journal.envelope import disclose, enclose
from ..journal.journal import Journal
from ..journal.owners import Owner
from ..journal.sealing import Form as Envelope
from ..ports import Landmark, Part
from .manifest import Form, Span

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(list[bytes]).decode
_PLAIN = bytes((Envelope.PLAIN,))


class Chunks:
    """Writes and reads the bodies of states in one workspace."""

    def __init__(self, journal: Journal) -> None:
        self._store = journal.store
        self._workspace = journal.workspace
        self._ids = journal.ids

    def part(self, session: str, strand: int, start: int, bodies: list[bytes], owner: Owner) -> Part:
        """Bodies as a part of a strand, compressed and sealed."""
        where = _pack((self._workspace, session, strand, start))
        return Part(strand, start, len(bodies), owner.ref, enclose(_pack(bodies), owner, where, self._ids))

    def seal_form(self, session: str, name: str, id: str, form: bytes, owner: Owner) -> bytes:
        """A form as it lies in a landmark's row."""
        where = _pack((self._workspace, session, name, id)) if owner.data_key else b""
        return enclose(form, owner, where, self._ids)

    async def open_form(self, session: str, landmark: Landmark, owner: Owner) -> Form:
        """The form of a landmark. ValueError if it was changed or moved."""
        where = _pack((self._workspace, session, landmark.name, landmark.id))
        try:
            form = Form(disclose(landmark.form or b"", owner, where))
            while pages := form.pages():
                bodies = await self.bodies(session, pages, owner)
                form.turn([bodies[page.strand, page.first] for page in pages])
        except (KeyError, IndexError, TypeError, AttributeError, msgspec.DecodeError) as error:
            raise ValueError(f"its form is broken, or a page of it is missing ({error})") from error
        return form

    async def bodies(self, session: str, spans: Sequence[Span], owner: Owner) -> dict[tuple[int, int], bytes]:
        """The items of some spans, by strand and index; without those whose part is missing or does not open."""
        found: dict[tuple[int, int], bytes] = {}
        for strand, first, last in _merged(spans):
            for _, start, _, _, envelope in await self._store.parts(self._workspace, session, strand, first, last):
                try:
                    if envelope[:1] == _PLAIN:  # nothing is bound to its place: a short cut, as there may be hundreds
                        bodies = _unpack(memoryview(envelope)[1:])
                    else:
                        where = _pack((self._workspace, session, strand, start))
                        bodies = _unpack(disclose(envelope, owner, where))
                except (msgspec.DecodeError, ValueError):
                    continue
                for index, body in enumerate(bodies, start):
                    found[strand, index] = body
        return found


_NEAR = 32
"""Two stretches of a strand with so few items between them are read in one."""


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans):
        last = merged[-1] if merged else None
        if last is not None and last.strand == span.strand and span.first <= last.last + _NEAR:
            merged[-1] = Span(span.strand, last.first, max(last.last, span.last))
        else:
            merged.append(span)
    return merged
