"""The journal of a workspace: append, read, follow, fork, erase, verify."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple, Protocol

from ..crash_points import reach
from ..errors import InvalidInput, JournalDamaged, SessionExists, StoreDamaged, StoreReadOnly, UnknownSession, shown
from ..ports import (
    Batch,
    BatchChange,
    Blob,
    Clock,
    Erase,
    FeedItem,
    Head,
    Ids,
    LeaseRow,
    Outlet,
    Record,
    ReleaseLease,
    Rewrap,
    RunQuery,
    SessionRow,
    Store,
    Stored,
    SubjectGone,
    Transaction,
)
from .bookmarks import Bookmarks
from .chain import payload_digest
from .codec import Codec
from .encoder import Encoder, Prepared
from .events import (
    RUN_EVENTS,
    Draft,
    Event,
    SessionStatus,
    check_name,
    check_seconds,
    check_whole,
    standing,
    standing_of_run,
)
from .owners import NOBODY, WORKSPACE, Owner, Owners
from .reader import PAGE, Reader
from .sealing import Keyring, KeySource, master_keys
from .verification import Verification, Verifier


class EventProjection(Protocol):
    """Adds rows to a batch for events of some types. The store writes them in the transaction of the events.

    Events of these `types` are encoded whole: no part of their payload is stored as a blob.
    """

    types: frozenset[str]

    def extend(
        self, session: str, prepared: Sequence[Prepared], owner: Owner, changes: Sequence[BatchChange]
    ) -> Sequence[BatchChange]:
        """`changes` with the rows of these events added. Must not do I/O. Raises to refuse the append."""
        ...


class NoProjection:
    """Adds no rows."""

    types: frozenset[str] = frozenset()

    def extend(
        self, session: str, prepared: Sequence[Prepared], owner: Owner, changes: Sequence[BatchChange]
    ) -> Sequence[BatchChange]:
        return changes


class ErasureReport(NamedTuple):
    """What the erasure of a subject removed. `tombstones` are the events that record it, one per session."""

    subject: str
    payloads: int
    blobs: int
    checkpoints: int
    memories: int
    vectors: int
    bytes: int
    key_destroyed: bool
    tombstones: list[Event]


class Journal:
    """The sessions of one workspace in one store."""

    def __init__(
        self,
        store: Store,
        workspace: str,
        *,
        clock: Clock,
        ids: Ids,
        codec: Codec,
        keyring: Keyring,
        max_payload: int,
        projection: EventProjection | None = None,
    ) -> None:
        self.store = store
        self.workspace = workspace = check_name("workspace", workspace)
        self.clock = clock
        self.ids = ids
        self._owners = Owners(store, workspace, keyring)
        self._plain = not keyring
        self._projection = projection or NoProjection()
        self._preparing = Encoder(codec, ids, workspace, max_payload)
        # Tombstones are placed inside the store's transaction, where no blob can be added.
        self._whole = Encoder(codec.whole(), ids, workspace, max_payload)
        self.reader = Reader(store, workspace, codec, self._owners)
        self.bookmarks = Bookmarks(store, workspace, self.reader, self._owners)
        self.codec = codec.whole()
        """The codec for states. It makes no blobs, because states are stored in chunks."""
        self._verifier = Verifier(store, workspace, self._owners)

    async def check_key(self) -> None:
        """Raise `WrongKey` or `KeyMissing` now instead of at the first read. With a master key, this creates the data
        key of the workspace if there is none. The next call checks the master key against that data key."""
        row = await self.store.subject(self.workspace, WORKSPACE)
        if row is not None:
            self._owners.keyring.unwrap(self.workspace, row)
        elif self._owners.keyring:
            with suppress(StoreReadOnly):
                await self._owners.of(None)

    async def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        key: str | None = None,
        expected: int | None = None,
        subject: str | None = None,
        fence: int | None = None,
    ) -> list[Event]:
        """Append events to a session: all of them, or none. On return they are safe from a power cut.

        With a `key` that was used before, returns the events that were stored then. Raises `InvalidInput` if that
        append had another number of events. See `Store.append` for the errors of `expected` and `fence`.
        """
        if key is not None:
            key = self.stored_name(check_name("idempotency key", key))
            repeated = await self._inherited(session, key, len(drafts))
            if repeated is not None:
                return await self._stored(session, repeated, len(drafts))
        if expected is not None:
            expected = check_whole("expected", expected, 0)
        if fence is not None:
            fence = check_whole("fence", fence, 0)
        if subject is not None:
            subject = check_name("subject", subject)
        while True:
            owner = NOBODY if subject is None and self._plain else await self._owners.of(subject)
            if not drafts:
                raise InvalidInput("there is nothing to append", hint="give at least one event")
            prepared = [self.prepare(draft, owner) for draft in drafts]
            batch = await self._batch(session, prepared, owner, key, expected, fence)
            try:
                stored = await self.store.append(batch)
            except SubjectGone:
                self._owners.forget_all()  # another process erased it: create a new subject with this name
                continue
            if stored.repeated:
                return await self._stored(session, stored.records, len(prepared))
            return self._answer(session, prepared, owner, stored.records)

    async def _batch(
        self,
        session: str,
        prepared: list[Prepared],
        owner: Owner,
        key: str | None,
        expected: int | None,
        fence: int | None,
        changes: Sequence[BatchChange] = (),
        synced: bool = True,
    ) -> Batch:
        """The batch of prepared events for the store."""
        blobs: Sequence[Blob] = ()
        for item in prepared:
            if item.parts:
                blobs = await self._new_blobs(prepared, owner, synced)
                break
        projected = self._projection.extend(session, prepared, owner, changes)
        now = self.clock.now()
        place = self._preparing.placing(session, prepared, owner, key, now)
        reach("append.encoded")
        every = (*projected, *blobs)
        return Batch(self.workspace, session, len(prepared), place, key, expected, fence, now, owner.ref, every, synced)

    def stored_name(self, name: str) -> str:
        """The name under which something is stored: a credential in it is replaced, and different names stay
        different."""
        return name if self.codec.redactor is None else self.codec.redactor.name(name)

    def redacted(self, text: str) -> str:
        """The text with credentials replaced."""
        return text if self.codec.redactor is None else self.codec.redactor.text(text)

    async def owner(self, subject: str | None) -> Owner:
        """The owner of data about a subject, for `prepare`. None stands for the workspace."""
        if subject is None:
            return NOBODY if self._plain else await self._owners.of(None)
        return await self._owners.of(check_name("subject", subject))

    def forget_owners(self) -> None:
        """Read subjects again from the store, because another process erased one."""
        self._owners.forget_all()

    def prepare(self, draft: Draft, owner: Owner, *, whole: bool = False) -> Prepared:
        """Encode an event for a later `append_prepared`. The `data` of the result is what a reader will get. With
        `whole`, no part of the payload becomes a blob, so erasing the payload removes everything."""
        whole = whole or (
            isinstance(draft, Draft) and isinstance(draft.type, str) and draft.type in self._projection.types
        )
        return (self._whole if whole else self._preparing).draft(draft, owner)

    async def append_prepared(
        self,
        session: str,
        prepared: list[Prepared],
        owner: Owner,
        *,
        key: str | None = None,
        expected: int | None = None,
        fence: int | None = None,
        changes: Sequence[BatchChange] = (),
        release: bool = False,
        within: Transaction | None = None,
        synced: bool = True,
    ) -> Stored:
        """Append events that were prepared for this owner, with changes of runs and projections, and within a
        transaction if one is given. `release` also releases the lease of `fence`. Without `synced`, the events are
        committed on return and survive the death of the process, but a power cut may remove them until the next synced
        append or `Store.sync`."""
        every = (*changes, ReleaseLease()) if release else changes
        batch = await self._batch(session, prepared, owner, key, expected, fence, every, synced)
        return await self.store.append(batch) if within is None else within.append(batch)

    async def _inherited(self, session: str, key: str, count: int) -> list[Record] | None:
        """The records with this key among the events that a fork shares with its ancestors."""
        for origin, first, last in await self.reader.lineage(session):
            position = await self.store.find(self.workspace, origin, key)
            if position is not None and first <= position and position + count - 1 <= last:
                return await self.store.read(self.workspace, origin, position, position + count - 1)
        return None

    async def _new_blobs(self, prepared: list[Prepared], owner: Owner, synced: bool) -> list[Blob]:
        """The blobs to store with a batch: those that are missing. An unsynced batch contains all of its blobs, because
        an existing blob may belong to another unsynced batch, which a power cut can remove."""
        parts = {address: body for item in prepared for address, body in item.parts.items()}
        missing = await self.store.missing_blobs(self.workspace, list(parts)) if synced else parts
        return self._preparing.blobs({address: parts[address] for address in missing}, owner)

    async def _stored(self, session: str, records: list[Record], count: int) -> list[Event]:
        first, *rest = records
        # The events of one append have the same time, and only the first one has the key.
        if len(records) != count or any(record.time != first.time or record.key is not None for record in rest):
            raise InvalidInput(
                f"the key {shown(first.key)} was already used for an append with another number of events",
                hint="repeat the first append unchanged, or choose another key",
            )
        return await self.reader.events(session, records[0].position, records[-1].position, None)

    def _answer(self, session: str, prepared: list[Prepared], owner: Owner, records: list[Record]) -> list[Event]:
        events = []
        for item, record in zip(prepared, records, strict=True):
            position, kind, time, actor, cause, key, _, _, _, stored = record
            events.append(Event(session, position, kind, time, actor, cause, key, owner.name, item.data, stored))
        return events

    async def follow(
        self, session: str, after: int, types: frozenset[str] | None, timeout: float | None
    ) -> AsyncGenerator[list[Event], None]:
        """Yield pages of events after a position, and wait for new ones from any process. Ends when there was no new
        event for `timeout` seconds. None waits without a limit. A power cut cannot remove an event that was yielded."""
        idle = 0.0
        while True:
            mark = await self.store.mark()
            before, lost = after, False
            async with aclosing(self.reader.pages(session, after + 1, None, None, PAGE)) as pages:
                async for page in pages:
                    if page and not await self._is_safe(session, page[-1]):
                        lost = True
                        break
                    after = page[-1].position if page else after
                    wanted = page if types is None else [event for event in page if event.type in types]
                    if wanted:
                        yield wanted
            if after != before or lost:
                idle = 0.0
                continue
            if timeout is not None and idle >= timeout:
                return
            slice_ = 1.0 if timeout is None else min(1.0, timeout - idle)
            idle += await self.store.changed(mark, slice_)

    async def _is_safe(self, session: str, last: Event) -> bool:
        """Sync, so that a power cut cannot remove the event any more. Returns False if the event is gone, because a
        database server that crashed after the read may have lost it."""
        await self.store.sync()
        found = await self.reader.records(session, last.position, last.position)
        return bool(found) and found[0][1].hash == last.hash

    async def fork(self, session: str, new: str, at: int | None) -> None:
        """Create the session `new`, which shares the events of `session` up to `at` (by default up to the end). Raises
        `UnknownSession`, `SessionExists`, or `InvalidInput` for a position after the end."""
        new = check_name("session", new)
        at = None if at is None else check_whole("at", at, 0)
        head = await self.reader.head(session)
        if head.position == 0:
            raise UnknownSession(session)
        at = head.position if at is None else at
        if at > head.position:
            raise InvalidInput(
                f"session {shown(session)} ends at position {head.position}; it cannot be forked at {shown(at)}",
                hint=f"give a position from 0 to {head.position}",
            )
        point = head if at == head.position else Head(at, await self.reader.hash_at(session, at))
        if (await self.reader.head(new)).position:
            raise SessionExists(new)
        await self.store.fork(self.workspace, session, point, new, self.clock.now())

    async def sessions(self) -> AsyncGenerator[SessionRow, None]:
        """All sessions of the workspace, sorted by id."""
        after = ""
        while True:
            rows = await self.store.sessions(self.workspace, after, PAGE)
            for row in rows:
                yield row
            if len(rows) < PAGE:
                return
            if rows[-1].session <= after:
                raise StoreDamaged(
                    "the database returns sessions in the wrong order", hint="run `duramen verify`, or restore a backup"
                )
            after = rows[-1].session

    async def standing(self, session: str) -> SessionStatus:
        """The status of a session: whether to start, attach, wait or recover."""
        lease = await self.store.lease(self.workspace, session)
        now = self.clock.now()
        owned = lease is not None and lease.expires > now
        rows = await self.store.runs(self.workspace, RunQuery(session=session, limit=1, strict=True))
        if rows:
            return standing_of_run(rows[0][0].status, rows[0][0].wake, owned, now)
        types = frozenset(RUN_EVENTS)
        last: str | None = None
        async with aclosing(self.reader.pages_backwards(session, 1, None, types, PAGE)) as pages:
            async for page in pages:
                if page:
                    last = page[0].type
                    break
        any_event = last is not None or (await self.reader.head(session)).position > 0
        return standing(last, any_event, owned)

    async def acquire(self, session: str, owner: str, seconds: float) -> LeaseRow | None:
        """Take the session's lease for `seconds`. None if another owner holds it."""
        now = self.clock.now()
        session = check_name("session", session)
        owner = check_name("owner", owner)
        return await self.store.acquire(self.workspace, session, owner, now, _until(now, seconds))

    async def renew(self, session: str, fence: int, seconds: float) -> LeaseRow:
        """Extend the lease to `seconds` from now. Raises `LeaseLost` if it expired or was taken."""
        now = self.clock.now()
        return await self.store.renew(self.workspace, session, fence, now, _until(now, seconds))

    async def safe_feed(self, after: int, limit: int) -> list[FeedItem]:
        """The feed after a cursor, without events that a power cut could remove. It reads again after the sync, because
        a database server that crashed in between may have lost events and reused their places."""
        while True:
            items = await self.store.feed(self.workspace, after, limit)
            if items:
                await self.store.sync()
            if not items or await self.store.feed(self.workspace, after, len(items)) == items:
                return items

    async def deliver(self, outlet: Outlet) -> int:
        """Deliver all events after the outlet's durable cursor, in feed order. Returns how many were delivered. After a
        crash the outlet receives the last page again."""
        if not callable(getattr(outlet, "apply", None)):
            raise InvalidInput(f"{shown(outlet)} is not an outlet", hint="give an object with a name and apply(events)")
        check_name("outlet", getattr(outlet, "name", None))
        delivered = 0
        while True:
            before = await self.store.cursor(self.workspace, outlet.name)
            items = await self.safe_feed(before, PAGE)
            if not items:
                return delivered
            try:
                events = await self.reader.opened_feed(items)
            except JournalDamaged:
                if await self.store.feed(self.workspace, before, PAGE) == items:
                    raise
                continue  # a subject was erased during the read, so the page was inconsistent
            outlet.apply(events)
            reach("outlet.applied")
            if await self.store.advance(self.workspace, outlet.name, before, items[-1].cursor):
                delivered += len(items)
            reach("outlet.advanced")

    async def erase(self, subject: str) -> ErasureReport:
        """Destroy the subject's key, remove its payloads and blobs, and append a tombstone to each session that had
        any, all in one transaction. Erasing a subject that does not exist reports zeros and is not an error."""
        subject = check_name("subject", subject)
        row = await self.store.subject(self.workspace, subject)
        if row is None:  # a process that was killed during the erasure may have left bytes in the files
            await self.purge()
            return ErasureReport(subject, 0, 0, 0, 0, 0, 0, False, [])
        owner, now = await self._owners.of(None), self.clock.now()

        def tombstone(session: str, head: Head, count: int) -> Record:
            note = Draft("subject.erased", {"ref": row.ref.hex(), "payloads": count}, actor="duramen")
            prepared = self._whole.drafts([note], owner)
            return self._whole.placing(session, prepared, owner, None, now)(head)[0]

        order = Erase(self.workspace, row.ref, lambda payload: payload_digest(payload, row.salt), tombstone)
        removed = await self.store.erase(order)
        self._owners.forget_all()
        tombstones: list[Event] = []
        for session, record in sorted(removed.tombstones.items()):
            tombstones += await self.reader.events(session, record.position, record.position, None)
        destroyed = row.wrapped is not None
        counts = (removed.payloads, removed.blobs, removed.bookmarks, removed.memories, removed.vectors, removed.bytes)
        return ErasureReport(subject, *counts, destroyed, tombstones)

    async def purge(self) -> None:
        """Remove deleted bytes from the store's files and logs, as `Store.erase` describes."""
        await self.store.erase(Erase(self.workspace, b"", payload_digest, _no_tombstone))

    async def rotate(self, source: KeySource) -> int:
        """Encrypt every data key of the workspace with the new master key. Payloads do not change. Returns how many
        keys were changed. If it is interrupted, call it again."""
        fresh = master_keys(source)
        if not fresh:
            raise InvalidInput("there is no new key", hint="pass one made with duramen.new_key()")
        old, new = self._owners.keyring, self._owners.keyring.with_current(fresh[0])
        moved = 0
        while True:
            moves = []
            for row in await self.store.subjects(self.workspace):
                data_key = None if new.is_current(row) else old.unwrap(self.workspace, row)
                if data_key is not None:
                    moves.append(Rewrap(row.ref, row.wrapped, new.wrap(self.workspace, row, data_key)))
            if not moves:
                break
            moved += await self.store.rewrap(self.workspace, moves)
        self._owners.keyring, self._plain = new, False
        self._owners.forget_all()
        return moved

    async def verify(self, session: str | None = None) -> Verification:
        """Verify the hash chain of one session, or of all sessions, with their blobs and the integrity check of the
        store. Damage is reported in the result, not raised."""
        return await (self._verifier.everything() if session is None else self._verifier.session(session))


def _no_tombstone(session: str, head: Head, count: int) -> Record:
    raise InvalidInput("there is nothing to erase")


def _until(now: int, seconds: float) -> int:
    return now + int(check_seconds("seconds", seconds) * 1e6)
