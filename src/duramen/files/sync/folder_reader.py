"""Files to store: journals the files that people edited, added or deleted, with the actor "human"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import msgspec

from ...errors import FileChanged, FileError, FileMalformed, InvalidInput
from ...journal.journal import Journal
from ...memory.memory_service import MemoryService
from ...runtime import pause, run_blocking
from ..folder.boundary import Folder
from ..folder.walk import MEMORY_AREAS, Signature, Walked
from ..formats.memory_file import MemoryFile, parse
from .intent_file import WriteIntents
from .journal_edit import HUMAN, JournalEdit
from .known_memories import KnownMemories
from .memory_mapping import FILE, StoredMemory, is_same, memory_file_of, memory_input, path_of
from .report import FileEdit, SkippedFile
from .sync_manifest import ManifestEntry, SyncManifest, is_shared, seen

_SAVING = 0.25
"""Seconds to wait before a missing file counts as deleted. Some editors move a file away before they save it."""
_MANY, _SHARE, _VERY_MANY = 10, 4, 100
"""Missing files are not treated as deletions from 10 files on if they are a quarter of all, and always from 100 on."""
ProgressCallback = Callable[[str, int, int], None]
"""Called with the name of the activity, the number of items done, and the total."""


class FolderReader:
    """Journals what people did to the files of a folder."""

    def __init__(
        self,
        journal: Journal,
        service: MemoryService,
        folder: Folder,
        unfinished: WriteIntents,
        shown: ProgressCallback,
    ) -> None:
        self._journal = journal
        self._service = service
        self._folder = folder
        self._unfinished = unfinished
        self._shown = shown
        self._memories = KnownMemories(journal, service)
        self._journal_edit = JournalEdit(service)
        self.edits: list[FileEdit] = []
        self.conflicts: list[FileEdit] = []
        self.skipped: list[SkippedFile] = []
        self.removed: list[str] = []
        self.missing: list[str] = []
        self.numbers: set[int] = set()
        """Numbers of memories whose files must be written again, even if unchanged."""
        self.scopes: set[bool] = set()
        """The indexes that lost a line: True for the root index, False for the workspace index."""
        self._paths: dict[int, str] = {}
        self._settling: list[tuple[str, str | None, Signature]] = []

    async def take_in(self, walked: Walked, manifest: SyncManifest, wiped: bool, deletions: bool = False) -> None:
        """Journal the changes since the last sync. If the folder was `wiped`, no file counts as deleted. If many files
        are missing, they count as deleted only with `deletions`."""
        self.skipped += [SkippedFile(path, reason) for path, reason in walked.refused]
        self._paths = dict(manifest.numbers)
        changed = [path for path in walked.files if self._is_news(path, walked, manifest)]
        for number, path in enumerate(changed):
            await self._one(path, walked.files[path], manifest, walked)
            self._shown("Reading", number + 1, len(changed))
        for path, memory, signature in self._settling:  # after all files were read: two may have the same content
            await self._settle(path, memory, signature)
        if not wiped:
            refused = {path for path, _ in walked.refused}
            await self._missed(sorted(manifest.files.keys() - walked.files.keys() - refused), manifest, deletions)

    def _is_news(self, path: str, walked: Walked, manifest: SyncManifest) -> bool:
        signature, entry = walked.files.get(path), manifest.files.get(path)
        if signature is None or (entry is not None and entry.seen == signature):
            return False
        return self._folder.place(path).area in MEMORY_AREAS

    async def _one(self, path: str, signature: Signature, manifest: SyncManifest, walked: Walked) -> None:
        try:
            text = await run_blocking(lambda: self._folder.read(path))
            if text is None:
                return
            if await self._is_left_over(path, text, manifest):
                await self._remove(path, signature)
            else:
                await self._judge(path, parse(text, path), signature, manifest, walked)
        except FileMalformed as error:
            if not await self._erased(path, signature, manifest):
                self.skipped.append(SkippedFile(path, error.reason, error.line))
        except (FileError, InvalidInput) as error:  # continue with the other files
            self.skipped.append(SkippedFile(path, error.message))

    async def _judge(
        self, path: str, file: MemoryFile, signature: Signature, manifest: SyncManifest, walked: Walked
    ) -> None:
        if file.id is None:
            file = await self._rewritten(path, file, manifest)
        if file.id is None:
            await self._added(path, file, signature)
            return
        rows = await self._memories.versions(file.id)
        current = next((one for one in rows if one.row.closed is None), None)
        if not rows:
            await self._unknown(path, signature, manifest)
        elif current is not None:
            await self._compared(path, file, current, signature, manifest, walked)
        elif (newer := await self._taken_before(path, file, rows[-1])) is not None:
            self._told_before(path, file, newer, signature, manifest)
        elif not is_same(file, self._stored_file(rows[-1])):
            await self._clashed(path, file, rows[-1], signature, manifest)
        elif path in manifest.files:
            self.numbers.add(manifest.files[path].number)
        else:
            self.skipped.append(
                SkippedFile(path, "its memory has ended: remove the file, or remove its `id` to add it again")
            )

    async def _rewritten(self, path: str, file: MemoryFile, manifest: SyncManifest) -> MemoryFile:
        """Restore the `id` of a known file that lost it. A person or a program rewrote the file, so it is an edit. If
        the identifying fields are missing too, the stored ones are used, so that the memory keeps its subject."""
        entry = manifest.files.get(path)
        versions = [] if entry is None else await self._memories.versions(entry.id)
        known = next((one for one in versions if entry and one.row.number == entry.number), None)
        if known is None or known.row.closed is not None:
            return file
        self.numbers.add(known.row.number)  # write the file again, with its `id`
        if not (file.kind or file.key or file.subject or file.source):
            old = self._stored_file(known)
            file = replace(file, kind=old.kind, key=old.key, subject=old.subject, scope=old.scope)
            file = replace(file, tags=file.tags or old.tags, extra={**old.extra, **file.extra})
        return replace(file, id=known.row.id)

    async def _unknown(self, path: str, signature: Signature, manifest: SyncManifest) -> None:
        """Handle a file whose memory is not in the store."""
        if not await self._erased(path, signature, manifest):
            self.skipped.append(
                SkippedFile(path, "its memory is unknown or was forgotten: remove its `id` to add it again")
            )

    async def _erased(self, path: str, signature: Signature, manifest: SyncManifest) -> bool:
        """Whether the subject of a file was erased. If so, the file is removed, even if it was edited."""
        entry = manifest.files.get(path) or self._unfinished.files.get(path)
        if entry is None or not entry.owner or await self._memories.has_owner(entry.owner):
            return False
        await self._remove(path, signature)
        return True

    async def _is_left_over(self, path: str, text: str, manifest: SyncManifest) -> bool:
        """Whether a killed sync wrote this file, nobody edited it, and its memory has ended since then."""
        intent = self._unfinished.files.get(path)
        if intent is None or path in manifest.files or self._unfinished.digest(text) != intent.digest:
            return False
        return all(one.row.closed is not None for one in await self._memories.versions(intent.memory))

    async def _remove(self, path: str, signature: Signature) -> None:
        with suppress(FileChanged):
            if await run_blocking(lambda: self._folder.remove(path, seen=signature)):
                self.removed.append(path)

    async def _taken_before(self, path: str, file: MemoryFile, old: StoredMemory) -> StoredMemory | None:
        """The memory that replaced an old one, if it has the content of the file."""
        said = memory_input(file, file.kind or old.row.kind, self._folder.place(path).name, old)
        for id in (old.row.successor, await self._memories.identity(said)):
            for one in await self._memories.versions(id or ""):
                now = self._stored_file(one)
                if one.row.closed is None and (now.content, now.steps) == (file.content, file.steps):
                    return one
        return None

    def _told_before(
        self, path: str, file: MemoryFile, newer: StoredMemory, signature: Signature, manifest: SyncManifest
    ) -> None:
        """Handle a file whose content is already stored: an interrupted sync journaled it, or the file is a copy."""
        self.numbers.add(newer.row.number)
        own = path_of(newer, self._journal.workspace)
        if path in manifest.files or path == own:
            return
        if is_same(file, self._stored_file(newer)):
            self._settling.append((path, newer.row.id, signature))
        else:
            self.skipped.append(SkippedFile(path, f"it is a copy of {own}: remove its `id` to add it as a new memory"))

    def _stored_file(self, known: StoredMemory) -> MemoryFile:
        return memory_file_of(known, self._service.policies)

    async def _compared(
        self,
        path: str,
        file: MemoryFile,
        known: StoredMemory,
        signature: Signature,
        manifest: SyncManifest,
        walked: Walked,
    ) -> None:
        """Handle a file of a current memory: unchanged, moved, copied or edited."""
        before = self._paths.get(known.row.number)
        if before is not None and before != path and before in walked.files:
            self.skipped.append(
                SkippedFile(path, f"it is a copy of {before}: remove its `id` to add it as a new memory")
            )
            return
        stored = self._stored_file(known)
        if is_same(file, stored) and before in (None, path):
            await self._touched(path, file, stored, known, signature, manifest)
            return
        moved = before not in (None, path)
        if before is not None:
            manifest.drop(before)
            self.scopes.add(is_shared(before))
        where = self._folder.place(path)
        kind = file.kind or where.kind or known.row.kind
        if moved and where.kind is not None and where.kind != known.row.kind and file.kind == known.row.kind:
            kind = where.kind
        memory = await self._journal_edit.revise(known, memory_input(file, kind, where.name, known))
        self._settling.append((path, memory, signature))
        self.edits.append(FileEdit(path, "edited", memory, await self._memories.source(memory)))

    async def _touched(
        self,
        path: str,
        file: MemoryFile,
        stored: MemoryFile,
        known: StoredMemory,
        signature: Signature,
        manifest: SyncManifest,
    ) -> None:
        """Handle a file with the same content. It may differ in spacing, in `verified`, or in fields that only the
        store sets."""
        if file.verified is not None and stored.verified is not None and file.verified > stored.verified:
            verified = await self._service.catalog.confirm(known.row.id, actor=HUMAN)
            self.edits.append(FileEdit(path, "verified", known.row.id, verified.source))
        store_fields = ("policy", "observed", "verified", "source")
        if any(getattr(file, name) != getattr(stored, name) for name in store_fields):
            self.numbers.add(known.row.number)
        elif path in manifest.files:
            folder_inode = await run_blocking(lambda: self._folder.folder_inode(path))
            manifest.put(
                path, msgspec.structs.replace(manifest.files[path], seen=seen(signature), folder_inode=folder_inode)
            )

    async def _added(self, path: str, file: MemoryFile, signature: Signature) -> None:
        where = self._folder.place(path)
        if not (file.content.strip() or file.steps or (file.title or "").strip()):
            self.skipped.append(SkippedFile(path, "it has no content to remember", 1))
            return
        said = memory_input(file, file.kind or where.kind or "fact", where.name, None)
        memory = await self._memories.filed_at(path, said) or await self._journal_edit.say(said)
        self.edits.append(FileEdit(path, "added", memory, await self._memories.source(memory)))
        self._settling.append((path, memory, signature))

    async def _settle(self, path: str, memory: str | None, signature: Signature) -> None:
        """Remove a file that is not at the path of its memory. The file at that path exists or will be written."""
        known = [one for one in await self._memories.versions(memory or "") if one.row.closed is None]
        self.numbers |= {one.row.number for one in known}
        if known and path_of(known[0], self._journal.workspace) != path:
            with suppress(FileChanged):
                await run_blocking(lambda: self._folder.remove(path, seen=signature))

    async def _clashed(
        self, path: str, file: MemoryFile, old: StoredMemory, signature: Signature, manifest: SyncManifest
    ) -> None:
        """Handle an edit of a memory that was replaced in the meantime: it becomes another memory."""
        said = memory_input(file, file.kind or old.row.kind, self._folder.place(path).name, None)
        metadata = {name: value for name, value in said.details["metadata"].items() if name != FILE}
        metadata["conflicts_with"] = old.row.successor or old.row.id
        memory = await self._journal_edit.say(said._replace(details=said.details | {"key": None, "metadata": metadata}))
        self.conflicts.append(FileEdit(path, "edited", memory, await self._memories.source(memory)))
        for id in (old.row.successor or old.row.id, memory or ""):
            self.numbers |= {one.row.number for one in await self._memories.versions(id)}
        if path in manifest.files:
            self.numbers.add(manifest.files[path].number)  # this path now belongs to another memory
        else:
            self._settling.append((path, memory, signature))

    async def _missed(self, paths: list[str], manifest: SyncManifest, deletions: bool) -> None:
        """Handle missing files, after a short wait in which an editor may save them again."""
        if not paths:
            return
        await pause(_SAVING)
        gone: list[str] = []
        for path in paths:
            try:
                found = await run_blocking(lambda path=path: self._folder.signature(path))  # type: ignore[misc]
            except FileError as error:  # the folder was replaced: its files were not deleted
                self.skipped.append(SkippedFile(path, error.message))
                continue
            if found is None:
                gone.append(path)
        if not deletions and _too_many(len(gone), len(manifest.files)):
            self._held_back(gone)
            return
        for path in gone:
            entry = manifest.files[path]
            folder_inode = await run_blocking(lambda path=path: self._folder.folder_inode(path))  # type: ignore[misc]
            if folder_inode and entry.folder_inode and folder_inode != entry.folder_inode:
                self.numbers.add(entry.number)  # the folder was replaced, so the file was not deleted from it
            else:
                manifest.drop(path)
                self.scopes.add(is_shared(path))
                await self._deleted(path, entry)

    def _held_back(self, gone: list[str]) -> None:
        """Report missing files that are not treated as deleted, as after a partial checkout or an unmounted disk."""
        for folder, count in sorted(Counter(path.rpartition("/")[0] for path in gone).items()):
            reason = (
                f"{count} of its files are missing, too many to be treated as deleted: restore them, or confirm with "
                "`duramen sync --deletions` or sync(deletions=True); to have all missing files written again, remove "
                "MEMORY.md of the workspace and sync"
            )
            self.skipped.append(SkippedFile(folder, reason))

    async def _deleted(self, path: str, entry: ManifestEntry) -> None:
        self.missing.append(path)
        for one in await self._memories.versions(entry.id):
            if one.row.number == entry.number and one.row.closed is None:
                event = await self._service.catalog.retire(one.row, actor=HUMAN)
                self.edits.append(FileEdit(path, "deleted", one.row.id, event))


def _too_many(gone: int, known: int) -> bool:
    return gone >= _MANY and (gone * _SHARE >= known or gone >= _VERY_MANY)
