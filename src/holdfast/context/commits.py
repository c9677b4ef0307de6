"""Commits of one file to git, for those who want their progress in its history.

Only that file is committed, whatever else is changed or staged. The user's own git does it, with the user's settings,
hooks and signing; only where nobody is configured does the commit carry our name. A commit that fails leaves file and
index as they were, and the next one takes the change along.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from ..errors import HoldfastError, InvalidInput
from .progress import Progress, same_step
from .progressfile import create_file, render

TIMEOUT = 120.0
"""Seconds that one command of git may take, its hooks included."""
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds to wait, again and again, while another git process holds a lock."""

_NAME, _EMAIL = "holdfast", "holdfast@localhost"
_TAIL = 4000
_AUTHOR = re.compile(r"[^<>\n\0]*[^<>\s\0][ ]*<[^<>\s\0]*>")
_LOCKED = re.compile(r"\.lock': File exists|could not lock|cannot lock ref|cannot copy .*: File exists")
_NEW = {"??", "A ", "AM", " A"}
_HINTS = {
    _LOCKED: "another git process is at work here; if there is none, remove the .lock file that it left",
    re.compile(r"partial commit during"): "finish the merge or abort it first",
    re.compile(r"failed to sign|signing failed"): "make the signing key ready, or turn commit.gpgsign off here",
    re.compile(r"dubious ownership"): "the repository belongs to somebody else: see safe.directory in git's manual",
}
_KEPT = re.compile(
    r"GIT_((AUTHOR|COMMITTER)_\w+|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)|EXEC_PATH|TEMPLATE_DIR"
    r"|CEILING_DIRECTORIES|DISCOVERY_ACROSS_FILESYSTEM|ALLOW_PROTOCOL)"
)


def commit(path: str | os.PathLike[str], message: str, *, author: str | None = None, init: bool = False) -> str | None:
    """Commit this file as it is now, and return the commit's id; None if there was nothing to commit.

    `author` ("Ada <ada@example.org>") is who it is ascribed to. `init` makes a repository in the file's folder if
    there is none around it. Blocks for as long as git and its hooks take, up to `TIMEOUT`.
    """
    return _commit(path, message, author, init=init, only_new=False)


def committed_text(path: str | os.PathLike[str]) -> str | None:
    """The file as the newest commit has it; None if there is none, or no git."""
    target = Path(os.path.realpath(path))
    try:
        answer = _Git(target)._ask("show", f"HEAD:./{target.name}")
    except HoldfastError:
        return None
    return None if answer.code else answer.out


def initialise(path: str | os.PathLike[str], progress: Progress, *, commit: bool, author: str | None = None) -> bool:
    """Write the file and make its first commit, once; False if the file was there already, and it stays as it is.

    Of many who try at once, one gets True, and there is one commit. If a process is killed between the two, the next
    call makes up for the commit.
    """
    created = create_file(path, render(progress))
    if commit:
        goal = same_step(progress.goal)
        subject = goal if len(goal) <= 60 else goal[:59] + "…"
        _commit(path, f"Begin: {subject}" if subject else "Begin", author, init=True, only_new=True)
    return created


def _commit(
    path: str | os.PathLike[str], message: str, author: str | None, *, init: bool, only_new: bool
) -> str | None:
    _check(message, author)
    target = Path(os.path.realpath(path))
    if not target.is_file():
        raise InvalidInput(f"there is no file {os.fspath(path)} to commit", hint="write it first")
    git = _Git(target)
    git.expect_repository(init)
    states = git.states()
    if not states or (only_new and not states <= _NEW):
        return None
    if "!!" in states:
        raise InvalidInput(
            f"git ignores {os.fspath(path)}, so it cannot be committed",
            hint="take it out of .gitignore, or do without commits",
        )
    return git.commit(message, author, untracked="??" in states)


def _check(message: str, author: str | None) -> None:
    if not message.strip():
        raise InvalidInput("the commit message is empty", hint="say in a few words what was done")
    if author is not None and not _AUTHOR.fullmatch(author):
        raise InvalidInput(f"{author!r} cannot be an author", hint="such as: Ada Lovelace <ada@example.org>")


class _Answer(NamedTuple):
    code: int
    out: str
    said: str


class _Git:
    """The commands of git that concern one file."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._environment = scrubbed(os.environ)

    def expect_repository(self, init: bool) -> None:
        """Make sure that there is a repository around the file."""
        answer = self._ask("rev-parse", "--is-inside-work-tree")
        if not answer.code and answer.out.strip() == "true":
            return
        if answer.code and "not a git repository" not in answer.said:
            raise self._failure("look at", answer)
        if answer.code and init:
            self._do("make a repository for", "init", "--quiet")
            return
        raise InvalidInput(
            f"{self._target.parent} is in no work tree of git",
            hint="make one with `git init`, or do without commits",
        )

    def states(self) -> set[str]:
        """How the file stands, in the two letters of `git status`; empty if it is committed as it is."""
        options = ("--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching")
        answer = self._do("look at", "--no-optional-locks", "status", *options, "--", self._target.name)
        return {entry[:2] for entry in answer.out.split("\0") if entry}

    def commit(self, message: str, author: str | None, *, untracked: bool) -> str | None:
        """The id of the new commit; None if another process has committed the same meanwhile."""
        name = self._target.name
        if untracked:
            self._do("add", "add", "--", name)
        options = ["--quiet", "--only", "--cleanup=whitespace", "--file=-"]
        if author is not None:
            options.append(f"--author={author}")
        settings = ["-c", "i18n.commitEncoding=UTF-8", *self._identity()]
        try:
            answer = self._ask(*settings, "commit", *options, "--", name, given=message)
            if answer.code and not self.states():
                return None
            if answer.code:
                raise self._failure("commit", answer)
        except BaseException:
            if untracked:
                self._ask("rm", "--cached", "--force", "--quiet", "--ignore-unmatch", "--", name)
            raise
        return self._do("find the commit of", "rev-list", "-1", "HEAD", "--", name).out.strip()

    def _identity(self) -> list[str]:
        known = self._ask("config", "--name-only", "--get-regexp", r"^user\.(name|email)$").out.split()
        settings = [] if "user.name" in known else ["-c", f"user.name={_NAME}"]
        return settings if "user.email" in known else [*settings, "-c", f"user.email={_EMAIL}"]

    def _do(self, what: str, *command: str) -> _Answer:
        answer = self._ask(*command)
        if answer.code:
            raise self._failure(what, answer)
        return answer

    def _ask(self, *command: str, given: str = "") -> _Answer:
        for pause in PAUSES:
            answer = self._run(command, given)
            if not answer.code or not _LOCKED.search(answer.said):
                return answer
            time.sleep(pause)
        return self._run(command, given)

    def _run(self, command: tuple[str, ...], given: str) -> _Answer:
        """Files, not pipes: a hook that leaves a process behind would keep a pipe open, and us waiting."""
        with TemporaryFile() as asked, TemporaryFile() as out, TemporaryFile() as said:
            asked.write(given.replace("\0", "\ufffd").encode("utf-8", "replace"))
            asked.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", "--literal-pathspecs", *command],
                    cwd=self._target.parent,
                    env=self._environment,
                    stdin=asked,
                    stdout=out,
                    stderr=said,
                    start_new_session=True,
                )
            except OSError as error:
                hint = "install git so that it is found on the PATH, or do without commits"
                raise HoldfastError(f"git cannot be started: {error.strerror}", hint=hint) from error
            self._await(process)
            return _Answer(process.returncode, _content(out), _content(said))

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise HoldfastError(
                f"git took longer than {TIMEOUT:g} s over {self._target}",
                hint="a hook or the signing program may wait for somebody: run `git commit` by hand to see",
            ) from error
        finally:
            if process.returncode is None:
                _end(process)

    def _failure(self, what: str, answer: _Answer) -> HoldfastError:
        said = f"{answer.said.strip()}\n{answer.out.strip()}".strip()[-_TAIL:]
        fitting = (hint for pattern, hint in _HINTS.items() if pattern.search(said))
        hint = next(fitting, "this is what git, or a hook, said; the file stays, and the next commit takes it along")
        return HoldfastError(f"git could not {what} {self._target}: {said or f'exit status {answer.code}'}", hint=hint)


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a git of our own. Inside a hook, git points its children to another index, or to another
    repository; who commits, and where the user's settings are, stays."""
    kept = {name: value for name, value in environment.items() if not name.startswith("GIT_") or _KEPT.fullmatch(name)}
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": ":"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask first: git removes its locks when it is asked to go."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
            return


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
