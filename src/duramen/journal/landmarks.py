"""Finding places in a session by name, over the sessions that it was forked from; and the bodies of their states."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import zstandard

from ..errors import KeyMissing
from ..ports import Ids, Landmark, LandmarkQuery, Part, Store
from .chain import payload_digest
from .events import Event
from .forms import Form, Span
from .owners import NOBODY, Owner, Owners
from .reading import Reading
from .sealing import NONCE_BYTES, seal, unseal
from .sealing import Form as Envelope

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(list[bytes]).decode
_PLAIN = bytes((Envelope.PLAIN,))
_PRESS_ABOVE = 512
"""Bytes from which compression is tried."""


ATTACHED = "+"
"""How the names begin under which lies what is attached to a landmark."""


def attached_to(name: str, id: str) -> str:
    """The name under which lies what is attached to a landmark."""
    return attached_under(name) + _short(id, 12)


def attached_under(name: str) -> str:
    """How all those names begin, for the landmarks under one name."""
    return ATTACHED + _short(name, 6)


def _short(text: str, size: int) -> str:
    """A text of any length by its hash: there are many of these names, and each is stored twice."""
    return urlsafe_b64encode(blake2b(text.encode(), digest_size=size).digest()).decode()


_idle: list[zstandard.ZstdCompressor] = []
"""Compressors that nobody uses now: making one takes longer than most of what it is used for."""


def _pressed(body: bytes) -> bytes:
    try:
        compressor = _idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=3)
    pressed = compressor.compress(body)
    _idle.append(compressor)
    return pressed


class Found(NamedTuple):
    """A landmark, and the session that set it."""

    session: str
    landmark: Landmark


class Landmarks:
    """The landmarks of one workspace."""

    def __init__(self, store: Store, workspace: str, reading: Reading, owners: Owners, ids: Ids) -> None:
        self._store = store
        self._workspace = workspace
        self._reading = reading
        self._owners = owners
        self._ids = ids

    async def find(self, session: str, query: LandmarkQuery, page: int = 100) -> AsyncGenerator[Found, None]:
        """Landmarks, newest first: the session's own, then those of the events that it shares."""
        stretches = [
            (session, None),
            *((one.session, one.last) for one in reversed(await self._reading.lineage(session))),
        ]
        for origin, last in stretches:
            upto = last if query.upto is None else query.upto if last is None else min(last, query.upto)
            while True:
                asked = query._replace(upto=upto, limit=page)
                rows = await self._store.landmarks(self._workspace, origin, asked)
                for row in rows:
                    yield Found(origin, row)
                if len(rows) < page or (upto is not None and rows[-1].position > upto):
                    break
                upto = rows[-1].position - 1

    async def newest(
        self, session: str, name: str, *, upto: int | None = None, until: int | None = None
    ) -> Found | None:
        """The newest landmark under a name that is intact, at or before a position or a time."""
        async for found in self.find(session, LandmarkQuery(name, None, upto, until), page=1):
            if found.landmark.intact:
                return found
        return None

    async def events(self, session: str, positions: Sequence[int]) -> list[Event]:
        """Single events of this very session, each verified; what is missing is left out."""
        items = await self._store.pick(self._workspace, session, positions)
        return await self._reading.opened_feed(items)

    async def owner_of(self, ref: bytes | None) -> Owner | None:
        """The living owner with this reference."""
        return NOBODY if ref is None else (await self._owners.load([ref])).get(ref)

    async def digests(self, session: str, positions: Sequence[int]) -> list[tuple[int, bytes]]:
        """What stands for the payloads at these positions once they are gone; without those that are gone already."""
        found = []
        for item in await self._store.pick(self._workspace, session, positions):
            owner = await self.owner_of(item.record.subject)
            if item.record.payload is not None and owner is not None:
                found.append((item.record.position, payload_digest(item.record.payload, owner.salt)))
        return found

    # -- the bodies of states

    def part(self, session: str, strand: int, start: int, bodies: list[bytes], owner: Owner) -> Part:
        """Bodies as a part of a strand, compressed and sealed."""
        where = _pack((self._workspace, session, strand, start))
        return Part(strand, start, len(bodies), owner.ref, self.enclose(_pack(bodies), owner, where))

    def seal_form(self, session: str, name: str, id: str, form: bytes, owner: Owner) -> bytes:
        """A form as it lies in a landmark's row."""
        where = _pack((self._workspace, session, name, id)) if owner.data_key else b""
        return self.enclose(form, owner, where)

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

    def enclose(self, body: bytes, owner: Owner, where: bytes) -> bytes:
        """Bytes as they are stored: compressed where that helps, and sealed for their owner and their place."""
        form = Envelope.PLAIN
        if len(body) > _PRESS_ABOVE:
            pressed = _pressed(body)
            if len(pressed) < len(body) * 0.9:
                body, form = pressed, Envelope.ZSTD
        nonce = self._ids.random(NONCE_BYTES) if owner.data_key else b""
        return seal(body, form, owner.data_key, nonce, where)

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


def disclose(envelope: bytes, owner: Owner, where: bytes) -> bytes:
    """What was enclosed. ValueError if it was changed, moved, or is another owner's."""
    try:
        form, body = unseal(envelope, owner.data_key, where)
    except KeyMissing as error:
        raise ValueError("a part of it is sealed under a key that its owner never had") from error
    if not form & Envelope.ZSTD:
        return body
    try:
        return zstandard.ZstdDecompressor().decompress(body)
    except zstandard.ZstdError as error:
        raise ValueError("a part of it does not unpack") from error


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
