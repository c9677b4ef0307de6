"""Unusual changes of files: nothing is lost or duplicated, and one bad file does not affect the others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import duramen

FACTS = "workspace/default/knowledge/facts"


@pytest.fixture
def dm(tmp_path: Path) -> Iterator[duramen.Duramen]:
    with duramen.open(tmp_path / "agent.db", embedder="none") as opened:
        yield opened


def memory_files(root: Path) -> dict[str, str]:
    folders = ("workspace", "preference", "identity")
    paths = [path for folder in folders for path in (root / folder).rglob("*.md") if "runtime" not in path.parts]
    return {str(path.relative_to(root)): path.read_text() for path in paths if path.name != "MEMORY.md"}


def stored(dm: duramen.Duramen) -> list[tuple[str, str | None, int]]:
    return sorted((one.content, one.subject, one.times) for one in dm.memory.list(everyone=True))


def sync(dm: duramen.Duramen, root: Path) -> duramen.FilesSynced:
    """A sync with an empty cache, as another process does it."""
    files = dm.files(root)
    try:
        return files.sync()
    finally:
        files.close()


def test_a_conflicting_edit_is_imported_once(dm: duramen.Duramen, tmp_path: Path) -> None:
    root = tmp_path / "files"
    dm.memory.remember("tea is good", key="drink")
    sync(dm, root)
    (name,) = memory_files(root)
    moved = (root / name).rename(root / FACTS / "moved.md")
    moved.write_text(moved.read_text().replace("tea", "cocoa"))
    dm.memory.remember("coffee is good", key="drink")
    assert len(sync(dm, root).conflicts) == 1
    for _ in range(3):
        assert not sync(dm, root).changed
    assert stored(dm) == [("cocoa is good", None, 1), ("coffee is good", None, 1)]
    assert len(memory_files(root)) == 2


def test_an_old_version_from_git_is_brought_up_to_date(dm: duramen.Duramen, tmp_path: Path) -> None:
    root = tmp_path / "files"
    dm.memory.remember("the sun is up", subject="ada")
    sync(dm, root)
    (path,) = (root / name for name in memory_files(root))
    old = path.read_text()
    path.write_text(old.replace("subject: ada\n", "").replace("sun", "moon"))
    sync(dm, root)
    (path,) = (root / name for name in memory_files(root))
    path.write_text(old.replace("sun", "star"))  # as with `git checkout`
    for _ in range(3):
        last = sync(dm, root)
    assert not last.changed
    fresh = tmp_path / "fresh"
    sync(dm, fresh)
    assert memory_files(root) == memory_files(fresh)


@pytest.mark.parametrize("tags", ["", "tags: [mine]\n"], ids=["the same", "with more"])
def test_a_copy_of_an_edited_file_is_reported_or_removed(dm: duramen.Duramen, tmp_path: Path, tags: str) -> None:
    root = tmp_path / "files"
    dm.memory.remember("the sun is up")
    sync(dm, root)
    (path,) = (root / name for name in memory_files(root))
    path.write_text(path.read_text().replace("sun", "moon"))
    copy = path.with_name("zz-copy.md")
    copy.write_text(path.read_text().replace("kind: fact\n", f"kind: fact\n{tags}"))
    done = sync(dm, root)
    assert [one.path for one in done.skipped] == ([str(copy.relative_to(root))] if tags else [])
    assert copy.exists() == bool(tags)
    assert stored(dm) == [("the moon is up", None, 1)]


@pytest.mark.parametrize("bare", [False, True], ids=["without id", "without any field"])
def test_a_file_rewritten_without_its_id_is_an_edit(dm: duramen.Duramen, tmp_path: Path, bare: bool) -> None:
    root = tmp_path / "files"
    dm.memory.remember("Ada drinks tea", subject="ada", key="drink")
    sync(dm, root)
    (path,) = (root / name for name in memory_files(root))
    front_matter = "" if bare else "---\nsubject: ada\nkey: drink\n---\n"
    path.write_text(f"{front_matter}Ada drinks coffee\n")
    sync(dm, root)
    assert stored(dm) == [("Ada drinks coffee", "ada", 1)], "the subject is kept"
    assert not sync(dm, root).changed
    assert ["id: " in text for text in memory_files(root).values()] == [True]


def test_two_new_files_with_equal_text_become_one(dm: duramen.Duramen, tmp_path: Path) -> None:
    root = tmp_path / "files"
    sync(dm, root)
    (root / FACTS).mkdir(parents=True, exist_ok=True)
    for name in ("one.md", "two.md"):
        (root / FACTS / name).write_text("the key lies under the mat\n")
    sync(dm, root)
    assert not sync(dm, root).changed
    assert ["id: " in text for text in memory_files(root).values()] == [True]


def test_a_folder_replaced_by_a_link_deletes_no_memory(dm: duramen.Duramen, tmp_path: Path) -> None:
    root = tmp_path / "files"
    dm.memory.remember("one")
    dm.memory.remember("two")
    sync(dm, root)
    knowledge = root / "workspace/default/knowledge"
    shutil.move(knowledge, tmp_path / "elsewhere")
    knowledge.symlink_to(tmp_path / "elsewhere")
    (root / "preference").mkdir(exist_ok=True)
    (root / "preference" / "new.md").write_text("likes biscuits\n")
    done = sync(dm, root)
    assert [one.what for one in done.edits] == ["added"]
    assert done.skipped
    assert [content for content, *_ in stored(dm)] == ["likes biscuits", "one", "two"]


@pytest.mark.parametrize("what", ["bytes", "link", "folder"])
def test_an_unreadable_persona_does_not_stop_the_sync(dm: duramen.Duramen, tmp_path: Path, what: str) -> None:
    root = tmp_path / "files"
    dm.memory.proposals.make("Be kind.", kind="persona", accepted=True)
    sync(dm, root)
    soul = root / "SOUL.md"
    soul.unlink()
    if what == "bytes":
        soul.write_bytes(b"\xff\xfe")
    elif what == "link":
        soul.symlink_to("/etc/hostname")
    else:
        soul.mkdir()
    dm.memory.remember("one")
    done = sync(dm, root)
    assert len(memory_files(root)) == 1
    assert "SOUL.md" in {one.path for one in done.skipped}
    assert not sync(dm, root).written


def test_a_memory_that_cannot_be_written_does_not_stop_others(dm: duramen.Duramen, tmp_path: Path) -> None:
    root = tmp_path / "files"
    dm.memory.remember("not writable", metadata={"front": {"x": b"bytes"}})
    dm.memory.remember("writable")
    done = sync(dm, root)
    assert [one.reason for one in done.skipped] == ["a field of a file cannot be a bytes"]
    assert len(memory_files(root)) == 1


def test_files_follow_a_restored_store(tmp_path: Path) -> None:
    root, store, backup = tmp_path / "files", tmp_path / "agent.db", tmp_path / "backup.db"
    with duramen.open(store, embedder="none") as dm:
        dm.memory.remember("before")
    shutil.copy(store, backup)
    with duramen.open(store, embedder="none") as dm:
        dm.memory.remember("lost with the disk")
        dm.memory.remember("lost, too")
        sync(dm, root)
    for path in tmp_path.glob("agent.db*"):
        path.unlink()
    os.rename(backup, store)
    with duramen.open(store, embedder="none") as dm:
        dm.memory.remember("after the restore")
        sync(dm, root)
        done = sync(dm, root)
    texts = " ".join(memory_files(root).values())
    assert "after the restore" in texts
    assert "lost, too" in texts, "the file is the only copy"
    assert len(done.skipped) == 2, "both are reported"


def test_a_malformed_file_of_an_erased_subject_is_removed(dm: duramen.Duramen, tmp_path: Path) -> None:
    root = tmp_path / "files"
    dm.memory.remember("Ada drinks tea", subject="ada")
    sync(dm, root)
    (path,) = (root / name for name in memory_files(root))
    path.write_text("---\nid: [\n" + path.read_text())
    dm.erase("ada")
    sync(dm, root)
    assert [path for path in root.rglob("*") if path.is_file() and b"Ada" in path.read_bytes()] == []
