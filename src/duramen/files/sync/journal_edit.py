"""Journals the edits of a person: as a memory, a procedure, or an accepted proposal."""

from __future__ import annotations

from ...memory.catalog.catalog import HOME
from ...memory.knowledge.procedures import ProcedureEdit
from ...memory.knowledge.proposals import Proposal, ProposalDraft, ProposalState
from ...memory.memory_service import MemoryService
from .memory_mapping import MemoryInput, StoredMemory

HUMAN = "human"
DECIDED_BY_PEOPLE = ("preference", "identity")
"""The kinds of memories that change by proposals only."""


class JournalEdit:
    """Journals the edits of a person. Preferences and identity are proposed and accepted in one step."""

    def __init__(self, service: MemoryService, actor: str = HUMAN, how: str = "written in a file") -> None:
        self._service = service
        self._actor = actor
        self._how = how

    async def say(self, said: MemoryInput) -> str | None:
        """Store a new memory. Returns its id."""
        if said.steps and said.name:
            return await self._save(said)
        if said.kind in DECIDED_BY_PEOPLE:
            wanted = ProposalDraft(said.content, said.kind, said.details, "", self._how)
            proposal = await self._service.proposals.make(wanted, said.subject, self._actor, accepted=True)
            if proposal is not None:
                self._service.index_worker.wake()
                return proposal.memory
        memory = await self._service.catalog.remember(
            HOME, said.content, said.kind, said.details, subject=said.subject, actor=self._actor
        )
        self._service.index_worker.wake()
        return memory.id

    async def propose(self, said: MemoryInput) -> Proposal | None:
        """Propose a new memory. Returns the pending proposal. None if the memory is known, or was dismissed before."""
        wanted = ProposalDraft(said.content, said.kind, said.details, "", self._how)
        proposal = await self._service.proposals.make(wanted, said.subject, self._actor)
        return proposal if proposal is not None and proposal.state is ProposalState.PENDING else None

    async def _save(self, said: MemoryInput) -> str:
        assert said.name is not None
        title = None if said.details["title"] == said.name else said.details["title"]
        importance, metadata = said.details.get("importance"), said.details["metadata"]
        edit = ProcedureEdit(said.steps, title, None, importance, said.content, metadata)
        saved = await self._service.procedures.save(said.name, edit, said.subject, self._actor)
        self._service.index_worker.wake()
        return saved.memory.id

    async def revise(self, known: StoredMemory, said: MemoryInput) -> str | None:
        """Replace a memory. Returns the id of the new memory."""
        if known.procedure is not None or said.kind in DECIDED_BY_PEOPLE or (said.steps and said.name):
            memory = await self.say(said)
            if memory is not None and memory != known.row.id and not await self._is_over(known):
                await self._service.catalog.retire(known.row, actor=self._actor, successor=memory)
            return memory
        revised = await self._service.catalog.revise(
            known.row, said.content, said.kind, said.details, subject=said.subject, actor=self._actor
        )
        self._service.index_worker.wake()
        return revised.id

    async def _is_over(self, known: StoredMemory) -> bool:
        """Whether the memory has already ended, as when the new one has the same key."""
        found = await self._service.catalog.current(known.row.id, known.row.audience)
        return found is None
