"""Store to files: writes the memories that changed since the last sync. `index_pages` writes indexes and daily logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...crash_points import reach
from ...errors import FileChanged, InvalidInput
from ...journal.journal import Journal
from ...memory.memory_service import MemoryService
from ...runtime import run_blocking
from ..folder.boundary import Folder
from ..folder.walk import Walked
from ..formats.index_file import IndexLine, linked, render_line
from ..formats.memory_file import render as render_memory_file
from .folder_reader import ProgressCallback
from .index_pages import ROOT, IndexPages, note_day
from .known_memories import KnownMemories
from .memory_mapping import StoredMemory, index_line_of, memory_file_of, other_path, path_of
from .report import SkippedFile
from .sync_manifest import ManifestEntry, SyncManifest, is_shared, seen

_PAGE = 1_000
_BATCH = 512
"""Memory files per batch."""
_Text = tuple[str, StoredMemory, IndexLine]
Intend = Callable[[Mapping[str, tuple[str, str, str]], Iterable[str]], None]
"""Records the files (memory, owner and text by path) and the days that are about to be written."""


class FolderWriter:
    """Writes the memories of the store to a folder."""

    def __init__(
        self,
        journal: Journal,
        service: MemoryService,
        folder: Folder,
        held: set[str],
        intend: Intend,
        shown: ProgressCallback,
    ) -> None:
        self._journal = journal
        self._service = service
        self._folder = folder
        self._held = held
        """Files that the reader skipped, and that a person must fix. They are neither written nor removed."""
        self._intend = intend
        self._shown = shown
        self._memories = KnownMemories(journal, service)
        self._index = f"workspace/{folder.own}/MEMORY.md"
        self.written: list[str] = []
        self.removed: list[str] = []
        self.skipped: list[SkippedFile] = []
        self.rendered: dict[str, StoredMemory] = {}
        """All memories processed, by path. An interrupted sync may have written one without a commit."""
        self.pages: list[str] = []

    async def write(
        self, manifest: SyncManifest, walked: Walked, forced: set[int], days: set[str], scopes: set[bool], wiped: bool
    ) -> None:
        """Update the files from the store, and the manifest from the files. `forced` are memories to write even if they
        are unchanged. `days` are logs, and `scopes` are indexes, that changed before: True for the root index."""
        now = self._journal.clock.now()
        counts = await self._journal.store.audience_changes(self._journal.workspace, None)
        if wiped or _is_behind(counts, manifest):
            manifest.clear()
        live: dict[int, StoredMemory] = {}
        gone = {manifest.files[path].number for path, expires in manifest.expiring.items() if expires <= now}
        for audience, count in sorted(counts.items()):
            before = manifest.audiences.get(audience.hex(), 0)
            if audience[:1] != b"t" and (count != before):
                await self._read(audience, before, live, gone, manifest, days, now)
                manifest.count(audience.hex(), count)
        for known in await self._memories.numbered((forced | set(manifest.owed)) - live.keys() - gone):
            live[known.row.number] = known
        manifest.owed = []
        await run_blocking(lambda: self._write(manifest, walked, live, gone, days, scopes))

    async def _read(
        self,
        audience: bytes,
        after: int,
        live: dict[int, StoredMemory],
        gone: set[int],
        manifest: SyncManifest,
        days: set[str],
        now: int,
    ) -> None:
        """Read the changes of an audience after a count into `live`, `gone` and `days`."""
        store, workspace = self._journal.store, self._journal.workspace
        while changes := await store.changes(workspace, audience, 0, after, _PAGE):
            after = changes[-1].row.changed
            rows = [change.row for change in changes]
            known = {one.row.number: one for one in await self._memories.of(rows)}
            for row in rows:
                stored = known.get(row.number)
                note_day(manifest, days, row, stored)
                if stored is None or row.closed is not None or (row.expires is not None and row.expires <= now):
                    gone.add(row.number)
                    live.pop(row.number, None)
                else:
                    live[row.number] = stored

    def _write(
        self,
        manifest: SyncManifest,
        walked: Walked,
        live: dict[int, StoredMemory],
        gone: set[int],
        days: set[str],
        scopes: set[bool],
    ) -> None:
        pages = IndexPages(self._folder, manifest, walked)
        scopes = scopes | self._replace(manifest, live, gone, walked, days)
        pages.write_days(days)
        pages.write_indexes(scopes)
        self.pages = pages.looked_at
        self.written += pages.written
        self.removed += pages.removed
        self.skipped += pages.skipped

    def _replace(
        self,
        manifest: SyncManifest,
        live: dict[int, StoredMemory],
        gone: set[int],
        walked: Walked,
        days: set[str],
    ) -> set[bool]:
        """Write the files that changed, and remove those of ended memories. Returns which indexes changed: True for the
        root index."""
        scopes: set[bool] = set()
        numbers = manifest.numbers
        left = {numbers[number] for number in gone | live.keys() if number in numbers}
        lines = {path: entry.line for path in left if (entry := manifest.drop(path)) is not None}
        texts: dict[str, _Text] = {}
        for _, known in sorted(live.items()):
            path = path_of(known, self._journal.workspace)
            if path in texts or path in manifest.files:
                path = other_path(known, self._journal.workspace)
            try:
                file = memory_file_of(known, self._service.policies)
                texts[path] = (render_memory_file(file), known, index_line_of(file, path))
            except InvalidInput as error:  # an application stored other data in the metadata
                self.skipped.append(SkippedFile(path, error.message))
        if texts or days:
            self._intend({path: (one.row.id, _owner(one), text) for path, (text, one, _) in texts.items()}, days)
            reach("files.intended")
        for path in sorted(left - texts.keys()):
            self._remove(path, walked)
            scopes.add(is_shared(path))
        refused = self._write_files(texts, walked)
        self._file(texts, refused, manifest, scopes, lines)
        return scopes

    def _write_files(self, texts: dict[str, _Text], walked: Walked) -> set[str]:
        """Write files in batches. Returns the paths that could not be written. The next sync tries again."""
        refused = set(self._held)
        paths = [path for path in texts if path not in self._held]
        for start in range(0, len(paths), _BATCH):
            self._shown("Writing", start, len(paths))
            some = paths[start : start + _BATCH]
            seen_then = {path: walked.files.get(path) for path in some}
            done = self._folder.write_all({path: texts[path][0] for path in some}, seen=seen_then)
            refused |= {one.path for one in done.refused} | set(done.edited)
            self.skipped += [SkippedFile(path, reason) for path, reason in done.refused]
            self.written += done.changed
        if paths:
            self._shown("Writing", len(paths), len(paths))
        return refused

    def _file(
        self,
        texts: dict[str, _Text],
        refused: set[str],
        manifest: SyncManifest,
        scopes: set[bool],
        lines: dict[str, str],
    ) -> None:
        """Record the written files in the manifest."""
        found = self._folder.walk().files if len(texts) > _PAGE else None
        folder_inode: dict[str, int] = {}
        for path, (_, known, index_line) in texts.items():
            signature = None
            if path not in refused:
                signature = self._folder.signature(path) if found is None else found.get(path)
            if signature is None:
                manifest.owed.append(known.row.number)
                continue
            text = render_line(_line_in(index_line, ROOT if is_shared(path) else self._index))
            if lines.get(path) != text:
                scopes.add(is_shared(path))
            row = known.row
            folder = path.rpartition("/")[0]
            if folder not in folder_inode:
                folder_inode[folder] = self._folder.folder_inode(path)
            entry = ManifestEntry(
                row.number, row.id, text, seen(signature), row.expires, _owner(known), folder_inode[folder]
            )
            manifest.put(path, entry)
            self.rendered[path] = known

    def _remove(self, path: str, walked: Walked) -> None:
        """Remove the file of an ended memory, unless it was edited in the meantime."""
        if path not in walked.files or path in self._held:
            return
        try:
            if self._folder.remove(path, seen=walked.files[path]):
                self.removed.append(path)
        except FileChanged:
            self.skipped.append(
                SkippedFile(
                    path, "it was edited while its memory ended: remove the file, or remove its `id` to add it again"
                )
            )


def _is_behind(counts: Mapping[bytes, int], manifest: SyncManifest) -> bool:
    """Whether the store has fewer changes than at the last sync: a backup was restored, or it is another store. Then
    the manifest cannot be used."""
    return any(counts.get(bytes.fromhex(audience), 0) < count for audience, count in manifest.audiences.items())


def _owner(known: StoredMemory) -> str:
    """The reference of the person that a memory is about. Empty if there is none."""
    return "" if known.row.owner is None or known.subject is None else known.row.owner.hex()


def _line_in(index_line: IndexLine, index: str) -> IndexLine:
    """The line with its path relative to an index."""
    return IndexLine(
        index_line.title,
        linked(index_line.path, index),
        index_line.kind,
        index_line.policy,
        index_line.tags,
        index_line.summary,
    )
