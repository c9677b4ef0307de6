"""Progress of a session: each change is journaled, no concurrent change is lost, and there is always a next action."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs.child_processes import DEADLINE, ChildProcesses, Gate
from programs.session_writers import damage_bookmark
from programs.side_effects import Open

import duramen
from duramen import Duramen, Progress
from duramen.crash_points import listen
from duramen.errors import InvalidInput
from duramen.ports import BookmarkChanges
from duramen.testing.clock import FakeClock

TOKEN, OTHER = "ghp_" + "a1" * 15, "ghp_" + "b2" * 15


@pytest.fixture(autouse=True)
def _reset_crash_points() -> Iterator[None]:
    yield
    listen(None)


def journaled_changes(dm: Duramen, session: str = "s") -> list[tuple[str | None, list[Any]]]:
    """The actor and the changes of each event."""
    events = dm.session(session).events(types="progress.changed")
    return [(event.actor, event.data["note"]["changes"]) for event in events]


# -- every method


@pytest.mark.promise("H1", "J4")
def test_each_change_is_journaled_and_survives_a_restart(open_one: Open) -> None:
    goal = "Ship the invoice export"
    steps: list[tuple[Callable[[Any], Progress], Progress]] = [
        (
            lambda p: p.begin(goal, next_action="read the docs", context="Repository: billing"),
            Progress(goal, (), None, "read the docs", "Repository: billing"),
        ),
        (
            lambda p: p.complete("read the docs", next_action="write the client"),
            Progress(goal, ("read the docs",), None, "write the client", "Repository: billing"),
        ),
        (
            lambda p: p.complete("find a name"),
            Progress(goal, ("read the docs", "find a name"), None, "write the client", "Repository: billing"),
        ),
        (
            lambda p: p.block("no key"),
            Progress(goal, ("read the docs", "find a name"), "no key", "write the client", "Repository: billing"),
        ),
        (
            lambda p: p.plan("ask for the key"),
            Progress(goal, ("read the docs", "find a name"), "no key", "ask for the key", "Repository: billing"),
        ),
        (
            lambda p: p.unblock(),
            Progress(goal, ("read the docs", "find a name"), None, "ask for the key", "Repository: billing"),
        ),
        (
            lambda p: p.describe("Повторить:\n  ü"),
            Progress(goal, ("read the docs", "find a name"), None, "ask for the key", "Повторить:\n  ü"),
        ),
        (
            lambda p: p.finish("ship it"),
            Progress(goal, ("read the docs", "find a name", "ship it"), None, None, "Повторить:\n  ü", True),
        ),
        (
            lambda p: p.reopen("mend it"),
            Progress(goal, ("read the docs", "find a name", "ship it"), None, "mend it", "Повторить:\n  ü"),
        ),
    ]
    for change, expected in steps:
        assert change(open_one().session("s").progress) == expected
        progress = open_one().session("s").progress
        assert progress.read() == expected
        fields = (progress.goal, progress.completed, progress.blocker, progress.next_action, progress.context)
        assert (*fields, progress.finished) == (
            *(expected.goal, expected.completed, expected.blocker, expected.next_action, expected.context),
            expected.finished,
        )
    dm = open_one()
    assert [actor for actor, _ in journaled_changes(dm)] == ["agent"] * len(steps)
    assert journaled_changes(dm)[2][1] == [{"field": "completed", "added": ["find a name"], "removed": []}]
    for position, (_, expected) in enumerate(steps, 1):
        assert dm.session("s").progress.read(at=position) == expected, "the progress at this position"
    assert dm.session("s").progress.read(at=0) == Progress()
    assert dm.session("s").progress.read(at=2**70) == steps[-1][1]
    assert dm.session("other").progress.read() == Progress()
    assert dm.session("other").head().position == 0, "reading stores nothing"


def test_changes_without_effect_are_not_journaled(open_one: Open) -> None:
    progress = open_one().session("s").progress
    progress.begin("g", next_action="a")
    progress.complete("a  first\tstep", next_action="b")
    progress.finish("c")
    before = open_one().session("s").head().position
    again = open_one().session("s").progress
    for same in (
        again.begin("g", next_action="something else"),
        again.complete("a first step"),
        again.finish("c"),
        again.finish(),
        again.unblock(),
        again.describe(""),
    ):
        assert same == again.read()
    assert open_one().session("s").head().position == before


@pytest.mark.promise("H3")
def test_the_next_action_is_never_empty_while_unfinished(dm: Duramen) -> None:
    progress = dm.session("s").progress

    def refused(change: Callable[[], Any], words: str) -> None:
        before = progress.read(), dm.session("s").head().position
        with pytest.raises(InvalidInput, match=words) as caught:
            change()
        assert caught.value.hint
        assert (progress.read(), dm.session("s").head().position) == before

    refused(lambda: progress.begin("g", next_action=""), "no next action")
    refused(lambda: progress.begin("g", next_action=" \n"), "no next action")
    for early in (lambda: progress.complete("x"), lambda: progress.plan("x"), lambda: progress.block("x")):
        refused(early, "no goal yet")
    progress.begin("g", next_action="a")
    refused(lambda: progress.complete("a"), "no next action")
    refused(lambda: progress.complete("b", next_action=" "), "no next action")
    refused(lambda: progress.complete("b", next_action="b"), "already completed")
    refused(lambda: progress.plan(""), "no next action")
    refused(lambda: progress.complete(""), "empty")
    refused(lambda: progress.begin("another goal", next_action="x"), "not finished yet")
    refused(lambda: progress.reopen("x"), "not finished")
    progress.finish()
    refused(lambda: progress.reopen(""), "no next action")
    refused(lambda: progress.plan("x"), "finished")
    refused(lambda: progress.complete("x"), "finished")
    refused(lambda: progress.block("x"), "finished")
    progress.begin("another goal", next_action="x")
    assert progress.completed == ()


def test_invalid_progress_arguments_are_rejected(dm: Duramen) -> None:
    progress: Any = dm.session("s").progress
    refused: list[Callable[[], Any]] = [
        lambda: progress.begin(5, next_action="x"),
        lambda: progress.begin("g", next_action=None),
        lambda: progress.begin("g", next_action="x", context=b"bytes"),
        lambda: progress.complete(None),
        lambda: progress.complete(object()),
        lambda: progress.read(at="1"),
        lambda: progress.read(at=-1),
        lambda: progress.read(at=True),
        lambda: progress.sync(),
        lambda: progress.keep_in(5),
        lambda: progress.keep_in(b"bytes"),
        lambda: progress.keep_in("a\0b"),
        lambda: progress.keep_in("/no/such/folder/PROGRESS.md"),
    ]
    for bad in refused:
        with pytest.raises(InvalidInput) as caught:
            bad()
        assert caught.value.hint
    assert dm.session("s").head().position == 0


def test_the_async_api_records_progress(any_address: str) -> None:
    async def main() -> None:
        async with await duramen.aopen(any_address) as dm:
            progress = dm.session("s").progress
            await progress.begin("g", next_action="n")
            await asyncio.gather(*(progress.complete(f"step {number}") for number in range(8)))
            await progress.block("b")
            await progress.unblock()
            await progress.plan("m")
            await progress.describe("c")
            record = await progress.read()
            assert sorted(record.completed) == [f"step {number}" for number in range(8)]
            assert (record.blocker, record.next_action, record.context) == (None, "m", "c")
            assert (await progress.finish()).finished
            assert (await progress.reopen("again")).next_action == "again"
            assert (await progress.read(at=1)).completed == ()

    asyncio.run(main())


# -- concurrency


def test_concurrent_changes_of_threads_are_all_kept(open_one: Open) -> None:
    handles = [open_one(), open_one()]
    handles[0].session("s").progress.begin("g", next_action="n")
    errors: list[BaseException] = []

    def work(dm: Duramen, who: int) -> None:
        try:
            for number in range(6):
                dm.session("s").progress.complete(f"{who} did {number}")
        except BaseException as error:  # noqa: BLE001 - checked below
            errors.append(error)

    workers = [threading.Thread(target=work, args=(handles[who % 2], who)) for who in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    completed = open_one().session("s").progress.completed
    assert sorted(completed) == sorted(f"{who} did {number}" for who in range(4) for number in range(6))
    for who in range(4):
        own = [step for step in completed if step.startswith(f"{who} did")]
        assert own == [f"{who} did {number}" for number in range(6)], "each in its order"
    assert len(journaled_changes(open_one())) == 25


def test_concurrent_changes_of_processes_are_all_kept(processes: ChildProcesses, tmp_path: Path) -> None:
    address, gate = str(tmp_path / "agent.db"), Gate(tmp_path / "gate")
    duramen.open(address).close()
    children = [
        processes.start(
            "session_writers:complete_steps",
            address=address,
            path=str(tmp_path / "PROGRESS.md"),
            steps=[f"{who} did {number}" for number in range(5)],
            gate=gate.path,
        )
        for who in range(3)
    ]
    for child in children:
        child.wait_for_lines(1)
    gate.open()
    for child in children:
        child.finish()
    expected = sorted(f"{who} did {number}" for who in range(3) for number in range(5))
    with duramen.open(address) as dm:
        progress = dm.session("s").progress.keep_in(tmp_path / "PROGRESS.md")
        assert sorted(progress.completed) == expected
        assert {actor for actor, _ in journaled_changes(dm)} == {"agent"}, "no generated text counts as a hand edit"
    assert all(f"[x] {step}\n" in (tmp_path / "PROGRESS.md").read_text() for step in expected)


def test_concurrent_changes_on_an_event_loop_do_not_time_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with await duramen.aopen("memory:") as dm:
            progress = await dm.session("s").progress.keep_in(tmp_path / "PROGRESS.md")
            await progress.begin("g", next_action="n")
            await asyncio.gather(*(progress.complete(f"step {number}") for number in range(40)))
            assert sorted((await progress.read()).completed) == sorted(f"step {number}" for number in range(40))

    started = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - started < 9, "no change waited until its timeout"


def test_a_cancelled_change_releases_the_file(tmp_path: Path) -> None:
    async def main() -> float:
        async with await duramen.aopen("memory:") as dm:
            progress = await dm.session("s").progress.keep_in(tmp_path / "PROGRESS.md")
            await progress.begin("g", next_action="n")
            held = os.open(tmp_path, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(progress.complete("cancelled"), 0.1)
            os.close(held)
            await asyncio.sleep(0.1)
            started = time.monotonic()
            await progress.complete("later")
            return time.monotonic() - started

    assert asyncio.run(main()) < 5
    assert "later" in (tmp_path / "PROGRESS.md").read_text()


def test_a_change_is_checked_again_after_a_concurrent_one(open_one: Open) -> None:
    here, there = open_one().session("s").progress, open_one().session("s").progress
    here.begin("g", next_action="n")

    def finish_concurrently(point: str) -> None:
        if point == "checkpoint.encoded":
            listen(None)
            there.finish()

    listen(finish_concurrently)
    with pytest.raises(InvalidInput, match="finished"):
        here.complete("too late")
    assert open_one().session("s").progress.read() == Progress("g", finished=True)


@pytest.mark.promise("C8", "J2")
@pytest.mark.parametrize("point", ["checkpoint.encoded", "append.inserted", "append.committed"])
def test_a_kill_leaves_a_change_complete_or_absent(tmp_path: Path, processes: ChildProcesses, point: str) -> None:
    address = str(tmp_path / "agent.db")
    steps = ["one", "two", "three"]
    for visit in (1, 2, 1):
        child = processes.start(
            "session_writers:complete_steps", address=address, path=None, steps=steps, crash=(point, visit)
        )
        assert child.wait() == -signal.SIGKILL, child.errors()
        with duramen.open(address) as dm:
            record = dm.session("s").progress.read()
            assert record in (
                Progress(),
                *(Progress("Ship it", tuple(steps[:count]), None, "the next one") for count in range(4)),
            )
            assert record.completed[: len(child.lines())] == tuple(child.lines())
            assert dm.verify().ok
    processes.start("session_writers:complete_steps", address=address, path=None, steps=steps).finish()
    with duramen.open(address) as dm:
        assert dm.session("s").progress.completed == tuple(steps)
        assert len(journaled_changes(dm)) == 4, "nothing is journaled twice"


# -- forks, damage, credentials, cost


def test_a_fork_has_the_progress_of_the_fork_point(open_one: Open) -> None:
    dm = open_one()
    progress = dm.session("s").progress
    progress.begin("g", next_action="a")
    progress.complete("one")
    progress.complete("two")
    fork = dm.fork("s", "fork", at=2)
    assert fork.progress.completed == ("one",)
    fork.progress.complete("three")
    progress.complete("four")
    assert open_one().session("fork").progress.completed == ("one", "three")
    assert open_one().session("s").progress.completed == ("one", "two", "four")
    assert open_one().fork("fork", "nested fork", at=1).progress.completed == ()
    assert open_one().session("s").at(1).fork("early fork").progress.read() == Progress("g", (), None, "a")


@pytest.mark.promise("J8")
def test_progress_continues_from_the_record_before_a_damaged_one(open_one: Open, any_address: str) -> None:
    dm = open_one()
    for step in ("one", "two", "three"):
        dm.session("s").progress.begin("g", next_action="n")
        dm.session("s").progress.complete(step)
    damage_bookmark(dm, any_address, "progress")
    assert open_one().session("s").progress.completed == ("one", "two"), "the record before it"
    done: list[Progress] = []
    worker = threading.Thread(
        target=lambda: done.append(open_one().session("s").progress.complete("four")), daemon=True
    )
    worker.start()
    worker.join(DEADLINE)
    assert done, "it retries without end"
    assert open_one().session("s").progress.completed == ("one", "two", "four")


def test_credentials_are_redacted_and_do_not_prevent_comparisons(open_one: Open) -> None:
    def start() -> Progress:
        progress = open_one().session("s").progress
        progress.begin(f"deploy with {TOKEN}", next_action="look around")
        return progress.complete(f"log in as {TOKEN}", next_action="continue")

    assert start() == start() == open_one().session("s").progress.read()
    assert TOKEN not in repr(list(open_one().session("s").events()))
    assert open_one().session("s").head().position == 2
    progress = open_one().session("s").progress
    assert progress.plan(f"use {OTHER}") == progress.read(), "the stored record is returned"
    with pytest.raises(InvalidInput, match="no next action"):
        progress.complete(f"use {TOKEN}")  # equal after redaction
    assert progress.next_action == "use [redacted]"
    assert progress.block(f"{TOKEN} expired") == progress.read()
    assert progress.describe(f"password: see {OTHER}") == progress.read()
    assert TOKEN not in repr(progress.read())
    assert OTHER not in repr(progress.read())


def test_the_cost_of_a_step_does_not_grow_with_their_number(clock: FakeClock) -> None:
    with duramen.open("memory:", clock=clock) as dm:
        progress, sizes = dm.session("s").progress, []
        progress.begin("g", next_action="n", context="words " * 200)
        append = dm._core._journal.store.append

        async def measured_append(request: Any) -> Any:
            done = await append(request)
            (change,) = (one for one in request.changes if isinstance(one, BookmarkChanges))
            chunks = sum(len(chunk.body) for chunk in change.chunks)
            manifests = sum(len(one.manifest or b"") for one in change.bookmarks)
            sizes.append(chunks + manifests + sum(len(record.payload or b"") for record in done.records))
            return done

        dm._core._journal.store.append = measured_append  # type: ignore[method-assign]
        for number in range(300):
            progress.complete(f"step {number} of many")
        assert max(sizes[-20:]) < 2 * max(sizes[20:40])
        assert max(sizes) < 1_000


def test_a_reworded_goal_keeps_the_completed_steps(open_one: Open) -> None:
    progress = open_one().session("s").progress
    progress.begin("Ship", next_action="build")
    progress.complete("build", next_action="test")
    with pytest.raises(InvalidInput, match="not finished") as refused:
        progress.begin("Ship version 2", next_action="test")
    assert "reword()" in refused.value.hint
    assert progress.reword("Ship version 2").completed == ("build",)
    assert progress.begin("Ship version 2", next_action="test").completed == ("build",)
