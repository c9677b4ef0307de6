"""The manifest of a folder: the memory and the signature of each file, and how far the store was read.

With it, the next sync processes only changes. Without it, the sync compares everything, but cannot recognise deleted
files.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import msgspec

from ..folder.walk import Signature

FORMAT_VERSION = 2


class ManifestEntry(msgspec.Struct, array_like=True):
    """A file that contains a memory: number and id of the memory, its line in the index, the signature of the file, the
    expiry of the memory, the reference of its subject, and the inode of the folder."""

    number: int
    id: str
    line: str
    seen: tuple[int, int, int, int]
    expires: int | None = None
    owner: str = ""
    folder_inode: int = 0


class LogLine(msgspec.Struct, array_like=True):
    """A line of a daily log, and its time."""

    time: int
    line: str


class IndexPage(msgspec.Struct, array_like=True):
    """An index or a daily log: its signature, and the lines that people added."""

    seen: tuple[int, int, int, int]
    added: list[str] = []


class Commit(msgspec.Struct, array_like=True):
    """A planned git commit: its files and its message."""

    paths: list[str]
    message: str


class ManifestState(msgspec.Struct, kw_only=True):
    """A stored manifest, or the changes of one. In changes, None means removed."""

    base: str
    workspace: str
    form: int = FORMAT_VERSION
    audiences: dict[str, int] = {}
    files: dict[str, ManifestEntry | None] = {}
    days: dict[str, dict[str, LogLine | None]] = {}
    pages: dict[str, IndexPage | None] = {}
    persona: str = ""
    owed: list[int] = []
    commits: list[Commit] = []


class SyncManifest:
    """The state of a folder after a sync.

    `owed` are the numbers of memories whose files could not be written, `commits` the commits that were not made. The
    next sync tries both again. The manifest records its own changes and keeps its lines sorted, so that one change does
    not cost a pass over many thousands of files.
    """

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.files: dict[str, ManifestEntry] = {}
        self.numbers: dict[int, str] = {}
        """The path of each file, by the number of its memory."""
        self.expiring: dict[str, int] = {}
        self.days: dict[str, dict[str, LogLine]] = {}
        self.audiences: dict[str, int] = {}
        self.pages: dict[str, IndexPage] = {}
        self.persona = ""
        self.owed: list[int] = []
        self.commits: list[Commit] = []
        self._listed: dict[bool, list[str]] = {False: [], True: []}
        self._ordered: dict[str, list[tuple[int, str, str]]] = {}
        self._news = ManifestChanges()
        self.replaced = False
        """Whether the whole manifest must be stored again."""

    def put(self, path: str, entry: ManifestEntry) -> None:
        """Add or replace the entry of a file."""
        self._unlist(path)
        self.files[path] = entry
        self.numbers[entry.number] = path
        if entry.expires is not None:
            self.expiring[path] = entry.expires
        insort(self._listed[is_shared(path)], entry.line)
        self._news.files.add(path)

    def drop(self, path: str) -> ManifestEntry | None:
        """Remove the entry of a file. Returns it, or None if there was none."""
        entry = self._unlist(path)
        if entry is not None:
            del self.files[path]
            self._news.files.add(path)
        return entry

    def _unlist(self, path: str) -> ManifestEntry | None:
        entry = self.files.get(path)
        if entry is not None:
            if self.numbers.get(entry.number) == path:
                del self.numbers[entry.number]
            self.expiring.pop(path, None)
            _remove(self._listed[is_shared(path)], entry.line)
        return entry

    def clear(self) -> None:
        """Remove everything except `persona`, `owed` and `commits`."""
        fresh = SyncManifest(self.workspace)
        fresh.persona, fresh.owed, fresh.commits = self.persona, self.owed, self.commits
        self.__dict__ = fresh.__dict__
        self.replaced = True

    def lines(self, shared: bool) -> list[str]:
        """The sorted lines of the root index (`shared`) or the workspace index."""
        return list(self._listed[shared])

    def log(self, day: str, number: str, entry: LogLine) -> bool:
        """Add or replace a line in the log of a day. Returns False if nothing changed."""
        lines = self.days.setdefault(day, {})
        before = lines.get(number)
        if before == entry:
            return False
        ordered = self._ordered.setdefault(day, [])
        if before is not None:
            _remove(ordered, (before.time, number, before.line))
        lines[number] = entry
        insort(ordered, (entry.time, number, entry.line))
        self._news.days.add((day, number))
        return True

    def unlog(self, number: str) -> set[str]:
        """Remove a line from the logs. Returns the days that contained it."""
        found = {day for day, lines in self.days.items() if number in lines}
        for day in found:
            entry = self.days[day].pop(number)
            _remove(self._ordered[day], (entry.time, number, entry.line))
            if not self.days[day]:
                del self.days[day], self._ordered[day]
            self._news.days.add((day, number))
        return found

    def logged(self, day: str) -> list[str]:
        """The lines of the log of a day, in time order."""
        return [line for _, _, line in self._ordered.get(day, ())]

    def count(self, audience: str, changes: int) -> None:
        """Record up to which change an audience was read."""
        self.audiences[audience] = changes
        self._news.audiences.add(audience)

    def page(self, path: str, page: IndexPage | None) -> None:
        """Record the state of an index or a log. None removes it."""
        if self.pages.get(path) != page:
            self._news.pages.add(path)
        if page is None:
            self.pages.pop(path, None)
        else:
            self.pages[path] = page

    # -- storing

    def whole(self, base: str) -> ManifestState:
        """The whole manifest, to be stored."""
        return ManifestState(
            base=base,
            workspace=self.workspace,
            audiences=self.audiences,
            files=dict(self.files),
            days={day: dict(lines) for day, lines in self.days.items()},
            pages=dict(self.pages),
            **self._small(),
        )

    def changes(self, base: str) -> ManifestState:
        """The changes since the manifest was last stored."""
        days: dict[str, dict[str, LogLine | None]] = {}
        for day, number in sorted(self._news.days):
            days.setdefault(day, {})[number] = self.days.get(day, {}).get(number)
        return ManifestState(
            base=base,
            workspace=self.workspace,
            audiences={audience: self.audiences[audience] for audience in sorted(self._news.audiences)},
            files={path: self.files.get(path) for path in sorted(self._news.files)},
            days=days,
            pages={path: self.pages.get(path) for path in sorted(self._news.pages)},
            **self._small(),
        )

    def apply(self, state: ManifestState) -> None:
        """Apply a stored manifest or stored changes."""
        self.audiences.update(state.audiences)
        for path, entry in state.files.items():
            self.drop(path) if entry is None else self.put(path, entry)
        for day, lines in state.days.items():
            for number, line in lines.items():
                self.unlog(number) if line is None else self.log(day, number, line)
        for path, page in state.pages.items():
            self.page(path, page)
        self.persona, self.owed, self.commits = state.persona, state.owed, state.commits

    def _small(self) -> dict[str, Any]:
        return {"persona": self.persona, "owed": list(self.owed), "commits": list(self.commits)}

    def mark_saved(self) -> None:
        """Forget the recorded changes, because they are stored."""
        self._news = ManifestChanges(small=_encode(self._small()))
        self.replaced = False

    @property
    def size(self) -> int:
        """The number of recorded changes."""
        news = self._news
        return len(news.files) + len(news.days) + len(news.audiences) + len(news.pages) + self._is_odd()

    def _is_odd(self) -> bool:
        return self._news.small != _encode(self._small())

    @property
    def lost(self) -> bool:
        """Whether something was removed. Then the whole manifest is stored again, because removed lines may be of
        forgotten memories and must not stay on disk."""
        news = self._news
        return (
            self.replaced
            or any(path not in self.files for path in news.files)
            or any(number not in self.days.get(day, {}) for day, number in news.days)
        )


class ManifestChanges:
    """The recorded changes of a manifest."""

    def __init__(self, small: bytes = b"") -> None:
        self.files: set[str] = set()
        self.days: set[tuple[str, str]] = set()
        self.audiences: set[str] = set()
        self.pages: set[str] = set()
        self.small = small


def is_shared(path: str) -> bool:
    """Whether a memory file is listed in the root index."""
    return path.startswith(("preference/", "identity/"))


def _remove(ordered: list[Any], value: Any) -> None:
    at = bisect_left(ordered, value)
    if at < len(ordered) and ordered[at] == value:
        del ordered[at]


_encode = msgspec.json.Encoder().encode


def seen(signature: Signature) -> tuple[int, int, int, int]:
    """A signature as the manifest stores it."""
    return signature.size, signature.mtime, signature.inode, signature.ctime
