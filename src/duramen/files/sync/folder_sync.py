"""One sync of a folder: reads the edits of people, then writes the changes of the store."""

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
from .folder_reader import FolderReader, ProgressCallback
from .folder_writer import FolderWriter
from .git_commits import commit, planned
from .journal_edit import HUMAN
from .known_memories import KnownMemories
from .manifest_file import ManifestFile, sync_lock
from .report import FileEdit, FilesSynced, SkippedFile
from .runtime_files import runtime_files
from .sync_manifest import SyncManifest

_PERSONA_FILE = "SOUL.md"
_AGENTS = "AGENTS.md"


def _quietly(what: str, done: int, total: int) -> None:
    """The default progress callback, which does nothing."""


class FolderSync:
    """Syncs the files of a workspace in one folder."""

    def __init__(self, journal: Journal, service: MemoryService, root: str, commits: bool) -> None:
        self._journal = journal
        self._service = service
        self._commits = commits
        self.folder = Folder(root, journal.workspace)
        self._manifest_file = ManifestFile(self.folder.root, journal.workspace)
        self._swept = False

    async def sync(self, shown: ProgressCallback | None = None, deletions: bool = False) -> FilesSynced:
        """Journal the edits of people, then write the changes of the store. Returns what was done.

        If many files are missing at once, they count as deleted only with `deletions`. One sync runs at a time per
        folder; others wait. Raises `FileError` if the folder was removed or replaced.
        """
        await run_blocking(self.folder.expect_there)
        async with sync_lock(self.folder.root):
            return await self._sync(shown or _quietly, deletions)

    async def _sync(self, shown: ProgressCallback, deletions: bool) -> FilesSynced:
        if not self._swept:
            await run_blocking(self.folder.sweep)
            self._swept = True
        manifest = await run_blocking(self._manifest_file.load)
        walked = await run_blocking(self.folder.walk)
        wiped = f"workspace/{self.folder.own}/MEMORY.md" not in walked.files
        reader = FolderReader(self._journal, self._service, self.folder, shown)
        await reader.take_in(walked, manifest, wiped, deletions)
        reach("files.read_in")
        writer = FolderWriter(self._journal, self._service, self.folder, {one.path for one in reader.skipped}, shown)
        await writer.write(manifest, walked, reader.numbers, reader.scopes, wiped)
        persona = await self._persona(manifest, walked, writer.skipped)
        volatile = await self._runtime()
        reach("files.written")
        edits = (*reader.edits, *persona[1])
        written, removed = (*writer.written, *persona[0], *volatile), (*reader.removed, *writer.removed)
        skipped = list(dict.fromkeys([*reader.skipped, *writer.skipped]))
        made: list[str] = []
        if self._commits:
            changes = (*edits, *reader.conflicts)
            paths = (*writer.rendered, *writer.pages, *persona[0])
            manifest.commits += await planned(
                paths,
                (*removed, *reader.missing),
                writer.rendered,
                changes,
                KnownMemories(self._journal, self._service),
            )
            if manifest.commits:
                await run_blocking(lambda: self._manifest_file.save(manifest))
                reach("files.uncommitted")
            made = await commit(self.folder.root, manifest, skipped)
        await run_blocking(lambda: self._manifest_file.save(manifest))
        return FilesSynced(written, removed, edits, tuple(reader.conflicts), tuple(skipped), tuple(made))

    async def _runtime(self) -> list[str]:
        texts = await runtime_files(self._journal, self._service, self.folder.own)
        return list((await run_blocking(lambda: self.folder.write_all(texts))).changed)

    async def _persona(
        self, manifest: SyncManifest, walked: Walked, skipped: list[SkippedFile]
    ) -> tuple[list[str], list[FileEdit]]:
        """Sync the persona. If its file cannot be read or written, it is skipped and the sync continues."""
        try:
            return await self._sync_persona(manifest, walked)
        except FileMalformed as error:
            skipped.append(SkippedFile(_PERSONA_FILE, error.reason, error.line))
        except BoundaryRefused as error:
            skipped.append(SkippedFile(_PERSONA_FILE, error.reason))
        return [], []

    async def _sync_persona(self, manifest: SyncManifest, walked: Walked) -> tuple[list[str], list[FileEdit]]:
        """Write the persona if it changed. An edit by hand becomes a proposal, and stays in the file until someone
        accepts or dismisses it. Returns the paths written and the edits."""
        text = await self._service.persona.text()
        stored = f"{text}\n" if text and not text.endswith("\n") else text
        found = await run_blocking(lambda: self.folder.read(_PERSONA_FILE)) if _PERSONA_FILE in walked.files else None
        if found is not None and found.strip() and found.strip() != text.strip() and _hash(found) != manifest.persona:
            wanted = ProposalDraft(found.rstrip("\n"), PERSONA, {}, "SOUL.md was edited", "edited by hand")
            proposal = await self._service.proposals.make(wanted, None, HUMAN)
            if proposal is not None and proposal.state is ProposalState.PENDING:
                return [], [FileEdit(_PERSONA_FILE, "proposed", None)]
        if not text or found == stored:
            accepted = found is not None and bool(text) and manifest.persona != _hash(stored)
            manifest.persona = _hash(stored) if accepted else manifest.persona
            return ([_PERSONA_FILE] if accepted else []), []
        try:
            seen = walked.files.get(_PERSONA_FILE)
            wrote = await run_blocking(lambda: self.folder.write(_PERSONA_FILE, stored, seen=seen))
        except FileChanged:
            return [], []
        manifest.persona = _hash(stored)
        return ([_PERSONA_FILE] if wrote else []), []

    def instructions(self) -> str:
        """The text of AGENTS.md. Empty if there is none. duramen never writes this file."""
        return (self.folder.read(_AGENTS) or "").strip()

    def close(self) -> None:
        """Close the folder."""
        self.folder.close()


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def checked_root(root: object) -> str:
    """The path of a folder as text. Raises `InvalidInput` if it is not a path."""
    if not isinstance(root, (str, os.PathLike)) or not os.fspath(root):
        raise InvalidInput(f"{root!r} is not a path", hint="give the path of a folder")
    return os.fspath(root)
