"""Stores progress in the journal, and syncs it with a file that people may edit.

Each change is an event. The record is a checkpoint."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from filelock import lock_descriptor

from ...checkpoints.checkpoints import ANYTHING, Checkpoints, StoredCheckpoint
from ...checkpoints.state import StateCodec
from ...errors import CheckpointConflict, CheckpointDamaged, InvalidInput
from ...files.folder.git import GitMode
from ...journal.journal import Journal
from ...ports import Bookmark, BookmarkQuery
from ...runtime import pause, run_blocking
from . import git_commit as commits
from .progress_file import parse, read_file, render, write_file
from .record import Change, Progress, apply, changes

PROGRESS = "progress"
HANDOFF = "handoff"
CONTINUES = "session.continues"
_FILE = "progress.file"
_TEXT = "progress.text"
_CHAIN = 20
_OURS, _EDITED, _RESTORED = "ours", "edited", "restored"
_LOCK_TIMEOUT = 10.0
"""Seconds to wait for the lock of the file's folder."""
_LOCK_POLL = 0.002


class Synced(NamedTuple):
    """The result of a sync. `edited`: whether the file was edited by hand. `notes`: what was moved or not accepted.
    `commit`: the id of the new commit, if there is one."""

    progress: Progress
    edited: bool
    notes: tuple[str, ...]
    commit: str | None


class ProgressLog:
    """The progress of the sessions of one workspace."""

    def __init__(self, journal: Journal, checkpoints: Checkpoints) -> None:
        self._journal = journal
        self._checkpoints = checkpoints
        self._codec = StateCodec(journal.codec)

    def clean(self, text: str) -> str:
        """The text as it would be stored, with credentials redacted. Use it before a comparison with stored text."""
        settled: str = self._codec.normalized(text)
        return settled

    async def read(self, session: str, *, at: int | None = None) -> Progress:
        """The progress of a session, at its end or at position `at`. A session without progress of its own has that of
        the session that it continues."""
        return (await self._newest(session, at))[0]

    async def _newest(self, session: str, at: int | None) -> tuple[Progress, Any]:
        """The record, and the id of its checkpoint."""
        try:
            saved = await self._checkpoints.load(session, PROGRESS, at=at)
        except CheckpointDamaged:
            return Progress(), ANYTHING  # unreadable: start with an empty record
        if saved is not None:
            return self._record(saved), saved.id
        found = await self._journal.bookmarks.newest(session, HANDOFF, upto=at)
        events = [] if found is None else await self._journal.bookmarks.events(found.session, [found.bookmark.position])
        if not events or events[0].type != CONTINUES:
            return Progress(), None
        return await self.read(events[0].data["session"], at=events[0].data["position"]), None

    def _record(self, saved: StoredCheckpoint) -> Progress:
        values = {name: self._codec.value_of(inner) for name, inner in (saved.fields or {}).items()}
        return Progress(**{**values, "completed": tuple(values["completed"])})

    async def change(self, session: str, change: Callable[[Progress], Progress], *, actor: str = "agent") -> Progress:
        """Apply a function to the record and journal the difference. Returns the new record.

        After a concurrent change the function is called again on the newer record, so no change is lost. If the
        function raises, nothing changes.
        """
        while True:
            before, last = await self._newest(session, None)
            after = self._settled(change(before))
            differs = changes(before, after)
            if not differs:
                return before
            text = Bookmark(_TEXT, _digest(render(after)), 0, 0)
            try:
                await self._checkpoints.save(
                    session,
                    PROGRESS,
                    self._form(after),
                    {"changes": differs},
                    type="progress.changed",
                    after=last,
                    actor=actor,
                    also=(text,),
                )
            except CheckpointConflict:
                continue
            return after

    def _settled(self, progress: Progress) -> Progress:
        values = self._codec.normalized({**asdict(progress), "completed": list(progress.completed)})
        return Progress(**{**values, "completed": tuple(values["completed"])})

    def _form(self, progress: Progress) -> dict[str, Any]:
        values = {**asdict(progress), "completed": list(progress.completed)}
        return {name: self._codec.field_of(value) for name, value in values.items()}

    # -- the file

    async def sync(self, session: str, path: str, *, git: GitMode, message: str | None) -> Synced:
        """Sync a file with the journal. Edits made by hand since the last sync are journaled with the actor "human".
        Then the file is written, and committed if `git` is set.

        Raises `InvalidInput` for a file that cannot be parsed, and leaves it unchanged.
        """
        async with _folder_lock(path):
            edited, notes, progress = await self._read_edits(session, path, git)
            await run_blocking(lambda: write_file(path, render(progress)))
            await self._remember(session, path, progress)
        words = message or ("Edited by hand" if edited else "Progress")
        committed = (
            await run_blocking(
                lambda: commits.commit(path, self.clean(words)[:200], init=True, trusted=git == "trusted")
            )
            if git
            else None
        )
        return Synced(progress, edited, tuple(notes), committed)

    async def _read_edits(self, session: str, path: str, git: GitMode) -> tuple[bool, list[str], Progress]:
        """Journal the edits in the file. Returns whether there were any, the notes about them, and the record."""
        edited = False
        notes: list[str] = []
        while True:
            text = await run_blocking(lambda: read_file(path) if os.path.exists(path) else None)
            origin = _OURS if text is None else await self._origin(session, path, text)
            if text is not None and origin == _EDITED:
                notes += await self._take_over(session, path, text)
                edited = True
            elif origin == _RESTORED:
                notes.append("git restored an earlier text; this was not treated as an edit")
            progress = await self.read(session)
            fresh = text is None and await run_blocking(partial(commits.initialise, path, progress, commit=git))
            again = await run_blocking(lambda: read_file(path) if os.path.exists(path) else None)
            if fresh or again == text:
                return edited, notes, progress  # otherwise the file was saved in the meantime: read it again

    async def _origin(self, session: str, path: str, text: str) -> str:
        """Where the text of the file comes from. A text that duramen wrote is not an edit, unless the file contained a
        newer one since then: then a person or git restored it."""
        place = await self._place(session, text)
        if place is None:
            return _OURS if text == render(Progress()) else _EDITED
        base = await self._base(session, path)
        if base is None or text == render(self._record(base)) or place > (base.session, base.position):
            return _OURS
        if place[0] != base.session:
            return _OURS  # written for another session of the chain
        return _RESTORED if await run_blocking(lambda: commits.committed_text(path)) == text else _EDITED

    async def _place(self, session: str, text: str) -> tuple[str, int] | None:
        """The session and position of the newest record with this text."""
        for origin in await self.chain(session):
            async for found in self._journal.bookmarks.find(origin, BookmarkQuery(_TEXT, _digest(text)), page=1):
                return found.session, found.bookmark.position
        return None

    async def chain(self, session: str) -> list[str]:
        """A session and the sessions that it continues, newest first."""
        chain = [session]
        while len(chain) < _CHAIN:
            found = await self._journal.bookmarks.newest(chain[-1], HANDOFF)
            events = (
                [] if found is None else await self._journal.bookmarks.events(found.session, [found.bookmark.position])
            )
            if not events or events[0].type != CONTINUES or events[0].data["session"] in chain:
                break
            chain.append(events[0].data["session"])
        return chain

    async def _take_over(self, session: str, path: str, text: str) -> list[str]:
        """Journal the edits in a text. Edits that conflict with the journal are added to the context as text."""
        parsed = await run_blocking(lambda: parse(text, path))
        wanted = self._settled(parsed.progress)
        base = await self._base(session, path)
        edits = changes(Progress() if base is None else self._record(base), wanted)
        refused: list[str] = []

        def merged(current: Progress) -> Progress:
            refused.clear()
            return taken_over(current, edits, refused)

        await self.change(session, merged, actor="human")
        return [*parsed.notes, *refused]

    async def _base(self, session: str, path: str) -> StoredCheckpoint | None:
        """The record that the file contained when it was last written, by this session or one that it continues."""
        for origin in await self.chain(session):
            try:
                saved = await self._checkpoints.load(origin, _FILE, id=_digest(path))
            except CheckpointDamaged:
                return None
            if saved is not None:
                return saved
        return None

    async def _remember(self, session: str, path: str, progress: Progress) -> None:
        base = await self._base(session, path)
        if base is not None and base.session == session and self._record(base) == progress:
            return
        await self._checkpoints.save(
            session,
            _FILE,
            self._form(progress),
            {"path": path},
            id=_digest(path),
            type="progress.written",
            like=PROGRESS,
        )


def taken_over(current: Progress, edits: list[Change], refused: list[str]) -> Progress:
    """The record with the edits of a person. An edit that is no longer valid, because the record changed in the
    meantime, is added to the context as text and reported in `refused`."""
    try:
        return apply(current, edits)
    except InvalidInput:
        pass
    for edit in sorted(edits, key=lambda edit: edit["field"] != "context"):  # first, or it would overwrite the notes
        try:
            current = apply(current, [edit])
        except InvalidInput as why:
            said = edit.get("value", edit.get("added"))
            refused.append(f"{edit['field']} was not changed: {why.message}")
            note = f"Edited by hand, but not accepted: {edit['field']}: {said}"
            current = current.describe(f"{current.context}\n{note}".strip())
    return current


@asynccontextmanager
async def _folder_lock(path: str) -> AsyncGenerator[None, None]:
    """Lock the folder of a file while its text is read and replaced. After a timeout the sync continues without the
    lock: the file is still replaced atomically, and read again just before."""
    folder = os.path.dirname(path)
    if sys.platform == "win32" or not os.path.isdir(folder):
        yield  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + _LOCK_TIMEOUT
        while not _try_lock(handle) and time.monotonic() < until:
            await pause(_LOCK_POLL)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:  # a file system without locks
        return True


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=15).hexdigest()
