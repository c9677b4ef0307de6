"""Writes of one session that wait at the same time are stored in one batch. Each has its own outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from programs.checkpoint_writers import as_loaded, checkpoints_of, fields_of, snapshot_texts, texts
from programs.child_processes import DEADLINE, until
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


class PausedWriter:
    """Pauses the first write after its encoding, so that later writes wait behind it."""

    def __init__(self, cp: Checkpoints, then: Callable[[str], None] | None) -> None:
        self._cp = cp
        self._then = then
        self._paused = threading.Event()
        self._continue = threading.Event()
        self.appends = 0
        self._pool = ThreadPoolExecutor(8)
        crashpoints.listen(self._listen)

    def _listen(self, point: str) -> None:
        self.appends += point == "append.encoded"
        if self._continue.is_set():
            if self._then is not None:
                self._then(point)
        elif point == "checkpoint.encoded" and not self._paused.is_set():
            self._paused.set()
            assert self._continue.wait(DEADLINE)

    def start(self, work: Callable[[], Any]) -> Future[Any]:
        """Start a write on a thread. Returns when it is paused or waits behind another."""
        if not self._paused.is_set():
            future = self._pool.submit(work)
            assert self._paused.wait(DEADLINE)
            return future
        batcher = self._cp._writer._batcher("s")
        before = len(batcher._queue)
        future = self._pool.submit(work)
        until(lambda: len(batcher._queue) > before or future.done(), "a waiting write")
        return future

    def resume(self) -> None:
        self._continue.set()
        self._pool.shutdown(wait=True)


@contextmanager
def paused_writer(cp: Checkpoints, then: Callable[[str], None] | None = None) -> Iterator[PausedWriter]:
    """Writes that are started in the block wait until its end."""
    paused = PausedWriter(cp, then)
    try:
        yield paused
    finally:
        paused.resume()
        crashpoints.listen(None)


def saving(cp: Checkpoints, number: int, **options: Any) -> Callable[[], Any]:
    return lambda: drive(cp.save("s", "main", fields_of(number), {"n": number}, id=f"c{number}", **options))


def attaching(cp: Checkpoints, number: int, fields: Any = None, **options: Any) -> Callable[[], None]:
    fields = {"w": texts([f"write {number} " * 30])} if fields is None else fields
    return lambda: drive(cp.attach("s", "main", "c0", {"n": number}, type="writes", fields=fields, **options))


def saving_letters(cp: Checkpoints, letters: str) -> Callable[[], Any]:
    """Saves a list with one long item per letter. The id is the letters."""
    fields = {"talk": texts([letter * 300 for letter in letters])}
    return lambda: drive(cp.save("s", "main", fields, {}, id=letters))


def expect_letters(dm: duramen.Duramen, *lists: str) -> None:
    """Check that each of these lists can be loaded by a new reader."""
    for letters in lists:
        loaded = drive(checkpoints_of(dm).load("s", "main", id=letters))
        assert loaded is not None
        assert loaded.fields == {"talk": [letter.encode() * 300 for letter in letters]}
    assert dm.verify().ok


def expect(dm: duramen.Duramen, numbers: list[int], attached: list[int]) -> None:
    """Check that a new reader loads these checkpoints and the attachments of the first."""
    cp = checkpoints_of(dm)
    for number in numbers:
        loaded = drive(cp.load("s", "main", id=f"c{number}"))
        assert loaded is not None
        assert loaded.fields == as_loaded(fields_of(number))
    attachments = drive(cp.attachments("s", "main", "c0"))
    assert [one.data["n"] for one in attachments] == attached
    assert [one.fields for one in attachments] == [{"w": [f"write {number} ".encode() * 30]} for number in attached]
    assert dm.verify().ok


@pytest.mark.promise("C2", "C8")
def test_waiting_writes_are_stored_in_one_append(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    with paused_writer(cp) as paused:
        done = [paused.start(work) for work in (saving(cp, 0), attaching(cp, 1), attaching(cp, 2), saving(cp, 1))]
    for future in done:
        future.result()
    assert paused.appends == 2  # the first write, then all the others
    expect(open_one(), [0, 1], [1, 2])


@pytest.mark.promise("C7", "C8")
def test_in_a_batch_only_the_stale_save_conflicts(open_one: Open) -> None:
    dm = open_one()
    cp = checkpoints_of(dm)
    saving(cp, 0)()
    with paused_writer(cp) as paused:
        first = paused.start(saving(cp, 1, after="c0"))
        late = [paused.start(saving(cp, number, after="c0")) for number in (2, 3)]
        attached = [paused.start(attaching(cp, number)) for number in (1, 2)]
    first.result()
    for future in late:
        assert isinstance(future.exception(), CheckpointConflict)
    for future in attached:
        future.result()
    expect(open_one(), [0, 1], [1, 2])


@pytest.mark.promise("C8")
def test_a_write_that_cannot_be_encoded_does_not_affect_the_others(open_one: Open) -> None:
    def refuse(value: object) -> bytes:
        raise TypeError("cannot be encoded")

    cp = checkpoints_of(open_one())
    wrong = {"w": ListField([object()], refuse, lambda values, _: list(values))}
    with paused_writer(cp) as paused:
        good = [paused.start(work) for work in (saving(cp, 0), attaching(cp, 1))]
        bad = paused.start(attaching(cp, 2, wrong))
        good.append(paused.start(saving(cp, 1)))
    assert isinstance(bad.exception(), TypeError)
    for future in good:
        future.result()
    expect(open_one(), [0, 1], [1])


@pytest.mark.promise("C8")
@pytest.mark.parametrize("point", ["checkpoint.encoded", "append.encoded"])
def test_a_batch_is_encoded_again_after_a_save_by_another_process(open_one: Open, point: str) -> None:
    cp, other = checkpoints_of(open_one()), checkpoints_of(open_one())
    intruded = []

    def intrude(reached: str) -> None:
        if reached == point and not intruded:
            intruded.append(True)
            saving(other, 7)()

    with paused_writer(cp, intrude) as paused:
        done = [paused.start(work) for work in (saving(cp, 0), attaching(cp, 1), saving(cp, 1))]
    for future in done:
        future.result()
    assert intruded
    expect(open_one(), [0, 1, 7], [1])


@pytest.mark.promise("C8")
def test_an_interrupt_of_the_storing_thread_fails_the_whole_batch(open_one: Open) -> None:
    dm = open_one()
    cp = checkpoints_of(dm)

    def interrupt(point: str) -> None:
        if point == "checkpoint.encoded":
            crashpoints.listen(None)
            raise KeyboardInterrupt

    with paused_writer(cp, interrupt) as paused:
        done = [paused.start(work) for work in (saving(cp, 0), attaching(cp, 1), saving(cp, 1))]
    done[0].result()
    assert {type(future.exception()) for future in done[1:]} == {KeyboardInterrupt, StoreError}
    saving(cp, 1)()
    expect(open_one(), [0, 1], [])


def test_threads_that_save_and_attach_concurrently_lose_nothing(open_one: Open) -> None:
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
    loaded = [one.data["n"] for one in drive(checkpoints_of(dm).attachments("s", "main", "c0"))]
    assert sorted(loaded) == list(range(24))
    expect(dm, list(range(25)), loaded)


def test_an_attachment_that_can_wait_is_stored_with_the_next_checkpoint(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    saving(cp, 0)()
    cp._writer._batcher("s")._wait = 30.0
    points: list[str] = []
    crashpoints.listen(points.append)
    with ThreadPoolExecutor(1) as pool:
        attached = pool.submit(attaching(cp, 1, can_wait=True))
        until(lambda: cp._writer._batcher("s")._queue, "a waiting attachment")
        saving(cp, 1)()
        attached.result()
    crashpoints.listen(None)
    assert points.count("append.encoded") == 1
    expect(open_one(), [0, 1], [1])


@pytest.mark.promise("C2")
def test_a_waiting_attachment_is_encoded_by_its_own_thread(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
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
        "w": ListField([b"write 1 " * 30], bytes, snapshot_texts),
        "deep": {"small": BytesField(b"1"), "none": BytesField(b"")},
    }
    with ThreadPoolExecutor(1) as pool:
        waiting_thread = pool.submit(threading.get_ident).result()
        attached = pool.submit(attaching(cp, 1, fields, can_wait=True))
        batcher = cp._writer._batcher("s")
        until(lambda: any(one.encoded for one in list(batcher._queue)), "an encoded attachment")
        saving(cp, 1)()
        attached.result()
    assert encoded == [("writes", waiting_thread), ("checkpoint", threading.get_ident())]
    (loaded,) = drive(checkpoints_of(open_one()).attachments("s", "main", "c0"))
    assert loaded.fields == {"w": [b"write 1 " * 30], "deep": {"small": b"1", "none": b""}}
    assert dm.verify().ok


@pytest.mark.promise("C8", "J5")
def test_a_write_that_timed_out_waiting_is_based_on_stored_data(open_one: Open) -> None:
    cp, other = checkpoints_of(open_one()), checkpoints_of(open_one())
    saving_letters(cp, "o")()
    assert drive(other.load("s", "main")) is not None
    with paused_writer(cp) as paused:
        first = paused.start(saving_letters(cp, "oa"))
        saving_letters(other, "op")()  # by another process, with as many new bodies at the same place
        second = paused.start(saving_letters(cp, "oab"))
        second.result()  # stored after its waiting time, not in the batch
        assert not first.done()
    first.result()
    expect_letters(open_one(), "o", "oa", "op", "oab")


@pytest.mark.promise("C8")
def test_after_an_interrupt_deltas_are_based_on_stored_data_only(open_one: Open) -> None:
    cp, other = checkpoints_of(open_one()), checkpoints_of(open_one())
    saving_letters(cp, "o")()
    assert drive(other.load("s", "main")) is not None

    def interrupt(point: str) -> None:
        if point == "checkpoint.encoded":
            raise KeyboardInterrupt

    crashpoints.listen(interrupt)
    with pytest.raises(KeyboardInterrupt):
        saving_letters(cp, "oa")()
    crashpoints.listen(None)
    saving_letters(other, "op")()
    saving_letters(cp, "oab")()
    expect_letters(open_one(), "o", "op", "oab")


def test_forget_during_a_save_leaves_the_cache_empty(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    saving(cp, 0)()
    with paused_writer(cp) as paused:
        done = paused.start(saving(cp, 1))
        cp.forget()
    done.result()
    assert not cp._writer._bases
    saving(cp, 2)()
    assert cp._writer._bases
    expect(open_one(), [0, 1, 2], [])


def test_attachments_stop_waiting_when_no_checkpoint_follows(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    saving(cp, 0)()
    for number in range(3):
        attaching(cp, number, can_wait=True)()
        assert not cp._writer._batcher("s")._followed  # the next attachment does not wait
    expect(open_one(), [0], [0, 1, 2])


async def reached(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


@pytest.mark.promise("C8")
def test_cancelling_the_storing_coroutine_does_not_affect_the_others(address: str) -> None:
    async def main() -> None:
        async with await duramen.aopen(address) as dm:
            cp = Checkpoints(dm._journal)
            batcher = cp._writer._batcher("s")
            assert await batcher.lock.acquire()
            save = cp.save("s", "main", fields_of(0), {"n": 0}, id="c0")
            fields = {"w": texts(["write 1 " * 30])}
            tasks = [asyncio.create_task(save)]
            await reached(lambda: len(batcher._queue) == 1)
            tasks.append(asyncio.create_task(cp.attach("s", "main", "c0", {"n": 1}, type="writes", fields=fields)))
            await reached(lambda: len(batcher._queue) == 2)
            batcher.lock.release()
            await reached(lambda: not batcher._queue)
            leader = next(task for task in tasks if task.get_coro().cr_await is not None)  # type: ignore[union-attr]
            leader.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(one, asyncio.CancelledError) for one in outcomes) == 1
            while not (await cp.load("s", "main") and await cp.attachments("s", "main", "c0")):
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    with duramen.open(address) as dm:
        expect(dm, [0], [1])
