"""One memory in the form of its file: read, changed, and put back."""

from __future__ import annotations

from ...errors import InvalidInput, UnknownMemory
from ...journal.events import check_name
from ...journal.journal import Journal
from ...memory.catalog.records import Memory
from ...memory.memory_service import MemoryService
from ..formats.memory_file import parse, render
from .journal_edit import HUMAN, JournalEdit
from .known_memories import KnownMemories
from .memory_mapping import StoredMemory, is_same, memory_file_of, memory_input, path_of

_NAME = "the memory"


class MemoryEdit:
    """Reads and changes memories as the texts of their files."""

    def __init__(self, journal: Journal, service: MemoryService) -> None:
        self._memories = KnownMemories(journal, service)
        self._service = service
        self._workspace = journal.workspace

    async def text(self, id: str) -> str:
        """The file of a memory that holds."""
        return render(memory_file_of(await self._current(id), self._service.policies))

    async def apply(self, id: str, text: str, actor: str | None) -> Memory:
        """Put what a file says in the place of a memory."""
        known = await self._current(id)
        file = parse(text, _NAME)
        if file.id is not None and file.id != id:
            raise InvalidInput(f"this is the file of {file.id!r}", hint="edit that one, or leave its id out")
        if is_same(file, memory_file_of(known, self._service.policies)):
            return await self._service.catalog.get(id)
        if not (file.content.strip() or file.steps):
            raise InvalidInput("there is nothing left to remember", hint="forget the memory instead")
        name = path_of(known, self._workspace).rpartition("/")[2]
        said = memory_input(file, file.kind or known.row.kind, name, known)
        memory = await JournalEdit(self._service, actor or HUMAN, "edited by hand").revise(known, said)
        return await self._service.catalog.get(memory or id)

    async def _current(self, id: str) -> StoredMemory:
        versions = await self._memories.versions(check_name("id of a memory", id))
        found = next((one for one in versions if one.row.closed is None), None)
        if found is None:
            raise UnknownMemory(id)
        return found
