"""Someone who can write to the folder of memory files cannot make a sync write elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import duramen
from duramen.errors import FileError

pytestmark = pytest.mark.promise("F7")

EXCHANGE = 2
SWAPPER = f"""
import ctypes, os, sys
rename = ctypes.CDLL(None).renameat2
real, link = (os.fsencode(os.path.join(sys.argv[1], name)) for name in (".duramen", ".link"))
print("ready", flush=True)
while True:
    rename(-100, real, -100, link, {EXCHANGE})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs an exchange of two names")
def test_the_state_folder_swapped_for_a_link_during_syncs(tmp_path: Path) -> None:
    root, outside = tmp_path / "m", tmp_path / "outside"
    outside.mkdir()
    with duramen.open("memory://", embedder="none") as dm, dm.files(root) as files:
        files.sync()
        (root / ".link").symlink_to(outside)
        attacker = subprocess.Popen([sys.executable, "-c", SWAPPER, str(root)], stdout=subprocess.PIPE)
        synced = 0
        try:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            ends = time.monotonic() + 1.0
            while time.monotonic() < ends:
                dm.memory.remember(f"Fact {synced}")
                try:
                    files.sync()
                    synced += 1
                except FileError:
                    continue
        finally:
            attacker.kill()
            attacker.communicate()
        assert synced > 0
        assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["manifest-changes", "manifest.new", "writing.new", "lock"])
def test_files_that_are_links_to_others(tmp_path: Path, name: str) -> None:
    root, victim = tmp_path / "m", tmp_path / "victim"
    victim.write_text("precious")
    with duramen.open("memory://", embedder="none") as dm, dm.files(root) as files:
        files.sync()
        path = root / ".duramen" / name
        for link in (os.link, os.symlink):
            path.unlink(missing_ok=True)
            link(victim, path)
            for number in range(2):
                dm.memory.remember(f"Fact {link} {number}")
                try:
                    files.sync()
                except FileError as error:
                    assert error.hint  # noqa: PT017 - it may also do without the file
            assert victim.read_text() == "precious"


def test_a_state_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "m", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / ".duramen").symlink_to(outside)
    with (
        duramen.open("memory://", embedder="none") as dm,
        dm.files(root) as files,
        pytest.raises(FileError, match="symbolic link"),
    ):
        files.sync()
    assert list(outside.iterdir()) == []
