"""Commits files to git.

Only the given paths are committed, even if other files are changed or staged. The user's git runs with the user's
settings. Programs that these settings or the repository name run only in a trusted repository. Without a configured
identity, the commit carries the name of duramen. A failed commit leaves files and index unchanged, and the next commit
includes the changes.
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
from typing import IO, Literal, NamedTuple

from ...errors import BoundaryRefused, CommitFailed, InvalidInput, shown

TIMEOUT = 120.0
"""Seconds that one git command may take, including its hooks."""
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds to wait before each retry while another git process holds a lock."""

_NAME, _EMAIL = "duramen", "duramen@localhost"
_TAIL = 4000
_AT_ONCE = 500
"""Paths per command line."""
_AUTHOR = re.compile(r"[^<>\n\0]*[^<>\s\0][ ]*<[^<>\s\0]*>")
_LOCKED = re.compile(r"\.lock': File exists|could not lock|cannot lock ref|cannot copy .*: File exists")
_HINTS = {
    _LOCKED: "wait for the other git process; if there is none, remove the .lock file that it left",
    re.compile(r"partial commit during"): "finish or abort the merge first",
    re.compile(r"failed to sign|signing failed"): "unlock the signing key, or turn commit.gpgsign off here",
    re.compile(r"dubious ownership"): "the repository belongs to another user; see safe.directory in git's manual",
}
GitMode = bool | Literal["trusted"]
"""Whether changes are committed. "trusted" also runs the programs that the repository names."""
_NO_PROGRAMS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_NAMED_PROGRAM = {"clean": "", "smudge": "", "process": "", "required": "false", "enabled": "false"}
"""Settings of filters and hooks with a name of their own, and the values that turn them off."""
_KEPT = re.compile(
    r"GIT_((AUTHOR|COMMITTER)_\w+|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)|EXEC_PATH|TEMPLATE_DIR"
    r"|CEILING_DIRECTORIES|DISCOVERY_ACROSS_FILESYSTEM|ALLOW_PROTOCOL)"
)


def commit(
    root: str | os.PathLike[str],
    paths: Iterable[str],
    message: str,
    *,
    author: str | None = None,
    init: bool = False,
    trusted: bool = False,
) -> str | None:
    """Commit new, changed and removed files of a folder. Returns the id of the commit, or None if nothing changed.

    `author` is the author of the commit ("Ada <ada@example.org>"). `init` creates a repository in the folder if it is
    not in one. `trusted` runs the hooks, filters and signing that the repository configures. Raises `CommitFailed` with
    the output of git or a hook; then nothing is committed, the files stay as they are, and the call can be repeated.
    Blocks while git and its hooks run, for at most `TIMEOUT` per command.
    """
    check(message, author)
    wanted = sorted(map(_inner, set(paths)))
    folder = os.path.realpath(root)
    if not os.path.isdir(folder):
        raise InvalidInput(f"there is no folder {os.fspath(root)}", hint="write the files first")
    git = Git(folder, trusted)
    git.expect_repository(init)
    states = git.states(wanted)
    if ignored := sorted(path for path, state in states.items() if state == "!!"):
        raise InvalidInput(
            f"git ignores {ignored[0]}, so it cannot be committed",
            hint="remove it from .gitignore, or turn commits off",
        )
    return git.commit(states, message, author) if states else None


def checked_mode(git: object) -> GitMode:
    """The value of a `git` option. Raises `InvalidInput` for anything else."""
    if isinstance(git, bool):
        return git
    if git == "trusted":
        return "trusted"
    raise InvalidInput(f"`git` cannot be {shown(git)}", hint='use True, False or "trusted"')


def _inner(path: str) -> str:
    if not path or path.startswith("/") or "\0" in path or {"", ".", ".."} & set(path.split("/")):
        raise BoundaryRefused(path, "it is not a path inside the folder")
    return path


def check(message: str, author: str | None) -> None:
    """Raise `InvalidInput` for an empty message or an author that git does not accept."""
    if not message.strip():
        raise InvalidInput("the commit message is empty", hint="describe the change in a few words")
    if author is not None and not _AUTHOR.fullmatch(author):
        raise InvalidInput(
            f"`author` cannot be {shown(author)}", hint="give a name and an address: Ada Lovelace <ada@example.org>"
        )


class Answer(NamedTuple):
    """The result of a git command. `said` is its standard error."""

    code: int
    out: str
    said: str


class Git:
    """Runs git commands for files of one folder. Paths are relative to the folder.

    A repository can come from a stranger, and its settings can name programs. Unless it is `trusted`, git runs none of
    them: no hook, no filter, no file monitor, no signing program, and no transport to fetch missing objects.
    """

    def __init__(self, folder: str, trusted: bool = False) -> None:
        self._folder = folder
        self._trusted = trusted
        self._environment = scrubbed(os.environ)
        if not trusted:
            self._environment |= {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1"}
            self._configure(_NO_PROGRAMS)

    def expect_repository(self, init: bool) -> None:
        """Raise `InvalidInput` if the folder is not in a repository. With `init`, create one instead."""
        answer = self.ask("rev-parse", "--is-inside-work-tree")
        if not self._trusted:
            self._turn_off_named_programs()
        if not answer.code and answer.out.strip() == "true":
            return
        if answer.code and "not a git repository" not in answer.said:
            raise self._failure("examine", self._folder, answer)
        if answer.code and init:
            self._do("create a repository in", self._folder, "init", "--quiet", "--shared=0600")
            return
        raise InvalidInput(
            f"{self._folder} is not in a git work tree", hint="create a repository with `git init`, or turn commits off"
        )

    def _turn_off_named_programs(self) -> None:
        """Turn off filters and hooks with names of their own, which no single setting covers. Call it before a command
        that reads files of the work tree."""
        names = self.ask("config", "--name-only", "-z", "--get-regexp", r"^(filter|hook)\.").out.split("\0")
        drivers = {name.rpartition(".")[0] for name in names if name}
        self._configure({f"{driver}.{part}": value for driver in drivers for part, value in _NAMED_PROGRAM.items()})

    def _configure(self, settings: Mapping[str, str]) -> None:
        """Add settings that override those of all files. The environment takes names that contain "="."""
        count = self._environment.get("GIT_CONFIG_COUNT", "")
        first = int(count) if count.isdecimal() else 0
        for number, (name, value) in enumerate(settings.items(), first):
            self._environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        self._environment["GIT_CONFIG_COUNT"] = str(first + len(settings))

    def states(self, paths: Sequence[str]) -> dict[str, str]:
        """The two-letter `git status` of each file. Files without changes are not in the result."""
        prefix = self._do("examine", self._folder, "rev-parse", "--show-prefix").out.removesuffix("\n")
        options = ["--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching"]
        options.append("--ignore-submodules=all")
        found: dict[str, str] = {}
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            answer = self._do("examine", _named(some), "--no-optional-locks", "status", *options, "--", *some)
            for entry in filter(None, answer.out.split("\0")):
                found[entry[3:].removeprefix(prefix)] = entry[:2]
        return found

    def commit(self, states: Mapping[str, str], message: str, author: str | None) -> str | None:
        """Commit the files. Returns the id of the commit, or None if another process committed the same changes."""
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
        """Run a git command. Repeats it while another process holds a lock."""
        for pause in PAUSES:
            answer = self._run(command, given)
            if not answer.code or not _LOCKED.search(answer.said):
                return answer
            time.sleep(pause)
        return self._run(command, given)

    def _run(self, command: tuple[str, ...], given: str) -> Answer:
        """Run a git command once. It uses files instead of pipes, because a background process that a hook started
        would keep a pipe open and block the caller."""
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
                hint = "install git and put it on the PATH, or turn commits off"
                raise CommitFailed(f"git cannot be started: {error.strerror}", hint=hint) from error
            self._await(process)
            return Answer(process.returncode, _content(out), _content(said))

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise CommitFailed(
                f"git took longer than {TIMEOUT:g} s in {self._folder}",
                hint="run `git commit` by hand: a hook or the signing program may be waiting for input",
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
    """The environment for git commands. Removes variables that select another index or repository, which git sets
    inside a hook. Keeps the identity and the location of the user's settings."""
    kept = {name: value for name, value in environment.items() if not name.startswith("GIT_") or _KEPT.fullmatch(name)}
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": ":"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate git, then kill it. Git removes its locks when it is terminated."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
            return


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
