"""Files and folders that duramen creates are private to their owner, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs.command_line import run

import duramen
from duramen.embedders import InstalledModel, install_model
from duramen.embedders.sources import LocalFiles

pytestmark = [pytest.mark.promise("G12"), pytest.mark.skipif(os.name != "posix", reason="needs file modes")]


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """The modes of everything in a folder that others could use, or that its owner could not use."""
    found = {}
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            found[path.relative_to(folder).as_posix()] = oct(mode)
    return found


def test_the_database_its_log_and_its_lock(umask: int, tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db", embedder="none") as dm:
        dm.memory.remember("The ferry leaves at 8", subject="ada")
        names = {path.name for path in tmp_path.iterdir()}
        assert names >= {"agent.db", "agent.db-wal", "agent.db-shm", "agent.db-lock"}
        assert modes(tmp_path) == {}
    assert modes(tmp_path) == {}


def test_a_database_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "agent.db").symlink_to(tmp_path / "data" / "real.db")
    before = os.umask(0)
    try:
        duramen.open(tmp_path / "agent.db", embedder="none").close()
    finally:
        os.umask(before)
    assert modes(tmp_path / "data") == {}


def test_the_mode_of_an_existing_database_stays(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    duramen.open(path, embedder="none").close()
    path.chmod(0o640)
    with duramen.open(path, embedder="none") as dm:
        dm.session("s").append("note", {})
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_memory_files_exports_and_the_repository(umask: int, tmp_path: Path) -> None:
    with duramen.open("memory://", embedder="none") as dm:
        dm.memory.remember("The ferry leaves at 8", subject="ada")
        with dm.files(tmp_path / "a" / "b" / "files", git=True) as files:
            assert files.sync().skipped == ()
        dm.memory.export_to(tmp_path / "c" / "d" / "out", "claude", everyone=True)
    repository = "a/b/files/.git/"  # nobody else can enter it
    assert {path: mode for path, mode in modes(tmp_path).items() if not path.startswith(repository)} == {}
    objects = tmp_path / repository / "objects"
    assert [path for path in objects.rglob("*") if path.lstat().st_mode & 0o077] == []


def test_an_export_of_the_command_line(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with duramen.open(tmp_path / "agent.db", embedder="none") as dm:
            dm.session("s").append("note", {})
        assert run("export", "--store", "agent.db", "--output", "events.jsonl", cwd=tmp_path).code == 0
    finally:
        os.umask(before)
    assert modes(tmp_path) == {}


def test_the_cache_of_the_embedder(installed: InstalledModel, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        install_model(tmp_path / "x" / "cache", sources=[LocalFiles(installed.folder)])
    finally:
        os.umask(before)
    assert modes(tmp_path) == {}
