"""Progress in a file: synchronised with the journal, edited by people, and consistent after kills."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs.side_effects import Killed, Open

import duramen
from duramen import Duramen, Progress
from duramen.context.progress import progress_log as log_module
from duramen.context.progress.progress_file import parse, render, write_file
from duramen.crash_points import listen
from duramen.errors import InvalidInput


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A home folder without git settings, outside any repository."""
    for name in [name for name in os.environ if name.startswith("GIT_") or name in ("EMAIL", "XDG_CONFIG_HOME")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    yield
    listen(None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project" / "PROGRESS.md"


def changed_by(dm: Duramen, session: str = "s") -> list[str | None]:
    """The actors that changed the progress, in order."""
    return [event.actor for event in dm.session(session).events(types="progress.changed")]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def at_point(point: str, visit: int, act: Callable[[], None]) -> None:
    """Call a function when a crash point is reached for the n-th time."""
    left = visit

    def listener(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if left == 0 and reached == point:
            listen(None)
            act()

    listen(listener)


def die() -> None:
    raise Killed


# -- synchronisation


@pytest.mark.promise("H1")
def test_each_change_is_written_to_the_file(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path)
    assert path.read_text() == render(Progress())
    progress.begin("Ship it", next_action="write it", context="Repository: billing")
    progress.complete("write it", next_action="test it")
    progress.complete("read it")
    progress.block("no key")
    assert path.read_text() == (
        "# Progress\n\n## Current Goal\nShip it\n\n## Completed Steps\n1. [x] write it\n2. [x] read it\n\n"
        "## Current Blocker\nno key\n\n## Next Action\ntest it\n\n## Context\nRepository: billing\n"
    )
    progress.unblock()
    changes: list[Callable[[], Progress]] = [
        lambda: progress.plan("x"),
        lambda: progress.describe("c"),
        lambda: progress.finish("y"),
        lambda: progress.reopen("z"),
    ]
    for change in changes:
        expected = change()
        assert parse(path.read_text()).progress == expected == open_one().session("s").progress.read()
    assert sorted(os.listdir(path.parent)) == [path.name]
    before = open_one().session("s").head().position, path.stat().st_mtime_ns
    assert progress.sync() == (expected, False, (), None)
    assert (open_one().session("s").head().position, path.stat().st_mtime_ns) == before, "nothing changed"


def test_the_async_api_keeps_a_file_too(any_address: str, path: Path) -> None:
    async def main() -> None:
        async with await duramen.aopen(any_address) as dm:
            progress = await dm.session("s").progress.keep_in(path)
            await progress.begin("g", next_action="n")
            await asyncio.gather(*(progress.complete(f"step {number}") for number in range(4)))
            edit(path, "## Next Action\nn", "## Next Action\nm")
            synced = await progress.sync()
            assert (synced.edited, synced.progress.next_action) == (True, "m")
            assert sorted(synced.progress.completed) == [f"step {number}" for number in range(4)]

    asyncio.run(main())


def test_changes_without_the_file_are_written_at_the_next_change(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path)
    progress.begin("g", next_action="n")
    open_one().session("s").progress.complete("elsewhere")
    assert "elsewhere" not in path.read_text()
    progress.complete("here")
    assert "1. [x] elsewhere\n2. [x] here\n" in path.read_text()
    path.unlink()
    assert progress.sync().progress.completed == ("elsewhere", "here")
    assert "1. [x] elsewhere\n2. [x] here\n" in path.read_text(), "a deleted file is written again"
    assert set(changed_by(open_one())) == {"agent"}


def test_a_relative_path_is_resolved_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duramen.open("memory:") as dm:
        monkeypatch.chdir(path.parent)
        progress = dm.session("s").progress.keep_in("PROGRESS.md")
        monkeypatch.chdir(path.parent.parent)
        progress.begin("g", next_action="n")
        assert "g" in path.read_text()
        assert not (path.parent.parent / "PROGRESS.md").exists()


# -- hand edits


@pytest.mark.promise("H1")
def test_hand_edits_are_journaled_as_changes_by_a_human(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path)
    progress.begin("g", next_action="a")
    progress.complete("one")
    progress.complete("two")
    edits: list[tuple[str, str, dict[str, Any]]] = [
        ("## Next Action\na", "## Next Action\nb", {"next_action": "b"}),
        ("2. [x] two\n", "2. [x] two\n- by hand\n", {"completed": ("one", "two", "by hand")}),
        ("1. [x] one\n", "", {"completed": ("two", "by hand")}),
        ("## Current Blocker\nNone", "## Current Blocker\nrain", {"blocker": "rain"}),
        ("## Current Goal\ng", "## Current Goal\nG", {"goal": "G"}),
        ("## Context\n", "## Context\n\nsee  below\n", {"context": "see  below"}),
        ("## Next Action\nb", "## Next Action\na", {"next_action": "a"}),
        ("## Current Blocker\nrain\n\n## Next Action\na", "## Next Action\nDone", {"blocker": None, "finished": True}),
    ]
    for old, new, expected in edits:
        edit(path, old, new)
        synced = open_one().session("s").progress.keep_in(path).sync()
        record = open_one().session("s").progress.read()
        assert {name: getattr(record, name) for name in expected} == expected
        assert path.read_text() == render(record) == render(synced.progress), "the file is written in the normal layout"
    assert changed_by(open_one()) == ["agent"] * 3 + ["human"] * len(edits)
    position = open_one().session("s").head().position
    assert not progress.sync().edited
    assert open_one().session("s").head().position == position


def test_hand_edits_and_journal_changes_are_merged(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path)
    progress.begin("g", next_action="a")
    progress.complete("one")
    edit(path, "1. [x] one", "1. [x] one\n2. [x] by hand")
    edit(path, "## Context\n", "## Context\nthink first\n")
    elsewhere = open_one().session("s").progress
    elsewhere.complete("by agent", next_action="b")
    assert progress.complete("three") == Progress(
        "g", ("one", "by agent", "by hand", "three"), None, "b", "think first"
    )
    assert changed_by(open_one()) == ["agent", "agent", "agent", "human", "agent"]
    assert path.read_text() == render(elsewhere.read())


@pytest.mark.parametrize(
    ("by_hand", "by_agent"),
    [
        (("## Next Action\na", "## Next Action\nmy idea"), lambda p: p.complete("my idea")),
        (("## Next Action\na", "## Next Action\nFinished"), lambda p: p.block("net down")),
        (("## Next Action\na", "## Next Action\nmy idea"), lambda p: p.finish()),
        (("## Current Blocker\nNone", "## Current Blocker\nmy idea"), lambda p: p.finish()),
    ],
)
def test_conflicting_edits_are_kept_as_context(
    open_one: Open, path: Path, by_hand: tuple[str, str], by_agent: Callable[[Any], Any]
) -> None:
    progress = open_one().session("s").progress.keep_in(path)
    progress.begin("g", next_action="a")
    edit(path, *by_hand)
    edit(path, "## Context\n", "## Context\nread the book\n")
    by_agent(open_one().session("s").progress)
    synced = progress.sync()
    assert synced.edited
    assert synced.notes
    word = by_hand[1].split("\n")[1]
    assert "read the book" in synced.progress.context
    assert word in synced.progress.context or word in ("Finished",), "kept in the context"
    progress.describe("and so on")
    assert parse(path.read_text()).progress == open_one().session("s").progress.read()


def test_an_edit_during_a_change_is_not_lost(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path)
    progress.begin("g", next_action="a")
    for visit in (1, 2):
        at_point("checkpoint.encoded", visit, lambda: edit(path, "## Context\n", "## Context\nx"))
        progress.complete(f"step {visit}")
        listen(None)
        assert progress.sync().progress.context == "x" * visit
    edit(path, "xx", "xxx")
    at_point("checkpoint.encoded", 1, lambda: edit(path, "xxx", "xxxx"))  # while the first edit is journaled
    assert progress.sync().progress.context == "xxxx"
    assert open_one().session("s").progress.completed == ("step 1", "step 2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("## Current Goal\na\n\n## Current Goal\nb\n", "line 4"),
        ("## Current Goal\na\n", "next action"),
        ("## Current Goal\ng\n<<<<<<< HEAD\n", "conflict"),
        (b"\xff\xfe", "UTF-8"),
        ("x" * 1_100_000, "at most 1,048,576 bytes"),
    ],
)
def test_an_invalid_file_is_rejected_and_left_unchanged(open_one: Open, path: Path, text: Any, words: str) -> None:
    progress = open_one().session("s").progress.keep_in(path)
    progress.begin("g", next_action="a")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = path.read_bytes(), open_one().session("s").head().position
    for act in (progress.sync, lambda: progress.complete("x"), lambda: open_one().session("s").progress.keep_in(path)):
        with pytest.raises(InvalidInput, match=words) as caught:
            act()
        assert caught.value.hint
    assert (path.read_bytes(), open_one().session("s").head().position) == before
    open_one().session("s").progress.complete("x")
    path.unlink()
    assert progress.sync().progress.completed == ("x",)


def test_an_existing_file_is_imported(open_one: Open, path: Path) -> None:
    completed, next_action = "### COMPLETED STEPS\n- [x] buy paper", "## Next action:\nsharpen the pencil"
    path.write_text(f"# Notes\n\n## goal\nWrite a book\n\n{completed}\n\n{next_action}\n")
    progress = open_one().session("s").progress.keep_in(path)
    assert progress.read().goal == "Write a book"
    assert progress.read().completed == ("buy paper",)
    assert changed_by(open_one()) == ["human"]
    progress.begin("Write a book", next_action="anything")
    assert progress.next_action == "sharpen the pencil"


# -- older versions of the file, and kills


def test_an_older_copy_of_the_file_does_not_revert_progress(open_one: Open, path: Path, tmp_path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path)
    progress.begin("g", next_action="x")
    old = path.read_text()
    progress.complete("x", next_action="y")
    progress.complete("y", next_action="z")
    clone = tmp_path / "clone.md"
    clone.write_text(old)
    assert open_one().session("s").progress.keep_in(clone).read().completed == ("x", "y")
    assert clone.read_text() == path.read_text()
    assert set(changed_by(open_one())) == {"agent"}


def test_a_version_restored_by_git_is_not_an_edit(path: Path) -> None:
    with duramen.open("memory:") as dm:
        progress = dm.session("s").progress.keep_in(path, git=True)
        progress.begin("g", next_action="x")
        progress.complete("x", next_action="y")
        subprocess.run(["git", "-C", str(path.parent), "reset", "-q", "--hard", "HEAD~1"], check=True)
        synced = progress.sync()
        assert (synced.edited, synced.progress.completed) == (False, ("x",))
        assert "git restored an earlier text" in synced.notes[0], "it is reported"


def test_a_step_removed_between_two_sessions_is_detected(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path)
    progress.begin("g", next_action="x")
    progress.complete("one")
    progress.complete("two")
    edit(path, "1. [x] one\n2. [x] two\n", "1. [x] two\n")
    new = open_one().session("new", continues="s").progress.keep_in(path)
    assert new.completed == ("two",)
    assert changed_by(open_one(), "new") == ["human"]


def test_the_last_step_can_be_removed_by_hand(path: Path) -> None:
    with duramen.open("memory:") as dm:
        progress = dm.session("s").progress.keep_in(path)
        progress.begin("g", next_action="x")
        progress.complete("one")
        progress.complete("two")
        edit(path, "2. [x] two\n", "")
        assert progress.sync().progress.completed == ("one",)


@pytest.mark.promise("H2", "J4")
@pytest.mark.parametrize("visit", [1, 2, 3])
@pytest.mark.parametrize("then", ["plan", "complete"])
def test_a_kill_between_journal_and_file_is_repaired(open_one: Open, path: Path, visit: int, then: str) -> None:
    """The process is killed before the change is journaled, before the file is recorded, or not."""
    progress = open_one().session("s").progress.keep_in(path)
    progress.begin("g", next_action="x")
    at_point("checkpoint.encoded", visit, die)
    try:
        progress.complete("x", next_action="y")
    except Killed:
        assert visit < 3
    listen(None)
    other = open_one().session("s").progress
    done = other.completed
    assert done == (("x",) if visit > 1 else ())
    if then == "plan":
        other.plan("z")
    else:
        other.complete("y", next_action="z")
    repaired = open_one().session("s").progress.keep_in(path)
    assert repaired.next_action == "z"
    assert repaired.completed == (done if then == "plan" else (*done, "y"))
    assert path.read_text() == render(repaired.read())
    assert set(changed_by(open_one())) == {"agent"}


def test_a_kill_during_the_first_write_is_repaired(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress
    progress.begin("g", next_action="x")
    at_point("checkpoint.encoded", 1, die)
    with pytest.raises(Killed):
        progress.keep_in(path)
    assert path.exists()
    open_one().session("s").progress.complete("x", next_action="y")
    assert open_one().session("s").progress.keep_in(path).completed == ("x",)
    assert set(changed_by(open_one())) == {"agent"}


def test_concurrent_writers_of_the_file_revert_nothing(
    open_one: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One writer overwrites the newer text of the other, and records it first."""
    here, there = open_one().session("s").progress.keep_in(path), open_one().session("s").progress.keep_in(path)
    here.begin("g", next_action="x")
    write, first_thread = write_file, threading.current_thread()
    wrote, may_continue = threading.Event(), threading.Event()
    calls = {True: 0, False: 0}
    other = threading.Thread(target=lambda: there.complete("by the second"))

    def slow(target: Any, text: str) -> bool:
        is_first = threading.current_thread() is first_thread
        calls[is_first] += 1
        if is_first and calls[is_first] == 2:
            other.start()
            wrote.wait(0.5)
        done = write(target, text)
        if not is_first and calls[is_first] == 2:
            wrote.set()
            may_continue.wait(5)
        return done

    monkeypatch.setattr(log_module, "write_file", slow)
    here.complete("by the first")
    may_continue.set()
    other.join()
    monkeypatch.setattr(log_module, "write_file", write)
    assert sorted(here.sync().progress.completed) == ["by the first", "by the second"]
    assert set(changed_by(open_one())) == {"agent"}
