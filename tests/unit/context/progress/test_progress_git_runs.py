"""Progress with a git commit for each change, over several runs of a program: initialised once, then continued."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from programs.side_effects import Open

import duramen
from duramen.context.progress.progress_file import parse
from duramen.errors import DuramenError
from duramen.testing.crash import CRASH_VARIABLE

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
TOKEN = "ghp_" + "a" * 30


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without settings, and no repository around the test."""
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
    """The commits' subjects, oldest first."""
    return git(path, "log", "--reverse", "--format=%s").splitlines()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_there_is_one_commit_for_each_change(open_one: Open, path: Path) -> None:
    kept = open_one().session("s").progress.keep_in(path, git=True)
    kept.begin("Ship it", next_action="write it")
    (path.parent / "code.py").write_text("1\n")
    kept.complete("write it", next_action="test\nit")
    kept.complete("write it")
    kept.block("no key")
    kept.unblock()
    kept.plan("publish it")
    kept.describe("words")
    kept.finish("publish it")
    kept.reopen("mend it")
    assert kept.sync().commit is None
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
    assert git(path, "log", "--format=", "--name-only").split() == ["PROGRESS.md"] * 9, "and nothing else"
    assert parse(git(path, "show", "HEAD~6:PROGRESS.md")).progress.completed == ("write it",)
    assert git(path, "status", "--porcelain") == "?? code.py"


def test_what_people_change_is_committed_too(open_one: Open, path: Path) -> None:
    kept = open_one().session("s").progress.keep_in(path, git=True)
    kept.begin("Ship it", next_action="write it")
    edit(path, "## Context\n", "## Context\nby hand\n")
    commit = kept.sync().commit
    assert commit == git(path, "rev-parse", "HEAD")
    assert subjects(path)[-1] == "Edited by hand"
    edit(path, "by hand", "by hand again")
    assert kept.sync(message="What Ada wrote").commit is not None
    assert subjects(path)[-1] == "What Ada wrote"
    assert "by hand again" in git(path, "show", "HEAD:PROGRESS.md")


def test_credentials_stay_out_of_the_file_and_its_history(open_one: Open, path: Path) -> None:
    kept = open_one().session("s").progress.keep_in(path, git=True)
    kept.begin(f"use {TOKEN}", next_action="n")
    kept.complete("y" * 171 + f" {TOKEN}")
    edit(path, "## Context\n", f"## Context\nthe key is {TOKEN}\n")
    assert kept.sync().edited
    assert [kept.sync().edited, kept.sync().edited] == [False, False], "it is not found again and again"
    assert "ghp_" not in path.read_text()
    assert "ghp_" not in git(path, "log", "--format=%B")
    assert "ghp_" not in repr(list(open_one().session("s").events()))


def test_what_git_refuses_is_journaled_all_the_same(open_one: Open, path: Path) -> None:
    kept = open_one().session("s").progress.keep_in(path, git="trusted")
    kept.begin("Ship it", next_action="write it")
    hook = path.parent / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    for step in ("one", "two"):
        with pytest.raises(DuramenError, match="not today"):
            kept.complete(step)
    assert open_one().session("s").progress.completed == ("one", "two")
    assert parse(path.read_text()).progress.completed == ("one", "two")
    hook.unlink()
    assert kept.complete("two").completed == ("one", "two")
    assert subjects(path) == ["Begin", "Begin: Ship it", "Complete: two"]
    assert parse(git(path, "show", "HEAD:PROGRESS.md")).progress.completed == ("one", "two")


PROGRAM = """
import sys
import duramen
from duramen.testing.crash import arm_from_environment
address, path, step = sys.argv[1:]
arm_from_environment()
with duramen.open(address) as dm:
    kept = dm.session("s").progress.keep_in(path, git=True)
    print(len(kept.completed))                                  # each run reads it first,
    kept.begin("Ship it", next_action="work")
    kept.complete(step, next_action="more work")                # acts, updates, commits
"""


def run(address: str, path: Path, step: str, crash: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, address, str(path), step],
        env=os.environ | {CRASH_VARIABLE: crash, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.promise("H2")
def test_the_first_run_initialises_and_later_ones_go_on(path: Path, tmp_path: Path) -> None:
    address = str(tmp_path / "agent.db")
    for number in range(3):
        ran = run(address, path, f"step {number}")
        assert (ran.returncode, ran.stdout.strip()) == (0, str(number)), ran.stderr
    assert subjects(path) == ["Begin", "Begin: Ship it", *(f"Complete: step {number}" for number in range(3))]
    with duramen.open(address) as dm:
        assert dm.session("s").progress.completed == ("step 0", "step 1", "step 2")
        assert len(list(dm.session("s").events(types="progress.changed"))) == 4


@pytest.mark.promise("H2", "J4")
@pytest.mark.parametrize("visit", [1, 2, 3, 4, 5])
def test_wherever_the_first_run_is_killed_the_next_goes_on(path: Path, tmp_path: Path, visit: int) -> None:
    """1: the file is noted, 2 and 3: begun, 4 and 5: the step; a change first, then what the file holds."""
    address = str(tmp_path / "agent.db")
    assert run(address, path, "step", crash=f"checkpoint.encoded:{visit}").returncode == -signal.SIGKILL
    ran = run(address, path, "step")
    assert ran.returncode == 0, ran.stderr
    assert parse(path.read_text()).progress.completed == ("step",)
    assert git(path, "status", "--porcelain") == ""
    made = subjects(path)
    assert made[0] == "Begin"
    assert len(made) == len(set(made)), "each once"
    assert made[-1] == ("Complete: step" if visit < 5 else made[-1])
    with duramen.open(address) as dm:
        events = list(dm.session("s").events(types="progress.changed"))
        assert [event.actor for event in events] == ["agent", "agent"]
