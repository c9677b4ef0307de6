"""The contract of every store, as a test suite to inherit from.

    class TestMyStore(StoreContract):
        def address(self, tmp_path): return f"mystore://{tmp_path}"

Each test is a coroutine that runs twice: on the blocking runtime of the sync API, and on an event loop. `open()`
returns a new handle on the same store, as another process would have. The name and the docstring of each test state
a requirement.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ..errors import InvalidInput, LeaseLost, PositionConflict, SessionExists, StoreClosed, UnknownSession, UnknownType
from ..journal.events import Draft, Event, SessionStatus
from ..runtime import pause
from .bookmark_contract import BookmarkContract
from .both_apis import Opener, TestBody, both_apis, collect
from .memory_contract import MemoryContract
from .run_contract import RunContract


class StoreContract(RunContract, BookmarkContract, MemoryContract):
    """Tests every promise of the `Store` port. Inherit from it and define `address`."""

    shared = True
    """Whether two handles on one address see the same data."""

    def address(self, tmp_path: Path) -> str:
        """The address of a new, empty store. Called once per test."""
        raise NotImplementedError("override address() to return the address of an empty store")

    @pytest.fixture(params=["sync", "async"])
    def is_async(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param == "async")

    @pytest.fixture
    def opener(self, tmp_path: Path, is_async: bool) -> Iterator[Opener]:
        with ExitStack():
            yield Opener(self.address(tmp_path), is_async)

    # -- appending

    @pytest.mark.promise("J5", "B2")
    @both_apis
    async def test_events_are_numbered_from_one_without_gaps(self, open: Opener) -> None:
        """The positions of a session are 1, 2, 3, …, in the order of the appends."""
        session = (await open()).session("a")
        for number in range(1, 6):
            event = await session.append("note", {"n": number})
            assert event.position == number
        assert [event.data["n"] for event in await collect(session.events())] == [1, 2, 3, 4, 5]

    @pytest.mark.promise("J5")
    @both_apis
    async def test_a_batch_is_atomic(self, open: Opener) -> None:
        """A batch is stored completely or not at all."""
        session = (await open()).session("a")
        with pytest.raises(UnknownType):
            await session.append_all([Draft("good", 1), Draft("bad", object())])
        assert (await session.head()).position == 0
        stored = await session.append_all([Draft("one", 1), Draft("two", 2)])
        assert [event.position for event in stored] == [1, 2]

    @pytest.mark.promise("J6")
    @both_apis
    async def test_an_outdated_expected_position_is_a_conflict(self, open: Opener) -> None:
        """The store raises `PositionConflict` with the expected and the actual position, and stores nothing."""
        session = (await open()).session("a")
        await session.append("note", 1, expected=0)
        await session.append("note", 2, expected=1)
        with pytest.raises(PositionConflict) as caught:
            await session.append("note", 3, expected=1)
        assert (caught.value.expected, caught.value.actual) == (1, 2)
        assert (await session.head()).position == 2

    @pytest.mark.promise("J7")
    @both_apis
    async def test_a_key_is_stored_once_per_session(self, open: Opener) -> None:
        """Repeating an append with the same key returns the first result. Another session may use the key again."""
        session = (await open()).session("a")
        first = await session.append("note", "first", key="k")
        again = await session.append("note", "second", key="k")
        assert again == first
        batch = await session.append_all([Draft("x", 1), Draft("y", 2)], key="b")
        assert await session.append_all([Draft("x", 1), Draft("y", 2)], key="b") == batch
        assert (await session.head()).position == 3
        other = await (await open()).session("b" if not self.shared else "a2").append("note", 1, key="k")
        assert other.position == 1

    @pytest.mark.promise("J7")
    @both_apis
    async def test_a_repeated_append_ignores_its_expected_position(self, open: Opener) -> None:
        """A repeat returns the first result even if the session has grown since."""
        session = (await open()).session("a")
        first = await session.append("note", 1, key="k", expected=0)
        await session.append("note", 2)
        assert await session.append("note", 1, key="k", expected=0) == first

    @pytest.mark.promise("J5", "J7")
    @both_apis
    async def test_concurrent_appends_are_ordered_without_gaps_or_duplicates(self, open: Opener) -> None:
        """Each key is stored once, and all writers of a key get the same event."""
        one, two = await open(), await open()
        handles = [one, two] if self.shared else [one, one]
        appends = [handles[n % 2].session("a").append("note", n, key=f"k{n % 10}") for n in range(40)]
        outcomes = await open.together(*appends)
        assert all(isinstance(outcome, Event) for outcome in outcomes), outcomes
        events = await collect(one.session("a").events())
        assert [event.position for event in events] == list(range(1, 11))
        by_key = {event.key: event for event in events}
        assert all(by_key[outcome.key] == outcome for outcome in outcomes)

    @pytest.mark.promise("J5", "J6")
    @both_apis
    async def test_a_conflict_does_not_affect_concurrent_appends(self, open: Opener) -> None:
        """Only the append with the wrong expected position fails, even if the store groups several into one commit."""
        handle = await open()
        await handle.session("s0").append("note", 0)
        appends = [handle.session(f"s{n}").append("note", n, expected=0) for n in range(8)]
        outcomes = await open.together(*appends)
        assert isinstance(outcomes[0], PositionConflict)
        assert all(isinstance(outcome, Event) for outcome in outcomes[1:]), outcomes

    @pytest.mark.promise("J13")
    @both_apis
    async def test_sessions_are_separate(self, open: Opener) -> None:
        """Each session returns its own events only."""
        handle = await open()
        for number in range(10):
            await handle.session(f"s{number % 2}").append("note", number)
        for index in (0, 1):
            events = await collect(handle.session(f"s{index}").events())
            assert [event.data for event in events] == [number for number in range(10) if number % 2 == index]
            assert {event.session for event in events} == {f"s{index}"}

    @both_apis
    async def test_workspaces_are_separate(self, open: Opener) -> None:
        """Sessions with the same id in two workspaces have nothing in common."""
        one = await open(workspace="one")
        two = await open(workspace="two")
        await one.session("s").append("note", 1)
        await two.session("s").append("note", 2)
        assert [event.data for event in await collect(one.session("s").events())] == [1]
        assert [row.session for row in await collect(two.sessions())] == ["s"]
        if self.shared:
            assert await one.workspaces() in (["one", "two"], ["one"])  # a database may hide other workspaces

    # -- reading

    @both_apis
    async def test_events_are_read_by_range_type_and_direction(self, open: Opener) -> None:
        """`start` and `stop` are inclusive. `types`, `limit` and `backwards` can be combined with them."""
        session = (await open()).session("a")
        await session.append_all([Draft("odd" if n % 2 else "even", n) for n in range(1, 1201)])

        async def read(**options: Any) -> list[Any]:
            return [event.data for event in await collect(session.events(**options))]

        assert await read() == list(range(1, 1201))
        assert await read(start=5, stop=8) == [5, 6, 7, 8]
        assert await read(start=1199, stop=5000) == [1199, 1200]
        assert await read(types="even", start=3, stop=9) == [4, 6, 8]
        assert await read(types=["even", "odd"], limit=2) == [1, 2]
        assert await read(backwards=True, limit=3) == [1200, 1199, 1198]
        assert await read(backwards=True, types="odd", limit=2, stop=700) == [699, 697]
        assert await read(limit=0) == []
        assert await read(start=1201) == []
        with pytest.raises(InvalidInput):
            await read(start=0)

    @pytest.mark.promise("J9")
    @both_apis
    async def test_actor_time_and_cause_of_an_event_are_stored(self, open: Opener) -> None:
        """An event has the time of its append. A cause is a position, or "session#position" in another session."""
        session = (await open()).session("a")
        await session.append("asked", actor="user")
        open.clock.advance(5)
        await session.append("answered", actor="agent", cause=1)
        await session.append("noted", actor="agent", cause="other#7")
        trail = [(event.actor, event.cause, event.time) for event in await collect(session.events())]
        start = open.clock.now() - 5_000_000
        assert trail == [
            ("user", None, start),
            ("agent", 1, start + 5_000_000),
            ("agent", "other#7", start + 5_000_000),
        ]

    @both_apis
    async def test_sessions_are_listed_by_id(self, open: Opener) -> None:
        """Sessions are ordered by code point, with their last position."""
        handle = await open()
        for name in ["b", "a", "ü", "Z"]:
            await handle.session(name).append("note", name)
        rows = [row async for row in handle.sessions()]
        assert [row.session for row in rows] == ["Z", "a", "b", "ü"]
        assert [row.head for row in rows] == [1, 1, 1, 1]

    @pytest.mark.promise("J15")
    @both_apis
    async def test_a_follower_gets_every_event_once(self, open: Opener) -> None:
        """Following starts after a position and includes events that are appended meanwhile."""
        writer = await open()
        reader = await open() if self.shared else writer
        await writer.session("a").append_all([Draft("note", n) for n in range(1, 4)])
        seen = []
        async for event in reader.session("a").follow(after=1, timeout=0.3):
            seen.append(event.data)
            if event.data in (3, 4):
                await writer.session("a").append("note", event.data + 1)
        assert seen == [2, 3, 4, 5]

    # -- forks

    @both_apis
    async def test_a_fork_shares_the_events_before_it(self, open: Opener) -> None:
        """Later events of parent and fork are separate. A fork can be forked again."""
        handle = await open()
        parent = handle.session("parent")
        await parent.append_all([Draft("note", n) for n in range(1, 6)], key="batch")
        fork = await parent.fork("fork", at=3)
        await parent.append("note", "parent only")
        added = await fork.append("note", "fork only")
        assert added.position == 4
        twig = await fork.fork("twig")
        await twig.append("note", "twig")
        assert [e.data for e in await collect(fork.events())] == [1, 2, 3, "fork only"]
        assert [e.data for e in await collect(twig.events())] == [1, 2, 3, "fork only", "twig"]
        assert [e.data for e in await collect(twig.events(backwards=True, start=2, stop=4))] == ["fork only", 3, 2]
        assert [e.data for e in await collect(parent.events())] == [1, 2, 3, 4, 5, "parent only"]
        assert (await handle.verify()).ok

    @both_apis
    async def test_a_fork_knows_the_keys_of_shared_events(self, open: Opener) -> None:
        """A key of a shared event is a repeat in the fork. A key that the parent used later is new."""
        parent = (await open()).session("parent")
        first = await parent.append("note", 1, key="early")
        await parent.append("note", 2, key="late")
        fork = await parent.fork("fork", at=1)
        assert await fork.append("note", "again", key="early") == first
        assert (await fork.append("note", "new here", key="late")).position == 2

    @both_apis
    async def test_an_invalid_fork_is_rejected(self, open: Opener) -> None:
        """The parent must exist, the position must not be after its end, and the new id must be free."""
        handle = await open()
        await handle.session("a").append("note", 1)
        with pytest.raises(UnknownSession):
            await handle.session("nobody").fork("x")
        with pytest.raises(InvalidInput):
            await handle.session("a").fork("x", at=2)
        await handle.session("a").fork("x")
        with pytest.raises(SessionExists):
            await handle.session("a").fork("x")

    # -- large payloads

    @pytest.mark.promise("J12")
    @both_apis
    async def test_large_payloads_are_returned_unchanged(self, open: Opener) -> None:
        """This includes long texts, bytes and lists."""
        session = (await open()).session("a")
        data = {"out": "ä" * 40_000, "raw": bytes(range(256)) * 400, "rows": [["cell"] * 50] * 2000}
        stored = await session.append("tool", data)
        assert stored.data == data
        assert [event.data for event in await collect(session.events())] == [data]

    # -- subjects

    @pytest.mark.parametrize("sealed", [False, True])
    def test_erasing_a_subject_removes_only_its_payloads(self, opener: Opener, is_async: bool, sealed: bool) -> None:
        """An erasure removes the subject's payloads and blobs, and its data key if payloads are sealed. The chain still
        verifies, and the subject can be used again."""
        key = {"key": bytes(range(32))} if sealed else {}

        async def body(open: Opener) -> None:
            handle = await open(**key)
            session = handle.session("a")
            await session.append("note", "about alice", subject="alice")
            await session.append("note", "about bob", subject="bob")
            await handle.session("b").append("note", {"big": "alice " * 10_000}, subject="alice")
            report = await handle.erase("alice")
            assert (report.payloads, report.blobs, report.key_destroyed) == (2, 1, sealed)
            assert [event.session for event in report.tombstones] == ["a", "b"]
            events = await collect(session.events())
            assert [(e.data, e.erased) for e in events[:2]] == [(None, True), ("about bob", False)]
            assert events[2].type == "subject.erased"
            assert (await handle.verify()).ok
            assert (await handle.erase("alice")).payloads == 0
            again = await session.append("note", "alice is back", subject="alice")
            assert again.subject == "alice"

        self._run(body, opener, is_async)

    @both_apis
    async def test_a_writer_can_append_after_an_erasure_by_another_process(self, open: Opener) -> None:
        """It writes under a new data key, and the erased events stay erased."""
        one = await open(key=bytes(32))
        two = await open(key=bytes(32)) if self.shared else one
        await one.session("a").append("note", 1, subject="alice")
        await two.session("a").append("note", 2, subject="alice")
        await one.erase("alice")
        await two.session("a").append("note", 3, subject="alice")
        events = await collect(one.session("a").events())
        assert [(event.data, event.erased) for event in events if event.type == "note"] == [
            (None, True),
            (None, True),
            (3, False),
        ]

    # -- leases

    @pytest.mark.promise("X16")
    @both_apis
    async def test_a_lease_is_exclusive_and_rejects_its_former_owner(self, open: Opener) -> None:
        """A new lease has a higher fence. Appends and renewals under an expired or older fence raise `LeaseLost`."""
        handle = await open()
        session = handle.session("a")
        first = await session.lease("one", seconds=10)
        assert first is not None
        assert await session.lease("two", seconds=10) is None
        await session.append("note", 1, fence=first.fence)
        open.clock.advance(11)
        with pytest.raises(LeaseLost):
            await session.append("note", "too late", fence=first.fence)
        second = await session.lease("two", seconds=10)
        assert second is not None
        assert second.fence > first.fence
        with pytest.raises(LeaseLost):
            await session.append("note", "stale", fence=first.fence)
        with pytest.raises(LeaseLost):
            await first.renew()
        await first.release()
        await second.renew(seconds=20)
        await session.append("note", 2, fence=second.fence)
        await second.release()
        third = await session.lease("one")
        assert third is not None
        assert third.fence > second.fence
        assert [event.data for event in await collect(session.events())] == [1, 2]

    @pytest.mark.promise("J17")
    @both_apis
    async def test_the_status_of_a_session_follows_from_its_events_and_lease(self, open: Opener) -> None:
        """A session is unknown, idle, live, crashed, parked or finished."""
        handle = await open()
        session = handle.session("a")
        assert await session.status() is SessionStatus.UNKNOWN
        await session.append("note", 1)
        assert await session.status() is SessionStatus.IDLE
        lease = await session.lease("worker", seconds=10)
        assert lease is not None
        await session.append("run.started", fence=lease.fence)
        assert await session.status() is SessionStatus.LIVE
        open.clock.advance(11)
        assert await session.status() is SessionStatus.CRASHED
        await session.append("run.parked")
        assert await session.status() is SessionStatus.PARKED
        await session.append("run.resumed")
        assert await session.status() is SessionStatus.CRASHED
        await session.append("run.finished")
        await session.append("note", "afterwards")
        assert await session.status() is SessionStatus.FINISHED

    # -- outlets

    @pytest.mark.promise("J4")
    @both_apis
    async def test_an_outlet_gets_every_event_once_in_order(self, open: Opener) -> None:
        """Delivery continues behind the cursor of the outlet."""
        handle = await open()
        outlet = Recorder()
        for number in range(7):
            await handle.session(f"s{number % 3}").append("note", number)
        await deliver_all(handle, outlet, 7)
        assert await handle.deliver(outlet) == 0
        await handle.session("s1").append("note", 7)
        await deliver_all(handle, outlet, 8)
        assert outlet.seen == list(range(8))

    # -- closing

    @both_apis
    async def test_a_closed_store_raises_store_closed(self, open: Opener) -> None:
        """Closing twice is allowed."""
        handle = await open()
        await handle.session("a").append("note", 1)
        await handle.close()
        await handle.close()
        with pytest.raises(StoreClosed):
            await handle.session("a").append("note", 2)
        with pytest.raises(StoreClosed):
            await collect(handle.session("a").events())

    def _run(self, body: TestBody, opener: Opener, is_async: bool) -> None:
        both_apis(lambda _self, open: body(open))(self, opener, is_async)


class Recorder:
    """An outlet that records the data of the events it gets."""

    name = "recorder"

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def apply(self, events: Any) -> None:
        self.seen += [event.data for event in events]


async def deliver_all(handle: Any, outlet: Recorder, count: int) -> None:
    """Deliver until the outlet has `count` events, for up to 20 seconds. A server may hold back the newest events while
    an older transaction is open."""
    until = time.monotonic() + 20
    while len(outlet.seen) < count and time.monotonic() < until:
        if await handle.deliver(outlet) == 0:
            await pause(0.01)
