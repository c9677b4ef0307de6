"""The result of a sync."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A change that a person made in a file, and that the sync journaled.

    `what` is "edited", "added", "deleted", "verified" or "proposed". `memory` is the id of the new or ended memory.
    `event` is the event that records the change, as ``"session#position"``.
    """

    path: str
    what: str
    memory: str | None
    event: str | None = None


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was not read or written, and why. `line` is the line of the problem, if it is known."""

    path: str
    reason: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class FilesSynced:
    """What a sync did.

    `conflicts` are files that were edited while their memory was replaced: both are kept, the edit as another memory.
    `skipped` are files that could not be parsed or were refused. `commits` are the ids of the new git commits.
    """

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    edits: tuple[FileEdit, ...] = ()
    conflicts: tuple[FileEdit, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    commits: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the sync changed a file or a memory."""
        return bool(self.written or self.removed or self.edits or self.conflicts)
