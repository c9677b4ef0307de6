"""States of one session that wait for the same turn are stored together, and each has its own outcome."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from programs.checkpoint_writers import as_they_are, checkpoints_of, fields_of, plain, texts
from programs.side_effects import Open

import duramen
from duramen import crash_points as crashpoints
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.checkpoints.manifest import BytesField, ListField
from duramen.errors import CheckpointConflict, StoreError
from duramen.journal.encoder import Prepared
from duramen.journal.events import Draft
from duramen.journal.journal import Journal
from duramen.runtime import drive


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


class Held:
    """The first state to be woven is held there until those behind it are waiting."""

    def __init__(self, cp: Checkpoints, then: Callable[[str], None] | None) -> None:
        self._cp = cp
        self._then = then
        self._go = threading.Event()
        self._first = True
        self.appends = 0
        self._pool = ThreadPoolExecutor(8)
        crashpoints.listen(self._listen)

    def _listen(self, point: str) -> None:
        self.appends += point == "append.encoded"
        if point == "checkpoint.encoded" and self._first:
            self._first = False
            assert self._go.wait(30)
        elif not self._first and self._then is not None:
            self._then(point)

    def behind(self, work: Callable[[], Any]) -> Future[Any]:
        """Do it on a thread; on return it waits for its turn."""
        before = self._waiting()
        future = self._pool.submit(work)
        until = time.monotonic() + 30
        while self._waiting() == before and time.monotonic() < until:
            time.sleep(0.001)
        return future

    def _waiting(self) -> int:
        batcher = self._cp._writer._batchers.get("s")
        return 0 if batcher is None else len(batcher._queue) + batcher.lock._lock.locked()

    def go(self) -> None:
        self._go.set()
        self._pool.shutdown(wait=True)


@contextmanager
def held(cp: Checkpoints, then: Callable[[str], None] | None = None) -> Iterator[Held]:
    """Whoever comes `behind` the first one waits until the end of the block."""
    hold = Held(cp, then)
    try:
        yield hold
    finally:
        hold.go()
        crashpoints.listen(None)


def saving(cp: Checkpoints, number: int, **options: Any) -> Callable[[], Any]:
    return lambda: drive(cp.save("s", "main", fields_of(number), {"n": number}, id=f"c{number}", **options))


def attaching(cp: Checkpoints, number: int, fields: Any = None, **options: Any) -> Callable[[], None]:
    fields = {"w": texts([f"write {number} " * 30])} if fields is None else fields
    return lambda: drive(cp.attach("s", "main", "c0", {"n": number}, type="writes", fields=fields, **options))


def talking(cp: Checkpoints, said: str) -> Callable[[], Any]:
    """Saves a talk in which each letter is a turn, under the name of all of them."""
    fields = {"talk": texts([letter * 300 for letter in said])}
    return lambda: drive(cp.save("s", "main", fields, {}, id=said))


def expect_talks(dm: duramen.Duramen, *talks: str) -> None:
    """That each of these is there, for whoever looks."""
    for said in talks:
        found = drive(checkpoints_of(dm).load("s", "main", id=said))
        assert found is not None
        assert found.fields == {"talk": [letter.encode() * 300 for letter in said]}
    assert dm.verify().ok


def expect(dm: duramen.Duramen, numbers: list[int], attached: list[int]) -> None:
    """That these checkpoints and what is attached to the first are there, for whoever looks."""
    cp = checkpoints_of(dm)
    for number in numbers:
        found = drive(cp.load("s", "main", id=f"c{number}"))
        assert found is not None
        assert found.fields == plain(fields_of(number))
    beside = drive(cp.attachments("s", "main", "c0"))
    assert [one.data["n"] for one in beside] == attached
    assert [one.fields for one in beside] == [{"w": [f"write {number} ".encode() * 30]} for number in attached]
    assert dm.verify().ok


@pytest.mark.promise("C2", "C8")
def test_what_waits_together_is_one_append(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    with held(cp) as hold:
        done = [hold.behind(work) for work in (saving(cp, 0), attaching(cp, 1), attaching(cp, 2), saving(cp, 1))]
    for future in done:
        future.result()
    assert hold.appends == 2  # the first one, and all the others
    expect(open_one(), [0, 1], [1, 2])


@pytest.mark.promise("C7", "C8")
def test_a_conflict_is_for_the_one_who_is_late(open_one: Open) -> None:
    dm = open_one()
    cp = checkpoints_of(dm)
    saving(cp, 0)()
    with held(cp) as hold:
        first = hold.behind(saving(cp, 1, after="c0"))
        late = [hold.behind(saving(cp, number, after="c0")) for number in (2, 3)]
        beside = [hold.behind(attaching(cp, number)) for number in (1, 2)]
    first.result()
    for future in late:
        assert isinstance(future.exception(), CheckpointConflict)
    for future in beside:
        future.result()
    expect(open_one(), [0, 1], [1, 2])


@pytest.mark.promise("C8")
def test_what_cannot_be_encoded_keeps_nobody_else_out(open_one: Open) -> None:
    def refuse(value: object) -> bytes:
        raise TypeError("cannot be encoded")

    cp = checkpoints_of(open_one())
    wrong = {"w": ListField([object()], refuse, lambda values, _: list(values))}
    with held(cp) as hold:
        good = [hold.behind(work) for work in (saving(cp, 0), attaching(cp, 1))]
        bad = hold.behind(attaching(cp, 2, wrong))
        good.append(hold.behind(saving(cp, 1)))
    assert isinstance(bad.exception(), TypeError)
    for future in good:
        future.result()
    expect(open_one(), [0, 1], [1])


@pytest.mark.promise("C8")
@pytest.mark.parametrize("point", ["checkpoint.encoded", "append.encoded"])
def test_somebody_elsewhere_comes_first_and_all_are_woven_again(open_one: Open, point: str) -> None:
    cp, other = checkpoints_of(open_one()), checkpoints_of(open_one())
    intruded = []

    def intrude(reached: str) -> None:
        if reached == point and not intruded and hold.let_in:  # type: ignore[attr-defined]
            intruded.append(True)
            saving(other, 7)()

    with held(cp, intrude) as hold:
        hold.let_in = False  # type: ignore[attr-defined]
        done = [hold.behind(work) for work in (saving(cp, 0), attaching(cp, 1), saving(cp, 1))]
        hold.let_in = True  # type: ignore[attr-defined]
    for future in done:
        future.result()
    assert intruded
    expect(open_one(), [0, 1, 7], [1])


@pytest.mark.promise("C8")
def test_an_interrupt_of_the_one_who_stores_is_told_to_those_with_him(open_one: Open) -> None:
    dm = open_one()
    cp = checkpoints_of(dm)

    def interrupt(point: str) -> None:
        if point == "checkpoint.encoded":
            crashpoints.listen(None)
            raise KeyboardInterrupt

    with held(cp, interrupt) as hold:
        done = [hold.behind(work) for work in (saving(cp, 0), attaching(cp, 1), saving(cp, 1))]
    done[0].result()
    assert {type(future.exception()) for future in done[1:]} == {KeyboardInterrupt, StoreError}
    saving(cp, 1)()
    expect(open_one(), [0, 1], [])


def test_threads_that_save_and_attach_at_once_lose_nothing(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    saving(cp, 0)()
    works = [saving(cp, number) for number in range(1, 25)]
    works += [attaching(cp, number, can_wait=number % 2 == 0) for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        for future in [
            pool.submit(work) for work in works[::5] + works[1::5] + works[2::5] + works[3::5] + works[4::5]
        ]:
            future.result()
    dm = open_one()
    found = [one.data["n"] for one in drive(checkpoints_of(dm).attachments("s", "main", "c0"))]
    assert sorted(found) == list(range(24))
    expect(dm, list(range(25)), found)


def test_what_is_patient_goes_with_the_next_checkpoint(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    saving(cp, 0)()
    cp._writer._batcher("s")._wait = 30.0
    points: list[str] = []
    crashpoints.listen(points.append)
    with ThreadPoolExecutor(1) as pool:
        attached = pool.submit(attaching(cp, 1, can_wait=True))
        while not cp._writer._batcher("s")._queue:
            time.sleep(0.001)
        saving(cp, 1)()
        attached.result()
    crashpoints.listen(None)
    assert points.count("append.encoded") == 1
    expect(open_one(), [0, 1], [1])


@pytest.mark.promise("C2")
def test_who_waits_encodes_its_event_meanwhile(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    dm = open_one()
    cp, journal = checkpoints_of(dm), dm._core._journal
    saving(cp, 0)()
    cp._writer._batcher("s")._wait = 30.0
    encoded: list[tuple[str, int]] = []

    def prepare(draft: Draft, *given: Any, **named: Any) -> Prepared:
        encoded.append((draft.type, threading.get_ident()))
        return Journal.prepare(journal, draft, *given, **named)

    monkeypatch.setattr(journal, "prepare", prepare)
    fields = {
        "w": ListField([b"write 1 " * 30], bytes, as_they_are),
        "deep": {"small": BytesField(b"1"), "none": BytesField(b"")},
    }
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(threading.get_ident).result()
        attached = pool.submit(attaching(cp, 1, fields, can_wait=True))
        while not any(one.encoded for one in list(cp._writer._batcher("s")._queue)):
            time.sleep(0.001)
        saving(cp, 1)()
        attached.result()
    assert encoded == [("writes", waits), ("checkpoint", threading.get_ident())]
    (found,) = drive(checkpoints_of(open_one()).attachments("s", "main", "c0"))
    assert found.fields == {"w": [b"write 1 " * 30], "deep": {"small": b"1", "none": b""}}
    assert dm.verify().ok


@pytest.mark.promise("C8", "J5")
def test_whoever_waited_in_vain_builds_on_what_is_stored(open_one: Open) -> None:
    cp, other = checkpoints_of(open_one()), checkpoints_of(open_one())
    talking(cp, "o")()
    assert drive(other.load("s", "main")) is not None
    with held(cp) as hold:
        first = hold.behind(talking(cp, "oa"))
        talking(other, "op")()  # by another process: as many new bodies, at the same place
        second = hold.behind(talking(cp, "oab"))
        second.result()  # the turn did not come within its time
        assert not first.done()
    first.result()
    expect_talks(open_one(), "o", "oa", "op", "oab")


@pytest.mark.promise("C8")
def test_after_an_interrupt_nothing_is_built_on_what_was_not_stored(open_one: Open) -> None:
    cp, other = checkpoints_of(open_one()), checkpoints_of(open_one())
    talking(cp, "o")()
    assert drive(other.load("s", "main")) is not None

    def interrupt(point: str) -> None:
        if point == "checkpoint.encoded":
            raise KeyboardInterrupt

    crashpoints.listen(interrupt)
    with pytest.raises(KeyboardInterrupt):
        talking(cp, "oa")()
    crashpoints.listen(None)
    talking(other, "op")()
    talking(cp, "oab")()
    expect_talks(open_one(), "o", "op", "oab")


def test_what_is_forgotten_while_a_state_is_stored_stays_forgotten(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    saving(cp, 0)()
    with held(cp) as hold:
        done = hold.behind(saving(cp, 1))
        cp.forget()
    done.result()
    assert not cp._writer._bases
    saving(cp, 2)()
    assert cp._writer._bases
    expect(open_one(), [0, 1, 2], [])


def test_nothing_follows_and_patience_ends(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    saving(cp, 0)()
    for number in range(3):
        attaching(cp, number, can_wait=True)()
        assert not cp._writer._batcher("s")._followed  # not waited for in vain a second time
    expect(open_one(), [0], [0, 1, 2])


@pytest.mark.promise("C8")
def test_a_coroutine_that_is_cancelled_takes_nobody_with_it(address: str) -> None:
    async def go() -> None:
        async with await duramen.aopen(address) as dm:
            cp = Checkpoints(dm._journal)
            batcher = cp._writer._batcher("s")
            assert await batcher.lock.acquire()
            save = cp.save("s", "main", fields_of(0), {"n": 0}, id="c0")
            fields = {"w": texts(["write 1 " * 30])}
            tasks = [asyncio.create_task(save)]
            await asyncio.sleep(0.01)
            tasks.append(asyncio.create_task(cp.attach("s", "main", "c0", {"n": 1}, type="writes", fields=fields)))
            await asyncio.sleep(0.01)
            assert len(batcher._queue) == 2
            batcher.lock.release()
            while batcher._queue:
                await asyncio.sleep(0)
            leader = next(task for task in tasks if task.get_coro().cr_await is not None)  # type: ignore[union-attr]
            leader.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(one, asyncio.CancelledError) for one in outcomes) == 1
            for _ in range(1000):
                if await cp.load("s", "main") and await cp.attachments("s", "main", "c0"):
                    break
                await asyncio.sleep(0.001)

    asyncio.run(go())
    with duramen.open(address) as dm:
        expect(dm, [0], [1])
