"""Store to files: what changed since the last sync, as leaves, indexes and daily logs."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import FileChanged
from ..files.boundary import Folder
from ..files.indexes import Entry, brief, line, linked
from ..files.leaves import first_paragraph
from ..files.leaves import render as render_leaf
from ..files.walking import Walked
from ..journal.events import moment
from ..journal.journal import Journal
from ..memory.mind import Mind
from ..ports import Change, MemoryQuery, MemoryRow
from .inlet import known_of
from .leafing import Known, entry_of, leaf_of, other_path, path_of
from .manifest import Day, Filed, Manifest, seen
from .report import Left

_PAGE = 1_000
_ROOT = "MEMORY.md"


class Outlet:
    """Writes what the store knows into a folder."""

    def __init__(self, journal: Journal, mind: Mind, folder: Folder) -> None:
        self._journal = journal
        self._mind = mind
        self._folder = folder
        self.written: list[str] = []
        self.removed: list[str] = []
        self.left: list[Left] = []
        self.told: dict[str, Known] = {}
        """What was written, by path: for those who want to say more about it."""
        self.held: set[str] = set()
        """Files that people must look at first: they are neither written nor removed."""
        self._index = f"workspace/{folder.own}/MEMORY.md"

    async def write(self, manifest: Manifest, walked: Walked, forced: set[int], wiped: bool) -> None:
        """Bring the files up to date with the store, and the manifest with the files."""
        now = self._journal.clock.now()
        if wiped:
            manifest.files, manifest.pools, manifest.days = {}, {}, {}
        counts = await self._journal.store.pool_changes(self._journal.workspace, None)
        live: dict[int, Known] = {}
        gone = {one.number for one in manifest.files.values() if one.expires is not None and one.expires <= now}
        days: set[str] = set()
        for pool, count in sorted(counts.items()):
            before = manifest.pools.get(pool.hex(), 0)
            if pool[:1] != b"t" and (count != before):
                await self._read(pool, before, live, gone, manifest, days, now)
                manifest.pools[pool.hex()] = count
        for known in await self._again((forced | set(manifest.owed)) - live.keys() - gone):
            live[known.row.number] = known
        manifest.owed = []
        scopes = self._replace(manifest, live, gone, walked)
        self._write_days(manifest, days)
        self._write_indexes(manifest, scopes, wiped or not walked.files)

    async def _read(
        self,
        pool: bytes,
        after: int,
        live: dict[int, Known],
        gone: set[int],
        manifest: Manifest,
        days: set[str],
        now: int,
    ) -> None:
        """What changed in a pool."""
        store, workspace = self._journal.store, self._journal.workspace
        while changes := await store.changes(workspace, pool, 0, after, _PAGE):
            after = changes[-1].row.changed
            known = {one.row.number: one for one in await known_of(self._journal, self._mind, _rows(changes))}
            for change in changes:
                row = change.row
                told = known.get(row.number)
                _note_day(manifest, days, row, told)
                if told is None or row.closed is not None or (row.expires is not None and row.expires <= now):
                    gone.add(row.number)
                    live.pop(row.number, None)
                else:
                    live[row.number] = told

    async def _again(self, numbers: set[int]) -> list[Known]:
        if not numbers:
            return []
        query = MemoryQuery(numbers=tuple(sorted(numbers)), limit=len(numbers))
        rows = await self._journal.store.memories(self._journal.workspace, query)
        return [one for one in await known_of(self._journal, self._mind, rows) if one.row.closed is None]

    def _replace(self, manifest: Manifest, live: dict[int, Known], gone: set[int], walked: Walked) -> set[bool]:
        """Write the leaves that changed and remove those that went. Says which indexes changed: True is the root's."""
        scopes: set[bool] = set()
        numbers = manifest.by_number()
        left = {numbers[number] for number in gone | live.keys() if number in numbers}
        for path in left:
            del manifest.files[path]
        texts: dict[str, tuple[str, Known, Entry]] = {}
        for _, known in sorted(live.items()):
            path = path_of(known, self._journal.workspace)
            if path in texts or path in manifest.files:
                path = other_path(known, self._journal.workspace)
            leaf = leaf_of(known, self._mind.policies)
            texts[path] = (render_leaf(leaf), known, entry_of(leaf, path))
        for path in sorted(left - texts.keys()):
            self._remove(path, walked)
            scopes.add(self._is_shared(path))
        self._write_leaves(texts, manifest, walked, scopes)
        return scopes

    def _write_leaves(
        self, texts: dict[str, tuple[str, Known, Entry]], manifest: Manifest, walked: Walked, scopes: set[bool]
    ) -> None:
        wanted = {path: text for path, (text, _, _) in texts.items() if path not in self.held}
        done = self._folder.write_all(wanted, seen={path: walked.files.get(path) for path in wanted})
        refused = {one.path for one in done.refused} | set(done.edited) | self.held  # the next sync looks at them again
        self.left += [Left(path, reason) for path, reason in done.refused]
        self.written += done.changed
        signatures = self._folder.walk().files if len(texts) > _PAGE else None
        for path, (_, known, entry) in texts.items():
            found = signatures.get(path) if signatures is not None else None
            signature = found or (None if path in refused else self._folder.signature(path))
            if signature is None or path in refused:
                manifest.owed.append(known.row.number)
                continue
            text = line(entry_at(entry, _ROOT if self._is_shared(path) else self._index))
            if path not in manifest.files or manifest.files[path].line != text:
                scopes.add(self._is_shared(path))
            row = known.row
            manifest.files[path] = Filed(row.number, row.id, text, seen(signature), row.expires)
            self.told[path] = known

    def _remove(self, path: str, walked: Walked) -> None:
        """Remove the file of a memory that is gone, unless somebody edited it meanwhile."""
        if path not in walked.files or path in self.held:
            return
        try:
            if self._folder.remove(path, seen=walked.files[path]):
                self.removed.append(path)
        except FileChanged:
            self.left.append(Left(path, "edited while the memory went: remove the file, or its `id` to add it anew"))

    def _is_shared(self, path: str) -> bool:
        return path.startswith(("preference/", "identity/"))

    def _write_days(self, manifest: Manifest, days: set[str]) -> None:
        texts: dict[str, str] = {}
        for day in sorted(days):
            lines = manifest.days.get(day)
            path = f"memory/{day}.md"
            if not lines:
                manifest.days.pop(day, None)
                if self._folder.remove(path):
                    self.removed.append(path)
                continue
            ordered = sorted(lines.items(), key=lambda one: (one[1].time, one[0]))
            texts[path] = "\n".join([f"# {day}", "", *(day_line.line for _, day_line in ordered), ""])
        done = self._folder.write_all(texts)
        self.written += done.changed
        self.left += [Left(path, reason) for path, reason in done.refused]

    def _write_indexes(self, manifest: Manifest, scopes: set[bool], missing: bool) -> None:
        """The indexes whose scope changed, and those that are not there."""
        for shared, path in ((False, self._index), (True, _ROOT)):
            if shared not in scopes and not missing and self._folder.signature(path) is not None:
                continue
            lines = sorted(one.line for name, one in manifest.files.items() if self._is_shared(name) == shared)
            heading = "Memory" if shared else f"Memory of workspace {self._journal.workspace}"
            if shared:
                lines = [line(Entry(f"Workspace {self._journal.workspace}", self._index)), *lines]
            if self._folder.write(path, "\n".join([f"# {heading}", "", *lines, ""])):
                self.written.append(path)


def entry_at(entry: Entry, index: str) -> Entry:
    """An entry as it stands in an index."""
    return Entry(entry.title, linked(entry.path, index), entry.kind, entry.policy, entry.tags, entry.summary)


def _rows(changes: Iterable[Change]) -> list[MemoryRow]:
    return [change.row for change in changes]


def _note_day(manifest: Manifest, days: set[str], row: MemoryRow, told: Known | None) -> None:
    """The lines of a memory in the daily logs: when it was said, and when it ended. None for what was forgotten."""
    for number in (f"{row.number}", f"{row.number}-"):
        for day, lines in manifest.days.items():
            if number in lines and told is None:
                del lines[number]
                days.add(day)
    if told is None:
        return
    what = brief(first_paragraph(told.data["content"]))
    said = f"[{row.kind}] {what}"
    _put(manifest, days, f"{row.number}", row.recorded, said)
    if row.closed is not None and row.closed != row.recorded:
        _put(manifest, days, f"{row.number}-", row.closed, f"~~{said}~~")


def _put(manifest: Manifest, days: set[str], number: str, time: int, text: str) -> None:
    when = moment(time)
    day = f"{when:%Y-%m-%d}"
    entry = Day(time, f"- {when:%H:%M} {text}")
    if manifest.days.setdefault(day, {}).get(number) != entry:
        manifest.days[day][number] = entry
        days.add(day)
