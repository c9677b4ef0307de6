"""What a sync did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A change that a person made in the files and that is journaled now: `what` is "edited", "added", "deleted",
    "verified" or "proposed"; `memory` is the id of what it became, or was; `event` the one that says so, as
    ``"session#position"``."""

    path: str
    what: str
    memory: str | None
    event: str | None = None


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was left alone, and why; `line` is where to look, if that is known."""

    path: str
    reason: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class FilesSynced:
    """What a sync did. `conflicts` are files that were edited while the memory changed: both are kept, the edit as a
    memory of its own. `skipped` were not understood, or refused. `commits` are those of git."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    edits: tuple[FileEdit, ...] = ()
    conflicts: tuple[FileEdit, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    commits: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was different on either side."""
        return bool(self.written or self.removed or self.edits or self.conflicts)
