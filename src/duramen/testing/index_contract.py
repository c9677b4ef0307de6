"""What every store must do for the search of memories: changes are told, traces kept, recalls counted."""

from __future__ import annotations

from typing import Any

import pytest

from ..api._async.duramen import AsyncDuramen
from ..ports import Appended, Beside, Change, Generation, Kept, MemoryQuery, MemoryRow, Store, Trace
from .both_apis import Opener, both_faces
from .chunk_contract import store_beside


class TraceContract:
    """The part of the contract that is about what is searched. `shared`: whether two handles can be open on a store."""

    shared = True

    # -- changes

    @both_faces
    async def test_changes_are_told_in_the_order_of_their_counts(self, open: Opener) -> None:
        handle = await open()
        store = keeper(handle)
        assert await store.pool_changes(handle.workspace, None) == {}
        await enter(handle, memory("a"), memory("b"), memory("c", pool=b"p", key="k"))
        await enter(handle, memory("a"))
        await enter(handle, memory("d", pool=b"p", key="k"))
        assert await counts(handle) == [("b", 2), ("a", 3), ("a", 4)]
        assert await counts(handle, b"p") == [("c", 2), ("d", 3)]
        (number,) = [row.number for row in await known(handle, id="b")]
        await store_beside(handle, "s", Beside(ended=[(number, 7)]))
        await store_beside(handle, "s", Beside(forgotten=[number]))
        assert await counts(handle) == [("a", 3), ("a", 4), ("", 6)]
        assert await counts(handle, after=3) == [("a", 4), ("", 6)]
        assert await counts(handle, after=6) == await counts(handle, b"nowhere") == []
        assert await counts(handle, limit=1) == [("a", 3)]
        assert await store.pool_changes(handle.workspace, None) == {b"": 6, b"p": 3}
        assert await store.pool_changes(handle.workspace, [b"p", b"nowhere"]) == {b"p": 3}
        assert await store.pool_changes(handle.workspace, []) == {}

    @both_faces
    async def test_what_does_nothing_counts_as_no_change(self, open: Opener) -> None:
        handle = await open()
        await enter(handle, memory("a"))
        (row,) = await known(handle)
        await store_beside(handle, "s", Beside(ended=[(row.number + 5, 7)], forgotten=[row.number + 5]))
        await store_beside(handle, "s", Beside(ended=[(row.number, 7)]))
        for _ in range(2):
            await store_beside(handle, "s", Beside(ended=[(row.number, 9)]))
        assert await counts(handle) == [("a", 2)]
        for _ in range(2):
            await store_beside(handle, "s", Beside(forgotten=[row.number]))
        assert await counts(handle) == [("", 3)]

    # -- traces

    @both_faces
    async def test_a_trace_is_a_change_of_its_memory(self, open: Opener) -> None:
        handle = await open()
        store, workspace = keeper(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        await enter(handle, memory("a"), memory("b", pool=b"p", key="k"), memory("c", pool=b"p"))
        a, b, _ = await known(handle)
        assert await untraced(handle, made.number) == ["a", "b", "c"]
        assert await untraced(handle, made.number, limit=2) == ["a", "b"]
        full = Trace(b"p", b.number, bytes(range(256)), b"\0vector")
        await store.put_traces(workspace, made.number, [full, Trace(b"", a.number, b"", None)])
        assert await untraced(handle, made.number) == ["c"]
        assert await store.count_untraced(workspace, made.number) == 1
        assert await traces(handle, made.number) == [("a", b"", None)]
        assert await traces(handle, made.number, b"p") == [("c", None, None), ("b", *full[2:4])]
        assert await traces(handle, made.number + 1, b"p") == [("c", None, None), ("b", None, None)]
        assert await counts(handle, b"p") == [("c", 2), ("b", 3)]
        again = Trace(b"p", b.number, b"other", None)
        await store.put_traces(workspace, made.number, [again])
        assert await traces(handle, made.number, b"p") == [("c", None, None), ("b", b"other", None)]
        (kept,) = await known(handle, id="b")
        assert kept == b._replace(changed=4)
        await enter(handle, memory("new", pool=b"p", key="k"))  # b is history, and still has its trace
        assert await untraced(handle, made.number) == ["c", "new"]
        assert ("b", b"other", None) in await traces(handle, made.number, b"p")
        await store.put_traces(workspace, made.number, [])
        assert (await handle.verify()).ok

    @both_faces
    async def test_no_trace_is_kept_of_what_is_gone(self, open: Opener) -> None:
        handle = await open()
        store, workspace = keeper(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        await enter(handle, memory("a"), memory("b"))
        a, b = await known(handle)
        await store_beside(handle, "s", Beside(forgotten=[a.number]))
        late = [Trace(b"", number, b"w", b"v") for number in (a.number, b.number + 9, b.number)]
        await store.put_traces(workspace, made.number, late)
        await store.put_traces(workspace, made.number + 1, late)
        assert await traces(handle, made.number) == [("", None, None), ("b", b"w", b"v")]
        assert await traces(handle, made.number + 1) == [("", None, None), ("b", None, None)]
        assert (await handle.verify()).ok

    @both_faces
    async def test_traces_are_read_by_pool_and_number(self, open: Opener) -> None:
        handle = await open()
        store, workspace = keeper(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        owned = memory("c", owner=b"x" * 16)
        await enter(handle, memory("a"), memory("b"), owned, memory("d", pool=b"p"), memory("untraced"))
        a, b, c, _, d = await known(handle)  # numbered pool by pool
        put = [Trace(row.pool, row.number, row.id.encode(), b"v" + row.id.encode()) for row in (c, a, d)]
        await store.put_traces(workspace, made.number, [*put, Trace(b"", b.number, b"words", None)])
        full = [
            Kept(a.number, "a", None, b"a", b"va", b""),
            Kept(b.number, "b", None, b"words", None, b""),
            Kept(c.number, "c", b"x" * 16, b"c", b"vc", b""),
        ]
        assert await store.traces(workspace, b"", made.number, None) == full
        some = [c.number, d.number, a.number, d.number + 9]
        assert await store.traces(workspace, b"", made.number, some) == [full[0], full[2]]
        other = Kept(d.number, "d", None, b"d", b"vd", b"p")
        assert await store.traces(workspace, b"p", made.number, some) == [other]
        assert await store.traces(workspace, None, made.number, some) == sorted([full[0], full[2], other])
        assert await store.traces(workspace, None, made.number, []) == []
        assert await store.traces(workspace, None, made.number, None) == []
        assert await store.traces(workspace, None, made.number + 1, some) == []
        assert await store.traces("elsewhere", None, made.number, some) == []
        assert await store.traces(workspace, b"", made.number, []) == []
        assert await store.traces(workspace, b"nowhere", made.number, None) == []
        assert await store.traces(workspace, b"", made.number + 1, None) == []
        await store_beside(handle, "s", Beside(ended=[(a.number, 7)], forgotten=[b.number]))
        assert await store.traces(workspace, b"", made.number, None) == full[2:]
        assert await store.traces(workspace, None, made.number, [a.number, b.number, c.number]) == full[2:]

    # -- generations

    @both_faces
    async def test_one_generation_is_searched_while_another_is_made(self, open: Opener) -> None:
        handle = await open()
        store, workspace = keeper(handle), handle.workspace
        assert await store.generations(workspace) == []
        old = await store.add_generation(workspace, b"old", active=True)
        new = await store.add_generation(workspace, b"new", active=True)
        assert (old, new) == (Generation(old.number, b"old", True), Generation(new.number, b"new", False))
        assert await store.add_generation(workspace, b"new", active=True) == new
        assert await store.generations(workspace) == [old, new]
        await enter(handle, memory("a"), memory("b"), memory("c"))
        a, b, c = await known(handle)
        await store.put_traces(workspace, old.number, [Trace(b"", a.number, b"old a", None)])
        await store.put_traces(workspace, new.number, [Trace(b"", b.number, b"new b", None)])
        assert await untraced(handle, old.number) == ["b", "c"]
        assert await untraced(handle, new.number) == ["c", "a"]
        assert [await store.count_untraced(workspace, one.number) for one in (old, new)] == [2, 2]
        await store.put_traces(workspace, new.number, [Trace(b"", row.number, b"new", None) for row in (a, c)])
        assert await untraced(handle, new.number) == []
        assert await untraced(handle, old.number) == ["b", "c"]
        await store.activate(workspace, new.number)
        assert await store.generations(workspace) == [new._replace(active=True)]
        assert await traces(handle, new.number) == [("b", b"new b", None), ("a", b"new", None), ("c", b"new", None)]
        assert await traces(handle, old.number) == [("b", None, None), ("a", None, None), ("c", None, None)]
        assert await untraced(handle, new.number) == []
        assert (await handle.verify()).ok

    @both_faces
    async def test_a_generation_that_was_dropped_does_not_come_back(self, open: Opener) -> None:
        handle = await open()
        store, workspace = keeper(handle), handle.workspace
        one = await store.add_generation(workspace, b"one", active=True)
        two = await store.add_generation(workspace, b"two", active=False)
        await enter(handle, memory("a"))
        (row,) = await known(handle)
        for generation in (one, two):
            await store.put_traces(workspace, generation.number, [Trace(b"", row.number, b"w", None)])
        await store.activate(workspace, one.number)
        await store.activate(workspace, two.number)  # by somebody who did not see it go
        await store.put_traces(workspace, two.number, [Trace(b"", row.number, b"late", None)])
        assert await store.generations(workspace) == [one]
        again = await store.add_generation(workspace, b"two", active=False)
        assert again.number > two.number
        assert await untraced(handle, again.number) == ["a"]
        assert await untraced(handle, one.number) == []
        assert (await handle.verify()).ok

    @both_faces
    async def test_of_those_who_begin_a_generation_together_one_does(self, open: Opener) -> None:
        handle = await open()
        two = await open() if self.shared else handle
        makers = [
            keeper(one).add_generation(handle.workspace, identity, active=True)
            for one in (handle, two)
            for identity in (b"x", b"y", b"x", b"y")
        ]
        made = await open.racing(*makers)
        assert sorted({one.identity for one in made}) == [b"x", b"y"]
        assert set(made) == set(await keeper(handle).generations(handle.workspace))
        assert sorted(one.active for one in set(made)) == [False, True]

    # -- recalls

    @both_faces
    async def test_recalls_are_counted_and_are_no_change(self, open: Opener) -> None:
        handle = await open()
        store, workspace = keeper(handle), handle.workspace
        await enter(handle, memory("a"), memory("b", pool=b"p"))
        a, b = await known(handle)
        await store.note_recalls(workspace, [(b.number, 2, 50), (a.number, 1, 40), (b.number + 9, 1, 1)])
        await store.note_recalls(workspace, [(b.number, 1, 45), (b.number, 3, 48)])
        await store.note_recalls(workspace, [])
        assert [change[3:] for change in await changed(handle)] == [(1, 40)]
        assert [change[3:] for change in await changed(handle, b"p")] == [(6, 50)]
        assert await counts(handle) == [("a", 1)]
        await store_beside(handle, "s", Beside(forgotten=[a.number]))
        await store.note_recalls(workspace, [(a.number, 1, 60)])
        assert [change[3:] for change in await changed(handle)] == [(0, 0)]
        assert (await handle.verify()).ok

    @pytest.mark.promise("J5")
    @both_faces
    async def test_whoever_writes_at_the_same_time_loses_nothing(self, open: Opener) -> None:
        handle = await open()
        two = await open() if self.shared else handle
        workspace, pools = handle.workspace, [b"", b"a", b"b"]
        made = await keeper(handle).add_generation(workspace, b"model", active=True)
        await enter(handle, *[memory(f"m{number}", pool=pool) for pool in pools for number in range(3)])
        rows = await known(handle)
        down = list(reversed(rows))
        work: list[Any] = []
        for turn, one in enumerate((handle, two, handle, two)):
            store, order = keeper(one), (rows, down)[turn % 2]
            work += [
                enter(one, *[memory(f"m{turn}", pool=row.pool) for row in order], session=f"s{turn}"),
                store.put_traces(workspace, made.number, [Trace(row.pool, row.number, b"w", None) for row in order]),
                store.note_recalls(workspace, [(row.number, 1, turn) for row in order]),
                store_beside(one, f"e{turn}", Beside(ended=[(row.number, 5) for row in order[turn::4]])),
            ]
        outcomes = await open.racing(*work)
        assert not [one for one in outcomes if isinstance(one, Exception)], outcomes
        found = {row.number: row for row in await known(handle, history=True)}
        assert all(found[row.number].closed is not None for row in rows[0::4])
        for pool in pools:
            seen = await changed(handle, pool, made.number)
            assert [(change.words, change.recalled) for change in seen if change.row in rows] == []
            assert {change.recalled for change in seen if change.row.number in {row.number for row in rows}} == {4}
            assert seen[-1].row.changed == (await keeper(handle).pool_changes(workspace, None))[pool]
        assert (await handle.verify()).ok


def memory(id: str, **fields: Any) -> MemoryRow:
    """A memory to enter, of the first event of its batch."""
    return MemoryRow(b"", id, "", 0, "fact", None, None, 0, 0, None, None, 0.5, 0.5, 0)._replace(**fields)


def keeper(handle: AsyncDuramen) -> Store:
    """The store of a handle."""
    return handle._journal.store


async def enter(handle: AsyncDuramen, *rows: MemoryRow, session: str = "s", **options: Any) -> Appended:
    """Append an event with memories."""
    return await store_beside(handle, session, Beside(memories=rows), **options)


async def known(handle: AsyncDuramen, **query: Any) -> list[MemoryRow]:
    """Memories that a query gives."""
    return await keeper(handle).memories(handle.workspace, MemoryQuery(**query))


async def changed(handle: AsyncDuramen, pool: bytes = b"", generation: int = 1) -> list[Change]:
    """What changed in a pool since it began."""
    return await keeper(handle).changes(handle.workspace, pool, generation, 0, 999)


async def counts(handle: AsyncDuramen, pool: bytes = b"", after: int = 0, limit: int = 999) -> list[tuple[str, int]]:
    """The ids of the changes of a pool, with their counts."""
    found = await keeper(handle).changes(handle.workspace, pool, 1, after, limit)
    return [(change.row.id, change.row.changed) for change in found]


async def untraced(handle: AsyncDuramen, generation: int, limit: int = 999) -> list[str]:
    """The ids of memories without a trace."""
    return [row.id for row in await keeper(handle).untraced(handle.workspace, generation, limit)]


async def traces(handle: AsyncDuramen, generation: int, pool: bytes = b"") -> list[Any]:
    """The ids of a pool's changes, with what is searched."""
    return [(change.row.id, *change[1:3]) for change in await changed(handle, pool, generation)]
