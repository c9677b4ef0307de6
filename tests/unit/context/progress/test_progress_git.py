"""Commits of the progress file with a real git: only that file, in every kind of repository, with clear errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from duramen.context.progress.git_commit import commit, initialise
from duramen.context.progress.progress_file import create_file, parse, read_file, render
from duramen.context.progress.record import Progress
from duramen.errors import DuramenError, InvalidInput
from duramen.files.folder import git as git_commands
from duramen.files.folder.git import scrubbed

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
STARTED = Progress("Ship the invoice export", (), None, "Read the API docs")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without git settings, outside any repository."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("GIT_") or name in ("EMAIL", "XDG_CONFIG_HOME")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "code.py").write_text("1\n")
    git(folder, "add", "code.py")
    git(folder, "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "--quiet", "-m", "First")
    return folder


def git(folder: Path, *command: str) -> str:
    return subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def files_of(folder: Path, revision: str = "HEAD") -> list[str]:
    return git(folder, "show", "--format=", "--name-only", revision).splitlines()


def hook(repository: Path, name: str, script: str) -> None:
    path = repository / ".git" / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def path(repository: Path) -> Path:
    """The progress file, not committed yet."""
    path = repository / "PROGRESS.md"
    path.write_text(render(STARTED))
    return path


@pytest.mark.promise("H2")
def test_only_the_progress_file_is_committed(path: Path, repository: Path) -> None:
    (repository / "code.py").write_text("2\n")
    (repository / "staged.py").write_text("3\n")
    git(repository, "add", "staged.py")
    (repository / "untracked.py").write_text("4\n")
    before = git(repository, "status", "--porcelain", "--", "*.py")
    revision = commit(path, "Read the API docs\n\n# not a comment: grüße")
    assert revision == git(repository, "rev-parse", "HEAD")
    assert files_of(repository) == ["PROGRESS.md"]
    assert git(repository, "status", "--porcelain") == before
    assert git(repository, "log", "-1", "--format=%B") == "Read the API docs\n\n# not a comment: grüße"
    assert commit(path, "Nothing") is None
    path.write_text(render(STARTED.plan("Write the client")))
    assert commit(str(path), "Planned") not in (None, revision)
    assert files_of(repository) == ["PROGRESS.md"]
    assert git(repository, "status", "--porcelain") == before
    assert git(repository, "show", "HEAD:PROGRESS.md") + "\n" == path.read_text()


def test_a_staged_version_is_replaced(path: Path, repository: Path) -> None:
    git(repository, "add", "PROGRESS.md")
    path.write_text("newer\n")
    assert commit(path, "Newer")
    assert git(repository, "show", "HEAD:PROGRESS.md") == "newer"
    assert git(repository, "status", "--porcelain") == ""


def test_the_author_and_committer_come_from_arguments_settings_or_defaults(
    path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = ("log", "-1", "--format=%an <%ae> %cn <%ce>")
    commit(path, "By default")
    default = "duramen <duramen@localhost>"
    assert git(repository, *shown) == f"{default} {default}"
    path.write_text("2")
    commit(path, "By an agent", author="Agent 7 <agent@example.org>")
    assert git(repository, *shown) == f"Agent 7 <agent@example.org> {default}"
    git(repository, "config", "user.name", "Ada")
    git(repository, "config", "user.email", "ada@example.org")
    path.write_text("3")
    commit(path, "By Ada")
    assert git(repository, *shown) == "Ada <ada@example.org> Ada <ada@example.org>"
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Grace")
    path.write_text("4")
    commit(path, "By Grace")
    assert git(repository, *shown) == "Grace <ada@example.org> Ada <ada@example.org>"


def test_commits_work_in_subfolders_worktrees_and_through_links(repository: Path, tmp_path: Path) -> None:
    inside = repository / "deep" / "down" / ":(top)*.md"
    inside.parent.mkdir(parents=True)
    (inside.parent / "other.md").write_text("not this one")
    inside.write_text("1")
    assert commit(inside, "Below")
    assert files_of(repository) == ["deep/down/:(top)*.md"]
    git(repository, "worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"))
    worktree_file = tmp_path / "tree" / "PROGRESS.md"
    worktree_file.write_text("1")
    revision = commit(worktree_file, "In a worktree")
    assert revision == git(tmp_path / "tree", "rev-parse", "HEAD")
    assert revision != git(repository, "rev-parse", "HEAD")
    link = tmp_path / "PROGRESS.md"
    link.symlink_to(inside)
    inside.write_text("2")
    assert commit(link, "Through a link")
    assert git(repository, "show", "HEAD:deep/down/:(top)*.md") == "2"


@pytest.mark.promise("H2")
def test_a_repository_is_created_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "PROGRESS.md"
    path.write_text("1")
    with pytest.raises(InvalidInput, match="not in a git work tree") as refusal:
        commit(path, "x")
    assert "git init" in refusal.value.hint
    assert not (tmp_path / ".git").exists()
    assert commit(path, "x", init=True)
    assert git(tmp_path, "log", "--format=%s") == "x"
    assert commit(path, "x", init=True) is None


def test_the_error_of_a_failing_hook_is_reported_and_nothing_is_staged(path: Path, repository: Path) -> None:
    hook(repository, "pre-commit", "echo 'lint: line 3 is too long'; exit 1")
    with pytest.raises(DuramenError, match="lint: line 3 is too long") as failure:
        commit(path, "x", trusted=True)
    assert failure.value.hint
    assert path.read_text() == render(STARTED)
    assert git(repository, "status", "--porcelain") == "?? PROGRESS.md", "the index is unchanged"
    hook(repository, "pre-commit", "exit 0")
    assert commit(path, "x", trusted=True)


def test_a_background_process_of_a_hook_does_not_block_the_commit(
    path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_file = repository / "process"
    hook(repository, "post-commit", f"sleep 60 & echo $! > {process_file}")
    monkeypatch.setattr(git_commands, "TIMEOUT", 20.0)
    try:
        assert commit(path, "x", trusted=True)
    finally:
        os.kill(int(process_file.read_text()), 9)


def test_a_hanging_hook_is_killed_after_a_timeout(
    path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook(repository, "pre-commit", "sleep 60")
    monkeypatch.setattr(git_commands, "TIMEOUT", 0.3)
    with pytest.raises(DuramenError, match=r"longer than 0\.3 s") as failure:
        commit(path, "x", trusted=True)
    assert failure.value.hint
    assert not (repository / ".git" / "index.lock").exists()
    assert git(repository, "status", "--porcelain") == "?? PROGRESS.md"


def test_a_commit_waits_for_the_index_lock(path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = repository / ".git" / "index.lock"
    lock.touch()
    monkeypatch.setattr(git_commands, "PAUSES", (0.01, 0.01))
    with pytest.raises(DuramenError, match=r"index\.lock") as failure:
        commit(path, "x")
    assert "the other git process" in failure.value.hint
    monkeypatch.setattr(git_commands, "PAUSES", (0.05,) * 100)
    release = threading.Timer(0.2, lock.unlink)
    release.start()
    assert commit(path, "x")
    release.join()


def test_commits_are_signed_if_configured(path: Path, repository: Path) -> None:
    program = repository.parent / "sign"
    program.write_text("#!/bin/sh\necho 'no secret key' >&2; exit 2\n")
    program.chmod(0o755)
    git(repository, "config", "commit.gpgsign", "true")
    git(repository, "config", "gpg.program", str(program))
    with pytest.raises(DuramenError, match="failed to sign") as failure:
        commit(path, "x", trusted=True)
    assert "commit.gpgsign" in failure.value.hint
    program.write_text("#!/bin/sh\ncat >/dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho SIGNED\n")
    assert commit(path, "x", trusted=True)
    assert "SIGNED" in git(repository, "cat-file", "commit", "HEAD")


def test_an_ignored_file_is_rejected(path: Path, repository: Path) -> None:
    for pattern in ("PROGRESS.md", "*"):
        (repository / ".gitignore").write_text(pattern)
        with pytest.raises(InvalidInput, match="git ignores") as refusal:
            commit(path, "x")
        assert ".gitignore" in refusal.value.hint


def test_a_commit_during_a_merge_fails_with_a_hint(path: Path, repository: Path) -> None:
    assert commit(path, "x")
    (repository / ".git" / "MERGE_HEAD").write_text(git(repository, "rev-parse", "HEAD") + "\n")
    path.write_text("2")
    with pytest.raises(DuramenError, match="during a merge") as failure:
        commit(path, "x")
    assert "merge" in failure.value.hint


def test_a_missing_git_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(path.parent))
    with pytest.raises(DuramenError, match="git cannot be started") as failure:
        commit(path, "x")
    assert "PATH" in failure.value.hint


@pytest.mark.parametrize("message", ["", " \n"])
def test_invalid_messages_authors_and_paths_are_rejected(path: Path, message: str) -> None:
    with pytest.raises(InvalidInput, match="message is empty"):
        commit(path, message)
    for author in ("Ada", "<>", "Ada <a@b>\n", "A <b> <c>", "Ada <a b>"):
        with pytest.raises(InvalidInput, match="author"):
            commit(path, "x", author=author)
    for missing in (path.parent, path.parent / "nowhere" / "PROGRESS.md"):
        with pytest.raises(InvalidInput, match="no file"):
            commit(missing, "x")


def test_a_commit_works_inside_a_hook_of_another_repository(path: Path, repository: Path, tmp_path: Path) -> None:
    """Git sets environment variables for hooks that point to the outer repository."""
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "--quiet")
    script = f"from duramen.context.progress.git_commit import commit; assert commit({str(path)!r}, 'Inner')"
    hook(outer, "pre-commit", f'{sys.executable} -c "{script}"')
    (outer / "a").write_text("1")
    git(outer, "add", "a")
    git(outer, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "commit", "-m", "Outer", "a")
    assert git(repository, "log", "-1", "--format=%s") == "Inner"
    assert files_of(repository) == ["PROGRESS.md"]
    assert files_of(outer) == ["a"]


def test_git_variables_of_identity_are_kept_and_those_of_location_removed() -> None:
    removed = dict.fromkeys(("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_CONFIG_PARAMETERS", "GIT_PREFIX"), "x")
    kept = {"GIT_AUTHOR_EMAIL": "x", "GIT_CONFIG_GLOBAL": "x", "GIT_CONFIG_KEY_0": "x", "HOME": "x", "DIGIT_X": "x"}
    result = scrubbed(removed | kept | {"LC_ALL": "de_DE.UTF-8"})
    assert result == kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": ":"}


# -- initialisation


@pytest.mark.promise("H2")
@pytest.mark.parametrize("in_repository", [True, False])
def test_a_file_is_initialised_once(tmp_path: Path, repository: Path, in_repository: bool) -> None:
    folder = repository if in_repository else tmp_path
    path = folder / "PROGRESS.md"
    assert initialise(path, STARTED, commit=True)
    assert parse(read_file(path)).progress == STARTED
    assert git(folder, "log", "-1", "--format=%s", "--", "PROGRESS.md") == "Begin: Ship the invoice export"
    head = git(folder, "rev-parse", "HEAD")
    path.write_text("edited by hand")
    assert not initialise(path, Progress("Another", next_action="x"), commit=True)
    assert (path.read_text(), git(folder, "rev-parse", "HEAD")) == ("edited by hand", head)


def test_initialising_without_commits_needs_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert initialise(tmp_path / "PROGRESS.md", STARTED, commit=False)
    assert not initialise(tmp_path / "PROGRESS.md", STARTED, commit=False)
    assert sorted(os.listdir(tmp_path)) == ["PROGRESS.md", "home"]


@pytest.mark.promise("H2")
def test_a_commit_that_a_kill_prevented_is_made_later(tmp_path: Path) -> None:
    path = tmp_path / "PROGRESS.md"
    assert create_file(path, render(STARTED))
    assert not initialise(path, STARTED, commit=True)
    assert git(tmp_path, "log", "--format=%s") == "Begin: Ship the invoice export"
    path.write_text("2")
    git(tmp_path, "rm", "--cached", "--quiet", "PROGRESS.md")
    assert commit(path, "Back again"), "also after its removal from the index"
    assert git(tmp_path, "status", "--porcelain", "--", "PROGRESS.md") == ""


PROGRAM = """
import sys, time
from pathlib import Path
from duramen.context.progress.git_commit import initialise
from duramen.context.progress.record import Progress
path, name = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
print(initialise(path, Progress(f"Goal of {name}", next_action="x"), commit=True))
"""


@pytest.fixture
def starters(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "PROGRESS.md")]
    started = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    yield started
    for starter in started:
        starter.kill()
        starter.communicate()


@pytest.mark.promise("H2")
def test_one_of_several_concurrent_processes_initialises_the_file(
    tmp_path: Path, starters: list[subprocess.Popen[str]]
) -> None:
    for starter in starters:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write("\n")
        starter.stdin.flush()
    outputs = [starter.communicate(timeout=60)[0] for starter in starters]
    assert [starter.returncode for starter in starters] == [0] * 4
    assert sorted(outputs) == ["False\n"] * 3 + ["True\n"]
    winner = outputs.index("True\n")
    assert parse(read_file(tmp_path / "PROGRESS.md")).progress.goal == f"Goal of {winner}"
    assert len(git(tmp_path, "log", "--format=%H").splitlines()) == 1
    assert git(tmp_path, "status", "--porcelain", "--", "PROGRESS.md") == ""
