"""Commits of one file to git, for those who want their progress in its history: see `files.git` for how."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import DuramenError, InvalidInput
from ...files.folder.git import Git, check
from .progress_file import create_file, render
from .record import Progress, same_step

_NEW = {"??", "A ", "AM", " A"}


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
        answer = Git(str(target.parent)).ask("show", f"HEAD:./{target.name}")
    except DuramenError:
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
    check(message, author)
    target = Path(os.path.realpath(path))
    if not target.is_file():
        raise InvalidInput(f"there is no file {os.fspath(path)} to commit", hint="write it first")
    git = Git(str(target.parent))
    git.expect_repository(init)
    states = git.states([target.name])
    if not states or (only_new and not set(states.values()) <= _NEW):
        return None
    if "!!" in states.values():
        raise InvalidInput(
            f"git ignores {os.fspath(path)}, so it cannot be committed",
            hint="take it out of .gitignore, or do without commits",
        )
    return git.commit(states, message, author)
