"""Progress with one git commit for each change, also over several runs of a program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from programs.child_processes import ChildProcess, ChildProcesses
from programs.side_effects import Open

import duramen
from duramen.context.progress.progress_file import parse
from duramen.errors import DuramenError

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
TOKEN = "ghp_" + "a1" * 15


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder without git settings, outside any repository."""
    for name in [name for name in os.environ if name.startswith("GIT_") or name in ("EMAIL", "XDG_CONFIG_HOME")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project" / "PROGRESS.md"


def git(path: Path, *command: str) -> str:
    ran = subprocess.run(["git", *command], cwd=path.parent, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def subjects(path: Path) -> list[str]:
    """The subjects of the commits, oldest first."""
    return git(path, "log", "--reverse", "--format=%s").splitlines()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_each_change_is_one_commit(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path, git=True)
    progress.begin("Ship it", next_action="write it")
    (path.parent / "code.py").write_text("1\n")
    progress.complete("write it", next_action="test\nit")
    progress.complete("write it")
    progress.block("no key")
    progress.unblock()
    progress.plan("publish it")
    progress.describe("words")
    progress.finish("publish it")
    progress.reopen("mend it")
    assert progress.sync().commit is None
    assert subjects(path) == [
        "Begin",
        "Begin: Ship it",
        "Complete: write it",
        "Blocked: no key",
        "Unblocked",
        "Next: publish it",
        "Context",
        "Finished",
        "Reopened: mend it",
    ]
    assert git(path, "log", "--format=", "--name-only").split() == ["PROGRESS.md"] * 9, "no other file is committed"
    assert parse(git(path, "show", "HEAD~6:PROGRESS.md")).progress.completed == ("write it",)
    assert git(path, "status", "--porcelain") == "?? code.py"


def test_hand_edits_are_committed(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path, git=True)
    progress.begin("Ship it", next_action="write it")
    edit(path, "## Context\n", "## Context\nby hand\n")
    commit = progress.sync().commit
    assert commit == git(path, "rev-parse", "HEAD")
    assert subjects(path)[-1] == "Edited by hand"
    edit(path, "by hand", "by hand again")
    assert progress.sync(message="What Ada wrote").commit is not None
    assert subjects(path)[-1] == "What Ada wrote"
    assert "by hand again" in git(path, "show", "HEAD:PROGRESS.md")


def test_credentials_are_neither_in_the_file_nor_in_its_history(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path, git=True)
    progress.begin(f"use {TOKEN}", next_action="n")
    progress.complete("y" * 171 + f" {TOKEN}")
    edit(path, "## Context\n", f"## Context\nthe key is {TOKEN}\n")
    assert progress.sync().edited
    assert [progress.sync().edited, progress.sync().edited] == [False, False], "the edit is reported once"
    assert "ghp_" not in path.read_text()
    assert "ghp_" not in git(path, "log", "--format=%B")
    assert "ghp_" not in repr(list(open_one().session("s").events()))


def test_a_change_is_journaled_even_if_git_rejects_the_commit(open_one: Open, path: Path) -> None:
    progress = open_one().session("s").progress.keep_in(path, git="trusted")
    progress.begin("Ship it", next_action="write it")
    hook = path.parent / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    for step in ("one", "two"):
        with pytest.raises(DuramenError, match="not today"):
            progress.complete(step)
    assert open_one().session("s").progress.completed == ("one", "two")
    assert parse(path.read_text()).progress.completed == ("one", "two")
    hook.unlink()
    assert progress.complete("two").completed == ("one", "two")
    assert subjects(path) == ["Begin", "Begin: Ship it", "Complete: two"]
    assert parse(git(path, "show", "HEAD:PROGRESS.md")).progress.completed == ("one", "two")


def run(
    processes: ChildProcesses, address: str, path: Path, step: str, die: tuple[str, int] | None = None
) -> ChildProcess:
    """One run of the program, to its end."""
    given: dict[str, Any] = {"address": address, "path": str(path), "step": step, "environment": dict(os.environ)}
    child = processes.start("file_sync:complete_with_git", **given, die=die)
    child.wait()
    return child


@pytest.mark.promise("H2")
def test_the_first_run_initialises_and_later_runs_continue(
    path: Path, tmp_path: Path, processes: ChildProcesses
) -> None:
    address = str(tmp_path / "agent.db")
    for number in range(3):
        assert run(processes, address, path, f"step {number}").finish() == [str(number)]
    assert subjects(path) == ["Begin", "Begin: Ship it", *(f"Complete: step {number}" for number in range(3))]
    with duramen.open(address) as dm:
        assert dm.session("s").progress.completed == ("step 0", "step 1", "step 2")
        assert len(list(dm.session("s").events(types="progress.changed"))) == 4


@pytest.mark.promise("H2", "J4")
@pytest.mark.parametrize("visit", [1, 2, 3, 4, 5])
def test_a_run_continues_after_a_kill_of_the_first(
    path: Path, tmp_path: Path, processes: ChildProcesses, visit: int
) -> None:
    """The kill comes at 1: the file is recorded, 2 and 3: the goal, 4 and 5: the step (the change, then the file)."""
    address = str(tmp_path / "agent.db")
    assert run(processes, address, path, "step", die=("checkpoint.encoded", visit)).wait() == -signal.SIGKILL
    run(processes, address, path, "step").finish()
    assert parse(path.read_text()).progress.completed == ("step",)
    assert git(path, "status", "--porcelain") == ""
    commits = subjects(path)
    assert commits[0] == "Begin"
    assert len(commits) == len(set(commits)), "each once"
    assert commits[-1] == "Complete: step" or visit == 5
    with duramen.open(address) as dm:
        events = list(dm.session("s").events(types="progress.changed"))
        assert [event.actor for event in events] == ["agent", "agent"]
