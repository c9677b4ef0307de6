"""What the last sync left: which file holds which memory, how each looked, and how far the store was read.

It makes the next sync look only at what changed. It can be lost: without it everything is compared again, and only
deleted files are not recognised.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import msgspec

from ..folder.walk import Signature

FORMAT_VERSION = 2


class ManifestEntry(msgspec.Struct, array_like=True):
    """A file that holds a memory: which, its line in the index, how the file looked, when the memory expires, by
    reference whose it is, and in which folder it lies."""

    number: int
    id: str
    line: str
    seen: tuple[int, int, int, int]
    expires: int | None = None
    owner: str = ""
    folder_inode: int = 0


class LogLine(msgspec.Struct, array_like=True):
    """A line of a daily log: when, and what."""

    time: int
    line: str


class IndexPage(msgspec.Struct, array_like=True):
    """An index or a log, which we write: how it looked, and the lines in it that people added."""

    seen: tuple[int, int, int, int]
    added: list[str] = []


class Commit(msgspec.Struct, array_like=True):
    """What is to be committed to git: which files, and what to say."""

    paths: list[str]
    message: str


class ManifestState(msgspec.Struct, kw_only=True):
    """A manifest as it is stored, or what changed in one: None stands for what went."""

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
    """What the last sync left. `owed` are memories whose files could not be written, `commits` what is not in git yet:
    the next sync tries again. It notes what changes in it, and keeps what is asked for at each sync in order: with many
    thousand files one change must not cost a walk through all of them."""

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.files: dict[str, ManifestEntry] = {}
        self.numbers: dict[int, str] = {}
        """The files, by the numbers of the memories in them."""
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
        """Whether all of it must be stored again."""

    def put(self, path: str, entry: ManifestEntry) -> None:
        """A file holds a memory."""
        self._unlist(path)
        self.files[path] = entry
        self.numbers[entry.number] = path
        if entry.expires is not None:
            self.expiring[path] = entry.expires
        insort(self._listed[is_shared(path)], entry.line)
        self._news.files.add(path)

    def drop(self, path: str) -> ManifestEntry | None:
        """A file holds a memory no longer."""
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
        """There are no files; what is owed, stays."""
        fresh = SyncManifest(self.workspace)
        fresh.persona, fresh.owed, fresh.commits = self.persona, self.owed, self.commits
        self.__dict__ = fresh.__dict__
        self.replaced = True

    def lines(self, shared: bool) -> list[str]:
        """The lines of an index, in order: the root's, or the workspace's."""
        return list(self._listed[shared])

    def log(self, day: str, number: str, entry: LogLine) -> bool:
        """Put a line into the log of a day; False if it is there."""
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
        """Take a line out of the logs; gives the days that had it."""
        found = {day for day, lines in self.days.items() if number in lines}
        for day in found:
            entry = self.days[day].pop(number)
            _remove(self._ordered[day], (entry.time, number, entry.line))
            if not self.days[day]:
                del self.days[day], self._ordered[day]
            self._news.days.add((day, number))
        return found

    def logged(self, day: str) -> list[str]:
        """The lines of a day's log, in order."""
        return [line for _, _, line in self._ordered.get(day, ())]

    def count(self, audience: str, changes: int) -> None:
        """An audience was read up to here."""
        self.audiences[audience] = changes
        self._news.audiences.add(audience)

    def page(self, path: str, page: IndexPage | None) -> None:
        """How an index or a log looks; None: it is gone."""
        if self.pages.get(path) != page:
            self._news.pages.add(path)
        if page is None:
            self.pages.pop(path, None)
        else:
            self.pages[path] = page

    # -- storing

    def whole(self, base: str) -> ManifestState:
        """All of it."""
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
        """What changed since it was last stored."""
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
        """Take over what was stored, or what changed after that."""
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
        """What changed is stored."""
        self._news = ManifestChanges(small=_encode(self._small()))
        self.replaced = False

    @property
    def size(self) -> int:
        """How much changed."""
        news = self._news
        return len(news.files) + len(news.days) + len(news.audiences) + len(news.pages) + self._is_odd()

    def _is_odd(self) -> bool:
        return self._news.small != _encode(self._small())

    @property
    def lost(self) -> bool:
        """Whether something went: it must not stay in what is stored, as it may have been forgotten."""
        news = self._news
        return (
            self.replaced
            or any(path not in self.files for path in news.files)
            or any(number not in self.days.get(day, {}) for day, number in news.days)
        )


class ManifestChanges:
    """What changed in a manifest."""

    def __init__(self, small: bytes = b"") -> None:
        self.files: set[str] = set()
        self.days: set[tuple[str, str]] = set()
        self.audiences: set[str] = set()
        self.pages: set[str] = set()
        self.small = small


def is_shared(path: str) -> bool:
    """Whether a memory file is listed in the root's index."""
    return path.startswith(("preference/", "identity/"))


def _remove(ordered: list[Any], value: Any) -> None:
    at = bisect_left(ordered, value)
    if at < len(ordered) and ordered[at] == value:
        del ordered[at]


_encode = msgspec.json.Encoder().encode


def seen(signature: Signature) -> tuple[int, int, int, int]:
    """A signature as it is noted."""
    return signature.size, signature.mtime, signature.inode, signature.ctime
