"""Writes indexes and daily logs from the manifest, and keeps the lines that people added.

A line in the format of duramen belongs to duramen, so that no forgotten memory stays in a log. Every other line belongs
to a person and is moved to the end of the page.
"""

from __future__ import annotations

import re

from ...errors import BoundaryRefused, FileChanged, FileMalformed
from ...journal.events import moment
from ...ports import MemoryRow
from ..folder.boundary import Folder
from ..folder.walk import Walked
from ..formats.index_file import IndexLine, brief, parse_line, render_line
from ..formats.memory_file import first_paragraph
from .memory_mapping import StoredMemory
from .report import SkippedFile
from .sync_manifest import IndexPage, LogLine, SyncManifest, seen

ROOT = "MEMORY.md"
_LOGGED = re.compile(r"- [0-9]{2}:[0-9]{2} (~~)?\[")


class IndexPages:
    """Writes the indexes and daily logs of a folder."""

    def __init__(self, folder: Folder, manifest: SyncManifest, walked: Walked) -> None:
        self._folder = folder
        self._manifest = manifest
        self._walked = walked
        self.looked_at: list[str] = []
        self.written: list[str] = []
        self.removed: list[str] = []
        self.skipped: list[SkippedFile] = []

    def write_indexes(self, scopes: set[bool]) -> None:
        """Write the indexes in `scopes` (True for the root index), and those that do not exist."""
        own, name = f"workspace/{self._folder.own}/MEMORY.md", self._folder.workspace
        for shared, path, heading in ((False, own, f"Memory of workspace {name}"), (True, ROOT, "Memory")):
            if shared not in scopes and path in self._walked.files:
                continue
            lines = self._manifest.lines(shared)
            if shared:
                lines.insert(0, render_line(IndexLine(f"Workspace {name}", own)))
            self._write(path, heading, lines)

    def write_days(self, days: set[str]) -> None:
        """Write the logs of these days, and those that do not exist."""
        missing = {day for day in self._manifest.days if f"memory/{day}.md" not in self._walked.files}
        for day in sorted(days | missing):
            self._write(f"memory/{day}.md", day, self._manifest.logged(day))

    def _write(self, path: str, heading: str, lines: list[str]) -> None:
        before = self._walked.files.get(path)
        self.looked_at.append(path)
        try:
            added = self._added(path, heading)
            if not lines and not added and path.startswith("memory/"):
                self._manifest.page(path, None)
                if self._folder.remove(path):
                    self.removed.append(path)
                return
            text = "\n".join([f"# {heading}", "", *lines, *(["", *added] if added else []), ""])
            if self._folder.write(path, text, seen=before):
                self.written.append(path)
            signature = self._folder.signature(path)
        except FileChanged:
            self.skipped.append(SkippedFile(path, "it was edited during the sync: the next sync reads it"))
        except FileMalformed as error:
            self.skipped.append(SkippedFile(path, error.reason, error.line))
        except BoundaryRefused as error:
            self.skipped.append(SkippedFile(path, error.reason))
        else:
            if signature is not None:
                self._manifest.page(path, IndexPage(seen(signature), added))

    def _added(self, path: str, heading: str) -> list[str]:
        """The lines of a page that people added."""
        signature, page = self._walked.files.get(path), self._manifest.pages.get(path)
        if signature is None:
            return []
        if page is not None and page.seen == signature:
            return page.added
        text = self._folder.read(path) or ""
        lines = [one.rstrip("\r") for one in text.removeprefix("\ufeff").split("\n")]
        found = [one for one in lines if one.rstrip() != f"# {heading}" and not _is_ours(one)]
        return "\n".join(found).strip("\n").split("\n") if any(map(str.strip, found)) else []


def _is_ours(text: str) -> bool:
    if _LOGGED.match(text):
        return True
    index_line = parse_line(text.strip())
    return index_line is not None and index_line.path.endswith(".md") and ("/" in index_line.path)


# -- the lines of a log


def note_day(manifest: SyncManifest, days: set[str], row: MemoryRow, stored: StoredMemory | None) -> None:
    """Log a memory on the day when it was recorded, and on the day when it ended. If `stored` is None, the memory was
    forgotten, and its lines are removed. The changed days are added to `days`."""
    if stored is None:
        days |= manifest.unlog(f"{row.number}") | manifest.unlog(f"{row.number}-")
        return
    said = f"[{row.kind}] {brief(first_paragraph(stored.data['content']))}"
    _put(manifest, days, f"{row.number}", row.recorded, said)
    if row.closed is not None and row.closed != row.recorded:
        _put(manifest, days, f"{row.number}-", row.closed, f"~~{said}~~")


def _put(manifest: SyncManifest, days: set[str], number: str, time: int, text: str) -> None:
    when = moment(time)
    day = f"{when:%Y-%m-%d}"
    if manifest.log(day, number, LogLine(time, f"- {when:%H:%M} {text}")):
        days.add(day)
