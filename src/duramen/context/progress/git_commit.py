"""Commits the progress file to git. `files.folder.git` runs the commands."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import DuramenError, InvalidInput
from ...files.folder.git import Git, GitMode, check
from .progress_file import create_file, render
from .record import Progress, same_step

_NEW = {"??", "A ", "AM", " A"}


def commit(
    path: str | os.PathLike[str],
    message: str,
    *,
    author: str | None = None,
    init: bool = False,
    trusted: bool = False,
) -> str | None:
    """Commit the file and return the id of the commit, or None if there is nothing to commit.

    `author` is the author of the commit ("Ada <ada@example.org>"). `init` creates a repository in the folder of the
    file if it is not in one. `trusted` runs the hooks, filters and signing that the repository configures. Blocks while
    git and its hooks run, for at most `TIMEOUT`.
    """
    return _commit(path, message, author, init=init, only_new=False, trusted=trusted)


def committed_text(path: str | os.PathLike[str]) -> str | None:
    """The text of the file in the newest commit. None if there is no commit with it, or no git."""
    target = Path(os.path.realpath(path))
    try:
        answer = Git(str(target.parent)).ask("show", f"HEAD:./{target.name}")
    except DuramenError:
        return None
    return None if answer.code else answer.out


def initialise(path: str | os.PathLike[str], progress: Progress, *, commit: GitMode, author: str | None = None) -> bool:
    """Write the file, and commit it for the first time if `commit` is set. Returns False if the file exists, and leaves
    it unchanged.

    Of several concurrent callers one gets True, and there is one commit. If the process is killed before the commit,
    the next call commits.
    """
    created = create_file(path, render(progress))
    if commit:
        goal = same_step(progress.goal)
        subject = goal if len(goal) <= 60 else goal[:59] + "…"
        words = f"Begin: {subject}" if subject else "Begin"
        _commit(path, words, author, init=True, only_new=True, trusted=commit == "trusted")
    return created


def _commit(
    path: str | os.PathLike[str], message: str, author: str | None, *, init: bool, only_new: bool, trusted: bool
) -> str | None:
    check(message, author)
    target = Path(os.path.realpath(path))
    if not target.is_file():
        raise InvalidInput(f"there is no file {os.fspath(path)} to commit", hint="write the file first")
    git = Git(str(target.parent), trusted)
    git.expect_repository(init)
    states = git.states([target.name])
    if not states or (only_new and not set(states.values()) <= _NEW):
        return None
    if "!!" in states.values():
        raise InvalidInput(
            f"git ignores {os.fspath(path)}, so it cannot be committed",
            hint="remove it from .gitignore, or turn commits off with git=False",
        )
    return git.commit(states, message, author)
