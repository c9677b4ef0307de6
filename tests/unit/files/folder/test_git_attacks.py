"""A commit in a repository of a stranger runs no program that the repository names, unless the caller trusts it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import duramen
from duramen.errors import CommitFailed, InvalidInput
from duramen.files.folder.git import commit

pytestmark = [
    pytest.mark.promise("F8"),
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here"),
]
HOOKS = (
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "post-index-change",
    "reference-transaction",
    "pre-auto-gc",
    "post-rewrite",
    "post-checkout",
    "pre-merge-commit",
)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without settings, and no repository around it."""
    (tmp_path / "home").mkdir()
    for name in [name for name in os.environ if name.startswith("GIT_") or name in ("EMAIL", "XDG_CONFIG_HOME")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def git(folder: Path, *command: str) -> str:
    asked = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *command]
    return subprocess.run(asked, cwd=folder, check=True, capture_output=True, text=True).stdout


class Stranger:
    """A repository whose settings name programs. Each program notes that it ran."""

    def __init__(self, root: Path, programs: Path) -> None:
        self.root = root
        self._programs = programs
        self._log = programs / "ran"
        programs.mkdir()
        root.mkdir()
        git(root, "init", "--quiet")
        (root / "README").write_text("x\n")
        git(root, "add", ".")
        git(root, "commit", "--quiet", "-m", "First")

    def program(self, name: str, body: str = "exec cat") -> str:
        """A program that notes its name and then does what is harmless."""
        path = self._programs / name
        path.write_text(f"#!/bin/sh\necho {name} >> {self._log}\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def set(self, name: str, value: str) -> None:
        git(self.root, "config", name, value)

    def ran(self) -> set[str]:
        """The programs that ran."""
        return set(self._log.read_text().split()) if self._log.exists() else set()

    def forget(self) -> None:
        self._log.unlink(missing_ok=True)


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    return Stranger(tmp_path / "repository", tmp_path / "programs")


def hooks(stranger: Stranger) -> set[str]:
    for name in HOOKS:
        target = stranger.root / ".git" / "hooks" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(stranger.program(name, "exit 0"), target)
    return {"pre-commit", "post-commit", "reference-transaction"}


def hooks_elsewhere(stranger: Stranger) -> set[str]:
    folder = stranger.root / "tools"
    folder.mkdir()
    shutil.copy(stranger.program("pre-commit", "exit 0"), folder / "pre-commit")
    stranger.set("core.hooksPath", "tools")
    return {"pre-commit"}


def file_monitor(stranger: Stranger) -> set[str]:
    stranger.set("core.fsmonitor", stranger.program("monitor", "exit 1"))
    return {"monitor"}


def clean_filter(stranger: Stranger) -> set[str]:
    (stranger.root / ".gitattributes").write_text("*.md filter=a=b.c\n")
    stranger.set("filter.a=b.c.clean", stranger.program("clean"))
    stranger.set("filter.a=b.c.smudge", stranger.program("smudge"))
    stranger.set("filter.a=b.c.required", "true")
    return {"clean"}


def process_filter(stranger: Stranger) -> set[str]:
    (stranger.root / ".git/info").mkdir(exist_ok=True)
    (stranger.root / ".git/info/attributes").write_text("* filter=evil diff=evil\n")
    stranger.set("filter.evil.process", stranger.program("process", "exit 1"))
    stranger.set("filter.evil.clean", stranger.program("clean"))
    stranger.set("diff.evil.textconv", stranger.program("textconv"))
    stranger.set("diff.external", stranger.program("external"))
    return {"process"}


def included_settings(stranger: Stranger) -> set[str]:
    """The settings are in a file that the settings of the repository include."""
    (stranger.root / ".gitattributes").write_text("*.md filter=evil\n")
    (stranger.root / "more").write_text(f'[filter "evil"]\n\tclean = {stranger.program("clean")}\n')
    stranger.set("include.path", "../more")
    return {"clean"}


def signing(stranger: Stranger) -> set[str]:
    stranger.set("commit.gpgSign", "true")
    stranger.set("gpg.program", stranger.program("gpg", "exit 1"))
    return {"gpg"}


def others(stranger: Stranger) -> set[str]:
    for name in ("core.editor", "sequence.editor", "core.pager", "core.askPass", "core.sshCommand"):
        stranger.set(name, stranger.program(name.replace(".", "-"), "exit 1"))
    stranger.set("credential.helper", stranger.program("credential"))
    stranger.set("gc.recentObjectsHook", stranger.program("recent"))
    stranger.set("trailer.sign.command", stranger.program("trailer"))
    stranger.set("alias.status", "!" + stranger.program("alias"))
    stranger.set("commit.verbose", "true")
    stranger.set("gc.auto", "1")
    return set()


def submodule(stranger: Stranger) -> set[str]:
    inner = stranger.root / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "a.md").write_text("a\n")
    git(inner, "add", ".")
    git(inner, "commit", "--quiet", "-m", "Inner")
    git(stranger.root, "add", "inner")
    git(stranger.root, "commit", "--quiet", "-m", "A submodule")
    git(inner, "config", "core.fsmonitor", stranger.program("monitor", "exit 1"))
    (inner / "a.md").write_text("changed\n")
    return set()


def missing_objects(stranger: Stranger) -> set[str]:
    """A partial clone fetches missing objects: from a remote whose settings name a program."""
    tree = git(stranger.root, "rev-parse", "HEAD^{tree}").strip()
    stranger.set("core.repositoryFormatVersion", "1")
    stranger.set("extensions.partialClone", "origin")
    stranger.set("remote.origin.promisor", "true")
    stranger.set("remote.origin.url", "ssh://localhost/x")
    stranger.set("core.sshCommand", stranger.program("ssh", "exit 1"))
    (stranger.root / ".git/objects" / tree[:2] / tree[2:]).unlink()
    return {"ssh"}


ATTACKS = [
    hooks,
    hooks_elsewhere,
    file_monitor,
    clean_filter,
    process_filter,
    included_settings,
    signing,
    others,
    submodule,
    missing_objects,
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_of_the_repository_runs(attack: Callable[[Stranger], set[str]], stranger: Stranger) -> None:
    attack(stranger)
    stranger.forget()
    (stranger.root / "note.md").write_text("harmless\n")
    try:
        made = commit(stranger.root, ["note.md"], "A note")
    except CommitFailed:
        assert attack is missing_objects
        made = None
    assert stranger.ran() == set()
    if made is not None:
        (stranger.root / ".git/hooks").rename(stranger.root / ".git/hooks-away")
        assert git(stranger.root, "cat-file", "blob", f"{made}:note.md") == "harmless\n"


@pytest.mark.parametrize("attack", [one for one in ATTACKS if one not in (others, submodule)])
def test_a_trusted_repository_runs_what_it_names(attack: Callable[[Stranger], set[str]], stranger: Stranger) -> None:
    """This also shows that the attacks work."""
    expected = attack(stranger)
    stranger.forget()
    (stranger.root / "note.md").write_text("harmless\n")
    try:
        commit(stranger.root, ["note.md"], "A note", trusted=True)
    except CommitFailed:
        assert attack in (process_filter, signing, missing_objects)
    assert stranger.ran() >= expected


def test_memory_files_and_progress(stranger: Stranger) -> None:
    hooks(stranger)
    clean_filter(stranger)
    file_monitor(stranger)
    stranger.forget()
    with duramen.open("memory://", embedder="none") as dm:
        dm.memory.remember("The ferry leaves at 8")
        with dm.files(stranger.root, git=True) as files:
            done = files.sync()
            assert (len(done.commits), done.skipped) == (2, ())
        progress = dm.session("s").progress.keep_in(stranger.root / "PROGRESS.md", git=True)
        progress.begin("Ship it", next_action="write it")
        assert stranger.ran() == set()

        with dm.files(stranger.root, git="trusted") as files:
            dm.memory.remember("The till is by Acme")
            assert len(files.sync().commits) == 2
        assert stranger.ran() >= {"pre-commit", "clean"}
        stranger.forget()
        dm.session("s").progress.keep_in(stranger.root / "PROGRESS.md", git="trusted").plan("test it")
        assert stranger.ran() >= {"pre-commit", "clean"}


def test_another_mode_is_refused(tmp_path: Path) -> None:
    with duramen.open("memory://", embedder="none") as dm:
        with pytest.raises(InvalidInput, match="`git` cannot be 'yes'"):
            dm.files(tmp_path / "m", git="yes")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="`git` cannot be 'yes'"):
            dm.session("s").progress.keep_in(tmp_path / "PROGRESS.md", git="yes")  # type: ignore[arg-type]


def test_settings_in_the_environment_of_the_user_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: Stranger
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    for number, (name, value) in enumerate([("user.name", "Grace"), ("user.email", "grace@example.org")]):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    (stranger.root / "note.md").write_text("harmless\n")
    assert commit(stranger.root, ["note.md"], "A note")
    monkeypatch.delenv("GIT_CONFIG_COUNT")
    assert git(stranger.root, "log", "-1", "--format=%an").strip() == "Grace"
