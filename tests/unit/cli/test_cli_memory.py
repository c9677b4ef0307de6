"""Memories, proposals and files on the command line."""

from __future__ import annotations

import datetime as dt
import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest
from programs import command_line
from programs.command_line import COMMAND, HOSTILE_TEXT, CommandResult, environment
from programs.paths import DATA

import duramen


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with duramen.open(tmp_path / "duramen.db", embedder="none") as dm:
        dm.session("one").turn("I prefer aisle seats.", model=lambda _: "Noted.", subject="ada")
        dm.memory.remember("The refund window is 30 days", key="refund", metadata={"tags": ["shop"]})
    return tmp_path


def run(*arguments: object, cwd: Path, stdin: str = "", **env: str) -> CommandResult:
    return command_line.run(*arguments, cwd=cwd, stdin=stdin, DURAMEN_EMBEDDER="none", **env)


def ids(result: CommandResult) -> list[Any]:
    assert result.code == 0, result.err
    return [one["id"] for one in result.lines]


@pytest.mark.promise("K4", "F2", "R6")
def test_a_proposal_becomes_a_memory_then_a_file_then_recalled_text(home: Path) -> None:
    shown = run("proposals", "list", cwd=home)
    assert 'The user prefers aisle seats  "I prefer aisle seats." (one#1)' in shown.out
    (proposal,) = ids(run("proposals", "list", "--json", cwd=home))
    assert "Accepted as memory" in run("proposals", "accept", proposal[:8], cwd=home).out
    twice = run("proposals", "accept", proposal, cwd=home)
    assert (twice.code, twice.out) == (2, "")
    assert "accepted by cli:" in twice.err
    assert "wrote     preference/" in run("sync", "files", cwd=home).out
    (path,) = (home / "files/preference").glob("*.md")
    assert "The user prefers aisle seats" in path.read_text()
    path.write_text(path.read_text().replace("aisle seats", "window seats, never over the wing"))
    assert "edited    preference/" in run("sync", "files", cwd=home).out
    assert "never over the wing" in run("memory", "search", "which seats", "--subject", "ada", cwd=home).out
    with duramen.open(home / "duramen.db", embedder="none") as dm:
        recalled = dm.session("two").recall("Which seats does the user want?", subject="ada").text
    assert "never over the wing" in recalled
    assert "aisle" not in recalled
    assert run("sync", "files", cwd=home).out == "Files and memories agree.\n"


def test_memories_are_added_shown_edited_and_forgotten(home: Path) -> None:
    added = run(
        "memory", "add", "-", "--kind", "blocker", "--tag", "ops", "--json", cwd=home, stdin="Deploys are denied"
    )
    (memory,) = ids(added)
    shown = run("memory", "show", memory[:6], cwd=home)
    assert "Deploys are denied" in shown.out
    assert 'tags: ["ops"]' in shown.out
    changed = run("memory", "edit", memory[:6], cwd=home, EDITOR="sed -i 's/are denied/are denied on Fridays/'")
    assert "Changed: " in changed.out
    (listed,) = run("memory", "list", "--kind", "blocker", "--json", cwd=home).lines
    assert (listed["content"], listed["metadata"]["tags"]) == ("Deploys are denied on Fridays", ["ops"])
    assert run("memory", "edit", listed["id"], cwd=home, EDITOR="true").out == "Nothing changed.\n"
    unasked = run("memory", "forget", listed["id"], cwd=home)
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    assert "Forgotten" in run("memory", "forget", listed["id"], "--yes", cwd=home).out
    assert ids(run("memory", "list", "--kind", "blocker", "--json", cwd=home)) == []
    empty = run("memory", "list", "--kind", "nothing", cwd=home)
    assert (empty.code, empty.out) == (0, "")
    assert "No memories match" in empty.err


def test_history_shows_the_author_of_each_version(home: Path) -> None:
    run("memory", "add", "The refund window is 45 days", "--key", "refund", cwd=home)
    (memory,) = ids(run("memory", "list", "--kind", "fact", "--json", cwd=home))
    first, second = run("memory", "history", memory, "--json", cwd=home).lines
    assert (first["content"], second["content"]) == ("The refund window is 30 days", "The refund window is 45 days")
    assert first["ended"] is not None
    assert second["actor"].startswith("cli:")
    assert run("memory", "history", memory, cwd=home).out.count("refund window") == 2


def test_an_invalid_edit_is_saved_in_a_file(home: Path) -> None:
    (memory,) = ids(run("memory", "list", "--json", cwd=home))
    broken = run("memory", "edit", memory, cwd=home, EDITOR="sed -i 's/^kind:.*/kind: [fact/'")
    assert broken.code == 2
    assert "line 4" in broken.err
    saved = Path(broken.err.rsplit("saved in ", 1)[1].strip())
    assert "kind: [fact" in saved.read_text()
    saved.unlink()
    for editor, message in (
        ("false", "exited with code 1"),
        ("/no/such/editor", "cannot be started"),
        ("vi 'half", "cannot be started"),
    ):
        failed = run("memory", "edit", memory, cwd=home, EDITOR=editor)
        assert failed.code == 2
        assert message in failed.err
    assert ids(run("memory", "list", "--json", cwd=home)) == [memory]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["memory", "show", "nosuch"], "duramen memory list"),
        (["proposals", "accept", "nosuch"], "duramen proposals list"),
        (["proposals", "list", "--state", "maybe"], "pending, accepted or dismissed"),
        (["import", "nowhere", "--format", "claude"], "does not exist"),
        (["import", ".", "--format", "word"], "claude, openclaw, basic-memory, jsonl"),
        (["export", "--format", "claude"], "--output"),
        (["export", "one", "--format", "claude", "-o", "x"], "SESSION"),
        (["export", "--subject", "ada"], "--subject"),
        (["sync", "--timeout", "1"], "--watch"),
        (["sync", "duramen.db"], "duramen.db"),
        (["memory", "list", "--store", "none.db"], "none.db"),
        (["memory", "add", " "], "nothing to remember"),
    ],
)
def test_errors_name_the_problem_or_the_fix(home: Path, command: list[str], message: str) -> None:
    result = run(*command, cwd=home)
    assert result.code == 2
    assert message in " ".join(result.err.split())


def test_proposals_are_dismissed_with_a_note(home: Path) -> None:
    (proposal,) = ids(run("proposals", "list", "--json", cwd=home))
    assert "not proposed again" in run("proposals", "dismiss", proposal, "--note", "not mine", cwd=home).out
    (dismissed,) = run("proposals", "list", "--state", "dismissed", "--json", cwd=home).lines
    assert (dismissed["note"], dismissed["state"]) == ("not mine", "dismissed")
    assert "There are no pending proposals" in run("proposals", "list", cwd=home).err


@pytest.mark.promise("F9")
def test_files_of_other_tools_are_imported_and_exported(home: Path) -> None:
    done = run("import", DATA / "claude", "--format", "claude", "--subject", "ines", "--json", cwd=home)
    assert done.code == 0
    assert (done.lines[0]["skipped"], len(done.lines[0]["proposed"])) == ([], 2)
    proposed = run("import", DATA / "claude", "-f", "claude", "--subject", "ines", cwd=home)
    assert "duramen proposals list" in proposed.err
    trusted = run("import", DATA / "claude", "-f", "claude", "--subject", "ines", "--trusted", cwd=home).out
    assert "2 remembered, 0 proposed" in trusted
    assert (
        "0 remembered, 0 proposed" in run("import", DATA / "claude", "-f", "claude", "--subject", "ines", cwd=home).out
    )
    assert run("export", "--format", "claude", "--output", "out", cwd=home).code == 0
    before = {path.name: path.read_bytes() for path in (DATA / "claude").glob("*.md")}
    after = {path.name: path.read_bytes() for path in (home / "out").glob("*.md")}
    assert {name: after[name] for name in before if name != "MEMORY.md"} == {
        name: text for name, text in before.items() if name != "MEMORY.md"
    }
    (home / "bad.jsonl").write_text('{"text": "One"}\nno\n')
    bad = run("import", "bad.jsonl", "-f", "jsonl", cwd=home)
    assert bad.code == 1
    assert "bad.jsonl, line 2" in bad.err


@pytest.mark.promise("F2", "F8")
def test_sync_watch_reports_edits_and_commits_them(home: Path) -> None:
    run("sync", "files", "--git", cwd=home)
    watching = subprocess.Popen(
        [*COMMAND, "sync", "files", "--watch", "--git", "--json", "--timeout", "20"],
        stdout=subprocess.PIPE,
        cwd=home,
        env=environment(DURAMEN_EMBEDDER="none"),
        text=True,
    )
    assert watching.stdout is not None
    try:
        (path,) = (home / "files/workspace/default/knowledge/facts").glob("*.md")
        path.write_text(
            path.read_text().replace("\nThe refund window is 30 days\n", "\nThe refund window is 45 days\n")
        )
        report = json.loads(watching.stdout.readline())
    finally:
        watching.terminate()
        watching.wait()
        watching.stdout.close()
    assert [one["what"] for one in report["edits"]] == ["edited"]
    assert len(report["commits"]) == 2


def test_sync_reports_malformed_files_with_their_line(home: Path) -> None:
    run("sync", "files", cwd=home)
    (home / "files/preference").mkdir(exist_ok=True)
    (home / "files/preference/bad.md").write_text("---\nkind: [x\n---\n")
    result = run("sync", "files", cwd=home)
    assert result.code == 1
    assert "preference/bad.md, line 3" in result.err


@pytest.mark.promise("S3")
def test_search_explains_each_score(home: Path) -> None:
    searched = run("memory", "search", "refund window", "--explain", cwd=home)
    assert "score " in searched.out
    assert "recency  " in searched.out
    assert "there is no embedder" in searched.err
    (hit,) = run("memory", "search", "refund window", "--json", cwd=home).lines
    assert sum(hit["parts"].values()) == pytest.approx(hit["score"], abs=1e-4)


@pytest.mark.promise("K1")
def test_a_memory_can_be_confirmed(home: Path) -> None:
    (before,) = run("memory", "list", "--kind", "fact", "--json", cwd=home).lines
    assert "Confirmed: " in run("memory", "confirm", before["id"][:8], cwd=home).out
    (after,) = run("memory", "list", "--kind", "fact", "--json", cwd=home).lines
    assert after["confirmed"] > before["confirmed"]


def test_forget_reports_what_it_erased(home: Path) -> None:
    (memory,) = ids(run("memory", "list", "--kind", "fact", "--json", cwd=home))
    assert "1 versions, 1 texts" in run("memory", "forget", memory, "--yes", cwd=home).out
    assert b"refund window" not in (home / "duramen.db").read_bytes()


@pytest.mark.parametrize(("answer", "stays"), [("n", True), ("", True), ("y", False)])
def test_forget_asks_for_confirmation_on_a_terminal(home: Path, answer: str, stays: bool) -> None:
    (memory,) = ids(run("memory", "list", "--kind", "fact", "--json", cwd=home))
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "memory", "forget", memory],
        cwd=home,
        env=environment(DURAMEN_EMBEDDER="none"),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        os.write(master, f"{answer}\n".encode())
        output = b"".join(process.communicate(timeout=60))
    os.close(slave)
    os.close(master)
    assert b"The refund window is 30 days" in output
    assert b"Traceback" not in output
    assert bool(ids(run("memory", "list", "--kind", "fact", "--json", cwd=home))) is stays


def test_memories_cannot_control_the_terminal(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "duramen.db", embedder="none") as dm:
        id = dm.memory.remember(
            f"{HOSTILE_TEXT}\nsecond line",
            title=HOSTILE_TEXT,
            key=HOSTILE_TEXT[:40],
            metadata={HOSTILE_TEXT: HOSTILE_TEXT},
        ).id
        dm.memory.proposals.make(HOSTILE_TEXT, evidence=HOSTILE_TEXT)
    for command in (
        ["memory", "list"],
        ["memory", "show", id],
        ["memory", "history", id],
        ["memory", "search", "hi", "--explain"],
        ["proposals", "list"],
        ["sync", "files"],
    ):
        shown = run(*command, cwd=tmp_path)
        assert shown.code == 0
        assert not {"\x1b", "\x9b", "\u202e", "\x07"} & set(shown.out + shown.err), command


def test_metadata_without_a_json_type_is_shown(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "duramen.db", embedder="none") as dm:
        day = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
        id = dm.memory.remember("The lease ends", metadata={"on": day, "parts": [1, b"\x00"]}).id
    (memory,) = run("memory", "show", id, "--json", cwd=tmp_path).lines
    assert memory["metadata"]["on"] == {"$type": "datetime", "value": "2026-05-01T00:00:00+00:00"}
    assert "2026-05-01" in run("memory", "show", id, cwd=tmp_path).out
