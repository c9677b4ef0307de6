"""One memory in the form of its file: read, changed, and put back."""

from __future__ import annotations

from ...errors import InvalidInput, UnknownMemory
from ...journal.events import check_name
from ...journal.journal import Journal
from ...memory.catalog.records import Memory
from ...memory.memory_service import MemoryService
from ..formats.memory_file import parse, render
from .journal_edit import HUMAN, Saying
from .known_memories import Knowing
from .memory_mapping import Known, is_same, leaf_of, path_of, said_in

_NAME = "the memory"


class Editing:
    """Changes memories by their leaves."""

    def __init__(self, journal: Journal, service: MemoryService) -> None:
        self._knowing = Knowing(journal, service)
        self._service = service
        self._workspace = journal.workspace

    async def text(self, id: str) -> str:
        """The leaf of a memory that holds."""
        return render(leaf_of(await self._current(id), self._service.policies))

    async def apply(self, id: str, text: str, actor: str | None) -> Memory:
        """Put what a leaf says in the place of a memory."""
        known = await self._current(id)
        leaf = parse(text, _NAME)
        if leaf.id is not None and leaf.id != id:
            raise InvalidInput(f"this is the leaf of {leaf.id!r}", hint="edit that one, or leave its id out")
        if is_same(leaf, leaf_of(known, self._service.policies)):
            return await self._service.catalog.get(id)
        if not (leaf.content.strip() or leaf.steps):
            raise InvalidInput("there is nothing left to remember", hint="forget the memory instead")
        name = path_of(known, self._workspace).rpartition("/")[2]
        said = said_in(leaf, leaf.kind or known.row.kind, name, known)
        memory = await Saying(self._service, actor or HUMAN, "edited by hand").revise(known, said)
        return await self._service.catalog.get(memory or id)

    async def _current(self, id: str) -> Known:
        versions = await self._knowing.versions(check_name("id of a memory", id))
        found = next((one for one in versions if one.row.closed is None), None)
        if found is None:
            raise UnknownMemory(id)
        return found
