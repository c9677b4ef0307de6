"""One sync: what people changed is taken in, then what the store knows is written."""

from __future__ import annotations

import os
from hashlib import blake2b

from ..crashpoints import reach
from ..errors import FileChanged, HoldfastError, InvalidInput
from ..files import git
from ..files.boundary import Folder
from ..files.walking import Walked
from ..journal.journal import Journal
from ..memory.mind import Mind
from ..memory.proposals import SOUL, ProposalState, Wanted
from ..runtime import aside
from . import manifest as manifests
from .inlet import HUMAN, Inlet
from .leafing import Known
from .manifest import Manifest
from .outlet import Outlet
from .report import FilesSynced, Left, Taken
from .runtime import runtime_files

_SOUL = "SOUL.md"
_AGENTS = "AGENTS.md"
_EACH = 100
"""So many changes get a commit of their own; more of them at once share one."""


class Syncing:
    """The files of a workspace in one folder."""

    def __init__(self, journal: Journal, mind: Mind, root: str, commits: bool) -> None:
        self._journal = journal
        self._mind = mind
        self._commits = commits
        self.folder = Folder(root, journal.workspace)
        self._swept = False

    async def sync(self) -> FilesSynced:
        """Take in what people changed, write what the store knows."""
        with manifests.alone_in(self.folder.root):
            return await self._sync()

    async def _sync(self) -> FilesSynced:
        if not self._swept:
            await aside(self.folder.sweep)
            self._swept = True
        root, workspace = self.folder.root, self._journal.workspace
        manifest, stored = await aside(lambda: manifests.load(root, workspace))
        walked = await aside(self.folder.walk)
        wiped = f"workspace/{self.folder.own}/MEMORY.md" not in walked.files
        inlet = Inlet(self._journal, self._mind, self.folder)
        await inlet.take_in(walked, manifest, wiped)
        outlet = Outlet(self._journal, self._mind, self.folder)
        reach("files.taken")
        outlet.held = {one.path for one in inlet.left}
        await outlet.write(manifest, walked, inlet.numbers, wiped)
        soul = await self._soul(manifest, walked)
        for path, text in (await runtime_files(self._journal, self._mind, self.folder.own)).items():
            if await aside(lambda path=path, text=text: self.folder.write(path, text)):  # type: ignore[misc]
                outlet.written.append(path)
        reach("files.written")
        await aside(lambda: manifests.save(root, manifest, stored))
        taken = (*inlet.taken, *soul[1])
        left = [*inlet.left, *outlet.left]
        written = (*outlet.written, *soul[0])
        commits = await self._commit(written, outlet.removed, outlet.told, taken, left) if self._commits else ()
        return FilesSynced(written, tuple(outlet.removed), taken, tuple(inlet.conflicts), tuple(left), tuple(commits))

    async def _soul(self, manifest: Manifest, walked: Walked) -> tuple[list[str], list[Taken]]:
        """The persona: written when it changed; an edit by hand is proposed, and stands until somebody decides."""
        text = await self._mind.persona.text()
        stored = f"{text}\n" if text and not text.endswith("\n") else text
        found = await aside(lambda: self.folder.read(_SOUL)) if _SOUL in walked.files else None
        if found is not None and found.strip() and found.strip() != text.strip() and _hash(found) != manifest.soul:
            wanted = Wanted(found.rstrip("\n"), SOUL, {}, "SOUL.md was edited", "edited by hand")
            proposal = await self._mind.proposals.make(wanted, None, HUMAN)
            if proposal is not None and proposal.state is ProposalState.PENDING:
                return [], [Taken(_SOUL, "proposed", None)]
        if not text or found == stored:
            return [], []
        try:
            seen = walked.files.get(_SOUL)
            wrote = await aside(lambda: self.folder.write(_SOUL, stored, seen=seen))
        except FileChanged:
            return [], []
        manifest.soul = _hash(stored)
        return ([_SOUL] if wrote else []), []

    def instructions(self) -> str:
        """What AGENTS.md says; empty if there is none. It is read, never written."""
        return (self.folder.read(_AGENTS) or "").strip()

    # -- git

    async def _commit(
        self,
        written: tuple[str, ...],
        removed: list[str],
        told: dict[str, Known],
        taken: tuple[Taken, ...],
        left: list[Left],
    ) -> list[str]:
        """A commit for each change, and one for what follows from them. What git refuses is said; the files stay, and
        are committed by the next sync."""
        by_path = {one.path: one for one in taken}
        steady = [path for path in (*written, *removed) if "/runtime/" not in path]
        leaves = [path for path in steady if path in told or path in by_path or path in removed]
        changes = [([path], _message(path, told.get(path), by_path.get(path))) for path in leaves]
        if len(changes) > _EACH:
            changes = [(leaves, f"{len(leaves)} memories")]
        rest = [path for path in steady if path not in leaves]
        if rest:
            changes.append((rest, "Indexes and logs"))
        made: list[str] = []
        for paths, message in changes:
            try:
                commit = await aside(
                    lambda paths=paths, message=message: git.commit(self.folder.root, paths, message, init=True)  # type: ignore[misc]
                )
            except (HoldfastError, OSError) as error:
                left.append(Left(paths[0], f"not committed: {error}"))
                break
            if commit is not None:
                made.append(commit)
        return made

    def close(self) -> None:
        """Let go of the folder."""
        self.folder.close()


def _message(path: str, known: Known | None, taken: Taken | None) -> str:
    """Kind, actor and event of a change."""
    name = os.path.splitext(os.path.basename(path))[0]
    if known is None:
        who = HUMAN if taken is not None else "holdfast"
        what = "" if taken is None or taken.memory is None else f"\n\nMemory: {taken.memory}"
        return f"{'Remove' if taken is None or taken.what == 'deleted' else 'Change'} {name} ({who}){what}"
    row, who = known.row, HUMAN if taken is not None else "holdfast"
    return f"{row.kind}: {name} ({who})\n\nEvent: {row.session}#{row.position}\nMemory: {row.id}\nActor: {who}"


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def checked_root(root: object) -> str:
    """The folder to use. Raises `InvalidInput` for what is none."""
    if not isinstance(root, (str, os.PathLike)) or not os.fspath(root):
        raise InvalidInput(f"{root!r} is no folder", hint="give a path")
    return os.fspath(root)
