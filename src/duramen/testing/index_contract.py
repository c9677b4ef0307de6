"""The contract of every store for the search of memories: changes, index entries, generations and recalls."""

from __future__ import annotations

from typing import Any

import pytest

from ..api._async.duramen import AsyncDuramen
from ..ports import (
    Change,
    Generation,
    IndexEntry,
    MemoryChanges,
    MemoryQuery,
    MemoryRow,
    Store,
    Stored,
    StoredIndexEntry,
)
from .both_apis import Opener, both_apis
from .chunk_contract import store_changes


class IndexContract:
    """The tests for the index. `shared`: whether two handles on one address see the same data."""

    shared = True

    # -- changes

    @both_apis
    async def test_changes_are_listed_in_the_order_of_their_counts(self, open: Opener) -> None:
        """Each audience has its own change count. A row is listed once, at its last change; forgotten rows are
        included."""
        handle = await open()
        store = store_of(handle)
        assert await store.audience_changes(handle.workspace, None) == {}
        await enter(handle, memory("a"), memory("b"), memory("c", audience=b"p", key="k"))
        await enter(handle, memory("a"))
        await enter(handle, memory("d", audience=b"p", key="k"))
        assert await counts(handle) == [("b", 2), ("a", 3), ("a", 4)]
        assert await counts(handle, b"p") == [("c", 2), ("d", 3)]
        (number,) = [row.number for row in await known(handle, id="b")]
        await store_changes(handle, "s", (MemoryChanges(ended=[(number, 7)]),))
        await store_changes(handle, "s", (MemoryChanges(forgotten=[number]),))
        assert await counts(handle) == [("a", 3), ("a", 4), ("", 6)]
        assert await counts(handle, after=3) == [("a", 4), ("", 6)]
        assert await counts(handle, after=6) == await counts(handle, b"nowhere") == []
        assert await counts(handle, limit=1) == [("a", 3)]
        assert await store.audience_changes(handle.workspace, None) == {b"": 6, b"p": 3}
        assert await store.audience_changes(handle.workspace, [b"p", b"nowhere"]) == {b"p": 3}
        assert await store.audience_changes(handle.workspace, []) == {}

    @both_apis
    async def test_an_operation_without_effect_is_not_a_change(self, open: Opener) -> None:
        """Ending or forgetting an unknown row, or doing it twice, does not increase the change count."""
        handle = await open()
        await enter(handle, memory("a"))
        (row,) = await known(handle)
        await store_changes(handle, "s", (MemoryChanges(ended=[(row.number + 5, 7)], forgotten=[row.number + 5]),))
        await store_changes(handle, "s", (MemoryChanges(ended=[(row.number, 7)]),))
        for _ in range(2):
            await store_changes(handle, "s", (MemoryChanges(ended=[(row.number, 9)]),))
        assert await counts(handle) == [("a", 2)]
        for _ in range(2):
            await store_changes(handle, "s", (MemoryChanges(forgotten=[row.number]),))
        assert await counts(handle) == [("", 3)]

    # -- index entries

    @both_apis
    async def test_an_index_entry_is_a_change_of_its_memory(self, open: Opener) -> None:
        """Storing an index entry replaces the old one and increases the change count. A closed row keeps its entry."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        await enter(handle, memory("a"), memory("b", audience=b"p", key="k"), memory("c", audience=b"p"))
        a, b, _ = await known(handle)
        assert await unindexed(handle, made.number) == ["a", "b", "c"]
        assert await unindexed(handle, made.number, limit=2) == ["a", "b"]
        full = IndexEntry(b"p", b.number, bytes(range(256)), b"\0vector")
        await store.put_index_entries(workspace, made.number, [full, IndexEntry(b"", a.number, b"", None)])
        assert await unindexed(handle, made.number) == ["c"]
        assert await store.count_unindexed(workspace, made.number) == 1
        assert await index_entries(handle, made.number) == [("a", b"", None)]
        assert await index_entries(handle, made.number, b"p") == [("c", None, None), ("b", *full[2:4])]
        assert await index_entries(handle, made.number + 1, b"p") == [("c", None, None), ("b", None, None)]
        assert await counts(handle, b"p") == [("c", 2), ("b", 3)]
        again = IndexEntry(b"p", b.number, b"other", None)
        await store.put_index_entries(workspace, made.number, [again])
        assert await index_entries(handle, made.number, b"p") == [("c", None, None), ("b", b"other", None)]
        (kept,) = await known(handle, id="b")
        assert kept == b._replace(changed=4)
        await enter(handle, memory("new", audience=b"p", key="k"))  # b is history now and keeps its index entry
        assert await unindexed(handle, made.number) == ["c", "new"]
        assert ("b", b"other", None) in await index_entries(handle, made.number, b"p")
        await store.put_index_entries(workspace, made.number, [])
        assert (await handle.verify()).ok

    @both_apis
    async def test_an_index_entry_for_a_missing_row_is_not_stored(self, open: Opener) -> None:
        """Entries for forgotten rows, unknown rows and unknown generations are skipped."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        await enter(handle, memory("a"), memory("b"))
        a, b = await known(handle)
        await store_changes(handle, "s", (MemoryChanges(forgotten=[a.number]),))
        late = [IndexEntry(b"", number, b"w", b"v") for number in (a.number, b.number + 9, b.number)]
        await store.put_index_entries(workspace, made.number, late)
        await store.put_index_entries(workspace, made.number + 1, late)
        assert await index_entries(handle, made.number) == [("", None, None), ("b", b"w", b"v")]
        assert await index_entries(handle, made.number + 1) == [("", None, None), ("b", None, None)]
        assert (await handle.verify()).ok

    @both_apis
    async def test_index_entries_are_read_by_audience_and_number(self, open: Opener) -> None:
        """Only current memories are included, in ascending order of their numbers."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        owned = memory("c", owner=b"x" * 16)
        await enter(handle, memory("a"), memory("b"), owned, memory("d", audience=b"p"), memory("unindexed"))
        a, b, c, _, d = await known(handle)  # rows are numbered audience by audience
        put = [IndexEntry(row.audience, row.number, row.id.encode(), b"v" + row.id.encode()) for row in (c, a, d)]
        await store.put_index_entries(workspace, made.number, [*put, IndexEntry(b"", b.number, b"words", None)])
        full = [
            StoredIndexEntry(a.number, "a", None, b"a", b"va", b""),
            StoredIndexEntry(b.number, "b", None, b"words", None, b""),
            StoredIndexEntry(c.number, "c", b"x" * 16, b"c", b"vc", b""),
        ]
        assert await store.index_entries(workspace, b"", made.number, None) == full
        some = [c.number, d.number, a.number, d.number + 9]
        assert await store.index_entries(workspace, b"", made.number, some) == [full[0], full[2]]
        other = StoredIndexEntry(d.number, "d", None, b"d", b"vd", b"p")
        assert await store.index_entries(workspace, b"p", made.number, some) == [other]
        assert await store.index_entries(workspace, None, made.number, some) == sorted([full[0], full[2], other])
        assert await store.index_entries(workspace, None, made.number, []) == []
        assert await store.index_entries(workspace, None, made.number, None) == []
        assert await store.index_entries(workspace, None, made.number + 1, some) == []
        assert await store.index_entries("elsewhere", None, made.number, some) == []
        assert await store.index_entries(workspace, b"", made.number, []) == []
        assert await store.index_entries(workspace, b"nowhere", made.number, None) == []
        assert await store.index_entries(workspace, b"", made.number + 1, None) == []
        await store_changes(handle, "s", (MemoryChanges(ended=[(a.number, 7)], forgotten=[b.number]),))
        assert await store.index_entries(workspace, b"", made.number, None) == full[2:]
        assert await store.index_entries(workspace, None, made.number, [a.number, b.number, c.number]) == full[2:]

    # -- generations

    @both_apis
    async def test_one_generation_is_active_while_another_is_built(self, open: Opener) -> None:
        """Index entries belong to one generation. Activating a generation drops the others with their entries."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        assert await store.generations(workspace) == []
        old = await store.add_generation(workspace, b"old", active=True)
        new = await store.add_generation(workspace, b"new", active=True)
        assert (old, new) == (Generation(old.number, b"old", True), Generation(new.number, b"new", False))
        assert await store.add_generation(workspace, b"new", active=True) == new
        assert await store.generations(workspace) == [old, new]
        await enter(handle, memory("a"), memory("b"), memory("c"))
        a, b, c = await known(handle)
        await store.put_index_entries(workspace, old.number, [IndexEntry(b"", a.number, b"old a", None)])
        await store.put_index_entries(workspace, new.number, [IndexEntry(b"", b.number, b"new b", None)])
        assert await unindexed(handle, old.number) == ["b", "c"]
        assert await unindexed(handle, new.number) == ["c", "a"]
        assert [await store.count_unindexed(workspace, one.number) for one in (old, new)] == [2, 2]
        await store.put_index_entries(
            workspace, new.number, [IndexEntry(b"", row.number, b"new", None) for row in (a, c)]
        )
        assert await unindexed(handle, new.number) == []
        assert await unindexed(handle, old.number) == ["b", "c"]
        await store.activate(workspace, new.number)
        assert await store.generations(workspace) == [new._replace(active=True)]
        assert await index_entries(handle, new.number) == [
            ("b", b"new b", None),
            ("a", b"new", None),
            ("c", b"new", None),
        ]
        assert await index_entries(handle, old.number) == [("b", None, None), ("a", None, None), ("c", None, None)]
        assert await unindexed(handle, new.number) == []
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_dropped_generation_stays_dropped(self, open: Opener) -> None:
        """Activating or filling a dropped generation does nothing. Its identity gets a new number when it is added
        again."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        one = await store.add_generation(workspace, b"one", active=True)
        two = await store.add_generation(workspace, b"two", active=False)
        await enter(handle, memory("a"))
        (row,) = await known(handle)
        for generation in (one, two):
            await store.put_index_entries(workspace, generation.number, [IndexEntry(b"", row.number, b"w", None)])
        await store.activate(workspace, one.number)
        await store.activate(workspace, two.number)  # as a process would that did not see it dropped
        await store.put_index_entries(workspace, two.number, [IndexEntry(b"", row.number, b"late", None)])
        assert await store.generations(workspace) == [one]
        again = await store.add_generation(workspace, b"two", active=False)
        assert again.number > two.number
        assert await unindexed(handle, again.number) == ["a"]
        assert await unindexed(handle, one.number) == []
        assert (await handle.verify()).ok

    @both_apis
    async def test_concurrent_calls_add_each_generation_once(self, open: Opener) -> None:
        """Concurrent calls create one generation per identity, of which one is active."""
        handle = await open()
        two = await open() if self.shared else handle
        makers = [
            store_of(one).add_generation(handle.workspace, identity, active=True)
            for one in (handle, two)
            for identity in (b"x", b"y", b"x", b"y")
        ]
        made = await open.racing(*makers)
        assert sorted({one.identity for one in made}) == [b"x", b"y"]
        assert set(made) == set(await store_of(handle).generations(handle.workspace))
        assert sorted(one.active for one in set(made)) == [False, True]

    # -- recalls

    @both_apis
    async def test_recalls_are_counted_and_are_not_changes(self, open: Opener) -> None:
        """Recalls are added up and the latest time is stored. Unknown and forgotten rows are skipped."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        await enter(handle, memory("a"), memory("b", audience=b"p"))
        a, b = await known(handle)
        await store.note_recalls(workspace, [(b.number, 2, 50), (a.number, 1, 40), (b.number + 9, 1, 1)])
        await store.note_recalls(workspace, [(b.number, 1, 45), (b.number, 3, 48)])
        await store.note_recalls(workspace, [])
        assert [change[3:] for change in await changed(handle)] == [(1, 40)]
        assert [change[3:] for change in await changed(handle, b"p")] == [(6, 50)]
        assert await counts(handle) == [("a", 1)]
        await store_changes(handle, "s", (MemoryChanges(forgotten=[a.number]),))
        await store.note_recalls(workspace, [(a.number, 1, 60)])
        assert [change[3:] for change in await changed(handle)] == [(0, 0)]
        assert (await handle.verify()).ok

    @pytest.mark.promise("J5")
    @both_apis
    async def test_concurrent_writes_to_memories_lose_nothing(self, open: Opener) -> None:
        """Concurrent appends, index entries and recalls, in opposite orders, all succeed and none is lost."""
        handle = await open()
        two = await open() if self.shared else handle
        workspace, audiences = handle.workspace, [b"", b"a", b"b"]
        made = await store_of(handle).add_generation(workspace, b"model", active=True)
        await enter(handle, *[memory(f"m{number}", audience=audience) for audience in audiences for number in range(3)])
        rows = await known(handle)
        down = list(reversed(rows))
        work: list[Any] = []
        for turn, one in enumerate((handle, two, handle, two)):
            store, order = store_of(one), (rows, down)[turn % 2]
            work += [
                enter(one, *[memory(f"m{turn}", audience=row.audience) for row in order], session=f"s{turn}"),
                store.put_index_entries(
                    workspace, made.number, [IndexEntry(row.audience, row.number, b"w", None) for row in order]
                ),
                store.note_recalls(workspace, [(row.number, 1, turn) for row in order]),
                store_changes(one, f"e{turn}", (MemoryChanges(ended=[(row.number, 5) for row in order[turn::4]]),)),
            ]
        outcomes = await open.racing(*work)
        assert not [one for one in outcomes if isinstance(one, Exception)], outcomes
        found = {row.number: row for row in await known(handle, history=True)}
        assert all(found[row.number].closed is not None for row in rows[0::4])
        for audience in audiences:
            seen = await changed(handle, audience, made.number)
            assert [(change.words, change.recalled) for change in seen if change.row in rows] == []
            assert {change.recalled for change in seen if change.row.number in {row.number for row in rows}} == {4}
            assert seen[-1].row.changed == (await store_of(handle).audience_changes(workspace, None))[audience]
        assert (await handle.verify()).ok


def memory(id: str, **fields: Any) -> MemoryRow:
    """A row to append, for the first event of its batch."""
    return MemoryRow(b"", id, "", 0, "fact", None, None, 0, 0, None, None, 0.5, 0.5, 0)._replace(**fields)


def store_of(handle: AsyncDuramen) -> Store:
    """The store of a handle."""
    return handle._journal.store


async def enter(handle: AsyncDuramen, *rows: MemoryRow, session: str = "s", **options: Any) -> Stored:
    """Append an event with these memories."""
    return await store_changes(handle, session, (MemoryChanges(memories=rows),), **options)


async def known(handle: AsyncDuramen, **query: Any) -> list[MemoryRow]:
    """The rows that a query returns."""
    return await store_of(handle).memories(handle.workspace, MemoryQuery(**query))


async def changed(handle: AsyncDuramen, audience: bytes = b"", generation: int = 1) -> list[Change]:
    """All changes of an audience."""
    return await store_of(handle).changes(handle.workspace, audience, generation, 0, 999)


async def counts(
    handle: AsyncDuramen, audience: bytes = b"", after: int = 0, limit: int = 999
) -> list[tuple[str, int]]:
    """The ids and change counts of the changes of an audience."""
    found = await store_of(handle).changes(handle.workspace, audience, 1, after, limit)
    return [(change.row.id, change.row.changed) for change in found]


async def unindexed(handle: AsyncDuramen, generation: int, limit: int = 999) -> list[str]:
    """The ids of memories without an index entry."""
    return [row.id for row in await store_of(handle).unindexed(handle.workspace, generation, limit)]


async def index_entries(handle: AsyncDuramen, generation: int, audience: bytes = b"") -> list[Any]:
    """The ids of an audience's changes, with the words and vectors of their index entries."""
    return [(change.row.id, *change[1:3]) for change in await changed(handle, audience, generation)]
