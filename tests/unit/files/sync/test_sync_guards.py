"""A sync does not mistake missing folders or killed syncs for edits by a person."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs.command_line import CommandResult, run

import duramen
from duramen.crash_points import listen
from duramen.files.sync import folder_reader

FACTS = "workspace/default/knowledge/facts"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for editors that replace a file."""
    monkeypatch.setattr(folder_reader, "_SAVING", 0.0)


@pytest.fixture
def dm(any_address: str) -> Iterator[duramen.Duramen]:
    with duramen.open(any_address, embedder="none") as opened:
        yield opened


def remember(dm: duramen.Duramen, count: int) -> None:
    for number in range(count):
        dm.memory.remember(f"Gate {number} opens at {number}:30")
    dm.memory.remember("Use the back stairs", kind="blocker")


@pytest.mark.promise("F2", "F4")
def test_many_missing_files_retire_nothing_until_confirmed(dm: duramen.Duramen, tmp_path: Path) -> None:
    remember(dm, 12)
    with dm.files(tmp_path / "m") as files:
        files.sync()
        shutil.move(tmp_path / "m" / FACTS, tmp_path / "away")
        for _ in range(2):
            done = files.sync()
            (skipped,) = done.skipped
            assert (skipped.path, done.edits, done.removed) == (FACTS, (), ())
            assert "12 of its files are missing, too many to be treated as deleted" in skipped.reason
            assert "--deletions" in skipped.reason
        assert len(list(dm.memory.list())) == 13
        dm.memory.remember("Another memory in the meantime")
        assert files.sync().written, "other files are written"
        for path in (tmp_path / "away").iterdir():
            shutil.move(path, tmp_path / "m" / FACTS / path.name)
        done = files.sync()
        assert (done.skipped, done.edits) == ((), ())
        shutil.rmtree(tmp_path / "m" / FACTS)
        assert files.sync().skipped
        done = files.sync(deletions=True)
        assert [one.what for one in done.edits] == ["deleted"] * 13
        assert [one.content for one in dm.memory.list()] == ["Use the back stairs"]
        assert not files.sync().skipped


@pytest.mark.promise("F4")
def test_missing_files_are_written_again_if_the_index_is_missing_too(dm: duramen.Duramen, tmp_path: Path) -> None:
    remember(dm, 12)
    with dm.files(tmp_path / "m") as files:
        files.sync()
        before = {path.name: path.read_bytes() for path in (tmp_path / "m" / FACTS).iterdir()}
        shutil.rmtree(tmp_path / "m" / FACTS)
        assert files.sync().skipped
        (tmp_path / "m/workspace/default/MEMORY.md").unlink()
        assert not files.sync().skipped
        assert {path.name: path.read_bytes() for path in (tmp_path / "m" / FACTS).iterdir()} == before


@pytest.mark.promise("F2")
@pytest.mark.parametrize(("count", "deleted"), [(12, 9), (60, 11)])
def test_some_deletions_by_hand_retire_memories(dm: duramen.Duramen, tmp_path: Path, count: int, deleted: int) -> None:
    remember(dm, count)
    with dm.files(tmp_path / "m") as files:
        files.sync()
        for path in sorted((tmp_path / "m" / FACTS).iterdir())[:deleted]:
            path.unlink()
        done = files.sync()
        assert (len(done.edits), done.skipped) == (deleted, ())


@pytest.mark.promise("F2")
def test_moved_files_are_not_missing(dm: duramen.Duramen, tmp_path: Path) -> None:
    remember(dm, 12)
    with dm.files(tmp_path / "m") as files:
        files.sync()
        for path in (tmp_path / "m" / FACTS).iterdir():
            path.rename(path.with_name(f"moved-{path.name}"))
        done = files.sync()
        assert ({one.what for one in done.edits}, done.skipped) == ({"edited"}, ())
        assert len(list(dm.memory.list())) == 13


@pytest.mark.promise("F2", "F5")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("facts/note.md", "The lot closes at 20:00.\n"),
        ("procedures/way.md", "# Open the vault\n\n## Steps\n\n1. Turn the wheel\n2. Pull the lever\n"),
        ("preference/tea.md", "Ada prefers tea\n"),
    ],
)
def test_a_new_file_is_added_once_despite_killed_syncs(
    dm: duramen.Duramen, tmp_path: Path, name: str, text: str
) -> None:
    def die(point: str) -> None:
        if point == "files.read_in":
            raise KeyboardInterrupt

    root = tmp_path / "m"
    path = root / name if name.startswith("preference") else root / "workspace/default/knowledge" / name
    with dm.files(root) as files:
        files.sync()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    for _ in range(3):
        listen(die)
        try:
            with dm.files(root) as files, pytest.raises(KeyboardInterrupt):
                files.sync()
        finally:
            listen(None)
    with dm.files(root) as files:
        files.sync()
        (memory,) = dm.memory.list()
        assert memory.times == 1
        assert len(dm.memory.history(memory.id)) == 1
        assert not files.sync().changed
        assert path.exists()


@pytest.mark.promise("F2")
def test_a_file_with_known_content_confirms_the_memory(dm: duramen.Duramen, tmp_path: Path) -> None:
    dm.memory.remember("The lot closes at 20:00")
    with dm.files(tmp_path / "m") as files:
        files.sync()
        (tmp_path / "m" / FACTS / "again.md").write_text("The lot closes at 20:00\n")
        files.sync()
        (memory,) = dm.memory.list()
        assert memory.times == 2


def test_a_watch_ends_in_time_and_reports_skipped_files_once(dm: duramen.Duramen, tmp_path: Path) -> None:
    dm.memory.remember("The lot closes at 20:00")
    with dm.files(tmp_path / "m") as files:
        seen = []
        for done in files.watch(0.05, timeout=1.0):
            seen.append(done)
            (tmp_path / "m" / FACTS / "bad.md").write_text("---\nkind: [\n---\n")
        assert [bool(done.skipped) for done in seen] == [False, True], "each only once"


@pytest.mark.promise("F2")
def test_deletions_are_confirmed_on_the_command_line(tmp_path: Path) -> None:
    store, folder = str(tmp_path / "agent.db"), tmp_path / "m"
    with duramen.open(store, embedder="none") as dm:
        remember(dm, 12)

    def sync(*options: str) -> CommandResult:
        return run("sync", folder, "--store", store, *options, cwd=tmp_path)

    assert sync().code == 0
    shutil.rmtree(folder / FACTS)
    unconfirmed = sync()
    assert (unconfirmed.code, "--deletions" in unconfirmed.err) == (1, True)
    assert sync("--deletions", "--watch").code == 2
    done = sync("--deletions")
    assert (done.code, done.out.count("deleted")) == (0, 12)
    with duramen.open(store, embedder="none") as dm:
        assert [one.content for one in dm.memory.list()] == ["Use the back stairs"]
    began = time.monotonic()
    assert sync("--watch", "--timeout", "0.2").code == 0
    assert time.monotonic() - began < 50, "it ends"


def test_progress_is_reported_from_start_to_end(dm: duramen.Duramen, tmp_path: Path) -> None:
    reported: dict[str, list[tuple[int, int]]] = {}

    def report(what: str, done: int, total: int) -> None:
        reported.setdefault(what, []).append((done, total))

    remember(dm, 3)
    (tmp_path / "in.jsonl").write_text('{"text": "The lot is green"}\n{"text": "The lot is wide"}\n')
    dm.memory.import_from(tmp_path / "in.jsonl", "jsonl", progress=report)
    with dm.files(tmp_path / "m") as files:
        files.sync(progress=report)
        for name in ("one", "two"):
            (tmp_path / "m" / FACTS / f"{name}.md").write_text(f"The {name} is at 7:30\n")
        files.sync(progress=report)
    assert {what: steps[-1] for what, steps in reported.items()} == {
        "Importing": (2, 2), "Writing": (2, 2), "Reading": (2, 2),
    }  # fmt: skip
    assert (0, 6) in reported["Writing"]
    assert (6, 6) in reported["Writing"]
