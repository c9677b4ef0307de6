"""A hostile folder, and an attacker who changes it during the import, cannot make an import read other files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import duramen
from duramen.files.formats import format_named
from duramen.files.formats.note_folder import MAX_DEPTH, import_folder

pytestmark = [
    pytest.mark.promise("F7"),
    pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="needs files relative to a folder"),
]

SECRET = "the code of the safe is 4711"
SWAPPER = """
import os, sys
root = sys.argv[1]
real, link, away = (os.path.join(root, name) for name in ("notes", "link", "away"))
print("ready", flush=True)
while True:
    os.rename(real, away); os.rename(link, real)
    os.rename(real, link); os.rename(away, real)
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "note.md").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def texts(root: Path) -> list[str]:
    return [note.text for note in import_folder(format_named("claude"), root).notes]


def test_a_folder_swapped_for_a_link_during_the_import_leaks_nothing(root: Path, outside: Path) -> None:
    (root / "notes").mkdir()
    (root / "notes" / "note.md").write_text("harmless")
    (root / "link").symlink_to(outside)
    attacker = subprocess.Popen([sys.executable, "-c", SWAPPER, str(root)], stdout=subprocess.PIPE)
    try:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        imports = leaks = harmless = 0
        ends = time.monotonic() + 1.0
        while time.monotonic() < ends:
            imports += 1
            found = texts(root)
            leaks += SECRET in found
            harmless += "harmless" in found
    finally:
        attacker.kill()
        attacker.communicate()
    assert leaks == 0, f"{leaks} of {imports} imports read a file outside of the folder"
    assert harmless > 0


def test_links_and_special_files_are_reported_and_not_read(root: Path, outside: Path) -> None:
    (root / "good.md").write_text("harmless")
    (root / "folder").symlink_to(outside)
    (root / "link.md").symlink_to(outside / "note.md")
    os.link(outside / "note.md", root / "hard.md")
    os.mkfifo(root / "pipe.md")
    (root / "loop").symlink_to("loop")
    read = import_folder(format_named("claude"), root)
    assert [note.text for note in read.notes] == ["harmless"]
    reasons = {problem.path: problem.reason for problem in read.problems}
    assert "symbolic link" in reasons["link.md"]
    assert "symbolic link" in reasons["folder"]
    assert "hard link" in reasons["hard.md"]
    assert "not a file" in reasons["pipe.md"]


def test_a_single_file_may_not_be_a_link(root: Path, outside: Path) -> None:
    os.link(outside / "note.md", root / "hard.md")
    (root / "link.md").symlink_to(outside / "note.md")
    for name in ("hard.md", "link.md"):
        read = import_folder(format_named("claude"), root / name)
        assert (read.notes, [one.path for one in read.problems]) == ((), [name])


def test_the_named_folder_itself_may_be_a_link(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    assert texts(root / "link") == [SECRET]


def test_a_very_deep_folder_is_reported(root: Path) -> None:
    handle = os.open(root, os.O_RDONLY)
    for _ in range(2_000):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)
    (root / "good.md").write_text("harmless")
    try:
        read = import_folder(format_named("claude"), root)
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)
    assert [note.text for note in read.notes] == ["harmless"]
    assert [problem.path for problem in read.problems] == ["/".join(["d"] * (MAX_DEPTH + 1))]


def test_an_import_into_the_store_reports_a_hard_link(root: Path, outside: Path) -> None:
    os.link(outside / "note.md", root / "hard.md")
    with duramen.open("memory://", embedder="none") as dm:
        done = dm.memory.import_from(root, "claude")
        assert [one.path for one in done.skipped] == ["hard.md"]
        assert [one.content for one in dm.memory.list(everyone=True)] == []
