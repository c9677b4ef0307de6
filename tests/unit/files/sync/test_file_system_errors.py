"""Memory files with a full or broken disk, missing permissions, vanishing folders and a clock that goes backwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs.child_processes import ChildProcesses
from programs.file_errors import CALLS, DENIED, DISK_FULL, IO_ERROR, READ_ONLY, failing_call

import duramen
from duramen import Files
from duramen.errors import DuramenError, FileError
from duramen.files.sync import folder_reader
from duramen.testing.clock import FakeClock

FACTS = "workspace/default/knowledge/facts"
AFTER = [
    "Ada prefers tea",
    "Gate 0 closes at 0:30",
    "Gate 2 opens at 2:30",
    "Said by the agent at 9",
    "The lot is green at 7",
]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for editors that replace a file."""
    monkeypatch.setattr(folder_reader, "_SAVING", 0.0)


@pytest.fixture
def dm(tmp_path: Path) -> Iterator[duramen.Duramen]:
    with duramen.open(tmp_path / "a.db", embedder="none") as opened:
        yield opened


def changed_on_both_sides(dm: duramen.Duramen, root: Path) -> Files:
    """A folder with an edited, a deleted and a new file, and a store with a new memory."""
    for number in range(3):
        dm.memory.remember(f"Gate {number} opens at {number}:30")
    dm.memory.remember("Ada prefers tea", kind="preference", subject="ada")
    files = dm.files(root)
    files.sync()
    one, two, _ = sorted((root / FACTS).iterdir())
    one.write_text(one.read_text().replace("opens", "closes"))
    two.unlink()
    (root / FACTS / "new.md").write_text("The lot is green at 7\n")
    dm.memory.remember("Said by the agent at 9")
    return files


def expect_complete(dm: duramen.Duramen, root: Path) -> None:
    """Check that one more sync completes everything."""
    with dm.files(root) as files:
        files.sync()
        again = files.sync()
        assert (again.changed, again.skipped) == (False, ())
    memories = list(dm.memory.list(everyone=True))
    assert sorted(one.content for one in memories) == AFTER
    assert {one.times for one in memories} == {1}
    assert len(list((root / FACTS).iterdir())) == 4
    assert not list(root.rglob("*draft*"))


def sync_or_fail_with_a_hint(files: Files) -> None:
    """Sync. If it fails, the error has a hint."""
    hint: str | None = None
    try:
        files.sync()
    except DuramenError as error:
        hint = error.hint
    assert hint != ""


@pytest.mark.promise("F5")
@pytest.mark.parametrize("name", CALLS)
def test_a_disk_error_has_a_hint_and_the_next_sync_repairs_everything(tmp_path: Path, name: str) -> None:
    with (
        duramen.open(tmp_path / "count.db", embedder="none") as dm,
        changed_on_both_sides(dm, tmp_path / "count") as files,
        failing_call(name, 0, IO_ERROR) as count,
    ):
        files.sync()
    total = count[0]
    chosen = sorted({1 + round(step * (total - 1) / 7) for step in range(8)}) if total else []
    for number in chosen:
        code = (DISK_FULL, IO_ERROR, READ_ONLY)[number % 3]
        root = tmp_path / str(number)
        with duramen.open(tmp_path / f"{number}.db", embedder="none") as dm:
            with changed_on_both_sides(dm, root) as files, failing_call(name, number, code):
                sync_or_fail_with_a_hint(files)
            expect_complete(dm, root)


@pytest.mark.promise("F5")
def test_repeated_syncs_on_a_full_disk_lose_nothing(dm: duramen.Duramen, tmp_path: Path) -> None:
    root = tmp_path / "m"
    with changed_on_both_sides(dm, root) as files:
        before = {path: path.read_bytes() for path in root.rglob("*.md")}
        for _ in range(3):
            with failing_call("write", 1, DISK_FULL), pytest.raises(FileError, match="No space left"):
                files.sync()
            assert {path: path.read_bytes() for path in root.rglob("*.md")}.items() >= before.items()
    expect_complete(dm, root)


class _VanishingFolder:
    """Moves a folder away during a sync, as when a disk is unmounted."""

    def __init__(self, folder: Path, point: str) -> None:
        self.folder, self.point, self.away = folder, point, folder.with_name(f"{folder.name}-away")

    def __call__(self, reached: str) -> None:
        if reached == self.point and self.folder.exists():
            shutil.move(self.folder, self.away)

    def restore(self) -> None:
        """Move it back, as when the disk is mounted again."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.move(self.away, self.folder)


@pytest.mark.promise("F5")
@pytest.mark.parametrize("what", ["", FACTS, "workspace"])
@pytest.mark.parametrize("point", ["files.read_in", "files.temp_written", "files.written"])
def test_a_folder_that_vanishes_during_a_sync_loses_nothing(
    dm: duramen.Duramen, tmp_path: Path, point: str, what: str
) -> None:
    from duramen.crash_points import listen

    root = tmp_path / "m"
    with changed_on_both_sides(dm, root) as files:
        vanishing = _VanishingFolder(root / what if what else root, point)
        listen(vanishing)
        try:
            sync_or_fail_with_a_hint(files)
        finally:
            listen(None)
        vanishing.restore()
    assert len(list(dm.memory.list(everyone=True))) == len(AFTER), "no memory was retired"
    expect_complete(dm, root)


@pytest.mark.promise("F4")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_missing_root_folder_is_an_error(dm: duramen.Duramen, tmp_path: Path, replaced: bool) -> None:
    root = tmp_path / "m"
    with changed_on_both_sides(dm, root) as files:
        shutil.move(root, tmp_path / "away")
        if replaced:
            root.mkdir()
        with pytest.raises(FileError):
            files.sync()
        assert not replaced or list(root.iterdir()) == [], "nothing is written to the new folder"
        shutil.rmtree(root, ignore_errors=True)
        shutil.move(tmp_path / "away", root)
    expect_complete(dm, root)


@pytest.mark.promise("F5")
def test_a_clock_that_goes_backwards_loses_nothing(tmp_path: Path) -> None:
    clock, root = FakeClock(), tmp_path / "m"
    with duramen.open(tmp_path / "a.db", embedder="none", clock=clock) as dm:
        with changed_on_both_sides(dm, root) as files:
            clock.advance(-86_400 * 400)
            for path in (root / FACTS).iterdir():
                os.utime(path, (1_000_000, 1_000_000))  # file times go back too
            files.sync()
            edited = next(path for path in (root / FACTS).iterdir() if "gate-2" in path.name)
            edited.write_text(edited.read_text().replace("2:30", "4:30"))
            os.utime(edited, (999_999, 999_999))
            (imported,) = files.sync().edits
            assert imported.what == "edited"
            edited.write_text(edited.read_text().replace("4:30", "2:30"))
            os.utime(edited, (999_998, 999_998))
            files.sync()
        assert sorted(one.content for one in dm.memory.list(everyone=True)) == AFTER
        with dm.files(root) as files:
            assert not files.sync().changed
        assert dm.verify().ok


@pytest.mark.promise("F5")
@pytest.mark.parametrize(
    ("name", "code"), [("write", DISK_FULL), ("rename", READ_ONLY), ("fsync", IO_ERROR), ("scandir", DENIED)]
)
def test_the_command_line_reports_disk_errors_without_a_traceback(
    tmp_path: Path, processes: ChildProcesses, name: str, code: int
) -> None:
    store, root = tmp_path / "a.db", tmp_path / "m"
    with duramen.open(store, embedder="none") as dm:
        changed_on_both_sides(dm, root).close()
    arguments = ["sync", str(root), "--store", str(store)]
    child = processes.start("file_errors:run_command", name=name, number=1, code=code, arguments=arguments)
    status, errors = child.wait(), child.errors()
    assert "Traceback" not in errors, errors
    assert status == 2, errors
    assert os.strerror(code) in errors
    with duramen.open(store, embedder="none") as dm:
        expect_complete(dm, root)
