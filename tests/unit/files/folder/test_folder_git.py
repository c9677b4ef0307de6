"""Commits of memory files with a real git: only these files, in any repository, with clear errors."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from duramen.errors import BoundaryRefused, CommitFailed, InvalidInput
from duramen.files.folder.boundary import Folder
from duramen.files.folder.git import commit

pytestmark = [
    pytest.mark.promise("F8"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]
FACT = "workspace/acme/knowledge/facts/ferry.md"
SEAT = "preference/seat & [window]!.md"
MESSAGE = "preference accepted: aisle seat\n\nactor: ada\nevent: trip-456#12"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder without git settings, outside any repository."""
    (tmp_path / "home").mkdir()
    for name in [name for name in os.environ if name.startswith("GIT_") or name in ("EMAIL", "XDG_CONFIG_HOME")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def git(folder: Path, *command: str) -> str:
    arguments = [
        "git",
        "-c",
        "core.quotePath=false",
        "-c",
        "user.name=Ada",
        "-c",
        "user.email=ada@example.org",
        *command,
    ]
    return subprocess.run(arguments, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def files_of(folder: Path) -> list[str]:
    return git(folder, "show", "--format=", "--name-status", "--no-renames", "HEAD").splitlines()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with staged and unstaged changes of a user."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for name in ("code.py", "staged.py", "gone.py"):
        (folder / name).write_text("1\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "First")
    (folder / "code.py").write_text("2\n")
    (folder / "staged.py").write_text("2\n")
    (folder / "new.py").write_text("2\n")
    (folder / "untracked.py").write_text("2\n")
    (folder / "gone.py").unlink()
    git(folder, "add", "staged.py", "new.py", "gone.py")
    return folder


def hook(project: Path, script: str) -> None:
    path = project / ".git/hooks/pre-commit"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("below", ["", "agent/memory"])
def test_only_the_given_files_are_committed(below: str, project: Path) -> None:
    work = git(project, "status", "--porcelain")
    root = project / below
    with Folder(root, "acme") as folder:
        folder.write_all({FACT: "8:00", SEAT: "aisle", "identity/other.md": "not now"})
        revision = commit(root, [FACT, SEAT], MESSAGE, author="Ada Lovelace <ada@example.org>")
        assert revision == git(project, "rev-parse", "HEAD")
        prefix = f"{below}/" if below else ""
        assert files_of(project) == [f"A\t{prefix}{SEAT}", f"A\t{prefix}{FACT}"]
        assert git(project, "log", "-1", "--format=%B%an <%ae>") == f"{MESSAGE}\nAda Lovelace <ada@example.org>"
        assert commit(root, [FACT, SEAT, "preference/never.md"], MESSAGE) is None
        folder.write(FACT, "9:00")
        folder.remove(SEAT)
        assert commit(root, [SEAT, FACT], "changed and removed") != revision
        assert files_of(project) == [f"D\t{prefix}{SEAT}", f"M\t{prefix}{FACT}"]
        folder.remove("identity/other.md")
    assert git(project, "status", "--porcelain") == work


def test_a_repository_is_created_only_with_init(tmp_path: Path) -> None:
    with Folder(tmp_path / "memory", "acme") as folder:
        folder.write(FACT, "8:00")
        with pytest.raises(InvalidInput, match="not in a git work tree") as refused:
            commit(folder.root, [FACT], MESSAGE)
        assert refused.value.hint
        assert commit(folder.root, [FACT], MESSAGE, init=True)
        assert commit(folder.root, [FACT], MESSAGE, init=True) is None
        assert git(tmp_path / "memory", "rev-list", "--count", "HEAD") == "1"
        assert FACT in folder.walk().files


def test_a_failing_hook_is_reported_and_the_commit_can_be_repeated(project: Path) -> None:
    hook(project, "echo 'lint: no memories today' >&2; exit 1")
    before = git(project, "status", "--porcelain")
    with Folder(project, "acme") as folder:
        folder.write(FACT, "8:00")
        status = git(project, "status", "--porcelain")
        with pytest.raises(CommitFailed, match="lint: no memories today") as failure:
            commit(project, [FACT], MESSAGE, trusted=True)
        assert failure.value.output == "lint: no memories today"
        assert failure.value.hint
        assert git(project, "status", "--porcelain") == status != before
        assert folder.read(FACT) == "8:00"
        hook(project, "exit 0")
        assert commit(project, [FACT], MESSAGE)
    assert files_of(project) == [f"A\t{FACT}"]


def test_a_missing_git_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("x")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(CommitFailed, match="git cannot be started") as failure:
        commit(tmp_path, ["a.md"], MESSAGE, init=True)
    assert "install git" in failure.value.hint


def test_ignored_files_are_rejected_by_name(project: Path) -> None:
    (project / ".gitignore").write_text("preference/\n")
    with Folder(project, "acme") as folder:
        folder.write("preference/seat.md", "aisle")
    with pytest.raises(InvalidInput, match="git ignores preference/") as refused:
        commit(project, ["preference/seat.md"], MESSAGE)
    assert ".gitignore" in refused.value.hint


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x.md", "a/../../x.md", "a\0.md", ".", "a//b.md", "a/./b"])
def test_paths_outside_the_folder_are_rejected(path: str, project: Path) -> None:
    with pytest.raises(BoundaryRefused):
        commit(project, ["code.py", path], MESSAGE)
    assert git(project, "rev-list", "--count", "HEAD") == "1"


def test_file_names_are_not_read_as_options_or_patterns(project: Path) -> None:
    for name in ("--all", "*.py", ":(top)code.py", "-m"):
        (project / name).write_text("x")
    assert commit(project, ["--all", "*.py", ":(top)code.py", "-m"], "--amend")
    assert files_of(project) == ["A\t*.py", "A\t--all", "A\t-m", "A\t:(top)code.py"]
    assert git(project, "log", "--format=%s") == "--amend\nFirst"


def test_invalid_commit_arguments_are_rejected(project: Path) -> None:
    with pytest.raises(InvalidInput, match="message is empty"):
        commit(project, ["code.py"], " \n")
    with pytest.raises(InvalidInput, match="author"):
        commit(project, ["code.py"], MESSAGE, author="Ada\nEvil: x <a@b>")
    with pytest.raises(InvalidInput, match="no folder"):
        commit(project / "nothing", ["code.py"], MESSAGE)
    assert commit(project, [], MESSAGE) is None


def test_many_files_are_one_commit(tmp_path: Path) -> None:
    with Folder(tmp_path / "memory", "acme") as folder:
        texts = {f"preference/a-name-as-long-as-they-get-in-practice-{number:05}.md": "x" for number in range(1500)}
        folder.write_all(texts)
        assert commit(folder.root, texts, MESSAGE, init=True)
        assert git(tmp_path / "memory", "rev-list", "--count", "HEAD") == "1"
        assert len(files_of(tmp_path / "memory")) == 1500
        assert git(tmp_path / "memory", "status", "--porcelain") == ""
