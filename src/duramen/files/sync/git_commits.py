"""Commits changed files to git: one commit for each memory, and one for indexes and logs.

Planned commits are stored in the manifest before git runs. If the process is killed, a hook refuses, or git is missing,
the next sync makes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from functools import partial

from ...errors import DuramenError
from ...runtime import run_blocking
from ..folder import git
from .known_memories import KnownMemories
from .memory_mapping import StoredMemory
from .report import FileEdit, SkippedFile
from .sync_manifest import Commit, SyncManifest

_EACH = 100
"""Up to this many changes get one commit each. More changes share one commit."""
_VOLATILE = "/runtime/"


async def planned(
    written: Sequence[str],
    removed: Sequence[str],
    rendered: Mapping[str, StoredMemory],
    edits: Sequence[FileEdit],
    memories: KnownMemories,
) -> list[Commit]:
    """The commits for the changes of a sync."""
    by_path = {one.path: one for one in edits}
    deleted = [one.path for one in edits if one.what == "deleted"]
    paths = [path for path in dict.fromkeys((*written, *removed, *deleted)) if _VOLATILE not in path]
    memory_paths = [
        path for path in paths if path in rendered or path in by_path or (path in removed and _is_memory_file(path))
    ]
    if len(memory_paths) > _EACH:
        commits = [Commit(memory_paths, f"{len(memory_paths)} memories")]
    else:
        actors = await memories.actors(rendered[path] for path in memory_paths if path in rendered)
        commits = [
            Commit([path], _message(path, rendered.get(path), by_path.get(path), actors)) for path in memory_paths
        ]
    rest = [path for path in paths if path not in set(memory_paths)]
    return [*commits, Commit(rest, "Indexes and logs")] if rest else commits


def _is_memory_file(path: str) -> bool:
    return not path.startswith("memory/") and "/" in path


def _message(path: str, known: StoredMemory | None, edit: FileEdit | None, actors: Mapping[int, str]) -> str:
    """The commit message of a change: kind, name, actor and event."""
    name = os.path.splitext(os.path.basename(path))[0]
    if known is not None:
        row = known.row
        who = actors.get(row.number, "duramen")
        return f"{row.kind}: {name} ({who})\n\nEvent: {row.session}#{row.position}\nMemory: {row.id}\nActor: {who}"
    kind = path.split("/")[-2].removesuffix("s") if "/" in path else "persona"
    if edit is None:
        return f"{kind}: {name} removed (duramen)\n\nActor: duramen"
    about = [f"Event: {edit.event}"] if edit.event else []
    about += [f"Memory: {edit.memory}"] if edit.memory else []
    return "\n".join([f"{kind}: {name} {edit.what} (human)", "", *about, "Actor: human"])


def without(commits: Sequence[Commit], paths: Set[str]) -> list[Commit]:
    """Planned commits without files that were removed since. Their names may be of an erased person."""
    left = (Commit([path for path in one.paths if path not in paths], one.message) for one in commits)
    return [one for one in left if one.paths]


async def commit(root: str, manifest: SyncManifest, skipped: list[SkippedFile], trusted: bool) -> list[str]:
    """Make the planned commits in order. Returns their ids. A failure stops them and is added to `skipped`; the files
    stay, and the next sync tries again."""
    made: list[str] = []
    while manifest.commits:
        due = manifest.commits[0]
        try:
            done = await run_blocking(partial(git.commit, root, due.paths, due.message, init=True, trusted=trusted))
        except (DuramenError, OSError) as error:
            skipped.append(SkippedFile(due.paths[0], f"it was not committed, the next sync tries again: {error}"))
            break
        manifest.commits.pop(0)
        if done is not None:
            made.append(done)
    return made
