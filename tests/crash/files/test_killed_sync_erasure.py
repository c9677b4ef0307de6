"""Files that a killed sync wrote before its manifest are removed after an erasure, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs.child_processes import ChildProcesses

import duramen

pytestmark = pytest.mark.promise("G14", "F5")

SECRET = "xanthippe"
OTHERS = [f"The till {number} is by Acme" for number in range(3)]
FILES = 6
POINTS = [
    ("files.read_in", 1),
    ("files.intended", 1),
    ("files.saved", 1),
    ("files.temp_written", 3),
    ("files.written", 1),
]
POINTS += [("files.published", visit) for visit in (1, FILES, FILES + 3, FILES + 4, FILES + 5, FILES + 6)]
"""Kills after some files, after all of them, after a log, and after each index."""


def remember(dm: duramen.Duramen, start: int, count: int) -> None:
    for number in range(start, start + count):
        kind = "preference" if number % 2 else "fact"
        dm.memory.remember(f"{SECRET} has the code {number}", kind=kind, subject="eve", title=f"{SECRET} {number}")


def places_of(secret: str, root: Path) -> list[str]:
    """Every name and every file outside of git that contains the secret."""
    return [
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if ".git" not in path.parts and (secret in path.name or (path.is_file() and secret in path.read_text()))
    ]


def killed(processes: ChildProcesses, tmp_path: Path, crash: tuple[str, int], git: bool = False) -> None:
    address, root = str(tmp_path / "agent.db"), str(tmp_path / "m")
    assert processes.start("file_sync:sync_files", address=address, root=root, git=git, crash=crash).wait() in (0, -9)


def erase_and_sync(tmp_path: Path) -> None:
    root = tmp_path / "m"
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm, dm.files(root) as files:
        dm.erase("eve")
        done = files.sync()
        assert (done.skipped, done.edits, done.conflicts) == ((), (), ())
        assert places_of(SECRET, root) == []
        assert sorted(one.content for one in dm.memory.list(everyone=True)) == OTHERS
        for text in OTHERS:
            assert len([path for path in (root / "workspace").rglob("facts/*.md") if text in path.read_text()]) == 1
        assert not files.sync().changed
        assert {path.name for path in (root / ".duramen").iterdir()} <= {"lock", "manifest", "manifest-changes"}


@pytest.mark.parametrize("synced", [False, True], ids=["new folder", "folder in use"])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point[0]}:{point[1]}")
def test_a_sync_killed_before_an_erasure(
    processes: ChildProcesses, tmp_path: Path, point: tuple[str, int], synced: bool
) -> None:
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm, dm.files(tmp_path / "m") as files:
        for text in OTHERS:
            dm.memory.remember(text)
        if synced:
            remember(dm, 0, 2)
            files.sync()
        remember(dm, 10, FILES)
    killed(processes, tmp_path, point)
    erase_and_sync(tmp_path)


def prepare(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm:
        for text in OTHERS:
            dm.memory.remember(text)
        remember(dm, 10, FILES)


@pytest.mark.parametrize("edit", [b"more text\n", b"---\nkind: [x\n---\n", b"\xff\xfe"])
def test_a_file_that_was_edited_before_the_erasure(processes: ChildProcesses, tmp_path: Path, edit: bytes) -> None:
    prepare(tmp_path)
    killed(processes, tmp_path, ("files.written", 1))
    path = next(path for path in (tmp_path / "m").rglob("*.md") if SECRET in path.name)
    path.write_bytes(path.read_bytes() + edit if edit.startswith(b"more") else edit + path.read_bytes())
    if edit.startswith(b"\xff"):
        path.write_bytes(edit)
    erase_and_sync(tmp_path)


def test_two_syncs_killed_one_after_the_other(processes: ChildProcesses, tmp_path: Path) -> None:
    prepare(tmp_path)
    killed(processes, tmp_path, ("files.published", 4))
    killed(processes, tmp_path, ("files.intended", 1))
    killed(processes, tmp_path, ("files.read_in", 1))
    erase_and_sync(tmp_path)


def test_a_memory_that_changed_before_the_kill(processes: ChildProcesses, tmp_path: Path) -> None:
    prepare(tmp_path)
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm, dm.files(tmp_path / "m") as files:
        files.sync()
        dm.memory.remember(f"{SECRET} has a new code", key="code", subject="eve", title=f"{SECRET} 10")
        dm.memory.remember(f"{SECRET} has a newer code", key="code", subject="eve", title=f"{SECRET} 10")
    killed(processes, tmp_path, ("files.written", 1))
    erase_and_sync(tmp_path)


def test_a_temporary_file_goes_even_if_the_folder_was_open_all_the_time(
    processes: ChildProcesses, tmp_path: Path
) -> None:
    root = tmp_path / "m"
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm, dm.files(root) as files:
        files.sync()
        remember(dm, 10, FILES)
        killed(processes, tmp_path, ("files.temp_written", 2))
        assert places_of(SECRET, root) != []
        dm.erase("eve")
        files.sync()
        assert places_of(SECRET, root) == []


def test_a_sync_killed_before_its_commits(processes: ChildProcesses, tmp_path: Path) -> None:
    prepare(tmp_path)
    killed(processes, tmp_path, ("files.uncommitted", 1), git=True)
    erase_and_sync(tmp_path)


@pytest.mark.promise("L7")
def test_a_memory_forgotten_after_the_kill(processes: ChildProcesses, tmp_path: Path) -> None:
    prepare(tmp_path)
    killed(processes, tmp_path, ("files.written", 1))
    root = tmp_path / "m"
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm, dm.files(root) as files:
        for memory in list(dm.memory.list(everyone=True)):
            if SECRET in memory.content:
                dm.memory.forget(memory.id)
        assert files.sync().skipped == ()
        assert places_of(SECRET, root) == []
