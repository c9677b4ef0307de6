"""The contract of every store for bookmarks: set and removed in the transaction of the events, found by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ..api._async.duramen import AsyncDuramen
from ..errors import CheckpointConflict, PositionConflict
from ..ports import BatchChange, Bookmark, BookmarkChanges, BookmarkQuery, Chunk, ChunkLogMoved, SubjectGone
from .both_apis import Opener, both_apis
from .chunk_contract import ChunkContract, held, store_changes

_FULL = Bookmark("näme", "id 'x'", 0, 7, 2**62, True, None, bytes(range(256)))
_ODD_NAMES = [
    "100%",
    "100_",
    "1000",
    "a",
    "a'b",
    'a"b',
    "a*",
    "a\\b",
    "a[b]",
    "ab",
    "aB",
    "ä",
    "Ä",
    "äb",
    "日本",
    "🚀",
    "Z",
]


class BookmarkContract(ChunkContract):
    """The tests for bookmarks. `shared`: whether two handles on one address see the same data."""

    shared = True

    # -- set, replaced, removed

    @pytest.mark.promise("C3")
    @both_apis
    async def test_a_bookmark_has_the_position_and_time_of_its_event(self, open: Opener) -> None:
        """A bookmark is stored at the position and time of its event in the batch, with all its fields."""
        handle = await open()
        await handle.session("s").append("note", "before")
        bare = Bookmark("other", "b", 2, -3)
        open.clock.advance(5)
        await store_changes(handle, "s", (BookmarkChanges([_FULL, bare]),), size=3)
        now = open.clock.now()
        open.clock.advance(5)
        reader = await open() if self.shared else handle
        assert await found(reader, "s", BookmarkQuery("näme", limit=9)) == [_FULL._replace(position=2, time=now)]
        assert await found(reader, "s", BookmarkQuery("other", limit=9)) == [bare._replace(position=4, time=now)]
        assert await found(reader, "s", BookmarkQuery("nobody", limit=9)) == []
        assert await found(reader, "nowhere", BookmarkQuery("other", limit=9)) == []

    @both_apis
    async def test_a_bookmark_replaces_the_one_with_its_name_and_id(self, open: Opener) -> None:
        """Under one name, an id has one bookmark: the one that was set last."""
        handle = await open()
        for manifest in (b"first", b"second", None):
            await store_changes(
                handle,
                "s",
                (BookmarkChanges([Bookmark("n", "same", 0, 5, manifest=manifest), Bookmark("m", "same", 0, 5)]),),
            )
        await store_changes(handle, "s", (BookmarkChanges([Bookmark("n", "else", 0, 5)]),))
        assert await places(handle, "s", "n") == [("else", 4), ("same", 3)]
        assert await places(handle, "s", "m") == [("same", 3)]
        (kept,) = await found(handle, "s", BookmarkQuery("n", "same"))
        assert kept.manifest is None

    @pytest.mark.promise("C3")
    @both_apis
    async def test_bookmarks_are_returned_newest_first_up_to_a_position_or_time(self, open: Opener) -> None:
        """Bookmarks are ordered by position, newest first. `upto` and `until` are inclusive, even if a clock went
        back."""
        handle = await open()
        begun = open.clock.now()
        for number in range(1, 7):
            open.clock.advance({5: -25e-6, 6: 45e-6}.get(number, 10e-6))  # 10, 20, 30, 40, 15, 60: a clock may go back
            await store_changes(handle, "s", (BookmarkChanges([Bookmark("n", f"i{number}", 0, 0)]),))

        async def ids(**query: Any) -> list[str]:
            if "until" in query:
                query["until"] += begun
            return [one.id for one in await found(handle, "s", BookmarkQuery("n", **{"limit": 9, **query}))]

        assert await ids() == ["i6", "i5", "i4", "i3", "i2", "i1"]
        assert await ids(limit=2) == ["i6", "i5"]
        assert await ids(upto=4) == ["i4", "i3", "i2", "i1"]
        assert await ids(upto=4, limit=1) == ["i4"]
        assert await ids(upto=0) == []
        assert await ids(until=30) == ["i5", "i3", "i2", "i1"]
        assert await ids(until=30, upto=4) == ["i3", "i2", "i1"]
        assert await ids(until=9) == []
        assert await ids(id="i3") == ["i3"]
        assert await ids(id="i3", upto=2) == []
        assert await ids(id="i3", until=29) == []
        assert await ids(id="i7") == []

    @both_apis
    async def test_bookmark_names_are_listed_by_prefix(self, open: Opener) -> None:
        """Names are listed once each, in code point order. A prefix is literal text and case-sensitive."""
        handle = await open()
        assert await names(handle, "s") == []
        for name in _ODD_NAMES:
            await store_changes(handle, "s", (BookmarkChanges([Bookmark(name, "1", 0, 0), Bookmark(name, "2", 0, 0)]),))
        assert await names(handle, "s") == sorted(_ODD_NAMES)
        for prefix in {*_ODD_NAMES, *(name[:1] for name in _ODD_NAMES), "%", "_", "*", "nothing", "10"}:
            wanted = sorted(name for name in _ODD_NAMES if name.startswith(prefix))
            assert await names(handle, "s", prefix) == wanted, prefix

    @both_apis
    async def test_only_existing_bookmarks_are_rewritten_or_removed(self, open: Opener) -> None:
        """Rewriting changes a bookmark only if it is still at the given position. Removing an unknown one does
        nothing."""
        handle = await open()
        now = open.clock.now()
        first, second = Bookmark("n", "1", 0, now, manifest=b"old"), Bookmark("n", "2", 1, now)
        await store_changes(handle, "s", (BookmarkChanges([first, second]),), size=2)
        changed = Bookmark("n", "1", 1, 5, 99, True, None, b"new")
        await store_changes(
            handle, "s", (BookmarkChanges(rewritten=[changed, Bookmark("n", "3", 1, 5), Bookmark("m", "1", 1, 5)]),)
        )
        assert await found(handle, "s", BookmarkQuery("n", limit=9)) == [second._replace(position=2), changed]
        assert await names(handle, "s") == ["n"]
        elsewhere = changed._replace(position=2, manifest=b"not here")
        await store_changes(handle, "s", (BookmarkChanges(rewritten=[elsewhere]),))  # its position has changed
        assert await found(handle, "s", BookmarkQuery("n", "1")) == [changed]
        again = Bookmark("n", "2", 0, now)
        await store_changes(
            handle, "s", (BookmarkChanges([again], removed=[("n", "1"), ("n", "2"), ("n", "3"), ("m", "2")]),)
        )
        assert await found(handle, "s", BookmarkQuery("n", limit=9)) == [again._replace(position=5)]
        await store_changes(handle, "s", (BookmarkChanges(rewritten=[changed], removed=[("n", "2")]),))
        assert await names(handle, "s") == []

    @pytest.mark.promise("J7")
    @both_apis
    async def test_a_repeated_append_changes_no_bookmarks_and_chunks(self, open: Opener) -> None:
        """An append with a key that was used before changes nothing."""
        handle = await open()
        changes = (BookmarkChanges([Bookmark("n", "1", 0, 5)], chunks=[Chunk(3, 0, 1, None, b"x")], chunk_log=(3, 0)),)
        await store_changes(handle, "s", changes, key="k")
        await store_changes(handle, "s", (BookmarkChanges(removed=[("n", "1")], only_chunk_logs=[]),))
        assert (await store_changes(handle, "s", changes, key="k")).repeated
        assert await names(handle, "s") == []
        assert await held(handle, "s", 3) == []

    # -- rejected

    @pytest.mark.promise("C8")
    @both_apis
    async def test_an_append_after_an_outdated_bookmark_is_rejected(self, open: Opener) -> None:
        """If `after` is not the newest bookmark, the store raises `CheckpointConflict` and stores no part of the
        batch."""
        handle = await open()
        await store_changes(handle, "s", whole("1", (7, 0), ("n", None)))
        await store_changes(handle, "s", whole("2", (7, 1), ("n", "1")))
        for expected in (None, "1", "3"):
            with pytest.raises(CheckpointConflict) as caught:
                await store_changes(handle, "s", whole("3", (7, 2), ("n", expected)))
            refused = caught.value
            assert (refused.session, refused.name, refused.expected, refused.found) == ("s", "n", expected, "2")
        with pytest.raises(CheckpointConflict) as caught:
            await store_changes(handle, "new", whole("1", (7, 0), ("n", "2")))
        assert caught.value.found is None
        assert await handle._journal.store.head(handle.workspace, "new") is None
        await self.expect_nothing_of_the_third(handle)
        await store_changes(handle, "s", whole("2", (7, 2), ("n", "2")))  # a bookmark may replace the newest one

    @pytest.mark.promise("C8")
    @both_apis
    async def test_an_append_at_an_outdated_chunk_log_end_is_rejected(self, open: Opener) -> None:
        """If the chunk log does not end at the given place, the store raises `ChunkLogMoved` and stores no part of the
        batch."""
        handle = await open()
        await store_changes(handle, "s", whole("1", (7, 0)))
        await store_changes(handle, "s", whole("2", (7, 1)))
        for start in (0, 1, 3):
            with pytest.raises(ChunkLogMoved):
                await store_changes(handle, "s", whole("3", (7, start)))
        with pytest.raises(ChunkLogMoved):
            await store_changes(handle, "new", whole("1", (7, 1)))
        assert await handle._journal.store.head(handle.workspace, "new") is None
        await self.expect_nothing_of_the_third(handle)
        with pytest.raises(PositionConflict):
            await store_changes(handle, "s", whole("3", (7, 2)), expected=1)
        await self.expect_nothing_of_the_third(handle)

    @pytest.mark.promise("C8")
    @both_apis
    async def test_conflicts_are_checked_against_the_current_state(self, open: Opener) -> None:
        """The check for conflicts sees writes through other handles, and removed bookmarks and chunk logs."""
        handle = await open()
        two = await open() if self.shared else handle
        for number, one in enumerate([two, handle, two, handle, handle]):
            before = str(number - 1) if number else None
            await store_changes(one, "s", whole(str(number), (7, number), ("n", before)))
        await store_changes(handle, "s", (BookmarkChanges([], removed=[("n", "4")], only_chunk_logs=[]),))
        with pytest.raises(CheckpointConflict) as caught:
            await store_changes(handle, "s", whole("5", (7, 0), ("n", "4")))
        assert caught.value.found == "3"
        with pytest.raises(ChunkLogMoved):
            await store_changes(handle, "s", whole("5", (7, 5)))
        both = [Bookmark("n", "late", 1, 5), Bookmark("n", "early", 0, 5)]
        await store_changes(handle, "s", (BookmarkChanges(both, after=("n", "3")),), size=2)
        await store_changes(handle, "s", whole("6", (7, 0), ("n", "late")))
        assert (await handle.verify()).ok

    async def expect_nothing_of_the_third(self, handle: AsyncDuramen) -> None:
        """Check that the first two appends are stored and that the third left nothing."""
        assert (await handle.session("s").head()).position == 2
        assert await places(handle, "s", "n") == [("2", 2), ("1", 1)]
        assert [chunk.start for chunk in await held(handle, "s", 7)] == [0, 1]
        assert await held(handle, "s", 8) == []
        assert (await handle.verify()).ok

    @pytest.mark.promise("J5", "C8")
    @both_apis
    async def test_of_concurrent_conflicting_appends_exactly_one_succeeds(self, open: Opener) -> None:
        """Of several concurrent appends at the same place, one is stored and the others raise. Other appends are not
        affected."""
        handle = await open()
        two = await open() if self.shared else handle
        await store_changes(handle, "s", whole("0", (7, 0)))
        pairs = list(enumerate([handle, two] * 4))
        rivals = [store_changes(one, "s", whole(f"r{n}", (7, 1))) for n, one in pairs]
        savers = [store_changes(one, "t", whole(f"r{n}", (n, 0), ("n", None))) for n, one in pairs]
        plain = [one.session("s" if n < 4 else "t").append("note", n) for n, one in pairs]
        outcomes = await open.together(*(one for three in zip(rivals, savers, plain, strict=True) for one in three))
        kinds = [type(outcome).__name__ for outcome in outcomes]
        assert sorted(kinds[0::3]) == [*["ChunkLogMoved"] * 7, "Stored"]
        assert sorted(kinds[1::3]) == [*["CheckpointConflict"] * 7, "Stored"]
        assert kinds[2::3] == ["Event"] * 8
        assert [(await handle.session(name).head()).position for name in ("s", "t")] == [1 + 1 + 4, 1 + 4]
        assert len(await places(handle, "s", "n")) == 2
        assert [(chunk.start, chunk.count) for chunk in await held(handle, "s", 7)] == [(0, 1), (1, 1)]
        assert len(await places(handle, "t", "n")) == 1
        assert (await handle.verify()).ok

    @both_apis
    async def test_an_append_for_an_erased_subject_is_rejected(self, open: Opener) -> None:
        """The store raises `SubjectGone` and stores no bookmark and no chunk."""
        handle = await open()
        await handle.session("s").append("note", 1, subject="ada")
        ref = (await handle._journal.owner("ada")).ref
        await handle.erase("ada")
        changes = (
            BookmarkChanges(
                [Bookmark("n", "1", 0, 5, owner=ref)], chunk_log=(7, 0), chunks=[Chunk(7, 0, 1, ref, b"ada")]
            ),
        )
        with pytest.raises(SubjectGone):
            await store_changes(handle, "s", changes, subject=ref)
        assert await names(handle, "s") == []
        assert await held(handle, "s", 7) == []

    # -- expiry and erasure

    @pytest.mark.promise("C6")
    @both_apis
    async def test_expired_bookmarks_are_listed_by_expiry_time(self, open: Opener) -> None:
        """A bookmark has expired when `expires` is at or before now. The earliest expiry comes first."""
        handle, other = await open(), await open(workspace="other")
        for number, expires in enumerate([30, None, 10, 20, 21, 0]):
            mark = Bookmark("n", f"i{number}", 0, 5, expires)
            await store_changes(handle, f"s{number % 2}", (BookmarkChanges([mark]),))
        await store_changes(other, "s0", (BookmarkChanges([Bookmark("n", "theirs", 0, 5, 1)]),))

        async def due(now: int, limit: int = 9, prefix: str = "") -> list[tuple[str, str]]:
            rows = await handle._journal.store.expired(handle.workspace, prefix, now, limit)
            assert all(one.position for _, one in rows)
            return [(session, one.id) for session, one in rows]

        assert await due(20) == [("s1", "i5"), ("s0", "i2"), ("s1", "i3")]
        assert await due(20, limit=2) == [("s1", "i5"), ("s0", "i2")]
        assert await due(-1) == []
        await store_changes(
            handle, "s0", (BookmarkChanges([Bookmark(name, "odd", 0, 5, 1) for name in ("item:%", "item_x", "Item")]),)
        )
        assert [await due(9, prefix=prefix) for prefix in ("item:", "item_", "%", "I")] == [[("s0", "odd")]] * 2 + [
            [],
            [("s0", "odd")],
        ]
        await store_changes(
            handle, "s0", (BookmarkChanges(removed=[(name, "odd") for name in ("item:%", "item_x", "Item")]),)
        )
        await store_changes(handle, "s0", (BookmarkChanges(removed=[("n", "i2")]),))
        assert await due(99) == [("s1", "i5"), ("s1", "i3"), ("s0", "i4"), ("s0", "i0")]

    @pytest.mark.promise("G3")
    @both_apis
    async def test_erasing_a_subject_removes_its_bookmarks_and_chunks(self, open: Opener) -> None:
        """An erasure removes and counts the subject's bookmarks and chunks in all sessions of one workspace."""
        handle, other = await open(), await open(workspace="other")
        for who in (handle, other):
            for chunk_log, subject in enumerate(("ada", "bob", None)):
                ref = (await who._journal.owner(subject)).ref
                for session in ("s", "t"):
                    mark = Bookmark(f"of {subject}", "1", 0, 5, owner=ref, manifest=b"state")
                    changes = (
                        BookmarkChanges(
                            [mark], chunk_log=(chunk_log, 0), chunks=[Chunk(chunk_log, 0, 1, ref, b"0123456789")]
                        ),
                    )
                    await store_changes(who, session, changes, subject=ref)
        store = handle._journal.store
        payloads = [(await store.read(handle.workspace, session, 1, 1))[0].payload or b"" for session in ("s", "t")]
        report = await handle.erase("ada")
        assert (report.payloads, report.checkpoints, report.bytes) == (2, 2, sum(map(len, payloads)) + 2 * 5 + 2 * 10)
        assert await names(handle, "s") == await names(handle, "t") == ["of None", "of bob"]
        assert await names(other, "s") == ["of None", "of ada", "of bob"]
        assert await held(handle, "s", 0) == await held(handle, "t", 0) == []
        assert len(await held(other, "s", 0)) == len(await held(handle, "s", 1)) == 1
        assert (await handle.verify()).ok
        assert (await handle.erase("ada")).checkpoints == 0

    # -- separation

    @pytest.mark.promise("G4", "J13")
    @both_apis
    async def test_bookmarks_and_chunks_are_separate_per_workspace_and_session(self, open: Opener) -> None:
        """Workspaces, sessions and forks do not share bookmarks or chunks, even under the same names."""
        handle, other = await open(), await open(workspace="other")
        owners = [(handle, "s"), (handle, "t"), (other, "s")]
        for number, (who, session) in enumerate(owners):
            body = b"%d" % number
            await store_changes(
                who,
                session,
                (BookmarkChanges([Bookmark("n", "1", 0, 5, manifest=body)], chunks=[Chunk(7, 0, 1, None, body)]),),
            )
        await (handle.session("s")).fork("fork")
        await store_changes(
            handle, "fork", (BookmarkChanges([Bookmark("n", "2", 0, 6)], chunks=[Chunk(7, 0, 1, None, b"fork")]),)
        )
        for number, (who, session) in enumerate(owners):
            body = b"%d" % number
            assert [one.manifest for one in await found(who, session, BookmarkQuery("n", limit=9))] == [body]
            assert [chunk.body for chunk in await held(who, session, 7)] == [body]
        assert await places(handle, "fork", "n") == [("2", 2)]
        assert [chunk.body for chunk in await held(handle, "fork", 7)] == [b"fork"]
        await store_changes(handle, "s", (BookmarkChanges(removed=[("n", "1")], only_chunk_logs=[]),))
        for who, session in (*owners[1:], (handle, "fork")):
            assert len(await places(who, session, "n")) == 1
            assert len(await held(who, session, 7)) == 1


def whole(id: str, chunk_log: tuple[int, int], after: tuple[str, str | None] | None = None) -> Sequence[BatchChange]:
    """A bookmark with a chunk at the end of a chunk log. For id "3", also a chunk of another chunk log."""
    chunks = [Chunk(chunk_log[0], chunk_log[1], 1, None, id.encode())]
    if id == "3":
        chunks.append(Chunk(8, 0, 1, None, b"third"))
    return (BookmarkChanges([Bookmark("n", id, 0, 5)], chunk_log=chunk_log, chunks=chunks, after=after),)


async def found(handle: AsyncDuramen, session: str, query: BookmarkQuery) -> list[Bookmark]:
    """The bookmarks that a query returns."""
    return await handle._journal.store.bookmarks(handle.workspace, session, query)


async def places(handle: AsyncDuramen, session: str, name: str) -> list[tuple[str, int]]:
    """The ids and positions of the bookmarks with a name, newest first."""
    return [(one.id, one.position) for one in await found(handle, session, BookmarkQuery(name, limit=99))]


async def names(handle: AsyncDuramen, session: str, prefix: str = "") -> list[str]:
    """The names of the session's bookmarks."""
    return await handle._journal.store.bookmark_names(handle.workspace, session, prefix)
