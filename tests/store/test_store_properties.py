"""Random operations on two handles give the results of a simple model: appends, repeats, forks, erasures, leases."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import duramen
from duramen import Draft, Duramen, Event, Lease
from duramen.api._async.duramen import AsyncDuramen
from duramen.api.settings import open_journal, open_store
from duramen.errors import LeaseLost, PositionConflict, SessionExists, UnknownSession
from duramen.ports import Store
from duramen.runtime import Blocking, drive
from duramen.testing.clock import FakeClock

KEY = bytes(range(32))
names = st.sampled_from(["a", "b", "c", "d"])
handles = st.integers(0, 1)
keys = st.sampled_from([None, None, "k1", "k2"])
subjects = st.sampled_from([None, None, "ada", "bob"])


@dataclass
class Entry:
    """An event in the model. Forks share it with their parent."""

    origin: str
    position: int
    kind: str
    data: Any
    key: str | None
    subject: str | None
    batch: int
    erased: bool = False

    def matches(self, event: Event) -> bool:
        if self.kind == "subject.erased":
            return event.type == self.kind and event.data["payloads"] == self.data
        expected = (self.origin, self.position, self.kind, self.key, None if self.erased else self.data, self.erased)
        named = self.erased or event.subject == self.subject
        return named and (event.session, event.position, event.type, event.key, event.data, event.erased) == expected


@dataclass
class HeldLease:
    owner: str
    fence: int
    expires: int


class RecordingOutlet:
    name = "delivered"

    def __init__(self) -> None:
        self.events: list[Event] = []

    def apply(self, events: Any) -> None:
        self.events += events


class TwoHandles(RuleBasedStateMachine):
    """Two handles on one workspace, compared with a dictionary of lists."""

    def __init__(self, stores: tuple[Store, Store]) -> None:
        super().__init__()
        self.stores = stores
        self.clock = FakeClock()
        self.sessions: dict[str, list[Entry]] = {}
        self.leases: dict[str, HeldLease] = {}
        self.taken: list[tuple[str, Lease]] = []
        self.outlet = RecordingOutlet()
        self.count = 0

    @initialize(sealed=st.booleans(), blob_above=st.sampled_from([40, 16384]))
    def open(self, sealed: bool, blob_above: int) -> None:
        workspace = uuid.uuid4().hex
        options: Any = {"workspace": workspace, "clock": self.clock, "blob_above": blob_above}
        journals = [open_journal(store, {**options, "key": KEY} if sealed else options) for store in self.stores]
        self.handles = [Duramen(AsyncDuramen(journal, Blocking())) for journal in journals]

    def fence_is_current(self, session: str, fence: int) -> bool:
        held = self.leases.get(session)
        return held is not None and held.fence == fence and held.expires > self.clock.now()

    # -- appending and reading

    @rule(
        handle=handles,
        name=names,
        size=st.integers(1, 3),
        key=keys,
        subject=subjects,
        position_offset=st.sampled_from([None, None, 0, -1, 1]),
        fence_offset=st.sampled_from([None, None, None, 0, -1]),
    )
    def append(
        self,
        handle: int,
        name: str,
        size: int,
        key: str | None,
        subject: str | None,
        position_offset: int | None,
        fence_offset: int | None,
    ) -> None:
        entries_before = self.sessions.get(name, [])
        held = self.leases.get(name)
        fence = None if fence_offset is None else max(0, (held.fence if held else 1) + fence_offset)
        expected = None if position_offset is None else max(0, len(entries_before) + position_offset)
        options: Any = {"key": key, "subject": subject, "expected": expected, "fence": fence}
        first = next((entry for entry in entries_before if key is not None and entry.key == key), None)
        if first is not None:
            self.repeat(handle, name, first, options)
            return
        self.count += 1
        drafts = [Draft("note", f"{self.count}.{index} {'x' * index * 40}", "tester") for index in range(size)]
        session = self.handles[handle].session(name)
        if fence is not None and not self.fence_is_current(name, fence):
            with pytest.raises(LeaseLost):
                session.append_all(drafts, **options)
        elif expected is not None and expected != len(entries_before):
            with pytest.raises(PositionConflict) as conflict:
                session.append_all(drafts, **options)
            assert (conflict.value.expected, conflict.value.actual) == (expected, len(entries_before))
        else:
            added = [
                Entry(name, len(entries_before) + 1 + index, "note", draft.data, None if index else key, subject, size)
                for index, draft in enumerate(drafts)
            ]
            self.compare(added, session.append_all(drafts, **options))
            self.sessions[name] = entries_before + added

    def repeat(self, handle: int, name: str, first: Entry, options: Any) -> None:
        stored_batch = self.sessions[name][first.position - 1 : first.position - 1 + first.batch]
        if len(stored_batch) == first.batch and {entry.origin for entry in stored_batch} == {
            first.origin
        }:  # no fork split the batch
            drafts = [Draft("other", "not stored")] * first.batch
            self.compare(stored_batch, self.handles[handle].session(name).append_all(drafts, **options))

    @rule(
        handle=handles,
        name=names,
        start=st.integers(1, 6),
        stop=st.none() | st.integers(0, 12),
        backwards=st.booleans(),
    )
    def read(self, handle: int, name: str, start: int, stop: int | None, backwards: bool) -> None:
        entries_before = self.sessions.get(name, [])
        wanted = [
            entry
            for entry in entries_before
            if start <= entry.position <= (len(entries_before) if stop is None else stop)
        ]
        events = self.handles[handle].session(name).events(start=start, stop=stop, backwards=backwards)
        self.compare(wanted[::-1] if backwards else wanted, list(events))

    def compare(self, entries: list[Entry], events: list[Event]) -> None:
        assert len(entries) == len(events)
        for entry, event in zip(entries, events, strict=True):
            assert entry.matches(event), (entry, event)

    @rule(handle=handles)
    def list_sessions(self, handle: int) -> None:
        rows = [(row.session, row.head) for row in self.handles[handle].sessions()]
        assert rows == [(name, len(self.sessions[name])) for name in sorted(self.sessions)]

    # -- forking and erasing

    @rule(handle=handles, name=names, new=names, back=st.integers(0, 4))
    def fork(self, handle: int, name: str, new: str, back: int) -> None:
        entries_before = self.sessions.get(name, [])
        at = max(0, len(entries_before) - back)
        if not entries_before or new in self.sessions:
            with pytest.raises(SessionExists if entries_before else UnknownSession):
                self.handles[handle].session(name).fork(new, at=at)
        else:
            self.handles[handle].session(name).fork(new, at=at)
            self.sessions[new] = entries_before[:at]

    @rule(handle=handles, subject=st.sampled_from(["ada", "bob"]))
    def erase(self, handle: int, subject: str) -> None:
        report = self.handles[handle].erase(subject)
        hit: dict[str, int] = {}
        for name, entries in self.sessions.items():
            for entry in entries:
                if entry.origin == name and entry.subject == subject and not entry.erased:
                    entry.erased = True
                    hit[name] = hit.get(name, 0) + 1
        assert report.payloads == sum(hit.values())
        assert [event.session for event in report.tombstones] == sorted(hit)
        for name, count in hit.items():
            place = len(self.sessions[name]) + 1
            tombstone = Entry(name, place, "subject.erased", count, None, None, 1)
            self.sessions[name] = [*self.sessions[name], tombstone]

    # -- leases and time

    @rule(handle=handles, name=names, owner=st.sampled_from(["one", "two"]))
    def lease(self, handle: int, name: str, owner: str) -> None:
        lease, held = self.handles[handle].session(name).lease(owner, seconds=10), self.leases.get(name)
        if held is not None and held.expires > self.clock.now() and held.owner != owner:
            assert lease is None
            return
        assert lease is not None
        assert lease.fence > (held.fence if held else 0)
        self.leases[name] = HeldLease(owner, lease.fence, self.clock.now() + 10_000_000)
        self.taken.append((name, lease))

    @precondition(lambda self: self.taken)
    @rule(which=st.integers(0, 5))
    def renew(self, which: int) -> None:
        name, lease = self.taken[which % len(self.taken)]
        if self.fence_is_current(name, lease.fence):
            lease.renew(seconds=10)
            self.leases[name].expires = self.clock.now() + 10_000_000
        else:
            with pytest.raises(LeaseLost):
                lease.renew(seconds=10)

    @precondition(lambda self: self.taken)
    @rule(which=st.integers(0, 5))
    def release(self, which: int) -> None:
        name, lease = self.taken[which % len(self.taken)]
        lease.release()
        if self.leases[name].fence == lease.fence:
            self.leases[name].expires = 0

    @rule(seconds=st.sampled_from([4, 11]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    # -- outlet and final check

    @rule(handle=handles)
    def deliver(self, handle: int) -> None:
        self.handles[handle].deliver(self.outlet)
        for name, entries in self.sessions.items():
            own = [entry.position for entry in entries if entry.origin == name]
            assert [event.position for event in self.outlet.events if event.session == name] == own

    def teardown(self) -> None:
        for handle in getattr(self, "handles", []):
            for name, entries in self.sessions.items():
                self.compare(entries, list(handle.session(name).events()))
                assert handle.session(name).head().position == len(entries)
            assert handle.verify().ok


def check_stores(stores: tuple[Store, Store], examples: int) -> None:
    """Run the state machine on these stores."""
    run_state_machine_as_test(
        partial(TwoHandles, stores),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
def open_stores() -> Iterator[Any]:
    with ExitStack() as stack:

        def open_twice(address: str) -> tuple[Store, Store]:
            pair = tuple(open_store(address, {"timeout": 5.0}, Blocking()) for _ in range(2))
            for store in pair:
                stack.callback(lambda store=store: drive(store.close()))
            return pair  # type: ignore[return-value]

        yield open_twice


@pytest.mark.promise("J5", "J6", "J7", "J13")
def test_the_in_memory_store_matches_the_model(open_stores: Any, everything: bool) -> None:
    store, _ = open_stores("memory:")
    check_stores((store, store), 250 if everything else 100)


@pytest.mark.promise("J5", "J6", "J7", "J13")
def test_the_sqlite_store_matches_the_model(open_stores: Any, tmp_path: Path, everything: bool) -> None:
    check_stores(open_stores(str(tmp_path / "agent.db")), 120 if everything else 50)


@pytest.mark.promise("J5", "J6", "J7", "J13", "B2")
def test_the_postgres_store_matches_the_model(open_stores: Any, postgres_url: str, everything: bool) -> None:
    check_stores(open_stores(postgres_url), 80 if everything else 20)


@pytest.mark.promise("G3")
def test_an_erasure_leaves_an_intact_journal_with_small_blobs() -> None:
    with duramen.open("memory:", blob_above=8) as dm:
        dm.session("a").append("note", "longer than eight bytes", subject="ada")
        assert dm.erase("ada").payloads == 1
        assert [event.type for event in dm.session("a").events()] == ["note", "subject.erased"]
        assert dm.verify().ok
