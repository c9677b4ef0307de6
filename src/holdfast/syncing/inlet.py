"""Files to store: what people edited, added or deleted becomes a journaled change by a human."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..errors import FileChanged, FileMalformed, HoldfastError, InvalidInput
from ..files.boundary import Folder
from ..files.leaves import Leaf, parse
from ..files.paths import Area
from ..files.walking import Signature, Walked
from ..journal.journal import Journal
from ..memory.items import Memory
from ..memory.mind import Mind
from ..memory.procedures import Edit
from ..memory.proposals import Wanted
from ..ports import MemoryQuery, MemoryRow
from .leafing import FILE, Known, Said, is_same, leaf_of, path_of, said_in
from .manifest import Filed, Manifest, seen
from .report import Left, Taken

HUMAN = "human"
_LEAVES = (Area.KNOWLEDGE, Area.PREFERENCE, Area.IDENTITY)
_BY_PROPOSAL = ("preference", "identity")


class Inlet:
    """Takes in what people did to the files of a folder."""

    def __init__(self, journal: Journal, mind: Mind, folder: Folder) -> None:
        self._journal = journal
        self._mind = mind
        self._folder = folder
        self.taken: list[Taken] = []
        self.conflicts: list[Taken] = []
        self.left: list[Left] = []
        self.numbers: set[int] = set()
        """Memories whose files must be written anew, changed or not."""
        self._paths: dict[int, str] = {}

    async def take_in(self, walked: Walked, manifest: Manifest, wiped: bool) -> None:
        """Journal what people changed since the last sync. Where all files are gone, none was deleted by hand."""
        self.left += [Left(path, reason) for path, reason in walked.refused]
        self._paths = manifest.by_number()
        for path, signature in walked.files.items():
            if self._folder.place(path).area in _LEAVES:
                filed = manifest.files.get(path)
                if filed is None or filed.seen != seen(signature):
                    await self._one(path, signature, manifest, walked)
        if not wiped:
            for path, filed in list(manifest.files.items()):
                if path not in walked.files and path not in dict(walked.refused):
                    await self._deleted(path, filed, manifest)

    async def _one(self, path: str, signature: Signature, manifest: Manifest, walked: Walked) -> None:
        try:
            text = self._folder.read(path)
            leaf = None if text is None else parse(text, path)
        except FileMalformed as error:
            self.left.append(Left(path, error.reason, error.line))
            return
        except HoldfastError as error:
            self.left.append(Left(path, error.message))
            return
        if leaf is None:
            return
        try:
            await self._judge(path, leaf, signature, manifest, walked)
        except InvalidInput as error:
            self.left.append(Left(path, error.message))

    async def _judge(self, path: str, leaf: Leaf, signature: Signature, manifest: Manifest, walked: Walked) -> None:
        if leaf.id is None:
            await self._added(path, leaf, signature)
            return
        rows = await self._rows(leaf.id)
        current = next((one for one in rows if one.row.closed is None), None)
        if not rows:
            self.left.append(Left(path, "its id is not known here, or was forgotten: remove the `id` to add it anew"))
        elif current is not None:
            await self._compared(path, leaf, current, signature, manifest, walked)
        elif not is_same(leaf, leaf_of(rows[-1], self._mind.policies)):
            await self._clashed(path, leaf, rows[-1])
        elif path in manifest.files:
            self.numbers.add(manifest.files[path].number)

    async def _compared(
        self, path: str, leaf: Leaf, known: Known, signature: Signature, manifest: Manifest, walked: Walked
    ) -> None:
        """A file of a memory that holds: as it is, moved, copied or edited."""
        before = self._paths.get(known.row.number)
        if before is not None and before != path and before in walked.files:
            self.left.append(Left(path, f"a copy of {before}: remove its `id` to add it as a memory of its own"))
            return
        moved = before is not None and before != path
        if is_same(leaf, leaf_of(known, self._mind.policies)) and not moved:
            if path in manifest.files:
                manifest.files[path].seen = seen(signature)  # only spaced otherwise, or touched
            return
        if before is not None:
            manifest.files.pop(before, None)
        where = self._folder.place(path)
        kind = leaf.kind or where.kind or known.row.kind
        if moved and where.kind is not None and where.kind != known.row.kind and leaf.kind == known.row.kind:
            kind = where.kind
        memory = await self._revise(known, said_in(leaf, kind, where.name, known))
        self.numbers.add(known.row.number)
        self.taken.append(Taken(path, "edited", memory))

    async def _added(self, path: str, leaf: Leaf, signature: Signature) -> None:
        where = self._folder.place(path)
        if not (leaf.content.strip() or leaf.steps or (leaf.title or "").strip()):
            self.left.append(Left(path, "there is nothing to remember in it", 1))
            return
        said = said_in(leaf, leaf.kind or where.kind or "fact", where.name, None)
        memory = await self._say(said)
        self.taken.append(Taken(path, "added", memory))
        known = [one for one in await self._rows(memory or "") if one.row.closed is None]
        if known and path_of(known[0], self._journal.workspace) != path:  # it has, or gets, a file of its own
            with suppress(FileChanged):
                self._folder.remove(path, seen=signature)
            self.numbers |= {one.row.number for one in known}

    async def _clashed(self, path: str, leaf: Leaf, old: Known) -> None:
        """Somebody edited what was replaced meanwhile: what they wrote becomes a memory beside the newer one."""
        said = said_in(leaf, leaf.kind or old.row.kind, self._folder.place(path).name, None)
        metadata = {name: value for name, value in said.details["metadata"].items() if name != FILE}
        metadata["conflicts_with"] = old.row.successor or old.row.id
        details = said.details | {"key": None, "metadata": metadata}
        memory = await self._say(said._replace(details=details))
        self.conflicts.append(Taken(path, "edited", memory))
        self.numbers |= {one.row.number for one in await self._rows(old.row.successor or old.row.id)}

    async def _deleted(self, path: str, filed: Filed, manifest: Manifest) -> None:
        known = [one for one in await self._rows(filed.id) if one.row.number == filed.number and one.row.closed is None]
        del manifest.files[path]
        for one in known:
            await self._mind.catalog.retire(one.row, actor=HUMAN)
            self.taken.append(Taken(path, "deleted", one.row.id))

    # -- what a change becomes

    async def _say(self, said: Said) -> str | None:
        """Remember what somebody wrote."""
        if said.steps and said.name:
            return await self._save(said)
        if said.kind in _BY_PROPOSAL:
            wanted = Wanted(said.content, said.kind, said.details, "written in a file", "written by hand")
            proposal = await self._mind.proposals.make(wanted, said.subject, HUMAN, accepted=True)
            if proposal is not None:
                return proposal.memory
        memory = await self._remember(said)
        return memory.id

    async def _remember(self, said: Said) -> Memory:
        return await self._mind.remember(
            None, said.content, said.kind, said.details, said.subject, HUMAN, None, fresh=False
        )

    async def _save(self, said: Said) -> str:
        assert said.name is not None
        title = None if said.details["title"] == said.name else said.details["title"]
        note = said.content if said.content not in ("", said.name, said.details["title"]) else None
        edit = Edit(said.steps, title, None, said.details.get("importance"), note)
        saved = await self._mind.procedures.save(said.name, edit, said.subject, HUMAN)
        self._mind.indexing.wake()
        return saved.memory.id

    async def _revise(self, known: Known, said: Said) -> str | None:
        """Put what somebody wrote in the place of what was there."""
        if known.procedure is not None or said.kind in _BY_PROPOSAL:
            memory = await self._say(said)
            if memory is not None and memory != known.row.id and (known.row.key is None or known.procedure is None):
                await self._mind.catalog.retire(known.row, actor=HUMAN, successor=memory)
            return memory
        revised = await self._mind.catalog.revise(
            known.row, said.content, said.kind, said.details, subject=said.subject, actor=HUMAN
        )
        self._mind.indexing.wake()
        return revised.id

    async def _rows(self, id: str) -> list[Known]:
        """Every version of a memory that is told to more than one session."""
        query = MemoryQuery(id=id, history=True)
        rows = await self._journal.store.memories(self._journal.workspace, query)
        return await known_of(self._journal, self._mind, rows)


async def known_of(journal: Journal, mind: Mind, rows: list[MemoryRow]) -> list[Known]:
    """Rows with their texts; without those of sessions, and what was forgotten, erased or damaged."""
    rows = [row for row in rows if row.intact and row.pool[:1] != b"t"]
    texts: Mapping[int, Mapping[str, Any]] = await mind.texts.of(rows)
    found = []
    for row in rows:
        owner = await journal.landmarks.owner_of(row.owner)
        if row.number in texts and owner is not None:
            found.append(Known(row, texts[row.number], owner.name))
    return found
