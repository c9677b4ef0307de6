"""One sync: what people changed is taken in, then what the store knows is written."""

from __future__ import annotations

import os
from hashlib import blake2b

from ...crash_points import reach
from ...errors import BoundaryRefused, FileChanged, FileMalformed, InvalidInput
from ...journal.journal import Journal
from ...memory.knowledge.proposals import PERSONA, ProposalDraft, ProposalState
from ...memory.memory_service import MemoryService
from ...runtime import run_blocking
from ..folder.boundary import Folder
from ..folder.walk import Walked
from .git_commits import commit, planned
from .inlet import Inlet, Shown
from .journal_edit import HUMAN
from .known_memories import Knowing
from .manifest_file import Kept, sync_lock
from .outlet import Outlet
from .report import FilesSynced, Left, Taken
from .runtime_files import runtime_files
from .sync_manifest import Manifest

_SOUL = "SOUL.md"
_AGENTS = "AGENTS.md"


def _quietly(what: str, done: int, total: int) -> None:
    """Nobody looks."""


class Syncing:
    """The files of a workspace in one folder."""

    def __init__(self, journal: Journal, service: MemoryService, root: str, commits: bool) -> None:
        self._journal = journal
        self._service = service
        self._commits = commits
        self.folder = Folder(root, journal.workspace)
        self._kept = Kept(self.folder.root, journal.workspace)
        self._swept = False

    async def sync(self, shown: Shown | None = None, deletions: bool = False) -> FilesSynced:
        """Take in what people changed, write what the store knows. Many files that are missing at once were deleted
        if somebody says so."""
        await run_blocking(self.folder.expect_there)
        async with sync_lock(self.folder.root):
            return await self._sync(shown or _quietly, deletions)

    async def _sync(self, shown: Shown, deletions: bool) -> FilesSynced:
        if not self._swept:
            await run_blocking(self.folder.sweep)
            self._swept = True
        manifest = await run_blocking(self._kept.load)
        walked = await run_blocking(self.folder.walk)
        wiped = f"workspace/{self.folder.own}/MEMORY.md" not in walked.files
        inlet = Inlet(self._journal, self._service, self.folder, shown)
        await inlet.take_in(walked, manifest, wiped, deletions)
        reach("files.taken")
        outlet = Outlet(self._journal, self._service, self.folder, {one.path for one in inlet.left}, shown)
        await outlet.write(manifest, walked, inlet.numbers, inlet.scopes, wiped)
        soul = await self._persona(manifest, walked, outlet.left)
        volatile = await self._runtime()
        reach("files.written")
        taken = (*inlet.taken, *soul[1])
        written, removed = (*outlet.written, *soul[0], *volatile), (*inlet.removed, *outlet.removed)
        left = list(dict.fromkeys([*inlet.left, *outlet.left]))
        made: list[str] = []
        if self._commits:
            changes = (*taken, *inlet.conflicts)
            paths = (*outlet.told, *outlet.pages, *soul[0])
            manifest.commits += await planned(
                paths, (*removed, *inlet.missing), outlet.told, changes, Knowing(self._journal, self._service)
            )
            if manifest.commits:
                await run_blocking(lambda: self._kept.save(manifest))
                reach("files.uncommitted")
            made = await commit(self.folder.root, manifest, left)
        await run_blocking(lambda: self._kept.save(manifest))
        return FilesSynced(written, removed, taken, tuple(inlet.conflicts), tuple(left), tuple(made))

    async def _runtime(self) -> list[str]:
        texts = await runtime_files(self._journal, self._service, self.folder.own)
        return list((await run_blocking(lambda: self.folder.write_all(texts))).changed)

    async def _persona(self, manifest: Manifest, walked: Walked, left: list[Left]) -> tuple[list[str], list[Taken]]:
        """The persona. One that cannot be read or written stops nothing else."""
        try:
            return await self._soul(manifest, walked)
        except FileMalformed as error:
            left.append(Left(_SOUL, error.reason, error.line))
        except BoundaryRefused as error:
            left.append(Left(_SOUL, error.reason))
        return [], []

    async def _soul(self, manifest: Manifest, walked: Walked) -> tuple[list[str], list[Taken]]:
        """The persona: written when it changed; an edit by hand is proposed, and stands until somebody decides."""
        text = await self._service.persona.text()
        stored = f"{text}\n" if text and not text.endswith("\n") else text
        found = await run_blocking(lambda: self.folder.read(_SOUL)) if _SOUL in walked.files else None
        if found is not None and found.strip() and found.strip() != text.strip() and _hash(found) != manifest.soul:
            wanted = ProposalDraft(found.rstrip("\n"), PERSONA, {}, "SOUL.md was edited", "edited by hand")
            proposal = await self._service.proposals.make(wanted, None, HUMAN)
            if proposal is not None and proposal.state is ProposalState.PENDING:
                return [], [Taken(_SOUL, "proposed", None)]
        if not text or found == stored:
            accepted = found is not None and bool(text) and manifest.soul != _hash(stored)
            manifest.soul = _hash(stored) if accepted else manifest.soul
            return ([_SOUL] if accepted else []), []
        try:
            seen = walked.files.get(_SOUL)
            wrote = await run_blocking(lambda: self.folder.write(_SOUL, stored, seen=seen))
        except FileChanged:
            return [], []
        manifest.soul = _hash(stored)
        return ([_SOUL] if wrote else []), []

    def instructions(self) -> str:
        """What AGENTS.md says; empty if there is none. It is read, never written."""
        return (self.folder.read(_AGENTS) or "").strip()

    def close(self) -> None:
        """Let go of the folder."""
        self.folder.close()


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def checked_root(root: object) -> str:
    """The folder to use. Raises `InvalidInput` for what is none."""
    if not isinstance(root, (str, os.PathLike)) or not os.fspath(root):
        raise InvalidInput(f"{root!r} is no folder", hint="give a path")
    return os.fspath(root)
