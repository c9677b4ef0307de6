"""One sync of a folder: reads the edits of people, then writes the changes of the store."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b

from ...crash_points import reach
from ...errors import BoundaryRefused, FileChanged, FileMalformed
from ...journal.events import check_path
from ...journal.journal import Journal
from ...memory.knowledge.proposals import PERSONA, ProposalDraft, ProposalState
from ...memory.memory_service import MemoryService
from ...runtime import run_blocking
from ..folder.boundary import Folder
from ..folder.git import GitMode
from ..folder.walk import Walked
from .folder_reader import FolderReader, ProgressCallback
from .folder_writer import FolderWriter
from .git_commits import commit, planned, without
from .intent_file import load_intents, remove_intents, save_intents
from .journal_edit import HUMAN
from .known_memories import KnownMemories
from .manifest_file import ManifestFile
from .report import FileEdit, FilesSynced, SkippedFile
from .runtime_files import runtime_files
from .state_folder import StateFolder, sync_lock
from .sync_manifest import SyncManifest

_PERSONA_FILE = "SOUL.md"
_AGENTS = "AGENTS.md"


def _quietly(what: str, done: int, total: int) -> None:
    """The default progress callback, which does nothing."""


class FolderSync:
    """Syncs the files of a workspace in one folder."""

    def __init__(self, journal: Journal, service: MemoryService, root: str, commits: GitMode) -> None:
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
        async with sync_lock(self.folder) as state:
            return await self._sync(state, shown or _quietly, deletions)

    async def _sync(self, state: StateFolder, shown: ProgressCallback, deletions: bool) -> FilesSynced:
        manifest = await run_blocking(lambda: self._manifest_file.load(state))
        unfinished = await run_blocking(lambda: load_intents(state))
        if unfinished or not self._swept:
            await run_blocking(self.folder.sweep)
            self._swept = True
        walked = await run_blocking(self.folder.walk)
        wiped = f"workspace/{self.folder.own}/MEMORY.md" not in walked.files
        reader = FolderReader(self._journal, self._service, self.folder, unfinished, shown)
        await reader.take_in(walked, manifest, wiped, deletions)
        reach("files.read_in")
        intend = partial(save_intents, state, unfinished)
        held = {one.path for one in reader.skipped}
        writer = FolderWriter(self._journal, self._service, self.folder, held, intend, shown)
        days, scopes = set(unfinished.days), reader.scopes | ({True, False} if unfinished else set())
        await writer.write(manifest, walked, reader.numbers, days, scopes, wiped)
        persona = await self._persona(manifest, walked, writer.skipped)
        volatile = await self._runtime()
        reach("files.written")
        edits = (*reader.edits, *persona[1])
        written, removed = (*writer.written, *persona[0], *volatile), (*reader.removed, *writer.removed)
        skipped = list(dict.fromkeys([*reader.skipped, *writer.skipped]))
        manifest.commits = without(manifest.commits, {*removed, *reader.missing})
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
                await run_blocking(lambda: self._manifest_file.save(state, manifest))
                reach("files.uncommitted")
            made = await commit(self.folder.root, manifest, skipped, self._commits == "trusted")
        await run_blocking(lambda: self._manifest_file.save(state, manifest))
        reach("files.saved")
        await run_blocking(lambda: remove_intents(state))
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
    return check_path(root, "give the path of a folder")
