"""The contract of every store for chunk logs and for single events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ..api._async.duramen import AsyncDuramen
from ..journal.chain import payload_digest
from ..journal.events import Draft
from ..ports import Batch, BatchChange, BookmarkChanges, Chunk, ChunkLogMoved, Stored
from .both_apis import Opener, both_apis, collect


class ChunkContract:
    """The tests for chunk logs, stripped payloads and single events."""

    # -- chunks

    @pytest.mark.promise("C4")
    @both_apis
    async def test_chunks_are_returned_by_item_range(self, open: Opener) -> None:
        """A query returns exactly the chunks that overlap the range, in order."""
        handle = await open()
        chunk_log, chunks, start = 2**48 - 1, [], 0
        for count in (2, 1, 5, 3):
            chunks.append(Chunk(chunk_log, start, count, None, bytes([count]) * 300))
            await store_changes(handle, "s", (BookmarkChanges(chunk_log=(chunk_log, start), chunks=chunks[-1:]),))
            start += count
        await store_changes(
            handle,
            "s",
            (BookmarkChanges(chunks=[Chunk(1, 0, 9, None, b"other"), Chunk(chunk_log - 1, 0, 9, None, b"other")]),),
        )
        for first in range(12):
            for last in range(first + 1, 14):
                wanted = [chunk for chunk in chunks if chunk.start < last and chunk.start + chunk.count > first]
                assert await held(handle, "s", chunk_log, first, last) == wanted, (first, last)
        assert await held(handle, "s", chunk_log, 0, 2**62) == chunks
        assert await held(handle, "s", chunk_log + 1) == []
        assert await held(handle, "t", chunk_log) == []

    @both_apis
    async def test_only_the_listed_chunk_logs_are_retained(self, open: Opener) -> None:
        """`only_chunk_logs` removes all other chunk logs of this session. A removed chunk log starts at 0 again."""
        handle = await open()
        for session in ("s", "t"):
            for number in range(3):
                await store_changes(
                    handle, session, (BookmarkChanges(chunk_log=(7, number), chunks=[Chunk(7, number, 1, None, b"x")]),)
                )
            await store_changes(
                handle, session, (BookmarkChanges(chunks=[Chunk(8, 0, 1, None, b"y"), Chunk(9, 0, 1, None, b"z")]),)
            )
        fresh = Chunk(10, 0, 1, None, b"moved")
        await store_changes(handle, "s", (BookmarkChanges(chunks=[fresh], only_chunk_logs=[8, 10, 123]),))
        assert await held(handle, "s", 10) == [fresh]
        assert [len(await held(handle, "s", chunk_log)) for chunk_log in (7, 8, 9)] == [0, 1, 0]
        assert [len(await held(handle, "t", chunk_log)) for chunk_log in (7, 8, 9)] == [3, 1, 1]
        with pytest.raises(ChunkLogMoved):
            await store_changes(handle, "s", (BookmarkChanges(chunk_log=(7, 3)),))
        await store_changes(handle, "s", (BookmarkChanges(chunk_log=(7, 0), chunks=[Chunk(7, 0, 4, None, b"new")]),))
        assert [chunk.body for chunk in await held(handle, "s", 7)] == [b"new"]
        await store_changes(handle, "s", (BookmarkChanges(only_chunk_logs=[]),))
        assert [await held(handle, "s", chunk_log) for chunk_log in (7, 8, 10)] == [[], [], []]

    @both_apis
    async def test_a_chunk_log_ends_after_its_last_chunk(self, open: Opener) -> None:
        """The end of a chunk log is the number of its items; 0 if it has no chunk."""
        handle = await open()
        store, workspace = handle._journal.store, handle.workspace
        assert await store.chunk_log_end(workspace, "s", 7) == 0
        await store_changes(
            handle, "s", (BookmarkChanges(chunks=[Chunk(7, 0, 5, None, b""), Chunk(7, 5, 6, None, b"")]),)
        )
        assert await store.chunk_log_end(workspace, "s", 7) == 11
        assert await store.chunk_log_end(workspace, "s", 8) == await store.chunk_log_end(workspace, "t", 7) == 0
        assert await store.chunk_log_end("other", "s", 7) == 0

    # -- payloads and single events

    @pytest.mark.promise("J10")
    @both_apis
    async def test_an_event_with_a_stripped_payload_still_verifies(self, open: Opener) -> None:
        """Stripping replaces a payload by its digest. Forks see the event without payload; unknown positions are
        ignored."""
        handle = await open()
        session = handle.session("s")
        for number in range(4):
            await session.append("note", {"n": number})
        fork = await session.fork("fork", at=3)
        await fork.append("note", "own")
        store, workspace = handle._journal.store, handle.workspace
        digests = [(row.position, payload_digest(row.payload or b"")) for row in await store.read(workspace, "s", 1, 9)]
        await store_changes(handle, "s", (BookmarkChanges(stripped=[digests[1], digests[3]]),))
        await store_changes(handle, "s", (BookmarkChanges(stripped=[(2, b"?" * 32), (77, b"?" * 32), (0, b"?" * 32)]),))
        await store_changes(handle, "fork", (BookmarkChanges(stripped=[(1, b"?" * 32), (3, b"?" * 32)]),))
        events = await collect(session.events(stop=4))
        assert [(event.data, event.erased) for event in events] == [
            ({"n": 0}, False),
            (None, True),
            ({"n": 2}, False),
            (None, True),
        ]
        assert [event.data for event in await collect(fork.events())] == [{"n": 0}, None, {"n": 2}, "own", {}]
        assert (await handle.verify()).ok

    @both_apis
    async def test_single_events_are_returned_with_the_hash_before_them(self, open: Opener) -> None:
        """`pick` returns the session's own events at the given positions, in order, and skips unknown positions."""
        handle = await open()
        session = handle.session("s")
        stored = await session.append_all([Draft("note", n, "agent", 1) for n in range(1, 6)])
        fork = await session.fork("fork", at=2)
        own = [await fork.append("note", "own"), await fork.append("note", "second")]
        store, reading = handle._journal.store, handle._journal.reader
        items = await store.pick(handle.workspace, "s", [5, 99, 1, 2**62, 3, 0, -1])
        assert await reading.opened_feed(items) == [stored[0], stored[2], stored[4]]
        items = await store.pick(handle.workspace, "fork", [4, 1, 2, 3])
        assert [item.record.position for item in items] == [3, 4]
        assert await reading.opened_feed(items) == own
        assert await store.pick(handle.workspace, "s", []) == []
        assert await store.pick(handle.workspace, "nowhere", [1]) == []

    @pytest.mark.promise("W10")
    @both_apis
    async def test_conversation_events_are_found_by_type_prefix(self, open: Opener) -> None:
        """`talk` returns the positions of the session's own events whose type begins with "talk.", newest first."""
        handle = await open()
        kinds = ["talk.said", "talk", "talk.", "talks", "talk/x", "Talk.said", "note", "talk.tool", "talk.ä", "tal.k"]
        session = handle.session("s")
        await session.append_all([Draft(kind, {}) for kind in kinds])
        fork = await session.fork("fork", at=8)
        await fork.append("talk.said", {})

        async def talk(name: str = "s", first: int = 1, last: int = 99, limit: int = 99) -> list[int]:
            return await handle._journal.store.talk(handle.workspace, name, first, last, limit)

        assert await talk() == [9, 8, 3, 1]
        assert await talk(limit=2) == [9, 8]
        assert await talk(first=3, last=8) == [8, 3]
        assert await talk(first=4, last=7) == []
        assert await talk("fork") == [9]
        assert await talk("nowhere") == []


async def store_changes(
    handle: AsyncDuramen,
    session: str,
    changes: Sequence[BatchChange],
    *,
    size: int = 1,
    key: str | None = None,
    **options: Any,
) -> Stored:
    """Append `size` events with changes to bookmarks, chunks or memories."""
    journal, now = handle._journal, handle._journal.clock.now()
    owner = await journal.owner(None)
    subject = options.pop("subject", None)
    if subject is not None:
        owner = (await journal.bookmarks.owner_of(subject)) or owner._replace(ref=subject)
    prepared = [journal.prepare(Draft("changed", {}), owner) for _ in range(size)]
    place = journal._preparing.placing(session, prepared, owner, key, now)
    request = Batch(handle.workspace, session, size, place, key, now=now, owner=owner.ref, changes=changes)
    return await journal.store.append(request._replace(**options))


async def held(handle: AsyncDuramen, session: str, chunk_log: int, first: int = 0, last: int = 2**62) -> list[Chunk]:
    """The chunks of a chunk log that overlap a range of items."""
    return await handle._journal.store.chunks(handle.workspace, session, chunk_log, first, last)
