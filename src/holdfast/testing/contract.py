"""What every store must do, as a test suite to inherit from.

    class TestMyStore(StoreContract):
        def address(self, tmp_path): return f"mystore://{tmp_path}"

Each test is written once, as a coroutine over the port, and run twice: stepped by hand on the blocking
runtime, and on an event loop. `open` gives another handle on the same store, as another process would have.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from ..aio import AsyncHoldfast, open_face
from ..errors import (
    InvalidInput,
    LeaseLost,
    PositionConflict,
    RunActive,
    SessionExists,
    StoreClosed,
    UnknownSession,
    UnknownType,
)
from ..journal.events import Draft, Event, Standing
from ..opening import Settings
from ..ports import Append, Appended, LeaseRow, Limits, RunChange, RunQuery, RunRow
from ..runtime import Blocking, Looping, drive
from .clock import FakeClock

Body = Callable[..., Coroutine[Any, Any, None]]


class Opener:
    """Opens handles on the store under test, and closes them at the end."""

    def __init__(self, address: str, looping: bool) -> None:
        self._address = address
        self._looping = looping
        self._opened: list[AsyncHoldfast] = []
        self.clock = FakeClock()

    async def __call__(self, **settings: Any) -> AsyncHoldfast:
        chosen: Settings = {"clock": self.clock, **settings}  # type: ignore[typeddict-item]
        handle = await open_face(self._address, chosen, Looping() if self._looping else Blocking())
        self._opened.append(handle)
        return handle

    async def together(self, *work: Awaitable[Any]) -> list[Any]:
        """Run at the same time where there is a loop, else one after the other."""
        if self._looping:
            return list(await asyncio.gather(*work, return_exceptions=True))
        return [await _caught(one) for one in work]

    async def close(self) -> None:
        for handle in self._opened:
            await handle.close()


async def _caught(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error


def both_faces(body: Body) -> Callable[..., None]:
    """Run a coroutine test stepped by hand or on an event loop, as the `looping` fixture says."""

    @wraps(body)
    def test(self: Any, opener: Opener, looping: bool) -> None:
        async def whole() -> None:
            try:
                await body(self, opener)
            finally:
                await opener.close()

        if looping:
            asyncio.run(whole())
        else:
            drive(whole())

    test.__signature__ = inspect.signature(_shape)  # type: ignore[attr-defined]
    return test


def _shape(self: Any, opener: Opener, looping: bool) -> None: ...


async def collect(events: Any) -> list[Event]:
    """All events of an iterator."""
    return [event async for event in events]


class StoreContract:
    """Inherit, give `address`, and every promise of the `Store` port is tested."""

    shared = True
    """Whether two handles on one address see the same data."""

    def address(self, tmp_path: Path) -> str:
        """Where a fresh, empty store can be opened."""
        raise NotImplementedError("give the address of an empty store")

    @pytest.fixture(params=["sync", "async"])
    def looping(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param == "async")

    @pytest.fixture
    def opener(self, tmp_path: Path, looping: bool) -> Iterator[Opener]:
        with ExitStack():
            yield Opener(self.address(tmp_path), looping)

    # -- appending

    @pytest.mark.promise("J5", "B2")
    @both_faces
    async def test_events_are_numbered_from_one_without_gap(self, open: Opener) -> None:
        session = (await open()).session("a")
        for number in range(1, 6):
            event = await session.append("note", {"n": number})
            assert event.position == number
        assert [event.data["n"] for event in await collect(session.events())] == [1, 2, 3, 4, 5]

    @pytest.mark.promise("J5")
    @both_faces
    async def test_a_batch_lands_whole_or_not_at_all(self, open: Opener) -> None:
        session = (await open()).session("a")
        with pytest.raises(UnknownType):
            await session.append_all([Draft("good", 1), Draft("bad", object())])
        assert (await session.head()).position == 0
        stored = await session.append_all([Draft("one", 1), Draft("two", 2)])
        assert [event.position for event in stored] == [1, 2]

    @pytest.mark.promise("J6")
    @both_faces
    async def test_a_stale_writer_gets_a_conflict_with_both_positions(self, open: Opener) -> None:
        session = (await open()).session("a")
        await session.append("note", 1, expected=0)
        await session.append("note", 2, expected=1)
        with pytest.raises(PositionConflict) as caught:
            await session.append("note", 3, expected=1)
        assert (caught.value.expected, caught.value.actual) == (1, 2)
        assert (await session.head()).position == 2

    @pytest.mark.promise("J7")
    @both_faces
    async def test_the_same_key_is_stored_once_and_answers_the_same(self, open: Opener) -> None:
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
    @both_faces
    async def test_a_repeat_is_answered_even_if_the_session_moved_on(self, open: Opener) -> None:
        session = (await open()).session("a")
        first = await session.append("note", 1, key="k", expected=0)
        await session.append("note", 2)
        assert await session.append("note", 1, key="k", expected=0) == first

    @pytest.mark.promise("J5", "J7")
    @both_faces
    async def test_concurrent_appends_make_one_order(self, open: Opener) -> None:
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
    @both_faces
    async def test_one_conflict_does_not_fail_its_neighbours(self, open: Opener) -> None:
        handle = await open()
        await handle.session("s0").append("note", 0)
        appends = [handle.session(f"s{n}").append("note", n, expected=0) for n in range(8)]
        outcomes = await open.together(*appends)
        assert isinstance(outcomes[0], PositionConflict)
        assert all(isinstance(outcome, Event) for outcome in outcomes[1:]), outcomes

    @pytest.mark.promise("J13")
    @both_faces
    async def test_sessions_do_not_mix(self, open: Opener) -> None:
        handle = await open()
        for number in range(10):
            await handle.session(f"s{number % 2}").append("note", number)
        for index in (0, 1):
            events = await collect(handle.session(f"s{index}").events())
            assert [event.data for event in events] == [number for number in range(10) if number % 2 == index]
            assert {event.session for event in events} == {f"s{index}"}

    @both_faces
    async def test_workspaces_do_not_mix(self, open: Opener) -> None:
        one = await open(workspace="one")
        two = await open(workspace="two")
        await one.session("s").append("note", 1)
        await two.session("s").append("note", 2)
        assert [event.data for event in await collect(one.session("s").events())] == [1]
        assert [row.session for row in await collect(two.sessions())] == ["s"]
        if self.shared:
            assert await one.workspaces() == ["one", "two"]

    # -- reading

    @both_faces
    async def test_reading_by_range_type_and_direction(self, open: Opener) -> None:
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
    @both_faces
    async def test_every_event_has_an_actor_a_time_and_a_cause(self, open: Opener) -> None:
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

    @both_faces
    async def test_sessions_are_listed_by_id(self, open: Opener) -> None:
        handle = await open()
        for name in ["b", "a", "ü", "Z"]:
            await handle.session(name).append("note", name)
        rows = [row async for row in handle.sessions()]
        assert [row.session for row in rows] == ["Z", "a", "b", "ü"]
        assert [row.head for row in rows] == [1, 1, 1, 1]

    @pytest.mark.promise("J15")
    @both_faces
    async def test_following_misses_nothing_and_repeats_nothing(self, open: Opener) -> None:
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

    @both_faces
    async def test_a_fork_shares_the_past_and_goes_its_own_way(self, open: Opener) -> None:
        handle = await open()
        parent = handle.session("parent")
        await parent.append_all([Draft("note", n) for n in range(1, 6)], key="batch")
        fork = await parent.fork("fork", at=3)
        await parent.append("note", "parent goes on")
        added = await fork.append("note", "fork goes on")
        assert added.position == 4
        twig = await fork.fork("twig")
        await twig.append("note", "twig")
        assert [e.data for e in await collect(fork.events())] == [1, 2, 3, "fork goes on"]
        assert [e.data for e in await collect(twig.events())] == [1, 2, 3, "fork goes on", "twig"]
        assert [e.data for e in await collect(twig.events(backwards=True, start=2, stop=4))] == ["fork goes on", 3, 2]
        assert [e.data for e in await collect(parent.events())] == [1, 2, 3, 4, 5, "parent goes on"]
        assert (await handle.verify()).ok

    @both_faces
    async def test_a_fork_knows_the_keys_of_its_past(self, open: Opener) -> None:
        parent = (await open()).session("parent")
        first = await parent.append("note", 1, key="early")
        await parent.append("note", 2, key="late")
        fork = await parent.fork("fork", at=1)
        assert await fork.append("note", "again", key="early") == first
        assert (await fork.append("note", "new here", key="late")).position == 2

    @both_faces
    async def test_a_fork_needs_a_parent_a_place_and_a_name(self, open: Opener) -> None:
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
    @both_faces
    async def test_large_parts_come_back_as_they_were(self, open: Opener) -> None:
        session = (await open()).session("a")
        data = {"out": "ä" * 40_000, "raw": bytes(range(256)) * 400, "rows": [["cell"] * 50] * 2000}
        stored = await session.append("tool", data)
        assert stored.data == data
        assert [event.data for event in await collect(session.events())] == [data]

    # -- subjects

    @pytest.mark.parametrize("sealed", [False, True])
    def test_erasing_removes_a_person_and_nothing_else(self, opener: Opener, looping: bool, sealed: bool) -> None:
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

        self._run(body, opener, looping)

    @both_faces
    async def test_a_writer_that_missed_an_erasure_starts_the_subject_anew(self, open: Opener) -> None:
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
    @both_faces
    async def test_a_lease_is_exclusive_and_fences_off_the_old_owner(self, open: Opener) -> None:
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
    @both_faces
    async def test_every_standing_is_told_apart(self, open: Opener) -> None:
        handle = await open()
        session = handle.session("a")
        assert await session.standing() is Standing.UNKNOWN
        await session.append("note", 1)
        assert await session.standing() is Standing.IDLE
        lease = await session.lease("worker", seconds=10)
        assert lease is not None
        await session.append("run.started", fence=lease.fence)
        assert await session.standing() is Standing.LIVE
        open.clock.advance(11)
        assert await session.standing() is Standing.CRASHED
        await session.append("run.parked")
        assert await session.standing() is Standing.PARKED
        await session.append("run.resumed")
        assert await session.standing() is Standing.CRASHED
        await session.append("run.finished")
        await session.append("note", "afterwards")
        assert await session.standing() is Standing.FINISHED

    # -- outlets

    @pytest.mark.promise("J4")
    @both_faces
    async def test_an_outlet_gets_every_event_once_in_order(self, open: Opener) -> None:
        handle = await open()
        outlet = Recorder()
        for number in range(7):
            await handle.session(f"s{number % 3}").append("note", number)
        assert await handle.deliver(outlet) == 7
        assert await handle.deliver(outlet) == 0
        await handle.session("s1").append("note", 7)
        assert await handle.deliver(outlet) == 1
        assert outlet.seen == list(range(8))

    # -- runs

    @pytest.mark.promise("X1")
    @both_faces
    async def test_a_run_is_stored_with_its_events_or_not_at_all(self, open: Opener) -> None:
        handle = await open()
        store, row = handle._journal.store, run_row("r", open.clock)
        with pytest.raises(ZeroDivisionError):
            await change_runs(handle, "r", RunChange("r", lambda _: row), RunChange("s", lambda _: 1 // 0))  # type: ignore[arg-type, return-value]
        assert await store.run(handle.workspace, "r") is None
        assert (await handle.session("r").head()).position == 0
        with pytest.raises(PositionConflict):
            await change_runs(handle, "r", RunChange("r", lambda _: row), expected=1)
        assert await store.run(handle.workspace, "r") is None
        await change_runs(handle, "r", RunChange("r", lambda _: row))
        assert await store.run(handle.workspace, "r") == row
        await change_runs(handle, "r", RunChange("r", lambda _: None))
        assert await store.run(handle.workspace, "r") == row
        full = RunRow("r", "r", "t", "v1", "open", "ä?", 9, 2, 3, 4, 5, "p", "q", "k", -7, 6, 8)
        await change_runs(handle, "r", RunChange("r", lambda _: full))
        assert await (await open() if self.shared else handle)._journal.store.run(handle.workspace, "r") == full

    @pytest.mark.promise("X1")
    @both_faces
    async def test_a_repeated_append_changes_no_run_again(self, open: Opener) -> None:
        handle = await open()
        await change_runs(handle, "r", RunChange("r", lambda _: run_row("r", open.clock)))
        for _ in range(3):
            done = await change_runs(handle, "r", nudge("r"), key="signal")
        assert done.repeated
        row = await handle._journal.store.run(handle.workspace, "r")
        assert row is not None
        assert row.nudges == 1

    @pytest.mark.promise("X26")
    @both_faces
    async def test_an_append_changes_the_runs_of_other_sessions_too(self, open: Opener) -> None:
        handle = await open()
        for name in ("z", "a"):
            await change_runs(handle, name, RunChange(name, lambda _, name=name: run_row(name, open.clock)))  # type: ignore[misc]
        appends = [change_runs(handle, name, nudge("a"), nudge("z")) for name in ("a", "z") * 5]
        assert all(isinstance(done, Appended) for done in await open.together(*appends))
        rows = [await handle._journal.store.run(handle.workspace, name) for name in ("a", "z")]
        assert [row.nudges for row in rows if row is not None] == [10, 10]

    @pytest.mark.promise("X27")
    @both_faces
    async def test_a_session_has_one_open_run_at_a_time(self, open: Opener) -> None:
        handle = await open()
        two = await open() if self.shared else handle
        rows = [run_row(f"r{number}", open.clock, session="s") for number in range(4)]
        starts = [
            change_runs(who, "s", RunChange(row.run, lambda _, row=row: row))  # type: ignore[misc]
            for who, row in zip([handle, two] * 2, rows, strict=True)
        ]
        outcomes = await open.together(*starts)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Appended", *["RunActive"] * 3]
        first = next(row for row, outcome in zip(rows, outcomes, strict=True) if isinstance(outcome, Appended))
        refused = next(outcome for outcome in outcomes if isinstance(outcome, RunActive))
        assert (refused.run, refused.session) == (first.run, "s")
        assert (await handle.session("s").head()).position == 1
        await change_runs(handle, "s", RunChange(first.run, lambda _: first._replace(status="done", wake=None)))
        following = next(row for row in rows if row != first)
        await change_runs(handle, "s", RunChange(following.run, lambda _: following))

    @pytest.mark.promise("X16")
    @both_faces
    async def test_a_lease_is_given_back_with_an_append_or_not_at_all(self, open: Opener) -> None:
        handle = await open()
        await change_runs(handle, "r", RunChange("r", lambda _: run_row("r", open.clock)))
        lease = await claim(handle, "r", "one")
        assert lease is not None
        with pytest.raises(LeaseLost):
            await change_runs(handle, "r", nudge("r"), fence=lease.fence + 1, release=True)
        with pytest.raises(PositionConflict):
            await change_runs(handle, "r", nudge("r"), fence=lease.fence, release=True, expected=7)
        assert await claim(handle, "r", "two") is None
        await change_runs(handle, "r", nudge("r"), fence=lease.fence, release=True)
        row = await handle._journal.store.run(handle.workspace, "r")
        assert row is not None
        assert row.nudges == 1
        with pytest.raises(LeaseLost):
            await change_runs(handle, "r", nudge("r"), fence=lease.fence)
        second = await claim(handle, "r", "two")
        assert second is not None
        assert second.fence > lease.fence
        open.clock.advance(11)
        with pytest.raises(LeaseLost):
            await change_runs(handle, "r", nudge("r"), fence=second.fence, release=True)

    @both_faces
    async def test_runs_are_listed_newest_first(self, open: Opener) -> None:
        handle = await open()
        for number in range(6):
            row = run_row(f"r{number}", open.clock, task=f"t{number % 2}", queue=f"q{number % 3}" if number else None)
            row = row._replace(status="done" if number == 5 else "open", parent="r0" if number in (2, 3) else None)
            await change_runs(handle, row.session, RunChange(row.run, lambda _, row=row: row))  # type: ignore[misc]
            if number % 2:
                open.clock.advance(1)
            await handle.session(row.session).lease("owner", seconds=10)

        async def names(**query: Any) -> list[str]:
            found = await handle._journal.store.runs(handle.workspace, RunQuery(**query))
            assert all((lease is not None) == (row.status == "open") for row, lease in found)
            return [row.run for row, _ in found]

        assert await names() == ["r5", "r4", "r3", "r2", "r1", "r0"]
        assert await names(limit=2) == ["r5", "r4"]
        assert await names(status=("open",), limit=2) == ["r4", "r3"]
        assert await names(status=("done", "failed")) == ["r5"]
        assert await names(status=()) == []
        assert await names(task="t1") == ["r5", "r3", "r1"]
        assert await names(queue="q1", status=("open",)) == ["r4", "r1"]
        assert await names(parent="r0") == ["r3", "r2"]
        assert await names(session="r3") == ["r3"]
        seen, before = [], None
        while page := await handle._journal.store.runs(handle.workspace, RunQuery(before=before, limit=1)):
            seen += [row.run for row, _ in page]
            before = (page[-1][0].created, page[-1][0].run)
        assert seen == await names()

    @pytest.mark.promise("X14", "X17")
    @both_faces
    async def test_a_run_is_due_when_its_time_has_come_and_nobody_holds_it(self, open: Opener) -> None:
        handle = await open()
        store, now = handle._journal.store, open.clock.now()
        wakes = {"later": now + 10_000_000, "b": now - 1, "a": now - 1, "old": now - 9, "waits": None, "ended": now - 5}
        for name, wake in wakes.items():
            row = run_row(name, open.clock)._replace(wake=wake, priority=1 if name == "b" else 0)
            if name == "ended":
                row = row._replace(status="done", wake=None)
            await change_runs(handle, name, RunChange(name, lambda _, row=row: row))  # type: ignore[misc]

        async def due(limit: int = 10, skip: int = 0) -> list[str]:
            return [row.run for row in await store.due(handle.workspace, open.clock.now(), limit, skip)]

        assert await due() == ["b", "old", "a"]
        assert await due(limit=2) == ["b", "old"]
        assert await due(limit=2, skip=1) == ["old", "a"]
        assert await store.next_wake(handle.workspace, now) == now + 10_000_000
        assert await store.next_wake(handle.workspace, now + 10_000_000) is None
        assert await claim(handle, "old", "one") is not None
        assert await due() == ["b", "a"]
        open.clock.advance(9.999999)
        assert await due() == ["b", "a"]
        open.clock.advance(0.000001)
        assert await due() == ["b", "old", "a", "later"]
        assert await store.due("elsewhere", open.clock.now(), 10) == []
        assert await store.next_wake("elsewhere", 0) is None

    @pytest.mark.promise("X16")
    @both_faces
    async def test_a_run_is_claimed_by_one_owner(self, open: Opener) -> None:
        handle = await open()
        two = await open() if self.shared else handle
        row = run_row("r", open.clock)._replace(wake=open.clock.now() + 5_000_000)
        await change_runs(handle, "r", RunChange("r", lambda _: row))
        assert await claim(handle, "nobody", "one") is None
        assert await claim(handle, "r", "one", only_due=True) is None
        assert await handle._journal.store.run(handle.workspace, "r") == row
        open.clock.advance(5)
        claims = [claim(who, "r", f"owner{n}", only_due=True) for n, who in enumerate([handle, two] * 4)]
        won = [lease for lease in await open.together(*claims) if lease is not None]
        assert len(won) == 1
        assert await handle._journal.store.lease(handle.workspace, "r") == won[0]
        started = await handle._journal.store.run(handle.workspace, "r")
        assert started == row._replace(started=open.clock.now())
        open.clock.advance(10)
        again = await claim(two, "r", "another")
        assert again is not None
        assert again.fence > won[0].fence
        assert await two._journal.store.run(handle.workspace, "r") == started
        await change_runs(handle, "r", RunChange("r", lambda _: row._replace(status="done", wake=None)))
        open.clock.advance(10)
        assert await claim(handle, "r", "late") is None
        assert await handle.session("r").lease("anybody") is not None

    @pytest.mark.promise("X28")
    @both_faces
    async def test_a_queue_limits_how_many_are_claimed_at_once(self, open: Opener) -> None:
        handle = await open()
        two = await open() if self.shared else handle
        for number in range(8):
            row = run_row(f"r{number}", open.clock, queue="q", queue_key=f"k{number % 2}")
            await change_runs(handle, row.run, RunChange(row.run, lambda _, row=row: row))  # type: ignore[misc]
        other = run_row("other", open.clock, queue="elsewhere", queue_key="k0")
        await change_runs(handle, "other", RunChange("other", lambda _: other))

        async def claimed(limits: Limits) -> list[str]:
            who = [handle, two]
            names = [f"r{number}" for number in range(8)]
            claims = [claim(who[n % 2], name, f"owner {name}", limits) for n, name in enumerate(names)]
            outcomes = await open.together(*claims)
            assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
            return [name for name, lease in zip(names, outcomes, strict=True) if lease is not None]

        assert await claim(handle, "other", "other", Limits(1, 1)) is not None
        assert len(await claimed(Limits(concurrency=3))) == 3
        open.clock.advance(10)
        assert sorted(int(name[1:]) % 2 for name in await claimed(Limits(key_concurrency=1))) == [0, 1]
        open.clock.advance(10)
        first = await claimed(Limits(concurrency=1))
        assert len(first) == 1
        assert await claim(handle, first[0], f"owner {first[0]}", Limits(concurrency=1)) is not None
        lease = await handle._journal.store.lease(handle.workspace, first[0])
        assert lease is not None
        await change_runs(handle, first[0], nudge(first[0]), fence=lease.fence, release=True)
        assert len(await claimed(Limits(concurrency=1))) == 1

    @pytest.mark.promise("X28")
    @both_faces
    async def test_a_queue_limits_how_many_are_started_in_a_period(self, open: Opener) -> None:
        handle = await open()
        for number in range(6):
            row = run_row(f"r{number}", open.clock, queue="q", queue_key=f"k{number % 2}")
            await change_runs(handle, row.run, RunChange(row.run, lambda _, row=row: row))  # type: ignore[misc]
        every = Limits(rate=(2, 20_000_000))
        keyed = Limits(key_rate=(1, 20_000_000))
        assert await claim(handle, "r0", "a", every) is not None
        open.clock.advance(10)
        assert await claim(handle, "r1", "a", every) is not None
        assert await claim(handle, "r2", "a", every) is None
        assert await claim(handle, "r0", "b", every) is not None  # it was started before
        refused = await handle._journal.store.run(handle.workspace, "r2")
        assert refused is not None
        assert refused.started is None
        await change_runs(handle, "r1", RunChange("r1", lambda row: row and row._replace(status="done", wake=None)))
        open.clock.advance(9.999999)
        assert await claim(handle, "r2", "a", every) is None
        open.clock.advance(0.000001)
        assert await claim(handle, "r2", "a", every) is not None
        assert await claim(handle, "r3", "a", every) is None
        assert await claim(handle, "r4", "a", keyed) is None
        open.clock.advance(10)
        assert await claim(handle, "r3", "a", keyed) is not None
        assert await claim(handle, "r4", "a", keyed) is None
        assert await claim(handle, "r5", "a", keyed) is None
        assert await claim(handle, "r5", "a", None) is not None

    @pytest.mark.promise("X17")
    @both_faces
    async def test_a_change_of_a_run_wakes_who_waits_for_one(self, open: Opener) -> None:
        handle = await open()
        store = (await open() if self.shared else handle)._journal.store
        await change_runs(handle, "r", RunChange("r", lambda _: run_row("r", open.clock)))
        lease = await claim(handle, "r", "one")
        assert lease is not None
        for options in ({}, {"fence": lease.fence, "release": True}):
            mark = await store.mark(runs=True)
            await change_runs(handle, "r", nudge("r"), **options)  # type: ignore[arg-type]
            assert await store.changed(mark, 20.0) < 10.0

    # -- the end

    @both_faces
    async def test_a_closed_store_says_so(self, open: Opener) -> None:
        handle = await open()
        await handle.session("a").append("note", 1)
        await handle.close()
        await handle.close()
        with pytest.raises(StoreClosed):
            await handle.session("a").append("note", 2)
        with pytest.raises(StoreClosed):
            await collect(handle.session("a").events())

    def _run(self, body: Body, opener: Opener, looping: bool) -> None:
        both_faces(lambda _self, open: body(open))(self, opener, looping)


class Recorder:
    """An outlet that remembers what it was given."""

    name = "recorder"

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def apply(self, events: Any) -> None:
        self.seen += [event.data for event in events]


def run_row(
    run: str,
    clock: FakeClock,
    *,
    session: str | None = None,
    task: str = "t",
    queue: str | None = None,
    queue_key: str | None = None,
) -> RunRow:
    """The row of a new run that is due now."""
    now = clock.now()
    return RunRow(
        run, session or run, task, None, "open", None, now, now, None, now, None, None, queue, queue_key, 0, 0, 0
    )  # fmt: skip


def nudge(run: str) -> RunChange:
    """One more nudge for a run that is there."""
    return RunChange(run, lambda row: row and row._replace(nudges=row.nudges + 1))


async def change_runs(
    handle: AsyncHoldfast, session: str, *changes: RunChange, key: str | None = None, **options: Any
) -> Appended:
    """Append an event with changes of runs."""
    journal, now = handle._journal, handle._journal.clock.now()
    owner = await journal.owner(None)
    place = journal._preparing.placing(session, [journal.prepare(Draft("changed", {}), owner)], owner, key, now)
    request = Append(handle.workspace, session, 1, place, key, now=now, subject=owner.ref, changes=changes)
    return await journal.store.append(request._replace(**options))


async def claim(
    handle: AsyncHoldfast, run: str, owner: str, limits: Limits | None = None, only_due: bool = False
) -> LeaseRow | None:
    """Claim a run for ten seconds."""
    journal = handle._journal
    now = journal.clock.now()
    return await journal.store.claim(handle.workspace, run, owner, now, now + 10_000_000, limits, only_due)
