"""Sync of memories and files: files are written, hand edits imported, and files rebuilt."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs.child_processes import ChildProcesses

import duramen
from duramen import Files
from duramen.crash_points import listen
from duramen.errors import InvalidInput
from duramen.files.sync import folder_reader
from duramen.testing.clock import FakeClock

FOLDER = "workspace/default"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def dm(any_address: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    with duramen.open(any_address, embedder="none", clock=clock) as opened:
        yield opened


@pytest.fixture
def files(dm: duramen.Duramen, tmp_path: Path) -> Iterator[Files]:
    with dm.files(tmp_path / "memory") as opened:
        yield opened


def tree(files: Files) -> dict[str, str]:
    root = Path(files.root)
    texts = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and not name.startswith((".duramen", ".git")):
            texts[name] = path.read_text(encoding="utf-8")
    return texts


def memory_files(files: Files, folder: str) -> list[Path]:
    return sorted((Path(files.root) / folder).glob("*.md"))


def contents(dm: duramen.Duramen, **filters: Any) -> list[str]:
    return sorted(one.content for one in dm.memory.list(**{"everyone": True, **filters}))


def fill(dm: duramen.Duramen) -> None:
    dm.memory.remember("The refund window is 30 days", metadata={"tags": ["shop", "returns"]})
    dm.memory.remember("The staging host is db-7", title="Staging", key="staging host", importance=0.9)
    dm.memory.remember("The manual is at example.org/manual", kind="reference")
    dm.memory.remember("Deploys to prod are denied", kind="blocker")
    dm.memory.remember("Ada prefers tea", kind="preference", subject="ada")
    dm.memory.remember("Ada is left-handed", kind="identity", subject="ada")
    dm.memory.procedures.save("deploy", ["Build it", "Ship it"], title="How to deploy")


@pytest.mark.promise("F1")
def test_memories_are_written_as_readable_files(dm: duramen.Duramen, files: Files) -> None:
    fill(dm)
    done = files.sync()
    assert done.skipped == ()
    texts = tree(files)
    assert sorted({re.sub(r"[^/]*-[0-9a-f]{10}\.md$", "*.md", path) for path in texts}) == [
        "MEMORY.md",
        "identity/*.md",
        f"memory/{_day(texts)}",
        "preference/*.md",
        f"{FOLDER}/MEMORY.md",
        f"{FOLDER}/knowledge/blockers/*.md",
        f"{FOLDER}/knowledge/facts/*.md",
        f"{FOLDER}/knowledge/procedures/*.md",
        f"{FOLDER}/knowledge/reference/*.md",
        f"{FOLDER}/runtime/proposals.md",
        f"{FOLDER}/runtime/runs.md",
    ]
    index = texts[f"{FOLDER}/MEMORY.md"]
    lines = [line for line in index.splitlines() if line.startswith("- ")]
    assert len(lines) == 5
    assert "[fact] [verify: check before use] [shop, returns] - The refund window is 30 days" in index
    assert "[reference] [verify: must be reconfirmed]" in index
    for target in re.findall(r"\]\(([^)]+)\)", index):
        assert (Path(files.root) / FOLDER / target).is_file()
    assert f"({FOLDER}/MEMORY.md)" in texts["MEMORY.md"]
    assert "Ada prefers tea" in texts["MEMORY.md"]
    (way,) = memory_files(files, f"{FOLDER}/knowledge/procedures")
    text = way.read_text()
    assert "# How to deploy" in text
    assert "## Steps\n\n1. Build it\n2. Ship it" in text
    (staging,) = [path for path in memory_files(files, f"{FOLDER}/knowledge/facts") if "staging" in path.name]
    assert "key: staging host" in staging.read_text()
    assert 'source: "@memory#2"' in staging.read_text()
    daily = texts[f"memory/{_day(texts)}"]
    assert daily.count("\n- ") == 7


def _day(texts: dict[str, Any]) -> str:
    return next(path for path in texts if path.startswith("memory/")).removeprefix("memory/")


@pytest.mark.promise("F3", "F5")
def test_only_changed_files_are_written(dm: duramen.Duramen, files: Files) -> None:
    fill(dm)
    files.sync()
    before = {path: os.stat(Path(files.root) / path).st_mtime_ns for path in tree(files)}
    assert not files.sync().changed
    dm.memory.remember("Invoices go out on Mondays")
    done = files.sync()
    after = {path: os.stat(Path(files.root) / path).st_mtime_ns for path in tree(files)}
    new = after.keys() - before.keys()
    assert len(new) == 1
    assert {path for path in before if before[path] != after[path]} == {
        f"{FOLDER}/MEMORY.md",
        f"memory/{_day(after)}",
    }
    assert set(done.written) == new | {f"{FOLDER}/MEMORY.md", f"memory/{_day(after)}"}
    dm.memory.remember("Ada prefers aisle seats", kind="preference", subject="ada")
    assert "MEMORY.md" in files.sync().written
    assert os.stat(Path(files.root) / FOLDER / "MEMORY.md").st_mtime_ns == after[f"{FOLDER}/MEMORY.md"]


@pytest.mark.promise("F4")
def test_deleted_files_are_rebuilt_exactly(dm: duramen.Duramen, files: Files, clock: FakeClock) -> None:
    fill(dm)
    files.sync()
    (fact, *_) = [path for path in memory_files(files, f"{FOLDER}/knowledge/facts") if "refund" in path.name]
    fact.write_text(fact.read_text().replace("30 days", "45 days"))
    (Path(files.root) / FOLDER / "knowledge/facts/my-note.md").write_text("# Parking\n\nThe lot closes at 20:00.\n")
    clock.advance(86_400)
    files.sync()
    dm.memory.remember("The staging host is db-8", title="Staging", key="staging host")
    files.sync()
    before = tree(files)
    for name in os.listdir(files.root):
        if not name.startswith("."):
            subprocess.run(["rm", "-rf", str(Path(files.root) / name)], check=True)
    assert files.sync().edits == (), "no memory was deleted"
    assert tree(files) == before
    subprocess.run(["rm", "-rf", files.root], check=True)
    with dm.files(files.root) as again:
        again.sync()
        assert tree(again) == before


@pytest.mark.promise("F2")
def test_an_edit_replaces_the_memory(dm: duramen.Duramen, files: Files) -> None:
    old = dm.memory.remember("The refund window is 30 days", importance=0.8)
    files.sync()
    (path,) = memory_files(files, f"{FOLDER}/knowledge/facts")
    path.write_text(path.read_text().replace("30 days", "45 days"))
    done = files.sync()
    (imported,) = done.edits
    assert (imported.what, imported.path) == ("edited", str(path.relative_to(files.root)))
    (memory,) = dm.memory.list()
    assert (memory.id, memory.content, memory.importance) == (imported.memory, "The refund window is 45 days", 0.8)
    events = list(dm.session("@memory").events(types="memory.added"))
    assert (events[-1].actor, events[-1].cause) == ("human", old.source)
    assert [hit.memory.id for hit in dm.memory.recall("refund window")] == [memory.id]
    assert memory_files(files, f"{FOLDER}/knowledge/facts") == [path], "the file keeps its name"
    assert memory.id in path.read_text()
    assert not dm.memory.get(old.id).current
    assert not files.sync().changed


@pytest.mark.promise("F2")
@pytest.mark.parametrize("kind", ["preference", "identity"])
def test_an_edited_preference_or_identity_is_an_accepted_proposal(dm: duramen.Duramen, files: Files, kind: str) -> None:
    dm.memory.remember("Ada prefers tea", kind=kind, subject="ada")
    files.sync()
    (path,) = memory_files(files, kind)
    path.write_text(path.read_text().replace("prefers tea", "prefers coffee"))
    files.sync()
    assert contents(dm) == ["Ada prefers coffee"]
    (accepted,) = dm.memory.proposals.list("accepted")
    assert (accepted.decided_by, accepted.subject) == ("human", "ada")
    assert memory_files(files, kind) == [path]
    assert not files.sync().changed


@pytest.mark.promise("F2")
def test_new_and_deleted_files_are_imported(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("The refund window is 30 days")
    files.sync()
    folder = Path(files.root) / FOLDER / "knowledge"
    (folder / "facts" / "parking.md").write_text("# Parking\n\nThe lot closes at 20:00.\n\n## Evidence\n\n- the sign\n")
    (folder / "procedures").mkdir()
    (folder / "procedures" / "x.md").write_text("# Close the till\n\n## Steps\n\n1. Count\n2. Sign\n")
    (Path(files.root) / "preference").mkdir()
    (Path(files.root) / "preference" / "tea.md").write_text("---\nsubject: ada\n---\nAda prefers tea\n")
    done = files.sync()
    assert sorted(one.what for one in done.edits) == ["added"] * 3
    assert contents(dm, kinds="fact") == ["The lot closes at 20:00.", "The refund window is 30 days"]
    assert [one.content for one in dm.memory.list(kinds="preference", subject="ada")] == ["Ada prefers tea"]
    (way,) = dm.memory.procedures.list()
    assert (way.name, way.steps) == ("Close the till", ("Count", "Sign"))
    (parking,) = [one for one in dm.memory.list(kinds="fact") if "lot" in one.content]
    assert parking.title == "Parking"
    assert not files.sync().changed
    (folder / "facts" / "parking.md").unlink()
    done = files.sync()
    assert [(one.what, one.memory) for one in done.edits] == [("deleted", parking.id)]
    assert contents(dm, kinds="fact") == ["The refund window is 30 days"]
    assert not dm.memory.get(parking.id).current, "it is only in the history"
    (retired,) = dm.session("@memory").events(types="memory.retired")
    assert retired.actor == "human"


@pytest.mark.promise("F2")
def test_steps_title_and_tags_can_be_edited(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.procedures.save("deploy", ["Build it", "Ship it"])
    fact = dm.memory.remember("The refund window is 30 days")
    files.sync()
    (way,) = memory_files(files, f"{FOLDER}/knowledge/procedures")
    way.write_text(way.read_text().replace("2. Ship it", "2. Test it\n3. Ship it"))
    (path,) = memory_files(files, f"{FOLDER}/knowledge/facts")
    path.write_text(
        path.read_text().replace("# The refund window is 30 days", "# Refunds").replace("kind:", "tags: [shop]\nkind:")
    )
    files.sync()
    (procedure,) = dm.memory.procedures.list()
    assert (procedure.version, procedure.steps) == (2, ("Build it", "Test it", "Ship it"))
    (memory,) = dm.memory.list(kinds="fact")
    assert (memory.id, memory.title, memory.metadata["tags"]) == (fact.id, "Refunds", ["shop"])
    assert memory_files(files, f"{FOLDER}/knowledge/procedures") == [way]
    assert not files.sync().changed


@pytest.mark.promise("F2")
def test_a_conflict_keeps_both_versions_and_is_reported(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("The staging host is db-7", key="staging host")
    files.sync()
    (path,) = memory_files(files, f"{FOLDER}/knowledge/facts")
    dm.memory.remember("The staging host is db-8", key="staging host")
    path.write_text(path.read_text().replace("db-7", "db-9"))
    done = files.sync()
    (conflict,) = done.conflicts
    assert conflict.path == str(path.relative_to(files.root))
    assert contents(dm) == ["The staging host is db-8", "The staging host is db-9"]
    texts = [one.read_text() for one in memory_files(files, f"{FOLDER}/knowledge/facts")]
    assert sorted(re.findall(r"db-\d", "".join(texts))).count("db-7") == 0
    assert len(texts) == 2
    assert "db-8" in path.read_text()
    assert not files.sync().changed


@pytest.mark.promise("F2")
def test_a_malformed_file_is_reported_and_left_unchanged(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("The staging host is db-7", key="staging host")
    files.sync()
    (path,) = memory_files(files, f"{FOLDER}/knowledge/facts")
    broken = path.read_text().replace("kind: fact", "kind: [fact")
    path.write_text(broken)
    for _ in range(2):
        (skipped,) = files.sync().skipped
        assert skipped.path == str(path.relative_to(files.root))
        assert skipped.line is not None
        dm.memory.remember("The staging host is db-8", key="staging host")
    assert path.read_text() == broken, "a newer memory does not overwrite it"
    assert contents(dm) == ["The staging host is db-8"]
    path.unlink()
    assert files.sync().skipped == ()
    assert "db-8" in path.read_text(), "the newer memory is written later"


@pytest.mark.promise("F2", "G3")
def test_files_of_forgotten_and_erased_memories_are_removed(dm: duramen.Duramen, files: Files) -> None:
    fact = dm.memory.remember("The refund window is 30 days")
    dm.memory.remember("Ada is called Zanzibarella", kind="identity", subject="ada")
    files.sync()
    (path,) = memory_files(files, "identity")
    copy = path.read_text()
    dm.erase("ada")
    done = files.sync()
    assert str(path.relative_to(files.root)) in done.removed
    assert not any("Zanzibarella" in text for text in tree(files).values()), "also not in the daily log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(copy)
    (skipped,) = files.sync().skipped
    assert "unknown or was forgotten" in skipped.reason
    assert contents(dm) == [fact.content]
    dm.memory.forget(fact.id)
    files.sync()
    assert memory_files(files, f"{FOLDER}/knowledge/facts") == []


@pytest.mark.promise("F6")
def test_the_persona_changes_only_by_an_accepted_proposal(dm: duramen.Duramen, files: Files) -> None:
    proposal = dm.memory.proposals.make("You are Harbour, calm and exact.", kind="persona")
    assert proposal is not None
    files.sync()
    soul = Path(files.root) / "SOUL.md"
    assert not soul.exists()
    dm.memory.proposals.accept(proposal.id)
    files.sync()
    assert soul.read_text() == "You are Harbour, calm and exact.\n"
    soul.write_text("You are Storm.\n")
    assert [one.what for one in files.sync().edits] == ["proposed"]
    assert dm.memory.persona() == "You are Harbour, calm and exact."
    assert soul.read_text() == "You are Storm.\n", "the edit stays until it is decided"
    (pending,) = dm.memory.proposals.list()
    dm.memory.proposals.dismiss(pending.id)
    files.sync()
    assert soul.read_text() == "You are Harbour, calm and exact.\n"
    soul.write_text("You are Breeze.\n")
    files.sync()
    (pending,) = dm.memory.proposals.list()
    dm.memory.proposals.accept(pending.id, actor="ada")
    files.sync()
    assert dm.memory.persona() == "You are Breeze."
    assert soul.read_text() == "You are Breeze.\n"


@pytest.mark.promise("F6")
def test_the_agents_file_is_read_and_never_written(dm: duramen.Duramen, files: Files) -> None:
    fill(dm)
    files.sync()
    assert files.instructions() == ""
    agents = Path(files.root) / "AGENTS.md"
    assert not agents.exists()
    agents.write_text("Be brief.\n")
    files.sync()
    assert files.instructions() == "Be brief."
    assert agents.read_text() == "Be brief.\n"


@pytest.mark.promise("F4")
def test_runtime_files_never_become_knowledge(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.proposals.make("Ada prefers tea", subject="ada")
    files.sync()
    runtime = Path(files.root) / FOLDER / "runtime"
    assert "Ada prefers tea" in (runtime / "proposals.md").read_text()
    (runtime / "note.md").write_text("# A fact\n\nThe lot closes at 20:00.\n")
    (runtime / "proposals.md").write_text("# Mine\n\nThe lot closes at 20:00.\n")
    assert files.sync().edits == ()
    assert contents(dm) == []
    assert "Ada prefers tea" in (runtime / "proposals.md").read_text()


@pytest.mark.promise("F7", "G4")
def test_a_folder_belongs_to_one_workspace(any_address: str, tmp_path: Path) -> None:
    with duramen.open(any_address, embedder="none") as dm, dm.files(tmp_path / "m") as files:
        dm.memory.remember("Secret of the first")
        files.sync()
    if any_address == "memory:":
        return
    with duramen.open(any_address, embedder="none", workspace="other") as dm, dm.files(tmp_path / "m") as files:
        with pytest.raises(InvalidInput, match="workspace 'default'"):
            files.sync()
        assert contents(dm) == []


@pytest.mark.promise("F7")
def test_symbolic_links_are_neither_read_nor_written(dm: duramen.Duramen, files: Files, tmp_path: Path) -> None:
    dm.memory.remember("The refund window is 30 days")
    files.sync()
    outside = tmp_path / "outside.md"
    outside.write_text("# Secret\n\nThe vault code is 1234.\n")
    (path,) = memory_files(files, f"{FOLDER}/knowledge/facts")
    text = path.read_text()
    path.unlink()
    path.symlink_to(outside)
    (path.parent / "other.md").symlink_to(outside)
    done = files.sync()
    assert len(done.skipped) == 2
    assert contents(dm) == ["The refund window is 30 days"], "replacing a file by a link is not a deletion"
    assert outside.read_text() == "# Secret\n\nThe vault code is 1234.\n"
    path.unlink()
    path.write_text(text)
    assert "deleted" not in {one.what for one in files.sync().edits}


@pytest.mark.promise("F5")
@pytest.mark.parametrize("point", ["append.committed", "files.read_in", "files.written"])
def test_repeated_kills_lose_and_duplicate_nothing(tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(reached: str) -> None:
        if reached == point:
            raise Killed

    monkeypatch.setattr(folder_reader, "_SAVING", 0.0)
    clock = FakeClock()
    with duramen.open(tmp_path / "a.db", embedder="none", clock=clock) as dm:
        fill(dm)
        with dm.files(tmp_path / "m") as files:
            files.sync()
            (fact,) = [path for path in memory_files(files, f"{FOLDER}/knowledge/facts") if "refund" in path.name]
            fact.write_text(fact.read_text().replace("30 days", "45 days"))
            (fact.parent / "note.md").write_text("The lot closes at 20:00.\n")
            (tea,) = memory_files(files, "preference")
            tea.write_text(tea.read_text().replace("tea", "coffee"))
            (deleted,) = memory_files(files, f"{FOLDER}/knowledge/blockers")
            deleted.unlink()
        for _ in range(8):
            listen(die)
            try:
                with dm.files(tmp_path / "m") as files:
                    files.sync()
                    break
            except Killed:
                pass
            finally:
                listen(None)
        with dm.files(tmp_path / "m") as files:
            files.sync()
            assert not files.sync().changed
            before = tree(files)
        assert contents(dm) == sorted(
            [
                "The refund window is 45 days",
                "The lot closes at 20:00.",
                "The staging host is db-7",
                "The manual is at example.org/manual",
                "Ada prefers coffee",
                "Ada is left-handed",
                "deploy, version 1\n1. Build it\n2. Ship it",
            ]
        )
        subprocess.run(["rm", "-rf", str(tmp_path / "m")], check=True)
        with dm.files(tmp_path / "m") as files:
            files.sync()
            assert {path: text for path, text in tree(files).items() if not path.startswith("memory/")} == {
                path: text for path, text in before.items() if not path.startswith("memory/")
            }


@pytest.mark.promise("F5")
def test_a_killed_sync_leaves_no_temporary_files(tmp_path: Path, processes: ChildProcesses, everything: bool) -> None:
    count = 400 if everything else 100
    with duramen.open(tmp_path / "a.db", embedder="none") as dm:
        for number in range(count):
            dm.memory.remember(f"The lot {number} closes at 20:00")
    for pause in (0.02, 0.08, 0.2):
        child = processes.start("file_sync:sync_files", address=str(tmp_path / "a.db"), root=str(tmp_path / "m"))
        child.wait_for_lines(1)
        time.sleep(pause)  # a kill at any moment
        child.kill()
    with duramen.open(tmp_path / "a.db", embedder="none") as dm, dm.files(tmp_path / "m") as files:
        files.sync()
        assert len(memory_files(files, f"{FOLDER}/knowledge/facts")) == count
        assert contents(dm) == sorted(f"The lot {number} closes at 20:00" for number in range(count))
        other = [path.name for path in Path(files.root).rglob("*") if path.is_file() and path.suffix != ".md"]
        assert sorted(other) == ["lock", "manifest"]


@pytest.mark.promise("F8")
def test_each_memory_change_is_a_commit(dm: duramen.Duramen, tmp_path: Path) -> None:
    with dm.files(tmp_path / "m", git=True) as files:
        memory = dm.memory.remember("The refund window is 30 days")
        dm.memory.remember("The staging host is db-7")
        done = files.sync()
        assert done.skipped == ()
        assert len(done.commits) == 3
        log = _git(files, "log", "--format=%B")
        assert f"Event: {memory.source}" in log
        assert "fact: the-refund-window-is-30-days" in log
        (path, _) = memory_files(files, f"{FOLDER}/knowledge/facts")
        path.write_text(path.read_text().replace("30 days", "45 days"))
        files.sync()
        assert "(human)" in _git(files, "log", "-3", "--format=%s")
        assert _git(files, "status", "--porcelain", "--", "workspace/default/knowledge") == ""
        assert files.sync().commits == ()


def _git(files: Files, *command: str) -> str:
    return subprocess.run(["git", "-C", files.root, *command], check=True, capture_output=True, text=True).stdout


@pytest.mark.promise("F2", "K4")
def test_an_accepted_proposal_can_be_edited_and_is_recalled(dm: duramen.Duramen, files: Files) -> None:
    (proposal,) = (
        dm.session("one").turn("I prefer aisle seats.", model=lambda context: "Noted.", subject="ada").proposed
    )
    files.sync()
    assert memory_files(files, "preference") == []
    dm.memory.proposals.accept(proposal.id, actor="ada")
    files.sync()
    (path,) = memory_files(files, "preference")
    assert "The user prefers aisle seats" in path.read_text()
    path.write_text(path.read_text().replace("aisle seats", "window seats, never over the wing"))
    files.sync()
    recalled = dm.session("two").recall("Which seats does the user want?", subject="ada")
    assert "never over the wing" in recalled.text
    assert "aisle" not in recalled.text
