"""The contract of every store for memories that begin in the future, and for renewing memories."""

from __future__ import annotations

from ..api._async.duramen import AsyncDuramen
from ..ports import IndexEntry, MemoryChanges, MemoryRow, Touched
from .both_apis import Opener, both_apis
from .chunk_contract import store_changes
from .index_contract import enter, known, memory, store_of
from .segment_contract import SegmentContract

DAY = 24 * 3600
_MICROS = DAY * 1_000_000


class FutureMemoryContract(SegmentContract):
    """The tests for memories that meet another one with the same key or id."""

    @both_apis
    async def test_a_future_memory_ends_the_current_one_when_it_begins(self, open: Opener) -> None:
        """A memory that begins later leaves the current one in place until then, and replaces those that begin after
        it."""
        handle = await open()
        now = open.clock.now()
        await enter(handle, memory("rome", key="home"))
        await enter(handle, memory("oslo", key="home", begins=now + 30 * _MICROS), session="t")
        await enter(handle, memory("bern", key="home", begins=now + 60 * _MICROS))
        assert await _timeline(handle, now) == [("rome", 0, 30, None), ("oslo", 30, 60, None), ("bern", 60, None, None)]
        await enter(handle, memory("bonn", key="home", begins=now + 40 * _MICROS))
        later = [("rome", 0, 30, None), ("oslo", 30, 40, None), ("bern", 60, 60, "bonn"), ("bonn", 40, None, None)]
        assert await _timeline(handle, now) == later, "a new plan replaces the later ones"
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_memory_that_begins_now_replaces_future_ones(self, open: Opener) -> None:
        """A memory that begins now replaces the current one and the future ones. One that began earlier becomes
        history."""
        handle = await open()
        now = open.clock.now()
        await enter(handle, memory("rome", key="home"))
        await enter(handle, memory("oslo", key="home", begins=now + 30 * _MICROS))
        open.clock.advance(10 * DAY)
        await enter(handle, memory("bonn", key="home"))
        assert await _timeline(handle, now) == [
            ("rome", 0, 10, "bonn"),
            ("oslo", 30, 30, "bonn"),
            ("bonn", 10, None, None),
        ]
        await enter(handle, memory("kyiv", key="home", begins=now - 5 * _MICROS))
        assert (await _timeline(handle, now))[-1] == ("kyiv", -5, 10, "bonn"), "an earlier beginning makes it history"
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_memory_that_has_ended_is_closed_when_its_key_is_next_written(self, open: Opener) -> None:
        """Once its successor has begun, the next write under the key closes the ended memory. Stating it again adds a
        row."""
        handle = await open()
        now = open.clock.now()
        await enter(handle, memory("rome", key="home"))
        await enter(handle, memory("oslo", key="home", begins=now + 30 * _MICROS))
        open.clock.advance(40 * DAY)
        await enter(handle, memory("rome", key="home"))  # a new row: this does not confirm the closed one
        rome, oslo, back = await known(handle, history=True)
        assert (rome.closed, rome.successor, rome.times) == (now + 30 * _MICROS, "oslo", 1)
        assert (oslo.closed, oslo.ends, oslo.successor) == (now + 40 * _MICROS, now + 40 * _MICROS, "rome")
        assert (back.id, back.begins, back.ends, back.times) == ("rome", now + 40 * _MICROS, None, 1)
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_future_memory_can_be_moved_to_another_time(self, open: Opener) -> None:
        """Stating a future memory again with another beginning moves it and counts as a confirmation."""
        handle = await open()
        now = open.clock.now()
        await enter(handle, memory("rome", key="home"))
        await enter(handle, memory("oslo", key="home", begins=now + 30 * _MICROS, importance=0.9))
        await enter(handle, memory("oslo", key="home", begins=now + 50 * _MICROS))
        assert await _timeline(handle, now) == [
            ("rome", 0, 50, None),
            ("oslo", 30, 30, "oslo"),
            ("oslo", 50, None, None),
        ]
        open.clock.advance(10 * DAY)
        await enter(handle, memory("oslo", key="home"))
        (oslo,) = await known(handle)
        assert (oslo.id, oslo.begins, oslo.times, oslo.importance) == ("oslo", now + 10 * _MICROS, 3, 0.9)
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_confirmed_memory_still_ends_when_the_next_begins(self, open: Opener) -> None:
        """Confirming a memory does not extend it past the beginning of the next memory with its key."""
        handle = await open()
        now = open.clock.now()
        await enter(handle, memory("rome", key="home"))
        await enter(handle, memory("oslo", key="home", begins=now + 30 * _MICROS))
        await enter(handle, memory("rome", key="home", ends=now + 90 * _MICROS), memory("rome", key="home"))
        rome, oslo = await known(handle)
        assert (rome.times, rome.ends, oslo.begins) == (3, oslo.begins, now + 30 * _MICROS)
        assert (await handle.verify()).ok

    @both_apis
    async def test_forgetting_a_future_memory_restores_the_end_of_the_current_one(self, open: Opener) -> None:
        """If a future memory is forgotten before it begins, the current one has no end again. Afterwards the end
        stays."""
        handle = await open()
        now = open.clock.now()
        await enter(handle, memory("rome", key="home"))
        for _ in range(2):
            await enter(handle, memory("oslo", key="home", begins=now + 30 * _MICROS))
            (plan,) = await known(handle, id="oslo")
            await store_changes(handle, "s", (MemoryChanges(forgotten=[plan.number]),))
            assert await _timeline(handle, now) == [("rome", 0, None, None)]
        await enter(handle, memory("oslo", key="home", begins=now + 30 * _MICROS))
        open.clock.advance(40 * DAY)
        (plan,) = await known(handle, id="oslo")
        await store_changes(handle, "s", (MemoryChanges(forgotten=[plan.number]),))
        assert await _timeline(handle, now) == [("rome", 0, 30, None)], "the future memory had already begun"
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_past_memory_ends_when_a_known_future_one_begins(self, open: Opener) -> None:
        """A memory that began earlier holds until the future memory with its key begins."""
        handle = await open()
        now = open.clock.now()
        await enter(handle, memory("oslo", key="home", begins=now + 30 * _MICROS))
        await enter(handle, memory("rome", key="home", begins=now - 5 * _MICROS))
        assert await _timeline(handle, now) == [("oslo", 30, None, None), ("rome", -5, 30, None)]
        assert (await handle.verify()).ok

    # -- renewing memories, and what an append reports

    @both_apis
    async def test_a_renewing_memory_replaces_the_one_with_its_id(self, open: Opener) -> None:
        """A renewing row becomes the current one. It keeps the old beginning and continues the count of statements."""
        handle = await open()
        await enter(handle, memory("m", importance=0.7, confidence=0.2, expires=5, kind="first"))
        (before,) = await known(handle)
        open.clock.advance(10)
        now = open.clock.now()
        again = memory("m", importance=0.4, confidence=0.9, expires=9, kind="first")
        done = await store_changes(handle, "t", (MemoryChanges(memories=[again], renewing=[0]),))
        said, current = await known(handle, history=True)
        assert said == before._replace(closed=now, successor="m", changed=2)
        assert current == before._replace(
            session="t", recorded=now, confirmed=now, expires=now + 9, confidence=0.9, times=2, changed=3,
            number=current.number,
        )  # fmt: skip
        assert done.touched == Touched(met=frozenset("m"))
        new = await store_changes(handle, "t", (MemoryChanges(memories=[memory("n")], renewing=[0]),))
        assert new.touched == Touched()
        assert (await handle.verify()).ok

    @both_apis
    async def test_an_append_reports_its_effect_on_memories(self, open: Opener) -> None:
        """`Touched` lists the ids that met a known memory, and counts the index entries and vectors that were
        removed."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        met = [
            (await store_changes(handle, "s", (MemoryChanges(memories=rows),))).touched.met
            for rows in ([memory("a"), memory("b", key="k")], [memory("a")], [memory("c"), memory("d", key="k")])
        ]
        assert met == [frozenset(), frozenset("a"), frozenset("bd")]
        rows = await known(handle, history=True)
        index_entries = [
            IndexEntry(b"", row.number, b"words", b"v" if row.id in "ab" else None) for row in rows if row.id != "d"
        ]
        await store.put_index_entries(workspace, made.number, index_entries)
        done = await store_changes(handle, "s", (MemoryChanges(forgotten=[row.number for row in rows]),))
        assert done.touched == Touched(words=4, vectors=3)
        assert (await store_changes(handle, "s", (MemoryChanges(forgotten=[rows[0].number]),))).touched == Touched()


async def _timeline(handle: AsyncDuramen, now: int) -> list[tuple[str, int, int | None, str | None]]:
    """Each row: its id, the days on which it begins and ends (counted from `now`), and its successor."""

    def day(time: int) -> int:
        return round((time - now) / _MICROS)

    def summary(row: MemoryRow) -> tuple[str, int, int | None, str | None]:
        assert (row.closed is None) == (row.successor is None)
        return row.id, day(row.begins), None if row.ends is None else day(row.ends), row.successor

    return [summary(row) for row in await known(handle, history=True)]
