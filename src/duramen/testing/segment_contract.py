"""The contract of every store for segments: copies of changes that never outlive the memories they contain."""

from __future__ import annotations

from ..ports import MemoryChanges, Segment
from .both_apis import Opener, both_apis
from .chunk_contract import store_changes
from .index_contract import IndexContract, enter, known, memory, store_of


class SegmentContract(IndexContract):
    """The tests for segments."""

    @both_apis
    async def test_segments_are_returned_unchanged(self, open: Opener) -> None:
        """Segments are stored per audience and generation and ordered by `after`."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        await enter(handle, memory("a"), memory("b"), memory("c", audience=b"p"))
        one, two = Segment(0, 2, 1, 2, None, bytes(range(256))), Segment(2, 9, 1, 5, b"x" * 16, b"two")
        for segment in (two, one):
            assert await store.put_segment(workspace, b"", made.number, segment, 9)
        other = one._replace(body=b"other")
        assert await store.put_segment(workspace, b"p", made.number, other, 9)
        assert await store.segments(workspace, b"", made.number) == [one, two]
        assert await store.segments(workspace, b"p", made.number) == [other]
        assert await store.segments(workspace, b"", made.number + 1) == []
        assert await store.segments(workspace, b"nowhere", made.number) == []
        spans = [(b"", 0, 2), (b"", 2, 9), (b"p", 0, 2)]
        assert await store.segment_spans(workspace, made.number) == spans
        assert await store.segment_spans(workspace, made.number + 1) == []
        assert not await store.put_segment(workspace, b"", made.number + 1, one, 9)
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_segment_replaces_those_that_it_overlaps(self, open: Opener) -> None:
        """Segments of an audience never overlap."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        await enter(handle, memory("a"))
        for after, upto in ((0, 5), (5, 8), (8, 20)):
            await store.put_segment(workspace, b"", made.number, Segment(after, upto, 1, 1, None, b"old"), 9)
        wide = Segment(5, 12, 1, 1, None, b"new")
        assert await store.put_segment(workspace, b"", made.number, wide, 9)
        assert await store.segments(workspace, b"", made.number) == [Segment(0, 5, 1, 1, None, b"old"), wide]

    @both_apis
    async def test_forgetting_drops_the_segments_that_may_contain_the_memory(self, open: Opener) -> None:
        """The store rejects a segment that was built before the memory was forgotten."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        await enter(handle, memory("a"), memory("b"), memory("c"))
        a, b, c = await known(handle)
        first = Segment(0, 2, a.number, b.number, None, b"a and b")
        last = Segment(2, 3, c.number, c.number, None, b"c")
        elsewhere = Segment(0, 3, a.number, c.number, None, b"another audience")
        await enter(handle, memory("d", audience=b"p"))
        for segment in (first, last):
            await store.put_segment(workspace, b"", made.number, segment, 3)
        await store.put_segment(workspace, b"p", made.number, elsewhere, 3)
        await store_changes(handle, "s", (MemoryChanges(ended=[(a.number, 7)]),))
        assert await store.segments(workspace, b"", made.number) == [first, last]
        await store_changes(handle, "s", (MemoryChanges(forgotten=[b.number]),))
        assert await store.segments(workspace, b"", made.number) == [last]
        assert await store.segments(workspace, b"p", made.number) == [elsewhere]
        assert not await store.put_segment(workspace, b"", made.number, first, 3)
        assert await store.put_segment(workspace, b"", made.number, first, 5)
        assert await store.put_segment(workspace, b"", made.number, last._replace(body=b"again"), 3)

    @both_apis
    async def test_dropping_a_generation_drops_its_segments(self, open: Opener) -> None:
        """A dropped generation takes no new segments."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        old = await store.add_generation(workspace, b"old", active=True)
        new = await store.add_generation(workspace, b"new", active=False)
        await enter(handle, memory("a"))
        segment = Segment(0, 1, 1, 1, None, b"body")
        for one in (old, new):
            assert await store.put_segment(workspace, b"", one.number, segment, 1)
        await store.activate(workspace, new.number)
        assert await store.segments(workspace, b"", old.number) == []
        assert await store.segments(workspace, b"", new.number) == [segment]
        assert not await store.put_segment(workspace, b"", old.number, segment, 1)
        assert (await handle.verify()).ok

    @both_apis
    async def test_recalls_are_listed_by_audience(self, open: Opener) -> None:
        """Memories that were never recalled are left out."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        await enter(handle, memory("a"), memory("b"), memory("c", audience=b"p"))
        a, b, c = await known(handle)
        await store.note_recalls(workspace, [(b.number, 2, 5), (c.number, 1, 5)])
        assert await store.recalls(workspace, b"") == {b.number: 2}
        assert await store.recalls(workspace, b"p") == {c.number: 1}
        assert await store.recalls(workspace, b"nowhere") == {}
        assert a.number not in await store.recalls(workspace, b"")
