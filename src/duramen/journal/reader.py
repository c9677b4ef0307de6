"""From records to events: verify the chain, open envelopes, decode payloads, load blobs.

Every event that the reader returns was verified against its hash and the hash of the event before it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import zstandard

from ..errors import DuramenError, InvalidInput, JournalDamaged, StoreDamaged, UnknownSession, shown
from ..ports import GENESIS, FeedItem, Head, Record, Store
from .chain import event_hash, payload_digest
from .codec import BlobRef, Codec, surrogate_text
from .events import Event
from .owners import Owner, Owners
from .sealing import EnvelopeFlags, blob_place, payload_place, unseal

_BROKEN = (ValueError, TypeError, KeyError, IndexError, ArithmeticError, OSError, msgspec.DecodeError)
_MAX_LINEAGE = 1000
PAGE = 500
"""The number of events that are read, verified and decoded at a time."""


class Segment(NamedTuple):
    """A range of a session's history, and the session that recorded it."""

    session: str
    first: int
    last: int


class Reader:
    """Reads the events of one workspace."""

    def __init__(self, store: Store, workspace: str, codec: Codec, owners: Owners) -> None:
        self._store = store
        self._workspace = workspace
        self._codec = codec
        self._owners = owners
        self._lineages: dict[str, list[Segment]] = {}

    async def head(self, session: str) -> Head:
        """The head of the session. Position 0 if it has no events."""
        return await self._store.head(self._workspace, session) or Head(0, GENESIS)

    async def lineage(self, session: str) -> list[Segment]:
        """The ranges of its ancestors that the session shares, in order. Its own events follow them. Raises
        `JournalDamaged` if an ancestor is missing."""
        known = self._lineages.get(session)
        if known is not None:
            return known
        segments: list[Segment] = []
        row = await self._store.session(self._workspace, session)
        if row is None:
            return segments  # do not cache: the session may be created later, also as a fork
        upto = None
        while row is not None and row.parent is not None and len(segments) < _MAX_LINEAGE:
            upto = row.fork_at if upto is None else min(upto, row.fork_at)
            parent = await self._store.session(self._workspace, row.parent)
            if parent is None:
                raise JournalDamaged(session, 1, f"its parent session {shown(row.parent)} is missing")
            first = parent.fork_at + 1 if parent.parent is not None else 1
            if first <= upto:
                segments.insert(0, Segment(row.parent, first, upto))
            row = parent
        if len(self._lineages) > 10_000:
            self._lineages.clear()
        self._lineages[session] = segments
        return segments

    async def records(self, session: str, start: int, stop: int) -> list[tuple[str, Record]]:
        """The records from `start` to `stop`, by position, each with the session that recorded it."""
        found: list[tuple[str, Record]] = []
        segments = await self.lineage(session)
        for origin, first, last in segments:
            if first <= stop and last >= start:
                rows = await self._store.read(self._workspace, origin, max(first, start), min(last, stop))
                found.extend((origin, row) for row in rows)
        shared = segments[-1].last if segments else 0
        if stop > shared:
            rows = await self._store.read(self._workspace, session, max(shared + 1, start), stop)
            found.extend([(session, row) for row in rows])
        return found

    async def hash_at(self, session: str, position: int) -> bytes:
        """The hash of the event at `position`, or `GENESIS` for 0. Raises `UnknownSession` or `JournalDamaged`."""
        if position == 0:
            return GENESIS
        found = await self.records(session, position, position)
        if not found:
            head = await self.head(session)
            if head.position == 0:
                raise UnknownSession(session)
            raise JournalDamaged(session, position, "the event is missing")
        return found[0][1].hash

    async def events(self, session: str, start: int, stop: int, types: frozenset[str] | None) -> list[Event]:
        """The verified events from `start` to `stop`, and of these `types` if given. `stop` must not be after the end
        of the session. Raises `JournalDamaged` for the first event that is missing or does not match its hash."""
        found, error = await self.page(session, start, stop, types)
        if error is not None:
            raise error
        return found

    async def page(
        self, session: str, start: int, stop: int, types: frozenset[str] | None
    ) -> tuple[list[Event], DuramenError | None]:
        """The same as `events`, but returns the error, if any, with the events before it."""
        rows = await self.records(session, start, stop)
        while True:
            opened: list[Event] = []
            try:
                previous = await self.hash_at(session, start - 1)
                await self.open_into(opened, session, start, previous, rows, types)
                if start + len(rows) <= stop:
                    raise JournalDamaged(session, start + len(rows), "the event is missing")
            except JournalDamaged as damage:
                again = await self.records(session, start, stop)
                if again == rows:
                    return opened, damage
                rows = again  # a subject was erased during the read, so the page was inconsistent
            except DuramenError as error:
                return opened, error
            else:
                return opened, None

    async def open_into(
        self,
        events: list[Event],
        session: str,
        start: int,
        previous: bytes,
        rows: Sequence[tuple[str, Record]],
        types: frozenset[str] | None = None,
    ) -> None:
        """Verify and decode consecutive records, which begin at position `start` and follow the hash `previous`. Append
        the events to `events`. Raises the error of the first bad one, after the events before it were appended."""
        owners = await self._owners.load({record.subject for _, record in rows})
        refs: list[BlobRef] = []
        decode = self._codec.reader(lambda ref: _note(refs, ref))
        expected = start
        for origin, record in rows:
            position, kind, time, actor, cause, key, subject, payload, digest, stored = record
            if position != expected:
                raise JournalDamaged(session, expected, "the event is missing")
            owner = owners.get(subject)
            if payload is not None and owner is None:
                raise JournalDamaged(session, position, "its subject is missing")
            if payload is None and digest is None:
                raise JournalDamaged(session, position, "its payload is missing")
            header = (self._workspace, origin, position, kind, time, actor, cause, key, subject)
            try:
                if payload is not None and owner is not None:
                    digest = payload_digest(payload, owner.salt)
                matches = event_hash(previous, digest or b"", header) == stored
            except (TypeError, ValueError, OverflowError):
                matches = False  # damage changed the type of a value
            if not matches:
                raise JournalDamaged(session, position, "it does not match its hash")
            previous = stored
            expected += 1
            if types is not None and kind not in types:
                continue
            data = None
            if payload is not None and owner is not None:
                try:
                    if payload[0] == 0:
                        data = decode(payload[1:])
                    else:
                        data = await self._unusual(origin, position, payload, owner, decode)
                    if refs:
                        refs.clear()
                        data = await self._with_blobs(origin, position, payload, owner)
                except DuramenError:
                    raise
                except RecursionError as error:
                    raise InvalidInput(
                        f"event {position} of session {shown(session)} is nested too deeply for the remaining stack",
                        hint="increase sys.setrecursionlimit, or read the event outside of deep recursion",
                    ) from error
                except _BROKEN as error:
                    raise JournalDamaged(session, position, f"its payload cannot be decoded: {error}") from error
            name = owner.name if owner is not None else None
            erased = payload is None
            events.append(Event(origin, position, kind, time, actor, cause, key, name, data, stored, erased))

    async def _unusual(
        self, session: str, position: int, payload: bytes, owner: Owner, decode: Callable[[bytes], Any]
    ) -> Any:
        """Decode a payload that is sealed, or that is itself a blob."""
        flags, body = unseal(payload, owner.data_key, payload_place(self._workspace, session, position))
        if flags & EnvelopeFlags.APART:
            address, _ = decode(body)
            body = await self.blob(address, owner)
        return decode(body)

    async def _with_blobs(self, session: str, position: int, payload: bytes, owner: Owner) -> Any:
        """Decode a payload with its large parts, which are loaded from blobs."""
        refs: list[BlobRef] = []
        decode = self._codec.reader(lambda ref: _note(refs, ref))
        await self._unusual(session, position, payload, owner, decode)
        bodies = {ref.address: await self.blob(ref.address, owner) for ref in refs}

        def load(ref: BlobRef) -> Any:
            body = bodies[ref.address]
            return surrogate_text(body) if ref.text else body

        return await self._unusual(session, position, payload, owner, self._codec.reader(load))

    async def blob(self, address: bytes, owner: Owner) -> bytes:
        """The content of a blob. Raises ValueError if it is missing or does not match its address."""
        envelope = await self._store.blob(self._workspace, address)
        if envelope is None:
            raise ValueError(f"the blob {address.hex()[:16]} is missing")
        return self.open_blob(address, envelope, owner)

    def open_blob(self, address: bytes, envelope: bytes, owner: Owner) -> bytes:
        """The content of the envelope of a blob. Raises ValueError if it does not match its address."""
        flags, body = unseal(envelope, owner.data_key, blob_place(self._workspace, address))
        if flags & EnvelopeFlags.ZSTD:
            try:
                body = zstandard.ZstdDecompressor().decompress(body)
            except (zstandard.ZstdError, MemoryError) as error:  # a damaged header may declare any size
                raise ValueError(f"the blob {address.hex()[:16]} cannot be decompressed") from error
        if owner.address(body) != address:
            raise ValueError(f"the blob {address.hex()[:16]} does not match its address")
        return body

    async def opened_feed(self, items: Sequence[FeedItem]) -> list[Event]:
        """The events of feed items, in the same order, each verified against the hash before it."""
        events: list[Event] = []
        for item in items:
            rows, position = [(item.session, item.record)], item.record.position
            start = position if isinstance(position, int) else 0
            await self.open_into(events, item.session, start, item.prev_hash, rows)
        return events

    async def pages(
        self, session: str, start: int, stop: int | None, types: frozenset[str] | None, size: int
    ) -> AsyncGenerator[list[Event], None]:
        """Yield the events from `start` to `stop`, or to the present end, in pages of `size`. At a bad event it yields
        the events before it, then raises."""
        last = (await self.head(session)).position
        last = last if stop is None else min(stop, last)
        while start <= last:
            upto = min(start + size - 1, last)
            page, error = await self.page(session, start, upto, types)
            yield page
            if error is not None:
                raise error
            start = upto + 1

    async def pages_backwards(
        self, session: str, start: int, stop: int | None, types: frozenset[str] | None, size: int
    ) -> AsyncGenerator[list[Event], None]:
        """The same as `pages`, from the end to the beginning. Events descend within a page. A page with a bad event is
        not yielded."""
        last = (await self.head(session)).position
        last = last if stop is None else min(stop, last)
        while last >= start:
            lower = max(start, last - size + 1)
            page = await self.events(session, lower, last, types)
            page.reverse()
            yield page
            last = lower - 1


def _note(refs: list[BlobRef], ref: BlobRef) -> BlobRef:
    refs.append(ref)
    return ref


def damage_of(error: DuramenError, session: str) -> tuple[str, int, str]:
    """The session, position and reason of an error that reports damage. Raises any other error."""
    if isinstance(error, JournalDamaged):
        return error.session, error.position, error.reason
    if isinstance(error, StoreDamaged):
        return session, 0, error.message
    raise error
