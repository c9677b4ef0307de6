"""The contract of every store for memories: stored, confirmed, replaced, ended, forgotten and queried."""

from __future__ import annotations

from typing import Any

import pytest

from ..errors import PositionConflict
from ..ports import BookmarkChanges, ChunkLogMoved, IndexEntry, MemoryChanges, MemoryRow, SubjectGone
from .both_apis import Opener, both_apis
from .chunk_contract import store_changes
from .future_memory_contract import FutureMemoryContract
from .index_contract import changed, counts, enter, index_entries, known, memory, store_of

_FULL = memory(
    "ïd 'x'", audience=bytes(range(256)), position=2, kind="wöhnt", key="k%_", begins=7, ends=2**62
)._replace(expires=2**61, importance=0.1, confidence=1e-9)


class MemoryContract(FutureMemoryContract):
    """The tests for memories. `shared`: whether two handles on one address see the same data."""

    shared = True

    # -- stored, confirmed, replaced

    @both_apis
    async def test_a_memory_has_the_position_and_time_of_its_event(self, open: Opener) -> None:
        """A memory is stored at the position and time of its event in the batch, with all its fields."""
        handle = await open()
        await handle.session("s").append("note", "before")
        open.clock.advance(5)
        await store_changes(
            handle, "s", (MemoryChanges(memories=[_FULL, memory("bare", importance=1, confidence=0)]),), size=3
        )
        now = open.clock.now()
        open.clock.advance(5)
        bare, full = sorted(await known(await open() if self.shared else handle))
        times: dict[str, Any] = {"recorded": now, "confirmed": now, "session": "s", "changed": 1}
        assert full == _FULL._replace(position=4, number=full.number, expires=now + 2**61, **times)
        assert bare == memory("bare", position=2, begins=now, importance=1.0, confidence=0.0)._replace(
            number=bare.number, **times
        )
        assert min(full.number, bare.number) > 0
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_memory_that_is_stated_again_is_confirmed(self, open: Opener) -> None:
        """The current row takes the higher importance and confidence, the new expiry, and a new end if one is given.
        The new row becomes history. A memory that had ended holds again."""
        handle = await open()
        await enter(handle, memory("m", importance=0.7, confidence=0.2, expires=5, ends=2**60, kind="first"))
        (before,) = await known(handle)
        open.clock.advance(10)
        again = memory("m", importance=0.4, confidence=0.9, expires=9, ends=None, kind="second", begins=4, key="k")
        await enter(handle, again, session="t")
        (after,) = await known(handle)
        now = open.clock.now()
        assert after == before._replace(times=2, confirmed=now, confidence=0.9, expires=now + 9, changed=2)
        kept, said = await known(handle, history=True)
        assert kept == after
        placed = again._replace(session="t", position=1, recorded=now, confirmed=now, expires=now + 9, changed=3)
        assert said == placed._replace(closed=now, successor="m", number=said.number)
        open.clock.advance(10)
        await enter(handle, memory("m", importance=0.8, ends=8), memory("m", audience=b"other"))
        first, other = await known(handle)
        assert (first.times, first.importance, first.ends, first.expires) == (3, 0.8, 8, None)
        assert first.number == before.number
        await enter(handle, memory("m"))
        assert [row.ends for row in await known(handle)] == [None, None], "a memory that had ended holds again"
        assert (other.times, other.audience, other.changed) == (1, b"other", 1)

    @both_apis
    async def test_a_memory_replaces_the_one_with_its_key(self, open: Opener) -> None:
        """In one audience, the old row is closed, ends when the new one begins, and names it as successor."""
        handle = await open()
        times = []
        for number in range(3):
            await enter(handle, memory(f"m{number}", key="k"), memory(f"o{number}"), session=f"s{number}")
            times.append(open.clock.now())
            open.clock.advance(10)
        await enter(handle, memory("elsewhere", key="k", audience=b"p"), memory("m9", key="K"))
        history = await known(handle, key="k", history=True, audiences=(b"",))
        assert [(row.id, row.closed, row.ends, row.successor) for row in history] == [
            ("m0", times[1], times[1], "m1"),
            ("m1", times[2], times[2], "m2"),
            ("m2", None, None, None),
        ]
        assert [(row.begins, row.session) for row in history] == [(at, f"s{n}") for n, at in enumerate(times)]
        assert [row.id for row in await known(handle, key="k")] == ["m2", "elsewhere"]
        await enter(handle, memory("m0", key="k"))  # stating a closed memory again adds a row
        assert [row.id for row in await known(handle, key="k", audiences=(b"",))] == ["m0"]
        assert [row.successor for row in await known(handle, id="m0", history=True)] == ["m1", None]
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_replaced_memory_keeps_an_earlier_end(self, open: Opener) -> None:
        """A replaced memory that had ended before the new one begins keeps its end."""
        handle = await open()
        await enter(handle, memory("old", key="k", begins=10, ends=20))
        await enter(handle, memory("new", key="k", begins=30))
        await enter(handle, memory("next", key="k", begins=30, ends=99))
        assert [(row.begins, row.ends) for row in await known(handle, history=True)] == [(10, 20), (30, 30), (30, 99)]

    @both_apis
    async def test_a_memory_that_began_before_the_current_one_is_history(self, open: Opener) -> None:
        """It is closed at once, ends at the latest when the current one began, and the current one does not change."""
        handle = await open()
        await enter(handle, memory("now", key="k", begins=100))
        (before,) = await known(handle)
        open.clock.advance(10)
        await enter(handle, memory("past", key="k", begins=50), memory("longer ago", key="k", begins=10, ends=20))
        assert await known(handle) == [before]
        _, past, longer = await known(handle, history=True)
        now = open.clock.now()
        assert (past.begins, past.ends, past.closed, past.successor) == (50, 100, now, "now")
        assert (longer.begins, longer.ends, longer.closed, longer.successor) == (10, 20, now, "now")

    @both_apis
    async def test_a_memory_that_begins_with_its_event_replaces_the_current_one(self, open: Opener) -> None:
        """This holds even if the clock of the earlier writer was ahead."""
        handle = await open()
        await enter(handle, memory("first", key="k"))
        open.clock.advance(-5)
        await enter(handle, memory("second", key="k"), session="t")
        assert [row.id for row in await known(handle)] == ["second"], "the clock of the first writer was ahead"
        assert (await handle.verify()).ok

    @both_apis
    async def test_memories_of_one_append_are_applied_in_order(self, open: Opener) -> None:
        """Within one append, later memories confirm and replace earlier ones, as in separate appends."""
        handle = await open()
        await enter(handle, memory("a", key="k", begins=1))
        rows = [memory("b", key="k", begins=2), memory("c"), memory("c", importance=0.9), memory("b", begins=2)]
        rows += [memory("past", key="k", begins=1), memory("d", key="k", begins=3), memory("a", key="k", begins=4)]
        await store_changes(handle, "s", (MemoryChanges(memories=rows),), size=2)
        rows = await known(handle, history=True)
        found = {(row.id, row.begins): row for row in rows if row.id != row.successor}
        now = open.clock.now()
        assert {which: (row.times, row.successor, row.closed is None) for which, row in found.items()} == {
            ("a", 1): (1, "b", False),
            ("b", 2): (2, "d", False),
            ("c", now): (2, None, True),
            ("past", 1): (1, "b", False),
            ("d", 3): (1, "a", False),
            ("a", 4): (1, None, True),
        }
        assert [row.id for row in rows if row.id == row.successor] == ["c", "b"]
        assert found["c", now].importance == 0.9
        everything = await counts(handle)
        assert [count for _, count in everything] == sorted({count for _, count in everything})
        assert await store_of(handle).audience_changes(handle.workspace, None) == {b"": everything[-1][1]}
        assert (await handle.verify()).ok

    # -- ended and forgotten

    @both_apis
    async def test_an_ended_memory_is_history_without_a_successor(self, open: Opener) -> None:
        """Ending closes a row and keeps an earlier end. Stating it again adds a new row."""
        handle = await open()
        await enter(handle, memory("a", key="k"), memory("b", ends=5), memory("c", ends=70), memory("d"))
        a, b, c, d = await known(handle)
        await store_changes(handle, "t", (MemoryChanges(ended=[(row.number, 60) for row in (c, a, b)]),))
        assert await known(handle) == [d]
        rows = await known(handle, history=True, numbers=(a.number, b.number, c.number))
        assert [(row.closed, row.ends, row.successor) for row in rows] == [
            (60, 60, None),
            (60, 5, None),
            (60, 60, None),
        ]
        await enter(handle, memory("new", key="k"), memory("b"))
        assert [row.id for row in await known(handle)] == ["d", "new", "b"]
        assert (await known(handle, history=True, numbers=(a.number,)))[0].successor is None

    @both_apis
    async def test_only_a_current_memory_gets_a_new_importance(self, open: Opener) -> None:
        """`weighed` changes current rows only. Closed and unknown rows are skipped."""
        handle = await open()
        await enter(handle, memory("old", key="k"), memory("plain"))
        await enter(handle, memory("new", key="k", importance=0.25))
        old, plain, new = await known(handle, history=True)
        weighed = [(old.number, 0.75), (new.number, 1), (new.number + 9, 0.5)]
        await store_changes(handle, "t", (MemoryChanges(weighed=weighed),))
        assert await known(handle, history=True) == [
            old,
            plain,
            new._replace(importance=1.0, changed=new.changed + 1),
        ]
        assert (await counts(handle))[-1] == ("new", new.changed + 1)
        await store_changes(
            handle, "t", (MemoryChanges(ended=[(new.number, 9)], weighed=[(new.number, 0.1), (plain.number, 0)]),)
        )
        rows = await known(handle, history=True)
        assert [row.importance for row in rows] == [old.importance, 0.0, 1.0]
        assert (await handle.verify()).ok

    @pytest.mark.promise("G3")
    @both_apis
    async def test_a_forgotten_memory_leaves_an_empty_row(self, open: Opener) -> None:
        """A forgotten row keeps its number, closing time and change count. Its fields, index entries and recalls are
        gone."""
        handle = await open()
        store, workspace = store_of(handle), handle.workspace
        made = await store.add_generation(workspace, b"model", active=True)
        await enter(handle, memory("before", key="k", begins=1), memory("same", audience=b"p", key="k"))
        await enter(handle, memory("same", key="k", begins=2, kind="secret", expires=9))
        before, other, same = await known(handle, history=True)
        number, everything = same.number, (before, other, same)
        await store.put_index_entries(
            workspace, made.number, [IndexEntry(b"", row.number, b"w", b"v") for row in everything]
        )
        await store.note_recalls(workspace, [(row.number, 1, 5) for row in everything])
        await store_changes(handle, "s", (MemoryChanges(forgotten=[number]),))
        assert [row.id for row in await known(handle, history=True)] == ["before", "same"]
        assert (
            await known(handle, numbers=(number,), history=True)
            == await known(handle, at=2**62, audiences=(b"",))
            == []
        )
        kept, gone = await changed(handle, generation=made.number)
        assert (kept.row.id, kept.row.successor, kept.words) == ("before", "same", b"w")
        empty = MemoryRow(b"", "", "", 0, "", None, None, 0, 0, None, None, 0.0, 0.0, 0)
        assert gone[1:] == (None, None, 0, 0)
        assert gone.row == empty._replace(closed=same.recorded, number=number, changed=gone.row.changed)
        ((elsewhere, *rest),) = await changed(handle, b"p", made.number)
        assert (elsewhere.id, elsewhere.closed, *rest) == ("same", None, b"w", b"v", 1, 5)
        await enter(handle, memory("same", key="k"))
        (again,) = await known(handle, audiences=(b"",))
        assert (again.id, again.times) == ("same", 1)
        assert again.number > number
        assert (await handle.verify()).ok

    @both_apis
    async def test_one_append_can_replace_end_and_forget(self, open: Opener) -> None:
        """New memories are applied first, then ends, then forgotten rows."""
        handle = await open()
        await enter(handle, memory("a", key="k"), memory("b", key="l"), memory("c"))
        a, b, c = await known(handle)
        change = MemoryChanges(memories=[memory("n", key="k"), memory("c")], ended=[(a.number, 5), (c.number, 6)])
        await store_changes(handle, "s", (change._replace(forgotten=[a.number, b.number]),))
        assert [(row.id, row.times) for row in await known(handle, history=True)] == [("c", 2), ("n", 1), ("c", 1)]
        assert [row.id for row in await known(handle)] == ["n"]
        assert sorted(id for id, _ in await counts(handle)) == ["", "", "c", "c", "n"]
        assert (await handle.verify()).ok

    @pytest.mark.promise("G3")
    @both_apis
    async def test_erasing_a_subject_forgets_its_memories_in_every_audience(self, open: Opener) -> None:
        """An erasure forgets and counts the subject's memories, current and closed, in one workspace."""
        handle, other = await open(), await open(workspace="other")
        for who in (handle, other):
            store = store_of(who)
            made = await store.add_generation(who.workspace, b"model", active=True)
            for subject in ("ada", "bob", None):
                ref = (await who._journal.owner(subject)).ref
                rows = [
                    memory(f"{subject} {n}", audience=audience, owner=ref, key="k")
                    for n in "12"
                    for audience in (b"", b"p")
                ]
                await enter(who, *rows, subject=ref)
            rows = await known(who, history=True)
            vectors = [IndexEntry(b"", row.number, b"words", b"vec" if row.id[-1] == "1" else None) for row in rows]
            await store.put_index_entries(who.workspace, made.number, vectors)
            await store.note_recalls(who.workspace, [(row.number, 1, 1) for row in rows])
        ref = (await handle._journal.owner("ada")).ref
        (event,) = await handle._journal.store.read(handle.workspace, "s", 1, 1)
        erased = []
        erase = handle._journal.store.erase

        async def watched(request: object) -> object:
            erased.append(await erase(request))  # type: ignore[arg-type]
            return erased[-1]

        handle._journal.store.erase = watched  # type: ignore[method-assign, assignment]
        await handle.erase("ada")
        assert (erased[0].memories, erased[0].vectors) == (4, 2)
        assert erased[0].bytes == len(event.payload or b"") + 4 * len(b"words") + 2 * len(b"vec")
        for audience in (b"", b"p"):
            rows = [change.row for change in await changed(handle, audience)]
            assert sum(not row.id for row in rows) == 2
            assert not [row for row in rows if "ada" in row.id or row.owner == ref]
            assert all(
                change.words is None and change.recalled == 0 for change in (await changed(handle, audience))[-2:]
            )
            assert len(await index_entries(other, made.number, audience)) == 6
        assert {row.id for row in await known(handle)} == {"None 2"}
        assert len(await known(handle, history=True)) == 8
        assert len(await known(other, history=True)) == 12
        assert (await handle.verify()).ok
        await handle.erase("ada")
        assert erased[-1].memories == 0
        with pytest.raises(SubjectGone):
            await enter(handle, memory("late", owner=ref), subject=ref)
        assert await known(handle, id="late") == []

    # -- rejected and repeated

    @pytest.mark.promise("J5")
    @both_apis
    async def test_a_rejected_append_changes_no_memory(self, open: Opener) -> None:
        """If a condition of the batch fails, none of its memory changes is stored and concurrent appends are not
        affected."""
        handle = await open()
        await enter(handle, memory("a", key="k"))
        (before,) = await known(handle)
        changes = (
            MemoryChanges(
                memories=[memory("a"), memory("b", key="k"), memory("c", audience=b"p")], forgotten=[before.number]
            ),
        )
        for session in ("s", "new"):
            with pytest.raises(PositionConflict):
                await store_changes(handle, session, changes, expected=7)
            with pytest.raises(ChunkLogMoved):
                await store_changes(handle, session, (*changes, BookmarkChanges(chunk_log=(7, 3))))
        assert await known(handle, history=True) == [before]
        assert await store_of(handle).audience_changes(handle.workspace, None) == {b"": 1}
        assert await handle._journal.store.head(handle.workspace, "new") is None
        refusals = [store_changes(handle, "s", changes, expected=7) for _ in range(4)]
        outcomes = await open.together(*refusals, enter(handle, memory("good")))
        assert [type(one).__name__ for one in outcomes] == ["PositionConflict"] * 4 + ["Stored"]
        assert [row.id for row in await known(handle, history=True)] == ["a", "good"]
        assert (await handle.verify()).ok

    @pytest.mark.promise("J7")
    @both_apis
    async def test_a_repeated_append_changes_no_memory(self, open: Opener) -> None:
        """An append with a key that was used before stores no memory again, even if the memory was forgotten since."""
        handle = await open()
        for turn in range(3):
            done = await enter(handle, memory("a"), memory("b", key="k"), key="once")
            assert done.repeated is (turn > 0)
        a, b = await known(handle)
        assert (a.times, b.times) == (1, 1)
        await store_changes(handle, "s", (MemoryChanges(forgotten=[a.number]),))
        assert (await enter(handle, memory("a"), key="once")).repeated
        assert await known(handle) == [b]
        together = [enter(handle, memory("z"), key="both") for _ in range(4)]
        assert sorted(done.repeated for done in await open.racing(*together)) == [False, True, True, True]
        assert [row.times for row in await known(handle, id="z")] == [1]

    # -- queries

    @both_apis
    async def test_every_field_of_a_memory_query_filters(self, open: Opener) -> None:
        """Fields of a query are combined with AND. Rows are ordered by number; `after` and `limit` select a page."""
        handle = await open()
        for audience in (b"", b"a", b"b"):
            rows = [memory(f"m{n}", audience=audience, kind=("fact", "wish", "plan")[n], key=f"k{n}") for n in range(3)]
            await enter(handle, *rows)
        await enter(handle, memory("m3", audience=b"a", key="k0"))
        rows = await known(handle, history=True)
        assert [row.number for row in rows] == sorted(row.number for row in rows)
        queries: list[dict[str, object]] = [
            {},
            {"audiences": ()},
            {"audiences": (b"a", b"b", b"nowhere")},
            {"audiences": (b"",)},
        ]
        queries += [{**one, "id": id} for one in queries[:4] for id in ("m0", "m3", "m9", "")]
        queries += [{**one, "key": key} for one in queries[:4] for key in ("k0", "K0", "k9")]
        queries += [{**one, "kinds": kinds} for one in queries for kinds in (("fact",), ("wish", "plan", "?"), ())]
        queries += [{**one, "numbers": tuple(row.number for row in rows[1:5])} for one in queries]
        queries += [{"id": "m0", "key": "k1"}, {"id": "m0", "key": "k0"}, {"numbers": ()}]
        for query in queries:
            for history in (False, True):
                wanted = [row for row in rows if _fits(row, query) and (history or row.closed is None)]
                assert await known(handle, history=history, **query) == wanted, query
                page = await known(handle, history=history, limit=2, after=rows[0].number, **query)
                assert page == [row for row in wanted if row.number > rows[0].number][:2], query

    @both_apis
    async def test_a_query_returns_the_memories_known_at_a_time(self, open: Opener) -> None:
        """With `at`, a query returns the rows that were recorded and not closed at that time."""
        handle = await open()
        begun, seen = open.clock.now(), {}
        for number in range(3):
            await enter(handle, memory(f"m{number}", key="k"), memory(f"o{number}"))
            seen[open.clock.now()] = [f"m{number}", *(f"o{n}" for n in range(number + 1))]
            open.clock.advance(1)
        for at, ids in seen.items():
            for later in (at, at + 999_999):
                assert sorted(row.id for row in await known(handle, at=later)) == ids
        assert await known(handle, at=begun - 1) == []
        assert [row.id for row in await known(handle, at=begun, key="k")] == ["m0"]
        assert len(await known(handle, at=begun, history=True)) == 6

    # -- separation and concurrency

    @pytest.mark.promise("G4", "J13")
    @both_apis
    async def test_memories_are_separate_per_workspace(self, open: Opener) -> None:
        """Changes, index entries, recalls and generations of one workspace do not affect another."""
        handle, other = await open(), await open(workspace="other")
        for who in (handle, other, handle):
            await enter(who, memory("m", key="k"))
        (ours,), (theirs,) = await known(handle), await known(other)
        assert (ours.times, theirs.times) == (2, 1)
        if not self.shared:
            return
        made = [await store_of(who).add_generation(who.workspace, b"model", active=True) for who in (handle, other)]
        late = IndexEntry(b"", theirs.number, b"w", None)
        await store_of(handle).put_index_entries(handle.workspace, made[0].number, [late])
        await store_of(handle).note_recalls(handle.workspace, [(theirs.number, 1, 1)])
        await store_changes(handle, "s", (MemoryChanges(ended=[(theirs.number, 5)]),))
        await store_changes(handle, "s", (MemoryChanges(forgotten=[theirs.number]),))
        assert await known(handle, numbers=(theirs.number,), history=True) == []
        assert await known(other) == [theirs]
        assert [change[1:] for change in await changed(other, generation=made[1].number)] == [(None, None, 0, 0)]
        assert await store_of(other).audience_changes(other.workspace, None) == {b"": 1}
        await store_of(other).put_index_entries(other.workspace, made[1].number, [late])
        await store_of(handle).add_generation(handle.workspace, b"next", active=False)
        await store_of(handle).activate(handle.workspace, made[0].number)
        assert await index_entries(other, made[1].number) == [("m", b"w", None)]
        assert len(await store_of(other).generations(other.workspace)) == 1

    @pytest.mark.promise("J5")
    @both_apis
    async def test_concurrent_statements_of_a_memory_leave_one_current_row(self, open: Opener) -> None:
        """All statements are counted, and no two changes of an audience have the same change count."""
        handle = await open()
        two = await open() if self.shared else handle
        await enter(handle, memory("first", key="k"))

        def say(turn: int) -> list[MemoryRow]:
            rows = [memory("same", audience=audience) for audience in (b"a", b"b")] + [memory(f"k{turn}", key="k")]
            return rows[:: -1 if turn % 2 else 1]

        work = [enter((handle, two)[turn % 2], *say(turn), session=f"s{turn}") for turn in range(8)]
        outcomes = await open.racing(*work)
        assert not [one for one in outcomes if isinstance(one, Exception)], outcomes
        assert sorted((row.audience, row.times) for row in await known(handle, id="same")) == [(b"a", 8), (b"b", 8)]
        said = await known(handle, id="same", history=True)
        assert sorted(row.session for row in said) == sorted([f"s{turn}" for turn in range(8)] * 2)
        keyed = await known(handle, key="k", history=True)
        assert (len(keyed), sum(row.closed is None for row in keyed)) == (9, 1)
        assert {row.successor for row in keyed} == {None} | {row.id for row in keyed} - {"first"}
        changes = await store_of(handle).audience_changes(handle.workspace, None)
        assert changes == {b"a": 15, b"b": 15, b"": 17}
        for audience, count in changes.items():
            seen = [change.row.changed for change in await changed(handle, audience)]
            assert seen == sorted(set(seen))
            assert seen[-1] == count
        assert (await handle.verify()).ok


def _fits(row: MemoryRow, query: dict[str, object]) -> bool:
    asked = {"audiences": row.audience, "kinds": row.kind, "numbers": row.number, "id": row.id, "key": row.key}
    return all(
        asked[name] in wanted if isinstance(wanted, tuple) else asked[name] == wanted for name, wanted in query.items()
    )
