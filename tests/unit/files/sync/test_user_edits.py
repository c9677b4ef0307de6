"""Memory files edited by people: fields, renames, copies, editors, unusual content, git and several processes."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs.child_processes import ChildProcesses, until

import duramen
from duramen import Files
from duramen.files.folder.watcher import Watcher
from duramen.testing.clock import FakeClock

FACTS = "workspace/default/knowledge/facts"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def dm(tmp_path: Path, clock: FakeClock) -> Iterator[duramen.Duramen]:
    with duramen.open(tmp_path / "agent.db", embedder="none", clock=clock) as opened:
        yield opened


@pytest.fixture
def files(dm: duramen.Duramen, tmp_path: Path) -> Iterator[Files]:
    with dm.files(tmp_path / "m") as opened:
        yield opened


def memory_files(files: Files, folder: str = FACTS) -> list[Path]:
    return sorted((Path(files.root) / folder).glob("*.md"))


def contents(dm: duramen.Duramen) -> list[str]:
    return sorted(one.content for one in dm.memory.list(everyone=True))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# -- fields


@pytest.mark.promise("F1")
def test_the_front_matter_has_every_field(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember(
        "The refund window is 30 days\n\nSince May.", metadata={"tags": ["shop"], "evidence": ["the contract"]}
    )
    dm.memory.remember("Ada prefers tea", kind="preference", subject="ada")
    files.sync()
    (path,) = memory_files(files)
    front = path.read_text().split("---\n")[1]
    assert [line.split(":")[0] for line in front.splitlines()] == [
        *("id", "kind", "summary", "tags", "policy", "observed", "verified", "source")
    ]
    assert "summary: The refund window is 30 days\n" in front
    assert path.read_text().endswith("Since May.\n\n## Evidence\n\n- the contract\n")
    (tea,) = memory_files(files, "preference")
    assert "policy: none\n" in tea.read_text()
    assert "[preference] [verify: none] - Ada prefers tea" in (Path(files.root) / "MEMORY.md").read_text()


@pytest.mark.promise("F1", "K4")
def test_the_evidence_of_a_proposal_is_in_the_file(dm: duramen.Duramen, files: Files) -> None:
    (proposal,) = dm.session("one").turn("I prefer aisle seats.", model=lambda _: "Noted.", subject="ada").proposed
    dm.memory.proposals.accept(proposal.id, actor="ada")
    files.sync()
    (path,) = memory_files(files, "preference")
    assert "## Evidence\n\n- I prefer aisle seats." in path.read_text()


@pytest.mark.promise("F2")
def test_an_edit_keeps_the_other_fields(dm: duramen.Duramen, files: Files, clock: FakeClock) -> None:
    end = dt.datetime(2031, 1, 1, tzinfo=dt.UTC)
    dm.memory.remember("Ada is on call", subject="ada", scope="workspace", valid_to=end, speaker="bo", importance=0.9)
    dm.memory.remember("The sale runs", ttl=3600)
    files.sync()
    for path in memory_files(files):
        path.write_text(path.read_text().replace("is on call", "is on call at night").replace("runs", "runs well"))
    files.sync()
    ada, sale = (next(one for one in dm.memory.list() if word in one.content) for word in ("night", "well"))
    assert (ada.scope, ada.subject, ada.valid_to, ada.speaker, ada.importance) == ("workspace", "ada", end, "bo", 0.9)
    assert sale.expires is not None
    clock.advance(4000)
    files.sync()
    assert len(memory_files(files)) == 1, "the other one expired"


@pytest.mark.promise("F2")
def test_an_edited_summary_stays_and_a_generated_one_follows_the_text(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("The refund window is 30 days")
    files.sync()
    (path,) = memory_files(files)
    edit(path, "\nThe refund window is 30 days\n", "\nThe refund window is 45 days\n")
    files.sync()
    assert "summary: The refund window is 45 days" in path.read_text()
    edit(path, "summary: The refund window is 45 days", "summary: Refunds in short")
    files.sync()
    path.write_text(path.read_text().replace("is 45 days", "is 60 days"))
    files.sync()
    assert "summary: Refunds in short" in path.read_text()
    assert contents(dm) == ["The refund window is 60 days"]
    assert "- Refunds in short" in (Path(files.root) / "workspace/default/MEMORY.md").read_text()


@pytest.mark.promise("F2", "K1")
def test_a_later_verified_time_verifies_the_memory(dm: duramen.Duramen, files: Files, clock: FakeClock) -> None:
    dm.memory.remember("The manual is at example.org", kind="reference")
    files.sync()
    clock.advance(20 * 86_400)
    assert dm.memory.recall("manual").hits[0].note
    (path,) = memory_files(files, "workspace/default/knowledge/reference")
    lines = path.read_text().split("\n")
    path.write_text("\n".join("verified: 9997-01-01" if one.startswith("verified") else one for one in lines))
    assert [one.what for one in files.sync().edits] == ["verified"]
    assert not dm.memory.recall("manual").hits[0].note
    assert "9997" not in path.read_text()
    assert next(iter(dm.session("@memory").events(backwards=True))).actor == "human"
    assert not files.sync().changed


@pytest.mark.promise("F2", "P2")
def test_every_part_of_a_procedure_can_be_edited(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.procedures.save("deploy", ["Build it", "Ship it"], standing=True)
    files.sync()
    (path,) = memory_files(files, "workspace/default/knowledge/procedures")
    edit(path, "policy:", "tags: [ops]\npolicy:")
    edit(path, "\n## Steps", "\nOnly on weekdays.\n\n## Steps")
    path.write_text(path.read_text() + "\n## Evidence\n\n- the runbook\n")
    assert [one.what for one in files.sync().edits] == ["edited"]
    text = path.read_text()
    assert "tags: [ops]" in text
    assert "Only on weekdays.\n\n## Steps" in text
    assert "- the runbook" in text
    (way,) = dm.memory.procedures.list()
    assert (way.version, way.steps, way.standing) == (2, ("Build it", "Ship it"), True)
    assert not files.sync().changed
    edit(path, "Only on weekdays.\n\n", "")
    files.sync()
    assert "weekdays" not in path.read_text()
    assert dm.memory.procedures.list()[0].version == 3


def test_a_procedure_without_a_title_is_named_after_the_file(dm: duramen.Duramen, files: Files) -> None:
    files.sync()
    folder = Path(files.root) / "workspace/default/knowledge/procedures"
    folder.mkdir(parents=True)
    (folder / "close-the-till.md").write_text("## Steps\n\n1. Count\n2. Sign\n")
    files.sync()
    assert [(one.name, one.steps) for one in dm.memory.procedures.list()] == [("close-the-till", ("Count", "Sign"))]
    assert not files.sync().changed


# -- names and content of files


@pytest.mark.promise("F2")
@pytest.mark.parametrize("key", [None, "staging host"])
def test_a_renamed_file_keeps_its_new_name(dm: duramen.Duramen, files: Files, key: str | None) -> None:
    memory = dm.memory.remember("The staging host is db-7", key=key)
    files.sync()
    (path,) = memory_files(files)
    path.rename(path.parent / "my own name.md")
    done = files.sync()
    assert [one.what for one in done.edits] == ["edited"]
    assert [one.name for one in memory_files(files)] == ["my own name.md"]
    assert [one.id for one in dm.memory.list()] == [memory.id]
    assert not files.sync().changed
    assert "my%20own%20name.md" in (Path(files.root) / "workspace/default/MEMORY.md").read_text()


@pytest.mark.promise("F2")
def test_a_file_moved_to_the_folder_of_another_kind_changes_its_kind(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("Deploys to prod are denied")
    files.sync()
    (path,) = memory_files(files)
    target = Path(files.root) / "workspace/default/knowledge/blockers" / path.name
    target.parent.mkdir()
    path.rename(target)
    files.sync()
    assert [one.kind for one in dm.memory.list()] == ["blocker"]
    assert memory_files(files) == []
    assert "kind: blocker" in target.read_text()
    assert not files.sync().changed


@pytest.mark.promise("F2")
def test_a_copied_file_is_reported_until_its_id_is_removed(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("The refund window is 30 days")
    files.sync()
    (path,) = memory_files(files)
    copy = path.parent / "copy.md"
    copy.write_text(path.read_text().replace("30", "90"))
    for _ in range(2):
        (skipped,) = files.sync().skipped
        assert "a copy of" in skipped.reason
    copy.write_text("\n".join(line for line in copy.read_text().split("\n") if not line.startswith("id:")))
    assert files.sync().skipped == ()
    assert contents(dm) == ["The refund window is 30 days", "The refund window is 90 days"]


@pytest.mark.promise("F2")
def test_an_editor_that_renames_the_file_while_saving_deletes_nothing(dm: duramen.Duramen, files: Files) -> None:
    memory = dm.memory.remember("The refund window is 30 days")
    files.sync()
    (path,) = memory_files(files)
    text = path.read_text()
    path.rename(f"{path}~")
    saved = threading.Timer(0.1, lambda: path.write_text(text))
    saved.start()
    done = files.sync()
    saved.join()
    assert done.edits == ()
    assert dm.memory.get(memory.id).current
    for temporary in (f".{path.name}.swp", f".#{path.name}", "4913", f"#{path.name}#"):
        (path.parent / temporary).write_text("temporary")
    assert files.sync().skipped == ()
    assert contents(dm) == ["The refund window is 30 days"]


@pytest.mark.promise("F2")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\xef\xbb\xbf# Ferry\r\n\r\nIt leaves at 8.\r\n", "It leaves at 8."),
        (b"It leaves at 8.", "It leaves at 8."),
        ("Ägypten über Öre: 東京 🚢".encode(), "Ägypten über Öre: 東京 🚢"),
        (b"x" * 5_000_000, "x" * 5_000_000),
    ],
)
def test_files_of_any_editor_are_imported(dm: duramen.Duramen, files: Files, body: bytes, expected: str) -> None:
    files.sync()
    path = Path(files.root) / FACTS / "note.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(body)
    assert files.sync().skipped == ()
    assert contents(dm) == [expected]
    assert not files.sync().changed


@pytest.mark.promise("F2")
@pytest.mark.parametrize(
    "body", [b"\xff\xfe\x00binary", b"---\nkind: fact\n", b"", b"<<<<<<< ours\na\n", b"y" * 9_000_000]
)
def test_an_invalid_file_is_reported_and_left_unchanged(dm: duramen.Duramen, files: Files, body: bytes) -> None:
    files.sync()
    path = Path(files.root) / FACTS / "note.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(body)
    for _ in range(2):
        assert [one.path for one in files.sync().skipped] == [f"{FACTS}/note.md"]
    assert contents(dm) == []
    assert path.read_bytes() == body


@pytest.mark.promise("F7")
def test_unsafe_file_names_are_skipped(dm: duramen.Duramen, files: Files) -> None:
    files.sync()
    folder = Path(files.root) / FACTS
    folder.mkdir(parents=True)
    for name in ("CON.md", "a\\b.md", "Tea.md", "tea.md", "%2e%2e.md", "été.md"):
        (folder / name).write_text(f"Something about {name!r}")
    skipped = {one.path.rpartition("/")[2] for one in files.sync().skipped}
    assert skipped == {"CON.md", "a\\b.md", "tea.md", "%2e%2e.md"}
    assert len(contents(dm)) == 2
    dm.memory.remember("A long one", title="ä" * 300)
    dm.memory.remember("Reserved", title="NUL")
    assert {one.path.rpartition("/")[2] for one in files.sync().skipped} == skipped
    assert len(memory_files(files)) == 8


# -- indexes and logs


@pytest.mark.promise("F2", "F6")
def test_lines_added_by_hand_to_indexes_and_logs_are_kept(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("The refund window is 30 days", key="refund")
    files.sync()
    (day,) = memory_files(files, "memory")
    index = Path(files.root) / "workspace/default/MEMORY.md"
    for path in (day, index):
        path.write_text(path.read_text() + "\n## Mine\n- a line of my own\n")
    for number in (45, 60):
        dm.memory.remember(f"The refund window is {number} days", key="refund")
        files.sync()
        for path in (day, index):
            assert path.read_text().count("## Mine\n- a line of my own\n") == 1
            assert f"{number} days" in path.read_text()
    assert "30 days" not in index.read_text()
    assert not files.sync().changed


# -- erasure


@pytest.mark.promise("G3")
def test_erasing_a_subject_reaches_files_logs_and_the_manifest(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("Ada is called Zanzibarella", kind="identity", subject="ada")
    dm.memory.remember("Zanzibarella prefers tea", kind="preference", subject="ada")
    dm.memory.proposals.make("Zanzibarella likes trains", subject="ada")
    files.sync()
    dm.memory.remember("Zanzibarella has a dog", kind="identity", subject="ada")
    files.sync()
    (tea,) = memory_files(files, "preference")
    tea.write_text(tea.read_text() + "\nZanzibarella drinks it black.\n")
    dm.erase("ada")
    files.sync()
    for path in Path(files.root).rglob("*"):
        if path.is_file():
            assert b"anzibarella" not in path.read_bytes(), path
            assert "zanzibarella" not in path.name


# -- watching


@pytest.mark.promise("F2")
@pytest.mark.parametrize("notified", [True, False])
def test_a_watch_imports_hand_edits(
    dm: duramen.Duramen, files: Files, notified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not notified:
        monkeypatch.setattr("duramen.files.folder.watcher._LOCAL", set())
        files = dm.files(Path(files.root))
    dm.memory.remember("The refund window is 30 days")
    watch = files.watch(0.05)
    next(watch)
    (path,) = memory_files(files)
    edit(path, "\nThe refund window is 30 days", "\nThe refund window is 45 days")
    assert [one.what for one in next(watch).edits] == ["edited"]
    (path.parent / "parking.md").write_text("The lot closes at 20:00")
    assert [one.what for one in next(watch).edits] == ["added"]
    dm.memory.remember("Said by the agent")
    assert any("said-by-the-agent" in one for one in next(watch).written)
    path.unlink()
    assert [one.what for one in next(watch).edits] == ["deleted"]
    assert contents(dm) == ["Said by the agent", "The lot closes at 20:00"]
    for name in os.listdir(path.parent):
        (path.parent / name).unlink()
    path.parent.rmdir()
    assert {one.what for one in next(watch).edits} == {"deleted"}
    assert contents(dm) == []
    assert {one.actor for one in dm.session("@memory").events(types="memory.retired")} == {"human"}


@pytest.mark.promise("F2")
def test_the_watcher_reports_changed_files_and_ignores_internal_ones(tmp_path: Path) -> None:
    (tmp_path / ".duramen").mkdir()
    with Watcher(str(tmp_path)) as watcher:
        while watcher.changed():
            pass
        (tmp_path / ".duramen" / "manifest").write_text("{}")
        (tmp_path / ".a.md.0123abcd.tmp").write_text("half")
        time.sleep(0.05)
        assert not watcher.changed()
        (tmp_path / "preference").mkdir()
        (tmp_path / "preference" / "a.md").write_text("Tea")
        until(watcher.changed, "a reported change")


@pytest.mark.promise("F2")
def test_without_notifications_the_watcher_assumes_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duramen.files.folder.watcher._AT_LEAST_EVERY", 0.0)
    with Watcher(str(tmp_path)) as watcher:
        assert watcher.changed()
        assert watcher.changed()
    monkeypatch.setattr("duramen.files.folder.watcher._LOCAL", set())
    with Watcher(str(tmp_path)) as watcher:
        assert watcher.changed()
        assert watcher.changed()


@pytest.mark.promise("F2")
def test_the_async_api_syncs_and_watches(tmp_path: Path) -> None:
    async def main() -> list[str]:
        async with await duramen.aopen(tmp_path / "a.db", embedder="none") as dm, dm.files(tmp_path / "m") as files:
            await dm.memory.remember("The refund window is 30 days")
            await files.sync()
            (path,) = (tmp_path / "m" / FACTS).glob("*.md")
            edit(path, "\nThe refund window is 30 days", "\nThe refund window is 45 days")
            async for done in files.watch(0.05):
                assert [one.what for one in done.edits] == ["edited"]
                break
            return [one.content async for one in dm.memory.list()]

    assert asyncio.run(main()) == ["The refund window is 45 days"]


# -- processes


@pytest.mark.promise("F5")
def test_two_processes_can_sync_one_folder(tmp_path: Path, processes: ChildProcesses) -> None:
    places: dict[str, Any] = {"address": str(tmp_path / "a.db"), "root": str(tmp_path / "m")}
    children = [
        processes.start("file_sync:remember_and_sync", **places, name=name, count=15)
        for name in ("The lot", "The shop")
    ]
    for child in children:
        child.finish(within=120)
    with duramen.open(tmp_path / "a.db", embedder="none") as dm, dm.files(tmp_path / "m") as files:
        done = files.sync()
        assert not done.changed
        assert len(memory_files(files)) == 30
        assert len(contents(dm)) == 30
        assert (Path(files.root) / "workspace/default/MEMORY.md").read_text().count("closes at") == 60


@pytest.mark.promise("F5")
def test_a_killed_sync_causes_no_conflict(dm: duramen.Duramen, files: Files, tmp_path: Path) -> None:
    from duramen.crash_points import listen

    dm.memory.remember("The refund window is 30 days")
    files.sync()
    (path,) = memory_files(files)
    edit(path, "\nThe refund window is 30 days", "\nThe refund window is 45 days")

    def die(point: str) -> None:
        if point == "files.read_in":
            raise KeyboardInterrupt

    listen(die)
    try:
        with pytest.raises(KeyboardInterrupt):
            files.sync()
    finally:
        listen(None)
    with dm.files(tmp_path / "m") as again:
        assert again.sync().conflicts == ()
        (memory,) = dm.memory.list()
        assert (memory.content, memory.times) == ("The refund window is 45 days", 1)
        assert "conflicts_with" not in memory.metadata
        assert not again.sync().changed


POINTS = ["append.encoded", "append.begun", "append.inserted", "append.committed"]
POINTS += [
    "files.read_in",
    "files.intended",
    "files.temp_written",
    "files.published",
    "files.written",
    "files.uncommitted",
    "files.saved",
]


@pytest.mark.promise("F5", "F8")
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_loses_and_duplicates_nothing(
    tmp_path: Path, processes: ChildProcesses, point: str
) -> None:
    with duramen.open(tmp_path / "a.db", embedder="none") as dm, dm.files(tmp_path / "m", git=True) as files:
        for text in ("The refund window is 30 days", "The staging host is db-7", "The lot closes at 20:00"):
            dm.memory.remember(text)
        dm.memory.remember("Ada prefers tea", kind="preference", subject="ada")
        files.sync()
        refund, lot = (next(one for one in memory_files(files) if word in one.name) for word in ("refund", "lot"))
        edit(refund, "\nThe refund window is 30 days", "\nThe refund window is 45 days")
        (tea,) = memory_files(files, "preference")
        edit(tea, "\nAda prefers tea", "\nAda prefers coffee")
        lot.unlink()
        (refund.parent / "new.md").write_text("The shop opens at 9")
        dm.memory.remember("Said by the agent")
    for visit in (1, 2):
        places: dict[str, Any] = {"address": str(tmp_path / "a.db"), "root": str(tmp_path / "m")}
        child = processes.start("file_sync:sync_files", **places, git=True, die=(point, visit))
        assert child.wait() in (0, -signal.SIGKILL), child.errors()
    with duramen.open(tmp_path / "a.db", embedder="none") as dm, dm.files(tmp_path / "m", git=True) as files:
        done = files.sync()
        assert (done.skipped, done.conflicts) == ((), ())
        assert not files.sync().changed
        expected = ["Ada prefers coffee", "Said by the agent", "The refund window is 45 days"]
        assert contents(dm) == [*expected, "The shop opens at 9", "The staging host is db-7"]
        assert len(memory_files(files)) == 4
        names = [one.name for one in Path(files.root).rglob("*") if one.is_file() and ".git/" not in str(one)]
        assert {one for one in names if not one.endswith(".md")} <= {"lock", "manifest", "manifest-changes"}
        assert git(files, "status", "--porcelain") == "?? .duramen/\n?? workspace/default/runtime/\n"


# -- git


def git(files: Files, *command: str) -> str:
    return subprocess.run(["git", "-C", files.root, *command], check=True, capture_output=True, text=True).stdout


@pytest.mark.promise("F8")
def test_a_commit_that_a_hook_rejected_is_made_later(dm: duramen.Duramen, tmp_path: Path) -> None:
    with dm.files(tmp_path / "m", git="trusted") as files:
        subprocess.run(["git", "init", "-q", files.root], check=True)
        (tmp_path / "m/README.md").write_text("a file of the user\n")
        hook = tmp_path / "m/.git/hooks/pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho no commits on Mondays >&2\nexit 1\n")
        hook.chmod(0o755)
        dm.memory.remember("The refund window is 30 days", actor="ada")
        done = files.sync()
        assert "no commits on Mondays" in done.skipped[0].reason
        assert done.commits == ()
        assert len(memory_files(files)) == 1
        hook.unlink()
    with dm.files(tmp_path / "m", git=True) as files:
        assert len(files.sync().commits) == 2
        assert "fact: the-refund-window-is-30-days" in git(files, "log", "--format=%s")
        assert "Actor: ada" in git(files, "log", "--format=%b")
        assert git(files, "status", "--porcelain") == "?? .duramen/\n?? README.md\n?? workspace/default/runtime/\n"
        (path,) = memory_files(files)
        path.unlink()
        done = files.sync()
        assert len(done.commits) == 2
        (retired,) = dm.session("@memory").events(types="memory.retired")
        assert f"Event: @memory#{retired.position}" in git(files, "log", "-2", "--format=%B")
        assert "deleted (human)" in git(files, "log", "-2", "--format=%s")


@pytest.mark.promise("F8")
def test_files_are_written_without_git(dm: duramen.Duramen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dm.memory.remember("The refund window is 30 days")
    with dm.files(tmp_path / "m", git=True) as files:
        monkeypatch.setenv("PATH", str(tmp_path))
        (skipped,) = files.sync().skipped
        assert "git cannot be started" in skipped.reason
        assert len(memory_files(files)) == 1


# -- workspaces, prompts and history


@pytest.mark.promise("F7", "G4")
def test_without_a_manifest_the_folders_name_the_workspace(dm: duramen.Duramen, files: Files, tmp_path: Path) -> None:
    dm.memory.remember("Ada prefers tea", kind="preference", subject="ada")
    files.sync()
    subprocess.run(["rm", "-rf", str(Path(files.root) / ".duramen")], check=True)
    with (
        duramen.open(tmp_path / "agent.db", embedder="none", workspace="other") as other,
        other.files(files.root) as other_files,
        pytest.raises(duramen.errors.InvalidInput, match="'default'"),
    ):
        other_files.sync()
    assert not files.sync().changed


@pytest.mark.promise("F6")
def test_the_persona_and_agents_file_are_in_the_system_prompt(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.proposals.make("You are Harbour.", kind="persona", accepted=True, actor="ada")
    (Path(files.root) / "AGENTS.md").write_text("Answer in one line.\n")
    seen: list[str] = []

    def model(context: duramen.Context) -> str:
        seen.append(context.anthropic()["system"])
        return "Yes."

    dm.session("s").turn("Hello?", model=model, system="Today is Monday.", files=files)
    assert seen[0].startswith("You are Harbour.\n\nAnswer in one line.\n\nToday is Monday.")


def test_a_sync_does_not_touch_the_progress_file_of_a_session(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("The refund window is 30 days")
    session = dm.session("work")
    session.progress.keep_in(Path(files.root) / "PROGRESS.md").begin("Ship it", next_action="Build it")
    files.sync()
    assert "Build it" in (Path(files.root) / "PROGRESS.md").read_text()
    before = (Path(files.root) / "PROGRESS.md").stat().st_mtime_ns
    time.sleep(0.01)
    assert files.sync().skipped == ()
    assert (Path(files.root) / "PROGRESS.md").stat().st_mtime_ns == before


@pytest.mark.promise("F2")
def test_the_history_contains_the_content_before_each_edit(dm: duramen.Duramen, files: Files) -> None:
    dm.memory.remember("The refund window is 30 days")
    other = dm.memory.remember("The staging host is db-7", cause="somewhere#1")
    for old, new in (("30 days", "45 days"), ("45 days", "60 days")):
        files.sync()
        (path,) = (one for one in memory_files(files) if "refund" in one.name)
        edit(path, f"\nThe refund window is {old}", f"\nThe refund window is {new}")
    files.sync()
    (memory,) = (one for one in dm.memory.list() if one.id != other.id)
    versions = [one.content for one in dm.memory.history(memory.id)]
    assert versions == [f"The refund window is {days} days" for days in (30, 45, 60)]
    assert [one.content for one in dm.memory.history(other.id)] == ["The staging host is db-7"]
    dm.memory.forget(dm.memory.history(memory.id)[1].id)
    assert [one.content for one in dm.memory.history(memory.id)] == ["The refund window is 60 days"]
