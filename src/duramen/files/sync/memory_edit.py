"""Reads and changes one memory as the text of its file."""

from __future__ import annotations

from ...errors import InvalidInput, UnknownMemory, shown
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
        """The file text of a current memory. Raises `UnknownMemory`."""
        return render(memory_file_of(await self._current(id), self._service.policies))

    async def apply(self, id: str, text: str, actor: str | None) -> Memory:
        """Replace a memory by the content of a file text. Returns the new memory, or the old one if nothing changed.
        Raises `UnknownMemory`, `FileMalformed`, or `InvalidInput` for the text of another memory or without content."""
        known = await self._current(id)
        file = parse(text, _NAME)
        if file.id is not None and file.id != id:
            raise InvalidInput(
                f"the text has the id of another memory: {shown(file.id)}", hint="edit that memory, or remove the `id`"
            )
        if is_same(file, memory_file_of(known, self._service.policies)):
            return await self._service.catalog.get(id)
        if not (file.content.strip() or file.steps):
            raise InvalidInput("the text has no content to remember", hint="forget the memory instead")
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
