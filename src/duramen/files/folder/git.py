"""Commits to git, for those who want a history of their files there.

Only the given paths are committed, whatever else is changed or staged. The user's own git does it, with the user's
settings, hooks and signing; only where no identity is configured does the commit carry our name. A commit that fails leaves
files and index as they were, and the next one takes the changes along.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO, NamedTuple

from ...errors import BoundaryRefused, CommitFailed, InvalidInput

TIMEOUT = 120.0
"""Seconds that one command of git may take, its hooks included."""
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds to wait, again and again, while another git process holds a lock."""

_NAME, _EMAIL = "duramen", "duramen@localhost"
_TAIL = 4000
_AT_ONCE = 500
"""Paths that go into one command line."""
_AUTHOR = re.compile(r"[^<>\n\0]*[^<>\s\0][ ]*<[^<>\s\0]*>")
_LOCKED = re.compile(r"\.lock': File exists|could not lock|cannot lock ref|cannot copy .*: File exists")
_HINTS = {
    _LOCKED: "another git process is at work here; if there is none, remove the .lock file that it left",
    re.compile(r"partial commit during"): "finish the merge or abort it first",
    re.compile(r"failed to sign|signing failed"): "make the signing key ready, or turn commit.gpgsign off here",
    re.compile(r"dubious ownership"): "the repository belongs to another user: see safe.directory in git's manual",
}
_KEPT = re.compile(
    r"GIT_((AUTHOR|COMMITTER)_\w+|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)|EXEC_PATH|TEMPLATE_DIR"
    r"|CEILING_DIRECTORIES|DISCOVERY_ACROSS_FILESYSTEM|ALLOW_PROTOCOL)"
)


def commit(
    root: str | os.PathLike[str], paths: Iterable[str], message: str, *, author: str | None = None, init: bool = False
) -> str | None:
    """Commit these files of a folder as they are now, new, changed or removed, and return the commit's id; None if
    there was nothing to commit.

    `author` ("Ada <ada@example.org>") is who it is ascribed to. `init` makes a repository in the folder if there is
    none around it. Raises `CommitFailed` with what git or a hook said; then nothing is committed, the files stay as
    they are, and the same call may be made again. Blocks for as long as git and its hooks take, up to `TIMEOUT`.
    """
    check(message, author)
    wanted = sorted(map(_inner, set(paths)))
    folder = os.path.realpath(root)
    if not os.path.isdir(folder):
        raise InvalidInput(f"there is no folder {os.fspath(root)}", hint="write the files first")
    git = Git(folder)
    git.expect_repository(init)
    states = git.states(wanted)
    if ignored := sorted(path for path, state in states.items() if state == "!!"):
        raise InvalidInput(
            f"git ignores {ignored[0]}, so it cannot be committed",
            hint="take it out of .gitignore, or do without commits",
        )
    return git.commit(states, message, author) if states else None


def _inner(path: str) -> str:
    if not path or path.startswith("/") or "\0" in path or {"", ".", ".."} & set(path.split("/")):
        raise BoundaryRefused(path, "it is no path inside the folder")
    return path


def check(message: str, author: str | None) -> None:
    """Raise `InvalidInput` for what a commit cannot have."""
    if not message.strip():
        raise InvalidInput("the commit message is empty", hint="say in a few words what was done")
    if author is not None and not _AUTHOR.fullmatch(author):
        raise InvalidInput(f"{author!r} cannot be an author", hint="such as: Ada Lovelace <ada@example.org>")


class Answer(NamedTuple):
    """What git said: its exit status, its output, and its complaints."""

    code: int
    out: str
    said: str


class Git:
    """The commands of git that concern some files of one folder. Paths are relative to it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._environment = scrubbed(os.environ)

    def expect_repository(self, init: bool) -> None:
        """Make sure that there is a repository around the folder."""
        answer = self.ask("rev-parse", "--is-inside-work-tree")
        if not answer.code and answer.out.strip() == "true":
            return
        if answer.code and "not a git repository" not in answer.said:
            raise self._failure("look at", self._folder, answer)
        if answer.code and init:
            self._do("make a repository for", self._folder, "init", "--quiet")
            return
        raise InvalidInput(
            f"{self._folder} is in no work tree of git", hint="make one with `git init`, or do without commits"
        )

    def states(self, paths: Sequence[str]) -> dict[str, str]:
        """How the files stand, in the two letters of `git status`; what is committed as it is, is not there."""
        prefix = self._do("look at", self._folder, "rev-parse", "--show-prefix").out.removesuffix("\n")
        options = ("--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching")
        found: dict[str, str] = {}
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            answer = self._do("look at", _named(some), "--no-optional-locks", "status", *options, "--", *some)
            for entry in filter(None, answer.out.split("\0")):
                found[entry[3:].removeprefix(prefix)] = entry[:2]
        return found

    def commit(self, states: Mapping[str, str], message: str, author: str | None) -> str | None:
        """The id of the new commit; None if another process has committed the same meanwhile."""
        paths, untracked = list(states), [path for path, state in states.items() if state == "??"]
        try:
            for start in range(0, len(untracked), _AT_ONCE):
                some = untracked[start : start + _AT_ONCE]
                self._do("add", _named(some), "add", "--", *some)
            answer = self._committed(paths, message, author)
            if answer.code and not self.states(paths):
                return None
            if answer.code:
                raise self._failure("commit", _named(paths), answer)
        except BaseException:
            for start in range(0, len(untracked), _AT_ONCE):
                some = untracked[start : start + _AT_ONCE]
                self.ask("rm", "--cached", "--force", "--quiet", "--ignore-unmatch", "--", *some)
            raise
        return self._do("find the commit of", paths[0], "rev-list", "-1", "HEAD", "--", paths[0]).out.strip()

    def _committed(self, paths: Sequence[str], message: str, author: str | None) -> Answer:
        options = ["--quiet", "--only", "--cleanup=whitespace", "--file=-"]
        if author is not None:
            options.append(f"--author={author}")
        settings = ["-c", "i18n.commitEncoding=UTF-8", *self._identity()]
        if len(paths) <= _AT_ONCE:
            return self.ask(*settings, "commit", *options, "--", *paths, given=message)
        with NamedTemporaryFile() as listed:
            listed.write("\0".join(paths).encode("utf-8", "surrogateescape"))
            listed.flush()
            options += [f"--pathspec-from-file={listed.name}", "--pathspec-file-nul"]
            return self.ask(*settings, "commit", *options, given=message)

    def _identity(self) -> list[str]:
        known = self.ask("config", "--name-only", "--get-regexp", r"^user\.(name|email)$").out.split()
        settings = [] if "user.name" in known else ["-c", f"user.name={_NAME}"]
        return settings if "user.email" in known else [*settings, "-c", f"user.email={_EMAIL}"]

    def _do(self, what: str, files: str, *command: str) -> Answer:
        answer = self.ask(*command)
        if answer.code:
            raise self._failure(what, files, answer)
        return answer

    def ask(self, *command: str, given: str = "") -> Answer:
        """Run a command of git, and again while another holds a lock."""
        for pause in PAUSES:
            answer = self._run(command, given)
            if not answer.code or not _LOCKED.search(answer.said):
                return answer
            time.sleep(pause)
        return self._run(command, given)

    def _run(self, command: tuple[str, ...], given: str) -> Answer:
        """Files, not pipes: a hook that leaves a process behind would keep a pipe open, and us waiting."""
        with TemporaryFile() as asked, TemporaryFile() as out, TemporaryFile() as said:
            asked.write(given.replace("\0", "\ufffd").encode("utf-8", "replace"))
            asked.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", "--literal-pathspecs", *command],
                    cwd=self._folder,
                    env=self._environment,
                    stdin=asked,
                    stdout=out,
                    stderr=said,
                    start_new_session=True,
                )
            except OSError as error:
                hint = "install git so that it is found on the PATH, or do without commits"
                raise CommitFailed(f"git cannot be started: {error.strerror}", hint=hint) from error
            self._await(process)
            return Answer(process.returncode, _content(out), _content(said))

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise CommitFailed(
                f"git took longer than {TIMEOUT:g} s in {self._folder}",
                hint="a hook or the signing program may wait for input: run `git commit` by hand to see",
            ) from error
        finally:
            if process.returncode is None:
                _end(process)

    def _failure(self, what: str, files: str, answer: Answer) -> CommitFailed:
        said = f"{answer.said.strip()}\n{answer.out.strip()}".strip()[-_TAIL:]
        hint = next((hint for pattern, hint in _HINTS.items() if pattern.search(said)), "")
        reason = said or f"exit status {answer.code}"
        return CommitFailed(f"git could not {what} {files}: {reason}", output=said, hint=hint)


def _named(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more" if paths else "nothing"


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
