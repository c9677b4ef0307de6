"""The contract of every store for runs: rows that change in the transaction of the events, due times, claims,
limits."""

from __future__ import annotations

from typing import Any

import pytest

from ..api._async.duramen import AsyncDuramen
from ..errors import LeaseLost, PositionConflict, RunActive
from ..journal.events import Draft
from ..ports import Batch, BatchChange, LeaseRow, Limits, ReleaseLease, RunChange, RunQuery, RunRow, Stored
from .both_apis import Opener, both_apis
from .clock import FakeClock


class RunContract:
    """The tests for runs. `shared`: whether two handles on one address see the same data."""

    shared = True

    @pytest.mark.promise("X1")
    @both_apis
    async def test_a_run_is_stored_in_the_transaction_of_its_events(self, open: Opener) -> None:
        """If the append fails, the row does not change. A change that returns None leaves the row unchanged."""
        handle = await open()
        store, row = handle._journal.store, run_row("r", open.clock)
        failing = RunChange("s", lambda _: 1 // 0)  # type: ignore[arg-type, return-value]
        with pytest.raises(ZeroDivisionError):
            await change_runs(handle, "r", RunChange("r", lambda _: row), failing)
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
    @both_apis
    async def test_a_repeated_append_changes_no_run(self, open: Opener) -> None:
        """An append with a key that was used before does not apply its run changes again."""
        handle = await open()
        await change_runs(handle, "r", RunChange("r", lambda _: run_row("r", open.clock)))
        for _ in range(3):
            done = await change_runs(handle, "r", nudge("r"), key="signal")
        assert done.repeated
        row = await handle._journal.store.run(handle.workspace, "r")
        assert row is not None
        assert row.nudges == 1

    @pytest.mark.promise("X26")
    @both_apis
    async def test_an_append_can_change_runs_of_other_sessions(self, open: Opener) -> None:
        """Concurrent appends that change the same runs in different sessions all succeed."""
        handle = await open()
        for name in ("z", "a"):
            row = run_row(name, open.clock)
            await change_runs(handle, name, RunChange(name, lambda _, row=row: row))  # type: ignore[misc]
        appends = [change_runs(handle, name, nudge("a"), nudge("z")) for name in ("a", "z") * 5]
        assert all(isinstance(done, Stored) for done in await open.together(*appends))
        rows = [await handle._journal.store.run(handle.workspace, name) for name in ("a", "z")]
        assert [row.nudges for row in rows if row is not None] == [10, 10]

    @pytest.mark.promise("X27")
    @both_apis
    async def test_a_session_has_one_open_run_at_a_time(self, open: Opener) -> None:
        """Starting a second run raises `RunActive` with the open run, and stores nothing."""
        handle = await open()
        two = await open() if self.shared else handle
        rows = [run_row(f"r{number}", open.clock, session="s") for number in range(4)]
        starts = [
            change_runs(who, "s", RunChange(row.run, lambda _, row=row: row))  # type: ignore[misc]
            for who, row in zip([handle, two] * 2, rows, strict=True)
        ]
        outcomes = await open.together(*starts)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == [*["RunActive"] * 3, "Stored"]
        first = next(row for row, outcome in zip(rows, outcomes, strict=True) if isinstance(outcome, Stored))
        refused = next(outcome for outcome in outcomes if isinstance(outcome, RunActive))
        assert (refused.run, refused.session) == (first.run, "s")
        assert (await handle.session("s").head()).position == 1
        await change_runs(handle, "s", RunChange(first.run, lambda _: first._replace(status="done", wake=None)))
        following = next(row for row in rows if row != first)
        await change_runs(handle, "s", RunChange(following.run, lambda _: following))

    @pytest.mark.promise("X16")
    @both_apis
    async def test_a_lease_is_released_in_the_transaction_of_an_append(self, open: Opener) -> None:
        """A failed append does not release the lease. Afterwards its fence is rejected with `LeaseLost`."""
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

    @both_apis
    async def test_runs_are_listed_newest_first(self, open: Opener) -> None:
        """Runs are ordered by creation time and id, newest first, with their leases. Filters are combined with AND."""
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
    @both_apis
    async def test_a_run_is_due_at_its_wake_time_if_it_has_no_valid_lease(self, open: Opener) -> None:
        """Due runs are ordered by priority, then wake time. `next_wake` returns the next wake time after now."""
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
    @both_apis
    async def test_a_run_is_claimed_by_one_owner(self, open: Opener) -> None:
        """Of concurrent claims one succeeds. An expired lease can be claimed again with a higher fence; an ended run
        cannot."""
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
    @both_apis
    async def test_a_queue_limits_concurrent_runs(self, open: Opener) -> None:
        """The limits apply to the whole queue or to each queue key, over all handles."""
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
    @both_apis
    async def test_a_queue_limits_starts_per_period(self, open: Opener) -> None:
        """Only the first claim of a run counts as a start. The period slides, and is counted per queue or per queue
        key."""
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
        assert await claim(handle, "r0", "b", every) is not None  # a second claim is not a start
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
    @both_apis
    async def test_a_change_of_a_run_ends_a_wait_for_changes(self, open: Opener) -> None:
        """`changed` returns soon after a run changed through another handle."""
        handle = await open()
        store = (await open() if self.shared else handle)._journal.store
        await change_runs(handle, "r", RunChange("r", lambda _: run_row("r", open.clock)))
        lease = await claim(handle, "r", "one")
        assert lease is not None
        for options in ({}, {"fence": lease.fence, "release": True}):
            mark = await store.mark(runs=True)
            await change_runs(handle, "r", nudge("r"), **options)  # type: ignore[arg-type]
            assert await store.changed(mark, 20.0) < 10.0


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
    """Increment the nudges of a run, if it exists."""
    return RunChange(run, lambda row: row and row._replace(nudges=row.nudges + 1))


async def change_runs(
    handle: AsyncDuramen,
    session: str,
    *changes: RunChange,
    key: str | None = None,
    release: bool = False,
    **options: Any,
) -> Stored:
    """Append an event with changes to runs. With `release`, it also releases the lease."""
    journal, now = handle._journal, handle._journal.clock.now()
    owner = await journal.owner(None)
    place = journal._preparing.placing(session, [journal.prepare(Draft("changed", {}), owner)], owner, key, now)
    every: tuple[BatchChange, ...] = (*changes, ReleaseLease()) if release else changes
    request = Batch(handle.workspace, session, 1, place, key, now=now, owner=owner.ref, changes=every)
    return await journal.store.append(request._replace(**options))


async def claim(
    handle: AsyncDuramen, run: str, owner: str, limits: Limits | None = None, only_due: bool = False
) -> LeaseRow | None:
    """Claim a run for ten seconds."""
    journal = handle._journal
    now = journal.clock.now()
    return await journal.store.claim(handle.workspace, run, owner, now, now + 10_000_000, limits, only_due)
