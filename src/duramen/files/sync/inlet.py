"""Files to store: what people edited, added or deleted becomes a journaled change by a human."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import msgspec

from ...errors import FileChanged, FileError, FileMalformed, InvalidInput
from ...journal.journal import Journal
from ...memory.memory_service import MemoryService
from ...runtime import pause, run_blocking
from ..folder.boundary import Folder
from ..folder.walk import LEAVES, Signature, Walked
from ..formats.memory_file import Leaf, parse
from .journal_edit import HUMAN, Saying
from .known_memories import Knowing
from .memory_mapping import FILE, Known, is_same, leaf_of, path_of, said_in
from .report import Left, Taken
from .sync_manifest import Filed, Manifest, is_shared, seen

_SAVING = 0.25
"""Seconds after which a file is missed in earnest: some editors move it away before they write it anew."""
_MANY, _SHARE, _VERY_MANY = 10, 4, 100
"""So many missing files are no deletions by hand, if they are that part of all there were, or very many."""
Shown = Callable[[str, int, int], None]
"""Is told what is done, how much of it, and of how much."""


class Inlet:
    """Takes in what people did to the files of a folder."""

    def __init__(self, journal: Journal, service: MemoryService, folder: Folder, shown: Shown) -> None:
        self._journal = journal
        self._service = service
        self._folder = folder
        self._shown = shown
        self._knowing = Knowing(journal, service)
        self._saying = Saying(service)
        self.taken: list[Taken] = []
        self.conflicts: list[Taken] = []
        self.left: list[Left] = []
        self.removed: list[str] = []
        self.missing: list[str] = []
        self.numbers: set[int] = set()
        """Memories whose files must be written anew, changed or not."""
        self.scopes: set[bool] = set()
        """The indexes that lost a line: True is the root's."""
        self._paths: dict[int, str] = {}
        self._settling: list[tuple[str, str | None, Signature]] = []

    async def take_in(self, walked: Walked, manifest: Manifest, wiped: bool, deletions: bool = False) -> None:
        """Journal what people changed since the last sync. Where all files are gone, none was deleted by hand; where
        many are, they were if somebody says so: `deletions`."""
        self.left += [Left(path, reason) for path, reason in walked.refused]
        self._paths = dict(manifest.numbers)
        changed = [path for path in walked.files if self._is_news(path, walked, manifest)]
        for number, path in enumerate(changed):
            await self._one(path, walked.files[path], manifest, walked)
            self._shown("Reading", number + 1, len(changed))
        for path, memory, signature in self._settling:  # not before: two files may have said the same
            await self._settle(path, memory, signature)
        if not wiped:
            refused = {path for path, _ in walked.refused}
            await self._missed(sorted(manifest.files.keys() - walked.files.keys() - refused), manifest, deletions)

    def _is_news(self, path: str, walked: Walked, manifest: Manifest) -> bool:
        signature, filed = walked.files.get(path), manifest.files.get(path)
        if signature is None or (filed is not None and filed.seen == signature):
            return False
        return self._folder.place(path).area in LEAVES

    async def _one(self, path: str, signature: Signature, manifest: Manifest, walked: Walked) -> None:
        try:
            text = await run_blocking(lambda: self._folder.read(path))
            leaf = None if text is None else parse(text, path)
            if leaf is not None:
                await self._judge(path, leaf, signature, manifest, walked)
        except FileMalformed as error:
            if not await self._erased(path, signature, manifest):
                self.left.append(Left(path, error.reason, error.line))
        except (FileError, InvalidInput) as error:  # one bad file stops no other
            self.left.append(Left(path, error.message))

    async def _judge(self, path: str, leaf: Leaf, signature: Signature, manifest: Manifest, walked: Walked) -> None:
        if leaf.id is None:
            leaf = await self._rewritten(path, leaf, manifest)
        if leaf.id is None:
            await self._added(path, leaf, signature)
            return
        rows = await self._knowing.versions(leaf.id)
        current = next((one for one in rows if one.row.closed is None), None)
        if not rows:
            await self._unknown(path, signature, manifest)
        elif current is not None:
            await self._compared(path, leaf, current, signature, manifest, walked)
        elif (newer := await self._taken_before(path, leaf, rows[-1])) is not None:
            self._told_before(path, leaf, newer, signature, manifest)
        elif not is_same(leaf, self._leaf(rows[-1])):
            await self._clashed(path, leaf, rows[-1], signature, manifest)
        elif path in manifest.files:
            self.numbers.add(manifest.files[path].number)
        else:
            self.left.append(Left(path, "it ended: remove the file, or its `id` to add it anew"))

    async def _rewritten(self, path: str, leaf: Leaf, manifest: Manifest) -> Leaf:
        """A file of ours that lost its `id` was written anew by somebody, or by a program: that is an edit. Where all
        fields are gone, what they said still holds; above all, whose it is."""
        filed = manifest.files.get(path)
        versions = [] if filed is None else await self._knowing.versions(filed.id)
        known = next((one for one in versions if filed and one.row.number == filed.number), None)
        if known is None or known.row.closed is not None:
            return leaf
        self.numbers.add(known.row.number)  # it gets its `id` back
        if not (leaf.kind or leaf.key or leaf.subject or leaf.source):
            old = self._leaf(known)
            leaf = replace(leaf, kind=old.kind, key=old.key, subject=old.subject, scope=old.scope)
            leaf = replace(leaf, tags=leaf.tags or old.tags, extra={**old.extra, **leaf.extra})
        return replace(leaf, id=known.row.id)

    async def _unknown(self, path: str, signature: Signature, manifest: Manifest) -> None:
        """A file of a memory that was forgotten."""
        if not await self._erased(path, signature, manifest):
            self.left.append(Left(path, "its id is not known here, or was forgotten: remove the `id` to add it anew"))

    async def _erased(self, path: str, signature: Signature, manifest: Manifest) -> bool:
        """Whether the owner of a file was erased. Then so is the file, edited or not, whatever is in it."""
        filed = manifest.files.get(path)
        if filed is None or not filed.owner or await self._knowing.has_owner(filed.owner):
            return False
        with suppress(FileChanged):
            if await run_blocking(lambda: self._folder.remove(path, seen=signature)):
                self.removed.append(path)
        return True

    async def _taken_before(self, path: str, leaf: Leaf, old: Known) -> Known | None:
        """What took the place of an old memory, if it says what the file says."""
        said = said_in(leaf, leaf.kind or old.row.kind, self._folder.place(path).name, old)
        for id in (old.row.successor, await self._knowing.identity(said)):
            for one in await self._knowing.versions(id or ""):
                now = self._leaf(one)
                if one.row.closed is None and (now.content, now.steps) == (leaf.content, leaf.steps):
                    return one
        return None

    def _told_before(self, path: str, leaf: Leaf, newer: Known, signature: Signature, manifest: Manifest) -> None:
        """A file that says what holds already: a sync that was killed had journaled it, or it is a copy."""
        self.numbers.add(newer.row.number)
        own = path_of(newer, self._journal.workspace)
        if path in manifest.files or path == own:
            return
        if is_same(leaf, self._leaf(newer)):
            self._settling.append((path, newer.row.id, signature))
        else:
            self.left.append(Left(path, f"a copy of {own}: remove its `id` to add it as a memory of its own"))

    def _leaf(self, known: Known) -> Leaf:
        return leaf_of(known, self._service.policies)

    async def _compared(
        self, path: str, leaf: Leaf, known: Known, signature: Signature, manifest: Manifest, walked: Walked
    ) -> None:
        """A file of a memory that holds: as it is, moved, copied or edited."""
        before = self._paths.get(known.row.number)
        if before is not None and before != path and before in walked.files:
            self.left.append(Left(path, f"a copy of {before}: remove its `id` to add it as a memory of its own"))
            return
        stored = self._leaf(known)
        if is_same(leaf, stored) and before in (None, path):
            await self._touched(path, leaf, stored, known, signature, manifest)
            return
        moved = before not in (None, path)
        if before is not None:
            manifest.drop(before)
            self.scopes.add(is_shared(before))
        where = self._folder.place(path)
        kind = leaf.kind or where.kind or known.row.kind
        if moved and where.kind is not None and where.kind != known.row.kind and leaf.kind == known.row.kind:
            kind = where.kind
        memory = await self._saying.revise(known, said_in(leaf, kind, where.name, known))
        self._settling.append((path, memory, signature))
        self.taken.append(Taken(path, "edited", memory, await self._knowing.source(memory)))

    async def _touched(
        self, path: str, leaf: Leaf, stored: Leaf, known: Known, signature: Signature, manifest: Manifest
    ) -> None:
        """A file that says the same: spaced otherwise, or with another time of verification, or other fields that the
        store alone tells."""
        if leaf.verified is not None and stored.verified is not None and leaf.verified > stored.verified:
            verified = await self._service.catalog.confirm(known.row.id, actor=HUMAN)
            self.taken.append(Taken(path, "verified", known.row.id, verified.source))
        told = ("policy", "observed", "verified", "source")
        if any(getattr(leaf, name) != getattr(stored, name) for name in told):
            self.numbers.add(known.row.number)
        elif path in manifest.files:
            beside = await run_blocking(lambda: self._folder.beside(path))
            manifest.put(path, msgspec.structs.replace(manifest.files[path], seen=seen(signature), beside=beside))

    async def _added(self, path: str, leaf: Leaf, signature: Signature) -> None:
        where = self._folder.place(path)
        if not (leaf.content.strip() or leaf.steps or (leaf.title or "").strip()):
            self.left.append(Left(path, "there is nothing to remember in it", 1))
            return
        said = said_in(leaf, leaf.kind or where.kind or "fact", where.name, None)
        memory = await self._knowing.filed_at(path, said) or await self._saying.say(said)
        self.taken.append(Taken(path, "added", memory, await self._knowing.source(memory)))
        self._settling.append((path, memory, signature))

    async def _settle(self, path: str, memory: str | None, signature: Signature) -> None:
        """A file that lies elsewhere than its memory's own is in the way: that one is, or gets, written."""
        known = [one for one in await self._knowing.versions(memory or "") if one.row.closed is None]
        self.numbers |= {one.row.number for one in known}
        if known and path_of(known[0], self._journal.workspace) != path:
            with suppress(FileChanged):
                await run_blocking(lambda: self._folder.remove(path, seen=signature))

    async def _clashed(self, path: str, leaf: Leaf, old: Known, signature: Signature, manifest: Manifest) -> None:
        """Somebody edited what was replaced meanwhile: what they wrote becomes a memory beside the newer one."""
        said = said_in(leaf, leaf.kind or old.row.kind, self._folder.place(path).name, None)
        metadata = {name: value for name, value in said.details["metadata"].items() if name != FILE}
        metadata["conflicts_with"] = old.row.successor or old.row.id
        memory = await self._saying.say(said._replace(details=said.details | {"key": None, "metadata": metadata}))
        self.conflicts.append(Taken(path, "edited", memory, await self._knowing.source(memory)))
        for id in (old.row.successor or old.row.id, memory or ""):
            self.numbers |= {one.row.number for one in await self._knowing.versions(id)}
        if path in manifest.files:
            self.numbers.add(manifest.files[path].number)  # it has been somebody else's file for a while
        else:
            self._settling.append((path, memory, signature))

    async def _missed(self, paths: list[str], manifest: Manifest, deletions: bool) -> None:
        """Files that are not there any more, if they do not come back at once."""
        if not paths:
            return
        await pause(_SAVING)
        gone: list[str] = []
        for path in paths:
            try:
                found = await run_blocking(lambda path=path: self._folder.signature(path))  # type: ignore[misc]
            except FileError as error:  # a folder on the way is none any more: nobody deleted what was in it
                self.left.append(Left(path, error.message))
                continue
            if found is None:
                gone.append(path)
        if not deletions and _too_many(len(gone), len(manifest.files)):
            self._held_back(gone)
            return
        for path in gone:
            filed = manifest.files[path]
            beside = await run_blocking(lambda path=path: self._folder.beside(path))  # type: ignore[misc]
            if beside and filed.beside and beside != filed.beside:
                self.numbers.add(filed.number)  # in this folder it never was: another one is in its place
            else:
                manifest.drop(path)
                self.scopes.add(is_shared(path))
                await self._deleted(path, filed)

    def _held_back(self, gone: list[str]) -> None:
        """A part of the folder is not there, as after a partial checkout, or where a disk is not mounted."""
        for folder, count in sorted(Counter(path.rpartition("/")[0] for path in gone).items()):
            reason = (
                f"{count} of its files are missing at once, which was not taken for deletions: put them back, or "
                "confirm with `duramen sync --deletions`, or sync(deletions=True); without the workspace's MEMORY.md "
                "all that is missing is written again"
            )
            self.left.append(Left(folder, reason))

    async def _deleted(self, path: str, filed: Filed) -> None:
        self.missing.append(path)
        for one in await self._knowing.versions(filed.id):
            if one.row.number == filed.number and one.row.closed is None:
                event = await self._service.catalog.retire(one.row, actor=HUMAN)
                self.taken.append(Taken(path, "deleted", one.row.id, event))


def _too_many(gone: int, known: int) -> bool:
    return gone >= _MANY and (gone * _SHARE >= known or gone >= _VERY_MANY)
