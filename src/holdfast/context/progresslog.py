"""Progress in the journal: each change is an event, the record itself a checkpoint; and a file that people may edit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CheckpointConflict
from ..journal.journal import Journal
from ..runtime import aside
from . import commits
from .checkpoints import Checkpoints, Saved
from .progress import Progress, apply, changes
from .progressfile import read_file, render, write_file
from .progressreading import parse
from .states import Shapes

PROGRESS = "progress"
_FILE = "progress.file"


class Synced(NamedTuple):
    """What came of bringing a file and the journal together. `edited` says whether people had changed the file, `notes`
    what was read otherwise than it stood, `commit` is the new commit, if there is one."""

    progress: Progress
    edited: bool
    notes: tuple[str, ...]
    commit: str | None


class ProgressLog:
    """The progress of the sessions of one workspace."""

    def __init__(self, journal: Journal, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._shapes = Shapes(journal.codec)

    async def read(self, session: str, *, at: int | None = None) -> Progress:
        """How far the session has come, at its end or at a position."""
        return self._record(await self._checkpoints.load(session, PROGRESS, at=at))

    def _record(self, saved: Saved | None) -> Progress:
        if saved is None or saved.fields is None:
            return Progress()
        values = {name: self._shapes.value(inner) for name, inner in saved.fields.items()}
        return Progress(**{**values, "completed": tuple(values["completed"])})

    async def change(self, session: str, change: Callable[[Progress], Progress], *, actor: str = "agent") -> Progress:
        """Change it by a function from what it is to what it shall be, journaled; concurrent changes all count. Raises
        what the function raises, and then nothing is changed."""
        while True:
            saved = await self._checkpoints.load(session, PROGRESS)
            before = self._record(saved)
            after = change(before)
            differs = changes(before, after)
            if not differs:
                return before
            try:
                await self._checkpoints.save(
                    session,
                    PROGRESS,
                    self._form(after),
                    {"changes": differs},
                    type="progress.changed",
                    after=None if saved is None else saved.id,
                    actor=actor,
                )
            except CheckpointConflict:
                continue
            return after

    def _form(self, progress: Progress) -> dict[str, Any]:
        values: dict[str, Any] = asdict(progress)
        return {
            name: self._shapes.form(list(value) if name == "completed" else value) for name, value in values.items()
        }

    # -- the file

    async def sync(self, session: str, path: str | os.PathLike[str], *, git: bool, message: str | None) -> Synced:
        """Bring a file and the journal together: what people changed in the file since it was last written is journaled
        as theirs, then the file is written anew, and committed if `git` is wanted. A file that cannot be read as
        progress is refused and left alone."""
        base = await self._base(session, path)
        if base is None and await aside(lambda: not Path(path).exists()):
            progress = await self.read(session)
            created = await aside(lambda: commits.initialise(path, progress, commit=git))
            if created:
                await self._remember(session, path, progress)
                return Synced(progress, False, (), None)
        parsed = await aside(lambda: parse(read_file(path), str(path)) if Path(path).exists() else None)
        edits = [] if parsed is None else changes(base or Progress(), parsed.progress)
        progress = await self.read(session)
        if edits:
            progress = await self.change(session, lambda current: apply(current, edits), actor="human")
        await aside(lambda: write_file(path, render(progress)))
        if base != progress:
            await self._remember(session, path, progress)
        words = message or ("Edited by hand" if edits else "Progress")
        committed = await aside(lambda: commits.commit(path, words, init=True)) if git else None
        return Synced(progress, bool(edits), parsed.notes if parsed is not None else (), committed)

    async def _base(self, session: str, path: str | os.PathLike[str]) -> Progress | None:
        """What the file held when it was last written."""
        saved = await self._checkpoints.load(session, _FILE, id=_file_id(path))
        return None if saved is None else self._record(saved)

    async def _remember(self, session: str, path: str | os.PathLike[str], progress: Progress) -> None:
        note = {"path": os.fspath(path)}
        await self._checkpoints.save(
            session, _FILE, self._form(progress), note, id=_file_id(path), type="progress.written", like=PROGRESS
        )


def _file_id(path: str | os.PathLike[str]) -> str:
    return blake2b(os.path.abspath(path).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
